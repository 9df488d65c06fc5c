//! The profile evaluator: latencies of a pod class as measured before it served.
//!
//! A class has one if its configuration names profile files. TTFT comes from Llumnix's curve or from
//! AIBrix's cells, TPOT from Llumnix's grid or from AIBrix's cells; what neither knows has no value,
//! and the next evaluator serves it. The chain reads it for the very row it decides with, so that a
//! measured outcome can be compared with what the profile would have said.
//!
//! From the row to the formula's terms:
//! - Work ahead is the uncached tokens of the prompts in flight there; the time it has had is that
//!   since the oldest of them was sent, for from then on the pod has been computing.
//! - The prompt itself counts without what the pod has cached of it.
//! - The batch whose TPOT is asked for holds everything that decodes then: residents, prompts in
//!   flight, and the newcomer (Llumnix: `decode_batch_size + 1`, and its own account of what it sent).

use std::sync::Arc;

use weir_schema::profile::{Batch, Cell, Prefill, Profile, Reading};
use weir_schema::{Feature, Features, Row, Target};

use crate::both::Both;
use crate::prior::measurable;

/// The profile of one pod class.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassProfile {
    /// The class's name.
    pub class: Arc<str>,
    /// Most tokens its engine puts into one step.
    pub chunk_tokens: u32,
    /// What is known of it.
    pub profile: Arc<Profile>,
}

/// A median of the profile, and whether it was read inside the grid.
pub(crate) type Median = Reading<f32>;

impl ClassProfile {
    /// Whether it has a value for a target at all.
    pub(crate) fn knows(&self, target: Target) -> bool {
        let (profile, patterns) = (&self.profile, self.profile.patterns.as_ref());
        let in_cells = |known: fn(&Cell) -> bool| {
            patterns.is_some_and(|patterns| patterns.feasible().any(known))
        };
        match target {
            Target::Ttft => profile.ttft.is_some() || in_cells(|cell| cell.ttft_s.is_some()),
            Target::Tpot => profile.tpot.is_some() || in_cells(|cell| cell.tpot_s.is_some()),
        }
    }

    /// TTFT and TPOT of a row, in milliseconds.
    pub(crate) fn medians(&self, row: &Row) -> Both<Option<Median>> {
        let features = Features(*row);
        let ttft = match &self.profile.ttft {
            Some(_) => self.curve_ttft(&features),
            None => self.cell(&features, Feature::UncachedTokens, |cell| cell.ttft_s),
        };
        let tpot = match &self.profile.tpot {
            Some(grid) => newcomers_batch(&features).map(|batch| grid.tpot_ms(batch)),
            None => self.cell(&features, Feature::InputTokens, |cell| cell.tpot_s),
        };
        Both { ttft: ttft.and_then(median), tpot: tpot.and_then(median) }
    }

    fn curve_ttft(&self, features: &Features) -> Option<Reading<f64>> {
        let curve = self.profile.ttft.as_ref()?;
        let prefill = Prefill {
            ahead_tokens: known(features, Feature::PrefillTokensInFlight)?,
            own_tokens: known(features, Feature::UncachedTokens)?,
            elapsed_ms: known(features, Feature::PendingAgeMs).unwrap_or_default(),
            chunk_tokens: f64::from(self.chunk_tokens),
            decoding: Batch {
                requests: known(features, Feature::RunningRequests)?,
                tokens: known(features, Feature::DecodeTokensInFlight)?,
            },
        };
        Some(curve.ttft_ms(self.profile.tpot.as_ref(), &prefill))
    }

    /// A latency of the pattern profile in milliseconds; `input` is the column that counts as input.
    fn cell(
        &self,
        features: &Features,
        input: Feature,
        seconds: fn(&Cell) -> Option<f64>,
    ) -> Option<Reading<f64>> {
        let patterns = self.profile.patterns.as_ref()?;
        let input = known(features, input)?;
        let output = known(features, Feature::ExpectedOutputTokens)?;
        let cell = patterns.at(input, output).ok()?;
        Some(Reading { value: seconds(&cell.value)? * 1000.0, inside: cell.inside })
    }
}

/// What decodes once the newcomer does.
fn newcomers_batch(features: &Features) -> Option<Batch> {
    let requests = known(features, Feature::RunningRequests)?;
    let pending = known(features, Feature::PendingRequests).unwrap_or_default();
    let decoding = known(features, Feature::DecodeTokensInFlight)?;
    let ahead = known(features, Feature::PrefillTokensInFlight).unwrap_or_default();
    let own = known(features, Feature::InputTokens)?;
    Some(Batch { requests: requests + pending + 1.0, tokens: decoding + ahead + own })
}

fn known(features: &Features, feature: Feature) -> Option<f64> {
    let value = features.get(feature);
    value.is_finite().then(|| f64::from(value))
}

fn median(reading: Reading<f64>) -> Option<Median> {
    let Reading { value, inside } = reading;
    measurable(value as f32).map(|value| Reading { value, inside })
}

#[cfg(test)]
pub(crate) mod tests {
    use weir_schema::profile::Percentile;

    use super::*;

