//! The pods of a pool, each with its ledger and everything else known of it.

mod finding;
mod full;
mod pods;
mod sequences;
pub mod slots;
pub mod together;

use weir_schema::Sample;

pub use finding::Found;
use finding::{Finding, LookedUp};
pub use pods::Pods;
use sequences::Seats;
pub use together::Together;

use crate::{
    CacheInfo, Phase, PodClass, PodSpec, Pulse, RecentError, Request, Scrape, Time,
    headroom::stride::StrideMeter, inspect::PodErrors, ledger::Ledger, per_event::Meter,
    rate::Rate,
};

/// Time constant of the prefill rate, in seconds.
const RATE_MEMORY_S: f64 = 3.0;

/// One pod.
#[derive(Debug)]
pub struct PodState {
    /// What it is.
    pub spec: PodSpec,
    /// Its class, resolved.
    pub class: PodClass,
    /// What it has said of its KV cache, which goes before that.
    told: CacheInfo,
    /// Whether it takes requests.
    pub phase: Phase,
    /// What is in flight there.
    pub ledger: Ledger,
    /// The longest prompt it is asked to take, in tokens: what its KV cache holds, where another pod's holds more. Where no pod
    /// holds a prompt its engine is to say so, which those with the largest cache are asked.
    pub longest_prompt: f64,
    /// The last scrape and when it arrived.
    pub scrape: Option<(Time, Scrape)>,
    /// What other pools had there at the last scrape.
    others: Others,
    /// Tokens sent since the last scrape, and between the two before it: a scrape may have been
    /// taken just before the engine saw the last prompt.
    pub unscraped_tokens: [f64; 2],
    /// The last pulse.
    pub pulse: Pulse,
    /// Steps under observation.
    pub stride: StrideMeter,
    /// Its count of generated tokens, held against what came of it.
    pub meter: Meter,
    /// Most adapters that it runs at once, as it said last.
    told_max_loras: Option<u32>,
    /// Which adapters may take a slot there.
    pub slots: slots::Slots,
    /// Requests it was given.
    pub dispatched: u64,
    /// Tokens of their prompts.
    pub prompt_tokens: f64,
    /// Those that it was believed to have cached.
    pub cached_tokens: f64,
    /// Those that its engine has looked for in its prefix cache.
    pub looked_up: LookedUp,
    /// That it takes no more for now, if it said so.
    full: Option<full::Full>,
    /// How much of what is believed cached it finds.
    finding: Finding,
    /// Whether it loads prompts that others have computed.
    loads: bool,
    /// Share of its profiled capacity that is taken by what is in flight there.
    pub load: f64,
    /// How well it was predicted lately.
    pub accuracy: Accuracy,
    prefill_rate: Rate,
    seats: Seats,
}

impl PodState {
    /// A pod that has just joined.
    pub fn new(spec: PodSpec, class: PodClass) -> Self {
        Self {
            spec,
            class,
            told: CacheInfo::default(),
            phase: Phase::Ready,
            longest_prompt: f64::INFINITY,
            ledger: Ledger::default(),
            scrape: None,
            others: Others::default(),
            unscraped_tokens: [0.0; 2],
            pulse: Pulse::default(),
            stride: StrideMeter::default(),
            meter: Meter::default(),
            told_max_loras: None,
            slots: slots::Slots::default(),
            dispatched: 0,
            prompt_tokens: 0.0,
            cached_tokens: 0.0,
            looked_up: LookedUp::default(),
            full: None,
            finding: Finding::default(),
            loads: false,
            load: 0.0,
            accuracy: Accuracy::default(),
            prefill_rate: Rate::over(RATE_MEMORY_S),
            seats: Seats::default(),
        }
    }

    /// Takes a scrape in.
    pub fn scraped(&mut self, now: Time, scrape: Scrape) {
        let [recent, _] = self.unscraped_tokens;
        self.unscraped_tokens = [0.0, recent];
        self.told = scrape.cache.after(self.told);
        self.told_max_loras = scrape.max_loras.or(self.told_max_loras);
        let streamed = self.ledger.residents().iter().filter(|resident| resident.streamed);
        let decoding = streamed.map(|resident| f64::from(resident.sequences)).sum();
        let streams = self.ledger.pending().iter().filter(|one| one.assumed_first_token.is_none());
        let waits_since = streams.map(|one| one.since).min();
        self.seats.scraped(now, &scrape, (self.pulse.steps, decoding), waits_since);
        self.others = if scrape.shared { Others::beside(self, &scrape) } else { Others::default() };
        self.scrape = Some((now, scrape));
    }

    /// Holds what it found in its prefix cache against what it was believed to have there, and returns what follows, if anything does. What
    /// comes from outside of the KV cache it counts otherwise.
    pub fn note_found(&mut self, now: Time, scrape: &Scrape) -> Option<Found> {
        let judged = self.class.offload_tokens == 0 && !self.loads;
        let counted = scrape.cache_use.filter(|_| judged)?;
        self.finding.scraped(now, self.looked_up, counted)
    }

    /// Share of what is believed cached there that it finds.
    pub const fn cache_found(&self) -> f64 {
        self.finding.share()
    }

    /// Tokens of the pieces in which it finds a prompt again.
    pub fn grain(&self) -> u32 {
        self.class.grain(&self.told)
    }

    /// Tokens of prompts that it has cached when it is full.
    pub fn prefix_tokens(&self) -> u64 {
        self.class.prefix_tokens(&self.told)
    }

    /// Sequences that it runs at a time: as many as its class says, or as it was seen to run where prompts waited for more.
    pub fn max_sequences(&self) -> u32 {
        let most = self.class.max_sequences;
        self.seats.most().map_or(most, |seen| seen.min(most))
    }

