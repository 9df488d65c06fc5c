//! What this dispatcher has in flight on one pod: the truth that decisions rest on.
//!
//! Debited in the step that decides, before the request is sent, and credited when the request is
//! over; scrapes only correct what the ledger cannot know. A request is in it exactly once: as
//! pending until its first token, then as resident until its end. How much of the first pending prompt
//! is computed by now is no account but a thought ([`Underway`]).

mod underway;

use std::sync::Arc;

use smallvec::SmallVec;

pub use self::underway::{Begun, Underway};
use crate::{AdapterId, Band, PullConfig, RequestId, Time};

/// A prompt that was sent and has not produced a token.
#[derive(Clone, Debug, PartialEq)]
pub struct Pending {
    /// Which request.
    pub id: RequestId,
    /// When it was sent.
    pub since: Time,
    /// Prompt tokens that the pod has to compute.
    pub uncached_tokens: f64,
    /// Pairs of each of them and a token before it.
    pub uncached_pairs: f64,
    /// For a response that is not streamed: when its first token is assumed.
    pub assumed_first_token: Option<Time>,
    /// Whether its request was late when it was sent.
    pub late: bool,
    /// What it becomes.
    pub resident: Resident,
}

/// A request that is decoding.
#[derive(Clone, Debug, PartialEq)]
pub struct Resident {
    /// Which request.
    pub id: RequestId,
    /// Its priority band.
    pub band: Band,
    /// Its TPOT objective, in milliseconds.
    pub tpot_slo_ms: Option<f64>,
    /// When its first token was seen.
    pub first_token: Time,
    /// Tokens streamed so far, per sequence.
    pub generated: u32,
    /// A low quantile of the tokens still to come, per sequence.
    pub remaining: f64,
    /// The remaining tokens are estimated anew when this many have been streamed.
    pub estimate_at: u32,
    /// Prompt tokens, over all sequences.
    pub input_tokens: u32,
    /// Sequences that decode.
    pub sequences: u32,
    /// The client's bound on output tokens per sequence.
    pub max_output_tokens: Option<u32>,
    /// Who sent it.
    pub tenant: Option<Arc<str>>,
    /// Whether its tokens are seen.
    pub streamed: bool,
    /// The LoRA adapter that it runs with.
    pub adapter: Option<AdapterId>,
}

impl Resident {
    /// Tokens of context it holds in the KV cache.
    pub fn kv_tokens(&self) -> f64 {
        f64::from(self.input_tokens) + f64::from(self.generated) * f64::from(self.sequences)
    }
}

/// What a resident can bear is made of. Every look at a pod walks over these, so they lie apart from the rest of what is known of
/// residents.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Until when the tokens streamed so far are on pace, less a margin, in milliseconds since the epoch; [`NEVER_MS`] without an
    /// objective.
    pub spare_until_ms: f64,
    /// That margin, in milliseconds.
    pub kept_ms: f64,
    /// Its TPOT objective, in milliseconds; [`NEVER_MS`] without one.
    pub slo_ms: f64,
    /// Tokens to come, per sequence, within which it is not thought to end.
    pub surely: f64,
    /// Within which it ends for certain.
    pub latest: f64,
    /// Chance to end with each one between the two.
    pub ends: f64,
}

/// A time that is longer than any other, with which one can calculate.
pub const NEVER_MS: f64 = 1e18;

/// Share of the tokens within which a quantile of the answers would end, in which none of them is thought to. Many residents that may
/// each end at once with a chance of a thousandth would hold back everybody. So it is where the length itself is known (a quantile of all
/// answers), for others will take of what a resident gains until its end: with nothing left to them, exact lengths do worse than guessed ones.
const SURE_SHARE: f64 = 0.2;

impl Pace {
    fn of(resident: &Resident, config: &PullConfig) -> Self {
        let remaining = resident.remaining;
        let quantile = config.remaining_quantile.max(f64::EPSILON);
        let surely = SURE_SHARE * remaining;
        let mut pace = Self {
            spare_until_ms: NEVER_MS,
            kept_ms: 0.0,
            slo_ms: resident.tpot_slo_ms.unwrap_or(NEVER_MS),
            surely,
            latest: surely + (remaining - surely) / quantile,
            ends: quantile / (remaining - surely),
        };
        pace.go_by(resident, config);
        pace
    }

