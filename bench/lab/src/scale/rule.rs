//! Rules by which a pool is scaled: a fixed number of pods, or a figure put through what Kubernetes' autoscaler does with it.
//!
//! The way from a figure to a number of pods is that of HorizontalPodAutoscaler (autoscaling/v2) with its defaults:
//! - No change while the figure is within [`TOLERANCE`] of its target.
//! - A mean per pod is one of the pods that are ready. Pods that load count as pods that do nothing, and only where there would
//!   be more pods than now: what is wanted is the sum over the ready ones divided by the target.
//! - A figure of the whole pool, like a load, says how many times the ready pods are wanted; a number of things to be shared
//!   out, like requests that wait, is divided by the target.
//! - At most twice the pods in one step, or [`STEP`] more where that is more.
//! - Fewer only as the highest number that was wanted within [`STABLE_FOR`] allows. That starts with the pods that there are.
//!
//! Figures are those of the moment. In the field they are some seconds old, so that these rules do no worse here than there.

use std::{collections::VecDeque, fmt, str::FromStr, time::Duration};

use weir_core::{Need, Scrape, Time};

use crate::{
    bounds::MOST_PODS,
    sim::{Scaler, View},
};

/// A figure that is off its target by no more than this share changes nothing.
pub(super) const TOLERANCE: f64 = 0.1;
/// Pods that a step may add, where twice the pods are fewer.
pub(super) const STEP: usize = 4;
/// For how long a number of pods that was wanted keeps them.
pub(super) const STABLE_FOR: Duration = Duration::from_secs(300);

/// A number that went through a division may be a little more than itself.
const ROUNDING: f64 = 1e-9;

/// How many pods there are to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// Always so many.
    Fixed(usize),
    /// As many as the dispatcher says it takes for what may not be shed.
    Weir,
    /// As many as it says it takes for all requests.
    WeirAll,
    /// So that the load of which the dispatcher tells is this.
    WeirLoad(f64),
    /// So that each pod runs so many requests (`vllm:num_requests_running`), in the mean.
    Running(f64),
    /// So that this share of each pod's KV cache is in use, in the mean.
    Kv(f64),
    /// One for so many requests that wait, in the dispatcher or in an engine.
    Queue(f64),
}

/// What can be asked for.
const FORMS: &str =
    "fixed:PODS, weir, weir-all, weir-load:LOAD, running:REQUESTS, kv:SHARE, queue:REQUESTS";

impl FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let target = |word: &str| {
            let number = word.parse().ok().filter(|one: &f64| one.is_finite() && *one > 0.0);
            number.ok_or_else(|| format!("rule {text:?}: {word:?} is no number above zero"))
        };
        match text.split_once(':') {
            None if text == "weir" => Ok(Self::Weir),
            None if text == "weir-all" => Ok(Self::WeirAll),
            Some(("fixed", pods)) => {
                let pods = pods.parse().ok().filter(|pods| (1..=MOST_PODS).contains(pods));
                let wrong = || format!("rule {text:?}: pods are a number from 1 to {MOST_PODS}");
                pods.map(Self::Fixed).ok_or_else(wrong)
            }
            Some(("weir-load", load)) => target(load).map(Self::WeirLoad),
            Some(("running", requests)) => target(requests).map(Self::Running),
            Some(("kv", share)) => target(share).map(Self::Kv),
            Some(("queue", requests)) => target(requests).map(Self::Queue),
            _ => Err(format!("no rule is called {text:?}; there are {FORMS}")),
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(pods) => write!(to, "fixed:{pods}"),
            Self::Weir => to.write_str("weir"),
            Self::WeirAll => to.write_str("weir-all"),
            Self::WeirLoad(load) => write!(to, "weir-load:{load}"),
            Self::Running(requests) => write!(to, "running:{requests}"),
            Self::Kv(share) => write!(to, "kv:{share}"),
            Self::Queue(requests) => write!(to, "queue:{requests}"),
        }
    }
}

