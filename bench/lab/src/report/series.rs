//! What every request of a run got, and how the run went: what curves of latencies, scatter plots and timelines are drawn of.

use anyhow::Result;
use serde::{Deserialize, Serialize};
use weir_core::Time;

use crate::{
    contender::Contender,
    results::{ResultFile, command},
    sim::{Outcome, Run, Served, SimRequest},
    study::{Fingerprints, Setting, in_parallel, once, one_dispatcher},
    workload::Objective,
};

/// Parts that the time of a run is cut into.
const MOMENTS: usize = 240;

/// The seed whose requests are shown.
const SEED: u64 = 1;

type Job<'a> = Box<dyn FnOnce() -> Result<Series> + Send + 'a>;

/// One run: one policy, one load, one seed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Series {
    /// Name of the traffic.
    pub workload: String,
    /// Name of the objectives.
    pub mix: String,
    /// What the pods are called.
    pub gpu: String,
    /// How many pods.
    pub pods: usize,
    /// Tokens of a step.
    pub chunk_tokens: u32,
    /// How many dispatchers stood in front of the pods; one in files that are older than this field.
    #[serde(default = "one_dispatcher")]
    pub dispatchers: usize,
    /// What its dispatcher knew of the engines, as `--prediction` says it; empty in files that are older than this field.
    #[serde(default)]
    pub prediction: String,
    /// What tells traffic, objectives and pods from others that are called the same; empty in files that are older than this field.
    #[serde(default)]
    pub fingerprints: Fingerprints,
    /// Name of the policy.
    pub policy: String,
    /// The load.
    pub load: f64,
    /// The seed.
    pub seed: u64,
    /// The classes of the requests and what they are promised; [`Call::class`] is a place in it.
    pub classes: Vec<Objective>,
    /// Requests that came, without the warm-up (the first 5 %).
    pub requests: usize,
    /// Those of them that were served, in the order in which they came.
    pub calls: Vec<Call>,
    /// The run in parts of equal length.
    pub moments: Vec<Moment>,
}

/// A served request. Times are in milliseconds; those of predictions count from dispatch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// Its class.
    pub class: usize,
    /// Length of the prompt.
    pub input_tokens: u32,
    /// From arrival to dispatch.
    pub wait_ms: f32,
    /// From arrival to the first token.
    pub ttft_ms: f32,
    /// Mean per token after the first; `None` for an answer of one token.
    pub tpot_ms: Option<f32>,
    /// From arrival to the last token.
    pub e2e_ms: f32,
    /// What was predicted from dispatch to the first token.
    pub predicted_ttft_ms: f32,
    /// The bound that was said to hold nine times out of ten.
    pub predicted_ttft_p90_ms: f32,
    /// What was predicted per token.
    pub predicted_tpot_ms: f32,
    /// The bound that was said to hold nine times out of ten.
    pub predicted_tpot_p90_ms: f32,
}

/// A part of the run's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Moment {
    /// Its middle, in seconds from the start.
    pub at_s: f32,
    /// Mean number of requests that waited for a pod and were served later. When a refused one left is not known.
    pub waiting: f32,
    /// Mean number of requests on pods.
    pub running: f32,
    /// Of the TTFT objective, what the prediction left at dispatch: median over the requests that were dispatched then.
    pub ttft_headroom: Option<f32>,
    /// The same of the TPOT objective.
    pub tpot_headroom: Option<f32>,
}

/// A file of runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SeriesFile {
    /// What wrote it.
    pub command: String,
    /// The runs.
    pub series: Vec<Series>,
}

impl Series {
    /// What became of the requests. Of which policy and load it is says [`Series::labelled`].
    pub fn of(requests: &[SimRequest], run: &Run) -> Self {
        let warm_up = requests.len() / 20;
        let both = || requests.iter().zip(&run.outcomes);
        let counted =
            both().skip(warm_up).filter_map(|(asked, outcome)| Some(call(asked, served(outcome)?)));
        Self {
            requests: requests.len() - warm_up,
            calls: counted.collect(),
            moments: moments(
                both().filter_map(|(asked, outcome)| Some((asked, served(outcome)?))),
                run.ended,
            ),
            ..Self::default()
        }
    }

    /// The same with where it comes from.
    pub fn labelled(self, setting: &Setting, policy: &str, load: f64, seed: u64) -> Self {
        Self {
            workload: setting.source.name().to_owned(),
            mix: setting.mix.clone(),
            gpu: setting.gpu.clone(),
            pods: setting.pool.pods.len(),
            chunk_tokens: setting.pool.classes.first().map_or(0, |class| class.chunk_tokens),
            dispatchers: setting.dispatchers,
            prediction: setting.knowledge.name(),
            fingerprints: Fingerprints::of(setting),
            policy: policy.to_owned(),
            load,
            seed,
            classes: setting.objectives.classes.clone(),
            ..self
        }
    }
}

