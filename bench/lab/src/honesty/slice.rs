//! The requests: one list, for the wire and for the simulation.

use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use weir_core::{Band, PromptSize, Request, RequestId, Slo, Time, prefix};

use super::Got;
use crate::{
    load::{Class, DemoMix, LoadPlan, MaxTokens, MixMeans, Planned, body, parse_classes},
    prompt,
    results::name_of_file,
    sim::{Pool, SimRequest},
    trace::{self, Arrival},
    workload::{Means, Replay, Source as _},
};

/// Lone requests that go first.
pub(super) const PROBES: usize = 10;
/// From one of them to the next, and from the last one to the load.
const PROBE_EVERY: Duration = Duration::from_millis(800);
/// Share of the load that is left out of the figures: both sides start knowing nothing.
const WARM_UP: f64 = 0.1;
/// Tokens of a KV block, in the pods' engines.
const BLOCK_TOKENS: u32 = 16;
/// Seconds over which the mix's means are counted, and at which rate.
const MEASURED: (f64, f64) = (100.0, 300.0);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(300);

/// The requests of both runs.
#[derive(Clone, Debug)]
pub(super) struct Slice {
    /// Where they are from.
    pub name: String,
    /// Requests per second, the first ones not counted.
    pub rps: f64,
    /// Their classes.
    pub classes: Vec<Class>,
    /// The probes and the load.
    pub requests: Vec<Planned>,
    /// What they say of their answers' length.
    max_tokens: MaxTokens,
    /// Sets their texts apart.
    run: u64,
}

impl Slice {
    /// The demo's mix for some seconds.
    pub(super) fn of_mix(pool: &Pool, for_s: f64, load: f64, seed: u64) -> Result<Self> {
        let shares = ["interactive:0.5", "standard:0.2", "batch:0.3"].map(str::to_owned);
        let classes = parse_classes(&shares, &[])?;
        let mix = |stretch, seed| {
            DemoMix { stretches: vec![stretch], classes: classes.clone(), seed }.requests()
        };
        let MixMeans { input_tokens, output_tokens, shared } = MixMeans::of(&mix(MEASURED, seed)?);
        let means = Means { input_tokens, output_tokens, hit: shared };
        let rps = load * capacity_rps(pool, &means, &classes)?;
        Self::new("demo".to_owned(), rps, mix((rps, for_s), seed)?, classes, seed)
    }

    /// The rows of a trace from a second on, compressed or stretched to the load.
    pub(super) fn of_trace(
        path: &Path,
        pool: &Pool,
        (from_s, for_s): (f64, f64),
        load: f64,
        run: u64,
    ) -> Result<Self> {
        let rows = trace::read(path, 1)?;
        let name = name_of_file(path);
        let classes = parse_classes(&["interactive".to_owned()], &[])?;
        let held = Replay::new(name.clone(), rows.clone())?.held_by(pool.most_tokens())?;
        let means = held.means();
        let rps = load * capacity_rps(pool, &means, &classes)?;
        let count = (rps * for_s).round() as usize;
        let cut: Vec<Arrival> =
            rows.into_iter().skip_while(|row| row.at_s < from_s).take(count).collect();
        ensure!(cut.len() == count, "{name}: only {} rows from second {from_s} on", cut.len());
        let first_s = cut.first().map_or(0.0, |row| row.at_s);
        let span_s = cut.last().map_or(0.0, |row| row.at_s) - first_s;
        ensure!(span_s > 0.0, "{name}: the rows are all at one moment");
        let planned = |row: Arrival| Planned {
            at: Duration::from_secs_f64((row.at_s - first_s) * for_s / span_s),
            class: 0,
            input_tokens: row.input_tokens,
            output_tokens: row.output_tokens,
            prefix: row.prefix,
        };
        Self::new(name, rps, cut.into_iter().map(planned).collect(), classes, run)
    }

    fn new(
        name: String,
        rps: f64,
        load: Vec<Planned>,
        classes: Vec<Class>,
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
        Ok(Self { name, rps, classes, requests, max_tokens: MaxTokens::Unsaid, run })
    }

    /// The same for engines that compute their answers: the requests say how long these are.
    pub(super) fn exact(self) -> Self {
        Self { max_tokens: MaxTokens::Exactly, ..self }
    }

    /// What goes over the wire to `target`.
    pub(super) fn plan(&self, target: SocketAddr, model: &str) -> LoadPlan {
        LoadPlan {
            target,
            model: model.to_owned(),
            classes: self.classes.clone(),
            requests: self.requests.clone(),
            timeout: REQUEST_TIMEOUT,
            max_tokens: self.max_tokens,
            run: self.run,
        }
    }

    /// What the simulation gets: of each body what Weir reads in it, and what the pod's engine does.
    pub(super) fn sim_requests(&self, model: &str) -> Result<Vec<SimRequest>> {
        let plan = self.plan(SocketAddr::from(([127, 0, 0, 1], 0)), model);
        let requests = self.requests.iter().enumerate();
        requests.map(|(place, planned)| sim_request(&plan, planned, place)).collect()
    }

    /// Places of the requests that are compared.
    pub(super) fn compared(&self) -> std::ops::Range<usize> {
        let load = self.requests.len() - PROBES;
        PROBES + (load as f64 * WARM_UP).floor() as usize..self.requests.len()
    }

    /// What a lone request takes longer in reality than in the simulation, in milliseconds: the median of the probes.
    pub(super) fn network_ms(&self, real: &[Got], simulated: &[Vec<Got>]) -> f64 {
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

/// As Weir's default configuration has them.
fn band(class: &str) -> Band {
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
