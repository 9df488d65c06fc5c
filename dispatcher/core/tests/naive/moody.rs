//! A predictor that answers with the priors, or fails in every way a predictor can.

use std::time::Duration;

use weir_core::Time;
use weir_schema::{
    Feature, Features, FirstToken, Predict, PredictError, Prediction, Quantiles, Row, Sample,
    Status, StepTime, Stride,
};

/// How a predictor behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    /// Every answer is the prior in the row.
    Sound,
    /// Every answer is NaN.
    NotANumber,
    /// A call may fail, or answer with NaN, infinities, nothing or nonsense; the seed decides.
    Failing(u64),
    /// As before, and the step times are nonsense as well.
    Mad(u64),
}

impl Mood {
    /// Whether step times can be believed.
    pub const fn steps_are_sound(self) -> bool {
        !matches!(self, Self::Mad(_))
    }
}

/// Predicts in a mood.
pub struct Moody {
    mood: Mood,
    calls: u64,
}

impl Moody {
    pub const fn new(mood: Mood) -> Self {
        Self { mood, calls: 0 }
    }
}

impl Predict for Moody {
    fn predict(&mut self, rows: &[Row], out: &mut [Prediction]) -> Result<(), PredictError> {
        self.calls += 1;
        for (index, (row, prediction)) in (0..).zip(rows.iter().zip(out)) {
            let features = Features(*row);
            let roll = match self.mood {
                Mood::Sound => 0,
                Mood::NotANumber => 6 + 12 * 6,
                Mood::Failing(seed) | Mood::Mad(seed) => dice(seed, self.calls, index),
            };
            let quantiles = |feature, roll| {
                let p50 = spoiled(features.get(feature), roll);
                Quantiles { p50, p90: p50 * 1.2 }
            };
            prediction.ttft_ms = quantiles(Feature::PriorTtftMs, roll % 12);
            prediction.tpot_ms = quantiles(Feature::PriorTpotMs, roll / 12 % 12);
            if roll / 144 % 8 == 7 {
                return Err(PredictError::Evaluator("in a mood".to_owned()));
            }
        }
        Ok(())
    }

    fn take_up(&mut self) {}

    fn step_time(&self, pod_class: u16) -> StepTime {
        let sound = StepTime::default();
        let Mood::Mad(seed) = self.mood else { return sound };
        let term = |value: f64, place| {
            f64::from(spoiled(value as f32, dice(seed, u64::from(pod_class), place) % 12))
        };
        StepTime {
            base_ms: term(sound.base_ms, 1),
            per_decode_ms: term(sound.per_decode_ms, 2),
            per_kv_ms: term(sound.per_kv_ms, 3),
            per_prefill_ms: term(sound.per_prefill_ms, 4),
            per_pair_ms: term(sound.per_pair_ms, 6),
            api_ms: term(sound.api_ms, 5),
            ..sound
        }
    }

    fn observe_stride(&mut self, _stride: &Stride) {}

    fn observe_first_token(&mut self, _: &FirstToken) {}

    fn observe_sample(&mut self, _sample: &Sample) {}

    fn status(&self) -> Status {
        Status::default()
    }
}

/// A value, or what a broken model makes of it. Half of the rolls leave it as it is.
const fn spoiled(value: f32, roll: u64) -> f32 {
    match roll {
        6 => f32::NAN,
        7 => f32::INFINITY,
        8 => f32::NEG_INFINITY,
        9 => 0.0,
        10 => -value,
        11 => f32::MAX,
        _ => value,
    }
}

/// The same number for the same call, spread over all bits (splitmix64).
pub const fn dice(seed: u64, call: u64, place: u64) -> u64 {
    let mut mixed =
        seed ^ call.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ place.wrapping_mul(0xd1b5_4a32);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// When a response that is not streamed is believed to have produced its first token; `late` is the
/// recent mean of ln(measured / predicted) of streams.
pub fn assumed_first_token(now: Time, prediction: &Prediction, late: f64) -> Time {
    let ttft_s = f64::from(prediction.ttft_ms.p50) / 1000.0 * late.exp();
    now.plus(Duration::try_from_secs_f64(ttft_s).unwrap_or_default())
}
