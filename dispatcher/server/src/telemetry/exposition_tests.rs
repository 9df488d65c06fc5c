use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
};

use weir_core::{
    AdapterView, Band, Counters, LaneView, Need, PodId, Policy, Reason, RequestId, Scheduler,
    SchedulerConfig,
};
use weir_predict::Chain;
use weir_schema::LastRound;

use super::*;
use crate::{
    api::room::Room,
    clock::Clock,
    fleet::Pod,
    learn::{Shelf, reload::Bell, versions::tests::sample},
    replicas::Circle,
    shutdown::Life,
    telemetry::Metrics,
    tls::tests::Authority,
};

fn metrics() -> Metrics {
    let metrics = Metrics::new().unwrap();
    metrics.expect_model("m");
    metrics.request_done("m", "standard", "ok", 200);
    metrics.ttft("m", "standard", 100.0, Some(true));
    metrics.tpot("m", "standard", 10.0, Some(false));
    metrics.queue_wait("m", "standard", 1.0);
    metrics.stream_error("upstream_lost");
    metrics.unknown_objective("m");
    metrics.prefilled("m", "local");
    metrics.migrated("m", "continued");
    metrics.admin_change("pause", "ok");
    metrics
}

fn watched() -> Watched {
    let (sink, _samples) = async_channel::bounded(1);
    let config = SchedulerConfig { model: Arc::from("m"), ..SchedulerConfig::default() };
    let scheduler = Scheduler::new(config, Box::new(Chain::new()));
    let clock = Clock::new();
    let hub = Hub::new(scheduler, Arc::from("m"), clock, sink);
    hub.add_pod(Arc::new(Pod::new(PodId(1), Arc::from("pod-0"), "127.0.0.1:1".into(), 0)));
    let watched = Watched {
        circles: vec![Circle::lone(hub.clone())],
        hubs: vec![hub],
        metrics: Arc::new(metrics()),
        versions: Arc::default(),
        state: Arc::default(),
        spool: Arc::default(),
        reload: Arc::default(),
        shelf: Arc::new(Shelf::new(PathBuf::new(), Bell::new().0).0),
        config: Arc::default(),
        trainer: Arc::default(),
        spans: Arc::default(),
        identities: vec![Authority::new().identity("weir")],
        room: Room::of(1),
        life: Life::default(),
        clock,
    };
    let mut measured = sample(3, 100.0);
    measured.tpot_ms = Some(10.0);
    watched.versions.observe(&measured);
    let failed = Some("no room".to_owned());
    let ended_unix_ms = clock.unix_ms() - 60_000;
    let last = LastRound { ended_unix_ms, failed, published_unix_ms: Some(0) };
    *watched.reload.round.lock() = Some(last);
    watched.state.written_ms.store(ended_unix_ms, Relaxed);
    watched
}

fn pod() -> PodView {
    PodView {
        name: "pod-0".into(),
        class: "c".into(),
        phase: Phase::Broken,
        residents: 2,
        pending: 1,
        pending_tokens: 100,
        kv_tokens: 1000,
        kv_usage: 0.5,
        kv_capacity_tokens: 304_000,
        prompt_tokens: 5000,
        cached_tokens: 4000,
        cache_found: 0.85,
        adapters: vec![AdapterView { name: "sql".into(), requests: 2, gives_way: true }],
        max_loras: Some(4),
        full_with: None,
        prefix_capacity_tokens: 0,
        running: 2,
        queued: 0,
        elsewhere: 0,
        scrape_age_ms: Some(50.0),
        step_ms: 20.0,
        tokens_per_event: 4.0,
        tokens_per_step: 2.5,
        tightest_tpot_ms: Some(50.0),
        stall_budget_ms: Some(300.0),
        dispatched: 7,
        requests: vec![],
    }
}

/// A snapshot in which everything that may be absent is there.
fn snapshot() -> Snapshot {
    let lane = |band, depth, reason| LaneView {
        pattern: "p".into(),
        band: Band(band),
        depth,
        head_wait_ms: 5.0,
        head: RequestId(1),
        reason,
    };
    Snapshot {
        model: "m".into(),
        policy: Policy::Weir,
        rules: Policy::Weir.rules(),
        rules_by_header: None,
        lanes: vec![
            lane(1, 2, Reason::KvFull),
            lane(1, 3, Reason::KvFull),
            lane(-1, 4, Reason::PendingFull),
        ],
        pods: vec![pod()],
        waiting: 9,
        waiting_bytes: 900,
        late: 1,
        oldest_wait_ms: 250.0,
        drain_ms: Some(100.0),
        spent_share: 0.25,
        kept_for_ms: 1500.0,
        need: Need { load: 0.75, load_of_all: 1.5, held: 0.5, pods: 3, pods_for_all: 6 },
        in_flight: 3,
        counters: Counters { arrived: 12, ..Counters::default() },
        predictor: Status {
            fallback_reason: Some("no bundle yet".into()),
            profiles: vec![ProfileStatus {
                class: "h100".into(),
                preferred_ttft: true,
                live_mape_ttft: Some(0.25),
                outside_tpot: 3,
                ..ProfileStatus::default()
            }],
            ..super::super::quality::tests::status()
        },
        tokens_per_byte: 0.25,
    }
}

pub(in crate::telemetry) fn written(families: &[MetricFamily]) -> String {
    TextEncoder::new().encode_to_string(families).unwrap()
}

#[test]
fn the_documented_series_are_those_that_are_exposed() {
    let watched = watched();
    let mut page = Page::default();
    page.pool("m", &snapshot());
    let all = families(&watched).into_iter().chain(page.collect());
    let exposed: BTreeSet<String> = all.map(|family| family.name().to_owned()).collect();
    let documented: BTreeSet<String> =
        series::ALL.iter().map(|series| series.name.to_owned()).collect();
    assert_eq!(exposed, documented);
}

