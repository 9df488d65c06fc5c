//! The requests through `weir serve` and `weir-bench pod`, or engines of the user's own, over HTTP and in real time.

use std::{fmt::Write as _, path::Path, time::Duration};

use anyhow::{Result, ensure};

use super::{Got, Prediction, slice::Slice};
use crate::{
    demo::{Group, Place, Stage, class},
    load::{self, Outcome, Record},
    results::say,
};

/// Time between two scrapes of a pod: Weir's default.
pub(super) const SCRAPE_EVERY: Duration = Duration::from_millis(100);

/// What is asked behind Weir.
pub(super) struct Pods {
    pub group: Group,
    /// The model that they serve.
    pub model: String,
    /// Whether somebody else runs them; else they are started, and end with the run.
    pub run_already: bool,
}

/// Brings everything up, sends, and says what each request got and how late the load sent at the 99th percentile.
pub(super) async fn run(
    slice: &Slice,
    pods: Pods,
    place: &Place,
    prediction: Prediction,
) -> Result<(Vec<Got>, f64)> {
    let yaml = |dir: &Path| yaml(&pods, place, prediction, dir);
    let started = if pods.run_already { &[] } else { std::slice::from_ref(&pods.group) };
    let mut stage = Stage::set(place, started, yaml).await?;
    say!("Logs are in {}.", stage.dir.display())?;
    let report = load::run(slice.plan(place.api, &pods.model), |_| {}).await;
    stage.check()?;
    ensure!(report.without_outcome == 0, "{} requests have no outcome", report.without_outcome);
    Ok((report.records.iter().map(got).collect(), report.lag_p99_ms))
}

fn got(record: &Record) -> Got {
    let served = record.outcome == Outcome::Ok;
    Got {
        class: record.class,
        ttft_ms: record.ttft_ms.filter(|_| served),
        tpot_ms: record.tpot_ms.filter(|_| served),
    }
}

/// Objectives and everything else are Weir's defaults, as they are in the simulation.
fn yaml(asked: &Pods, place: &Place, prediction: Prediction, dir: &Path) -> String {
    let (group, mut pods) = (&asked.group, String::new());
    for (number, address) in group.pods.iter().enumerate() {
        let class = group.engine.hardware.name;
        let _ = writeln!(
            pods,
            "      - {{ name: pod-{number}, url: \"http://{address}\", class: {class} }}"
        );
    }
    let (bundles, spool) = (dir.join("bundles"), dir.join("spool"));
    format!(
        "# Written by `weir-bench honesty`.
listen: {api}
admin: {{ listen: {admin} }}
classes:
{class}pools:
  - model: {model:?}
    pods:
{pods}scrape: {{ every_ms: {scrape} }}
model: {{ bundles: {bundles:?} }}
spool: {{ dir: {spool:?} }}
trainer: {{ run: {train} }}
",
        api = place.api,
        admin = place.admin,
        class = class(group),
        model = asked.model,
        scrape = SCRAPE_EVERY.as_millis(),
        train = prediction == Prediction::Trained,
    )
}
