//! What a request that is promised nothing costs on a pod: its own time and what it takes from others.
//!
//! With objectives the gates guard everybody on a pod, and the pod that has most of the prompt is the
//! best. Without any nothing is guarded, and what counts is how long everybody takes together.

use crate::{
    decide::{Floor, pick::Fit},
    headroom::Outlook,
    queue::Waiting,
};

impl Floor<'_> {
    /// Time that all requests together lose to one on a pod, in milliseconds: until its end, what its
    /// prompt stalls the others by, and what its tokens add to their steps. What it computes displaces
    /// prompts that others would have found, so the stall counts several times. Times are the step-time
    /// model's. Which pods are looked at is decided by the short form of it that `headroom::start` has for all pods at once.
    pub fn delay_ms(&self, waiting: &Waiting, on: &Outlook) -> f64 {
        self.lost_ms(waiting, on, self.config.pull.cold_weight)
    }

    /// The same where a computed prompt counts so many times.
    pub(super) fn lost_ms(&self, waiting: &Waiting, on: &Outlook, cold_weight: f64) -> f64 {
        let tokens = f64::from(waiting.output_tokens);
        let own_ms = on.ttft_ms + tokens * self.prior_tpot_ms(on);
        let slower_ms = tokens * (on.pace_with_ms - on.pace_ms) * on.decodes;
        let stalled_ms = on.own_stall_ms * (1.0 + on.decodes);
        own_ms + slower_ms + cold_weight * stalled_ms
    }

    /// The warmer pod, not open to a head at this moment, on which it would cost less than where it fits, so that it rather waits,
    /// and how much less, in milliseconds.
    pub fn cheaper(&self, waiting: &Waiting, fit: &Fit) -> Option<(Outlook, f64)> {
        let here_ms = self.delay_ms(waiting, &fit.outlook);
        let warmer = self.much_warmer(waiting, fit).filter_map(|(known, _)| {
            let on = self.outlook(waiting, self.pods.get(&known.pod)?);
            Some((self.delay_ms(waiting, &on), on))
        });
        let best = warmer.min_by(|(a, _), (b, _)| a.total_cmp(b));
        let best = best.filter(|(ms, _)| *ms < here_ms);
        best.map(|(ms, on)| (on, here_ms - ms))
    }
}
