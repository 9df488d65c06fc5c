use std::sync::Arc;

use super::*;
use crate::{
    prompt::Segment,
    trace::Arrival,
    workload::{Means, Replay},
};

/// Rows a second apart that share half of their prompt, on two pods.
fn setting(requests: usize) -> Setting {
    let row = |number: u32| Arrival {
        at_s: f64::from(number),
        input_tokens: 400 + 37 * (number % 23),
        output_tokens: 20 + 11 * (number % 7),
        class: None,
        prefix: vec![Segment { id: u64::from(number % 3), tokens: 256 }],
    };
    let rows = (0..500).map(row).collect();
    Setting {
        pool: Pool::of("h100-qwen3-32b-tp2", 2, None).unwrap(),
        gpu: "h100-qwen3-32b-tp2".to_owned(),
        source: Arc::new(Replay::new("rows".to_owned(), rows).unwrap()),
        objectives: Objectives::two_classes(),
        mix: "two".to_owned(),
        requests,
        knowledge: Knowledge::default(),
        dispatchers: 1,
    }
}

fn contender(name: &str) -> Contender {
    Contender::named(name).unwrap()
}

#[test]
fn rows_are_all_classes_first_and_their_sums_agree() {
    let rows = at_load(&setting(400), &contender("weir"), 0.6, &[1, 2]).unwrap();
    let classes: Vec<_> = rows.iter().map(|row| row.class.as_str()).collect();
    assert_eq!(classes, ["all", "interactive", "batch"]);
    assert_eq!(rows[0].requests, 2 * 380, "without the warm-up");
    assert_eq!(rows[1].requests + rows[2].requests, rows[0].requests);
    assert!((rows[1].goodput_rps + rows[2].goodput_rps - rows[0].goodput_rps).abs() < 1e-9);
    assert_eq!((rows[0].load, rows[0].max_load, rows[0].at), (Some(0.6), None, None));
    assert!(rows[0].attainment_ci.is_some() && rows[0].prefix_hit > 0.1);
    assert!(rows[0].ttft_ms_p50 <= rows[0].ttft_ms_p95 && rows[0].ttft_ms_p95 < rows[0].e2e_ms_p95);
}

#[test]
fn rows_say_whether_their_run_was_too_short_for_the_load() {
    let least = least_requests(&setting(1), 0.4);
    let short = |requests, load| {
        let rows = at_load(&setting(requests), &contender("round-robin"), load, &[1]).unwrap();
        rows.iter().map(|row| row.too_short).collect::<Vec<_>>()
    };
    assert_eq!(short(least, 0.4), [false; 3]);
    assert_eq!(short(least, 0.5), [true; 3]);
    let sought = max_load(&setting(60), &contender("round-robin"), 0.9, &[1]).unwrap();
    assert!(sought[0].max_load > Some(0.1) && sought[0].too_short, "{:?}", sought[0]);
}

#[test]
fn rates_of_a_class_that_is_rare_add_up_over_the_seeds_in_which_it_did_not_come() {
    let mut rare = setting(40);
    rare.objectives.classes[1].share = 0.01;
    let seeds: Vec<u64> = (1..=4).collect();
    let rows = at_load(&rare, &contender("weir"), 0.5, &seeds).unwrap();
    let each = seeds.iter().map(|seed| at_load(&rare, &contender("weir"), 0.5, &[*seed]).unwrap());
    let without = each.filter(|rows| rows.iter().all(|row| row.class != "batch")).count();
    assert!(rows.len() == 3 && (1..4).contains(&without), "{without}");
    for of in [
        |row: &Row| row.goodput_rps,
        |row: &Row| row.goodput_tokens_per_s,
        |row: &Row| row.throughput_rps,
    ] {
        assert!((of(&rows[1]) + of(&rows[2]) - of(&rows[0])).abs() < 1e-9);
    }
    assert_eq!(rows[2].idle_share, rows[0].idle_share);
}

