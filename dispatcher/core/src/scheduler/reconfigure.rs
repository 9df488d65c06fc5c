//! A new configuration while requests wait and run.
//!
//! What waits keeps the objectives, the band and the arrival that it came with, and with them its place;
//! it is judged by the new rules from the next pass on. What runs is not touched: ledgers, predictor,
//! prefix indexes and the learned lengths stay. A bound that is lowered below what waits refuses
//! newcomers only.

use super::alive::Asked;
use crate::{
    SchedulerConfig, decide::score, length::LengthHistory, need::Held, pattern::Pattern,
    policy::Dice, scheduler::Scheduler,
};

impl Scheduler {
    /// Goes by `config` from now on. The model's name is not changed by it.
    pub(super) fn reconfigure(&mut self, config: SchedulerConfig) {
        let model = self.config.model.clone();
        let before = std::mem::replace(&mut self.config, SchedulerConfig { model, ..config });
        let rules = self.config.rules();
        self.rules_by_header = self.config.rules_by_header.clone().unwrap_or_else(|| rules.clone());
        let rules_before = std::mem::replace(&mut self.rules, rules);
        if rules_before.seed != self.rules.seed {
            self.dice = Dice::new(self.rules.seed);
        }
        if before.pull != self.config.pull {
            let pull = self.config.pull;
            self.pods.values_mut().for_each(|pod| pod.ledger.reprice(&pull));
        }
        if before.need != self.config.need {
            self.held = Held::new(&self.config.need);
        }
        self.asked = Asked::default();
        self.pods.touch_all();
        let new_buckets = before.buckets != self.config.buckets;
        if before.buckets.input != self.config.buckets.input || before.length != self.config.length
        {
            // What was learned is kept by buckets that are gone.
            self.length = LengthHistory::new(self.config.length, &self.config.buckets.input);
        }
        if before.classes != self.config.classes {
            self.classify();
        }
        if new_buckets {
            self.board.rename_paused(&before.buckets, &self.config.buckets);
        }
        if new_buckets || rules_before.order != self.rules.order {
            self.sort_anew();
        }
    }

    /// Looks up the class of every pod again.
    fn classify(&mut self) {
        let mut resized = Vec::new();
        for pod in self.pods.values_mut() {
            let before = pod.prefix_tokens();
            pod.class = score::class(&self.config, pod.spec.class);
            resized.push((pod.spec.id, before));
        }
        resized.into_iter().for_each(|(pod, before)| self.resize_index(pod, before));
    }

    /// Puts everything that waits into the lane and the place that it has by the new buckets and the new
    /// order. Costs as much as all of it arriving at once, so only a change of these does it.
    fn sort_anew(&mut self) {
        for id in self.board.ids() {
            let Some(mut waiting) = self.board.remove(id) else { continue };
            let Pattern { band, warm, .. } = waiting.pattern;
            let (input, output) = (waiting.input_tokens, waiting.output_tokens);
            waiting.pattern = Pattern::of(&self.config.buckets, band, input, output, warm);
            self.rerank(&mut waiting);
            self.board.recycle(&mut waiting);
            self.board.insert(waiting);
        }
    }
}
