use std::{fs, path::Path};

use tempfile::TempDir;
use weir_schema::{
    FEATURE_COUNT, Feature, Features, Row, Sample,
    manifest::{CURRENT_FILE, MANIFEST_FILE, MODEL_FILE, current_bundle},
    round::ROUND_FILE,
    spool::segment_name,
};

use super::*;
use crate::synthetic::{self, NOW_UNIX_MS, World};

struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn spool(&self) -> std::path::PathBuf {
        self.0.path().join("spool")
    }

    fn bundles(&self) -> std::path::PathBuf {
        self.0.path().join("bundles")
    }

    fn config(&self) -> TrainConfig {
        let (spool, bundles) = (self.spool(), self.bundles());
        TrainConfig { spool, bundles, ..TrainConfig::default() }
    }

    fn open(&self) -> Trainer {
        self.open_with(self.config())
    }

    fn open_with(&self, config: TrainConfig) -> Trainer {
        synthetic::xgboost();
        Trainer::open(config).unwrap()
    }

    fn manifest(&self) -> Manifest {
        let current = current_bundle(&self.bundles()).unwrap().unwrap();
        serde_json::from_slice(&fs::read(current.join(MANIFEST_FILE)).unwrap()).unwrap()
    }

    fn graph(&self) -> Graph {
        let current = current_bundle(&self.bundles()).unwrap().unwrap();
        Graph::decode(&fs::read(current.join(MODEL_FILE)).unwrap()).unwrap()
    }
}

#[test]
fn a_pod_class_is_known_by_its_name_wherever_it_stands_in_the_configuration() {
    let named = |pod_class: &str, classes: &[&str]| {
        let mut sample = Sample { pod_class: pod_class.into(), ..synthetic::sample() };
        let logged = Features(sample.row).get(Feature::PodClass);
        let classes: Vec<String> = classes.iter().map(|name| (*name).to_owned()).collect();
        let known = place_class(&mut sample, &classes);
        (known, Features(sample.row).get(Feature::PodClass) - logged)
    };
    let logged = Features(synthetic::sample().row).get(Feature::PodClass);
    assert_eq!(named("a100", &["h200", "h100", "a100"]), (true, 2.0 - logged));
    assert_eq!(named("a100", &["h200"]), (false, 0.0), "nobody asks about it any more");
    assert_eq!((named("", &["h200"]), named("a100", &[])), ((true, 0.0), (true, 0.0)));
}

fn round(trainer: &mut Trainer) -> Round {
    trainer.run_at(NOW_UNIX_MS).unwrap()
}

fn published(round: Round) -> (u64, Holdout) {
    match round {
        Round::Published { version, holdout, .. } => (version, holdout),
        other => panic!("not published: {other:?}"),
    }
}

#[test]
fn a_model_learns_the_world_down_to_its_noise() {
    let place = Place::new();
    World::new(1).write(&place.spool(), 1, 8000);
    let (version, holdout) = published(round(&mut place.open()));
    // The mean absolute error of noise with a standard deviation of 5 % is 4 %.
    let gains = place.manifest().gains;
    let sum: f64 = gains.iter().map(|gain| gain.ttft).sum();
    assert!((sum - 1.0).abs() < 1e-9, "what the features bring is known: {gains:?}");
    for error in [holdout.ttft, holdout.tpot] {
        assert!(error.mape < 0.047, "{error:?}");
        assert!(error.prior_mape > 0.25, "{error:?}");
        assert!((1.0..1.12).contains(&error.ratio_p90), "{error:?}");
        assert_eq!(error.rows, 1200);
    }
    println!("holdout of 8000 samples, noise floor 0.040: {holdout:?}");

    let manifest = place.manifest();
    assert_eq!((version, manifest.version, manifest.schema), (1, 1, schema_hash().to_owned()));
    assert_eq!((manifest.rows, manifest.trees), ([8000, 8000], 50));
    assert_eq!(manifest.features.len(), FEATURE_COUNT);
    assert_eq!(manifest.holdout.ttft.rows, holdout.ttft.rows);
    assert!((manifest.holdout.ttft.mape - holdout.ttft.mape).abs() < 1e-9);
    assert_eq!(manifest.golden.len(), 16);
    for golden in &manifest.golden {
        let answer = place.graph().latency_ms(&[golden.features().unwrap()]).unwrap()[0];
        assert!((answer[0] / golden.ttft_ms - 1.0).abs() < 1e-4, "{answer:?} {golden:?}");
        assert!((answer[1] / golden.tpot_ms - 1.0).abs() < 1e-4, "{answer:?} {golden:?}");
    }
}