#[test]
fn a_rate_in_no_time_is_no_number() {
    let rows = at_load(&setting(1), &contender("weir"), 0.5, &[1]).unwrap();
    assert!(
        rows[0].requests == 1 && rows[0].goodput_rps.is_nan() && rows[0].throughput_rps.is_nan()
    );
}

#[test]
fn goodput_is_the_offered_rate_when_everybody_attains() {
    let mut easy = setting(400);
    easy.objectives = Objectives::default();
    let rows = at_load(&easy, &contender("least-request"), 0.3, &[1]).unwrap();
    let offered_rps = 0.3 * easy.capacity_rps();
    assert_eq!(rows[0].attainment, 1.0);
    assert!((rows[0].goodput_rps / offered_rps - 1.0).abs() < 0.05, "{}", rows[0].goodput_rps);
    assert!((rows[0].throughput_rps / offered_rps - 1.0).abs() < 0.05);
    assert!(rows[0].idle_share > 0.0 && rows[0].idle_share < 0.8, "{}", rows[0].idle_share);
}

#[test]
fn a_study_is_the_same_every_time_on_one_thread_or_two() {
    let setting = setting(200);
    let study = |threads| {
        let job = |name: &'static str| {
            let setting = &setting;
            let job = move || at_load(setting, &contender(name), 0.9, &[1, 2]).unwrap();
            Box::new(job) as Box<dyn FnOnce() -> Vec<Row> + Send>
        };
        in_parallel(["weir", "random", "load-prefix"].map(job).into(), threads)
    };
    let alone = study(1);
    assert_eq!(alone, study(1));
    assert_eq!(alone, study(2));
    assert_ne!(alone[0], alone[1]);
}

#[test]
fn the_highest_load_keeps_the_promise_and_the_next_one_does_not() {
    let mut setting = setting(150);
    setting.objectives = Objectives::default();
    let rows = max_load(&setting, &contender("least-request"), 0.95, &[1]).unwrap();
    let highest = rows[0].max_load.unwrap();
    assert!(highest > 0.1 && rows[0].attainment >= 0.95, "{highest}: {}", rows[0].attainment);
    assert_eq!((rows[0].load, rows[0].at, rows[0].bounded), (None, Some(0.95), true));
    let above = at_load(&setting, &contender("least-request"), highest + 0.01, &[1]).unwrap();
    assert!(above[0].attainment < 0.95, "{}", above[0].attainment);
}

#[test]
fn giving_a_load_up_early_changes_no_answer() {
    let mut setting = setting(200);
    let promised = Objectives::two_classes();
    for (name, objectives) in [("least-request", promised.clone()), ("weir", promised)] {
        setting.objectives = objectives;
        let (who, seeds) = (contender(name), [1, 2, 3]);
        let rows = max_load(&setting, &who, 0.9, &seeds).unwrap();
        let highest = rows[0].max_load.unwrap();
        let interactive = |load| at_load(&setting, &who, load, &seeds).unwrap()[1].attainment;
        assert!(interactive(highest) >= 0.9 - 1e-9, "{name} at {highest}");
        assert!(interactive(highest + 0.01) < 0.9, "{name} above {highest}");
        let there = at_load(&setting, &who, highest, &seeds).unwrap();
        assert_eq!(there[1].attainment, rows[1].attainment, "{name}");
        assert_eq!(there[0].e2e_ms_mean, rows[0].e2e_ms_mean, "{name}");
    }
}

#[test]
fn with_no_objectives_whoever_is_served_attains() {
    let mut setting = setting(200);
    setting.objectives = Objectives::none();
    let rows = at_load(&setting, &contender("weir"), 0.9, &[1]).unwrap();
    assert_eq!((rows[0].attainment, rows[0].attainment_large5), (1.0, Some(1.0)));
    assert_eq!(rows.len(), 1, "its one class is all of them");
}

