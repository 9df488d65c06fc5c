//! The step-time formula of a pod class, fitted online from strides.
//!
//! A stride's busy time is linear in sums that the ledger knows, so the five coefficients are found by
//! recursive least squares (`rls`) with five additions that service needs:
//!
//! - Everything is relative. The unknowns are multiples of [`StepTime::default`], and a stride's
//!   residual is a share of its predicted time: so the five are of like magnitude, a 1 % error weighs
//!   the same on a small GPU and a large one, and the fit starts from the default with an uncertainty
//!   of its own per coefficient.
//! - A residual beyond three times the usual one is clipped (Huber): a stalled client or a paused pod
//!   moves the fit no more than a bad ordinary stride.
//! - A stride whose prompts were cached in part counts for less: how much of them was is a belief.
//! - Coefficients stay at or above zero.
//! - Residuals that all lean one way mean that the engine has changed (another configuration rolled
//!   out): the fit then becomes as uncertain as at the start and follows within tens of strides,
//!   where forgetting alone takes thousands.
//!
//! What a request pays outside the steps (`api_ms`) is no part of a stride; first tokens show it (`outside`).
//!
//! The chain owns one fit per pod class and feeds it; it cannot fail, strides and first tokens that make no sense are
//! ignored.

mod outside;
mod rls;
#[cfg(test)]
mod tests;

use weir_schema::{FirstToken, LEAST_STEP_MS, StepTime, StepsLearned, Stride, prefill_pairs};

use self::{
    outside::Outside,
    rls::{Rls, Vector},
};

/// Longest gap between two steps that can still be work, in milliseconds.
const LONGEST_STEP_MS: f64 = 20_000.0;
/// Shape error of the linear formula against real engines, as a share (the plain linear form misses
/// measured iterations by 4 to 10 %).
const SHAPE_ERROR: f64 = 0.05;
/// Error of a single step, as a share: the ends of a stride do not fall on the ends of steps.
const STEP_ERROR: f64 = 0.2;
/// Error of a stride that had some of its prompts' tokens from the cache, as a share. How many is a belief: an engine may have given
/// blocks up, or hold what nobody here knows of.
const BELIEF_ERROR: f64 = 0.2;
/// Residuals are clipped at this many usual ones, as in Huber's estimator.
const CLIP: f64 = 3.0;
/// Usual residual assumed before any stride, as a share.
const FIRST_RESIDUAL: f64 = 0.5;
/// Smallest usual residual, so that a run of perfect strides does not make the fit deaf.
const LEAST_RESIDUAL: f64 = 0.02;
/// Larger than any, so far off are not even the first ones.
const MOST_RESIDUAL: f64 = 1e6;
/// Weight of the newest residual in the usual one and in the lean.
const RESIDUAL_WEIGHT: f64 = 0.05;
/// Share of the usual residual's size above which the mean residual shows a change. Residuals of
/// either sign stay below 0.2 of it, one stalled stride in ten below 0.5.
const LEAN: f64 = 0.8;
/// Mean residual below which it is the formula's shape that errs and not the engine that changed, as
/// a share.
const LEAST_LEAN: f64 = 0.15;
/// Furthest that a stride's prediction may be from its measurement when it scales the residual.
const SCALE_BOUND: f64 = 4.0;

/// The fit of one pod class.
#[derive(Clone, Debug)]
pub struct StepFit {
    /// Solves for the multiples of the default's coefficients.
    multiples: Rls,
    /// Recent mean of the residuals' size, as a share.
    usual_residual: f64,
    /// Recent mean of the residuals, as a share.
    lean: f64,
    strides: u64,
    /// What a request pays beside the steps.
    outside: Outside,
}

impl Default for StepFit {
    fn default() -> Self {
        Self {
            multiples: Rls::new(),
            usual_residual: FIRST_RESIDUAL,
            lean: 0.0,
            strides: 0,
            outside: Outside::default(),
        }
    }
}

impl StepFit {
    /// Strides learned from.
    pub const fn strides(&self) -> u64 {
        self.strides
    }

    /// The formula as fitted so far.
    pub fn step_time(&self) -> StepTime {
        let default = StepTime::default();
        let [base, per_decode, per_kv, per_prefill, per_pair] = *self.multiples.solution();
        StepTime {
            base_ms: (default.base_ms * base).max(LEAST_STEP_MS),
            per_decode_ms: default.per_decode_ms * per_decode,
            per_kv_ms: default.per_kv_ms * per_kv,
            per_prefill_ms: default.per_prefill_ms * per_prefill,
            per_pair_ms: default.per_pair_ms * per_pair,
            api_ms: self.outside.stated_ms(),
            steps_per_token: 1.0,
        }
    }

