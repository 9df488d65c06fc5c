//! What is guarded, and how it is measured.

use std::{fs, path::Path, sync::Arc};

use anyhow::{Context, Result, ensure};
use xxhash_rust::xxh3::xxh3_64;

use super::{
    super::{
        case::{Case, Traffic},
        reading::Reading,
    },
    stored::Measured,
};
use crate::{
    contender::Contender,
    study::{Row, Setting, at_load, in_parallel},
    workload::Adapted,
};

/// A setting at a load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Slice {
    pub(super) case: Case,
    pub(super) pods: Pods,
    pub(super) load: f64,
    pub(super) requests: usize,
    pub(super) seeds: u64,
    /// Those that did best on it in a run of all rivals.
    pub(super) rivals: &'static [&'static str],
}

/// What the pods of a slice are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Pods {
    /// Each for itself.
    Alike,
    /// So many of them prefill for the others.
    Split(usize),
    /// Engines of one server that step together.
    Together,
    /// Each runs at most so many LoRA adapters at once, of so many that requests ask for.
    Slotted { max_loras: u32, adapters: u32 },
}

/// A case in front of four pods of the lab's kind.
const fn case(id: &'static str, title: &'static str, traffic: Traffic, mix: &'static str) -> Case {
    Case { id, title, traffic, mix, pods: 4, chunk_tokens: None, seconds: 0.0, trained: false }
}

/// All of them, the quick ones first.
pub(super) const SLICES: [Slice; 9] = [
    Slice {
        case: case(
            "patterns",
            "four patterns",
            Traffic::Scenario("multi-pattern"),
            "multi-pattern",
        ),
        pods: Pods::Alike,
        load: 1.5,
        requests: 3000,
        seeds: 10,
        rivals: &["pattern-pull", "aibrix-pull", "cap-64-bands", "llumnix-slo"],
    },
    Slice {
        case: case("demo", "the demo's mix", Traffic::Scenario("demo"), "three"),
        pods: Pods::Alike,
        load: 1.0,
        requests: 5000,
        seeds: 10,
        rivals: &["aibrix-pull", "pattern-pull", "cap-64-bands", "cap-128-bands"],
    },
    Slice {
        case: case("apps", "two applications", Traffic::Scenario("apps"), "two"),
        pods: Pods::Alike,
        load: 0.9,
        requests: 4000,
        seeds: 10,
        rivals: &["least-request", "llumnix-slo", "jspt"],
    },
    Slice {
        case: case(
            "split",
            "the demo's mix, two pods that prefill",
            Traffic::Scenario("demo"),
            "two",
        ),
        pods: Pods::Split(2),
        load: 1.2,
        requests: 4000,
        seeds: 10,
        rivals: &["aibrix-pull", "llumnix-slo", "flow-control"],
    },
    Slice {
        case: case(
            "experts",
            "the demo's mix, engines that step together",
            Traffic::Scenario("demo"),
            "two",
        ),
        pods: Pods::Together,
        load: 0.8,
        requests: 4000,
        seeds: 10,
        rivals: &["round-robin", "least-request", "llumnix-slo"],
    },
    Slice {
        case: case(
            "adapters",
            "short chats, sixteen adapters on pods that run four",
            Traffic::Scenario("sharegpt"),
            "one",
        ),
        pods: Pods::Slotted { max_loras: 4, adapters: 16 },
        load: 0.6,
        requests: 4000,
        seeds: 10,
        rivals: &["llmd-lora", "llmd-fc-lora", "least-request"],
    },
    Slice {
        case: case("c-two", "scenario C", Traffic::Scenario("C:open"), "two"),
        pods: Pods::Alike,
        load: 1.2,
        requests: 1500,
        seeds: 10,
        rivals: &["llumnix-slo", "pattern-pull", "sglang-cache-aware"],
    },
    Slice {
        case: case("conv-two", "Azure conv", Traffic::Trace("azure2023_conv"), "two"),
        pods: Pods::Alike,
        load: 1.2,
        requests: 5000,
        seeds: 10,
        rivals: &["llumnix-slo", "cap-64-bands", "pl-most"],
    },
    Slice {
        case: case("servegen-one", "ServeGen m-large", Traffic::Trace("servegen_m-large"), "one"),
        pods: Pods::Alike,
        load: 1.2,
        requests: 6000,
        seeds: 10,
        rivals: &["llumnix-slo", "pattern-pull", "aibrix-pull"],
    },
];