#[test]
fn a_spool_with_missing_values_is_learned_too() {
    let place = Place::new();
    let mut world = World::new(2);
    world.missing = 0.2;
    world.write(&place.spool(), 1, 3000);
    let (_, holdout) = published(round(&mut place.open()));
    assert!(holdout.ttft.mape < holdout.ttft.prior_mape / 2.0, "{holdout:?}");
    assert!(place.manifest().golden.iter().all(|golden| golden.ttft_ms.is_finite()));
}

#[test]
fn a_round_needs_enough_samples_and_then_enough_new_ones() {
    let place = Place::new();
    let mut trainer = place.open();
    let mut world = World::new(3);
    let missing = round(&mut trainer);
    assert!(matches!(missing, Round::NotEnough { have: 0, need: 200, .. }), "{missing:?}");
    world.write(&place.spool(), 1, 150);
    let few = round(&mut trainer);
    assert!(matches!(few, Round::NotEnough { have: 150, need: 200, .. }), "{few:?}");
    world.write(&place.spool(), 1, 150);
    let mut next = |world: &World| trainer.run_at(world.now_unix_ms()).unwrap();
    assert_eq!(published(next(&world)).0, 1);
    assert!(matches!(next(&world), Round::Unchanged { fresh: 0, .. }));
    world.write(&place.spool(), 2, 19);
    assert!(matches!(next(&world), Round::Unchanged { fresh: 19, .. }));
    world.write(&place.spool(), 2, 1700);
    assert_eq!(published(next(&world)).0, 2);

    let metrics = trainer.metrics();
    assert_eq!((metrics.rounds, metrics.published, metrics.published_version), (6, 2, 2));
    assert_eq!((metrics.not_enough, metrics.unchanged, metrics.failed), (2, 2, 0));
    assert_eq!(metrics.window_samples, 2019);
    assert_eq!(metrics.rows, [2019, 2019]);
    assert!(metrics.serving.is_some() && metrics.candidate.is_some());
}

#[test]
fn what_is_new_may_have_to_be_more_than_is_held_out() {
    let place = Place::new();
    let mut world = World::new(14);
    let mut config = TrainConfig { min_new_samples: 300, ..place.config() };
    (config.window.max_samples, config.window.per_bucket_cap) = (1000, 20);
    world.write(&place.spool(), 1, 2000);
    let mut trainer = place.open_with(config.clone());
    let fresh = |trainer: &mut Trainer, world: &World| match trainer.run_at(world.now_unix_ms()) {
        Ok(Round::Unchanged { fresh, .. }) => Some(fresh),
        Ok(Round::Published { .. } | Round::NotBetter { .. }) => None,
        other => panic!("{other:?}"),
    };
    assert_eq!(fresh(&mut trainer, &world), None);
    let full = trainer.metrics().window_samples;
    assert!(full <= 1000, "{full}");
    world.write(&place.spool(), 2, 299);
    assert_eq!(fresh(&mut trainer, &world), Some(299));
    world.write(&place.spool(), 2, 1);
    assert_eq!(fresh(&mut trainer, &world), None, "15 % of the window are {}", full * 15 / 100);
    // Another trainer knows by the bundle's date what that one has not seen.
    drop(trainer);
    let published = place.manifest().trained_at_unix_ms;
    let mut trainer = place.open_with(config);
    let seen = usize::try_from(world.now_unix_ms() - published).unwrap() / 10;
    assert_eq!(fresh(&mut trainer, &world), Some(seen));
    world.write(&place.spool(), 2, 250 - seen);
    assert_eq!(fresh(&mut trainer, &world), Some(250));
    world.write(&place.spool(), 2, 50);
    assert_eq!(fresh(&mut trainer, &world), None);
}

#[test]
fn the_newest_slice_is_never_trained_on() {
    let place = Place::new();
    let mut world = World::new(4);
    world.write(&place.spool(), 1, 1700);
    // The world changes just before the newest slice: a model that had seen it would be near.
    world.factor = 3.0;
    world.write(&place.spool(), 1, 300);
    let (_, holdout) = published(round(&mut place.open()));
    assert!((0.6..0.72).contains(&holdout.ttft.mape), "{holdout:?}");
    assert!(holdout.ttft.ratio_p90 > 2.8, "{holdout:?}");
}