    /// 10 ms and 0.1 ms per token of a prompt; 20 ms and 1 ms per decoding request.
    const TTFT: &str = r#"{"results": [{"tokens_num": 1, "p50": 10.1},
        {"tokens_num": 8000, "p50": 810.0}]}"#;
    const TPOT: &str = r#"{"results": [
        {"batch_size": 1, "tokens_per_request": 8, "p50": 21},
        {"batch_size": 1, "tokens_per_request": 8000, "p50": 21},
        {"batch_size": 101, "tokens_per_request": 8, "p50": 121},
        {"batch_size": 101, "tokens_per_request": 8000, "p50": 121}]}"#;
    const PATTERNS: &str = r#"{"indexes": [[16, 64], [1000, 4000]], "tputs": [[4, 2], [3, 1]],
        "e2e": [[0.5, 1], [2, 4]], "ttft": [[0.2, 0.4], [0.2, 0.4]],
        "tpot": [[0.020, 0.030], [0.020, 0.030]]}"#;

    fn class(texts: &[&str]) -> ClassProfile {
        let mut profile = Profile::default();
        for text in texts {
            profile.add(text, Percentile::P50).unwrap();
        }
        ClassProfile { class: "h100".into(), chunk_tokens: 1000, profile: Arc::new(profile) }
    }

    /// A class whose TTFT and TPOT are always these, in milliseconds.
    pub(crate) fn flat(ttft_ms: f32, tpot_ms: f32) -> ClassProfile {
        let ttft = format!(r#"{{"results": [{{"tokens_num": 1000, "p50": {ttft_ms}}}]}}"#);
        let tpot = format!(
            r#"{{"results": [{{"batch_size": 1, "tokens_per_request": 1000, "p50": {tpot_ms}}}]}}"#
        );
        ClassProfile { chunk_tokens: 1_000_000, ..class(&[&ttft, &tpot]) }
    }

    fn row(values: &[(Feature, f32)]) -> Row {
        let mut features = Features::default();
        for (feature, value) in [
            (Feature::InputTokens, 2000.0),
            (Feature::UncachedTokens, 2000.0),
            (Feature::PrefillTokensInFlight, 0.0),
            (Feature::RunningRequests, 0.0),
            (Feature::DecodeTokensInFlight, 0.0),
            (Feature::ExpectedOutputTokens, 16.0),
        ] {
            features.set(feature, value);
        }
        values.iter().for_each(|(feature, value)| features.set(*feature, *value));
        features.0
    }

    #[track_caller]
    fn assert_ms(median: Option<Median>, want: f32) {
        let median = median.unwrap();
        assert!((median.value - want).abs() < 0.01, "{median:?}, not {want}");
    }

    #[test]
    fn cached_tokens_are_subtracted_from_the_prompt() {
        let llumnix = class(&[TTFT, TPOT]);
        assert_ms(llumnix.medians(&row(&[])).ttft, 220.0);
        let warm = row(&[(Feature::UncachedTokens, 500.0)]);
        assert_ms(llumnix.medians(&warm).ttft, 60.0);
        let aibrix = class(&[PATTERNS]);
        assert_ms(aibrix.medians(&row(&[(Feature::UncachedTokens, 4000.0)])).ttft, 400.0);
        assert_ms(aibrix.medians(&row(&[(Feature::UncachedTokens, 1000.0)])).ttft, 200.0);
    }

    #[test]
    fn work_ahead_and_decoding_requests_delay_the_first_token() {
        let llumnix = class(&[TTFT, TPOT]);
        let ahead = [(Feature::PrefillTokensInFlight, 1000.0)];
        assert_ms(llumnix.medians(&row(&ahead)).ttft, 330.0);
        let had = [ahead[0], (Feature::PendingAgeMs, 60.0)];
        assert_ms(llumnix.medians(&row(&had)).ttft, 270.0);
        // Two chunks, each beside a decode step of ten requests.
        let busy = [(Feature::RunningRequests, 10.0), (Feature::DecodeTokensInFlight, 10_000.0)];
        assert_ms(llumnix.medians(&row(&busy)).ttft, 220.0 + 2.0 * 30.0);
    }

    #[test]
    fn the_batch_of_the_newcomer_holds_residents_pending_prompts_and_itself() {
        let llumnix = class(&[TTFT, TPOT]);
        assert_ms(llumnix.medians(&row(&[])).tpot, 21.0);
        let busy = [
            (Feature::RunningRequests, 10.0),
            (Feature::DecodeTokensInFlight, 10_000.0),
            (Feature::PendingRequests, 2.0),
            (Feature::PrefillTokensInFlight, 4000.0),
        ];
        assert_ms(llumnix.medians(&row(&busy)).tpot, 33.0);
    }

    #[test]
    fn patterns_give_latencies_by_input_and_expected_output() {
        let aibrix = class(&[PATTERNS]);
        let medians = aibrix.medians(&row(&[]));
        assert_ms(medians.ttft, 200.0 * 2_f32.sqrt());
        assert_ms(medians.tpot, (20.0_f32 * 30.0).sqrt());
        assert!(!aibrix.medians(&row(&[(Feature::InputTokens, 1e5)])).tpot.unwrap().inside);
    }

    #[test]
    fn curves_come_before_patterns_and_a_file_alone_gives_what_it_knows() {
        let all = class(&[PATTERNS, TTFT]).medians(&row(&[]));
        assert_ms(all.ttft, 220.0);
        assert_ms(all.tpot, (20.0_f32 * 30.0).sqrt());
        let ttft = class(&[TTFT]).medians(&row(&[]));
        assert!(ttft.ttft.is_some() && ttft.tpot.is_none());
        let tpot = class(&[TPOT]).medians(&row(&[]));
        assert!(tpot.ttft.is_none() && tpot.tpot.is_some());
    }

    #[test]
    fn a_row_that_lacks_a_term_has_no_value() {
        let blind = row(&[(Feature::UncachedTokens, f32::NAN), (Feature::InputTokens, f32::NAN)]);
        for class in [class(&[TTFT, TPOT]), class(&[PATTERNS])] {
            assert_eq!(class.medians(&blind), Both::default());
        }
    }

    #[test]
    fn an_infeasible_pattern_has_no_value() {
        let aibrix = class(&[&PATTERNS.replace("[4, 2]", "[4, 0]")]);
        assert_eq!(aibrix.medians(&row(&[(Feature::InputTokens, 4000.0)])).tpot, None);
    }
}
