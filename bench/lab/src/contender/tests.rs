use std::collections::HashSet;

use super::{posed::Untold, *};
use crate::{
    prompt::Segment,
    sim::{Oracle, Outcome, Run, SimRequest, drive},
    trace::Arrival,
    workload::{Objectives, Replay, Source},
};

/// Prompts that share a third of theirs, in bursts.
fn requests(load: f64, count: usize) -> (Pool, Vec<SimRequest>) {
    let row = |number: u32| Arrival {
        at_s: f64::from(number / 4),
        input_tokens: 300 + 531 * (number % 7),
        output_tokens: 1 + 23 * (number % 11),
        class: None,
        prefix: vec![Segment { id: u64::from(number % 5), tokens: 256 }],
    };
    let source = Replay::new("rows".to_owned(), (0..400).map(row).collect()).unwrap();
    let pool = Pool::of("h100-qwen3-32b-tp2", 3, None).unwrap();
    let objectives = Objectives::two_classes();
    let rate = load * pool.capacity_rps(&source.means(), objectives.tightest_tpot_ms());
    let requests = source.requests(rate, count, &objectives, 3).unwrap();
    (pool, requests)
}

fn run(name: &str, pool: &Pool, requests: &[SimRequest]) -> Run {
    let predictor = Box::new(Oracle::new(pool, 0.05, 1));
    let dispatcher = Contender::named(name).unwrap().build(pool, predictor, 1);
    drive(&pool.seeded(1), pool.scrape_every, dispatcher, requests)
}

#[test]
fn everybody_on_the_roster_can_be_named_once_and_has_a_line() {
    let mut names = HashSet::new();
    for Entry { name, about, rival } in Contender::roster() {
        assert_eq!(Contender::named(name).unwrap().name(), *name);
        assert!(names.insert(name), "{name} twice");
        assert!(about.len() > 10, "{name}");
        let own = name.starts_with("weir") || name.ends_with("-lora");
        assert_eq!(*rival, !own, "{name}");
    }
    for policy in Policy::ALL {
        assert!(names.contains(&policy.name()), "{}", policy.name());
    }
    assert!(Contender::caps().iter().all(|cap| names.contains(cap)));
    let others = names.iter().filter(|name| !name.starts_with("weir")).count();
    assert_eq!(Contender::rivals().len() + 2, others, "but for those of adapters");
}

#[test]
fn a_word_may_mean_several() {
    let count = |word| Contender::several(word).unwrap().len();
    assert_eq!(count("all"), Contender::roster().len());
    let apart = count("variants") + count("weir") + count("llmd-lora") + count("llmd-fc-lora");
    assert_eq!(count("all"), count("rivals") + apart);
    assert!(count("caps") >= 9);
    assert!(Contender::several("nobody").is_err());
}

#[test]
fn a_name_that_nobody_has_is_said() {
    for name in ["nobody", "cap-0", "cap-many", "cap-4-bends", "slices-4-bands", "weir:", "weir:no"]
    {
        let error = Contender::named(name).unwrap_err().to_string();
        assert!(error.contains(name), "{error}");
    }
    assert_eq!(Contender::named("cap-7").unwrap().name(), "cap-7");
    let error = Contender::asked("--rivals", "nobody").unwrap_err().to_string();
    assert!(
        error.starts_with("--rivals \"nobody\"") && error.contains("known are weir,"),
        "{error}"
    );
}

#[test]
fn everybody_serves_a_load_to_its_end_and_survives_overload() {
    for (load, count) in [(0.5, 30), (4.0, 70)] {
        let (pool, requests) = requests(load, count);
        for name in Contender::all() {
            let run = run(name, &pool, &requests);
            let rejected = run.outcomes.iter().filter(|one| **one == Outcome::Rejected).count();
            assert_eq!((run.outcomes.len(), rejected), (count, 0), "{name}");
            let served = run.served().count();
            assert!(served > count / 3, "{name} at {load}: {served} of {count}");
        }
    }
}

#[test]
fn a_contender_decides_the_same_every_time_under_the_same_seed() {
    let (pool, requests) = requests(1.5, 80);
    for name in ["dynamo-kv", "llmd-fc", "sglang-cache-aware", "weir:perfect", "aibrix-pull"] {
        let outcomes = || run(name, &pool, &requests).outcomes;
        assert_eq!(outcomes(), outcomes(), "{name}");
    }
}

#[test]
fn who_knows_the_lengths_changes_nothing_about_them() {
    let (pool, requests) = requests(0.8, 80);
    let run = run("weir:length-known", &pool, &requests);
    for (asked, outcome) in requests.iter().zip(&run.outcomes) {
        if let Outcome::Served(served) = outcome {
            assert_eq!(served.output_tokens, asked.output_tokens);
        }
    }
    assert!(run.samples.iter().any(|sample| {
        let row = weir_schema::Features(sample.row);
        row.get(weir_schema::Feature::ExpectedOutputTokens) == sample.output_tokens as f32
    }));
}

#[test]
fn a_scheduler_that_is_told_nothing_before_serves_all_the_same() {
    let (pool, requests) = requests(0.5, 20);
    for name in ["aibrix-pull", "pattern-pull", "weir:length-known"] {
        let predictor = Box::new(Oracle::new(&pool, 0.05, 1));
        let dispatcher = Contender::named(name).unwrap().build(&pool, predictor, 1);
        let untold = Box::new(Untold(dispatcher));
        let run = drive(&pool.seeded(1), pool.scrape_every, untold, &requests);
        assert_eq!(run.served().count(), 20, "{name}");
    }
}
