//! A line of results: what one rule did, over the seeds.

use serde::Serialize;

use super::{
    rule::Rule,
    run::{Figures, Plan},
};
use crate::study::{Fingerprints, Quantiles, half_width};

/// What one rule did. Pod-hours, pods and shares are means over the seeds, with the half width of their 95 % interval where there
/// are two seeds at least; times are of all seeds' requests together. Shares are from 0 to 1 and of the requests behind the
/// warm-up, the first 5 %; pods are counted from the beginning, also while they load or drain.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ScaleRow {
    /// Name of the traffic.
    pub workload: String,
    /// Name of the objectives.
    pub mix: String,
    /// Name of the pods' hardware.
    pub gpu: String,
    /// What the dispatcher knew of the engines.
    pub prediction: String,
    /// What tells traffic, objectives and pods from others that are called the same.
    pub fingerprints: Fingerprints,
    /// The rule, as `--rules` says it.
    pub rule: String,
    /// Mean load of [`Self::load_pods`] pods.
    pub load: f64,
    /// Pods that the load is of.
    pub load_pods: usize,
    /// Seconds that a pod loads before it is ready.
    pub start_s: f64,
    /// Pods that a rule has at least; not a fixed number of them.
    pub least: usize,
    /// And at most.
    pub most: usize,
    /// How many seeds.
    pub seeds: usize,
    /// Requests behind the warm-up, of all seeds.
    pub requests: usize,
    /// Hours that pods were there, of all pods together.
    pub pod_hours: f64,
    /// Half width of its interval.
    pub pod_hours_ci: Option<f64>,
    /// Pods that were there, in the mean over the run.
    pub mean_pods: f64,
    /// The most that were there at once, of any seed.
    pub most_pods: usize,
    /// Share of the requests of the highest band that met both objectives.
    pub in_time_top: f64,
    /// Half width of its interval.
    pub in_time_top_ci: Option<f64>,
    /// The same of all requests.
    pub in_time: f64,
    /// Half width of its interval.
    pub in_time_ci: Option<f64>,
    /// Share of the requests that were refused by the dispatcher or by an engine.
    pub refused: f64,
    /// From arrival to the first token: what 95 % of those that were served did not exceed, in milliseconds.
    pub ttft_ms_p95: Option<f64>,
}

impl ScaleRow {
    /// The row of a rule over its seeds.
    pub(super) fn of(plan: &Plan, rule: Rule, seeds: &[Figures]) -> Self {
        let all = |of: fn(&Figures) -> f64| seeds.iter().map(of).collect::<Vec<_>>();
        let mean = |of| Quantiles::of(all(of)).mean.unwrap_or_default();
        let ttft_ms = seeds.iter().flat_map(|seed| seed.ttft_ms.iter().copied()).collect();
        let setting = &plan.setting;
        Self {
            workload: setting.source.name().to_owned(),
            mix: setting.mix.clone(),
            gpu: setting.gpu.clone(),
            prediction: setting.knowledge.name(),
            fingerprints: Fingerprints::of(setting),
            rule: rule.to_string(),
            load: plan.load,
            load_pods: setting.pool.pods.len(),
            start_s: plan.start.as_secs_f64(),
            least: plan.limits.least,
            most: plan.limits.most,
            seeds: seeds.len(),
            requests: seeds.iter().map(|seed| seed.requests).sum(),
            pod_hours: mean(|seed| seed.pod_hours),
            pod_hours_ci: half_width(&all(|seed| seed.pod_hours)),
            mean_pods: mean(|seed| seed.mean_pods),
            most_pods: seeds.iter().map(|seed| seed.most_pods).max().unwrap_or_default(),
            in_time_top: mean(|seed| seed.in_time_top),
            in_time_top_ci: half_width(&all(|seed| seed.in_time_top)),
            in_time: mean(|seed| seed.in_time),
            in_time_ci: half_width(&all(|seed| seed.in_time)),
            refused: mean(|seed| seed.refused as f64 / seed.requests.max(1) as f64),
            ttft_ms_p95: Quantiles::of(ttft_ms).p95,
        }
    }
}
