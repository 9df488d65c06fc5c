mod prefill;
mod ranges;
mod sealed;

use std::path::Path;

use serde_yaml_ng::Value;

use weir_schema::profile::Percentile;

use super::{
    load::{DEFAULT_FILE, parse},
    *,
};
use crate::learn::profile::RawProfile;

fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn problems(yaml: &str) -> String {
    let raw = match parse(yaml) {
        Ok(raw) => raw,
        Err(problems) => return problems.to_string(),
    };
    Config::check(&raw).unwrap_err().to_string()
}

#[test]
fn the_shipped_file_is_the_default() {
    assert_eq!(parse(DEFAULT_FILE).unwrap(), RawConfig::default());
    Config::check(&RawConfig::default()).unwrap();
}

/// Keys of `all` that `file` does not have.
fn missing(key: &str, all: &Value, file: Option<&Value>) -> Vec<String> {
    let Some(file) = file else { return vec![key.to_owned()] };
    let pairs: Vec<(String, &Value, Option<&Value>)> = match all {
        Value::Mapping(all) => all
            .iter()
            .map(|(name, value)| {
                (format!("{key}.{}", name.as_str().unwrap()), value, file.get(name))
            })
            .collect(),
        Value::Sequence(all) => all
            .iter()
            .enumerate()
            .map(|(index, value)| (format!("{key}[{index}]"), value, file.get(index)))
            .collect(),
        _ => vec![],
    };
    pairs.into_iter().flat_map(|(key, all, file)| missing(&key, all, file)).collect()
}

#[test]
fn the_shipped_file_has_every_key() {
    let all = serde_yaml_ng::to_value(RawConfig::default()).unwrap();
    let file: Value = serde_yaml_ng::from_str(DEFAULT_FILE).unwrap();
    // The scheduler's copy of scrape.stale_after_ms.
    assert_eq!(missing("", &all, Some(&file)), [".pull.stale_after_ms"]);
}

#[test]
fn every_key_of_the_shipped_file_has_a_comment_above_it() {
    let mut above = "";
    let mut bare = Vec::new();
    for line in DEFAULT_FILE.lines() {
        let key = line.trim_start().trim_start_matches("- ");
        let is_key = key.split_once(':').is_some_and(|(key, _)| !key.contains([' ', '#', '{']));
        // A list in one line or a section says itself what it is.
        let explained = above.trim_start().trim_start_matches("- ").starts_with('#');
        if is_key && !explained {
            bare.push(key);
        }
        above = line;
    }
    // Sections, and names that an operator chooses.
    let want = [
        "admin:",
        "name: h100-qwen3-32b-tp2",
        "interactive:",
        "standard: { band: 0, ttft_ms: 4000, tpot_ms: 100 }",
        "batch: { band: -1, ttft_ms: 30000, tpot_ms: 100 }",
        "auto: standard",
        "default: standard",
        "flex: batch",
        "priority: interactive",
        "telemetry:",
    ];
    assert_eq!(bare, want);
}

#[test]
fn the_shipped_schema_is_the_one_the_code_has() {
    let path = repository().join("config/weir.schema.json");
    let shipped = std::fs::read_to_string(path).unwrap();
    assert!(shipped == schema(), "run `weir schema > config/weir.schema.json`");
}

#[test]
fn the_reference_is_the_schema_in_words() {
    let path = repository().join("docs/configuration.md");
    let want = reference::markdown();
    if std::env::var_os("WEIR_WRITE_DOCS").is_some() {
        std::fs::write(&path, &want).unwrap();
    }
    let page = std::fs::read_to_string(path).unwrap();
    assert!(page == want, "run this test with WEIR_WRITE_DOCS=1");
}

#[test]
fn every_key_of_the_default_is_in_the_reference() {
    let page = reference::markdown();
    let all = serde_yaml_ng::to_value(RawConfig::default()).unwrap();
    for name in missing("", &all, Some(&Value::Null)) {
        let key = name.rsplit('.').next().unwrap();
        assert!(page.contains(&format!("| `{key}` |")), "{name}");
    }
}

