//! What makes one pod better than another: the higher score is better.
//!
//! The formulas of llm-d's latency scorer and its composite are kept to the digit, so that a team
//! that moves finds the same picks; their errors are not (see docs/policies.md).

use std::cmp::Ordering;

use weir_schema::Target;

use crate::{
    RequestId,
    decide::{Floor, affinity, margins::Margins, pick::Fit, saturation},
    fleet::PodState,
    headroom::{Outlook, risk, start},
    policy::{Placement, Scorer, Strategy},
    queue::Waiting,
};

/// Uncached tokens are compared in steps of this many.
const TOKEN_STEP: f64 = 1024.0;

/// A pod's score. `lost` decides between equal ones, then `tie`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Score {
    /// The higher, the better; also the weight of a weighted draw.
    pub main: f64,
    /// Residents that the longest prompt of late would cost their pace there. Of equals, the higher is better: the others are kept
    /// for such a prompt.
    pub lost: f64,
    /// Of equals, the higher is better.
    pub tie: f64,
}

impl Score {
    /// The better one is the greater.
    pub(super) fn order(&self, other: &Self) -> Ordering {
        let main = self.main.total_cmp(&other.main);
        main.then(self.lost.total_cmp(&other.lost)).then(self.tie.total_cmp(&other.tie))
    }

    /// Whether its pod is kept for long prompts in favour of another one's.
    pub(super) fn is_kept(&self, other: &Self) -> bool {
        self.main.total_cmp(&other.main).is_eq() && self.lost < other.lost
    }
}

impl Floor<'_> {
    /// The scores of pods for a head, in their order.
    pub fn scores(&self, id: RequestId, fits: &[Fit]) -> Vec<Score> {
        let Some(waiting) = self.board.get(id) else { return Vec::new() };
        let main = match self.rules.scorer {
            Scorer::None => vec![0.0; fits.len()],
            Scorer::FewestTokens => {
                let score = |fit: &Fit| self.fewest_tokens(waiting, &fit.outlook);
                return fits.iter().map(score).collect();
            }
            Scorer::LeastRequest => self.each(fits, |pod| -(pod.ledger.len() as f64)),
            Scorer::LowestLatency { target } => {
                fits.iter().map(|fit| -latency(fit, target)).collect()
            }
            Scorer::LoadPrefix { kv_weight, queue_weight, prefix_weight } => {
                self.load_prefix(waiting, fits, [kv_weight, queue_weight, prefix_weight])
            }
            Scorer::PatternLoad { placement } => self.each(fits, |pod| {
                let after = pod.load + self.load_of(waiting, pod).unwrap_or(f64::INFINITY);
                if placement == Placement::Binpack { after } else { -after }
            }),
            Scorer::Headroom {
                ttft_weight,
                tpot_weight,
                strategy,
                kv_weight,
                queue_weight,
                prefix_weight,
            } => {
                let rooms: Vec<_> = fits.iter().map(|fit| self.margins(waiting, fit)).collect();
                if rooms.iter().all(Option::is_none) {
                    self.load_prefix(waiting, fits, [kv_weight, queue_weight, prefix_weight])
                } else {
                    let idle: Vec<bool> = fits.iter().map(|fit| fit.outlook.empty).collect();
                    latency_scores(&rooms, &idle, [ttft_weight, tpot_weight], strategy)
                }
            }
        };
        let given = self.each(fits, |pod| -(pod.dispatched as f64));
        main.into_iter().zip(given).map(|(main, tie)| Score { main, lost: 0.0, tie }).collect()
    }

    /// Fewest tokens to compute, in steps, then a pod that is of no use to a long prompt, then the earliest first token; for a
    /// request that is promised nothing, the least delay of all together, then the pod that was given fewer requests. Times are
    /// the step-time model's, as it is asked first (`headroom::start`): which pod is the best is known before any is predicted.
    pub(super) fn fewest_tokens(&self, waiting: &Waiting, outlook: &Outlook) -> Score {
        if waiting.request.slo.is_empty() {
            let given = self.pods.as_slice().get(outlook.place).map(|pod| pod.dispatched as f64);
            return Score {
                main: -self.delay_ms(waiting, outlook),
                lost: 0.0,
                tie: given.map_or(f64::NEG_INFINITY, |given| -given),
            };
        }
        Score {
            main: -token_steps(outlook.uncached_tokens),
            lost: self.lost_to_long(outlook),
            tie: -f64::from(outlook.tie_ms as f32),
        }
    }

    /// Residents of a pod that the longest prompt of late would cost their pace; 0 where they are as few as it may cost at once.
    fn lost_to_long(&self, outlook: &Outlook) -> f64 {
        let pod = self.pods.as_slice().get(outlook.place);
        let (Some(stall_ms), Some(pod)) = (self.kept_for_ms, pod) else { return 0.0 };
        let lost = risk::at_risk(&pod.ledger, outlook, stall_ms, self.now);
        if lost > self.config.pull.risk_at_once { lost } else { 0.0 }
    }

    fn each(&self, fits: &[Fit], of: impl Fn(&PodState) -> f64) -> Vec<f64> {
        let pods = fits.iter().map(|fit| self.pods.get(&fit.outlook.pod));
        pods.map(|pod| pod.map_or(f64::NEG_INFINITY, &of)).collect()
    }

    /// (w_kv (1 - kv) + w_q (max q - q) / max q + w_p prefix) / sum of w, in hundredths.
    fn load_prefix(&self, waiting: &Waiting, fits: &[Fit], weights: [f64; 3]) -> Vec<f64> {
        let stale = self.config.pull.stale_after_ms;
        let loads: Vec<[f64; 3]> = fits
            .iter()
            .map(|fit| {
                let Some(pod) = self.pods.get(&fit.outlook.pod) else {
                    return [1.0, f64::MAX, 0.0];
                };
                let kv = saturation::kv_usage(pod, self.now, stale);
                let queue = saturation::queue_depth(pod, self.now, stale);
                [kv, queue, affinity::cached_share(waiting, pod.spec.id)]
            })
            .collect();
        load_prefix_scores(&loads, weights)
    }
}

