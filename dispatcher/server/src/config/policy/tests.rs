use std::time::Duration;

use weir_core::{
    Band, Event, PodId, PodSpec, PromptSize, Request, RequestId, Scheduler, Slo, Time,
    policy::{Detector, TtftSource, UsageLimit},
};

use super::*;
use crate::{
    config::{Config, load::parse},
    hub::fixture::Flat,
};

fn read(yaml: &str) -> Result<RawPolicy, String> {
    serde_yaml_ng::from_str(yaml).map_err(|error| error.to_string())
}

#[test]
fn a_name_is_a_preset_and_is_written_as_its_name() {
    for policy in Policy::ALL {
        let raw = read(policy.name()).unwrap();
        assert_eq!(raw, RawPolicy::Preset(policy));
        assert_eq!(serde_yaml_ng::to_string(&raw).unwrap().trim(), policy.name());
        assert_eq!(raw.rules(), policy.rules());
    }
}

#[test]
fn a_mapping_starts_from_a_preset_and_replaces_parts() {
    let yaml = "preset: predicted-latency\npicker: best\ndispatch: pull-strict\n\
                scorer: { kind: headroom, strategy: most }\nfilters: [capacity, headroom-tier]\n";
    let rules = read(yaml).unwrap().rules();
    let preset = Policy::PredictedLatency.rules();
    assert_eq!(rules.picker, Picker::Best);
    assert_eq!(rules.dispatch, Mode::PullStrict);
    let tier = Filter::HeadroomTier { explore_negative: 0.01 };
    assert_eq!(rules.filters, [Filter::Capacity { most: 1.0 }, tier]);
    assert!(matches!(rules.scorer, Scorer::Headroom { ttft_weight, .. } if ttft_weight == 0.8));
    assert_eq!((rules.affinity, rules.admission), (preset.affinity, preset.admission));
}

#[test]
fn what_is_written_out_reads_back_as_the_same_rules() {
    for policy in Policy::ALL {
        let text = serde_yaml_ng::to_string(&RawPolicy::Preset(policy).spelled_out()).unwrap();
        let back = read(&text).unwrap();
        assert_eq!((back.preset(), back.rules()), (policy, policy.rules()), "{text}");
    }
}

#[test]
fn what_is_not_understood_is_named() {
    assert!(read("wier").unwrap_err().contains("unknown variant `wier`"));
    assert!(read("{ preset: weir, pickr: best }").unwrap_err().contains("unknown field `pickr`"));
    assert!(read("{ picker: bset }").unwrap_err().contains("unknown variant `bset`"));
    let wrong = read("{ scorer: { kind: load-prefix, weight: 1 } }").unwrap_err();
    assert!(wrong.contains("unknown field `weight`"), "{wrong}");
    assert!(read("[weir]").unwrap_err().contains("the name of a policy"));
}

#[test]
fn numbers_that_make_no_sense_are_named_with_their_key() {
    let raw = read("{ affinity: { kind: prefix-cache, threshold: 1.5 } }").unwrap();
    let mut problems = Problems::default();
    raw.check("pools[0].policy", &mut problems);
    assert_eq!(problems.lines(), ["pools[0].policy.affinity.threshold: must be from 0 to 1"]);
}

/// Every kind that a preset uses, and every name, is in the schema that editors check with.
#[test]
fn the_schema_knows_every_kind_that_a_preset_uses() {
    let schema = RawPolicy::json_schema(&mut SchemaGenerator::default());
    let schema = serde_json::to_string(&schema).unwrap();
    for policy in Policy::ALL {
        let rules = serde_json::to_value(policy.rules()).unwrap();
        let mut words = vec![policy.name().to_owned()];
        collect(&rules, &mut words);
        for word in words {
            assert!(schema.contains(&format!("\"{word}\"")), "{word}");
        }
    }
}

/// The names of parts, their kinds and the words that stand for a part.
fn collect(rules: &serde_json::Value, words: &mut Vec<String>) {
    for (key, value) in rules.as_object().unwrap() {
        words.push(key.clone());
        words.extend(value.as_str().map(str::to_owned));
        let parts = value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
        let kinds = parts.iter().filter_map(|part| part["kind"].as_str());
        words.extend(kinds.map(str::to_owned));
    }
}

/// Every kind of every part, as docs/policies.md lists them: each is read and is what is in force.
#[test]
fn every_kind_that_the_page_lists_can_be_written() {
    let page = include_str!("../../../../../docs/policies.md");
    let row = |key: &str| {
        let start = format!("| `{key}`");
        page.lines().find(|line| line.starts_with(&start)).unwrap_or_else(|| panic!("{key}"))
    };
    for (key, kinds) in [
        ("admission", &["open", "latency-slo", "probabilistic"][..]),
        ("affinity", &["none", "warm-wait", "prefix-cache"]),
        ("picker", &["best", "weighted-random", "random", "round-robin", "power-of-two"]),
        ("dispatch", &["push", "pull", "pull-strict", "pull-reservation", "pull-backfill"]),
        (
            "order",
            &[
                "head-start",
                "deadline",
                "slo-deadline",
                "slack",
                "violation",
                "fifo",
                "shortest-first",
            ],
        ),
        ("hopeless", &["demote", "refuse", "serve"]),
        (
            "filters",
            &[
                "headroom",
                "saturation",
                "capacity",
                "staleness",
                "latency",
                "failover",
                "headroom-tier",
            ],
        ),
        (
            "scorer",
            &[
                "none",
                "fewest-tokens",
                "headroom",
                "lowest-latency",
                "load-prefix",
                "least-request",
                "pattern-load",
            ],
        ),
    ] {
        for kind in kinds {
            let value = if key == "filters" { format!("[{kind}]") } else { (*kind).to_owned() };
            let rules = read(&format!("{key}: {value}")).unwrap().rules();
            let written = serde_json::to_value(&rules).unwrap()[key].to_string();
            assert!(written.contains(&format!("\"{kind}\"")), "{key}: {kind} is {written}");
            assert!(row(key).contains(&format!("`{kind}`")), "{key}: {kind} is not on the page");
        }
    }
}

