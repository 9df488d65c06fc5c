//! `/metrics` as vLLM writes it: names, labels and buckets of vLLM V1, and those alone that a query names, so that a scraper
//! cannot tell the difference. What vLLM has per engine has a line for each rank.
//!
//! Gauges and counters come from the engine when they are read; the histograms are fed as tokens are delivered. Times are
//! in wall-clock seconds. Two series of the simulation's own are beside them: `sim:starts_total` and
//! `sim:duplicate_starts_total`.

mod loras;
mod rank;

use std::{
    collections::HashMap,
    ops::Range,
    time::{SystemTime, UNIX_EPOCH},
};

use percent_encoding::percent_decode_str;
use prometheus::{
    Gauge, Histogram, HistogramOpts, IntCounter, IntGauge, Opts, Registry, TextEncoder,
    core::Collector,
    proto::{Metric, MetricFamily},
};
use weir_engine::{Engine, EngineConfig};

pub(super) use self::rank::Times;
use self::{loras::Loras, rank::RankMeters};
use super::models::Models;

/// The label that tells a line's rank.
const ENGINE: &str = "engine";

/// One pod's metrics.
pub(super) struct Meters {
    registry: Registry,
    starts: IntCounter,
    duplicate_starts: IntCounter,
    loras: Loras,
    /// By number.
    ranks: Vec<RankMeters>,
}

impl Meters {
    pub(super) fn new(
        models: &Models,
        engine: &EngineConfig,
        ranks_per_port: usize,
    ) -> Result<Self, prometheus::Error> {
        let (registry, model) = (Registry::new(), models.model());
        let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let began_s = ("process_start_time_seconds", "When the pod began, in Unix time");
        keep(&registry, Gauge::new(began_s.0, began_s.1)?)?.set(began.as_secs_f64());
        let of = |rank| {
            RankMeters::new(&Maker { registry: &registry, model, rank }, engine, ranks_per_port)
        };
        Ok(Self {
            starts: keep(&registry, IntCounter::new("sim:starts_total", "Generations started")?)?,
            duplicate_starts: keep(
                &registry,
                IntCounter::new(
                    "sim:duplicate_starts_total",
                    "Generations started under an x-request-id that was started before",
                )?,
            )?,
            loras: Loras::new(&registry, models),
            ranks: (0..engine.ranks).map(of).collect::<Result<_, _>>()?,
            registry,
        })
    }

    /// Those of one rank.
    pub(super) fn of(&self, rank: u16) -> Option<&RankMeters> {
        self.ranks.get(usize::from(rank))
    }

    /// Everything, with the engine's gauges and counters of this moment.
    pub(super) fn read(
        &self,
        engine: &Engine,
        (starts, duplicate_starts): (u64, u64),
    ) -> Vec<MetricFamily> {
        for (rank, meters) in (0..).zip(&self.ranks) {
            meters.set(&engine.metrics_of(rank));
        }
        if let Err(error) = self.loras.set(engine) {
            tracing::error!(%error, "the adapters could not be told");
        }
        raise(&self.starts, starts);
        raise(&self.duplicate_starts, duplicate_starts);
        self.registry.gather()
    }
}

/// The exposition text of what a query asks for by name (`name[]=`), or else of everything; of ranks it tells of these.
pub(super) fn text(
    mut families: Vec<MetricFamily>,
    query: &str,
    ranks: &Range<u16>,
) -> Result<String, prometheus::Error> {
    let query = percent_decode_str(query).decode_utf8_lossy();
    let names: Vec<_> = query.split('&').filter_map(|pair| pair.strip_prefix("name[]=")).collect();
    if !names.is_empty() {
        families.retain(|family| names.contains(&family.name()));
    }
    for family in &mut families {
        family
            .mut_metric()
            .retain(|metric| rank_of(metric).is_none_or(|rank| ranks.contains(&rank)));
    }
    TextEncoder::new().encode_to_string(&families)
}

/// The rank that a line tells of.
fn rank_of(metric: &Metric) -> Option<u16> {
    let label = metric.get_label().iter().find(|label| label.name() == ENGINE)?;
    label.value().parse().ok()
}

/// Lets a counter say what it counts by now.
fn raise(counter: &IntCounter, to: u64) {
    counter.inc_by(to.saturating_sub(counter.get()));
}

fn keep<C: Collector + Clone + 'static>(
    registry: &Registry,
    collector: C,
) -> Result<C, prometheus::Error> {
    registry.register(Box::new(collector.clone()))?;
    Ok(collector)
}

/// Makes a rank's collectors with vLLM's prefix and labels, and registers them.
struct Maker<'a> {
    registry: &'a Registry,
    model: &'a str,
    rank: u16,
}

impl Maker<'_> {
    fn opts(&self, name: &str, help: &str) -> Opts {
        Opts::new(format!("vllm:{name}"), help).const_labels(self.labels(&[]))
    }

    fn keep<C: Collector + Clone + 'static>(&self, collector: C) -> Result<C, prometheus::Error> {
        keep(self.registry, collector)
    }

    fn gauge(&self, name: &str, help: &str) -> Result<IntGauge, prometheus::Error> {
        self.keep(IntGauge::with_opts(self.opts(name, help))?)
    }

    /// A gauge that is always 1 and says things in its labels.
    fn info(&self, name: &str, says: &[(&str, String)]) -> Result<(), prometheus::Error> {
        let opts = self.opts(name, "Information of the LLMEngine CacheConfig");
        self.keep(Gauge::with_opts(opts.const_labels(self.labels(says)))?)?.set(1.0);
        Ok(())
    }

    fn counter(&self, name: &str) -> Result<IntCounter, prometheus::Error> {
        self.keep(IntCounter::with_opts(self.opts(name, "As vLLM counts it"))?)
    }

    fn labelled(
        &self,
        name: &str,
        (label, value): (&str, &str),
    ) -> Result<IntCounter, prometheus::Error> {
        let labels = self.labels(&[(label, value.to_owned())]);
        let opts = Opts::new(format!("vllm:{name}"), "As vLLM counts it").const_labels(labels);
        self.keep(IntCounter::with_opts(opts)?)
    }

    fn histogram(&self, name: &str, buckets: &[f64]) -> Result<Histogram, prometheus::Error> {
        let opts = HistogramOpts::new(format!("vllm:{name}"), "As vLLM observes it")
            .const_labels(self.labels(&[]))
            .buckets(buckets.to_vec());
        self.keep(Histogram::with_opts(opts)?)
    }

    fn labels(&self, more: &[(&str, String)]) -> HashMap<String, String> {
        let always = [("model_name", self.model.to_owned()), (ENGINE, self.rank.to_string())];
        let more = more.iter().map(|(name, value)| (*name, value.clone()));
        always.into_iter().chain(more).map(|(name, value)| (name.to_owned(), value)).collect()
    }
}