#[test]
fn predictions_without_error_are_graded_better_than_those_with_much() {
    let mape = |error| {
        let setting = Setting { knowledge: Knowledge::Oracle { error }, ..setting(300) };
        at_load(&setting, &contender("weir"), 0.6, &[1]).unwrap()[0].mape_tpot.unwrap()
    };
    let (none, much) = (mape(0.0), mape(0.4));
    assert!(much > none + 0.05, "{none} {much}");
    let fitted = Setting { knowledge: Knowledge::Fitted, ..setting(300) };
    assert!(at_load(&fitted, &contender("weir"), 0.6, &[1]).unwrap()[0].mape_ttft.unwrap() < 0.5);
}

#[test]
fn a_row_survives_its_file_with_what_was_not_measured() {
    let rows = at_load(&setting(60), &contender("round-robin"), 0.4, &[1]).unwrap();
    let json = serde_json::to_string(&rows).unwrap();
    assert!(json.contains("\"attainment_ci\":null"), "{json}");
    let read: Vec<Row> = serde_json::from_str(&json).unwrap();
    assert_eq!(read.len(), rows.len());
    assert_eq!((read[0].attainment_ci, read[0].ttft_ms_p99), (None, rows[0].ttft_ms_p99));
    assert_eq!((read[0].load, read[0].requests), (rows[0].load, rows[0].requests));
}

#[test]
fn a_file_that_does_not_say_how_many_dispatchers_there_were_had_one() {
    let said = Row { dispatchers: 3, ..Row::default() };
    let mut row = serde_json::to_value(&said).unwrap();
    assert_eq!(serde_json::from_value::<Row>(row.clone()).unwrap().dispatchers, 3);
    row.as_object_mut().unwrap().remove("dispatchers");
    assert_eq!(serde_json::from_value::<Row>(row).unwrap().dispatchers, 1);
}

#[test]
fn several_dispatchers_decide_apart_and_the_same_every_time() {
    let study = |dispatchers| {
        let setting = Setting { dispatchers, ..setting(300) };
        at_load(&setting, &contender("weir"), 0.8, &[1, 2]).unwrap()
    };
    let (one, two) = (study(1), study(2));
    assert_eq!((one[0].dispatchers, two[0].dispatchers), (1, 2));
    assert_eq!((one[0].requests, two[0].requests), (570, 570));
    assert_eq!(two, study(2));
    assert_ne!(two[0].ttft_ms_mean, one[0].ttft_ms_mean);
}

#[test]
fn each_of_several_dispatchers_has_a_predictor_of_its_own_seed() {
    let seeds = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let given = seeds.clone();
    let make = move |_: &Pool, seed: u64| {
        given.lock().push(seed);
        Box::new(Chain::new()) as Box<dyn Predict>
    };
    let knowledge = Knowledge::Custom(Arc::new(make));
    let setting = Setting { knowledge, dispatchers: 3, ..setting(20) };
    setting.dispatcher(&contender("weir"), 7).unwrap();
    let mut given = seeds.lock().clone();
    assert_eq!(given[0], 7, "that of the one that would stand there alone");
    given.sort_unstable();
    given.dedup();
    assert_eq!(given.len(), 3, "{given:?}");
}

#[test]
fn a_study_without_a_seed_or_with_a_load_of_nothing_is_an_error() {
    let (setting, weir) = (setting(10), contender("weir"));
    assert!(at_load(&setting, &weir, 0.5, &[]).is_err());
    assert!(at_load(&setting, &weir, 0.0, &[1]).is_err());
    assert!(max_load(&setting, &weir, 1.5, &[1]).is_err());
}

#[test]
fn requests_that_were_simulated_are_counted() {
    let (before, here) = (simulated(), simulated_here());
    once(&setting(50), &contender("random"), 0.5, 1).unwrap();
    assert!(simulated() >= before + 50);
    assert_eq!(simulated_here(), here + 50, "what others simulate is not this thread's");
    assert!(setting(1).source.means() != Means::default());
}

mod command_line {
    use std::{io::Write, path::Path};

    use clap::Parser;

    use crate::cli::Cli;

