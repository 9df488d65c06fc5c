//! Which head is looked at first: by band, then by the policy's order.
//!
//! Deadline, arrival and size are known on arrival and are the lanes' own rank. Slack and the
//! probability of a violation change with pods and time, so heads are sorted anew in each pass; inside
//! a lane, where requests cost alike, the earliest deadline has the least slack.

use std::cmp::Reverse;

use crate::{
    Band, RequestId,
    decide::{Floor, affinity},
    headroom::judge::{tpot_slo_ms, ttft_slo_ms},
    policy::Order,
    queue::{Rank, Waiting},
};

/// What the 90th percentile of a normal distribution is above its median, in standard deviations.
const P90_DEVIATIONS: f64 = 1.2816;
/// Slope of the logistic curve nearest to the normal distribution's.
const LOGISTIC_SLOPE: f64 = 1.702;

impl Floor<'_> {
    /// The heads of all lanes, the first to be served first.
    pub fn heads(&mut self) -> Vec<(Band, Rank, RequestId)> {
        let heads = self.board.heads();
        let urgency: fn(&mut Self, RequestId) -> f64 = match self.rules.order {
            Order::Slack => Self::signed_rank_ms,
            Order::Violation => Self::violation,
            Order::Deadline | Order::SloDeadline | Order::Fifo | Order::ShortestFirst => {
                return heads;
            }
        };
        let mut keyed: Vec<_> =
            heads.into_iter().map(|head| (urgency(self, head.2), head)).collect();
        keyed.sort_by(|(a, one), (b, other)| {
            let bands = Reverse(one.0).cmp(&Reverse(other.0));
            bands.then(b.total_cmp(a)).then(Reverse(one.1).cmp(&Reverse(other.1)))
        });
        keyed.into_iter().map(|(_, head)| head).collect()
    }

    /// AIBrix's rank of a head on its most relaxed pod: wait + expected - target in milliseconds, the
    /// greatest over the objectives that are set. Above zero a violation is expected.
    fn signed_rank_ms(&mut self, id: RequestId) -> f64 {
        let outlooks = self.look(id);
        let Some(waiting) = self.board.get(id) else { return f64::NEG_INFINITY };
        let waited_ms = self.now.ms_since(waiting.request.arrived);
        let ranks = outlooks
            .iter()
            .map(|outlook| signed_rank_ms(waiting, waited_ms, outlook.ttft_ms, outlook.tpot_ms));
        ranks.reduce(f64::min).unwrap_or(f64::NEG_INFINITY)
    }

    /// Probability that a head violates an objective on its best pod.
    fn violation(&mut self, id: RequestId) -> f64 {
        if let Some(waiting) = self.board.get_mut(id) {
            affinity::refresh(waiting, self.pods);
        }
        let outlooks = self.look(id);
        let fits = self.predict(id, &outlooks);
        let Some(waiting) = self.board.get(id) else { return 0.0 };
        let waited_ms = self.now.ms_since(waiting.request.arrived);
        let slo = &waiting.request.slo;
        let chance = |fit: &super::pick::Fit| {
            let (ttft, tpot) = (fit.prediction.ttft_ms, fit.prediction.tpot_ms);
            let first = ttft_slo_ms(slo).map_or(0.0, |slo_ms| {
                exceeds(f64::from(ttft.p50), f64::from(ttft.p90), slo_ms - waited_ms)
            });
            let pace = tpot_slo_ms(slo)
                .map_or(0.0, |slo_ms| exceeds(f64::from(tpot.p50), f64::from(tpot.p90), slo_ms));
            first.max(pace)
        };
        fits.iter().map(chance).reduce(f64::min).unwrap_or(0.0)
    }
}

fn signed_rank_ms(waiting: &Waiting, waited_ms: f64, ttft_ms: f64, tpot_ms: f64) -> f64 {
    let slo = &waiting.request.slo;
    let output = f64::from(waiting.output_tokens);
    let first = ttft_slo_ms(slo).map(|slo_ms| waited_ms + ttft_ms - slo_ms);
    let whole = tpot_slo_ms(slo).map(|slo_ms| {
        let target_ms = slo_ms * output + ttft_slo_ms(slo).unwrap_or(0.0);
        waited_ms + ttft_ms + tpot_ms * output - target_ms
    });
    first.into_iter().chain(whole).reduce(f64::max).unwrap_or(f64::NEG_INFINITY)
}

/// Probability that a time with this median and 90th percentile exceeds what is left. Its logarithm
/// is taken to be normal.
pub fn exceeds(p50_ms: f64, p90_ms: f64, left_ms: f64) -> f64 {
    if left_ms <= 0.0 {
        return 1.0;
    }
    let deviation = ((p90_ms / p50_ms).ln() / P90_DEVIATIONS).max(1e-3);
    let above = ((left_ms / p50_ms).ln() / deviation).clamp(-40.0, 40.0);
    1.0 / (1.0 + (LOGISTIC_SLOPE * above).exp())
}
