//! What is deployed agrees with itself and with the program: the chart renders, its configuration passes `weir check`,
//! compose and the image are made of what there is.
#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a scenario says what broke by panicking"
)]

use std::{collections::BTreeSet, fs, path::PathBuf, process::Command};

use serde_yaml_ng::Value;
use weir_tests::{
    Authority, built,
    chart::{Chart, yaml},
};

fn deploy(name: &str) -> PathBuf {
    built::root().join("deploy").join(name)
}

fn read(name: &str) -> String {
    fs::read_to_string(deploy(name)).unwrap()
}

fn chart(over: &str) -> Chart {
    Chart::new(&deploy("helm/weir"), "inference", &yaml(over))
}

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or_else(|| panic!("no number: {value:?}"))
}

/// Asserts that a configuration can be used where the dispatchers' secret is set, and certificates are where the chart mounts
/// them.
fn assert_usable(text: &str) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("weir.yaml");
    let mounts = dir.path().join("mounts");
    let authority = Authority::default();
    let own = authority.certify("tls", "weir");
    for secret in ["tls", "admin-tls"] {
        fs::create_dir_all(mounts.join(secret)).unwrap();
        fs::copy(&own.certificate, mounts.join(secret).join("tls.crt")).unwrap();
        fs::copy(&own.key, mounts.join(secret).join("tls.key")).unwrap();
    }
    fs::write(&file, text.replace("/etc/weir", mounts.to_str().unwrap())).unwrap();
    let mut weir = Command::new(built::binary("weir"));
    weir.args(["check", "--config", file.to_str().unwrap()]).env(SECRET, "s");
    let output = weir.output().unwrap();
    assert!(output.status.success(), "{}\n{text}", String::from_utf8_lossy(&output.stderr));
}

fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    objects.iter().filter(|object| object["kind"] == kind).collect()
}

/// The variable in which the chart hands dispatchers the secret that they share.
const SECRET: &str = "WEIR_REPLICAS_SECRET";

/// What is on when everything is on.
const EVERYTHING: &str = "
replicas: 2
replicasSecret: { name: weir, key: replicas }
tls: { secret: weir-tls, adminSecret: weir-admin-tls, podsConfigMap: pods }
image: { tag: v9 }
imagePullSecrets: [ { name: secret } ]
restartOnConfigChange: true
env: [ { name: ACME_KEY, valueFrom: { secretKeyRef: { name: weir, key: acme } } } ]
persistence: { existingClaim: learned }
podAnnotations: { team: inference }
nodeSelector: { disk: ssd }
tolerations: [ { key: gpu, operator: Exists } ]
affinity: { nodeAffinity: {} }
networkPolicy: { apiFrom: [ { namespaceSelector: {} } ], adminFrom: [ { podSelector: {} } ] }
serviceMonitor: { enabled: true, labels: { release: prometheus } }
";

/// And off.
const LEAST: &str = "
trainer: { enabled: false }
podDisruptionBudget: { enabled: false }
networkPolicy: { enabled: false }
";

#[test]
fn the_chart_renders_to_objects_that_fit_together() {
    for (over, kinds) in [
        (
            "{}",
            [
                "ConfigMap",
                "Deployment",
                "NetworkPolicy",
                "PodDisruptionBudget",
                "Service",
                "Service",
            ]
            .as_slice(),
        ),
        (
            EVERYTHING,
            &[
                "ConfigMap",
                "Deployment",
                "NetworkPolicy",
                "PodDisruptionBudget",
                "Service",
                "Service",
                "Service",
                "ServiceMonitor",
            ],
        ),
        (LEAST, &["ConfigMap", "Deployment", "Service", "Service"]),
    ] {
        let objects = chart(over).objects();
        let mut got: Vec<&str> =
            objects.iter().map(|object| object["kind"].as_str().unwrap()).collect();
        got.sort_unstable();
        assert_eq!(got, kinds, "{over}");
        let named = objects.iter().all(|object| {
            object["metadata"]["name"].as_str().is_some_and(|name| name.starts_with("inference"))
                && object["apiVersion"].is_string()
        });
        assert!(named, "{objects:#?}");
        assert_pod_is_whole(&objects);
    }
}