    /// Learns from a stride, unless it makes no sense.
    pub fn observe(&mut self, stride: &Stride) {
        if !is_sound(stride) {
            return;
        }
        let work = work(stride);
        let predicted = self.multiples.predict(&work);
        // Near the start, or on another scale of hardware, the prediction may be far off.
        let scale = predicted.clamp(stride.busy_ms / SCALE_BOUND, stride.busy_ms * SCALE_BOUND);
        let residual = (stride.busy_ms - predicted) / scale;
        let bound = CLIP * self.usual_residual;
        let clipped = residual.clamp(-bound, bound);
        let belief = if has_cached(stride) { BELIEF_ERROR } else { 0.0 };
        let variance = SHAPE_ERROR.powi(2) + STEP_ERROR.powi(2) / stride.steps + belief.powi(2);
        self.multiples.update(&work.map(|term| term / scale), clipped, variance);
        self.strides += 1;
        self.note_residual(clipped);
    }

    /// Learns from a first token, unless it makes no sense.
    pub fn observe_first_token(&mut self, first: &FirstToken) {
        self.outside.observe(first);
    }

    /// What strides taught may be wrong: it begins anew, but for what requests pay outside the steps.
    pub fn doubt(&mut self) {
        *self = Self { outside: self.outside, ..Self::default() };
    }

    /// What it has learned, for another to go on from.
    pub fn learned(&self) -> StepsLearned {
        let (multiples, covariance, ceiling) = self.multiples.parts();
        let (outside_ms, outside_usual_ms) = self.outside.parts();
        StepsLearned {
            multiples,
            covariance,
            ceiling,
            usual_residual: self.usual_residual,
            lean: self.lean,
            strides: self.strides,
            outside_ms,
            outside_usual_ms,
        }
    }

    /// One that goes on from what another has learned; `None` where that cannot be.
    pub fn recalled(learned: &StepsLearned) -> Option<Self> {
        let StepsLearned { multiples, covariance, ceiling, usual_residual, lean, .. } = *learned;
        let is_sound = (LEAST_RESIDUAL..=MOST_RESIDUAL).contains(&usual_residual)
            && lean.abs() <= MOST_RESIDUAL;
        let multiples = Rls::from_parts(multiples, covariance, ceiling)?;
        let outside = Outside::from_parts(learned.outside_ms, learned.outside_usual_ms)?;
        let strides = learned.strides;
        is_sound.then_some(Self { multiples, usual_residual, lean, strides, outside })
    }

    fn note_residual(&mut self, residual: f64) {
        let usual = self.usual_residual + RESIDUAL_WEIGHT * (residual.abs() - self.usual_residual);
        self.usual_residual = usual.max(LEAST_RESIDUAL);
        self.lean += RESIDUAL_WEIGHT * (residual - self.lean);
        if self.lean.abs() > LEAST_LEAN.max(LEAN * self.usual_residual) {
            self.multiples.doubt();
            self.lean = 0.0;
        }
    }
}

/// What each coefficient of the default would contribute to the stride, in milliseconds.
fn work(stride: &Stride) -> Vector {
    let default = StepTime::default();
    [
        default.base_ms * stride.steps,
        default.per_decode_ms * stride.decode_steps,
        default.per_kv_ms * stride.kv_token_steps,
        default.per_prefill_ms * stride.prefill_tokens,
        default.per_pair_ms * stride.prefill_pairs,
    ]
}

/// Whether some of its prompts was cached: then there are more pairs than its tokens have among themselves.
fn has_cached(stride: &Stride) -> bool {
    stride.prefill_pairs > prefill_pairs(stride.prefill_tokens, 1.0)
}

fn is_sound(stride: &Stride) -> bool {
    let prefill = [stride.prefill_tokens, stride.prefill_pairs];
    let sums = [stride.decode_steps, stride.kv_token_steps].into_iter().chain(prefill);
    stride.steps.is_finite()
        && stride.steps >= 1.0
        && stride.busy_ms.is_finite()
        && (LEAST_STEP_MS..=LONGEST_STEP_MS).contains(&(stride.busy_ms / stride.steps))
        && sums.into_iter().all(|sum| sum.is_finite() && sum >= 0.0)
}
