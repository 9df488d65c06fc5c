//! Pods that serve in virtual time: arithmetic per request, no steps.
//!
//! A pod computes prompts one after the other and decodes everything it has at the pace of a step of its batch, both by the
//! step-time formula at `pace` times a real GPU's, with some noise that a model can learn from the features or not.

use rand::{Rng, SeedableRng, rngs::SmallRng};
use weir_core::{PodClass, PodId, Pulse, Scrape, Time};
use weir_schema::StepTime;

/// Steps between arrival at an engine and the step that starts the prefill.
const STEPS_BEFORE_PREFILL: f64 = 1.5;
/// Noise on what a request takes, each way.
const NOISE: f64 = 0.15;

/// One pod.
#[derive(Clone, Debug)]
pub(super) struct Pod {
    free_at_ms: f64,
    pub(super) running: u32,
    kv_tokens: f64,
    pending: u32,
    steps: f64,
    pulse: Pulse,
}

/// When what a request is given comes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) first_token: Time,
    pub(super) end: Time,
}

/// All pods.
#[derive(Debug)]
pub(super) struct Pool {
    pods: Vec<Pod>,
    steps: StepTime,
    class: PodClass,
    noise: SmallRng,
}

impl Pool {
    /// So many idle pods at `pace` times a real GPU's.
    pub(super) fn new(pods: usize, pace: f64, seed: u64) -> Self {
        let real = StepTime::default();
        let steps = StepTime {
            base_ms: real.base_ms / pace,
            per_decode_ms: real.per_decode_ms / pace,
            per_kv_ms: real.per_kv_ms / pace,
            per_prefill_ms: real.per_prefill_ms / pace,
            per_pair_ms: real.per_pair_ms / pace,
            api_ms: real.api_ms / pace,
            ..real
        };
        let idle = Pod {
            free_at_ms: 0.0,
            running: 0,
            kv_tokens: 0.0,
            pending: 0,
            steps: 0.0,
            pulse: Pulse::default(),
        };
        let noise = SmallRng::seed_from_u64(seed);
        Self { pods: vec![idle; pods], steps, class: PodClass::default(), noise }
    }

    /// What every pod is.
    pub(super) const fn class(&self) -> &PodClass {
        &self.class
    }

    /// A request is sent to a pod: when its first and its last token come.
    pub(super) fn send(
        &mut self,
        now: Time,
        id: PodId,
        [input_tokens, uncached_tokens, output_tokens]: [u32; 3],
    ) -> Option<Times> {
        let noise = 1.0 + self.noise.random_range(-NOISE..NOISE);
        let pod = self.pods.get_mut(id.0 as usize)?;
        let step_ms = self.steps.step_ms(f64::from(pod.running + 1), pod.kv_tokens, 0.0);
        let start_ms = pod.free_at_ms.max(now.as_micros() as f64 / 1e3);
        let prefill_ms = self.steps.per_prefill_ms * f64::from(uncached_tokens.max(1)) * noise;
        pod.free_at_ms = start_ms + prefill_ms;
        pod.pending += 1;
        pod.kv_tokens += f64::from(input_tokens + output_tokens);
        let first_ms = pod.free_at_ms + STEPS_BEFORE_PREFILL * step_ms + self.steps.api_ms;
        // Others' prompts are computed meanwhile and take their part of each step.
        let stretch = 1.0 + 0.5 * noise;
        let end_ms = first_ms + step_ms * stretch * f64::from(output_tokens);
        let at = |ms: f64| Time::from_micros((ms * 1e3) as u64);
        Some(Times { first_token: at(first_ms), end: at(end_ms) })
    }

    /// Its first token comes.
    pub(super) fn begin(&mut self, id: PodId) {
        if let Some(pod) = self.pods.get_mut(id.0 as usize) {
            pod.running += 1;
            pod.pending = pod.pending.saturating_sub(1);
        }
    }

    /// Its last token has come.
    pub(super) fn end(&mut self, id: PodId, tokens: u32) {
        if let Some(pod) = self.pods.get_mut(id.0 as usize) {
            pod.running = pod.running.saturating_sub(1);
            pod.kv_tokens = (pod.kv_tokens - f64::from(tokens)).max(0.0);
        }
    }

    /// What the pods' streams show of their steps since the last time.
    pub(super) fn pulses(&mut self, now: Time, passed_ms: f64) -> Vec<(PodId, Pulse)> {
        let mut pulses = Vec::with_capacity(self.pods.len());
        for (id, pod) in (0u32..).zip(&mut self.pods).filter(|(_, pod)| pod.running > 0) {
            let step_ms = self.steps.step_ms(f64::from(pod.running), pod.kv_tokens, 0.0);
            pod.steps += passed_ms / (1.5 * step_ms);
            if pod.steps as u64 > pod.pulse.steps {
                pod.pulse = Pulse { steps: pod.steps as u64, last_step_at: now };
                pulses.push((PodId(id), pod.pulse));
            }
        }
        pulses
    }

    /// What a scrape of each pod shows.
    pub(super) fn scrapes(&self) -> impl Iterator<Item = (PodId, Scrape)> {
        let room = f64::from(self.class.kv_blocks) * f64::from(self.class.block_tokens);
        (0u32..).map(PodId).zip(&self.pods).map(move |(id, pod)| {
            let kv_usage = (pod.kv_tokens / room).min(1.0) as f32;
            let (running, waiting) = (pod.running, pod.pending);
            (id, Scrape { running, waiting, kv_usage, engines: 1, ..Scrape::default() })
        })
    }
}