fn assert_pod_is_whole(objects: &[Value]) {
    let deployment = of_kind(objects, "Deployment")[0];
    let pod = &deployment["spec"]["template"];
    let labels = pod["metadata"]["labels"].as_mapping().unwrap();
    let mut selectors = vec![&deployment["spec"]["selector"]["matchLabels"]];
    selectors
        .extend(of_kind(objects, "Service").iter().map(|service| &service["spec"]["selector"]));
    let budgets = of_kind(objects, "PodDisruptionBudget");
    selectors.extend(budgets.iter().map(|of| &of["spec"]["selector"]["matchLabels"]));
    let policies = of_kind(objects, "NetworkPolicy");
    selectors.extend(policies.iter().map(|of| &of["spec"]["podSelector"]["matchLabels"]));
    for selector in selectors {
        let selector = selector.as_mapping().unwrap();
        assert!(!selector.is_empty());
        assert!(selector.iter().all(|(key, value)| labels.get(key) == Some(value)), "{selector:?}");
    }
    let spec = &pod["spec"];
    assert_eq!(spec["securityContext"]["runAsNonRoot"], true);
    let containers = spec["containers"].as_sequence().unwrap();
    let ports: BTreeSet<&str> = containers[0]["ports"]
        .as_sequence()
        .unwrap()
        .iter()
        .map(|port| port["name"].as_str().unwrap())
        .collect();
    let several = number(&deployment["spec"]["replicas"]) > 1;
    let own = several.then_some("replicas");
    assert_eq!(ports, ["admin", "http"].into_iter().chain(own).collect());
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        let port = containers[0][probe]["httpGet"]["port"].as_str().unwrap();
        assert!(ports.contains(port), "{probe}");
    }
    let ready = containers[0]["readinessProbe"]["httpGet"]["path"].as_str().unwrap();
    assert_eq!(ready, "/readyz?pods=0", "without ready pods it is sent what it holds");
    for monitor in of_kind(objects, "ServiceMonitor") {
        let told = monitor["spec"]["targetLabels"].as_sequence().unwrap();
        let on = of_kind(objects, "Service")[0]["metadata"]["labels"].as_mapping().unwrap();
        assert!(told.iter().all(|label| on.contains_key(label)), "{told:?}");
    }
    for service in of_kind(objects, "Service") {
        let target = service["spec"]["ports"][0]["targetPort"].as_str().unwrap();
        assert!(ports.contains(target), "{service:?}");
    }
    let volumes: BTreeSet<&str> = spec["volumes"]
        .as_sequence()
        .unwrap()
        .iter()
        .map(|volume| volume["name"].as_str().unwrap())
        .collect();
    for container in containers {
        assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
        assert_eq!(container["securityContext"]["capabilities"]["drop"][0], "ALL");
        for mount in container["volumeMounts"].as_sequence().unwrap() {
            assert!(volumes.contains(mount["name"].as_str().unwrap()), "{mount:?}");
            assert!(mount.get("subPath").is_none(), "a subPath is never renewed");
        }
    }
}

#[test]
fn a_pod_is_given_longer_than_its_drain() {
    for over in ["{}", "config: { shutdown: { drain_delay_s: 20, grace_s: 600 } }"] {
        let objects = chart(over).objects();
        let deployment = of_kind(&objects, "Deployment")[0];
        let grace_s =
            number(&deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]);
        let config = yaml(mounted(&objects));
        let shutdown = &config["shutdown"];
        assert!(grace_s >= number(&shutdown["drain_delay_s"]) + number(&shutdown["grace_s"]) + 5);
    }
}

#[test]
fn what_the_chart_mounts_is_a_configuration_that_fits_the_pod() {
    let objects = chart("{}").objects();
    let text = mounted(&objects);
    assert_usable(text);
    let config = yaml(text);
    assert_eq!(
        (config["listen"].as_str(), config["admin"]["listen"].as_str()),
        (Some("0.0.0.0:8080"), Some("0.0.0.0:8081"))
    );
    for folder in [&config["model"]["bundles"], &config["spool"]["dir"], &config["state"]["dir"]] {
        assert!(
            folder.as_str().unwrap().starts_with("/var/lib/weir/"),
            "the one folder to write to"
        );
    }
    assert_eq!(config["trainer"]["run"], false, "it runs beside");
}