#[test]
fn what_a_part_says_beside_its_kind_is_in_force() {
    let rules = read(
        "filters: [ { kind: saturation, detector: concurrency, max_concurrency: 7,\n\
         limit: { kind: soft-reflective } } ]\n\
         affinity: { kind: prefix-cache, ttft_source: prefill-throughput, peak_prefill_throughput: 9000 }\n\
         scorer: { kind: lowest-latency, target: tpot }\npicker: { kind: top-random, k: 3 }\n",
    );
    let rules = rules.unwrap().rules();
    let [Filter::Saturation { detector, max_concurrency, limit, .. }] = rules.filters[..] else {
        panic!("{rules:?}")
    };
    assert_eq!((detector, max_concurrency), (Detector::Concurrency, 7));
    assert_eq!(limit, UsageLimit::SoftReflective);
    let Affinity::PrefixCache { ttft_source, peak_prefill_throughput, threshold, .. } =
        rules.affinity
    else {
        panic!("{rules:?}")
    };
    assert_eq!(ttft_source, TtftSource::PrefillThroughput);
    assert_eq!((peak_prefill_throughput, threshold), (9000.0, 0.8));
    assert_eq!(rules.scorer, Scorer::LowestLatency { target: weir_schema::Target::Tpot });
    assert_eq!(rules.picker, Picker::TopRandom { k: 3 });
}

/// Llumnix, --failover-domain: an "unknown value panics" there, when the first pod fails.
#[test]
fn an_unknown_failover_domain_is_refused_at_the_start() {
    let wrong = read("{ filters: [ { kind: failover, domain: rack } ] }").unwrap_err();
    assert!(wrong.contains("unknown variant `rack`") && wrong.contains("instance-unit"), "{wrong}");
}

/// Of two small requests behind a big head, how many pass it, under a dispatch that the file names.
fn passed(dispatch: &str) -> usize {
    let profile = tempfile::NamedTempFile::new().unwrap();
    // A fifth of a pod up to 256 tokens, half of one from 4096 on.
    let text = r#"{"indexes": [[16], [256, 4096]], "tputs": [[10.0, 2.0]], "e2e": [[0.5, 1.0]]}"#;
    std::fs::write(profile.path(), text).unwrap();
    let raw = parse(&format!(
        "classes: [ {{ name: a, profile: {} }} ]\npools:\n  - model: m\n    policy: {{ preset: \
         pattern-pull, order: fifo, dispatch: {dispatch} }}\n    pods: [ {{ url: 'http://h:1' }} ]\n",
        profile.path().display()
    ));
    let config = Config::check(&raw.unwrap()).unwrap();
    let mut scheduler = Scheduler::new(config.pools[0].scheduler.clone(), Box::new(Flat));
    let mut actions = Vec::new();
    for id in 0..2 {
        let spec =
            PodSpec { id: PodId(id), name: format!("pod-{id}").into(), class: 0, group: None };
        scheduler.handle(Time::ZERO, Event::PodUp(spec), &mut actions);
    }
    let sizes = [256; 8].into_iter().chain([4096, 256, 256]);
    for (id, tokens) in sizes.enumerate() {
        let request = request(id as u64, tokens);
        scheduler.handle(Time::ZERO, Event::Arrive(Box::new(request)), &mut actions);
    }
    actions.len() - 8
}

fn request(id: u64, tokens: u32) -> Request {
    Request {
        id: RequestId(id),
        arrived: Time::ZERO,
        prompt: PromptSize::Tokens(tokens),
        max_output_tokens: Some(16),
        sequences: 1,
        slo: Slo { ttft: Some(Duration::from_secs(60)), tpot: None },
        band: Band(0),
        tenant: None,
        body_bytes: 1000,
        blocks: std::sync::Arc::from([]),
        turn: weir_core::prefix::Turn::default(),
        streamed: true,
        expires: Time::NEVER,
        immediate: false,
        by_header: false,
        prefilled: false,
        adapter: None,
        name: "".into(),
    }
}

#[test]
fn the_dispatch_that_the_file_names_decides_what_passes_a_head() {
    assert_eq!(passed("pull-strict"), 0);
    assert_eq!(passed("pull-reservation"), 1);
    assert_eq!(passed("pull-backfill"), 2);
}
