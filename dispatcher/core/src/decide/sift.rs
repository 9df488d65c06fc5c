//! The filters of a policy: each takes pods out; when none is left, the reason is that filter's.
//!
//! Order: the filters as they stand, then the affinity gate, then the headroom tiers, which sort what
//! is left and never empty it. Pods that take no requests are never among the candidates, whatever
//! the filters say ([`super::filter::usable`]).

use crate::{
    PodId, RequestId,
    decide::{
        Floor, failover,
        margins::{self, Margins},
        pick::Fit,
        saturation::{self, Full},
    },
    explain::Reason,
    headroom::judge::{tpot_slo_ms, ttft_slo_ms},
    policy::{Filter, UsageLimit},
    queue::Waiting,
};

/// A load may exceed the capacity by this much: shares of it add up to it only nearly.
const LOAD_ROUNDING: f64 = 1e-9;

/// Whether a predicted latency is below its limit. At the limit it is not; what is no number is not.
pub fn below(latency_ms: f64, limit_ms: f64) -> bool {
    latency_ms.is_finite() && latency_ms < limit_ms
}

/// Whether a scrape of this age is still believed, to the millisecond. A pod that is never scraped
/// is: then its ledger is all there is to know.
pub fn fresh(age_ms: Option<f64>, after_ms: u64) -> bool {
    age_ms.is_none_or(|age_ms| age_ms <= after_ms as f64)
}