    /// Goes by the tokens that a resident has streamed. How soon it may end stays as it was estimated.
    fn go_by(&mut self, resident: &Resident, config: &PullConfig) {
        let Some(slo_ms) = resident.tpot_slo_ms else { return };
        let gaps = f64::from(resident.generated) - 1.0;
        let margin_tokens = (gaps + resident.remaining).min(f64::from(config.margin_tokens));
        self.kept_ms = (1.0 - config.tpot_margin) * slo_ms * margin_tokens;
        let on_pace_ms = resident.first_token.ms_since(Time::ZERO) + slo_ms * gaps;
        self.spare_until_ms = on_pace_ms - self.kept_ms;
    }
}

/// How far a resident has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Come {
    /// Its place among the residents.
    pub seat: usize,
    /// New tokens, over all sequences.
    pub tokens: u32,
    /// Whether what remains is to be estimated anew.
    pub is_due: bool,
}

/// A LoRA adapter that has requests on a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adapted {
    /// Which one.
    pub adapter: AdapterId,
    /// How many it has.
    pub requests: u32,
    /// Since when it has never had none.
    pub since: Time,
}

/// One pod's account.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    pending: Vec<Pending>,
    residents: Vec<Resident>,
    /// Which they are, in the same order: looked through at every batch of tokens.
    ids: Vec<RequestId>,
    /// Their paces, in the same order.
    paces: Vec<Pace>,
    /// Requests here by band, for the bands that have any.
    bands: SmallVec<[(Band, u32); 4]>,
    adapters: SmallVec<[Adapted; 4]>,
    pending_tokens: f64,
    pending_pairs: f64,
    pending_sequences: u32,
    /// How far the pod is thought to be with the first of the pending prompts.
    underway: Underway,
    kv_tokens: f64,
    /// Of those the tokens of prompts.
    prompt_tokens: u64,
    decodes: u32,
}

impl Ledger {
    /// Debits a request that is about to be sent, or was by another dispatcher: they stand in the order in which they were sent.
    pub fn debit(&mut self, pending: Pending) {
        self.pending_tokens += pending.uncached_tokens;
        self.pending_pairs += pending.uncached_pairs;
        self.pending_sequences += pending.resident.sequences;
        self.enter(&pending.resident, pending.since);
        let at = self.pending.partition_point(|one| one.since <= pending.since);
        if at == 0 {
            self.underway = Underway::sent(pending.since);
        }
        self.pending.insert(at, pending);
    }

    fn enter(&mut self, resident: &Resident, now: Time) {
        match self.bands.iter_mut().find(|(band, _)| *band == resident.band) {
            Some((_, requests)) => *requests += 1,
            None => self.bands.push((resident.band, 1)),
        }
        let Some(adapter) = resident.adapter else { return };
        match self.adapters.iter_mut().find(|one| one.adapter == adapter) {
            Some(one) => (one.requests, one.since) = (one.requests + 1, one.since.min(now)),
            None => self.adapters.push(Adapted { adapter, requests: 1, since: now }),
        }
    }

    fn leave(&mut self, resident: &Resident) {
        self.bands.retain(|(band, requests)| {
            *requests -= u32::from(*band == resident.band);
            *requests > 0
        });
        self.adapters.retain(|one| {
            one.requests -= u32::from(Some(one.adapter) == resident.adapter);
            one.requests > 0
        });
    }

    /// Moves a request from pending to resident. Returns its uncached tokens and their pairs, and its place
    /// among the residents.
    pub fn first_token(
        &mut self,
        id: RequestId,
        now: Time,
        config: &PullConfig,
    ) -> Option<([f64; 2], usize)> {
        let at = self.pending.iter().position(|pending| pending.id == id)?;
        let pending = self.take_pending(at);
        if at == 0 {
            self.underway = Underway::next(now);
        }
        let prefill = [pending.uncached_tokens, pending.uncached_pairs];
        let mut resident = pending.resident;
        resident.first_token = now;
        resident.generated = 1;
        self.kv_tokens += resident.kv_tokens();
        self.prompt_tokens += u64::from(resident.input_tokens);
        self.decodes += resident.sequences;
        self.ids.push(id);
        self.paces.push(Pace::of(&resident, config));
        self.residents.push(resident);
        Some((prefill, self.residents.len() - 1))
    }