/// The configuration that a chart mounts.
fn mounted(objects: &[Value]) -> &str {
    of_kind(objects, "ConfigMap")[0]["data"]["weir.yaml"].as_str().unwrap()
}

fn named<'a>(all: &'a Value, name: &str) -> Option<&'a Value> {
    all.as_sequence().into_iter().flatten().find(|one| one["name"] == name)
}

#[test]
fn several_dispatchers_are_told_of_each_other_and_heard_by_nobody_else() {
    let objects = chart("replicas: 2").objects();
    let text = mounted(&objects);
    assert_usable(text);
    let headless = of_kind(&objects, "Service");
    let headless = headless.iter().find(|one| one["spec"]["clusterIP"] == "None").unwrap();
    assert_eq!(headless["spec"]["publishNotReadyAddresses"], true);
    let port = named(&headless["spec"]["ports"], "replicas").unwrap();
    let pod = &of_kind(&objects, "Deployment")[0]["spec"]["template"]["spec"]["containers"][0];
    let open = number(&named(&pod["ports"], "replicas").unwrap()["containerPort"]);
    assert_eq!((number(&port["port"]), port["targetPort"].as_str()), (open, Some("replicas")));
    let name = headless["metadata"]["name"].as_str().unwrap();
    let expected = format!("{{ listen: '0.0.0.0:{open}', others: ['{name}:{open}'] }}");
    assert_eq!(yaml(text)["replicas"], yaml(&expected));
    assert!(pod.get("env").is_none(), "there is no secret");
    let policy = of_kind(&objects, "NetworkPolicy")[0];
    let ingress = policy["spec"]["ingress"].as_sequence().unwrap();
    let rule = ingress.iter().find(|rule| rule["ports"][0]["port"] == "replicas").unwrap();
    let from = rule["from"].as_sequence().unwrap();
    assert_eq!(from.len(), 1);
    assert_eq!(from[0]["podSelector"], policy["spec"]["podSelector"]);
}

#[test]
fn a_secret_that_dispatchers_share_reaches_whatever_reads_their_configuration() {
    let objects = chart(EVERYTHING).objects();
    assert_usable(mounted(&objects));
    assert_eq!(yaml(mounted(&objects))["replicas"]["secret_env"], SECRET);
    let pod = &of_kind(&objects, "Deployment")[0]["spec"]["template"]["spec"];
    for container in pod["containers"].as_sequence().unwrap() {
        let secret = named(&container["env"], SECRET).unwrap();
        assert_eq!(secret["valueFrom"]["secretKeyRef"], yaml("{ name: weir, key: replicas }"));
        assert!(named(&container["env"], "ACME_KEY").is_some(), "what they had before");
    }
}

#[test]
fn certificates_are_where_the_configuration_has_them_and_for_the_dispatcher_alone() {
    let objects = chart(EVERYTHING).objects();
    let config = yaml(mounted(&objects));
    let spec = &of_kind(&objects, "Deployment")[0]["spec"]["template"]["spec"];
    let (weir, trainer) = (&spec["containers"][0], &spec["containers"][1]);
    for (tls, volume, secret) in [
        (&config["tls"], "tls", "weir-tls"),
        (&config["admin"]["tls"], "admin-tls", "weir-admin-tls"),
    ] {
        assert_eq!(named(&spec["volumes"], volume).unwrap()["secret"]["secretName"], secret);
        let mount = named(&weir["volumeMounts"], volume).unwrap()["mountPath"].as_str().unwrap();
        assert_eq!(tls["certificate"], format!("{mount}/tls.crt"));
        assert_eq!(tls["key"], format!("{mount}/tls.key"));
        assert!(named(&trainer["volumeMounts"], volume).is_none());
    }
    assert!(named(&weir["volumeMounts"], "pods-ca").is_some());
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        assert_eq!(weir[probe]["httpGet"]["scheme"], "HTTPS", "{probe}");
    }
    assert_eq!(of_kind(&objects, "ServiceMonitor")[0]["spec"]["endpoints"][0]["scheme"], "https");
    for text in chart("{}").render().into_values() {
        assert!(!text.contains("tls") && !text.to_lowercase().contains("https"), "{text}");
    }
}

