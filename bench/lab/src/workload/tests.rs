//! What holds for every source, and what was published about single ones.

use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
    sync::Arc,
};

use weir_core::Policy;

use super::{
    conversation::{Facts, STAGED_SAMPLE},
    length::Length,
    scenarios::{PRODUCTION_ANSWER, PRODUCTION_QUESTION},
    *,
};
use crate::{
    contender::Contender,
    sim::{Oracle, Pool, SimRequest, drive},
};

fn source(name: &str) -> Arc<dyn Source> {
    scenario(name, 1).unwrap_or_else(|error| panic!("{name}: {error:#}"))
}

fn requests(name: &str, rate_rps: f64, count: usize) -> Vec<SimRequest> {
    source(name).requests(rate_rps, count, &Objectives::default(), 7).unwrap()
}

fn arrived_s(one: &SimRequest) -> f64 {
    one.request.arrived.as_micros() as f64 / 1e6
}

fn with_answer(one: &SimRequest) -> &[u64] {
    one.blocks_with_answer.as_ref().unwrap_or(&one.request.blocks)
}

/// Everything that a simulation looks at.
fn facts_of(one: &SimRequest) -> (u64, u32, u32, usize, Vec<u64>, Option<usize>) {
    let blocks = with_answer(one).to_vec();
    (
        one.request.arrived.as_micros(),
        one.input_tokens,
        one.output_tokens,
        one.class,
        blocks,
        one.after,
    )
}

fn listed() -> Vec<String> {
    let names = names().into_iter().map(|(name, _)| name);
    names.filter(|name| !name.contains(['F', 'N'])).collect()
}

#[test]
fn every_source_keeps_what_a_source_promises() {
    let names = listed();
    assert_eq!(names.len(), 29, "{names:?}");
    for name in &names {
        let made = requests(name, 6.0, 400);
        assert_eq!(made.len(), 400, "{name}");
        assert_eq!(source(name).name(), name);
        assert!(made.windows(2).all(|pair| arrived_s(&pair[0]) <= arrived_s(&pair[1])), "{name}");
        for (place, one) in made.iter().enumerate() {
            assert_eq!(one.request.id.0, place as u64, "{name}");
            assert!(one.after.is_none_or(|before| before < place), "{name} {place}");
            assert!(one.input_tokens > 0 && one.output_tokens > 0, "{name} {place}");
            let blocks = one.request.blocks.len() as u32;
            assert!(blocks <= one.input_tokens / BLOCK_TOKENS, "{name} {place}");
            let longer = one.blocks_with_answer.as_ref();
            assert!(longer.is_none_or(|all| all.starts_with(&one.request.blocks)), "{name}");
        }
    }
}

#[test]
fn a_seed_decides_everything_and_another_seed_is_another_stretch() {
    for name in listed() {
        let made = |seed| -> Vec<_> {
            let made = source(&name).requests(6.0, 100, &Objectives::two_classes(), seed).unwrap();
            made.iter().map(facts_of).collect()
        };
        assert_eq!(made(3), made(3), "{name}");
        assert_ne!(made(3), made(4), "{name}");
    }
}

#[test]
fn at_twice_the_rate_the_same_requests_come_in_half_the_time() {
    for name in ["A:open", "C:open", "sharegpt", "bi-pattern", "demo", "sharegpt+flash"] {
        let (slow, fast) = (requests(name, 4.0, 500), requests(name, 8.0, 500));
        for (slow, fast) in slow.iter().zip(&fast) {
            assert_eq!(facts_of(slow).1..=facts_of(slow).2, facts_of(fast).1..=facts_of(fast).2);
            assert!((arrived_s(slow) - 2.0 * arrived_s(fast)).abs() < 1e-4, "{name}");
        }
        assert!((arrived_s(&slow[499]) - 125.0).abs() < 15.0, "{name}");
    }
}

#[test]
fn an_unknown_name_lists_the_known_ones() {
    for name in ["E", "A:closed", "ladder:0", "trace:/no/such/file", "A+noise", "ladder+flash"] {
        assert!(scenario(name, 1).is_err(), "{name}");
    }
    let error = format!("{:#}", scenario("E", 1).err().unwrap());
    assert!(error.contains("A@head:ladder") && error.contains("trace:FILE"), "{error}");
    let error = format!("{:#}", scenario("A+noise", 1).err().unwrap());
    assert!(error.contains("diurnal, flash and steps"), "{error}");
    assert_eq!(source("c@HEAD").name(), "C@head");
}