    /// A trace of so many rows, a second apart.
    fn trace(folder: &Path, rows: usize) -> String {
        let path = folder.join("plain.csv");
        let mut file = std::fs::File::create(&path).unwrap();
        writeln!(file, "arrival_s,input_tokens,output_tokens").unwrap();
        (0..rows).for_each(|row| writeln!(file, "{row},{},{}", 300 + row, 9 + row % 5).unwrap());
        path.to_str().unwrap().to_owned()
    }

    fn sim(words: &str) -> Result<(), String> {
        let words = std::iter::once("weir-bench").chain(words.split_whitespace());
        let cli = Cli::try_parse_from(words).map_err(|error| error.to_string())?;
        cli.run().map(drop).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn rows_of_every_load_and_policy_are_in_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let (trace, json) = (trace(folder.path(), 60), folder.path().join("rows.json"));
        let words = "--policy weir,random --pods 1 --load 0.3,0.6 --seeds 2 --requests 60";
        sim(&format!("sim --trace {trace} {words} --json {}", json.display())).unwrap();
        let report: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
        assert!(report["requests_per_s"].as_f64().unwrap() > 0.0, "{report}");
        let rows: Vec<super::Row> = serde_json::from_value(report["rows"].clone()).unwrap();
        let of_all = rows.iter().filter(|row| row.class == "all");
        let asked: Vec<_> = of_all.map(|row| (row.load, row.policy.as_str())).collect();
        let (low, high) = (Some(0.3), Some(0.6));
        assert_eq!(asked, [(low, "weir"), (low, "random"), (high, "weir"), (high, "random")]);
        assert_eq!(rows[0].workload, "plain");
    }

    #[test]
    fn objectives_and_pods_come_from_files() {
        let folder = tempfile::tempdir().unwrap();
        let trace = trace(folder.path(), 60);
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let slo = write("mine.yaml", "classes:\n- {name: chat, band: 2, ttft_ms: 500}\n");
        let pool = write("pool.json", r#"{"pods": [{"gpu": "h100-qwen3-32b-tp2", "count": 2}]}"#);
        let json = folder.path().join("rows.json");
        let words = "--policy weir --at 0.9 --seeds 1 --requests 40 --prediction oracle:0";
        let files = format!("--slo {slo} --pool {pool} --json {}", json.display());
        sim(&format!("sim --trace {trace} {words} {files}")).unwrap();
        let text = std::fs::read_to_string(json).unwrap();
        assert!(text.contains("\"mine\"") && text.contains("\"chat\""), "{text}");
        let bad = write("bad.yaml", "classes:\n- {name: chat, ttft_ms: -5}\n");
        let error = sim(&format!("sim --trace {trace} --load 1 --slo {bad}")).unwrap_err();
        assert!(error.contains("chat") && error.contains("above zero"), "{error}");
    }

    #[test]
    fn pods_that_hold_nothing_are_refused_with_why() {
        let folder = tempfile::tempdir().unwrap();
        let trace = trace(folder.path(), 60);
        let error = |flag: &str, name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            let file = format!("{flag} {}", path.display());
            sim(&format!("sim --trace {trace} --load 1 {file}")).unwrap_err()
        };
        let tight = error("--slo", "tight.yaml", "classes: [{name: chat, tpot_ms: 5}]");
        assert!(tight.contains("an empty step takes at least"), "{tight}");
        assert!(tight.contains("tightest objective is 5 ms"), "{tight}");
        let text = "pods: [{gpu: h100-qwen3-32b-tp2, kv_blocks: 1}]";
        let full = error("--pool", "full.yaml", text);
        assert!(full.contains("the largest KV cache has room for 0 tokens"), "{full}");
        let sensitivity = format!(
            "sensitivity --trace {trace} --slo {}",
            folder.path().join("tight.yaml").display()
        );
        assert!(sim(&sensitivity).unwrap_err().contains("an empty step takes at least"));
    }

