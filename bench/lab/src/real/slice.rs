//! The requests: one list, for the wire and for the simulation.

use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use weir_core::{Band, PromptSize, Request, RequestId, Slo, Time, prefix};

use super::Got;
use crate::{
    load::{self, Class, DemoMix, LoadPlan, MaxTokens, MixMeans, Planned, body},
    prompt,
    results::name_of_file,
    sim::{Pool, SimRequest},
    trace::{self, Arrival},
    workload::{Means, Replay, Source as _},
};

/// Lone requests that go first.
pub(crate) const PROBES: usize = 10;
/// From one of them to the next, and from the last one to the load.
const PROBE_EVERY: Duration = Duration::from_millis(800);
/// Share of the load that is left out of the figures: both sides start knowing nothing.
const WARM_UP: f64 = 0.1;
/// Tokens of a KV block, in the pods' engines.
const BLOCK_TOKENS: u32 = 16;
/// Seconds over which the mix's means are counted, and at which rate.
const MEASURED: (f64, f64) = (100.0, 300.0);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(300);

/// Which rows of a trace: those of the seconds from `from_s` on that come in `for_s` at the load, or as many after those and their
/// like, `number` times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Stretch {
    pub(crate) from_s: f64,
    pub(crate) for_s: f64,
    pub(crate) number: usize,
}

/// How much comes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rate {
    /// A share of what the pods hold by formula.
    Load(f64),
    /// So many requests per second.
    PerSecond(f64),
}

/// The requests of a run.
#[derive(Clone, Debug)]
pub(crate) struct Slice {
    /// Where they are from.
    pub(crate) name: String,
    /// Requests per second, the first ones not counted.
    pub(crate) rps: f64,
    /// Their classes.
    pub(crate) classes: Vec<Class>,
    /// The probes and the load.
    pub(crate) requests: Vec<Planned>,
    /// What they say of their answers' length.
    max_tokens: MaxTokens,
    /// Sets their texts apart.
    run: u64,
}

impl Slice {
    /// The demo's mix for some seconds.
    pub(crate) fn of_mix(
        pool: &Pool,
        for_s: f64,
        rate: Rate,
        classes: &[Class],
        seed: u64,
    ) -> Result<Self> {
        let mix = |stretch, seed| {
            DemoMix { stretches: vec![stretch], classes: classes.to_vec(), seed }.requests()
        };
        let MixMeans { input_tokens, output_tokens, shared } = MixMeans::of(&mix(MEASURED, seed)?);
        let means = Means { input_tokens, output_tokens, hit: shared };
        let rps = rate.rps(pool, &means, classes)?;
        Self::new("demo".to_owned(), rps, mix((rps, for_s), seed)?, classes, seed)
    }

    /// A stretch of the rows of a trace, compressed or stretched to the load.
    pub(crate) fn of_trace(
        path: &Path,
        pool: &Pool,
        stretch: Stretch,
        rate: Rate,
        classes: &[Class],
        run: u64,
    ) -> Result<Self> {
        let Stretch { from_s, for_s, number } = stretch;
        let rows = trace::read(path, 1)?;
        let name = name_of_file(path);
        let held = Replay::new(name.clone(), rows.clone())?.held_by(pool.most_tokens())?;
        let means = held.means();
        let rps = rate.rps(pool, &means, classes)?;
        let count = (rps * for_s).round() as usize;
        let later = rows.into_iter().skip_while(|row| row.at_s < from_s);
        let mut cut: Vec<Arrival> = later.skip(number * count).take(count).collect();
        ensure!(
            cut.len() == count,
            "{name}: only {} rows from second {from_s} on",
            number * count + cut.len()
        );
        let first_s = cut.first().map_or(0.0, |row| row.at_s);
        let span_s = cut.last().map_or(0.0, |row| row.at_s) - first_s;
        ensure!(span_s > 0.0, "{name}: the rows are all at one moment");
        for row in &mut cut {
            row.at_s = (row.at_s - first_s) * for_s / span_s;
            // Where one class is asked for all are of it, whatever a row says.
            row.class.take_if(|_| classes.len() == 1);
        }
        Self::new(name, rps, load::planned(cut, classes, run)?, classes, run)
    }

    fn new(
        name: String,
        rps: f64,
        load: Vec<Planned>,
        classes: &[Class],
        run: u64,
    ) -> Result<Self> {
        ensure!(load.len() >= 20, "{name}: {} requests are too few to compare", load.len());
        let probe = |number: u32| Planned {
            at: PROBE_EVERY * number,
            class: 0,
            input_tokens: 64,
            output_tokens: 2,
            prefix: Vec::new(),
        };
        let after = PROBE_EVERY * PROBES as u32;
        let later = load.into_iter().map(|one| Planned { at: one.at + after, ..one });
        let requests = (0..PROBES as u32).map(probe).chain(later).collect();
        Ok(Self {
            name,
            rps,
            classes: classes.to_vec(),
            requests,
            max_tokens: MaxTokens::Unsaid,
            run,
        })
    }