#[test]
fn a_trace_is_named_by_its_file_and_takes_a_shape() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a+b.csv");
    let rows: String = (0..50).map(|row| format!("{row},{},5\n", 100 + row)).collect();
    std::fs::write(&file, format!("arrival_s,input_tokens,output_tokens\n{rows}")).unwrap();
    let name = format!("trace:{}", file.display());
    assert_eq!(source(&name).name(), "a+b");
    assert_eq!(source(&format!("{name}+flash:2")).name(), "a+b+flash:2");
    assert_eq!(requests(&format!("{name}+diurnal"), 2.0, 100).len(), 100);
}

#[test]
fn the_clipped_normals_of_the_production_profile_have_their_published_moments() {
    // Mean, median and share at the minimum of Normal(729, 13550) on 1..131072 and Normal(300, 2213) on 1..8192.
    for (length, mean, median, at_least) in
        [(PRODUCTION_QUESTION, 5783.0, 742.0, 0.48), (PRODUCTION_ANSWER, 1039.0, 295.0, 0.45)]
    {
        let mut rng = draw::stream(5, "moments");
        let mut drawn: Vec<f64> = (0..200_000).map(|_| f64::from(length.draw(&mut rng))).collect();
        drawn.sort_by(f64::total_cmp);
        let count = drawn.len() as f64;
        let found = drawn.iter().sum::<f64>() / count;
        assert!((found / mean - 1.0).abs() < 0.01, "mean {found} for {mean}");
        // The density at the median is low: a standard error of the sample's median is 38 for the question.
        let found = drawn[drawn.len() / 2];
        assert!((found - median).abs() < 0.15 * median, "median {found} for {median}");
        let found = drawn.iter().filter(|tokens| **tokens == 1.0).count() as f64 / count;
        assert!((found - at_least).abs() < 0.006, "{found} at the minimum for {at_least}");
    }
}

#[test]
fn a_first_turn_shares_its_group_s_system_prompt() {
    let made = requests("A", 50.0, 3000);
    let mut firsts: HashMap<u64, u32> = HashMap::new();
    for one in &made {
        // 1000 tokens are 62 full blocks; the 63rd already has words of the user.
        *firsts.entry(with_answer(one)[61]).or_default() += 1;
    }
    assert_eq!(firsts.len(), 6);
    assert!(firsts.values().all(|users| (400..600).contains(users)), "shuffled: {firsts:?}");
    let own: HashSet<u64> = made.iter().map(|one| with_answer(one)[62]).collect();
    assert_eq!(own.len(), 3000);
    let hit = Means::of(&made).hit;
    assert!((hit - 62.0 * 16.0 / 1030.0).abs() < 0.01, "{hit}");
}

#[test]
fn a_turn_carries_the_whole_conversation_and_waits_for_the_one_before() {
    // At 2 requests per second a stage is 200 requests, so the same 200 users come in every stage.
    let made = requests("C", 2.0, 600);
    assert!(made[..200].iter().all(|one| one.after.is_none()));
    for place in 200..600 {
        let (turn, before) = (&made[place], &made[place - 200]);
        assert_eq!(turn.after, Some(place - 200));
        let question = made[place % 200].input_tokens - 6000;
        assert_eq!(turn.input_tokens, before.input_tokens + before.output_tokens + question);
        assert_eq!(turn.output_tokens, before.output_tokens, "drawn once per user");
        assert!(turn.request.blocks.starts_with(before.blocks_with_answer.as_ref().unwrap()));
    }
}

#[test]
fn in_head_s_reading_every_turn_repeats_the_system_prompt_and_a_stage_starts_empty() {
    let made = requests("C@head", 10.0, 2000);
    // 750 users and 1000 requests per stage: users 0 to 249 come twice in a stage.
    let (first, second, next_stage) = (&made[0], &made[750], &made[1000]);
    let turn = first.input_tokens;
    assert_eq!(second.input_tokens, 2 * turn + first.output_tokens);
    assert_eq!((second.after, next_stage.after), (Some(0), Some(750)));
    assert_eq!(next_stage.input_tokens, turn);
    assert_eq!(next_stage.request.blocks, first.request.blocks, "the same text again");
    assert_ne!(next_stage.blocks_with_answer, first.blocks_with_answer, "but another answer");
}

