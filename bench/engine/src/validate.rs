//! The model against the log of a real engine: replay its arrivals, compare what came out.
//!
//! Called by the integration test and by `weir-bench engine`, which read and parse the logs (this crate does no I/O). The
//! logs are those of casys-kaist/LLMServingSim (MIT): 300 requests each of vLLM 0.19 on one RTX PRO 6000. A log gives
//! lengths and times but no prompt text, so prompts share nothing here. [`replay`] is exact and repeatable (no noise);
//! [`Fit`] finds the card's coefficients; [`Comparison`] says how far apart model and log are.

mod fit;
mod study;

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::config::EngineConfig;
use crate::engine::Engine;
use crate::hardware::Hardware;
use crate::job::{Job, Output, Rejected};

pub use fit::Fit;
pub use study::{Reading, study, table};

/// One line of a log. `arrival_time` is the client's wall clock, the others are the engine's clock; all in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Logged {
    /// Prompt length.
    pub input_toks: u32,
    /// Tokens generated.
    pub output_toks: u32,
    /// When the client sent it.
    pub arrival_time: f64,
    /// When the scheduler saw it: always a step boundary.
    pub queued_ts: f64,
    /// When it was first scheduled.
    pub scheduled_ts: f64,
    /// When its first token was there.
    pub first_token_ts: f64,
    /// When its last token was there.
    pub last_token_ts: f64,
}

/// One request's times in milliseconds since the log's first arrival, measured or modelled.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Times {
    /// Arrival at the engine; the same in the log and in the model.
    pub arrival_ms: f64,
    /// First scheduled.
    pub scheduled_ms: f64,
    /// First token.
    pub first_ms: f64,
    /// Last token.
    pub last_ms: f64,
    /// Prompt length.
    pub prompt_tokens: u32,
    /// Tokens generated.
    pub output_tokens: u32,
}

impl Times {
    /// Arrival to first token.
    pub fn ttft_ms(&self) -> f64 {
        self.first_ms - self.arrival_ms
    }

    /// Mean time between tokens; `None` for a single token.
    pub fn tpot_ms(&self) -> Option<f64> {
        let gaps = self.output_tokens.saturating_sub(1);
        (gaps > 0).then(|| (self.last_ms - self.first_ms) / f64::from(gaps))
    }

    /// Arrival to first scheduled.
    pub fn queue_ms(&self) -> f64 {
        self.scheduled_ms - self.arrival_ms
    }

    /// First scheduled to first token.
    pub fn prefill_ms(&self) -> f64 {
        self.first_ms - self.scheduled_ms
    }

    /// Arrival to last token.
    pub fn e2e_ms(&self) -> f64 {
        self.last_ms - self.arrival_ms
    }
}

/// A log on one clock, in order of arrival.
///
/// The client's clock is put on the engine's by the request that reached the scheduler fastest, whose delay counts as
/// none. An arrival here is therefore the moment the scheduler could have seen the request, and the API cost, which these
/// logs cannot show, is 0 in a replay.
pub fn times(log: &[Logged]) -> Vec<Times> {
    let offset_s = log.iter().map(|r| r.arrival_time - r.queued_ts).fold(f64::MIN, f64::max);
    let start_s = log.iter().map(|r| r.arrival_time - offset_s).fold(f64::MAX, f64::min);
    let ms = |engine_s: f64| (engine_s - start_s) * 1e3;
    let mut times: Vec<Times> = log
        .iter()
        .map(|r| Times {
            arrival_ms: ms(r.arrival_time - offset_s),
            scheduled_ms: ms(r.scheduled_ts),
            first_ms: ms(r.first_token_ts),
            last_ms: ms(r.last_token_ts),
            prompt_tokens: r.input_toks,
            output_tokens: r.output_toks,
        })
        .collect();
    times.sort_by(|a, b| a.arrival_ms.total_cmp(&b.arrival_ms));
    times
}