    /// The same in other words: what one run left in the caches is not found by the next.
    pub(crate) fn apart(&self, run: u64) -> Self {
        Self { run, ..self.clone() }
    }

    /// The same for engines that compute their answers: the requests say how long these are.
    pub(crate) fn exact(self) -> Self {
        Self { max_tokens: MaxTokens::Exactly, ..self }
    }

    /// What goes over the wire to `target`.
    pub(crate) fn plan(&self, target: SocketAddr, model: &str) -> LoadPlan {
        LoadPlan {
            target: target.into(),
            model: model.to_owned(),
            classes: self.classes.clone(),
            requests: self.requests.clone(),
            timeout: REQUEST_TIMEOUT,
            max_tokens: self.max_tokens,
            run: self.run,
        }
    }

    /// What the simulation gets: of each body what Weir reads in it, and what the pod's engine does.
    pub(crate) fn sim_requests(&self, model: &str) -> Result<Vec<SimRequest>> {
        let plan = self.plan(SocketAddr::from(([127, 0, 0, 1], 0)), model);
        let requests = self.requests.iter().enumerate();
        requests.map(|(place, planned)| sim_request(&plan, planned, place)).collect()
    }

    /// Places of the requests that are compared.
    pub(crate) fn compared(&self) -> std::ops::Range<usize> {
        let load = self.requests.len() - PROBES;
        PROBES + (load as f64 * WARM_UP).floor() as usize..self.requests.len()
    }

    /// What a lone request takes longer in reality than in the simulation, in milliseconds: the median of the probes.
    pub(crate) fn network_ms(&self, real: &[Got], simulated: &[Vec<Got>]) -> f64 {
        let probes = |run: &[Got]| {
            run.iter().take(PROBES).filter_map(|got| got.ttft_ms).collect::<Vec<f64>>()
        };
        let of_all = simulated.iter().flat_map(|run| probes(run)).collect();
        let (real, simulated) = (median(probes(real)), median(of_all));
        real.zip(simulated).map_or(0.0, |(real, simulated)| (real - simulated).max(0.0))
    }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

impl Rate {
    /// Requests per second.
    fn rps(self, pool: &Pool, means: &Means, classes: &[Class]) -> Result<f64> {
        match self {
            Self::Load(load) => Ok(load * capacity_rps(pool, means, classes)?),
            Self::PerSecond(rps) => Ok(rps),
        }
    }
}

fn capacity_rps(pool: &Pool, means: &Means, classes: &[Class]) -> Result<f64> {
    let tightest = classes.iter().map(|class| class.tpot_ms).fold(f64::INFINITY, f64::min);
    let rps = pool.capacity_rps(means, tightest);
    ensure!(rps > 0.0, "the pods cannot hold {tightest} ms per token at any load");
    Ok(rps)
}

fn sim_request(plan: &LoadPlan, planned: &Planned, place: usize) -> Result<SimRequest> {
    let body = body(plan, planned, place);
    let messages = messages(&body).context("a body without messages")?;
    let text = text(messages).context("messages without text")?;
    let class = plan.classes.get(planned.class);
    let ms = |ms: f64| Duration::try_from_secs_f64(ms / 1000.0).ok();
    Ok(SimRequest {
        request: Request {
            max_output_tokens: plan.max_tokens.of(planned),
            slo: Slo {
                ttft: class.and_then(|class| ms(class.ttft_ms)),
                tpot: class.and_then(|class| ms(class.tpot_ms)),
            },
            band: class.map_or(Band(0), |class| band(&class.name)),
            body_bytes: body.len() as u32,
            blocks: prefix::block_hashes(messages, 0).collect(),
            ..Request::new(
                RequestId(place as u64),
                Time::ZERO.plus(planned.at),
                PromptSize::Bytes(messages.len() as u32),
            )
        },
        class: planned.class,
        input_tokens: prompt::count_tokens(text.len()) + prompt::TEMPLATE_TOKENS,
        output_tokens: planned.output_tokens,
        blocks_with_answer: Some(Arc::from(prompt::block_hashes(text, BLOCK_TOKENS))),
        after: None,
    })
}

/// The band of a class: as Weir's default configuration has it, 0 of one that it does not know.
pub(super) fn band(class: &str) -> Band {
    match class {
        "interactive" => Band(1),
        "batch" => Band(-1),
        _ => Band(0),
    }
}

/// The value of `messages`, as it stands in the body.
fn messages(body: &[u8]) -> Option<&[u8]> {
    between(body, b"\"messages\":", b",\"stream\"")
}

/// The text in the messages, which has nothing that JSON escapes.
fn text(messages: &[u8]) -> Option<&[u8]> {
    between(messages, b"\"content\":\"", b"\"}]")
}

fn between<'a>(bytes: &'a [u8], before: &[u8], after: &[u8]) -> Option<&'a [u8]> {
    let from = memchr::memmem::find(bytes, before)? + before.len();
    let rest = bytes.get(from..)?;
    rest.get(..memchr::memmem::find(rest, after)?)
}
