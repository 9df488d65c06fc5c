//! Dashboards and alerts ask for series that there are, in words that Prometheus takes.
#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a scenario says what broke by panicking"
)]

use std::{collections::BTreeSet, fs, process::Command};

use weir_tests::{
    built,
    chart::yaml,
    promql::{self, Known, Series},
    tool,
};

/// A file of deploy/.
fn read(name: &str) -> String {
    fs::read_to_string(built::root().join("deploy").join(name)).unwrap()
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
fn what_counts_failures_has_an_alert() {
    let alerts = read("prometheus/alerts.yaml");
    let fails = ["_failing", "_failed", "_failures_total", "_dropped_total", "_displaced_total"];
    let known = series();
    let counted: Vec<&String> =
        known.keys().filter(|name| fails.iter().any(|end| name.ends_with(end))).collect();
    assert!(counted.len() >= 8, "{counted:?}");
    let silent: Vec<_> = counted.iter().filter(|name| !alerts.contains(name.as_str())).collect();
    assert!(silent.is_empty(), "nobody is told of {silent:?}");
}

#[test]
fn two_releases_may_run_different_configurations_and_decide_for_themselves() {
    let rules = yaml(&read("prometheus/alerts.yaml"));
    let rules = rules["groups"][0]["rules"].as_sequence().unwrap();
    for (alert, within, count) in [
        ("WeirConfigsDiffer", "by (namespace, job, app_kubernetes_io_instance)", 2),
        ("WeirSeveralDecide", "by (namespace, job, app_kubernetes_io_instance, model)", 1),
    ] {
        let rule = rules.iter().find(|rule| rule["alert"] == alert).unwrap();
        let query = rule["expr"].as_str().unwrap();
        assert_eq!(query.matches(within).count(), count, "{query}");
    }
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
fn prometheus_takes_the_rules_and_the_configuration() {
    let Some(promtool) = tool::in_path("promtool") else { return };
    let folder = built::root().join("deploy/prometheus");
    for (what, file) in [("rules", "alerts.yaml"), ("config", "prometheus.yaml")] {
        let check =
            Command::new(&promtool).args(["check", what, file]).current_dir(&folder).output();
        let output = check.unwrap();
        println!("{}", String::from_utf8_lossy(&output.stdout));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}
