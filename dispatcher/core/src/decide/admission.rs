//! Who is refused on arrival, beyond the bounds of the queue. Only sheddable requests are.

use crate::{
    RefusalReason, RequestId,
    decide::{
        Floor,
        saturation::{self, Full},
    },
    policy::{Admission, Detector},
};

impl Floor<'_> {
    /// Why a newcomer that is on the board already is refused, if it is.
    pub fn denied(&mut self, id: RequestId) -> Option<RefusalReason> {
        self.turn_to(id);
        let waiting = self.board.get(id)?;
        if !waiting.request.band.sheddable() || self.pods.hold_nowhere(waiting.input_tokens.into())
        {
            return None;
        }
        match self.rules.admission {
            Admission::Open => None,
            Admission::LatencySlo { cold_kv } => {
                let slo = &waiting.request.slo;
                let asks = slo.ttft.is_some() || slo.tpot.is_some();
                (asks && self.cannot_be_met(id, cold_kv)).then_some(RefusalReason::Hopeless)
            }
            Admission::Probabilistic { queue_depth, kv_usage, power, factor } => {
                let detector = Detector::Utilization;
                let full = Full { detector, queue_depth, kv_usage, max_concurrency: 1.0 };
                let stale = self.config.pull.stale_after_ms;
                let saturation = saturation::saturation(self.pods, full, self.now, stale);
                let chance = saturation::refusal_chance(saturation, power, factor);
                self.dice.happens(chance).then_some(RefusalReason::PredictedWait)
            }
        }
    }

    /// Whether every pod is known to violate an objective. A pod that is idle or cold serves anybody;
    /// without a pod or without any prediction nothing is known, and nobody is refused for that.
    fn cannot_be_met(&mut self, id: RequestId, cold_kv: f64) -> bool {
        let outlooks = self.look(id);
        let fits = self.predict(id, &outlooks);
        let Some(waiting) = self.board.get(id) else { return false };
        let stale = self.config.pull.stale_after_ms;
        let cold = |pod| {
            let pod = self.pods.get(&pod);
            pod.is_some_and(|pod| saturation::kv_usage(pod, self.now, stale) < cold_kv)
        };
        let valid: Vec<_> = fits.iter().map(|fit| self.is_valid(waiting, fit)).collect();
        let spare = fits.iter().any(|fit| fit.outlook.empty || cold(fit.outlook.pod));
        !spare && valid.iter().any(Option::is_some) && !valid.contains(&Some(true))
    }
}
