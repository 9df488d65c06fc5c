//! One pod: an engine, whose sequences are whose, and what its streams show of its steps.

use std::collections::HashMap;

use weir_core::{Pulse, Scrape, Time};
use weir_engine::{Engine, EngineMetrics, Job, Output, Rejected, SeqId};

use super::{SimPod, SimRequest};

/// Chunks closer together than this belong to one step, as the dispatcher sees it.
const SAME_STEP_US: u64 = 2000;

/// A pod in virtual time.
pub(super) struct Pod {
    engine: Engine,
    /// Places of requests in the list.
    requests: HashMap<SeqId, usize>,
    pulse: Pulse,
    outputs: Vec<Output>,
}

/// Something a pod did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Deed {
    /// A request's token number `index` left the engine.
    Token { place: usize, index: u32 },
    /// A request's last token has left it.
    Finished { place: usize, finish: Finish },
}

/// What an engine says of a request at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Finish {
    pub(super) output_tokens: u32,
    pub(super) cached_tokens: u32,
    pub(super) preemptions: u32,
}

impl Pod {
    pub(super) fn new(pod: &SimPod) -> Self {
        let (requests, pulse) = (HashMap::new(), Pulse::default());
        let engine = Engine::new(pod.engine.clone());
        Self { engine, requests, pulse, outputs: Vec::new() }
    }

    /// Hands a request over.
    pub(super) fn submit(
        &mut self,
        now: Time,
        place: usize,
        asked: &SimRequest,
    ) -> Result<(), Rejected> {
        let blocks = asked.blocks_with_answer.as_ref().unwrap_or(&asked.request.blocks);
        let most = asked.request.max_output_tokens.unwrap_or(u32::MAX);
        let job = Job {
            prompt_tokens: asked.input_tokens,
            blocks: blocks.to_vec(),
            output_tokens: asked.output_tokens.min(most),
            priority: 0,
        };
        let sequence = self.engine.submit(ms(now), job)?;
        self.requests.insert(sequence, place);
        Ok(())
    }

    /// When it will next do something.
    pub(super) fn next(&self) -> Option<Time> {
        self.engine.next_event_ms().map(not_before)
    }

    /// What it did until `now`, in order.
    pub(super) fn advance(&mut self, now: Time, deeds: &mut Vec<Deed>) {
        self.engine.advance(ms(now), &mut self.outputs);
        for output in self.outputs.drain(..) {
            deeds.extend(match output {
                Output::Token { id, index, .. } => {
                    self.requests.get(&id).map(|place| Deed::Token { place: *place, index })
                }
                Output::Finished { id, output_tokens, cached_tokens, preemptions, .. } => {
                    let finish = Finish { output_tokens, cached_tokens, preemptions };
                    self.requests.remove(&id).map(|place| Deed::Finished { place, finish })
                }
            });
        }
    }

    /// A chunk of one of its streams arrived.
    pub(super) fn chunk(&mut self, now: Time) {
        let before = self.pulse.last_step_at;
        let same = now.as_micros() - before.as_micros() <= SAME_STEP_US && before > Time::ZERO;
        self.pulse.steps += u64::from(!same);
        self.pulse.last_step_at = now;
    }

    /// What its engine has counted.
    pub(super) fn metrics(&self) -> EngineMetrics {
        self.engine.metrics()
    }

    /// What its streams have shown of its steps.
    pub(super) fn pulse(&self) -> Pulse {
        self.pulse
    }

    /// What a scrape would say.
    pub(super) fn scrape(&self) -> Scrape {
        let metrics = self.engine.metrics();
        Scrape {
            running: metrics.running,
            waiting: metrics.waiting,
            kv_usage: metrics.kv_usage as f32,
            kv_blocks: Some(self.engine.config().num_blocks),
            shared: false,
        }
    }
}

fn ms(time: Time) -> f64 {
    time.as_micros() as f64 / 1000.0
}

/// The first microsecond at which it has happened, as [`ms`] has it: the product alone may round down to one at which it has
/// not, and nothing would ever happen again.
fn not_before(at_ms: f64) -> Time {
    let micros = (at_ms * 1000.0).ceil() as u64;
    let time = Time::from_micros(micros);
    if ms(time) < at_ms { Time::from_micros(micros + 1) } else { time }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_the_microsecond_an_engine_asks_for_its_event_has_happened() {
        let mut rounded_down = 0;
        for micros in (0..3_000_000_u64).map(|step| step * 1009) {
            let at_ms = ms(Time::from_micros(micros)).next_up();
            rounded_down += u64::from((at_ms * 1000.0).ceil() as u64 == micros);
            let time = not_before(at_ms);
            assert!(ms(time) >= at_ms && time.as_micros() <= micros + 1, "{at_ms}");
        }
        assert!(rounded_down > 1000, "{rounded_down} would have gone unseen");
    }
}