impl Slice {
    pub(super) fn name(&self) -> &'static str {
        self.case.id
    }

    /// The subject's goodput over its best rival's; `None` where the slice is of a trace that is not there.
    ///
    /// # Errors
    /// When the trace cannot be read, or nobody serves anything in time.
    pub(super) fn measure(
        &self,
        subject: &Contender,
        traces: Option<&Path>,
        threads: usize,
    ) -> Result<Option<Measured>> {
        let Some(mut setting) = self.case.setting(traces, self.requests)? else { return Ok(None) };
        match self.pods {
            Pods::Alike => {}
            Pods::Split(prefill) => setting.pool.divide(prefill),
            Pods::Together => setting.pool.unite(),
            Pods::Slotted { max_loras, adapters } => {
                setting.pool.limit_loras(max_loras, None);
                let source = Adapted::new(setting.source, adapters, Adapted::SKEW)?;
                setting.source = Arc::new(source);
            }
        }
        let rivals = self.rivals.iter().map(|name| Contender::named(name));
        let rivals = rivals.collect::<Result<Vec<_>>>()?;
        let all: Vec<&Contender> = std::iter::once(subject).chain(&rivals).collect();
        let mut goodputs = self.goodputs(&setting, &all, threads)?.into_iter().zip(&all);
        let (ours, _) = goodputs.next().context("nobody was run")?;
        let best = goodputs.max_by(|(one, _), (other, _)| one.value.total_cmp(&other.value));
        let (theirs, rival) = best.context("it has no rival")?;
        ensure!(theirs.value > 0.0, "no rival served a request in time");
        Ok(Some(Measured {
            slice: self.name().to_owned(),
            traffic: self.digest(traces)?,
            load: self.load,
            requests: self.requests,
            seeds: self.seeds,
            weir_rps: ours.value,
            rival: rival.name().to_owned(),
            rival_rps: theirs.value,
            ratio: ours.value / theirs.value,
            interval: ours.over(&theirs).context("an interval needs three seeds")?,
        }))
    }

    /// Requests per second in time, of each contender.
    fn goodputs(
        &self,
        setting: &Setting,
        contenders: &[&Contender],
        threads: usize,
    ) -> Result<Vec<Reading>> {
        let asked =
            contenders.iter().flat_map(|who| (1..=self.seeds).map(move |seed| (*who, seed)));
        let job = |(who, seed)| {
            let job = move || at_load(setting, who, self.load, &[seed]);
            Box::new(job) as Box<dyn FnOnce() -> Result<Vec<Row>> + Send>
        };
        let rows = in_parallel(asked.map(job).collect(), threads);
        let of_all =
            |rows: Result<Vec<Row>>| Ok(rows?.first().context("no request came")?.goodput_rps);
        let each = rows.into_iter().map(of_all).collect::<Result<Vec<f64>>>()?;
        Ok(each.chunks(usize::try_from(self.seeds)?).map(Reading::mean).collect())
    }

    /// A number for the trace's file; `None` where requests are generated.
    fn digest(&self, traces: Option<&Path>) -> Result<Option<String>> {
        let Some(path) = self.case.trace(traces) else { return Ok(None) };
        let bytes = fs::read(&path).with_context(|| path.display().to_string())?;
        Ok(Some(format!("{:016x}", xxh3_64(&bytes))))
    }

    /// Whether it needs no trace.
    #[cfg(test)]
    pub(super) fn is_generated(&self) -> bool {
        matches!(self.case.traffic, Traffic::Scenario(_))
    }
}
