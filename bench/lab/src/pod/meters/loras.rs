//! `vllm:lora_requests_info`: which adapters run and wait, told from the first request for one on.
//!
//! Its labels say it, and its value is when that began to be so, in Unix time: of several series the one with the greatest value
//! is true. vLLM keeps every series that ever was; here the one before the last stays. It is looked at whenever it is read. Like
//! vLLM's it has no label of its engine. Each series is a gauge of its own: to a vector of them, "a" that runs and "a" that waits
//! are the same.

use std::{
    cell::Cell,
    collections::HashMap,
    time::{SystemTime, UNIX_EPOCH},
};

use prometheus::{Gauge, Opts, Registry};
use weir_engine::Engine;

use super::keep;
use crate::pod::models::Models;

/// The series and what they say.
pub(super) struct Loras {
    registry: Registry,
    models: Models,
    /// The last one and the one before it.
    shown: Cell<[Option<Series>; 2]>,
}

/// Adapters that run and adapters that wait.
struct Series {
    says: [String; 2],
    gauge: Gauge,
}

impl Loras {
    pub(super) fn new(registry: &Registry, models: &Models) -> Self {
        Self { registry: registry.clone(), models: models.clone(), shown: Cell::default() }
    }

    /// Says what is so at this moment.
    pub(super) fn set(&self, engine: &Engine) -> Result<(), prometheus::Error> {
        let Some(adapters) = engine.adapters() else { return Ok(()) };
        let says = self.models.told(&adapters);
        let of = |series: &Option<Series>| series.as_ref().is_some_and(|one| one.says == says);
        let mut shown = self.shown.take();
        let [last, before] = &shown;
        if !of(last) {
            let again = of(before);
            shown.reverse();
            let [last, _] = &mut shown;
            if !again && let Some(old) = last.take() {
                self.registry.unregister(Box::new(old.gauge))?;
            }
            if last.is_none() {
                *last = Some(self.series(says, engine.config().max_loras)?);
            }
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            last.iter().for_each(|series| series.gauge.set(since.as_secs_f64()));
        }
        self.shown.set(shown);
        Ok(())
    }

    fn series(&self, says: [String; 2], max_loras: u32) -> Result<Series, prometheus::Error> {
        let [running, waiting] = &says;
        let labels = [
            ("max_lora", max_loras.to_string()),
            ("running_lora_adapters", running.clone()),
            ("waiting_lora_adapters", waiting.clone()),
        ];
        let labels: HashMap<_, _> =
            labels.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let opts = Opts::new("vllm:lora_requests_info", "Running stats on lora requests.");
        let gauge = keep(&self.registry, Gauge::with_opts(opts.const_labels(labels))?)?;
        Ok(Series { says, gauge })
    }
}
