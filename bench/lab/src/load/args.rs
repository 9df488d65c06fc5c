//! The command line of `weir-bench load`.

use std::{io::IsTerminal, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context, Result, ensure};
use clap::{ArgGroup, Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};

use super::{
    Class, ClassTally, DemoMix, LoadPlan, MaxTokens, Planned, Tally, Target, parse_classes, plan,
    run,
};
use crate::{
    results::{ResultFile, say},
    trace::{self, Recorded, TRACE_HELP, Window},
};

/// Replay a trace or a synthetic mix against an OpenAI server, in open loop, and judge what comes back
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("source").required(true).args(["trace", "mix"])))]
pub struct LoadArgs {
    /// Server to send to, http:// or https://, without a path; /v1 may stand behind its address
    #[arg(long, default_value = "http://127.0.0.1:8080")]
    target: String,
    /// File with authorities, PEM, of one of which the certificate of a target at https:// is; without it those of this machine
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Variable of the environment with the key that the server asks for
    #[arg(long, value_name = "NAME")]
    key_env: Option<String>,
    /// Model to ask for
    #[arg(long, default_value = "qwen3-32b")]
    model: String,
    #[arg(long, help = TRACE_HELP)]
    trace: Option<PathBuf>,
    /// Synthetic workload to send instead
    #[arg(long, value_enum, requires = "for_s")]
    mix: Option<Mix>,
    /// Requests per second of the mix
    #[arg(long, default_value_t = 10.0, conflicts_with = "trace", allow_negative_numbers = true)]
    rate: f64,
    /// First second of the trace that is replayed
    #[arg(
        long = "from",
        default_value_t = 0.0,
        value_name = "SECONDS",
        conflicts_with = "mix",
        allow_negative_numbers = true
    )]
    from_s: f64,
    /// Seconds of the trace, or of the mix, that are replayed
    #[arg(long = "for", value_name = "SECONDS", allow_negative_numbers = true)]
    for_s: Option<f64>,
    /// Trace seconds per second of replay
    #[arg(long, default_value_t = 1.0, conflicts_with = "mix", allow_negative_numbers = true)]
    speed: f64,
    /// Classes with their shares, as name:share
    #[arg(long, value_delimiter = ',', default_value = "standard:1")]
    classes: Vec<String>,
    /// Objectives that a class is judged by, as name=ttft_ms/tpot_ms
    #[arg(long, value_delimiter = ',')]
    slo: Vec<String>,
    /// The requests' max_tokens; left out by default
    #[arg(long)]
    max_tokens: Option<u32>,
    /// Answers as long as the trace or the mix has them from engines that really generate: each request says its own
    /// max_tokens, and ignore_eos, as vLLM knows it
    #[arg(long, conflicts_with = "max_tokens")]
    exact_lengths: bool,
    /// Seconds after which a request has failed
    #[arg(long, default_value_t = 300.0, value_name = "SECONDS", allow_negative_numbers = true)]
    timeout: f64,
    /// Decides arrivals, classes and texts
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// File for the report as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// File for one JSON line per request
    #[arg(long, value_name = "FILE")]
    records: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Mix {
    /// Poisson arrivals, about 1000 tokens in and 200 out, shared system prompts
    Demo,
}

impl LoadArgs {
    /// Runs the load and prints the report; the exit code is 1 when every request failed, which says that nothing was
    /// measured, and else 0 whatever the outcomes were.
    ///
    /// # Errors
    /// When the arguments make no plan, or a file cannot be written.
    pub fn run(self) -> Result<ExitCode> {
        let plan = self.plan()?;
        let read = [("--trace", self.trace.as_deref())];
        let asked = |path: &Option<PathBuf>| ResultFile::asked(path.as_deref())?.sparing(read);
        let (json, records) = (asked(&self.json)?, asked(&self.records)?);
        json.differs(&records, "--json and --records")?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let bar = progress(plan.requests.len());
        let report = runtime.block_on(run(plan, |tally| show(&bar, tally)));
        bar.finish_and_clear();
        json.json(&report)?;
        records.write(|to| {
            report.records.iter().try_for_each(|record| {
                serde_json::to_writer(&mut *to, record)?;
                Ok(to.write_all(b"\n")?)
            })
        })?;
        say!("{}", report.for_people())?;
        Ok(ExitCode::from(u8::from(report.total.failed == report.total.sent)))
    }

    fn target(&self) -> Result<Target> {
        let target = Target::parse(&self.target, self.ca.as_deref())?;
        let Some(name) = &self.key_env else { return Ok(target) };
        let key = std::env::var(name).with_context(|| format!("--key-env: no variable {name}"))?;
        target.with_key(key.trim())
    }

    fn plan(&self) -> Result<LoadPlan> {
        let classes = parse_classes(&self.classes, &self.slo)?;
        let requests = self.requests(&classes)?;
        ensure!(!requests.is_empty(), "nothing arrives in the chosen window");
        Ok(LoadPlan {
            target: self.target()?,
            model: self.model.clone(),
            classes,
            requests,
            timeout: Duration::try_from_secs_f64(self.timeout).context("--timeout")?,
            max_tokens: self.lengths(),
            run: run_number(self.seed),
        })
    }

