//! What the chart renders is what Kubernetes takes, by the schemas of its oldest and its newest version.

use std::process::Command;

use weir_tests::{
    built,
    chart::{Chart, yaml},
    tool,
};

const VALIDATOR: (&str, &str) = ("kubernetes-validate", "1.37.0");
/// The oldest version that the chart says it is for, and the newest that the validator knows.
const KUBERNETES: [&str; 2] = ["1.27", "1.37"];

/// Everything on; the chart's own values; what can be off is off.
const VALUES: [&str; 3] = [
    "{ replicas: 2, replicasSecret: { name: weir, key: replicas }, tls: { secret: weir-tls, adminSecret: weir-admin-tls, podsConfigMap: pods }, persistence: { existingClaim: learned }, podAnnotations: { team: inference }, \
     restartOnConfigChange: true, nodeSelector: { disk: ssd }, tolerations: [ { key: gpu, operator: Exists } ], \
     env: [ { name: ACME_KEY, valueFrom: { secretKeyRef: { name: weir, key: acme } } } ], \
     networkPolicy: { apiFrom: [ { namespaceSelector: {} } ], adminFrom: [ { podSelector: {} } ] } }",
    "{}",
    "{ trainer: { enabled: false }, podDisruptionBudget: { enabled: false }, networkPolicy: { enabled: false } }",
];

#[test]
fn every_object_of_the_chart_is_one_of_kubernetes_and_has_no_member_that_it_does_not_know() {
    let (package, version) = VALIDATOR;
    let Some(tool) = tool::python(package, version, package) else { return };
    let dir = tempfile::tempdir().unwrap();
    for (number, over) in VALUES.iter().enumerate() {
        let chart = Chart::new(&built::root().join("deploy/helm/weir"), "inference", &yaml(over));
        let objects = chart.objects();
        let documents = objects.iter().map(|object| serde_yaml_ng::to_string(object).unwrap());
        let file = dir.path().join(format!("values-{number}.yaml"));
        std::fs::write(&file, documents.collect::<Vec<_>>().join("---\n")).unwrap();
        for kubernetes in KUBERNETES {
            let mut validate = Command::new(&tool);
            validate.args(["--strict", "-k", kubernetes]).arg(&file);
            let output = validate.output().unwrap();
            let said =
                String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
            println!("{over:.40}: {said}");
            assert!(output.status.success(), "{said}");
            assert_eq!(said.matches(" passed ").count(), objects.len(), "{said}");
        }
    }
}
