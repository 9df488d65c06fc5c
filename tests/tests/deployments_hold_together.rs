//! What is deployed agrees with itself and with the program: the chart renders, its configuration passes `weir check`, and
//! dashboards and alerts ask for series that there are.
#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a scenario says what broke by panicking"
)]

use std::{collections::BTreeSet, fs, path::PathBuf, process::Command};

use serde_yaml_ng::Value;
use weir_tests::{
    built,
    chart::{Chart, yaml},
    promql::{self, Known, Series},
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

/// Asserts that a configuration can be used.
fn assert_usable(text: &str) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("weir.yaml");
    fs::write(&file, text).unwrap();
    let mut weir = Command::new(built::binary("weir"));
    let output = weir.args(["check", "--config", file.to_str().unwrap()]).output().unwrap();
    assert!(output.status.success(), "{}\n{text}", String::from_utf8_lossy(&output.stderr));
}

fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    objects.iter().filter(|object| object["kind"] == kind).collect()
}

/// What is on when everything is on.
const EVERYTHING: &str = "
replicas: 2
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
    assert_eq!(ports, BTreeSet::from(["admin", "http"]));
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        let port = containers[0][probe]["httpGet"]["port"].as_str().unwrap();
        assert!(ports.contains(port), "{probe}");
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
        let config = yaml(of_kind(&objects, "ConfigMap")[0]["data"]["weir.yaml"].as_str().unwrap());
        let shutdown = &config["shutdown"];
        assert!(grace_s >= number(&shutdown["drain_delay_s"]) + number(&shutdown["grace_s"]) + 5);
    }
}

#[test]
fn what_the_chart_mounts_is_a_configuration_that_fits_the_pod() {
    let objects = chart("{}").objects();
    let text = of_kind(&objects, "ConfigMap")[0]["data"]["weir.yaml"].as_str().unwrap();
    assert_usable(text);
    let config = yaml(text);
    assert_eq!(
        (config["listen"].as_str(), config["admin"]["listen"].as_str()),
        (Some("0.0.0.0:8080"), Some("0.0.0.0:8081"))
    );
    for folder in [&config["model"]["bundles"], &config["spool"]["dir"]] {
        assert!(
            folder.as_str().unwrap().starts_with("/var/lib/weir/"),
            "the one folder to write to"
        );
    }
    assert_eq!(config["trainer"]["run"], false, "it runs beside");
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
        ("run: false", "run: true"),
        (", grace_s: 120", ""),
    ] {
        assert!(values.contains(good), "{good}");
        let wrong = validate("values", &yaml(&values.replacen(good, bad, 1)), &schema);
        assert!(wrong.is_err(), "{bad} passes");
    }
}

/// Every series of docs/metrics.md.
fn series() -> Known {
    let page = fs::read_to_string(built::root().join("docs/metrics.md")).unwrap();
    let rows = page.lines().filter_map(|line| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let name = cells.get(1)?.strip_prefix('`')?.strip_suffix('`')?;
        let labels = cells.get(3)?.split(", ").filter(|label| !label.is_empty());
        let labels = labels.map(str::to_owned).collect();
        Some((name.to_owned(), Series { labels, histogram: cells[2] == "histogram" }))
    });
    rows.collect()
}

/// Asserts that a query asks for series and labels that there are.
fn assert_answerable(query: &str, known: &Known) {
    let query = query.replace("$__rate_interval", "5m").replace("$model", ".*");
    promql::check(&query, known).unwrap_or_else(|why| panic!("{why}: {query}"));
}

#[test]
fn the_dashboard_asks_for_series_that_there_are() {
    let dashboard: serde_json::Value = serde_json::from_str(&read("grafana/weir.json")).unwrap();
    let known = series();
    let (mut asked, mut ids) = (0, BTreeSet::new());
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "two panels have one id");
        for target in panel["targets"].as_array().into_iter().flatten() {
            assert_answerable(target["expr"].as_str().unwrap(), &known);
            asked += 1;
        }
    }
    println!("{asked} queries of {} panels", ids.len());
    assert!(asked > 20);
}

#[test]
fn alerts_ask_for_series_that_there_are_and_say_where_to_look() {
    let rules = yaml(&read("prometheus/alerts.yaml"));
    let known = series();
    let rules = rules["groups"][0]["rules"].as_sequence().unwrap();
    for rule in rules {
        assert_answerable(rule["expr"].as_str().unwrap(), &known);
        let severity = rule["labels"]["severity"].as_str().unwrap();
        assert!(["page", "ticket"].contains(&severity), "{rule:?}");
        for annotation in ["summary", "look"] {
            assert!(!rule["annotations"][annotation].as_str().unwrap().is_empty(), "{rule:?}");
        }
    }
    println!("{} alerts", rules.len());
}

#[test]
fn a_query_that_asks_for_what_is_not_there_is_found() {
    let known = series();
    for wrong in [
        "weir_queue_dept",
        "weir_ttft_seconds",
        "sum by (pod) (weir_in_flight)",
        "weir_in_flight{pod=\"a\"}",
        "rate(weir_in_flight[5m]",
        "rat(weir_in_flight)",
        "sum by (objective) (rate(weir_ttft_seconds_bucket[5m]))",
        "1 + 1",
    ] {
        let answer = promql::check(wrong, &known);
        println!("{wrong}: {}", answer.clone().unwrap_err());
        assert!(answer.is_err(), "{wrong}");
    }
    for right in [
        "sum by (model) (weir_in_flight{model=~\"a|b\"}) / 2 > 0.5",
        "histogram_quantile(0.9, sum by (le, model) (rate(weir_ttft_seconds_bucket[5m])))",
        "up{job=\"weir\"} == 0",
    ] {
        assert_eq!(promql::check(right, &known), Ok(()), "{right}");
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
        "dispatcher",
        "model",
        "bench",
        "tests",
    ] {
        assert!(kept.contains(&member), "{member} is left out of the image's build");
    }
    assert!(kept.iter().all(|path| built::root().join(path).exists()), "{kept:?}");
}