#[test]
fn a_key_of_ones_own_goes_before_what_the_chart_writes_for_several() {
    let over = "{ replicas: 3, config: { replicas: { others: ['weir-a:9000', 'weir-b:9000'] } } }";
    let objects = chart(over).objects();
    assert_usable(mounted(&objects));
    let expected = "{ listen: '0.0.0.0:8082', others: ['weir-a:9000', 'weir-b:9000'] }";
    assert_eq!(yaml(mounted(&objects))["replicas"], yaml(expected));
}

#[test]
fn with_a_secret_one_dispatcher_is_told_of_the_one_that_replaces_it() {
    let secret = "replicasSecret: { name: weir, key: replicas }";
    let alone = chart(secret).objects();
    let several = chart(&format!("{{ replicas: 2, {secret} }}")).objects();
    assert_eq!(mounted(&alone), mounted(&several));
    let kinds = |objects: &[Value]| of_kind(objects, "Service").len();
    assert_eq!(kinds(&alone), kinds(&several));
}

#[test]
fn one_dispatcher_is_told_of_no_others() {
    for (name, text) in chart("{}").render() {
        // The Deployment has a field of that name.
        let said = text.replace("\n  replicas: 1\n", "");
        assert!(!said.contains("replicas") && !said.contains("8082"), "{name}: {said}");
    }
}

#[test]
fn a_changed_configuration_restarts_pods_only_if_asked_to() {
    let checksum = |over: &str| {
        let objects = chart(over).objects();
        let annotations =
            &of_kind(&objects, "Deployment")[0]["spec"]["template"]["metadata"]["annotations"];
        annotations.get("checksum/config").and_then(Value::as_str).map(str::to_owned)
    };
    assert_eq!(checksum("{}"), None);
    let with = |replicas: i64| {
        checksum(&format!("{{ restartOnConfigChange: true, replicas: {replicas} }}"))
    };
    assert_ne!(with(1), with(2), "of several it says more");
    let one = checksum("restartOnConfigChange: true").unwrap();
    let other = checksum("{ restartOnConfigChange: true, config: { threads: 3 } }").unwrap();
    assert!(one.len() == 64 && one != other);
}