    #[test]
    fn a_row_says_how_it_was_predicted() {
        let folder = tempfile::tempdir().unwrap();
        let (trace, json) = (trace(folder.path(), 60), folder.path().join("rows.json"));
        for (asked, said) in
            [("oracle", "oracle"), ("oracle:0.2", "oracle:0.2"), ("fitted", "fitted")]
        {
            let words = "--policy weir --pods 1 --load 0.3 --seeds 1 --requests 40";
            let words = format!("{words} --prediction {asked} --json {}", json.display());
            sim(&format!("sim --trace {trace} {words}")).unwrap();
            let text = std::fs::read_to_string(&json).unwrap();
            let report: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(report["rows"][0]["prediction"], said);
        }
    }

    #[test]
    fn one_dispatcher_gives_the_rows_of_a_command_that_names_none_and_two_say_so() {
        let folder = tempfile::tempdir().unwrap();
        let (trace, json) = (trace(folder.path(), 60), folder.path().join("rows.json"));
        let rows = |words: &str| -> serde_json::Value {
            let asked = "--policy weir,random --pods 2 --load 0.9 --seeds 2 --requests 60";
            sim(&format!("sim --trace {trace} {asked} {words} --json {}", json.display())).unwrap();
            let text = std::fs::read_to_string(&json).unwrap();
            let mut report: serde_json::Value = serde_json::from_str(&text).unwrap();
            report["rows"].take()
        };
        let (none, one, two) = (rows(""), rows("--dispatchers 1"), rows("--dispatchers 2"));
        assert_eq!(none, one);
        assert_eq!((&one[0]["dispatchers"], &two[0]["dispatchers"]), (&1.into(), &2.into()));
        assert_ne!(one[0]["ttft_ms_mean"], two[0]["ttft_ms_mean"]);
    }