/// Uncached tokens in whole steps.
pub(super) fn token_steps(uncached_tokens: f64) -> f64 {
    start::whole(uncached_tokens / TOKEN_STEP)
}

fn latency(fit: &Fit, target: Target) -> f64 {
    match target {
        Target::Ttft => f64::from(fit.prediction.ttft_ms.p50),
        Target::Tpot => f64::from(fit.prediction.tpot_ms.p50),
    }
}

/// Scores of pods by KV use, queue depth and cached share of the prompt.
pub fn load_prefix_scores(loads: &[[f64; 3]], weights: [f64; 3]) -> Vec<f64> {
    let longest = loads.iter().map(|[_, queue, _]| *queue).fold(0.0, f64::max);
    let [kv_weight, queue_weight, prefix_weight] = weights;
    let all = kv_weight + queue_weight + prefix_weight;
    let score = |[kv, queue, prefix]: &[f64; 3]| {
        let short = if longest > 0.0 { (longest - queue) / longest } else { 1.0 };
        let sum = kv_weight * (1.0 - kv) + queue_weight * short + prefix_weight * prefix;
        (sum / all * 100.0).round() / 100.0
    };
    loads.iter().map(score).collect()
}

/// Scores of pods by headroom, 0.01 to 1.01. While any pod meets both objectives, those that do not
/// get 0; otherwise idle pods alone count, else the least bad of: TPOT alone, TTFT alone, both
/// violated. A pod without a prediction gets 0: unknown is never best.
pub fn latency_scores(
    rooms: &[Option<Margins>],
    idle: &[bool],
    weights: [f64; 2],
    strategy: Strategy,
) -> Vec<f64> {
    let known = || rooms.iter().zip(idle).filter_map(|(room, idle)| Some(((*room)?, *idle)));
    let any_met = known().any(|(room, _)| room.met());
    let any_idle = known().any(|(_, idle)| idle);
    let best = known().map(|(room, _)| severity(room)).min();
    let counts = |room: Margins, idle: bool| match (any_met, any_idle) {
        (true, _) => room.met(),
        (false, true) => idle,
        (false, false) => Some(severity(room)) == best,
    };
    let chosen: Vec<Option<Margins>> = rooms
        .iter()
        .zip(idle)
        .map(|(room, idle)| room.filter(|room| counts(*room, *idle)))
        .collect();
    let strategy = if any_met { strategy } else { Strategy::Least };
    graded(&chosen, weights, strategy)
}

/// 0 for meeting both objectives, then from the least bad violation to the worst.
fn severity(room: Margins) -> u8 {
    match (room.ttft_ms >= 0.0, room.tpot_ms >= 0.0) {
        (true, true) => 0,
        (true, false) => 1,
        (false, true) => 2,
        (false, false) => 3,
    }
}

/// Scores by size of headroom: each dimension spread over 0 to 1, weighted, in hundredths.
fn graded(rooms: &[Option<Margins>], weights: [f64; 2], strategy: Strategy) -> Vec<f64> {
    let sizes =
        |of: fn(&Margins) -> f64| Spread::of(rooms.iter().flatten().map(|room| of(room).abs()));
    let (ttft, tpot) = (sizes(|room| room.ttft_ms), sizes(|room| room.tpot_ms));
    let [ttft_weight, tpot_weight] = weights;
    let ttft_weight = if ttft.is_flat() { 0.0 } else { ttft_weight };
    let tpot_weight = if tpot.is_flat() { 0.0 } else { tpot_weight };
    let all = ttft_weight + tpot_weight;
    let score = |room: &Margins| {
        if all <= 0.0 {
            return 0.51;
        }
        let sum = ttft_weight / all * ttft.place(room.ttft_ms.abs())
            + tpot_weight / all * tpot.place(room.tpot_ms.abs());
        let grade = if strategy == Strategy::Least { 1.0 - sum } else { sum };
        ((grade * 100.0).floor() + 1.0) / 100.0
    };
    rooms.iter().map(|room| room.as_ref().map_or(0.0, score)).collect()
}

/// Smallest and largest of some sizes.
#[derive(Clone, Copy, Debug)]
struct Spread {
    least: f64,
    most: f64,
}

impl Spread {
    fn of(sizes: impl Iterator<Item = f64>) -> Self {
        let none = Self { least: f64::INFINITY, most: f64::NEG_INFINITY };
        sizes.fold(none, |spread, size| Self {
            least: spread.least.min(size),
            most: spread.most.max(size),
        })
    }

    /// Whether it tells nobody apart.
    fn is_flat(self) -> bool {
        self.most <= self.least
    }

    /// 0 for the smallest, 1 for the largest.
    fn place(self, size: f64) -> f64 {
        if self.is_flat() { 0.0 } else { (size - self.least) / (self.most - self.least) }
    }
}