#[test]
fn open_conversations_have_three_turns_that_wait_for_nobody() {
    let made = requests("C:open", 5.0, 3000);
    assert!(made.iter().all(|one| one.after.is_none()));
    let turns = made.iter().map(|one| (one.input_tokens - 6000) / 2200);
    let most = turns.max().unwrap();
    assert!((1..=4).contains(&most), "{most}");
    let mut starts: HashMap<u64, u32> = HashMap::new();
    for one in &made {
        // The first block that is not the system prompt's names the conversation.
        *starts.entry(with_answer(one)[375]).or_default() += 1;
    }
    assert_eq!(starts.values().max(), Some(&3));
    assert!(starts.len() > 1000 && starts.len() < 2500, "{}", starts.len());
}

#[test]
fn a_conversation_that_would_grow_too_long_starts_again() {
    let longest =
        requests("ladder", 1.0, usize::MAX).iter().map(|one| one.input_tokens).max().unwrap();
    assert!((100_000..=131_072).contains(&longest), "{longest}");
}

#[test]
fn a_ladder_has_its_own_rates_whatever_is_asked_for() {
    let ladder = source("ladder");
    let stages = ladder.stages().unwrap();
    let rates: Vec<f64> = stages.iter().map(|stage| stage.0).filter(|rate| *rate > 0.0).collect();
    assert_eq!(rates, [1.0, 5.0, 1.0, 5.0, 1.0, 5.0, 1.0, 5.0]);
    assert_eq!(staged_requests(stages), 4800);
    let made = ladder.requests(1000.0, usize::MAX, &Objectives::none(), 1).unwrap();
    assert_eq!(made.len(), 4800);
    let mut start_s = 0.0;
    for (rate_rps, for_s) in stages {
        let inside =
            made.iter().map(arrived_s).filter(|at| (start_s..start_s + for_s).contains(at));
        assert_eq!(inside.count(), (rate_rps * for_s) as usize);
        start_s += for_s;
    }
    assert_eq!(source("ladder:0.5").stages().unwrap()[2], (2.5, 200.0));
    assert_eq!(source("ladder-5").stages(), Some(&[(5.0, 800.0)][..]));
    assert!(source("production").stages().is_none());
}

#[test]
fn a_ladder_of_more_requests_than_are_made_is_refused_by_name() {
    assert_eq!(staged_requests(source("ladder:2083").stages().unwrap()), 9_998_400);
    for (name, requests) in
        [("ladder:2084", "10003200"), ("ladder:1e9", "4800000000000"), ("ladder:1e306", "inf")]
    {
        let error = scenario(name, 1).err().unwrap().to_string();
        let said = format!("{name:?} is of {requests} requests, and at most 10000000 are made");
        assert!(error.starts_with(&said), "{error}");
    }
}

#[test]
fn the_means_of_published_stages_are_of_all_their_requests() {
    let listed = names().into_iter().filter_map(|(name, _)| scenario(&name, 1).ok());
    let staged: Vec<usize> =
        listed.filter_map(|source| source.stages().map(staged_requests)).collect();
    assert!(staged.len() > 8, "{staged:?}");
    assert!(staged.iter().all(|requests| *requests <= STAGED_SAMPLE), "{staged:?}");
}

#[test]
fn users_of_an_earlier_stage_come_back_in_a_later_one() {
    let made = requests("D:ladder", 1.0, 1951);
    // 200, 400, 600 and 800 requests: the 750 users of the fourth stage have been there 3, 2, 1 and 0 times.
    let depth: HashMap<u32, usize> =
        made[1200..1950].iter().fold(HashMap::new(), |mut seen, one| {
            *seen.entry(u32::from(one.after.is_some())).or_default() += 1;
            seen
        });
    assert_eq!((depth[&1], depth[&0]), (600, 150));
    assert_eq!(made[1200].after, Some(600));
    assert_eq!(made[1950].after, Some(1200), "round the users once more");
}

