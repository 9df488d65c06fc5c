//! What is sent when, decided before the first byte.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rand::{Rng, SeedableRng, rngs::SmallRng};

use super::{Class, Target};
use crate::{
    prompt::Segment,
    trace::{Arrival, shown},
};

/// A replay: everything [`super::run`] needs.
#[derive(Clone, Debug)]
pub struct LoadPlan {
    /// The server.
    pub target: Target,
    /// Value of the requests' `model`.
    pub model: String,
    /// The classes; a request names one by index.
    pub classes: Vec<Class>,
    /// The requests, by time.
    pub requests: Vec<Planned>,
    /// A request that takes longer has failed.
    pub timeout: Duration,
    /// The requests' `max_tokens`.
    pub max_tokens: MaxTokens,
    /// Sets this run's unique prompt texts and request ids apart from those of other runs.
    pub run: u64,
}

/// What requests say of the length of their answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MaxTokens {
    /// Nothing, as most clients do; a simulated pod is told by a header.
    #[default]
    Unsaid,
    /// The same bound for all.
    AtMost(u32),
    /// Each its own tokens, and that it goes on to there whatever it says (`ignore_eos`): an engine that computes answers as
    /// long as the plan has them.
    Exactly,
}

impl MaxTokens {
    /// What a request says; `None` when it says nothing.
    pub(crate) const fn of(self, planned: &Planned) -> Option<u32> {
        match self {
            Self::Unsaid => None,
            Self::AtMost(tokens) => Some(tokens),
            Self::Exactly => Some(planned.output_tokens),
        }
    }
}

/// One request of a plan.
#[derive(Clone, Debug)]
pub struct Planned {
    /// When it is sent, from the start of the run.
    pub at: Duration,
    /// Index of its class.
    pub class: usize,
    /// Prompt length in tokens.
    pub input_tokens: u32,
    /// How many tokens its answer has: a simulated pod generates as many, a real one under [`MaxTokens::Exactly`].
    pub output_tokens: u32,
    /// What its prompt shares with others.
    pub prefix: Vec<Segment>,
}

/// Seconds that a load may last: what comes after a year is a mistake in the times.
const MOST_S: f64 = 366.0 * 86_400.0;

/// When a row's request is sent.
fn sent_at(at_s: f64) -> Result<Duration> {
    ensure!(
        (0.0..=MOST_S).contains(&at_s),
        "a request would be sent {at_s:.3e} s after the start, and a load lasts {MOST_S} s at most: look at the trace's times, or \
         raise --speed"
    );
    Ok(Duration::from_secs_f64(at_s))
}

/// Turns arrivals into requests; a row without a class gets one by the classes' shares.
///
/// # Errors
/// When a row names a class that is not among `classes`, or comes later than anybody waits for.
pub(crate) fn requests(rows: Vec<Arrival>, classes: &[Class], seed: u64) -> Result<Vec<Planned>> {
    let mut rng = SmallRng::seed_from_u64(seed);
    rows.into_iter()
        .map(|row| {
            let class = match &row.class {
                None => by_share(classes, rng.random()),
                Some(name) => {
                    classes.iter().position(|class| class.name == *name).with_context(|| {
                        format!("the trace names class {:?}, --classes does not", shown(name))
                    })?
                }
            };
            Ok(Planned {
                at: sent_at(row.at_s)?,
                class,
                input_tokens: row.input_tokens,
                output_tokens: row.output_tokens,
                prefix: row.prefix,
            })
        })
        .collect()
}

/// The class in whose part of 0 to 1 the number lies.
pub(super) fn by_share(classes: &[Class], mut draw: f64) -> usize {
    for (index, class) in classes.iter().enumerate() {
        draw -= class.share;
        if draw < 0.0 {
            return index;
        }
    }
    classes.len().saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::parse_classes;

    fn row(class: Option<&str>) -> Arrival {
        let class = class.map(str::to_owned);
        Arrival { at_s: 1.0, input_tokens: 10, output_tokens: 2, class, prefix: vec![] }
    }

    #[test]
    fn rows_without_a_class_are_shared_out() {
        let shares = ["interactive:0.75".to_owned(), "batch:0.25".to_owned()];
        let classes = parse_classes(&shares, &[]).unwrap();
        let planned = requests(vec![row(None); 4000], &classes, 1).unwrap();
        let batch = planned.iter().filter(|request| request.class == 1).count();
        assert!((900..1100).contains(&batch), "{batch}");
    }

    #[test]
    fn a_row_that_comes_later_than_anybody_waits_for_is_an_error() {
        let classes = parse_classes(&["standard:1".to_owned()], &[]).unwrap();
        for at_s in [1e300, f64::INFINITY, f64::NAN, -1.0] {
            let late = Arrival { at_s, ..row(None) };
            let error = requests(vec![row(None), late], &classes, 1).unwrap_err().to_string();
            assert!(error.contains("--speed"), "{error}");
        }
    }

    #[test]
    fn a_row_keeps_its_class_and_an_unknown_one_is_an_error() {
        let classes =
            parse_classes(&["interactive:1".to_owned(), "batch:0".to_owned()], &[]).unwrap();
        assert_eq!(requests(vec![row(Some("batch"))], &classes, 1).unwrap()[0].class, 1);
        assert!(requests(vec![row(Some("gold"))], &classes, 1).is_err());
        let long = row(Some(&"gold".repeat(1000)));
        let error = requests(vec![long], &classes, 1).unwrap_err().to_string();
        assert!(error.contains("goldgold") && error.len() < 200, "{error}");
    }
}