    #[test]
    fn traffic_is_made_at_a_load_or_comes_at_rates_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let json = folder.path().join("rows.json");
        let row = |words: &str| -> super::Row {
            sim(&format!("{words} --policy weir,weir --seeds 1 --json {}", json.display()))
                .unwrap();
            let text = std::fs::read_to_string(&json).unwrap();
            let report: serde_json::Value = serde_json::from_str(&text).unwrap();
            let rows: Vec<super::Row> = serde_json::from_value(report["rows"].clone()).unwrap();
            assert_eq!(rows.len(), 2, "named twice, asked once");
            rows[0].clone()
        };
        let made = row("sim --scenario sharegpt --load 0.3 --pods 1 --requests 60");
        assert_eq!((made.workload.as_str(), made.load), ("sharegpt", Some(0.3)));
        let staged = row("sim --scenario ladder-1 --pods 2 --requests 40");
        assert_eq!((staged.workload.as_str(), staged.load), ("ladder-1", None));
        assert_eq!(staged.requests, 38);
    }

    #[test]
    fn adapters_are_of_the_traffic_and_how_many_run_at_once_of_the_pods() {
        let folder = tempfile::tempdir().unwrap();
        let (trace, json) = (trace(folder.path(), 60), folder.path().join("rows.json"));
        let row = |words: &str| -> super::Row {
            let asked = "--policy llmd-lora --pods 2 --load 0.6 --seeds 1 --requests 60";
            sim(&format!("sim --trace {trace} {asked} {words} --json {}", json.display())).unwrap();
            let text = std::fs::read_to_string(&json).unwrap();
            let report: serde_json::Value = serde_json::from_str(&text).unwrap();
            serde_json::from_value(report["rows"][0].clone()).unwrap()
        };
        let slow = "--lora-load-ms 500";
        let (none, one) = (row(slow), row(&format!("{slow} --adapters 6 --max-loras 1")));
        assert_eq!((none.workload.as_str(), one.workload.as_str()), ("plain", "plain+adapters:6"));
        let (even, all) = (row("--adapters 6 --adapters-skew 0"), row("--adapters 6"));
        assert_eq!(even.workload, "plain+adapters:6:0");
        assert!(one.ttft_ms_mean > all.ttft_ms_mean, "{one:?} {all:?}");
        assert_ne!(one.fingerprints, all.fingerprints);
    }

    #[test]
    fn what_is_wrong_with_the_arguments_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let trace = trace(folder.path(), 10);
        for (words, said) in [
            (
                "--load 1 --policy weir,wier",
                "--policy \"wier\": there is no policy \"wier\"; known are all, rivals, caps, variants, weir, round-robin",
            ),
            ("--load 1,x", "\"x\" is not a number from"),
            ("--load 0", "not a number from"),
            ("--load -1", "\"-1\" is not a number from"),
            ("--load 1,-0.5", "\"-0.5\" is not a number from"),
            ("--load 1000000", "not a number from 0.001 to 1000"),
            ("--load 1 --at 0.9", "cannot be used with"),
            ("", "--load LIST or --at SHARE"),
            ("--load 1 --scenario A", "cannot be used with"),
            ("--at 1.5", "at most 1"),
            ("--load 1 --gpu abacus", "known are "),
            ("--at 0.9 --slo none", "without an objective any load"),
            ("--load 1 --slo seven", "neither a file nor built in"),
            ("--load 1 --prediction tarot", "known are oracle"),
            ("--load 1 --prediction oracle:-1", "no number from 0 on"),
            ("--load 1 --prediction oracle:5", "0.05 is 5 %"),
            ("--load 1 --pods 0", "--pods"),
            ("--load 1 --pods 18446744073709551615", "--pods"),
            ("--load 1 --seeds 0", "--seeds"),
            ("--load 1 --seeds 18446744073709551615", "--seeds"),
            ("--load 1 --requests 0", "--requests"),
            ("--load 1 --requests 18446744073709551615", "--requests"),
            ("--load 1 --chunk 0", "--chunk"),
            ("--load 1 --dispatchers 0", "1..=16"),
            ("--load 1 --adapters 0", "--adapters"),
            ("--load 1 --adapters-skew 1", "--adapters <N>"),
            ("--load 1 --adapters 4 --adapters-skew nan", "the skew of adapters is from 0 on"),
            ("--load 1 --lora-load-ms much", "not a number from 0 to"),
            ("--load 1 --lora-load-ms 1e9", "not a number from 0 to"),
            ("--load 1 --max-loras 4 --pool /tmp/x.yaml", "cannot be used with"),
            ("--load 1 --dispatchers 17", "1..=16"),
            ("--at 0.9 --series /tmp/x.json", "cannot be used with"),
            ("--load 1 --json /dev/null/at/all.json", "cannot write /dev/null"),
        ] {
            let error = sim(&format!("sim --trace {trace} {words}")).unwrap_err();
            assert!(error.contains(said), "{words}: {error}");
        }
        let error = sim("sim --load 1 --trace /nowhere.csv").unwrap_err();
        assert!(error.contains("cannot read /nowhere.csv"), "{error}");
        assert!(sim("sim --load 1").unwrap_err().contains("--trace"));
        let error = sim("sim --load 1 --scenario Z").unwrap_err();
        assert!(error.contains("no scenario is called"), "{error}");
        let error = sim("sim --scenario ladder-1 --series /tmp/x.json").unwrap_err();
        assert!(error.contains("--series is of a --load"), "{error}");
        let (one, two) = (folder.path().join("x.json"), folder.path().join("./x.json"));
        let files = format!("--json {} --series {}", one.display(), two.display());
        let error = sim(&format!("sim --trace {trace} --load 1 {files}")).unwrap_err();
        assert!(error.contains("--json and --series are one file"), "{error}");
        let error = sim(&format!("limits --trace {trace} --load 1 --series x.json")).unwrap_err();
        assert!(error.contains("limits have no --series"), "{error}");
        let error = sim(&format!("limits --trace {trace} --load 1 --dispatchers 2")).unwrap_err();
        assert!(error.contains("limits are of one dispatcher"), "{error}");
        let error = sim("sim --load 1 --scenario ladder-1").unwrap_err();
        assert!(error.contains("rates of its own"), "{error}");
    }
}