/// How the logged engines were started: 128 sequences, 2048 tokens a step. The cards never ran out of KV memory in these
/// logs (all 128 slots stay in use), so the pool is merely large. Coefficients are fitted directly, hence no prefill factor.
pub fn logged_engine(hardware: &Hardware) -> EngineConfig {
    EngineConfig {
        num_blocks: 40_000,
        max_num_batched_tokens: 2048,
        max_num_seqs: 128,
        prefill_factor: 1.0,
        noise_sigma: 0.0,
        api_cost_ms: 0.0,
        every_token: false,
        ..EngineConfig::for_hardware(hardware)
    }
}

/// Runs a log's arrivals and lengths through the model: the log's measured times are not looked at. Requests that have
/// not ended by `until_ms` keep infinite times.
pub fn replay(cfg: &EngineConfig, log: &[Times], until_ms: f64) -> Result<Vec<Times>, Rejected> {
    let mut engine = Engine::new(cfg.clone());
    let mut modelled = HashMap::new();
    let mut out = Vec::new();
    for (at, request) in log.iter().enumerate() {
        let job = Job {
            prompt_tokens: request.prompt_tokens,
            blocks: Vec::new(),
            output_tokens: request.output_tokens,
            priority: 0,
            brought_tokens: 0,
            keeps: false,
            adapter: None,
        };
        modelled.insert(engine.submit(request.arrival_ms, job)?, at);
    }
    engine.advance(until_ms, &mut out);
    let infinite = f64::INFINITY;
    let unknown =
        |r: &Times| Times { scheduled_ms: infinite, first_ms: infinite, last_ms: infinite, ..*r };
    let mut times: Vec<Times> = log.iter().map(unknown).collect();
    for output in out {
        let at = modelled.get(&output.id()).copied().unwrap_or(usize::MAX);
        let (Some(time), Output::Finished { at_ms, queue_ms, prefill_ms, .. }) =
            (times.get_mut(at), output)
        else {
            continue;
        };
        time.scheduled_ms = time.arrival_ms + queue_ms;
        time.first_ms = time.scheduled_ms + prefill_ms;
        time.last_ms = at_ms;
    }
    Ok(times)
}

/// Error of one quantity over many requests.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Error {
    /// Median of |model - log| / log.
    pub median: f64,
    /// Mean of |model - log| / log.
    pub mean: f64,
    /// Sum of the model over sum of the log, minus 1: the bias.
    pub bias: f64,
    /// Median of |model - log| in milliseconds.
    pub median_ms: f64,
}

impl Error {
    /// From (log, model) pairs in milliseconds.
    fn of(pairs: impl Iterator<Item = (f64, f64)>) -> Self {
        let pairs: Vec<(f64, f64)> = pairs.collect();
        let relative: Vec<f64> =
            pairs.iter().map(|(log, model)| (model / log - 1.0).abs()).collect();
        let sum = |of: &dyn Fn(&(f64, f64)) -> f64| pairs.iter().map(of).sum::<f64>();
        Self {
            mean: relative.iter().sum::<f64>() / relative.len().max(1) as f64,
            median: median(relative),
            bias: sum(&|p| p.1) / sum(&|p| p.0) - 1.0,
            median_ms: median(pairs.iter().map(|(log, model)| (model - log).abs()).collect()),
        }
    }
}

/// Middle value; 0 of nothing.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// How far the model is from the log, over the same requests.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Comparison {
    /// Requests compared.
    pub requests: usize,
    /// Arrival to first token.
    pub ttft: Error,
    /// Mean time between tokens.
    pub tpot: Error,
    /// Arrival to first scheduled, of the requests that waited at least [`Self::QUEUED_MS`] in the log.
    pub queue: Error,
    /// First scheduled to first token.
    pub prefill: Error,
    /// Arrival to last token.
    pub e2e: Error,
}