    /// Notes how far a resident has come, which was last seen in a place.
    pub fn progress(
        &mut self,
        (id, seat): (RequestId, usize),
        generated: u32,
        config: &PullConfig,
    ) -> Option<Come> {
        self.progress_of(self.seat(id, seat)?, generated, config)
    }

    /// The same of the one in a place among the residents.
    pub fn progress_of(
        &mut self,
        seat: usize,
        generated: u32,
        config: &PullConfig,
    ) -> Option<Come> {
        let (resident, pace) = (self.residents.get_mut(seat)?, self.paces.get_mut(seat)?);
        let fresh = generated.saturating_sub(resident.generated);
        resident.generated += fresh;
        pace.go_by(resident, config);
        self.kv_tokens += f64::from(fresh) * f64::from(resident.sequences);
        let is_due = resident.generated >= resident.estimate_at;
        Some(Come { seat, tokens: fresh * resident.sequences, is_due })
    }

    /// Notes how many tokens are still to come from a resident, and when that is to be estimated anew.
    pub fn expect(&mut self, seat: usize, remaining: f64, estimate_at: u32, config: &PullConfig) {
        let places = self.residents.get_mut(seat).zip(self.paces.get_mut(seat));
        if let Some((resident, pace)) = places {
            (resident.remaining, resident.estimate_at) = (remaining, estimate_at);
            *pace = Pace::of(resident, config);
        }
    }

    /// Goes by another configuration.
    pub fn reprice(&mut self, config: &PullConfig) {
        for (resident, pace) in self.residents.iter().zip(&mut self.paces) {
            *pace = Pace::of(resident, config);
        }
    }

    /// Credits a request that is over. Returns whether it was here.
    pub fn credit(&mut self, id: RequestId) -> bool {
        if let Some(at) = self.pending.iter().position(|pending| pending.id == id) {
            let pending = self.take_pending(at);
            if at == 0 {
                self.underway = Underway::unknown();
            }
            self.leave(&pending.resident);
            return true;
        }
        let Some(at) = self.seat(id, usize::MAX) else { return false };
        self.ids.swap_remove(at);
        self.paces.swap_remove(at);
        let resident = self.residents.swap_remove(at);
        self.leave(&resident);
        self.kv_tokens -= resident.kv_tokens();
        self.prompt_tokens -= u64::from(resident.input_tokens);
        self.decodes = self.decodes.saturating_sub(resident.sequences);
        self.settle();
        true
    }

    /// Where a resident is that was last seen in a place: there, unless another's end has moved it.
    fn seat(&self, id: RequestId, seen: usize) -> Option<usize> {
        let stays = self.ids.get(seen) == Some(&id);
        if stays { Some(seen) } else { self.ids.iter().position(|one| *one == id) }
    }

    fn take_pending(&mut self, at: usize) -> Pending {
        let pending = self.pending.remove(at);
        self.pending_tokens -= pending.uncached_tokens;
        self.pending_pairs -= pending.uncached_pairs;
        self.pending_sequences = self.pending_sequences.saturating_sub(pending.resident.sequences);
        self.settle();
        pending
    }

    /// Sums of floats drift by their last bits; an empty account is exactly zero.
    fn settle(&mut self) {
        if self.pending.is_empty() {
            (self.pending_tokens, self.pending_pairs) = (0.0, 0.0);
        }
        if self.residents.is_empty() {
            self.kv_tokens = 0.0;
        }
    }

    /// Prompts without a first token, in the order they were sent.
    pub fn pending(&self) -> &[Pending] {
        &self.pending
    }

    /// Requests that are decoding.
    pub fn residents(&self) -> &[Resident] {
        &self.residents
    }

    /// What the residents can bear is made of, in their order.
    pub fn paces(&self) -> &[Pace] {
        &self.paces
    }

