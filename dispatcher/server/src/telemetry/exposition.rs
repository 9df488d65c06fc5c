//! The text of `/metrics`: what the data plane counted, and the state of the moment.
//!
//! State is read from the owners' snapshots when the text is asked for and kept nowhere, so a pod or a
//! version that is gone is gone from the text with it.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use prometheus::{CounterVec, GaugeVec, Opts, Registry, TextEncoder, proto::MetricFamily};
use weir_core::{Phase, PodView, Snapshot};
use weir_schema::{ProfileStatus, Status};

use super::{
    Watched, log,
    series::{self, Kind, Series},
};
use crate::{
    accept,
    api::room::{Census, Room},
    fleet::Pod,
    hub::Hub,
    learn::versions::VersionView,
    replicas::Circle,
    shutdown::Stage,
    tls::{FilesTally, Identity},
};

/// Longest reason that becomes a label.
const REASON_CHARS: usize = 100;

/// The text of `/metrics`.
///
/// # Errors
/// When a series cannot be written, which is a mistake in [`series`].
pub fn text(watched: &Watched) -> Result<String, prometheus::Error> {
    TextEncoder::new().encode_to_string(&families(watched))
}

/// Every series with a value now.
pub fn families(watched: &Watched) -> Vec<MetricFamily> {
    let mut page = Page::default();
    for hub in &watched.hubs {
        let model = &**hub.model();
        let snapshot = hub.snapshot();
        page.pool(model, &snapshot);
        if watched.metrics.compat().is_some() {
            page.compat_pool(model, &snapshot);
        }
        page.scrapes(hub);
        page.answers(hub);
        page.set(&series::SCHEDULER_BUSY, &[model], hub.busy().as_secs_f64());
        watched.versions.of(model).iter().for_each(|version| page.version(model, version));
    }
    watched.circles.iter().for_each(|circle| page.circle(circle));
    page.learning(watched);
    let mut families = watched.metrics.gather();
    families.extend(page.collect());
    families
}

