//! The settings of the lab: which traffic under which objectives in front of which pods.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, Result, ensure};

use super::{contest::WEIR, wanted::OVERLOAD};

use crate::{
    contender::Contender,
    sim::Pool,
    study::{Knowledge, Setting, least_requests},
    workload::{Objectives, Replay, Source, scenario, staged_requests},
};

/// What every pod of the lab is.
pub(super) const GPU: &str = "h100-qwen3-32b-tp2";

/// Seed of a scenario's own sample.
const SAMPLE: u64 = 1;

/// A setting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Case {
    /// A name that stays.
    pub(super) id: &'static str,
    /// What people call it.
    pub(super) title: &'static str,
    /// Where its requests come from.
    pub(super) traffic: Traffic,
    /// Name of the objectives.
    pub(super) mix: &'static str,
    /// How many pods.
    pub(super) pods: usize,
    /// Tokens of a step, where it is not vLLM's default.
    pub(super) chunk_tokens: Option<u32>,
    /// Seconds that a run takes at load 1 at least, so that queues can grow, and conversations.
    pub(super) seconds: f64,
    /// Whether predictions come from the trainer in the loop too, and not from fitted step times alone.
    pub(super) trained: bool,
}

/// Where requests come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Traffic {
    /// The trace whose file has this name up to its first dot.
    Trace(&'static str),
    /// A scenario by name.
    Scenario(&'static str),
}

/// The production ladder at rates for pods that are smaller than the published ones.
const LADDER: Traffic = Traffic::Scenario("ladder:0.4");

const CONV: Traffic = Traffic::Trace("azure2023_conv");
const CODE: Traffic = Traffic::Trace("azure2023_code");
const SERVEGEN: Traffic = Traffic::Trace("servegen_m-large");
const MOONCAKE: Traffic = Traffic::Trace("mooncake_conversation");
const SCENARIO_A: Traffic = Traffic::Scenario("A:open");
const SCENARIO_C: Traffic = Traffic::Scenario("C:open");

const fn case(
    id: &'static str,
    title: &'static str,
    traffic: Traffic,
    mix: &'static str,
    pods: usize,
) -> Case {
    Case { id, title, traffic, mix, pods, chunk_tokens: None, seconds: 90.0, trained: false }
}

const fn chunk_512(
    id: &'static str,
    title: &'static str,
    traffic: Traffic,
    mix: &'static str,
) -> Case {
    Case { chunk_tokens: Some(512), ..case(id, title, traffic, mix, 4) }
}

/// All of them.
pub(super) static CASES: [Case; 19] = [
    case("conv-one", "Azure conv, one class", CONV, "one", 4),
    case("conv-two", "Azure conv, two classes", CONV, "two", 4),
    case("servegen-one", "ServeGen m-large, one class", SERVEGEN, "one", 4),
    case("code-one", "Azure code, one class", CODE, "one", 4),
    // The largest twentieth of the prompts is asked for by itself.
    Case {
        seconds: 135.0,
        ..case("mooncake-8", "Mooncake conversation, 8 pods", MOONCAKE, "one-long", 8)
    },
    chunk_512("conv-one-512", "Azure conv, one class, chunk 512", CONV, "one"),
    // Load 1.4 and more is held, and batch may wait for half a minute.
    Case {
        seconds: 240.0,
        ..chunk_512("conv-two-512", "Azure conv, two classes, chunk 512", CONV, "two")
    },
    chunk_512("servegen-one-512", "ServeGen m-large, one class, chunk 512", SERVEGEN, "one"),
    // Users come back: the 6,000 of A once each, the 750 of C for two conversations.
    Case { seconds: 240.0, ..case("a-one", "scenario A, one class", SCENARIO_A, "one", 4) },
    Case { seconds: 240.0, ..case("a-two", "scenario A, two classes", SCENARIO_A, "two", 4) },
    Case { seconds: 900.0, ..case("c-one", "scenario C, one class", SCENARIO_C, "one", 4) },
    Case { seconds: 900.0, ..case("c-two", "scenario C, two classes", SCENARIO_C, "two", 4) },
    case("conv-none", "Azure conv, no objectives", CONV, "none", 4),
    case("servegen-none", "ServeGen m-large, no objectives", SERVEGEN, "none", 4),
    case("code-none", "Azure code, no objectives", CODE, "none", 4),
    case("mooncake-none", "Mooncake conversation, no objectives, 8 pods", MOONCAKE, "none", 8),
    case("ladder", "production ladder, no objectives, 10 pods", LADDER, "none", 10),
    Case {
        trained: true,
        ..case("trained", "Azure conv, one class, the trained model in the loop", CONV, "one", 4)
    },
    // Until models have come and are trusted.
    Case {
        trained: true,
        seconds: 300.0,
        ..case("live", "Azure conv, one class, the trained model in the loop", CONV, "one", 4)
    },
];

impl Case {
    /// The case of a name.
    pub(super) fn named(id: &str) -> Option<&'static Self> {
        CASES.iter().find(|case| case.id == id)
    }

    /// Everything that the contenders share, with so many requests per seed; `None` where the trace is not in
    /// the folder of traces, or there is no such folder.
    ///
    /// # Errors
    /// When the trace is there and cannot be read.
    pub(super) fn setting(
        &self,
        traces: Option<&Path>,
        requests: usize,
    ) -> Result<Option<Setting>> {
        let pool = Pool::of(GPU, self.pods, self.chunk_tokens)?;
        let source: Arc<dyn Source> = match self.traffic {
            Traffic::Scenario(name) => scenario(name, SAMPLE)?,
            Traffic::Trace(_) => {
                let Some(path) = self.trace(traces) else { return Ok(None) };
                let replay = Replay::read(&path).and_then(|all| all.held_by(pool.most_tokens()));
                Arc::new(replay.with_context(|| path.display().to_string())?)
            }
        };
        let (mix, objectives) = Objectives::named_or_read(self.mix)?;
        // With rates of its own all there are, unless it is to be a very short run.
        let own = source.stages().map(staged_requests);
        let requests = own.map_or(requests, |own| own.min(requests.saturating_mul(4)));
        Ok(Some(Setting {
            pool,
            gpu: GPU.to_owned(),
            source,
            objectives,
            mix,
            requests,
            knowledge: if self.trained {
                Knowledge::Trained(Box::default())
            } else {
                Knowledge::default()
            },
            dispatchers: 1,
        }))
    }

    /// The file of its trace, where it has one and the folder has it.
    pub(super) fn trace(&self, traces: Option<&Path>) -> Option<PathBuf> {
        let Traffic::Trace(stem) = self.traffic else { return None };
        let folder = traces?;
        Some(folder.join(find(folder, stem)?))
    }

    /// Requests per seed that a run needs at least: for its seconds at load 1, and for what is asked of any class to show at
    /// every load that is given; where more is held, its seconds say so.
    pub(super) fn least(&self, setting: &Setting) -> usize {
        let for_its_seconds = (setting.capacity_rps() * self.seconds).ceil() as usize;
        for_its_seconds.max(least_requests(setting, OVERLOAD))
    }

    /// Why it cannot be run here though its requests are there, if so.
    pub(super) fn obstacle(&self, setting: &Setting) -> Option<String> {
        let weir = Contender::named(WEIR).ok()?;
        let error = setting.dispatcher(&weir, SAMPLE).err()?;
        Some(format!("not run: {error:#}"))
    }

    /// Why it cannot be run.
    pub(super) fn missing(&self, traces: Option<&Path>) -> String {
        match (self.traffic, traces) {
            (Traffic::Trace(stem), Some(_)) => format!("not run: no file {stem}.* in WEIR_TRACES"),
            _ => "not run: set WEIR_TRACES to a folder of traces".to_owned(),
        }
    }

    /// The arguments of `weir-bench sim` for it.
    pub(super) fn arguments(&self, traces: Option<&Path>) -> String {
        let traffic = match self.traffic {
            Traffic::Scenario(name) => format!("--scenario {name}"),
            Traffic::Trace(stem) => {
                let file = traces.and_then(|folder| find(folder, stem));
                format!("--trace $WEIR_TRACES/{}", file.unwrap_or_else(|| format!("{stem}.csv")))
            }
        };
        let chunk =
            self.chunk_tokens.map(|tokens| format!(" --chunk {tokens}")).unwrap_or_default();
        let trained = if self.trained { " --prediction trained" } else { "" };
        format!("{traffic} --pods {} --gpu {GPU}{chunk} --slo {}{trained}", self.pods, self.mix)
    }
}