#[test]
fn sharegpt_has_the_means_that_vllm_s_benchmark_counts() {
    // 229,711 prompt and 203,068 generated tokens in 1000 requests: vllm-project/vllm pull request 18566.
    let means = source("sharegpt").means();
    assert!((means.input_tokens / 229.7 - 1.0).abs() < 0.03, "{means:?}");
    assert!((means.output_tokens / 203.1 - 1.0).abs() < 0.03, "{means:?}");
    assert_eq!(means.hit, 0.0);
    let made = requests("sharegpt", 10.0, 5000);
    assert!(made.iter().all(|one| one.input_tokens + one.output_tokens <= 2048));
}

#[test]
fn patterns_come_in_the_shares_of_their_rates_and_bring_their_class() {
    let objectives = Objectives::multi_pattern();
    let made = source("multi-pattern").requests(8.0, 20_000, &objectives, 2).unwrap();
    for (class, share) in [0.642, 4.2, 0.535, 2.622].iter().map(|rate| rate / 7.999).enumerate() {
        let found = made.iter().filter(|one| one.class == class).count() as f64 / 20_000.0;
        assert!((found - share).abs() < 0.015, "class {class}: {found} for {share}");
    }
    let longest = made.iter().filter(|one| one.class == 3);
    assert!(longest.clone().all(|one| one.output_tokens == 208));
    let slo = longest.clone().next().unwrap().request.slo;
    assert_eq!(slo.ttft.unwrap().as_millis(), 11_700, "20 s less a latency of 8.3 s");
    let made = source("bi-pattern").requests(8.0, 1000, &Objectives::default(), 2).unwrap();
    assert!(made.iter().all(|one| one.class == 0), "classes without the name take all");
}

#[test]
fn the_demo_s_mix_has_its_classes_and_its_means() {
    let means = source("demo").means();
    assert!((means.input_tokens - 1000.0).abs() < 50.0, "{means:?}");
    assert!((means.output_tokens - 200.0).abs() < 10.0, "{means:?}");
    let made = source("demo").requests(20.0, 4000, &Objectives::three_classes(), 3).unwrap();
    let batch = made.iter().filter(|one| one.class == 2).count();
    assert!((1050..1350).contains(&batch), "{batch}");
    assert!(made.iter().filter(|one| one.class == 2).all(|one| one.request.band.0 == -1));
    let mut first = HashMap::<u64, usize>::new();
    let blocks = made.iter().filter_map(|one| one.request.blocks.first());
    blocks.for_each(|block| *first.entry(*block).or_default() += 1);
    let shared = first.values().filter(|requests| **requests > 1).count();
    assert_eq!(shared, 12, "four system prompts per class");
}

#[test]
fn a_shape_moves_the_times_and_keeps_rate_and_requests() {
    let rate_in = |made: &[SimRequest], from_s: f64, to_s: f64| {
        let inside = made.iter().filter(|one| (from_s..to_s).contains(&arrived_s(one))).count();
        inside as f64 / (to_s - from_s)
    };
    let flat = requests("sharegpt", 10.0, 10_000);
    let crowd = requests("sharegpt+flash", 10.0, 10_000);
    // A tenth of the time at three times the rate of the rest: 10 / 1.2 and 30 / 1.2 requests per second.
    assert!((rate_in(&crowd, 500.0, 600.0) / 25.0 - 1.0).abs() < 0.1);
    assert!((rate_in(&crowd, 0.0, 500.0) / 8.333 - 1.0).abs() < 0.1);
    assert!(arrived_s(&crowd[9999]) < 1000.0);
    let sizes =
        |made: &[SimRequest]| -> Vec<u32> { made.iter().map(|one| one.input_tokens).collect() };
    assert_eq!(sizes(&crowd), sizes(&flat));
    let day = requests("sharegpt+diurnal", 10.0, 10_000);
    let (night, noon) = (rate_in(&day, 0.0, 100.0), rate_in(&day, 450.0, 550.0));
    assert!((2.3..3.4).contains(&(noon / night)), "{night} at night, {noon} at noon");
    let steps = requests("sharegpt+steps:1,0,3", 10.0, 10_000);
    assert_eq!(rate_in(&steps, 334.0, 666.0), 0.0);
    assert!((rate_in(&steps, 667.0, 1000.0) / 22.5 - 1.0).abs() < 0.1);
    for bad in ["diurnal:2", "flash:0", "steps:", "steps:0,0", "steps:1,-1", "flash:x"] {
        assert!(bad.parse::<Shape>().is_err(), "{bad}");
    }
}