/// Asserts that a value is what a schema says, as far as the chart's schema goes.
fn validate(at: &str, value: &Value, schema: &Value) -> Result<(), String> {
    let fail = |why: &str| Err(format!("{at}: {why}"));
    let is = |kind: &str| match kind {
        "object" => value.is_mapping(),
        "array" => value.is_sequence(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "boolean" => value.is_bool(),
        other => panic!("{at}: unknown kind {other}"),
    };
    let kinds = match &schema["type"] {
        Value::Sequence(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        kind => kind.as_str().into_iter().collect::<Vec<_>>(),
    };
    if !kinds.is_empty() && !kinds.iter().any(|kind| is(kind)) {
        return fail(&format!("is no {kinds:?}"));
    }
    if schema.get("const").is_some_and(|only| only != value) {
        return fail("must be another value");
    }
    if schema["enum"].as_sequence().is_some_and(|all| !all.contains(value)) {
        return fail("is none of the choices");
    }
    if schema["minimum"].as_i64().is_some_and(|least| number(value) < least) {
        return fail("is too small");
    }
    let names = schema["required"].as_sequence().into_iter().flatten();
    for name in names {
        if value.get(name).is_none() {
            return fail(&format!("lacks {name:?}"));
        }
    }
    for (name, inner) in value.as_mapping().into_iter().flatten() {
        let name = name.as_str().unwrap();
        match schema["properties"].get(name) {
            Some(schema) => validate(&format!("{at}.{name}"), inner, schema)?,
            None if schema.get("additionalProperties") == Some(&Value::Bool(false)) => {
                return fail(&format!("has no key {name}"));
            }
            None => {}
        }
    }
    for inner in value.as_sequence().into_iter().flatten() {
        validate(&format!("{at}[]"), inner, schema.get("items").unwrap_or(&Value::Null))?;
    }
    Ok(())
}

#[test]
fn the_values_are_what_their_schema_says() {
    let schema = yaml(&read("helm/weir/values.schema.json"));
    let values = read("helm/weir/values.yaml");
    validate("values", &yaml(&values), &schema).unwrap();
    for (good, bad) in [
        ("replicas: 1", "replicas: none"),
        ("replicas: 1", "replicas: 0"),
        ("pullPolicy: IfNotPresent", "pullPolicy: Sometimes"),
        ("podDisruptionBudget:", "podDisruptionBuget:"),
        ("name: \"\", key: \"\"", "name: \"\""),
        ("run: false", "run: true"),
        (", grace_s: 120", ""),
    ] {
        assert!(values.contains(good), "{good}");
        let wrong = validate("values", &yaml(&values.replacen(good, bad, 1)), &schema);
        assert!(wrong.is_err(), "{bad} passes");
    }
}

#[test]
fn compose_mounts_what_is_there_and_gives_time_to_drain() {
    let mut compose = yaml(&read("compose.yaml"));
    compose.apply_merge().unwrap();
    let services = compose["services"].as_mapping().unwrap();
    for (name, service) in services {
        let image = service["image"].as_str().unwrap();
        assert_plain_image(image);
        for mount in service["volumes"].as_sequence().into_iter().flatten() {
            let from = mount.as_str().unwrap().split(':').next().unwrap();
            let there = match from.strip_prefix("./") {
                Some(path) => deploy(path).exists(),
                None => compose["volumes"].get(from).is_some(),
            };
            assert!(there, "{name:?} mounts {from}");
        }
        if image == "weir" {
            assert_eq!(service["read_only"], true, "{name:?}");
            assert_eq!(service["cap_drop"][0], "ALL");
        }
        for other in service["depends_on"].as_sequence().into_iter().flatten() {
            assert!(services.contains_key(other), "{other:?}");
        }
    }
    let text = read("compose/weir.yaml");
    assert_usable(&text);
    let config = yaml(&text);
    let grace = services["weir"]["stop_grace_period"].as_str().unwrap();
    let grace_s: i64 = grace.strip_suffix('s').unwrap().parse().unwrap();
    let shutdown = &config["shutdown"];
    assert!(grace_s > number(&shutdown["drain_delay_s"]) + number(&shutdown["grace_s"]));
    let prometheus = yaml(&read("prometheus/prometheus.yaml"));
    let target = prometheus["scrape_configs"][0]["static_configs"][0]["targets"][0].as_str();
    assert_eq!(target, Some("weir:8081"));
    for file in prometheus["rule_files"].as_sequence().unwrap() {
        assert!(deploy("prometheus").join(file.as_str().unwrap()).is_file());
    }
}

/// No registry is named: whose it is, is for those who build and pull to say.
fn assert_plain_image(image: &str) {
    let host = image.split('/').next().filter(|_| image.contains('/')).unwrap_or_default();
    assert!(!host.contains(['.', ':']) && host != "localhost", "{image} names a registry");
}

#[test]
fn the_image_is_built_of_what_is_there_and_runs_without_root() {
    let text = read("Dockerfile");
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    for line in text.lines() {
        if let Some(image) = line.strip_prefix("ARG ").and_then(|line| line.split_once('=')) {
            assert_plain_image(image.1);
        }
        let words = words(line);
        let from_outside = words.first().is_some_and(|word| word == "COPY")
            && !words.iter().any(|word| word.starts_with("--from="));
        if from_outside && words[1] != "." {
            for source in &words[1..words.len() - 1] {
                assert!(built::root().join(source).exists(), "{line}");
            }
        }
    }
    let user = text.lines().filter_map(|line| line.strip_prefix("USER ")).next_back().unwrap();
    assert!(user.split(':').all(|id| id.parse::<u32>().is_ok_and(|id| id > 0)), "{user}");
    let ignored = read("Dockerfile.dockerignore");
    let kept: Vec<&str> = ignored.lines().filter_map(|line| line.strip_prefix('!')).collect();
    for member in [
        "Cargo.toml",
        "Cargo.lock",
        "config",
        "deploy/native",
        "deploy/profiled.sh",
        "dispatcher",
        "model",
        "bench",
        "tests",
    ] {
        assert!(kept.contains(&member), "{member} is left out of the image's build");
    }
    assert!(kept.iter().all(|path| built::root().join(path).exists()), "{kept:?}");
}
