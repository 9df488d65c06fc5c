//! What a request that waits costs beside its body.
//!
//! Requests wait in the way in which the data plane lets them: each in the future that will send it, with its body and its
//! headers. What their clients' connections hold is not in it. Prints what one costs, and what is left when all have gone and
//! the allocator was told to give back what is free, as `weir serve` does. With `--release` a hundred thousand wait and the
//! cost is judged; otherwise twenty thousand do.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement that cannot go on fails, and its figures are read"
)]

use std::{fs, future::Future, pin::Pin, sync::Arc, time::Duration};

use futures_util::FutureExt;
use http::Method;
use weir::{
    clock::Clock,
    h1::PodRequest,
    hub::Hub,
    memory,
    telemetry::{Metrics, trace::Known},
    upstream::{Call, Dialect, RawUpstream, Upstream, UpstreamConfig, serve},
};
use weir_core::{
    Band, Bounds, Event, PromptSize, Request, RequestId, Scheduler, SchedulerConfig, Slo,
    prefix::BLOCK_BYTES,
};
use weir_predict::Chain;

const RELEASE: bool = !cfg!(debug_assertions);
const CROWD: u64 = if RELEASE { 100_000 } else { 20_000 };
const BODY_BYTES: usize = 2 << 10;
/// Of a prompt that is the whole body.
const BLOCKS: u64 = (BODY_BYTES / BLOCK_BYTES) as u64;
/// What one may cost beside its body.
const MOST_BYTES: f64 = 1024.0;

fn hub() -> Arc<Hub> {
    let day = Duration::from_secs(86_400);
    let bounds = Bounds {
        max_requests: 2 * CROWD as usize,
        max_wait: day,
        max_wait_no_pods: day,
        ..Bounds::default()
    };
    let config = SchedulerConfig { bounds, ..SchedulerConfig::default() };
    let model = config.model.clone();
    let (sink, _) = async_channel::bounded(1);
    Hub::new(Scheduler::new(config, Box::new(Chain::new())), model, Clock::new(), sink)
}

fn call(hub: &Hub, objective: &Arc<str>, id: u64) -> Call {
    let name: Arc<str> = format!("0123456789-{id:016x}").into();
    // Its fifth is its name.
    let headers = [
        ("accept", "application/json"),
        ("content-type", "application/json"),
        ("user-agent", "OpenAI/Python 1.99.0"),
        ("x-stainless-lang", "python"),
    ];
    let headers = headers.into_iter().map(|(name, value): (_, &str)| (name, value.as_bytes()));
    let (path, body) = ("/v1/chat/completions", vec![b'x'; BODY_BYTES].into());
    Call {
        onward: PodRequest::new(&Method::POST, path, headers, body),
        dialect: Dialect::Completions,
        own_priority: false,
        request: request(hub, id, name.clone()),
        known: Known { request_id: name, trace: None },
        objective: objective.clone(),
        prefill: None,
        migrates: None,
    }
}

fn request(hub: &Hub, id: u64, name: Arc<str>) -> Request {
    Request {
        max_output_tokens: Some(200),
        slo: Slo { ttft: Some(Duration::from_secs(600)), tpot: Some(Duration::from_millis(100)) },
        band: Band((id % 3) as i8),
        body_bytes: BODY_BYTES as u32,
        blocks: (0..BLOCKS).map(|block| id * BLOCKS + block).collect(),
        name,
        ..Request::new(RequestId(id), hub.clock().now(), PromptSize::Bytes(BODY_BYTES as u32))
    }
}

/// Bytes of memory that are this process's.
fn resident() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_ascii_whitespace().next().unwrap().parse::<f64>().unwrap() * 1024.0
}

#[tokio::test]
async fn a_hundred_thousand_requests_of_2_kb_wait_in_400_mb_and_give_them_back() {
    let hub = hub();
    let config = UpstreamConfig::try_from(RawUpstream::default()).unwrap();
    let upstream = Arc::new(Upstream::new(config, Arc::new(Metrics::new().unwrap())));
    let objective = Arc::from("standard");
    let before = resident();
    let mut waiting: Vec<Pin<Box<dyn Future<Output = bool> + '_>>> = Vec::new();
    for id in 1..=CROWD {
        let call = call(&hub, &objective, id);
        waiting.push(Box::pin(serve(&hub, &upstream, call).map(|served| served.is_err())));
    }
    for served in &mut waiting {
        assert!(served.now_or_never().is_none(), "a request does not wait");
    }
    assert_eq!(hub.waiting(), CROWD as usize);
    let each = (resident() - before) / CROWD as f64;
    hub.post(Event::Close);
    for served in waiting {
        assert!(served.await, "a request is not refused");
    }
    memory::give_back();
    let left = (resident() - before) / CROWD as f64;
    println!(
        "{CROWD} requests of {BODY_BYTES} bytes: {each:.0} bytes of memory each while they wait, {left:.0} after"
    );
    assert!(hub.idle());
    assert!(left < each / 3.0, "{left:.0} of {each:.0} bytes each are left");
    if RELEASE {
        assert!(each < BODY_BYTES as f64 + MOST_BYTES, "{each:.0} bytes each");
    }
}