#[test]
fn an_engine_finds_the_whole_history_of_a_turn_in_its_cache() {
    let facts = Facts {
        groups: 2,
        users_per_group: 5,
        system_tokens: 320,
        question: Length::Fixed(100),
        answer: Length::Fixed(60),
        context_tokens: 10_000,
        usual: (5.0, 100),
    };
    let stages = vec![(0.1, 100.0), (0.1, 100.0), (0.1, 100.0)];
    let source = Conversation::new("small", facts, Reading::Kept, Some(stages), 1);
    let made = source.requests(1.0, usize::MAX, &Objectives::default(), 1).unwrap();
    let pool = Pool::of("h100-llama-3.1-8b-tp1", 1, None).unwrap();
    let contender = Contender::named(Policy::ALL[0].name()).unwrap();
    let dispatcher = contender.build(&pool, Box::new(Oracle::new(&pool, 0.0, 1)), 1);
    let run = drive(&pool.seeded(1), pool.scrape_every, dispatcher, &made);
    let served: Vec<_> = run.served().collect();
    assert_eq!(served.len(), 30);
    for (one, served) in made.iter().zip(&served).skip(10) {
        // All that was said before but the last token, which the engine never computed, in full blocks.
        let before = one.input_tokens - 100;
        assert_eq!(served.cached_tokens, (before - 1) / 16 * 16, "{one:?}");
    }
    let cached: u32 = served.iter().map(|one| one.cached_tokens).sum();
    let prompts: u32 = made.iter().map(|one| one.input_tokens).sum();
    let (found, means) = (f64::from(cached) / f64::from(prompts), source.means());
    // The block that the last token of an answer fills is in no cache.
    assert!(found <= means.hit && found > means.hit - 0.03, "{found} of {means:?}");
}

/// Prints the table of docs/workloads.md; run it with `--ignored --nocapture`.
#[test]
#[ignore = "prints a table"]
fn the_means_of_every_source() {
    for name in listed() {
        let means = source(&name).means();
        println!(
            "| {name} | {:.0} | {:.0} | {:.3} |",
            means.input_tokens, means.output_tokens, means.hit
        );
    }
}

/// Holds the means of every public slice in `$WEIR_TRACES` against the statistics beside them, when that folder is given.
#[test]
fn the_means_of_the_public_traces_are_the_published_ones() {
    let Some(folder) = std::env::var_os("WEIR_TRACES").map(PathBuf::from) else { return };
    let mut table = csv::Reader::from_path(folder.join("STATS.csv")).unwrap();
    let mut compared = 0;
    for row in table.deserialize() {
        let row: HashMap<String, String> = row.unwrap();
        let figure = |key: &str| row[key].parse::<f64>().ok();
        let replay = Replay::read(&folder.join(&row["file"])).unwrap();
        let means = replay.means();
        let near = |found: f64, key: &str, by: f64| {
            let published = figure(key).unwrap();
            assert!((found / published - 1.0).abs() < by, "{} {key}: {found}", row["file"]);
        };
        near(means.input_tokens, "in_mean", 1e-3);
        near(means.output_tokens, "out_mean", 5e-3);
        match figure("ideal_prefix_hit") {
            // Counted there in blocks of 512 tokens, here of 16.
            Some(hit) => assert!((means.hit - hit).abs() < 0.01, "{}: {}", row["file"], means.hit),
            None => assert_eq!(means.hit, 0.0),
        }
        let rate_rps = figure("rps").unwrap();
        let made = replay.requests(rate_rps, 200, &Objectives::default(), 3).unwrap();
        assert!(made.windows(2).all(|pair| arrived_s(&pair[0]) <= arrived_s(&pair[1])));
        compared += 1;
    }
    assert!(compared >= 9, "{compared} files");
}