#[test]
fn a_worse_model_does_not_replace_the_one_being_served() {
    let place = Place::new();
    let mut world = World::new(5);
    world.write(&place.spool(), 1, 4000);
    let first = place.open().run_at(world.now_unix_ms()).unwrap();
    assert_eq!(published(first).0, 1);
    let before = fs::read(place.bundles().join(CURRENT_FILE)).unwrap();

    // One tree of depth 1 is no match for what the first model learned.
    let weak = TrainConfig { trees: 1, depth: 1, ..place.config() };
    let mut trainer = place.open_with(weak);
    let nothing_new = trainer.run_at(world.now_unix_ms()).unwrap();
    assert!(matches!(nothing_new, Round::Unchanged { .. }), "the first has seen it all");
    world.write(&place.spool(), 1, 500);
    let refused = trainer.run_at(world.now_unix_ms()).unwrap();
    let Round::NotBetter { candidate, serving, serving_version: 1, .. } = refused else {
        panic!("{refused:?}")
    };
    assert!(candidate.ttft.mape > 2.0 * serving.ttft.mape, "{candidate:?} {serving:?}");
    assert_eq!((candidate.ttft.rows, serving.ttft.rows), (500, 500), "what neither has seen");
    assert_eq!(fs::read(place.bundles().join(CURRENT_FILE)).unwrap(), before);
    assert_eq!(trainer.metrics().refused_by_gate, 1);
    assert!(matches!(round(&mut trainer), Round::Unchanged { .. }), "the refused one was counted");
}

#[test]
fn answers_that_come_at_once_do_not_end_training() {
    let place = Place::new();
    let mut world = World::new(13);
    world.write(&place.spool(), 1, 2000);
    let mut trainer = place.open();
    assert_eq!(published(trainer.run_at(world.now_unix_ms()).unwrap()).0, 1);
    // The world changes, and the answers of one pod are kept back until they are whole.
    world.factor = 3.0;
    let lines: Vec<String> = (0..3000)
        .map(|at| {
            let sample = world.next();
            let tpot_ms = if at % 300 == 7 { Some(0.003) } else { sample.tpot_ms };
            Sample { tpot_ms, ..sample }
        })
        .map(|sample| serde_json::to_string(&sample).unwrap() + "\n")
        .collect();
    fs::write(place.spool().join(segment_name(2)), lines.concat()).unwrap();
    let (version, holdout) = published(trainer.run_at(world.now_unix_ms()).unwrap());
    assert_eq!((version, holdout.ttft.rows, holdout.tpot.rows), (2, 750, 748), "{holdout:?}");
}

#[test]
fn a_clock_that_was_ahead_once_does_not_end_training() {
    let place = Place::new();
    let mut world = World::new(12);
    world.write(&place.spool(), 1, 1000);
    let ahead_ms = world.now_unix_ms() + 24 * 60 * 60 * 1000;
    assert_eq!(published(place.open().run_at(ahead_ms).unwrap()).0, 1);
    assert_eq!(place.manifest().trained_at_unix_ms, ahead_ms);

    // The world changes, so that what comes is plainly better.
    world.factor = 3.0;
    world.write(&place.spool(), 1, 2000);
    let mut trainer = place.open();
    assert_eq!(published(trainer.run_at(world.now_unix_ms()).unwrap()).0, 2);
    assert_eq!(trainer.told_ahead, Some(1));
    assert_eq!(place.manifest().trained_at_unix_ms, world.now_unix_ms());
}

#[test]
fn a_bundle_of_another_schema_or_a_broken_one_is_replaced() {
    let place = Place::new();
    World::new(6).write(&place.spool(), 1, 1000);
    published(round(&mut place.open()));
    let path = current_bundle(&place.bundles()).unwrap().unwrap().join(MANIFEST_FILE);
    let foreign = fs::read_to_string(&path).unwrap().replace(schema_hash(), "0123456789abcdef");
    fs::write(&path, foreign).unwrap();
    let weak = || TrainConfig { trees: 1, depth: 1, ..place.config() };
    assert_eq!(published(round(&mut place.open_with(weak()))).0, 2);

    let path = current_bundle(&place.bundles()).unwrap().unwrap().join(MODEL_FILE);
    fs::write(path, "no graph").unwrap();
    assert_eq!(published(round(&mut place.open_with(weak()))).0, 3);
}

