//! Outcome classification against a server that answers each class with its own canned bytes.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    time::Duration,
};

use weir_engine::{EngineConfig, hardware};

use super::*;
use crate::pod::{PodPlan, PodThread};

const SSE: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n";
const ROLE: &str = "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\"}}]}\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n";
const MORE: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"b\"}}]}\n\n";
const USAGE: &str = "data: {\"choices\":[],\"usage\":{\"completion_tokens\":3}}\n\n";
const DONE: &str = "data: [DONE]\n\n";
const ERROR: &str = "data: {\"error\":{\"message\":\"gone\",\"code\":\"upstream_lost\"}}\n\n";

fn chunk(data: &str) -> String {
    format!("{:x}\r\n{data}\r\n", data.len())
}

/// The answer to a request of this class; `None` never answers.
fn canned(class: &str) -> Option<String> {
    let all = |parts: &[&str]| parts.iter().map(|part| chunk(part)).collect::<String>();
    Some(match class {
        "ok" => format!("{SSE}{}0\r\n\r\n", all(&[ROLE, MORE, USAGE, DONE])),
        "uncounted" => format!("{SSE}{}0\r\n\r\n", all(&[ROLE, DONE])),
        "shed" => "HTTP/1.1 429 Too Many Requests\r\nx-llm-d-request-dropped-reason: rejected-saturated\r\ncontent-length: 2\r\n\r\n{}".to_owned(),
        "broken" => "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n".to_owned(),
        "inband" => format!("{SSE}{}", all(&[ROLE, ERROR])),
        "silent_end" => format!("{SSE}{}0\r\n\r\n", all(&[ROLE, MORE])),
        "cut" => format!("{SSE}{}", all(&[ROLE, MORE])),
        "closed" => String::new(),
        _ => return None,
    })
}

fn answer(stream: TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(&stream);
    let (mut class, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("x-llm-d-inference-objective: ") {
            class = value.to_owned();
        }
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    serde_json::from_slice::<serde_json::Value>(&body).unwrap();
    match canned(&class) {
        Some(bytes) => (&stream).write_all(bytes.as_bytes()),
        None => (&stream).read(&mut [0]).map(drop),
    }
}

fn server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || answer(stream.unwrap()));
        }
    });
    address
}

fn class(name: &str) -> Class {
    Class { name: name.to_owned(), share: 1.0, ttft_ms: 60_000.0, tpot_ms: 60_000.0 }
}

fn plan(target: SocketAddr, names: &[&str]) -> LoadPlan {
    let classes = names.iter().map(|name| class(name)).collect();
    let planned = |class| Planned {
        at: Duration::ZERO,
        class,
        input_tokens: 40,
        output_tokens: 3,
        prefix: vec![],
    };
    let plan = plan_for(target, classes, (0..names.len()).map(planned).collect());
    LoadPlan { max_tokens: MaxTokens::AtMost(16), ..plan }
}

fn plan_for(target: SocketAddr, classes: Vec<Class>, requests: Vec<Planned>) -> LoadPlan {
    let (model, timeout) = ("m\"1".to_owned(), Duration::from_millis(500));
    let target = target.into();
    LoadPlan { target, model, classes, requests, timeout, max_tokens: MaxTokens::Unsaid, run: 1 }
}

fn replay(plan: LoadPlan) -> LoadReport {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(run(plan, |_| ()))
}

fn outcome_of(name: &str) -> Record {
    replay(plan(server(), &[name])).records.remove(0)
}

#[test]
fn every_kind_of_answer_is_exactly_one_outcome() {
    let failed = |failure| Outcome::Failed(failure);
    for (name, expected) in [
        ("ok", Outcome::Ok),
        ("shed", Outcome::Refused { reason: "rejected-saturated".to_owned() }),
        ("broken", failed(Failure::Status { status: 503 })),
        ("inband", failed(Failure::InBand { code: "upstream_lost".to_owned() })),
        ("silent_end", failed(Failure::Truncated)),
        ("cut", failed(Failure::Truncated)),
        ("hang", failed(Failure::Timeout)),
    ] {
        let record = outcome_of(name);
        assert_eq!(record.outcome, expected, "{name}");
        assert_eq!(record.attained, name == "ok", "{name}");
    }
    let lost = outcome_of("closed").outcome;
    assert!(matches!(lost, Outcome::Failed(Failure::Connection { .. })), "{lost:?}");
}