    /// The highest band that has a request on the pod.
    pub fn top_band(&self) -> Option<Band> {
        self.bands.iter().map(|(band, _)| *band).max()
    }

    /// The adapters that have requests on the pod.
    pub fn adapters(&self) -> &[Adapted] {
        &self.adapters
    }

    /// Requests on the pod.
    pub fn len(&self) -> usize {
        self.pending.len() + self.residents.len()
    }

    /// Whether nothing is on the pod.
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty() && self.residents.is_empty()
    }

    /// Uncached tokens of the pending prompts.
    pub const fn pending_tokens(&self) -> f64 {
        self.pending_tokens
    }

    /// Pairs of the pending prompts' uncached tokens and a token before each.
    pub const fn pending_pairs(&self) -> f64 {
        self.pending_pairs
    }

    /// Uncached tokens of the pending prompts that are thought to be still to compute, and their pairs.
    pub fn ahead(&self) -> [f64; 2] {
        let whole = [self.pending_tokens, self.pending_pairs];
        let Some(first) = self.pending.first() else { return whole };
        let computed = self.underway.computed_share();
        let [tokens, pairs] = whole;
        [
            (tokens - computed * first.uncached_tokens).max(0.0),
            (pairs - computed * first.uncached_pairs).max(0.0),
        ]
    }

    /// The first of the pending prompts, and how far the pod is thought to be with it.
    pub fn underway(&self) -> Option<(&Pending, &Underway)> {
        Some((self.pending.first()?, &self.underway))
    }

    /// Notes how far that is.
    pub const fn note_underway(&mut self, underway: Underway) {
        self.underway = underway;
    }

    /// Whether the tokens of all that is there are seen.
    pub fn is_streamed(&self) -> bool {
        let pending = self.pending.iter().map(|pending| pending.resident.streamed);
        pending.chain(self.residents.iter().map(|one| one.streamed)).all(|streamed| streamed)
    }

    /// Context tokens of the residents.
    pub const fn kv_tokens(&self) -> f64 {
        self.kv_tokens
    }

    /// Tokens of the answers among those.
    pub fn answer_tokens(&self) -> u64 {
        (self.kv_tokens as u64).saturating_sub(self.prompt_tokens)
    }

    /// Sequences decoding now.
    pub fn decodes(&self) -> f64 {
        f64::from(self.decodes)
    }

    /// Sequences decoding once every pending prompt does.
    pub fn decodes_to_come(&self) -> f64 {
        f64::from(self.decodes + self.pending_sequences)
    }

    /// Checks the sums against the entries; for tests.
    #[cfg(test)]
    pub fn check(&self) {
        let pending: f64 = self.pending.iter().map(|pending| pending.uncached_tokens).sum();
        let kv: f64 = self.residents.iter().map(Resident::kv_tokens).sum();
        let decodes: u32 = self.residents.iter().map(|resident| resident.sequences).sum();
        assert!((pending - self.pending_tokens).abs() < 1e-3);
        let pairs: f64 = self.pending.iter().map(|pending| pending.uncached_pairs).sum();
        assert!((pairs - self.pending_pairs).abs() <= 1e-9 * (1.0 + pairs));
        assert!((kv - self.kv_tokens).abs() < 1e-3);
        assert_eq!(decodes, self.decodes);
        let prompts: u64 = self.residents.iter().map(|one| u64::from(one.input_tokens)).sum();
        assert_eq!(prompts, self.prompt_tokens);
        assert_eq!(self.paces.len(), self.residents.len());
        let counted: u32 = self.bands.iter().map(|(_, requests)| requests).sum();
        assert_eq!(counted as usize, self.len());
        let pending = self.pending.iter().map(|pending| &pending.resident);
        let adapted = pending.chain(&self.residents).filter(|one| one.adapter.is_some()).count();
        let counted: u32 = self.adapters.iter().map(|one| one.requests).sum();
        assert_eq!(counted as usize, adapted);
        assert!(self.ids.iter().eq(self.residents.iter().map(|resident| &resident.id)));
    }
}

#[cfg(test)]
mod tests;
