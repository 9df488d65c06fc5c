//! One simulation of one rule, and what is counted of it.

use anyhow::Result;
use weir_core::Time;

use super::rule::{Autoscaler, Limits, Rule};
use crate::{
    contender::Contender,
    sim::{Growth, Outcome, SCALE_EVERY, Scaled, Scaler, SimRequest, View, drive_scaled},
    study::{Setting, TopBand, in_time, requests_of, warm_up},
};

/// What all rules share.
#[derive(Clone)]
pub(super) struct Plan {
    /// Traffic, objectives and what is known of pods. Its pool is the one that load 1 is of.
    pub(super) setting: Setting,
    /// Mean load of that pool.
    pub(super) load: f64,
    /// Pods that are ready at the beginning, but for a fixed number of them.
    pub(super) first: usize,
    /// Time from the start of a pod until it is ready.
    pub(super) start: std::time::Duration,
    pub(super) limits: Limits,
}

/// What one rule did with the requests of one seed. Shares are of the requests behind the warm-up.
#[derive(Clone, Debug)]
pub(super) struct Figures {
    pub(super) pod_hours: f64,
    pub(super) mean_pods: f64,
    pub(super) most_pods: usize,
    pub(super) requests: usize,
    pub(super) refused: usize,
    pub(super) in_time_top: f64,
    pub(super) in_time: f64,
    /// From arrival, of those that were served.
    pub(super) ttft_ms: Vec<f64>,
    /// One for each look at the pods.
    pub(super) series: Vec<Moment>,
}

/// A look at the pods, and the requests since the one before it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Moment {
    /// Seconds from the beginning.
    pub(super) t_s: f64,
    /// Requests that arrived.
    pub(super) arrivals: usize,
    /// Pods that take requests.
    pub(super) ready: usize,
    /// Pods that load.
    pub(super) starting: usize,
    /// Pods that there are to be.
    pub(super) wanted: usize,
    /// Load of which the dispatcher tells, without what may be shed.
    pub(super) load: Option<f64>,
    /// Load that it believes the pods to hold.
    pub(super) held: Option<f64>,
    /// Requests among the arrivals that were in time.
    pub(super) in_time: usize,
}

/// One rule, the requests of one seed.
///
/// # Errors
/// When the source makes no such requests, or there is no model where one is asked for.
pub(super) fn play(plan: &Plan, rule: Rule, seed: u64) -> Result<Figures> {
    let (requests, scaled, moments) = simulate(plan, rule, seed)?;
    Ok(figures(plan, &requests, &scaled, moments))
}

/// The simulation itself: its requests, what became of them, and every look at the pods.
pub(super) fn simulate(
    plan: &Plan,
    rule: Rule,
    seed: u64,
) -> Result<(Vec<SimRequest>, Scaled, Vec<Moment>)> {
    let setting = &plan.setting;
    let requests = requests_of(setting, plan.load, seed)?;
    let dispatcher = setting.dispatcher(&Contender::named("weir")?, seed)?;
    let Some(of) = setting.pool.pods.first() else { anyhow::bail!("a pool without pods") };
    let growth = Growth {
        pod: &|number| of.seeded(seed, number),
        first: if let Rule::Fixed(pods) = rule { pods } else { plan.first },
        start: plan.start,
        scrape_every: setting.pool.scrape_every,
    };
    let scaler = Autoscaler::new(rule, plan.limits);
    let mut seen = Seen { scaler, moments: Vec::new() };
    let scaled = drive_scaled(growth, dispatcher, &requests, &mut seen);
    Ok((requests, scaled, seen.moments))
}

/// Writes down what a scaler was shown and what it wanted.
struct Seen {
    scaler: Autoscaler,
    moments: Vec<Moment>,
}

impl Scaler for Seen {
    fn pods(&mut self, view: &View<'_>) -> usize {
        let wanted = self.scaler.pods(view);
        self.moments.push(Moment {
            t_s: view.now.as_micros() as f64 / 1e6,
            ready: view.ready,
            starting: view.starting,
            wanted,
            load: view.need.map(|need| need.load),
            held: view.need.map(|need| need.held),
            ..Moment::default()
        });
        wanted
    }
}

fn figures(
    plan: &Plan,
    requests: &[SimRequest],
    scaled: &Scaled,
    mut moments: Vec<Moment>,
) -> Figures {
    let run = &scaled.run;
    let top = TopBand::of(requests, &plan.setting.objectives);
    let both = || requests.iter().zip(&run.outcomes);
    for (asked, outcome) in both() {
        let at = arrived(asked, outcome).as_micros() / SCALE_EVERY.as_micros().max(1) as u64;
        if let Some(moment) = moments.get_mut(at as usize) {
            moment.arrivals += 1;
            moment.in_time += usize::from(in_time(asked, outcome));
        }
    }
    let counted = || both().skip(warm_up(requests));
    let count = counted().count();
    let counted_in_time = counted().filter(|(asked, outcome)| in_time(asked, outcome)).count();
    let served = counted().filter_map(|(_, outcome)| match outcome {
        Outcome::Served(served) => Some(served.ttft_from_arrival_ms()),
        Outcome::Refused(_) | Outcome::Rejected => None,
    });
    let ttft_ms: Vec<f64> = served.collect();
    let lasted_s = run.ended.since(Time::ZERO).as_secs_f64();
    Figures {
        pod_hours: scaled.pod_s / 3600.0,
        mean_pods: if lasted_s > 0.0 { scaled.pod_s / lasted_s } else { 0.0 },
        most_pods: scaled.most_pods,
        requests: count,
        refused: count - ttft_ms.len(),
        in_time_top: top.attained(requests, run),
        in_time: counted_in_time as f64 / count.max(1) as f64,
        ttft_ms,
        series: moments,
    }
}

/// When a request really came; one that was not served, when it was planned to.
fn arrived(asked: &SimRequest, outcome: &Outcome) -> Time {
    match outcome {
        Outcome::Served(served) => served.arrived,
        Outcome::Refused(_) | Outcome::Rejected => asked.request.arrived,
    }
}