#[test]
fn the_page_of_the_docs_is_the_table_of_the_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    if std::env::var_os("WEIR_WRITE_DOCS").is_some() {
        std::fs::write(&path, series::markdown()).unwrap();
    }
    let page = std::fs::read_to_string(path).unwrap();
    assert!(page == series::markdown(), "run this test with WEIR_WRITE_DOCS=1");
}

#[test]
fn a_snapshot_becomes_series() {
    let mut page = Page::default();
    page.pool("m", &snapshot());
    let text = written(&page.collect());
    for line in [
        "weir_queue_depth{band=\"-1\",model=\"m\"} 4",
        "weir_queue_depth{band=\"0\",model=\"m\"} 0",
        "weir_queue_depth{band=\"1\",model=\"m\"} 5",
        "weir_kept_for_seconds{model=\"m\"} 1.5",
        "weir_load{model=\"m\",requests=\"kept\"} 0.75",
        "weir_load{model=\"m\",requests=\"all\"} 1.5",
        "weir_load_held{model=\"m\"} 0.5",
        "weir_pods_needed{model=\"m\",requests=\"kept\"} 3",
        "weir_pods_needed{model=\"m\",requests=\"all\"} 6",
        "weir_waiting_reason{model=\"m\",reason=\"kv_full\"} 2",
        "weir_events_total{event=\"arrived\",model=\"m\"} 12",
        "weir_pod_phase{model=\"m\",phase=\"broken\",pod=\"pod-0\"} 1",
        "weir_pod_kv_capacity_tokens{model=\"m\",pod=\"pod-0\"} 304000",
        "weir_pod_prompt_tokens_total{model=\"m\",pod=\"pod-0\"} 5000",
        "weir_pod_prompt_tokens_cached_total{model=\"m\",pod=\"pod-0\"} 4000",
        "weir_pod_prefix_capacity_tokens{model=\"m\",pod=\"pod-0\"} 0",
        "weir_pod_scrape_age_seconds{model=\"m\",pod=\"pod-0\"} 0.05",
        "weir_predictor_source{model=\"m\",source=\"prior\",target=\"ttft\"} 1",
        "weir_profile_serves{class=\"h100\",model=\"m\",target=\"ttft\"} 1",
        "weir_profile_serves{class=\"h100\",model=\"m\",target=\"tpot\"} 0",
        "weir_profile_mape{class=\"h100\",model=\"m\",target=\"ttft\"} 0.25",
        "weir_profile_outside_total{class=\"h100\",model=\"m\",target=\"tpot\"} 3",
        "weir_predictor_fallback{model=\"m\",reason=\"no bundle yet\"} 1",
    ] {
        assert!(text.lines().any(|found| found == line), "no {line} in\n{text}");
    }
}

#[test]
fn a_drain_that_nobody_knows_has_no_series() {
    let drain = |drain_ms| {
        let mut page = Page::default();
        page.pool("m", &Snapshot { drain_ms, ..snapshot() });
        let text = written(&page.collect());
        text.lines().find(|line| line.starts_with("weir_queue_drain_seconds")).map(str::to_owned)
    };
    assert_eq!(drain(Some(100.0)).unwrap(), "weir_queue_drain_seconds{model=\"m\"} 0.1");
    assert_eq!(drain(None), None);
}

#[test]
fn what_was_counted_and_what_is_learned_is_in_the_text() {
    let text = text(&watched()).unwrap();
    for line in [
        "weir_requests_total{model=\"m\",objective=\"standard\",outcome=\"ok\",status=\"200\"} 1",
        "weir_slo_total{met=\"false\",model=\"m\",objective=\"standard\",target=\"tpot\"} 1",
        "weir_refused_total{model=\"m\",reason=\"queue_full\",sheddable=\"false\"} 0",
        "weir_ttft_seconds_bucket{model=\"m\",objective=\"standard\",le=\"0.1\"} 1",
        "weir_version_served{model=\"m\",version=\"3\"} 1",
        "weir_version_mape{model=\"m\",target=\"ttft\",version=\"3\"} 0",
        "weir_samples_dropped_total{reason=\"busy\"} 0",
        "weir_draining 0",
    ] {
        assert!(text.lines().any(|found| found == line), "no {line} in\n{text}");
    }
}

#[test]
fn what_the_trainer_said_is_in_the_text_and_before_it_said_anything_nothing_is() {
    let watched = watched();
    let text = |watched: &Watched| written(&families(watched));
    let age_s = |name: &str| -> f64 {
        let text = text(&watched);
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    assert!((60.0..120.0).contains(&age_s("weir_trainer_round_age_seconds")));
    assert!(age_s("weir_trainer_published_age_seconds") > 1e9);
    assert_eq!(age_s("weir_trainer_round_failed"), 1.0);
    *watched.reload.round.lock() = None;
    let text = text(&watched);
    assert!(!text.contains("weir_trainer_round") && !text.contains("weir_trainer_published"));
}

#[test]
fn a_reason_with_numbers_is_one_series_however_they_change() {
    let reason = "tpot: live error 0.046 of the prior, 0.057 of v2";
    assert_eq!(without_numbers(reason), "tpot: live error N of the prior, N of vN");
    assert_eq!(without_numbers("no bundle yet."), "no bundle yet.");
    assert_eq!(without_numbers("12"), "N");
    let name = "bundle refused: sha256_mismatch";
    assert_eq!(without_numbers(name), name);
}