    fn lengths(&self) -> MaxTokens {
        let bound = self.max_tokens.map_or(MaxTokens::Unsaid, MaxTokens::AtMost);
        if self.exact_lengths { MaxTokens::Exactly } else { bound }
    }

    fn requests(&self, classes: &[Class]) -> Result<Vec<Planned>> {
        ensure!(self.speed > 0.0 && self.speed.is_finite(), "--speed must be above zero");
        ensure!(
            self.from_s.is_finite() && self.from_s >= 0.0,
            "--from must be a number of seconds from zero on, not {}",
            self.from_s
        );
        let for_s = self.for_s.unwrap_or(1.0);
        ensure!(
            for_s > 0.0 && for_s.is_finite(),
            "--for must be a number of seconds above zero, not {for_s}; a trace is replayed to its end without it"
        );
        let Some(path) = &self.trace else {
            let stretches = vec![(self.rate, self.for_s.unwrap_or(0.0))];
            let mix = DemoMix { stretches, classes: classes.to_vec(), seed: self.seed };
            return mix.requests().context("--rate and --for");
        };
        let window = Window { from_s: self.from_s, for_s: self.for_s, speed: self.speed };
        let Recorded { rows, is_timed } = trace::recorded(path, self.seed)?;
        if !is_timed {
            tracing::warn!(
                "the trace has no times: a request is sent each second on average, times --speed"
            );
        }
        plan::requests(window.cut(rows), classes, self.seed)
    }
}

/// Differs between runs, so that a second run does not find the first one's prompts in the pods' caches.
fn run_number(seed: u64) -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let seconds = now.map_or(0, |since| since.as_secs());
    (seconds ^ (seed << 20)) & 0xff_ffff_ffff
}

/// A bar on a terminal, nothing elsewhere.
fn progress(requests: usize) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} over, {msg}");
    ProgressBar::new(requests as u64)
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn show(bar: &ProgressBar, tally: &Tally) {
    let sum = |count: fn(&ClassTally) -> usize| tally.classes.iter().map(count).sum::<usize>();
    bar.set_position(sum(ClassTally::over) as u64);
    bar.set_message(format!(
        "{} in flight, {} shed, {} failed, {:.0} s",
        tally.in_flight(),
        sum(|class| class.refused),
        sum(|class| class.failed),
        tally.elapsed_s,
    ));
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        load: LoadArgs,
    }

    fn parse(words: &str) -> Result<LoadArgs, clap::Error> {
        let words = std::iter::once("load").chain(words.split_whitespace());
        Line::try_parse_from(words).map(|line| line.load)
    }

    #[test]
    fn what_only_the_other_source_heeds_is_refused() {
        assert!(parse("--trace x.csv --rate 5").is_err());
        assert!(parse("--mix demo --for 1 --rate 5").is_ok());
        assert!(parse("--mix demo --for 1 --speed 2").is_err());
        assert!(parse("--mix demo --for 1 --from 2").is_err());
        assert!(parse("--trace x.csv --from 2 --speed 2").is_ok());
    }

    #[test]
    fn what_would_last_for_ever_is_an_error_that_says_what_to_write() {
        let trace = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(trace.path(), "arrival_s,input_tokens,output_tokens\n0,9,9\n1e10,9,9\n")
            .unwrap();
        let trace = format!("--trace {}", trace.path().display());
        for (words, said) in [
            ("--mix demo --for inf".to_owned(), "--for must be a number of seconds"),
            ("--mix demo --for nan".to_owned(), "--for must be a number of seconds"),
            ("--mix demo --for 1e12".to_owned(), "at most 10000000"),
            (format!("{trace} --for inf"), "replayed to its end without it"),
            (format!("{trace} --from inf"), "--from"),
            (
                format!("{trace} --from -1"),
                "--from must be a number of seconds from zero on, not -1",
            ),
            (format!("{trace} --speed -1"), "--speed must be above zero"),
            (format!("{trace} --for -1"), "above zero, not -1"),
            ("--mix demo --for 1 --rate -1".to_owned(), "a rate must be above zero, not -1"),
            ("--mix demo --for 5 --timeout -1".to_owned(), "--timeout"),
            (format!("{trace} --speed 1e-300"), "raise --speed"),
            (trace, "raise --speed"),
        ] {
            let error = parse(&words).unwrap().plan().unwrap_err();
            assert!(format!("{error:#}").contains(said), "{words}: {error:#}");
        }
    }

    #[test]
    fn a_load_of_which_all_fails_has_failed_and_files_are_asked_for_before_it() {
        // A port of which nobody knows: taken and given back.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let words = format!("--target http://{port} --mix demo --for 0.3 --rate 20");
        let code = parse(&words).unwrap().run().unwrap();
        assert_eq!(format!("{code:?}"), format!("{:?}", ExitCode::FAILURE));
        let error = parse(&format!("{words} --records /dev/null/x")).unwrap().run().unwrap_err();
        assert!(error.to_string().contains("cannot write /dev/null/x"), "{error}");
    }
}