#[test]
fn a_bundle_of_other_pod_classes_is_not_compared_with() {
    let place = Place::new();
    let mut world = World::new(15);
    world.write(&place.spool(), 1, 4000);
    let of = |classes: &[&str]| TrainConfig {
        classes: classes.iter().map(|name| (*name).to_owned()).collect(),
        ..place.config()
    };
    let mut first = place.open_with(of(&["h100"]));
    assert_eq!(published(first.run_at(world.now_unix_ms()).unwrap()).0, 1);
    drop(first);
    // Worse by far, but every dispatcher refuses what rows of other classes were learned from.
    world.write(&place.spool(), 1, 10);
    let mut second = place.open_with(TrainConfig { trees: 1, depth: 1, ..of(&["a100", "h100"]) });
    assert_eq!(published(second.run_at(world.now_unix_ms()).unwrap()).0, 2);
    assert_eq!(place.manifest().classes, ["a100", "h100"]);
}

#[test]
fn the_same_samples_give_the_same_graph() {
    let graph = |place: &Place| {
        World::new(7).write(&place.spool(), 1, 600);
        published(round(&mut place.open()));
        place.manifest().sha256
    };
    assert_eq!(graph(&Place::new()), graph(&Place::new()));
}

#[test]
fn a_target_without_samples_answers_its_prior() {
    let place = Place::new();
    let mut world = World::new(8);
    fs::create_dir_all(place.spool()).unwrap();
    let lines: Vec<String> = (0..500)
        .map(|_| Sample { tpot_ms: None, output_tokens: 1, ..world.next() })
        .map(|sample| serde_json::to_string(&sample).unwrap() + "\n")
        .collect();
    fs::write(place.spool().join(segment_name(1)), lines.concat()).unwrap();
    let (_, holdout) = published(round(&mut place.open()));
    assert_eq!((holdout.tpot.rows, place.manifest().rows), (0, [500, 0]));
    let mut features = Features(world.row());
    features.set(Feature::PriorTpotMs, 21.5);
    let rows: [Row; 1] = [features.0];
    assert_eq!(place.graph().latency_ms(&rows).unwrap()[0][1], 21.5);
}

#[test]
fn garbage_in_the_spool_is_told_and_does_not_stop_a_round() {
    let place = Place::new();
    let mut world = World::new(9);
    world.write(&place.spool(), 1, 300);
    fs::create_dir(place.spool().join(segment_name(2))).unwrap();
    fs::write(place.spool().join(segment_name(3)), b"\xff\xff\n{\nnull\n[1]\n{\"row\":").unwrap();
    world.write(&place.spool(), 4, 300);
    let unstreamed = Sample { streamed: false, ..world.next() };
    let old = Sample { at_unix_ms: 5, ..world.next() };
    let lines = [unstreamed, old].map(|sample| serde_json::to_string(&sample).unwrap());
    fs::write(place.spool().join(segment_name(5)), lines.join("\n") + "\n{\"torn").unwrap();

    let mut trainer = place.open();
    let Round::Published { skipped, rows, .. } = round(&mut trainer) else { panic!() };
    assert_eq!(rows, [600, 600]);
    let problems = skipped.problems.clone();
    let expected = Skipped {
        not_json: 3,
        not_utf8: 1,
        torn: 1,
        too_old: 1,
        no_target: 1,
        unreadable: 1,
        problems,
        ..Skipped::default()
    };
    assert_eq!(skipped, expected);
    assert!(skipped.problems[0].contains(&segment_name(2)), "{skipped:?}");
    assert_eq!(trainer.metrics().skipped, skipped);
}

#[test]
fn a_round_that_cannot_publish_is_an_error_and_is_tried_again() {
    let place = Place::new();
    World::new(10).write(&place.spool(), 1, 300);
    let mut trainer = place.open();
    let blocked = place.bundles().join(CURRENT_FILE);
    fs::create_dir(&blocked).unwrap();
    let error = trainer.run_at(NOW_UNIX_MS).unwrap_err();
    assert!(matches!(error, TrainError::Publish { .. }), "{error}");
    assert_eq!(trainer.metrics().failed, 1);
    fs::remove_dir(&blocked).unwrap();
    published(round(&mut trainer));
}