#[test]
fn a_refused_connection_is_a_failure() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let record = replay(plan(nobody, &["ok"])).records.remove(0);
    assert!(matches!(record.outcome, Outcome::Failed(Failure::Connection { .. })));
}

#[test]
fn output_tokens_come_from_usage_and_else_from_the_stream() {
    assert_eq!(outcome_of("ok").output_tokens, 3);
    let uncounted = outcome_of("uncounted");
    assert_eq!((uncounted.output_tokens, uncounted.tpot_ms), (1, None));
    assert!(uncounted.attained, "one token has no pace to miss");
}

#[test]
fn a_served_request_that_misses_an_objective_is_not_attained() {
    let mut late = plan(server(), &["ok"]);
    late.classes[0].ttft_ms = 0.0;
    let report = replay(late);
    assert_eq!((report.classes[0].ok, report.classes[0].attainment_sent), (1, 0.0));
}

#[test]
fn every_planned_request_is_in_the_report_once() {
    let names = ["ok", "shed", "broken", "inband", "cut", "closed"];
    let mut many = plan(server(), &names);
    many.requests = (0..60).map(|n| Planned { class: n % 6, ..many.requests[0].clone() }).collect();
    many.timeout = Duration::from_secs(30);
    let mut last = Tally::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let report = runtime.block_on(run(many, |tally| last = tally.clone()));
    assert_eq!((report.without_outcome, report.total.sent), (0, 60));
    assert!(report.records.iter().enumerate().all(|(at, record)| record.index == at));
    assert_eq!((last.sent, last.in_flight()), (60, 0));
    assert!(report.classes.iter().all(|class| class.sent == 10));
}

/// The sum of an unlabelled or labelled series of a pod.
fn scraped(pod: SocketAddr, name: &str) -> f64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let text = runtime.block_on(crate::http_get::get(pod, "/metrics")).unwrap();
    let value = |line: &str| line.rsplit(' ').next()?.parse::<f64>().ok();
    text.lines().filter(|line| line.starts_with(name)).filter_map(value).sum()
}

#[test]
fn a_simulated_pod_counts_what_the_load_planned() {
    let engine = EngineConfig::for_hardware(hardware("h100-llama-3.1-8b-tp1").unwrap());
    let model = "m\"1".to_owned();
    let speed = 20.0;
    let plan = PodPlan {
        adapters: Vec::new(),
        count: 1,
        port: 0,
        ranks_per_port: None,
        model,
        engine,
        speed,
        max_model_len: 8192,
    };
    let pods = PodThread::start(plan).unwrap();
    let pod = pods.addresses()[0];
    let classes = vec![class("interactive")];
    let mix = DemoMix { stretches: vec![(200.0, 0.3)], classes: classes.clone(), seed: 3 };
    let requests = mix.requests().unwrap();
    let prompt_tokens: u32 = requests.iter().map(|request| request.input_tokens).sum();
    let outputs: Vec<u32> = requests.iter().map(|request| request.output_tokens).collect();
    let mut load = plan_for(pod, classes, requests);
    load.timeout = Duration::from_secs(60);
    let report = replay(load);
    assert_eq!(report.total.ok, outputs.len(), "{:?}", report.total);
    let counted: Vec<u32> = report.records.iter().map(|record| record.output_tokens).collect();
    assert_eq!(counted, outputs);
    assert_eq!(scraped(pod, "vllm:prompt_tokens_total"), f64::from(prompt_tokens));
    assert!(scraped(pod, "vllm:prefix_cache_hits_total") > 0.0, "system prompts are shared");
    assert_eq!(scraped(pod, "sim:duplicate_starts_total"), 0.0);
}

#[test]
fn exact_lengths_are_what_each_request_says_of_its_own_answer() {
    let plan = LoadPlan { max_tokens: MaxTokens::Exactly, ..plan(server(), &["ok", "ok"]) };
    let body: serde_json::Value =
        serde_json::from_slice(&body(&plan, &plan.requests[1], 1)).unwrap();
    assert_eq!((&body["max_tokens"], &body["ignore_eos"]), (&3.into(), &true.into()));
}