/// The folder of traces that is named; a variable that is set to nothing names none.
pub(super) fn folder(named: Option<&Path>) -> Option<&Path> {
    named.filter(|path| !path.as_os_str().is_empty())
}

/// Refuses a folder that is not there: who named one wants its traces run.
///
/// # Errors
/// When it is no folder.
pub(super) fn check_folder(named: Option<&Path>) -> Result<()> {
    let Some(traces) = folder(named) else { return Ok(()) };
    ensure!(traces.is_dir(), "--traces or WEIR_TRACES: {} is no folder", traces.display());
    Ok(())
}

/// Whether a name is one of those that were asked for by how they begin, or all are.
pub(super) fn is_asked(name: &str, only: &[String]) -> bool {
    only.is_empty() || only.iter().any(|begin| name.starts_with(begin.as_str()))
}

/// Refuses a beginning that is no known name's.
///
/// # Errors
/// When there is one.
pub(super) fn check_only(only: &[String], known: &[&str], what: &str) -> Result<()> {
    for name in only {
        let begins = known.iter().any(|known| known.starts_with(name.as_str()));
        ensure!(begins, "--only {name:?}: {what} are {}", known.join(", "));
    }
    Ok(())
}

/// The first file, by name, that is called like this up to its first dot.
fn find(folder: &Path, stem: &str) -> Option<String> {
    let names =
        fs::read_dir(folder).ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> =
        names.filter(|name| name.split('.').next() == Some(stem)).collect();
    names.sort();
    names.into_iter().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_found_by_its_name_whatever_slice_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let rows = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n";
        fs::write(folder.path().join("azure2023_conv.other.csv"), rows).unwrap();
        let case = Case::named("conv-two").unwrap();
        let setting = case.setting(Some(folder.path()), 100).unwrap().unwrap();
        assert_eq!((setting.requests, setting.objectives.classes.len()), (100, 2));
        assert!(
            case.arguments(Some(folder.path()))
                .starts_with("--trace $WEIR_TRACES/azure2023_conv.other.csv --pods 4")
        );
        assert!(case.setting(None, 100).unwrap().is_none());
        assert!(case.missing(None).contains("set WEIR_TRACES"));
    }

    #[test]
    fn runs_of_two_classes_are_long_enough_for_the_one_that_may_wait() {
        let least_s = |mix| {
            let case = Case { mix, ..*Case::named("a-two").unwrap() };
            let setting = case.setting(None, 1).unwrap().unwrap();
            let case = Case { seconds: 0.0, ..case };
            (case.least(&setting) as f64 / setting.capacity_rps(), setting.source.means())
        };
        let (two_s, means) = least_s("two");
        // Three times half a minute and an answer at 100 ms per token.
        let wanted_s = OVERLOAD * 3.0 * (30.0 + 0.1 * means.output_tokens);
        assert!((two_s - wanted_s).abs() < 1.0, "{two_s} for {wanted_s}");
        assert!(least_s("one").0 < Case::named("a-one").unwrap().seconds);
    }

    #[test]
    fn what_is_generated_needs_no_folder_and_names_are_unique() {
        let generated = CASES.iter().filter(|case| matches!(case.traffic, Traffic::Scenario(_)));
        for case in generated {
            assert!(case.setting(None, 10).unwrap().is_some(), "{}", case.id);
        }
        for case in &CASES {
            assert_eq!(CASES.iter().filter(|other| other.id == case.id).count(), 1);
        }
    }
}