impl Comparison {
    /// A shorter wait is the wait for a step boundary, not a queue.
    pub const QUEUED_MS: f64 = 200.0;

    /// Compares request by request; both slices are in the log's order.
    pub fn of(log: &[Times], model: &[Times]) -> Self {
        let both = || log.iter().zip(model);
        let error = |of: &dyn Fn(&Times) -> f64| Error::of(both().map(|(l, m)| (of(l), of(m))));
        Self {
            requests: both().count(),
            ttft: error(&Times::ttft_ms),
            tpot: Error::of(both().filter_map(|(l, m)| l.tpot_ms().zip(m.tpot_ms()))),
            queue: Error::of(
                both()
                    .filter(|(l, _)| l.queue_ms() >= Self::QUEUED_MS)
                    .map(|(l, m)| (l.queue_ms(), m.queue_ms())),
            ),
            prefill: error(&Times::prefill_ms),
            e2e: error(&Times::e2e_ms),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::hardware;

    fn line(arrival_time: f64, queued_ts: f64) -> Logged {
        let (scheduled_ts, first_token_ts) = (queued_ts + 0.1, queued_ts + 0.3);
        let last_token_ts = queued_ts + 1.3;
        Logged {
            input_toks: 100,
            output_toks: 11,
            arrival_time,
            queued_ts,
            scheduled_ts,
            first_token_ts,
            last_token_ts,
        }
    }

    #[test]
    fn both_clocks_are_aligned_at_the_request_that_was_seen_fastest() {
        let times = times(&[line(1000.0, 50.25), line(1001.0, 51.0)]);
        assert!(times[0].arrival_ms.abs() < 1e-6);
        assert!((times[1].arrival_ms - 1000.0).abs() < 1e-6);
        assert!((times[0].ttft_ms() - 550.0).abs() < 1e-6, "250 of delay, 300 from being seen");
        assert!((times[1].queue_ms() - 100.0).abs() < 1e-6);
        assert!((times[1].prefill_ms() - 200.0).abs() < 1e-6);
        assert!((times[1].tpot_ms().unwrap() - 100.0).abs() < 1e-6);
        assert!((times[1].e2e_ms() - 1300.0).abs() < 1e-6);
    }

    #[test]
    fn a_fit_on_the_models_own_times_finds_them_again() {
        let truth = logged_engine(hardware("a100-llama-3.1-8b-tp1").unwrap());
        let asked: Vec<Times> = (0..40)
            .map(|i| Times {
                arrival_ms: f64::from(i) * 130.0,
                scheduled_ms: 0.0,
                first_ms: 0.0,
                last_ms: 0.0,
                prompt_tokens: 100 + (i * 379) % 1500,
                output_tokens: 20 + (i * 31) % 60,
            })
            .collect();
        let log = replay(&truth, &asked, f64::INFINITY).unwrap();
        let start = logged_engine(hardware("h100-llama-3.1-8b-tp1").unwrap());
        let fit = Fit::new(&start, &log, 20).unwrap();
        let model = replay(&fit.cfg, &log, f64::INFINITY).unwrap();
        let rest = Comparison::of(&log[20..], &model[20..]);
        assert!(rest.tpot.median < 0.03, "{rest:?}");
        assert!(rest.e2e.mean < 0.05, "{rest:?}");
        let before = replay(&start, &log, f64::INFINITY).unwrap();
        assert!(Comparison::of(&log, &before).tpot.median > 0.3, "the start is far away");
    }

    #[test]
    fn an_error_is_relative_to_the_log() {
        let error = Error::of([(100.0, 110.0), (200.0, 180.0), (100.0, 150.0)].into_iter());
        assert!((error.median - 0.1).abs() < 1e-12 && (error.median_ms - 20.0).abs() < 1e-12);
        assert!((error.mean - 0.7 / 3.0).abs() < 1e-12 && (error.bias - 0.1).abs() < 1e-12);
    }
}
