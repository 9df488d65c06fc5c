//! One server: an engine or several that step together, whose sequences are whose, and what the streams show of its steps.

use std::{collections::HashMap, sync::Arc};

use weir_core::{CacheInfo, CacheUse, Pulse, RequestId, Scrape, Time};
use weir_engine::{Engine, EngineConfig, EngineMetrics, Job, Output, Rejected, SeqId};

use super::{AdapterNames, LoraScrape, SimPod, SimRequest};

/// Chunks closer together than this belong to one step, as the dispatcher sees it.
const SAME_STEP_US: u64 = 2000;

/// A server in virtual time, which is one pod, or one for each of its engines.
pub(super) struct Pod {
    engine: Engine,
    /// The adapters that its engine knows by number.
    names: Arc<AdapterNames>,
    tells_max_loras: bool,
    /// Whether each of its engines is a pod.
    apart: bool,
    /// Whether it computes prompts for others.
    prefills: bool,
    stage: Stage,
    seats: HashMap<SeqId, Seat>,
    streams: Vec<Stream>,
    /// Of each pod that it is.
    pulses: Vec<Pulse>,
    /// Tokens of each of these when it last looked, and of all when it last told of its streams.
    seen: Vec<u64>,
    swept: u64,
    outputs: Vec<Output>,
}

/// How far a pod has come on its way out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    /// Takes requests.
    #[default]
    Open,
    /// Ends what it has.
    Draining,
    /// Was told to be gone.
    Gone,
}

/// A request on the pod.
#[derive(Clone, Copy)]
struct Seat {
    /// Its place in the list of requests.
    place: usize,
    /// Its place among the streams, if its tokens are seen.
    stream: Option<usize>,
}

/// A response whose tokens are seen.
#[derive(Clone, Copy)]
struct Stream {
    sequence: SeqId,
    place: usize,
    /// Tokens that the dispatcher was told of.
    told: u32,
}

/// Something a pod did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Deed {
    /// A request's first token left the engine.
    Started { place: usize },
    /// Its last token has left it.
    Finished { place: usize, finish: Finish },
    /// Its prompt is computed, and kept under that name for the pod that answers.
    Prefilled { place: usize, sequence: SeqId },
}

/// What an engine says of a request at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Finish {
    pub(super) output_tokens: u32,
    pub(super) cached_tokens: u32,
    pub(super) preemptions: u32,
}

impl Pod {
    /// An idle server, of which each of so many engines is a pod, or which is one. Where every response is streamed any token shows a step,
    /// and none has to be looked at by itself.
    pub(super) fn new(
        pod: &SimPod,
        engines: Option<u16>,
        names: &Arc<AdapterNames>,
        all_streamed: bool,
    ) -> Self {
        // Nobody streams what a pod computes for others, so that nothing shows its steps.
        let every_token = !all_streamed || pod.prefills;
        let ranks = engines.unwrap_or(pod.engine.ranks);
        let engine = EngineConfig { every_token, ranks, ..pod.engine.clone() };
        let pods = usize::from(engines.unwrap_or(1));
        Self {
            engine: Engine::new(engine),
            names: Arc::clone(names),
            tells_max_loras: pod.tells_max_loras,
            apart: engines.is_some(),
            prefills: pod.prefills,
            stage: Stage::default(),
            seats: HashMap::new(),
            streams: Vec::new(),
            pulses: vec![Pulse::default(); pods],
            seen: vec![0; pods],
            swept: 0,
            outputs: Vec::new(),
        }
    }

    /// Hands a request over, or of one whose prompt another pod has computed what is left of it; to the engine of a rank, or to one that
    /// the server chooses.
    pub(super) fn submit(
        &mut self,
        (now, rank): (Time, Option<u16>),
        place: usize,
        asked: &SimRequest,
        prefilled: bool,
    ) -> Result<(), Rejected> {
        let blocks = asked.blocks_with_answer.as_ref().unwrap_or(&asked.request.blocks);
        let most = asked.request.max_output_tokens.unwrap_or(u32::MAX);
        let job = Job {
            prompt_tokens: asked.input_tokens,
            blocks: blocks.to_vec(),
            output_tokens: if self.prefills { 1 } else { asked.output_tokens.min(most) },
            priority: 0,
            brought_tokens: if prefilled { asked.input_tokens } else { 0 },
            keeps: self.prefills,
            adapter: self.names.number(asked),
        };
        let rank = rank.unwrap_or_else(|| self.engine.least_loaded());
        let sequence = self.engine.submit_to(ms(now), rank, job)?;
        let stream = (asked.request.streamed && !self.prefills).then_some(self.streams.len());
        if stream.is_some() {
            self.streams.push(Stream { sequence, place, told: 0 });
        }
        self.seats.insert(sequence, Seat { place, stream });
        Ok(())
    }

    /// When it will next do something.
    pub(super) fn next(&self) -> Option<Time> {
        self.engine.next_event_ms().map(not_before)
    }