impl Floor<'_> {
    /// What the filters, the affinity gate and the tiers leave.
    ///
    /// # Errors
    /// The reason of the filter that took the last one.
    pub fn sift(&mut self, id: RequestId, mut fits: Vec<Fit>) -> Result<Vec<Fit>, Reason> {
        let rules = self.rules;
        for filter in &rules.filters {
            if fits.is_empty() {
                break;
            }
            let reason = self.apply(id, filter, &mut fits);
            if fits.is_empty() {
                return Err(reason);
            }
        }
        let mut fits = self.stick_to_prefix(id, fits);
        for filter in &rules.filters {
            if let Filter::HeadroomTier { explore_negative } = filter {
                self.tier(id, *explore_negative, &mut fits);
            }
        }
        Ok(fits)
    }

    /// Applies one filter; the reason is for the case that it takes everything.
    pub(crate) fn apply(&mut self, id: RequestId, filter: &Filter, fits: &mut Vec<Fit>) -> Reason {
        match *filter {
            // The gates were passed already; the tiers come last.
            Filter::Headroom | Filter::HeadroomTier { .. } => Reason::PodsClaimed,
            Filter::Saturation { detector, queue_depth, kv_usage, max_concurrency, limit } => {
                let full = Full {
                    detector,
                    queue_depth,
                    kv_usage,
                    max_concurrency: f64::from(max_concurrency),
                };
                self.hold_back(id, full, limit, fits)
            }
            Filter::Capacity { most } => {
                let Some(waiting) = self.board.get(id) else { return Reason::NotConsidered };
                fits.retain(|fit| self.has_capacity(waiting, fit.outlook.pod, most));
                Reason::OverCapacity
            }
            Filter::Failover { domain } => {
                let failed = |pod| {
                    failover::is_broken(self.pods, pod) || self.is_stale(pod, self.stale_limit())
                };
                let out = failover::reached(domain, self.pods, &self.config.places, failed);
                fits.retain(|fit| !out.contains(&fit.outlook.pod));
                Reason::FailureDomain
            }
            Filter::Staleness { after_ms } => {
                fits.retain(|fit| !self.is_stale(fit.outlook.pod, Some(after_ms)));
                Reason::PodsStale
            }
            Filter::Latency {
                ttft_slo_ms: ttft_ms,
                tpot_slo_ms: tpot_ms,
                ttft_dispatch_threshold,
                tpot_dispatch_threshold,
            } => {
                let Some(waiting) = self.board.get(id) else { return Reason::NotConsidered };
                let slo = &waiting.request.slo;
                // Who is promised no first token is late for none: what it waits is no reason to let it wait on.
                let waited = ttft_slo_ms(slo).map(|_| self.now.ms_since(waiting.request.arrived));
                let waited_ms = waited.unwrap_or_default();
                let ttft_ms = ttft_slo_ms(slo).unwrap_or(ttft_ms) * ttft_dispatch_threshold;
                let tpot_ms = tpot_slo_ms(slo).unwrap_or(tpot_ms) * tpot_dispatch_threshold;
                fits.retain(|fit| {
                    let prediction = &fit.prediction;
                    below(waited_ms + f64::from(prediction.ttft_ms.p50), ttft_ms)
                        && below(f64::from(prediction.tpot_ms.p50), tpot_ms)
                });
                Reason::LatencyOverThreshold
            }
        }
    }

    /// Takes every pod from a band that is above its ceiling, and from all bands those that are full
    /// by themselves: the mean of the pool would hide them.
    fn hold_back(
        &mut self,
        id: RequestId,
        full: Full,
        limit: UsageLimit,
        fits: &mut Vec<Fit>,
    ) -> Reason {
        let stale = self.config.pull.stale_after_ms;
        let saturation = saturation::saturation(self.pods, full, self.now, stale);
        let band = self.board.get(id).map(|waiting| waiting.pattern.band).unwrap_or_default();
        let (rank, bands) = saturation::rank(self.board.bands().map(|(band, _)| band), band);
        let over = saturation >= saturation::ceiling(limit, rank, bands, saturation).min(1.0);
        if over && !self.dice.happens(saturation::let_through(limit, saturation)) {
            fits.clear();
        }
        fits.retain(|fit| {
            let pod = self.pods.get(&fit.outlook.pod);
            pod.is_some_and(|pod| saturation::fullness(pod, full, self.now, stale) < 1.0)
        });
        Reason::PoolSaturated { saturation }
    }

    /// Whether a pod has profiled capacity left for a request. An empty one serves whatever its
    /// class can serve at all: nothing else would ever have room for a load above 1.
    fn has_capacity(&self, waiting: &Waiting, pod: PodId, most: f64) -> bool {
        let Some(pod) = self.pods.get(&pod) else { return false };
        let Some(load) = self.load_of(waiting, pod) else { return false };
        pod.ledger.is_empty() || pod.load + load <= most + LOAD_ROUNDING
    }

    /// Whether no class of the pods has profiled capacity for a request at all: it keeps nobody waiting, for there is nothing that it
    /// waits for itself.
    pub(super) fn is_infeasible(&self, id: RequestId) -> bool {
        self.board.get(id).is_some_and(|waiting| {
            let sizes = (waiting.input_tokens, waiting.output_tokens);
            self.config.is_infeasible(self.rules, self.open_classes, sizes)
        })
    }

    fn is_stale(&self, pod: PodId, after_ms: Option<u64>) -> bool {
        let scraped = self.pods.get(&pod).and_then(|pod| pod.scrape);
        let age_ms = scraped.map(|(at, _)| self.now.ms_since(at));
        after_ms.is_some_and(|after_ms| !fresh(age_ms, after_ms))
    }

    /// The age at which a scrape counts as a failure, if the policy says so anywhere.
    fn stale_limit(&self) -> Option<u64> {
        self.rules.filters.iter().find_map(|filter| match filter {
            Filter::Staleness { after_ms } => Some(*after_ms),
            _ => None,
        })
    }

    /// The margins of a waiting request on a pod; `None` while the predictor knows nothing of it.
    pub fn margins(&self, waiting: &Waiting, fit: &Fit) -> Option<Margins> {
        let request = &waiting.request;
        let buffer = self.rules.slo_buffer;
        margins::margins(self.pods, &request.slo, request.arrived, self.now, fit, buffer)
    }

    /// Whether a pod is valid for a request: nobody is on it to be hurt, or both objectives are met.
    /// `None`: unknown.
    pub fn is_valid(&self, waiting: &Waiting, fit: &Fit) -> Option<bool> {
        let margins = self.margins(waiting, fit)?;
        Some(fit.outlook.empty || margins.met())
    }

    /// Keeps the pods that are valid; now and then those that are not, instead. Unknown is not.
    fn tier(&mut self, id: RequestId, explore_negative: f64, fits: &mut Vec<Fit>) {
        let Some(waiting) = self.board.get(id) else { return };
        let valid: Vec<bool> =
            fits.iter().map(|fit| self.is_valid(waiting, fit) == Some(true)).collect();
        let both = valid.contains(&true) && valid.contains(&false);
        if both {
            let wanted = !self.dice.happens(explore_negative);
            let mut valid = valid.into_iter();
            fits.retain(|_| valid.next() == Some(wanted));
        }
    }
}