impl Rule {
    /// Pods wanted by what is seen, before any bound; `None` where nothing is seen that says it.
    fn desired(self, view: &View<'_>) -> Option<usize> {
        let need = |of: fn(&Need) -> f64| view.need.as_ref().map(of);
        let sum = |of: fn(&Scrape) -> f64| view.pods.iter().map(of).sum::<f64>();
        match self {
            Self::Fixed(pods) => Some(pods),
            Self::Weir => shared_out(need(|need| need.pods.into())?, 1.0, view),
            Self::WeirAll => shared_out(need(|need| need.pods_for_all.into())?, 1.0, view),
            Self::WeirLoad(target) => of_pool(need(|need| need.load)?, target, view),
            Self::Running(target) => per_pod(sum(|pod| pod.running.into()), target, view),
            Self::Kv(target) => per_pod(sum(|pod| pod.kv_usage.into()), target, view),
            Self::Queue(target) => {
                let waiting = view.waiting as f64 + sum(|pod| pod.waiting.into());
                shared_out(waiting, target, view)
            }
        }
    }
}

/// Pods for a figure whose mean per pod is to be `target`, from its sum over those that are ready.
fn per_pod(sum: f64, target: f64, view: &View<'_>) -> Option<usize> {
    if view.ready == 0 {
        return None;
    }
    let ratio = |pods: usize| sum / (target * pods as f64);
    let with_all = ratio(current(view));
    let more = ratio(view.ready) > 1.0;
    let heard = if more { with_all } else { ratio(view.ready) };
    // Pods that load turn what asked for more into what asks for no change.
    let stays = is_near(heard) || (more && with_all <= 1.0);
    if stays { Some(current(view)) } else { whole(sum / target) }
}

/// Pods for a figure of the whole pool that is to be `target`.
fn of_pool(value: f64, target: f64, view: &View<'_>) -> Option<usize> {
    if view.ready == 0 {
        return None;
    }
    let ratio = value / target;
    if is_near(ratio) { Some(current(view)) } else { whole(ratio * view.ready as f64) }
}

/// Pods for so many things, of which each is to have `target`.
fn shared_out(things: f64, target: f64, view: &View<'_>) -> Option<usize> {
    let pods = things / target;
    if is_near(pods / current(view) as f64) { Some(current(view)) } else { whole(pods) }
}

fn is_near(ratio: f64) -> bool {
    (ratio - 1.0).abs() <= TOLERANCE + ROUNDING
}

/// The whole number of pods that is enough.
fn whole(pods: f64) -> Option<usize> {
    pods.is_finite().then(|| (pods - ROUNDING).ceil().max(0.0) as usize)
}

/// Pods that there are or soon will be.
fn current(view: &View<'_>) -> usize {
    view.ready + view.starting
}

/// Pods that a rule may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Never fewer.
    pub least: usize,
    /// Never more.
    pub most: usize,
}

/// A rule at work.
#[derive(Clone, Debug)]
pub struct Autoscaler {
    rule: Rule,
    limits: Limits,
    /// What was wanted within [`STABLE_FOR`], and when.
    wanted: VecDeque<(Time, usize)>,
}

impl Autoscaler {
    /// A rule between its limits, which a fixed number of pods does not heed.
    pub const fn new(rule: Rule, limits: Limits) -> Self {
        Self { rule, limits, wanted: VecDeque::new() }
    }

    /// The number that is heeded of one that is wanted: no fewer than were wanted of late, unless there are fewer now.
    fn stable(&mut self, now: Time, current: usize, desired: usize) -> usize {
        if self.wanted.is_empty() {
            self.wanted.push_back((now, current));
        }
        self.wanted.push_back((now, desired));
        self.wanted.retain(|(at, _)| now.since(*at) < STABLE_FOR);
        let highest = self.wanted.iter().map(|(_, pods)| *pods).max().unwrap_or(desired);
        current.clamp(desired, highest)
    }
}

impl Scaler for Autoscaler {
    fn pods(&mut self, view: &View<'_>) -> usize {
        if let Rule::Fixed(pods) = self.rule {
            return pods;
        }
        let current = current(view);
        let heeded = match self.rule.desired(view) {
            Some(desired) => self.stable(view.now, current, desired),
            None => current,
        };
        let at_once = (current * 2).max(current + STEP);
        heeded.min(at_once).min(self.limits.most).max(self.limits.least)
    }
}