impl SeriesFile {
    /// Runs each of the contenders at each of the loads, with the first seed.
    ///
    /// # Errors
    /// As for [`once`].
    pub fn run(
        setting: &Setting,
        contenders: &[Contender],
        loads: &[f64],
        threads: usize,
    ) -> Result<Self> {
        let asked = loads.iter().flat_map(|load| contenders.iter().map(move |who| (*load, who)));
        let job = |(load, who): (f64, &Contender)| {
            let (requests, run) = once(setting, who, load, SEED)?;
            Ok(Series::of(&requests, &run).labelled(setting, who.name(), load, SEED))
        };
        let job = &job;
        let jobs = asked.map(|asked| Box::new(move || job(asked)) as Job<'_>);
        let series: Result<Vec<Series>> =
            in_parallel(jobs.collect(), threads).into_iter().collect();
        Ok(Self { command: command(), series: series? })
    }

    /// Writes it as JSON, in which a million requests take some 250 MB.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn write(&self, file: ResultFile) -> Result<()> {
        file.write(|to| Ok(serde_json::to_writer(to, self)?))
    }
}

fn served(outcome: &Outcome) -> Option<&Served> {
    match outcome {
        Outcome::Served(served) => Some(served),
        Outcome::Refused(_) | Outcome::Rejected => None,
    }
}

fn call(asked: &SimRequest, served: &Served) -> Call {
    Call {
        class: asked.class,
        input_tokens: asked.input_tokens,
        wait_ms: served.wait_ms as f32,
        ttft_ms: served.ttft_from_arrival_ms() as f32,
        tpot_ms: served.tpot_ms.map(|ms| ms as f32),
        e2e_ms: served.e2e_ms as f32,
        predicted_ttft_ms: served.predicted.ttft_ms.p50,
        predicted_ttft_p90_ms: served.predicted.ttft_ms.p90,
        predicted_tpot_ms: served.predicted.tpot_ms.p50,
        predicted_tpot_p90_ms: served.predicted.tpot_ms.p90,
    }
}

/// A part of the time while it is filled.
#[derive(Clone, Debug, Default)]
struct Part {
    waiting_ms: f64,
    running_ms: f64,
    ttft_headrooms: Vec<f32>,
    tpot_headrooms: Vec<f32>,
}

fn moments<'a>(
    served: impl Iterator<Item = (&'a SimRequest, &'a Served)>,
    ended: Time,
) -> Vec<Moment> {
    let length_ms = ended.ms_since(Time::ZERO) / MOMENTS as f64;
    if length_ms <= 0.0 {
        return Vec::new();
    }
    let mut parts = vec![Part::default(); MOMENTS];
    for (asked, served) in served {
        let arrived = served.arrived.ms_since(Time::ZERO);
        let dispatched = arrived + served.wait_ms;
        let (over, slo) = (arrived + served.e2e_ms, asked.request.slo);
        spread(&mut parts, length_ms, (arrived, dispatched), |part, ms| part.waiting_ms += ms);
        spread(&mut parts, length_ms, (dispatched, over), |part, ms| part.running_ms += ms);
        let Some(part) = parts.get_mut((dispatched / length_ms) as usize) else { continue };
        let left = |slo_ms: f64, used_ms: f64| ((slo_ms - used_ms) / slo_ms) as f32;
        let (ttft, tpot) = (served.predicted.ttft_ms.p50, served.predicted.tpot_ms.p50);
        let of_ttft =
            slo.ttft.map(|slo| left(slo.as_secs_f64() * 1e3, served.wait_ms + f64::from(ttft)));
        part.ttft_headrooms.extend(of_ttft);
        part.tpot_headrooms
            .extend(slo.tpot.map(|slo| left(slo.as_secs_f64() * 1e3, f64::from(tpot))));
    }
    let moment = |(place, part): (usize, Part)| Moment {
        at_s: ((place as f64 + 0.5) * length_ms / 1e3) as f32,
        waiting: (part.waiting_ms / length_ms) as f32,
        running: (part.running_ms / length_ms) as f32,
        ttft_headroom: median(part.ttft_headrooms),
        tpot_headroom: median(part.tpot_headrooms),
    };
    parts.into_iter().enumerate().map(moment).collect()
}

/// Gives every part the time that it shares with `from` to `to`.
fn spread(
    parts: &mut [Part],
    length_ms: f64,
    (from, to): (f64, f64),
    mut add: impl FnMut(&mut Part, f64),
) {
    let first = (from / length_ms) as usize;
    for (place, part) in parts.iter_mut().enumerate().skip(first) {
        let start = place as f64 * length_ms;
        if start >= to {
            return;
        }
        add(part, to.min(start + length_ms) - from.max(start));
    }
}

fn median(mut values: Vec<f32>) -> Option<f32> {
    values.sort_by(f32::total_cmp);
    values.get(values.len() / 2).copied()
}