/// The series under construction.
#[derive(Default)]
pub(super) struct Page(BTreeMap<&'static str, Cell>);

enum Cell {
    Gauge(GaugeVec),
    Counter(CounterVec),
}

impl Page {
    /// Notes a value. One that cannot be noted is left out: a mistake here must not cost the rest.
    pub(super) fn set(&mut self, of: &Series, labels: &[&str], value: f64) {
        if !self.0.contains_key(of.name) {
            let options = Opts::new(of.name, of.help);
            let cell = match of.kind {
                Kind::Counter => CounterVec::new(options, of.labels).map(Cell::Counter),
                Kind::Gauge | Kind::Histogram => GaugeVec::new(options, of.labels).map(Cell::Gauge),
            };
            let Ok(cell) = cell else { return };
            self.0.insert(of.name, cell);
        }
        match self.0.get(of.name) {
            Some(Cell::Gauge(gauge)) => {
                let _ = gauge.get_metric_with_label_values(labels).map(|gauge| gauge.set(value));
            }
            Some(Cell::Counter(counter)) => {
                let _ = counter.get_metric_with_label_values(labels).map(|one| one.inc_by(value));
            }
            None => {}
        }
    }

    pub(super) fn count(&mut self, of: &Series, labels: &[&str], value: u64) {
        self.set(of, labels, value as f64);
    }

    fn tally(&mut self, of: &Series, labels: &[&str], value: &AtomicU64) {
        self.count(of, labels, value.load(Relaxed));
    }

    fn flag(&mut self, of: &Series, value: bool) {
        self.set(of, &[], f64::from(u8::from(value)));
    }

    /// The series, sorted by name and labels.
    pub(super) fn collect(self) -> Vec<MetricFamily> {
        let registry = Registry::new();
        for cell in self.0.into_values() {
            // Fails only for a name that is there already, and names are the keys.
            let _ = match cell {
                Cell::Gauge(gauge) => registry.register(Box::new(gauge)),
                Cell::Counter(counter) => registry.register(Box::new(counter)),
            };
        }
        registry.gather()
    }

    fn circle(&mut self, circle: &Circle) {
        let (model, seen) = (&**circle.model(), circle.view());
        self.count(&series::DECIDES, &[model], u64::from(seen.decides));
        self.count(&series::REPLICAS, &[model], seen.others as u64);
        self.count(&series::REPLICA_VERDICTS, &[model, "heard"], seen.heard);
        self.count(&series::REPLICA_VERDICTS, &[model, "told"], seen.told);
        self.count(&series::LEAD_CHANGES, &[model], seen.changes);
    }

    fn pool(&mut self, model: &str, of: &Snapshot) {
        self.queue(model, of);
        self.events(model, of);
        of.pods.iter().for_each(|pod| self.pod(model, pod));
        self.predictor(model, &of.predictor);
    }

    fn queue(&mut self, model: &str, of: &Snapshot) {
        let mut bands = BTreeMap::from([(0, 0)]);
        let mut reasons = BTreeMap::new();
        for lane in &of.lanes {
            *bands.entry(lane.band.0).or_insert(0) += lane.depth;
            *reasons.entry(lane.reason.name()).or_insert(0) += 1;
        }
        for (band, depth) in bands {
            self.set(&series::QUEUE_DEPTH, &[model, &band.to_string()], depth as f64);
        }
        for (reason, lanes) in reasons {
            self.set(&series::WAITING_REASON, &[model, reason], f64::from(lanes));
        }
        self.set(&series::QUEUE_LATE, &[model], of.late as f64);
        self.count(&series::QUEUE_BYTES, &[model], of.waiting_bytes);
        self.set(&series::QUEUE_OLDEST, &[model], of.oldest_wait_ms / 1000.0);
        if let Some(drain_ms) = of.drain_ms {
            self.set(&series::QUEUE_DRAIN, &[model], drain_ms / 1000.0);
        }
        self.set(&series::QUEUE_SPENT, &[model], of.spent_share);
        self.set(&series::KEPT_FOR, &[model], of.kept_for_ms / 1000.0);
        let need = &of.need;
        for (requests, load, pods) in
            [("kept", need.load, need.pods), ("all", need.load_of_all, need.pods_for_all)]
        {
            self.set(&series::LOAD, &[model, requests], load);
            self.set(&series::PODS_NEEDED, &[model, requests], f64::from(pods));
        }
        self.set(&series::LOAD_HELD, &[model], need.held);
        self.set(&series::IN_FLIGHT, &[model], of.in_flight as f64);
        self.set(&series::TOKENS_PER_BYTE, &[model], of.tokens_per_byte);
    }

    fn events(&mut self, model: &str, of: &Snapshot) {
        let counters = &of.counters;
        let events = [
            ("arrived", counters.arrived),
            ("adopted", counters.adopted),
            ("handed_over", counters.handed_over),
            ("dispatched", counters.dispatched),
            ("requeued", counters.requeued),
            ("completed", counters.completed),
            ("failed", counters.failed),
            ("client_gone", counters.client_gone),
            ("cancelled", counters.cancelled),
            ("demoted", counters.demoted),
            ("spread", counters.spread),
            ("adapter_turns", counters.adapter_turns),
            ("turned_away", counters.turned_away),
            ("ignored", counters.ignored),
        ];
        for (event, count) in events {
            self.count(&series::EVENTS, &[model, event], count);
        }
    }

    fn pod(&mut self, model: &str, of: &PodView) {
        let labels = [model, of.name.as_str()];
        self.set(&series::POD_PHASE, &[model, &of.name, phase_name(of)], 1.0);
        self.set(&series::POD_RESIDENTS, &labels, of.residents as f64);
        self.set(&series::POD_PENDING, &labels, of.pending as f64);
        self.count(&series::POD_PENDING_TOKENS, &labels, of.pending_tokens);
        self.set(&series::POD_KV_USAGE, &labels, f64::from(of.kv_usage));
        self.count(&series::POD_KV_CAPACITY, &labels, of.kv_capacity_tokens);
        self.count(&series::POD_PREFIX_CAPACITY, &labels, of.prefix_capacity_tokens);
        self.set(&series::POD_STEP, &labels, of.step_ms);
        let class = [model, of.class.as_str()];
        self.set(&series::TOKENS_PER_EVENT, &class, of.tokens_per_event);
        self.set(&series::TOKENS_PER_STEP, &class, of.tokens_per_step);
        if let Some(budget_ms) = of.stall_budget_ms {
            self.set(&series::POD_STALL_BUDGET, &labels, budget_ms);
        }
        if let Some(age_ms) = of.scrape_age_ms {
            self.set(&series::POD_SCRAPE_AGE, &labels, age_ms / 1000.0);
        }
        self.count(&series::POD_DISPATCHED, &labels, of.dispatched);
        self.count(&series::POD_PROMPT_TOKENS, &labels, of.prompt_tokens);
        self.count(&series::POD_PROMPT_TOKENS_CACHED, &labels, of.cached_tokens);
        self.set(&series::POD_CACHE_FOUND, &labels, of.cache_found);
        self.set(&series::POD_ADAPTERS, &labels, of.adapters.len() as f64);
        if let Some(most) = of.max_loras {
            self.set(&series::POD_MAX_LORAS, &labels, most.into());
        }
    }

    fn scrapes(&mut self, hub: &Hub) {
        self.of_pods(&series::POD_SCRAPES, hub, |pod| {
            let of = &pod.scrapes;
            [("good", &of.good), ("failed", &of.failed), ("garbled", &of.garbled)]
        });
        for pod in hub.pods().iter() {
            let labels: [&str; 2] = [hub.model(), &pod.name];
            self.tally(&series::POD_SCRAPE_BYTES, &labels, &pod.scrapes.bytes);
        }
    }

    fn answers(&mut self, hub: &Hub) {
        self.of_pods(&series::POD_ANSWERS, hub, |pod| {
            let of = &pod.answers;
            [
                ("2xx", &of.good),
                ("4xx", &of.refused),
                ("5xx", &of.failed),
                ("cut", &of.cut),
                ("none", &of.none),
            ]
        });
    }

    /// What each pod of a pool counts by kind.
    fn of_pods<const KINDS: usize>(
        &mut self,
        series: &Series,
        hub: &Hub,
        counts: impl Fn(&Pod) -> [(&'static str, &AtomicU64); KINDS],
    ) {
        for pod in hub.pods().iter() {
            for (kind, count) in counts(pod) {
                self.tally(series, &[hub.model(), &pod.name, kind], count);
            }
        }
    }

    pub(super) fn predictor(&mut self, model: &str, of: &Status) {
        let targets = [("ttft", of.ttft_source), ("tpot", of.tpot_source)];
        for (target, source) in targets {
            self.set(&series::PREDICTOR_SOURCE, &[model, target, source.name()], 1.0);
        }
        if let Some(reason) = &of.fallback_reason {
            self.set(&series::PREDICTOR_FALLBACK, &[model, &without_numbers(reason)], 1.0);
        }
        of.profiles.iter().for_each(|profile| self.profile(model, profile));
        self.count(&series::PREDICTOR_FAILURES, &[model], of.failures);
        self.count(&series::MODEL_VERSION, &[model], of.model_version);
        if let Some(by) = &of.model_evaluator {
            let version = of.model_version.to_string();
            let labels = [model, &version, by.source.name(), &by.reason];
            self.set(&series::BUNDLE_EVALUATOR, &labels, 1.0);
        }
        self.count(&series::ROLLBACKS, &[model], of.rollbacks);
        self.quality(model, of);
    }

    fn profile(&mut self, model: &str, of: &ProfileStatus) {
        let targets = [
            ("ttft", of.preferred_ttft, of.live_mape_ttft, of.outside_ttft),
            ("tpot", of.preferred_tpot, of.live_mape_tpot, of.outside_tpot),
        ];
        for (target, preferred, mape, outside) in targets {
            let labels = [model, of.class.as_str(), target];
            self.set(&series::PROFILE_SERVES, &labels, f64::from(u8::from(preferred)));
            self.count(&series::PROFILE_OUTSIDE, &labels, outside);
            if let Some(mape) = mape {
                self.set(&series::PROFILE_MAPE, &labels, f64::from(mape));
            }
        }
    }

    fn version(&mut self, model: &str, of: &VersionView) {
        let version = of.version.to_string();
        for (target, mape) in [("ttft", of.mape_ttft), ("tpot", of.mape_tpot)] {
            if let Some(mape) = mape {
                self.set(&series::VERSION_MAPE, &[model, &version, target], mape);
            }
        }
        self.count(&series::VERSION_SERVED, &[model, &version], of.served);
    }

    fn state(&mut self, watched: &Watched) {
        let state = &watched.state;
        if let Some(age) = state.age(watched.clock.unix_ms()) {
            self.set(&series::STATE_AGE, &[], age.as_secs_f64());
        }
        self.tally(&series::STATE_BYTES, &[], &state.bytes);
        self.tally(&series::STATE_ERRORS, &["read"], &state.unusable);
        self.tally(&series::STATE_ERRORS, &["write"], &state.unwritten);
        for hub in &watched.hubs {
            self.count(&series::STATE_PODS, &[hub.model()], hub.pods_recalled());
        }
    }

    fn learning(&mut self, watched: &Watched) {
        let (reload, spool, trainer) = (&watched.reload, &watched.spool, &watched.trainer);
        self.tally(&series::BUNDLES, &["loaded"], &reload.loaded);
        self.tally(&series::BUNDLES, &["refused"], &reload.refused);
        self.flag(&series::BUNDLE_MISSING, reload.missing.load(Relaxed));
        self.flag(&series::PIN_FAILING, watched.shelf.pin_failing().is_some());
        self.flag(&series::ONNXRUNTIME, reload.runtime_found.load(Relaxed));
        let busy = watched.hubs.iter().map(|hub| hub.samples_dropped()).sum();
        self.count(&series::SAMPLES_DROPPED, &["busy"], busy);
        self.tally(&series::SAMPLES_DROPPED, &["disk"], &spool.lost);
        self.tally(&series::SAMPLES_WRITTEN, &[], &spool.written);
        self.tally(&series::SPOOL_ERRORS, &[], &spool.errors);
        self.tally(&series::SPOOL_BYTES, &[], &spool.bytes);
        self.tally(&series::SPOOL_SEGMENTS, &[], &spool.segments);
        self.state(watched);
        self.flag(&series::TRAINER_UP, trainer.up.load(Relaxed));
        self.tally(&series::TRAINER_RESTARTS, &[], &trainer.restarts);
        self.rounds(watched);
        self.configuration(watched);
        self.listeners();
        watched.identities.iter().for_each(|identity| self.identity(identity));
        self.connections(&watched.room);
        self.count(&series::LOG_LINES_DROPPED, &[], log::lost());
        let spans = &watched.spans;
        self.tally(&series::SPANS, &["sent"], &spans.sent);
        self.tally(&series::SPANS, &["dropped"], &spans.dropped);
        self.tally(&series::SPANS, &["failed"], &spans.failed);
        self.flag(&series::DRAINING, watched.life.stage() > Stage::Serving);
        self.set(&series::UPTIME, &[], watched.uptime_s());
    }
}

impl Page {
    fn rounds(&mut self, watched: &Watched) {
        let round = watched.reload.round.lock();
        let Some(last) = round.as_ref() else { return };
        let now_ms = watched.clock.unix_ms();
        let age_s = |unix_ms: u64| now_ms.saturating_sub(unix_ms) as f64 / 1e3;
        self.set(&series::TRAINER_ROUND_AGE, &[], age_s(last.ended_unix_ms));
        self.flag(&series::TRAINER_ROUND_FAILED, last.failed.is_some());
        if let Some(published) = last.published_unix_ms {
            self.set(&series::TRAINER_PUBLISHED_AGE, &[], age_s(published));
        }
    }

    fn listeners(&mut self) {
        for listening in [&accept::API, &accept::ADMIN, &accept::REPLICAS] {
            self.count(&series::ACCEPT_FAILURES, &[listening.name], listening.failures());
            self.count(
                &series::CONNECTIONS_DISPLACED,
                &[listening.name],
                listening.displacements(),
            );
        }
    }

    fn identity(&mut self, identity: &Identity) {
        let listener = identity.listener();
        if let Some(expiry) = identity.expiry() {
            self.set(&series::TLS_EXPIRY, &[listener], expiry as f64);
        }
        let FilesTally { renewed, refused, failing } = identity.tally();
        self.tally(&series::TLS_RENEWALS, &[listener, "renewed"], renewed);
        self.tally(&series::TLS_RENEWALS, &[listener, "refused"], refused);
        let failing = f64::from(u8::from(failing.load(Relaxed)));
        self.set(&series::TLS_FAILING, &[listener], failing);
        self.count(&series::TLS_HANDSHAKES_FAILED, &[listener], identity.handshakes_failed());
    }

    fn connections(&mut self, room: &Room) {
        let Census { asking, idle, silent } = room.census();
        for (state, connections) in [("asking", asking), ("idle", idle), ("silent", silent)] {
            self.set(&series::CONNECTIONS, &[state], connections as f64);
        }
        self.set(&series::CONNECTIONS_MOST, &[], room.most() as f64);
    }

    fn configuration(&mut self, watched: &Watched) {
        let config = &watched.config;
        self.tally(&series::CONFIG_RELOADS, &["applied"], &config.applied);
        self.tally(&series::CONFIG_RELOADS, &["unchanged"], &config.unchanged);
        self.tally(&series::CONFIG_RELOADS, &["refused"], &config.refused);
        self.tally(&series::CONFIG_HASH, &[], &config.hash);
        let age_s = watched.uptime_s() - config.since_us.load(Relaxed) as f64 / 1e6;
        self.set(&series::CONFIG_AGE, &[], age_s);
        self.flag(&series::CONFIG_FAILING, config.failing.load(Relaxed));
        self.tally(&series::CONFIG_NEEDS_RESTART, &[], &config.needs_restart);
    }
}

/// A reason as a label: numbers would make a new series whenever they change. A digit inside a name,
/// as in `sha256_mismatch`, is none.
fn without_numbers(reason: &str) -> String {
    let words = reason.split_inclusive(' ');
    let label: String =
        words.map(|word| if word.contains('_') { word.into() } else { blur(word) }).collect();
    label.chars().take(REASON_CHARS).collect()
}

fn blur(word: &str) -> String {
    let mut blurred = String::new();
    for part in word.split_inclusive(|letter: char| !letter.is_ascii_digit() && letter != '.') {
        let number = part.trim_end_matches(|letter: char| !letter.is_ascii_digit());
        if number.contains(|letter: char| letter.is_ascii_digit()) {
            blurred.push('N');
        }
        blurred.push_str(part.strip_prefix(number).unwrap_or(part));
    }
    blurred
}

fn phase_name(pod: &PodView) -> &'static str {
    match pod.phase {
        Phase::Ready => "ready",
        Phase::Cordoned => "cordoned",
        Phase::Draining => "draining",
        Phase::Broken => "broken",
    }
}

#[cfg(test)]
#[path = "exposition_tests.rs"]
pub(super) mod tests;