#[test]
fn how_a_round_ended_is_said_beside_the_bundles() {
    let place = Place::new();
    let said = || LastRound::read(&place.bundles()).unwrap().unwrap();
    let mut trainer = place.open();
    assert_eq!(LastRound::read(&place.bundles()).unwrap(), None);
    trainer.run_once().unwrap();
    assert_eq!((said().failed, said().published_unix_ms), (None, None));
    // Of now, for `run_once` has the clock of this machine.
    let mut world = World::new(17);
    let mut line = |age_ms: u64| {
        let at_unix_ms = unix_ms() - 60_000 - age_ms;
        serde_json::to_string(&Sample { at_unix_ms, ..world.next() }).unwrap() + "\n"
    };
    let lines: String = (0..300).rev().map(|step| line(10 * step)).collect();
    fs::create_dir_all(place.spool()).unwrap();
    fs::write(place.spool().join(segment_name(1)), lines).unwrap();
    published(trainer.run_once().unwrap());
    let first = said();
    assert_eq!(first.published_unix_ms, Some(first.ended_unix_ms));
    trainer.run_once().unwrap();
    assert_eq!(said().published_unix_ms, first.published_unix_ms, "it published nothing");
    assert!(said().ended_unix_ms >= first.ended_unix_ms);
    // One that is not this trainer's any more fails, and whoever has it says how it does.
    fs::remove_dir_all(place.bundles()).unwrap();
    let mut other = place.open();
    assert!(matches!(trainer.run_once(), Err(TrainError::Locked { .. })));
    assert_eq!(LastRound::read(&place.bundles()).unwrap(), None);
    fs::create_dir(place.bundles().join(CURRENT_FILE)).unwrap();
    let failed = other.run_once().unwrap_err().to_string();
    assert_eq!((said().failed, said().published_unix_ms), (Some(failed), None));
    // What cannot be written is no reason to end.
    fs::remove_file(place.bundles().join(ROUND_FILE)).unwrap();
    fs::create_dir(place.bundles().join(ROUND_FILE)).unwrap();
    other.run_once().unwrap_err();
}

#[test]
fn a_removed_folder_of_bundles_is_filled_again() {
    let place = Place::new();
    World::new(16).write(&place.spool(), 1, 300);
    let mut trainer = place.open();
    assert_eq!(published(round(&mut trainer)).0, 1);
    fs::remove_dir_all(place.bundles()).unwrap();
    assert_eq!(published(round(&mut trainer)).0, 2, "nothing serves, so what there is will do");
    assert!(matches!(round(&mut trainer), Round::Unchanged { fresh: 0, .. }));
    assert!(matches!(Trainer::open(place.config()), Err(TrainError::Locked { .. })));
}

#[test]
fn a_trainer_without_its_library_refuses_and_says_where_it_looked() {
    let place = Place::new();
    let library = Some(Path::new("/nowhere/libxgboost.so").to_owned());
    let config = TrainConfig { xgboost_library: library, ..place.config() };
    let error = Trainer::open(config).err().unwrap().to_string();
    assert!(error.contains("/nowhere/libxgboost.so") && error.contains("make native"), "{error}");
    assert!(!place.bundles().exists(), "nothing was touched");
}

#[test]
fn ten_thousand_samples_train_at_the_cost_of_a_sidecar() {
    let place = Place::new();
    World::new(11).write(&place.spool(), 1, 10_000);
    let mut trainer = place.open();
    let (skipped, started) = (trainer.read_spool(NOW_UNIX_MS), Instant::now());
    let split = trainer.window.split(None);
    Candidate::train(&trainer.xgboost, &trainer.config, &split.train, &Target::ALL).unwrap();
    let training = started.elapsed();
    let whole = trainer.round(NOW_UNIX_MS, Instant::now(), skipped).unwrap();
    let Round::Published { rows, took, .. } = whole else { panic!("{whole:?}") };
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or("VmHWM: unknown");
    println!("rows {rows:?}: training {training:?}, round without reading {took:?}, {peak}");
    assert_eq!(rows, [10_000, 10_000]);
    assert!(training < Duration::from_secs(20), "{training:?}");
}