#[test]
fn the_examples_can_be_loaded() {
    for name in [
        "one-machine.yaml",
        "two-dispatchers.yaml",
        "prefill-decode.yaml",
        "demo.yaml",
        "kubernetes.yaml",
        "from-llm-d.yaml",
        "from-aibrix.yaml",
    ] {
        let file = repository().join("config/examples").join(name);
        let config = Origin { file: Some(file), ..Origin::default() }.load();
        config.unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn an_unknown_key_is_refused_with_its_line_and_a_suggestion() {
    let text = problems("pools:\n  - model: m\n    pods:\n      - ulr: http://a:1\n");
    let want = "line 4: pools[0].pods[0].ulr: unknown key `ulr`; did you mean `url`?";
    assert_eq!(text, want);
    let text = problems("# a comment\nlisen: 127.0.0.1:1\n");
    assert_eq!(text, "line 2: lisen: unknown key `lisen`; did you mean `listen`?");
}

#[test]
fn a_value_of_the_wrong_kind_is_refused_with_its_key_and_line() {
    let text = problems("threads: many\n");
    assert_eq!(text, "line 1: threads: is string \"many\", write a whole number");
    let text = problems("pools:\n  - model: m\n    policy: wier\n");
    assert!(text.contains("did you mean `weir`?"), "{text}");
}

#[test]
fn a_kind_that_is_not_known_is_not_said_to_be_missing_too() {
    let of = |policy: &str| {
        problems(&format!(
            "pools:\n  - model: m\n    policy: {{ preset: weir, {policy} }}\n    pods: [ {{ ulr: x }} ]\n"
        ))
    };
    let pods = "line 4: pools[0].pods[0].ulr: unknown key `ulr`; did you mean `url`?";
    for (policy, key) in
        [("filters: [ { kind: zz } ]", "filters[0].kind"), ("scorer: { kind: zz }", "scorer.kind")]
    {
        let said = of(policy);
        let lines: Vec<&str> = said.lines().collect();
        let [kind, other] = lines[..] else { panic!("{said}") };
        let start = format!("line 3: pools[0].policy.{key}: unknown value `zz`");
        assert!(kind.starts_with(&start), "{said}");
        assert_eq!(other, pods);
    }
    let said = of("scorer: { stretegy: most }");
    assert!(said.contains("pools[0].policy.scorer: missing field `kind`"), "{said}");
}

#[test]
fn mistakes_in_keys_and_kinds_are_found_all_at_once() {
    let text = problems(
        "lisen: x\npools:\n  - modle: m\n    pods: [ { url: 3 } ]\n  - pods: none\nqueue: 7\n\
         objectives: { a: { band: high } }\nscrape: { every_ms: -1 }\n",
    );
    let want = "line 1: lisen: unknown key `lisen`; did you mean `listen`?\n\
                line 3: pools[0].modle: unknown key `modle`; did you mean `model`?";
    assert!(text.starts_with(want), "{text}");
    for (line, key) in
        [(5, "pools[1].pods"), (6, "queue"), (7, "objectives.a.band"), (8, "scrape.every_ms")]
    {
        assert!(text.contains(&format!("\nline {line}: {key}: ")), "{key} in\n{text}");
    }
    assert!(!text.contains("expected"), "{text}");
    // What is no YAML has one.
    let text = problems("listen: x\npools: [\n");
    assert_eq!(text.lines().count(), 1, "{text}");
}

#[test]
fn a_repeated_key_is_refused_wherever_it_stands_and_the_rest_is_read() {
    let said = problems(
        "queue: { max_wait_s: 1 }\nthreads: many\nqueue: { max_wat_s: 2 }\nobjectives:\n  standard: { ttft_ms: 100 }\n\
         \x20 standard: { band: 1 }\nservice_tiers: { auto: standard, auto: standard }\npools:\n- model: m\n  model: n\n\
         \x20 policy: { scorer: { kind: none, kind: none } }\n  pods: [ { ulr: x } ]\n",
    );
    let want = "line 2: threads: is string \"many\", write a whole number\n\
                line 3: queue: is in line 1 already; write it once\n\
                line 3: queue.max_wat_s: unknown key `max_wat_s`; did you mean `max_wait_s`?\n\
                line 6: objectives.standard: is in line 5 already; write it once\n\
                line 7: service_tiers.auto: is in line 7 already; write it once\n\
                line 10: pools[0].model: is in line 9 already; write it once\n\
                line 11: pools[0].policy.scorer.kind: is in line 11 already; write it once\n\
                line 12: pools[0].pods[0].ulr: unknown key `ulr`; did you mean `url`?";
    assert_eq!(said, want);
    // A name that is repeated, in a text that nothing else is wrong with.
    for text in ["objectives: { a: {}, a: {} }\n", "service_tiers: { auto: batch, auto: batch }\n"]
    {
        let said = problems(text);
        assert!(said.ends_with(": is in line 1 already; write it once"), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    // What is no YAML is said too.
    let said = problems("listen: x\nlisten: y\npools: [\n");
    assert!(said.starts_with("line 2: listen: is in line 1 already"), "{said}");
    assert_eq!(said.lines().count(), 2, "{said}");
}

#[test]
fn a_default_stands_in_no_line() {
    let text = "objectives: { gold: {} }\ndefault_objective: gold\n\
                pools: [ { model: m, pods: [ { url: 'http://a:1' } ] } ]\nservice_tiers: { auto: none }\n";
    let said = |text: &str| {
        let ConfigError::Wrong { problems, .. } = Origin::default().load_text(text).unwrap_err()
        else {
            panic!("{text}")
        };
        problems.lines()
    };
    let want =
        "line 4: service_tiers.auto: \"none\" is not among the objectives; write one of gold";
    assert_eq!(said(text), [want]);
    let tiers = text.find("service_tiers").unwrap();
    let want = "service_tiers.auto: \"standard\" is not among the objectives; write one of gold \
                (said by the default; the file does not have this key)";
    assert_eq!(said(&text[..tiers])[0], want);
    assert_eq!(said("threads: 1\n"), ["pools: name at least one model and its pods"]);
}

#[test]
fn every_problem_is_reported_at_once() {
    let text = problems(
        "listen: nowhere\nthreads: 0\npull: { kv_limit: 2, stale_after_ms: 1 }\n\
         queue: { max_wait_s: -1 }\nspool: { segment_bytes: 1 }\ntrainer: { eta: 0 }\n\
         log: { level: 'weir=loud' }\ndefault_objective: none\nservice_tiers: { flex: none }\n\
         upstream: { max_attempts: 0, stall_timeout_s: 0 }\n\
         pools: [ { model: m, pods: [ { url: 'ftp://x', class: gpu } ] }, { model: m,\n\
         policy: { slo_buffer: 0 }, default_objective: gold,\n\
         default_capacity: 0, max_model_len: 0, migration_limit: 17 } ]\n",
    );
    for key in [
        "listen: \"nowhere\"",
        "threads: must",
        "pull.kv_limit: must",
        "pull.stale_after_ms: set scrape.stale_after_ms",
        "queue.max_wait_s: must",
        "spool.segment_bytes: must",
        "trainer.eta: must be above 0",
        "log.level: ",
        "default_objective: ",
        "service_tiers.flex: \"none\" is not among",
        "upstream.max_attempts: must",
        "upstream.stall_timeout_s: must",
        "pools[0].pods[0].url: \"ftp://x\"",
        "pools[0].pods[0].class: \"gpu\"",
        "pools[1]: the model name \"m\" is taken",
        "pools[1].pods: name at least one pod",
        "pools[1].policy.slo_buffer: must be above 0",
        "pools[1].default_objective: \"gold\" is not among",
        "pools[1].default_capacity: must be above 0",
        "pools[1].max_model_len: must be above 0",
        "pools[1].migration_limit: must be at most 16",
    ] {
        assert!(text.lines().any(|line| line.starts_with(key)), "no {key:?} in\n{text}");
    }
}

#[test]
fn a_file_without_pools_does_not_get_those_of_the_default() {
    let text = problems("threads: 2\n");
    assert_eq!(text, "pools: name at least one model and its pods");
}

#[test]
fn what_is_said_outside_the_file_wins() {
    let origin = Origin {
        listen: Some("127.0.0.1:1".to_owned()),
        admin_listen: Some("127.0.0.1:2".to_owned()),
        policy: Some(weir_core::Policy::RoundRobin),
        ..Origin::default()
    };
    let config = origin.load().unwrap();
    assert_eq!(config.listen, "127.0.0.1:1".parse().unwrap());
    assert_eq!(config.admin, "127.0.0.1:2".parse().unwrap());
    let scheduler = &config.pools[0].scheduler;
    assert_eq!(scheduler.policy, weir_core::Policy::RoundRobin);
    assert_eq!(scheduler.rules(), weir_core::Policy::RoundRobin.rules());
}

/// The shipped profiles, one of each kind.
fn shipped_profiles() -> Vec<std::path::PathBuf> {
    let name = |kind| format!("config/profiles/h100-qwen3-32b-tp2.{kind}.json");
    let kinds = ["aibrix", "llumnix-ttft", "llumnix-tpot"];
    kinds.map(|kind| repository().join(name(kind))).to_vec()
}

#[test]
fn profiles_reach_the_scheduler_and_the_evaluator_of_every_pool() {
    let mut raw = RawConfig::default();
    raw.classes[0].profile = Some(RawProfile::Files(shipped_profiles()));
    let config = Config::check(&raw).unwrap();
    let [pool] = config.pools.as_slice() else { panic!("{config:?}") };
    let cost = pool.scheduler.profiles.cost(0, 1024, 256).unwrap().unwrap();
    assert!(cost.inside && cost.capacity > 1.0, "{cost:?}");
    let (class, profile) = &pool.profiles[0];
    assert_eq!((*class, profile.chunk_tokens), (0, 8192));
    assert!(profile.profile.ttft.is_some() && profile.profile.tpot.is_some());
    // Patterns that have no room for a token every 50 ms.
    assert_eq!(config.notes().len(), 3);
    assert!(config.notes()[0].contains("infeasible"));
}

#[test]
fn a_profile_is_a_file_or_a_list_and_its_percentile_one_of_four() {
    let yaml =
        |class: &str| format!("classes: [ {{ name: a, {class} }} ]\npools: [ {{ model: m }} ]\n");
    let raw = parse(&yaml("profile: p.json, profile_percentile: p95")).unwrap();
    assert_eq!(raw.classes[0].profile, Some(RawProfile::File("p.json".into())));
    assert_eq!(raw.classes[0].profile_percentile, Percentile::P95);
    let raw = parse(&yaml("profile: [a.json, b.json]")).unwrap();
    let files = RawProfile::Files(vec!["a.json".into(), "b.json".into()]);
    assert_eq!(raw.classes[0].profile, Some(files));
    let text = problems(&yaml("profile: { file: p.json }"));
    assert!(text.contains("a file or a list of files"), "{text}");
    let text = problems(&yaml("profile_percentile: p59"));
    assert!(text.ends_with("did you mean `p50`?"), "{text}");
    let text = problems(&yaml("profile: nowhere.json"));
    assert!(text.contains("classes[0].profile: nowhere.json: cannot be read"), "{text}");
}

#[test]
fn the_age_of_a_scrape_reaches_the_scheduler() {
    let mut raw = RawConfig::default();
    raw.scrape.stale_after_ms = 700;
    let config = Config::check(&raw).unwrap();
    assert_eq!(config.pools[0].scheduler.pull.stale_after_ms, 700);
}

#[test]
fn an_alias_and_an_adapter_need_names_that_nothing_else_has() {
    for (names, blank) in [
        ("aliases: [n, ''], adapters: [n]", "aliases"),
        ("aliases: [n], adapters: ['', n]", "adapters"),
    ] {
        let text = problems(&format!(
            "pools:\n  - {{ model: m, {names}, pods: [ {{ url: 'http://a:1' }} ] }}\n"
        ));
        let want = format!(
            "pools[0].{blank}: a name must not be empty\n\
             pools[0]: the model name \"n\" is taken already; name it once"
        );
        assert_eq!(text, want);
    }
}

#[test]
fn a_queue_has_room_for_the_largest_body() {
    let mut raw = RawConfig::default();
    raw.queue.max_bytes = u64::from(raw.limits.max_body_bytes);
    assert!(Config::check(&raw).is_ok());
    raw.queue.max_bytes -= 1;
    let problems = Config::check(&raw).unwrap_err().lines();
    assert_eq!(
        problems,
        ["queue.max_bytes: must be at least 1 and not below limits.max_body_bytes"]
    );
}

#[test]
fn a_pod_of_two_pools_is_known_to_be_shared() {
    let mut raw = RawConfig::default();
    let first = raw.pools[0].clone();
    raw.pools.push(RawPool { model: "other".to_owned(), ..first });
    let own = crate::fleet::config::RawPod { url: "http://own:1".to_owned(), ..Default::default() };
    raw.pools[1].pods.push(own);
    let config = Config::check(&raw).unwrap();
    let shared = |pool: &PoolConfig| -> Vec<bool> {
        pool.members.seats.iter().map(|seat| seat.shared).collect()
    };
    assert_eq!(
        (shared(&config.pools[0]), shared(&config.pools[1])),
        (vec![true], vec![true, false])
    );
}

#[test]
fn every_preset_has_an_example_that_says_so() {
    for policy in weir_core::Policy::ALL {
        let name = format!("config/examples/{}.yaml", policy.name());
        let origin = Origin { file: Some(repository().join(&name)), ..Origin::default() };
        let config = origin.load().unwrap_or_else(|error| panic!("{name}: {error}"));
        for pool in &config.pools {
            assert_eq!(pool.scheduler.policy, policy, "{name}");
            assert_eq!(pool.scheduler.rules(), policy.rules(), "{name} changes nothing");
        }
    }
}

#[test]
fn places_and_capacity_reach_the_scheduler() {
    let raw = parse(
        "pools:\n  - model: m\n    default_capacity: 4\n    pods: [ { url: 'http://h:1', node: n } ]\n",
    );
    let mut raw = raw.unwrap();
    raw.classes = RawConfig::default().classes;
    let config = Config::check(&raw).unwrap();
    let scheduler = &config.pools[0].scheduler;
    assert_eq!(scheduler.load(0, 256, 16), Some(0.25));
    assert_eq!(&*scheduler.places["h:1"].node, "n");
    // The engines of a server stand and fall with it.
    raw.classes[0].data_parallel_size = 2;
    let config = Config::check(&raw).unwrap();
    let places = &config.pools[0].scheduler.places;
    for engine in ["h:1@0", "h:1@1"] {
        assert_eq!((&*places[engine].node, &*places[engine].unit), ("n", "h:1"));
    }
}

#[test]
fn a_mark_of_the_byte_order_is_no_part_of_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("weir.yaml");
    std::fs::write(&file, format!("\u{feff}{DEFAULT_FILE}")).unwrap();
    let origin = Origin { file: Some(file), ..Origin::default() };
    assert_eq!(origin.text().unwrap(), DEFAULT_FILE);
    assert!(origin.load().is_ok());
}

#[test]
fn an_api_that_others_reach_without_keys_is_noteworthy() {
    let noted = |listen: &str, keys: &str| {
        let raw = parse(&format!("{DEFAULT_FILE}\n")).unwrap();
        let raw = RawConfig {
            listen: listen.to_owned(),
            keys: serde_yaml_ng::from_str(keys).unwrap(),
            ..raw
        };
        Config::check(&raw).unwrap().notes().iter().any(|note| note.starts_with("listen: "))
    };
    assert!(noted("0.0.0.0:8080", "[]"));
    assert!(!noted("127.0.0.1:8080", "[]"));
    let key = format!("[ {{ sha256: {}, tenant: t }} ]", "ab".repeat(32));
    assert!(!noted("0.0.0.0:8080", &key));
}

#[test]
fn no_two_listeners_take_one_port() {
    let said = |listen: &str, admin: &str, replicas: &str| {
        let mut raw = RawConfig { listen: listen.to_owned(), ..RawConfig::default() };
        raw.admin.listen = admin.to_owned();
        raw.replicas.listen = Some(replicas.to_owned());
        raw.replicas.others = vec!["weir-1:8082".to_owned()];
        Config::check(&raw).map_or_else(|problems| problems.lines(), |_| vec![])
    };
    let [one, two, three] = ["127.0.0.1:8080", "127.0.0.1:8081", "127.0.0.1:8082"];
    let of =
        |key: &str, other: &str| format!("{key}: has the port of {other}; give it one of its own");
    assert_eq!(said(one, two, three), [""; 0]);
    assert_eq!(said(one, one, three), [of("admin.listen", "listen")]);
    assert_eq!(said(one, two, one), [of("replicas.listen", "listen")]);
    assert_eq!(said(one, two, two), [of("replicas.listen", "admin.listen")]);
    assert_eq!(said("0.0.0.0:8080", two, one), [of("replicas.listen", "listen")]);
    assert_eq!(said(one, two, "0.0.0.0:8081"), [of("replicas.listen", "admin.listen")]);
    // Of another address, and where the system gives the port.
    assert_eq!(said(one, "127.0.0.2:8080", "[::1]:8080"), [""; 0]);
    assert_eq!(said("127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"), [""; 0]);
}
