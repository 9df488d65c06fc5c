//! The requests through `weir serve` and `weir-bench pod`, or engines of the user's own, over HTTP and in real time.

use std::{fmt::Write as _, net::SocketAddr, path::Path, time::Duration};

use anyhow::{Context, Result, ensure};
use weir_core::Policy;

use super::{
    Got, Prediction,
    slice::{Slice, band},
};
use crate::{
    demo::{Group, Place, Stage, class},
    http_get,
    load::{self, Class, LoadReport, Outcome, Record},
};

/// Time between two scrapes of a pod: Weir's default.
pub(crate) const SCRAPE_EVERY: Duration = Duration::from_millis(100);

/// What is asked behind Weir.
pub(crate) struct Pods {
    pub(crate) group: Group,
    /// The model that they serve.
    pub(crate) model: String,
    /// Whether somebody else runs them; else they are started, and end with the run.
    pub(crate) run_already: bool,
}

/// How Weir decides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Decides {
    pub(crate) policy: Policy,
    pub(crate) prediction: Prediction,
}

/// What a run gave.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Gave {
    /// To each request.
    pub(crate) got: Vec<Got>,
    /// How late the load sent at the 99th percentile.
    pub(crate) lag_p99_ms: f64,
}

/// Brings everything up, sends, and says what came of it.
pub(crate) async fn run(
    slice: &Slice,
    pods: &Pods,
    place: &Place,
    decides: Decides,
) -> Result<Gave> {
    pods.answer().await?;
    let yaml = |dir: &Path| yaml(pods, place, decides, &slice.classes, dir);
    let started = if pods.run_already { &[] } else { std::slice::from_ref(&pods.group) };
    let mut stage = Stage::set(place, started, yaml).await?;
    let report = load::run(slice.plan(place.api, &pods.model), |_| {}).await;
    stage.check()?;
    Gave::of(&report)
}

/// Sends the requests to the only pod itself.
pub(crate) async fn run_direct(slice: &Slice, pods: &Pods) -> Result<Gave> {
    pods.answer().await?;
    let pod: SocketAddr = *pods.group.pods.first().context("no pod")?;
    Gave::of(&load::run(slice.plan(pod, &pods.model), |_| {}).await)
}

impl Pods {
    /// Asks those that somebody else runs what they serve.
    ///
    /// # Errors
    /// When one does not answer, or serves no model of the name.
    async fn answer(&self) -> Result<()> {
        for engine in self.group.pods.iter().filter(|_| self.run_already) {
            let served = served(&http_get::get(*engine, "/v1/models").await?);
            ensure!(
                served.contains(&self.model),
                "{engine} serves {}, and not {:?}: name it with --model",
                served.join(", "),
                self.model,
            );
        }
        Ok(())
    }
}

/// Names of the models in an answer to `GET /v1/models`.
fn served(answer: &str) -> Vec<String> {
    let answer: serde_json::Value = serde_json::from_str(answer).unwrap_or_default();
    let models = answer.get("data").and_then(serde_json::Value::as_array);
    let id = |model: &serde_json::Value| Some(model.get("id")?.as_str()?.to_owned());
    models.into_iter().flatten().filter_map(id).collect()
}

impl Gave {
    fn of(report: &LoadReport) -> Result<Self> {
        ensure!(report.without_outcome == 0, "{} requests have no outcome", report.without_outcome);
        Ok(Self { got: report.records.iter().map(got).collect(), lag_p99_ms: report.lag_p99_ms })
    }
}

fn got(record: &Record) -> Got {
    let served = record.outcome == Outcome::Ok;
    Got {
        class: record.class,
        ttft_ms: record.ttft_ms.filter(|_| served),
        tpot_ms: record.tpot_ms.filter(|_| served),
    }
}

/// Everything but what is said here is Weir's default, as it is in the simulation.
fn yaml(asked: &Pods, place: &Place, decides: Decides, classes: &[Class], dir: &Path) -> String {
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
        "# Written by `weir-bench`.
listen: {api}
admin: {{ listen: {admin} }}
{objectives}classes:
{class}pools:
  - model: {model:?}
    policy: {policy}
    pods:
{pods}scrape: {{ every_ms: {scrape} }}
model: {{ bundles: {bundles:?} }}
spool: {{ dir: {spool:?} }}
state: {{ dir: \"\" }}
trainer: {{ run: {train} }}
",
        api = place.api,
        admin = place.admin,
        objectives = objectives(classes),
        class = class(group),
        model = asked.model,
        policy = decides.policy.name(),
        scrape = SCRAPE_EVERY.as_millis(),
        train = decides.prediction == Prediction::Trained,
    )
}

/// What the requests are judged by. Weir's own defaults name objectives that may not be among them.
fn objectives(classes: &[Class]) -> String {
    let first = classes.first().map_or("", |class| class.name.as_str());
    let mut text = format!("service_tiers: {{}}\ndefault_objective: {first:?}\nobjectives:\n");
    for class in classes {
        let Class { name, ttft_ms, tpot_ms, .. } = class;
        let _ = writeln!(
            text,
            "  {name:?}: {{ band: {}, ttft_ms: {ttft_ms}, tpot_ms: {tpot_ms} }}",
            band(name).0
        );
    }
    text
}