    /// Whether several engines stand behind it, each of which steps for itself.
    pub fn steps_apart(&self) -> bool {
        self.scrape.is_some_and(|(_, scrape)| scrape.engines > 1)
    }

    /// Whether nothing is known of other pools there.
    pub fn is_alone(&self) -> bool {
        self.others.is_empty()
    }

    /// What other pools have there, as far as a fresh scrape tells; else nothing is known of it and
    /// the ledger alone counts.
    pub fn others(&self, now: Time, stale_after_ms: u64) -> Others {
        // Most pods are in one pool only: then the age of a scrape need not be known.
        if self.others.is_empty() {
            return Others::default();
        }
        self.fresh_scrape(now, stale_after_ms).map_or_else(Others::default, |_| self.others)
    }

    /// Notes that a prompt was sent, of which so much is to be computed; one that was computed elsewhere is not looked for in the cache.
    pub fn sent(&mut self, [input_tokens, uncached_tokens]: [f64; 2], request: &Request) {
        let [recent, _] = &mut self.unscraped_tokens;
        *recent += input_tokens;
        self.dispatched += 1;
        if request.prefilled {
            self.loads = true;
        } else {
            self.prompt_tokens += input_tokens;
            self.cached_tokens += (input_tokens - uncached_tokens).max(0.0);
        }
    }

    /// Notes that its steps are held up by so many tokens of a prompt.
    pub fn held_up(&mut self, now: Time, tokens: f64) {
        self.prefill_rate.add(now, tokens);
    }

    /// Notes that they were not by so many tokens of one that was sent at `then`.
    pub fn not_held_up(&mut self, now: Time, then: Time, tokens: f64) {
        self.prefill_rate.take_back(now, then, tokens);
    }

    /// Notes that a prompt which was sent at `then` was not computed, but for a share of it.
    pub fn took_back(&mut self, then: Time, input_tokens: f64) {
        // Of what was sent before the last scrape that one tells.
        if self.scrape.is_none_or(|(at, _)| at <= then) {
            let [recent, _] = &mut self.unscraped_tokens;
            *recent = (*recent - input_tokens).max(0.0);
        }
    }

    /// The last scrape, if it is no older than `stale_after_ms`.
    pub fn fresh_scrape(&self, now: Time, stale_after_ms: u64) -> Option<Scrape> {
        let (at, scrape) = self.scrape?;
        (now.ms_since(at) <= stale_after_ms as f64).then_some(scrape)
    }

    /// Tokens the KV cache holds.
    pub fn kv_capacity_tokens(&self) -> f64 {
        self.class.kv_tokens(&self.told) as f64
    }

    /// Tokens in the KV cache now: the scrape and what was sent since, or else the ledger alone.
    pub fn kv_tokens(&self, now: Time, stale_after_ms: u64) -> f64 {
        if let Some(scrape) = self.fresh_scrape(now, stale_after_ms) {
            let unscraped: f64 = self.unscraped_tokens.iter().sum();
            return f64::from(scrape.kv_usage) * self.kv_capacity_tokens() + unscraped;
        }
        self.own_kv_tokens()
    }

    /// Tokens that this pool's requests hold in the KV cache, by the ledger.
    fn own_kv_tokens(&self) -> f64 {
        let pending = self.ledger.pending().iter();
        let pending: f64 = pending.map(|pending| pending.resident.kv_tokens()).sum();
        self.ledger.kv_tokens() + pending
    }

    /// Uncached prompt tokens per second that hold up its steps, lately.
    pub fn prefill_rate(&self, now: Time) -> f64 {
        self.prefill_rate.per_second(now)
    }
}

/// Load on a pod that this pool did not send: what the gauges show beyond the ledger.
///
/// Each pool of a shared pod has a ledger of its own and hears nothing of the others'. The gauges are
/// those of the moment of the scrape and the ledger is that of its arrival, so that what started or
/// ended in between is counted wrongly once, until the next scrape. Objectives of the others are not
/// known, so that nothing protects their residents.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Others {
    /// Sequences running or queued there.
    pub sequences: f64,
    /// Tokens they hold in the KV cache.
    pub kv_tokens: f64,
}

impl Others {
    fn beside(pod: &PodState, scrape: &Scrape) -> Self {
        let ledger = &pod.ledger;
        let sequences = f64::from(scrape.running) + f64::from(scrape.waiting);
        let usage = f64::from(scrape.kv_usage.clamp(0.0, 1.0));
        Self {
            sequences: (sequences - ledger.decodes_to_come()).max(0.0),
            kv_tokens: (usage * pod.kv_capacity_tokens() - pod.own_kv_tokens()).max(0.0),
        }
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Responses that a pod's errors look back over.
const ERROR_WINDOW: u32 = 50;

/// How well a pod's latencies were predicted lately.
#[derive(Clone, Copy, Debug, Default)]
pub struct Accuracy {
    ttft: RecentError<ERROR_WINDOW>,
    tpot: RecentError<ERROR_WINDOW>,
    count: u64,
}

impl Accuracy {
    /// Learns from a response.
    pub fn learn(&mut self, sample: &Sample) {
        let predicted = &sample.predicted;
        self.count += 1;
        self.ttft.learn(Some(predicted.ttft_ms.p50), sample.ttft_ms);
        self.tpot.learn(Some(predicted.tpot_ms.p50), sample.tpot_ms);
    }

    /// The errors.
    pub fn errors(&self) -> PodErrors {
        PodErrors { ttft: self.ttft.mean(), tpot: self.tpot.mean(), count: self.count }
    }
}