    /// What it did until `now`, in order.
    pub(super) fn advance(&mut self, now: Time, deeds: &mut Vec<Deed>) {
        let mut outputs = std::mem::take(&mut self.outputs);
        self.engine.advance(ms(now), &mut outputs);
        for output in outputs.drain(..) {
            let id = output.id();
            let Some(Seat { place, stream }) = self.seats.get(&id).copied() else { continue };
            match output {
                Output::Token { index, .. } => {
                    if index == 1 && !self.prefills {
                        deeds.push(Deed::Started { place });
                    }
                    if stream.is_some() {
                        self.chunk(now, id.rank());
                    }
                }
                Output::Finished { .. } if self.prefills => {
                    deeds.push(Deed::Prefilled { place, sequence: id });
                    self.seats.remove(&id);
                }
                Output::Finished { output_tokens, cached_tokens, preemptions, .. } => {
                    let finish = Finish { output_tokens, cached_tokens, preemptions };
                    deeds.push(Deed::Finished { place, finish });
                    self.seats.remove(&id);
                    stream.into_iter().for_each(|stream| self.forget(stream));
                }
            }
        }
        self.outputs = outputs;
        if self.engine.config().every_token {
            return;
        }
        for rank in 0..self.pulses.len() as u16 {
            let tokens = self.tokens(self.apart.then_some(rank));
            let seen = self.seen.get_mut(usize::from(rank));
            if seen.is_some_and(|seen| std::mem::replace(seen, tokens) < tokens) {
                self.chunk(now, rank);
            }
        }
    }

    /// Tokens that the engine of a rank has generated, or all together.
    fn tokens(&self, rank: Option<u16>) -> u64 {
        let one = |rank| self.engine.metrics_of(rank).generation_tokens;
        rank.map_or_else(|| self.engine.generation_tokens(), one)
    }

    /// A prompt that it has kept is needed no more.
    pub(super) fn release(&mut self, now: Time, sequence: SeqId) {
        self.engine.release(ms(now), sequence);
    }

    /// A stream is over; the last one takes its place.
    fn forget(&mut self, stream: usize) {
        self.streams.swap_remove(stream);
        let moved = self.streams.get(stream).map(|moved| moved.sequence);
        if let Some(seat) = moved.and_then(|sequence| self.seats.get_mut(&sequence)) {
            seat.stream = Some(stream);
        }
    }

    /// A chunk of one of the streams of a rank arrived.
    fn chunk(&mut self, now: Time, rank: u16) {
        let pod = if self.apart { usize::from(rank) } else { 0 };
        let Some(pulse) = self.pulses.get_mut(pod) else { return };
        let before = pulse.last_step_at;
        let same = now.as_micros() - before.as_micros() <= SAME_STEP_US && before > Time::ZERO;
        pulse.steps += u64::from(!same);
        pulse.last_step_at = now;
    }

    /// Appends how far its streams have come since the last time.
    pub(super) fn sweep(&mut self, told: &mut Vec<(RequestId, u32)>) {
        let tokens = self.engine.generation_tokens();
        if tokens == self.swept {
            return;
        }
        self.swept = tokens;
        for stream in &mut self.streams {
            let tokens = self.engine.generated(stream.sequence).unwrap_or(stream.told);
            if tokens > stream.told {
                stream.told = tokens;
                told.push((RequestId(stream.place as u64), tokens));
            }
        }
    }

    /// What its engine has counted.
    pub(super) fn metrics(&self) -> EngineMetrics {
        self.engine.metrics()
    }

    /// Requests that it has.
    pub(super) fn in_flight(&self) -> usize {
        self.seats.len()
    }

    pub(super) const fn stage(&self) -> Stage {
        self.stage
    }

    /// It is in another stage from now on.
    pub(super) const fn enter(&mut self, stage: Stage) {
        self.stage = stage;
    }

    /// Whether nothing of it is to be seen any more.
    pub(super) fn is_gone(&self) -> bool {
        self.stage == Stage::Gone
    }

    /// What the streams have shown of the steps of a pod that it is.
    pub(super) fn pulse(&self, rank: Option<u16>) -> Pulse {
        self.pulses.get(usize::from(rank.unwrap_or_default())).copied().unwrap_or_default()
    }

    fn cache_info(&self, engines: u16) -> CacheInfo {
        let config = self.engine.config();
        CacheInfo {
            blocks: Some(config.num_blocks * u32::from(engines)),
            block_tokens: Some(config.block_size),
            found_tokens: None,
            tokens: None,
            prefix_caching: None,
        }
    }

    fn max_loras(&self) -> Option<u32> {
        let most = self.engine.config().max_loras;
        (self.tells_max_loras && most > 0).then_some(most)
    }

    /// What a scrape would say of the adapters of a pod that it is, from the first request for one on.
    pub(super) fn adapters(&self, rank: Option<u16>) -> Option<LoraScrape> {
        let told = match rank {
            Some(rank) => self.engine.adapters_of(rank),
            None => self.engine.adapters(),
        };
        told.map(|told| self.names.told(self.engine.config().max_loras, &told))
    }

    /// What a scrape would say of a pod that it is.
    pub(super) fn scrape(&self, rank: Option<u16>) -> Scrape {
        let one = |rank| (self.engine.metrics_of(rank), 1);
        let all = || (self.engine.metrics(), self.engine.config().ranks.max(1));
        let (metrics, engines) = rank.map_or_else(all, one);
        Scrape {
            running: metrics.running,
            waiting: metrics.waiting,
            kv_usage: metrics.kv_usage as f32,
            cache: self.cache_info(engines),
            generated: Some(metrics.generation_tokens),
            cache_use: Some(CacheUse {
                queried: metrics.prefix_queries,
                found: metrics.prefix_hits,
            }),
            max_loras: self.max_loras(),
            engines: u32::from(engines),
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
    if ms(time) < at_ms { Time::from_micros(micros.saturating_add(1)) } else { time }
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
