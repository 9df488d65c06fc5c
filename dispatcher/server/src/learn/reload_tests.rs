//! With the real libraries: a bundle is trained, published, loaded, removed and spoiled.

use std::io::Write as _;

use weir_predict::Chain;
use weir_schema::{
    Feature, Features, Predict, Prediction, Row, Sample, SampleOutcome,
    manifest::{PINNED_FILE, SERVING_FILE, bundle_name, serving_versions},
    round::ROUND_FILE,
    schema_hash,
    spool::segment_name,
};
use weir_train::{Round, TrainConfig, Trainer};

use super::*;
use crate::{
    hub::{Hub, fixture::Fixture},
    learn::Shelf,
    telemetry::compat::{Compat, timed::Timed},
};

#[path = "reload_tests/orders.rs"]
mod orders;

/// A state of a pod, its load rising with `step`.
fn row(step: u16) -> Row {
    let mut features = Features::default();
    let step = f32::from(step % 100);
    features.set(Feature::InputTokens, 100.0 + 10.0 * step);
    features.set(Feature::UncachedTokens, 100.0 + 10.0 * step);
    features.set(Feature::RunningRequests, step);
    features.set(Feature::KvUsage, step / 100.0);
    features.set(Feature::PriorTtftMs, 50.0 + step);
    features.set(Feature::PriorTpotMs, 20.0 + step / 10.0);
    features.set(Feature::PodClass, 0.0);
    features.0
}

/// Measured at one and a half times the prior.
fn sample(step: u16, at_unix_ms: u64) -> Sample {
    let row = row(step);
    let [ttft, tpot] = [Feature::PriorTtftMs, Feature::PriorTpotMs].map(|of| Features(row).get(of));
    Sample {
        schema: schema_hash().into(),
        at_unix_ms,
        model: "m".into(),
        pod_class: "c".into(),
        row,
        predicted: Prediction::default(),
        streamed: true,
        outcome: SampleOutcome::Complete,
        ttft_ms: Some(1.5 * ttft),
        tpot_ms: Some(1.5 * tpot),
        e2e_ms: 5000.0,
        wait_ms: 0.0,
        output_tokens: 100,
    }
}

/// Trains and publishes a bundle below `folder`.
fn publish(folder: &Path) {
    let spool = folder.join("spool");
    fs::create_dir_all(&spool).unwrap();
    let mut segment = fs::File::create(spool.join(segment_name(1))).unwrap();
    let now_ms = crate::clock::Clock::new().unix_ms();
    for step in 0..600 {
        let line = serde_json::to_string(&sample(step, now_ms - 600 + u64::from(step))).unwrap();
        writeln!(segment, "{line}").unwrap();
    }
    let round = Trainer::open(train_config(folder)).unwrap().run_once().unwrap();
    assert!(matches!(round, Round::Published { version: 1, .. }), "{round:?}");
}

fn train_config(folder: &Path) -> TrainConfig {
    let (spool, bundles) = (folder.join("spool"), folder.join("bundles"));
    let classes = vec!["c".to_owned()];
    TrainConfig { spool, bundles, classes, trees: 20, ..TrainConfig::default() }
}

fn loader(folder: &Path) -> (Loader, Chain) {
    let (loader, chain, _) = shelf(folder);
    (loader, chain)
}

fn shelf(folder: &Path) -> (Loader, Chain, Shelf) {
    let slot = Slot::new();
    let (shelf, counter) = Shelf::new(folder.join("bundles"), Bell::new().0);
    let reload = Reload {
        bundles: folder.join("bundles"),
        library: None,
        choice: Choice::Auto,
        classes: vec!["c".to_owned()],
        slots: vec![slot.clone()],
        take_up: Box::new(|| vec![0]),
        go_back_to: Box::new(Vec::new),
        tally: Arc::default(),
        counter,
    };
    let runtime = Some(Runtime::load(None).unwrap());
    let evaluators = Evaluators { choice: Choice::Auto, runtime };
    (Loader::new(reload, evaluators), Chain::with_slot(slot), shelf)
}

/// Copies a bundle under another version.
fn copy(folder: &Path, from: u64, to: u64) {
    let bundles = folder.join("bundles");
    let (from, dir) = (bundles.join(bundle_name(from)), bundles.join(bundle_name(to)));
    fs::create_dir_all(&dir).unwrap();
    fs::copy(from.join("model.onnx"), dir.join("model.onnx")).unwrap();
    let text = fs::read_to_string(from.join(MANIFEST_FILE)).unwrap();
    let mut manifest: serde_json::Value = serde_json::from_str(&text).unwrap();
    manifest["version"] = to.into();
    fs::write(dir.join(MANIFEST_FILE), manifest.to_string()).unwrap();
    fs::write(bundles.join(CURRENT_FILE), bundle_name(to)).unwrap();
}

/// Gives an order to a loader on a thread of its own, as in service.
fn order(loader: &mut Loader, shelf: &Shelf, order: Order) -> Result<(), OrderError> {
    std::thread::scope(|scope| {
        let asked = scope.spawn(move || shelf.order(order));
        while !asked.is_finished() {
            loader.carry_out();
            std::thread::yield_now();
        }
        asked.join().unwrap()
    })
}

#[test]
fn a_file_that_may_be_read_at_last_is_not_the_one_that_was_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let file = tempfile::NamedTempFile::new().unwrap();
    let allow = |mode| fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).unwrap();
    allow(0o000);
    let before = stamp(file.path());
    std::thread::sleep(Duration::from_millis(20));
    allow(0o644);
    assert!(before.is_some() && stamp(file.path()) != before);
}

#[test]
fn a_bundle_whose_rows_mean_other_pod_classes_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    publish(folder.path());
    let (mut loader, mut chain) = loader(folder.path());
    loader.reload.classes.insert(0, "new".to_owned());
    loader.look();
    assert_eq!(served(&mut chain), 0);
    let why = loader.reload.counter.refused.lock().get(&1).cloned().unwrap();
    assert_eq!(why, r#"bundle is of the pod classes ["c"], configured are ["new", "c"]"#);
    loader.reload.classes.rotate_left(1);
    loader.tried = None;
    loader.look();
    assert_eq!(served(&mut chain), 1, "one that is new at the end changes nothing");
}

/// Versions 1 to 3 are there, 3 was handed over and the pools serve `versions`.
fn serving(versions: &'static [u64]) -> (tempfile::TempDir, Loader, Shelf) {
    let folder = tempfile::tempdir().unwrap();
    let (mut loader, _chain, shelf) = shelf(folder.path());
    publish(folder.path());
    copy(folder.path(), 1, 2);
    copy(folder.path(), 1, 3);
    loader.look();
    assert_eq!(loader.reload.tally.version.load(Relaxed), 3);
    loader.reload.take_up = Box::new(|| versions.to_vec());
    (folder, loader, shelf)
}

/// Two pools without pods, whose predictions nobody asks for; those of the second are timed.
fn idle_pools(loader: &mut Loader) -> [Arc<Hub>; 2] {
    let slots = [Slot::new(), Slot::new()];
    let compat = Arc::new(Compat::new(1).unwrap());
    let [plain, timed] = slots.clone().map(Chain::with_slot);
    let timed = Timed::new(timed, compat, "m".into());
    let predictors: [Box<dyn Predict>; 2] = [Box::new(plain), Box::new(timed)];
    let hubs = predictors.map(|predictor| Fixture { predictor, ..Fixture::default() }.hub().0);
    loader.reload.slots = slots.to_vec();
    let all = hubs.clone();
    loader.reload.take_up = Box::new(move || all.iter().map(|hub| hub.take_up_bundle()).collect());
    hubs
}

#[test]
fn a_pool_without_pods_serves_what_is_published_and_holds_no_rollback_up() {
    let folder = tempfile::tempdir().unwrap();
    let (mut loader, _chain, shelf) = shelf(folder.path());
    let hubs = idle_pools(&mut loader);
    let serve = || hubs.each_ref().map(|hub| hub.predictor().model_version);
    publish(folder.path());
    for version in 1..5 {
        if version > 1 {
            copy(folder.path(), 1, version);
        }
        loader.look();
        assert_eq!(serve(), [version; 2]);
    }
    // As the trainer does with old ones.
    for version in 1..3 {
        fs::remove_dir_all(folder.path().join("bundles").join(bundle_name(version))).unwrap();
    }
    loader.look();
    assert!(!loader.reload.tally.missing.load(Relaxed));
    order(&mut loader, &shelf, Order::Rollback).unwrap();
    assert_eq!((serve(), shelf.pinned()), ([3; 2], Some(3)));
    loader.reload.withdraw("an operator said so");
    assert_eq!(serve(), [0; 2]);
}

#[test]
fn a_bundle_is_missing_when_what_a_pool_went_back_to_is() {
    let (folder, mut loader, _shelf) = serving(&[2, 2]);
    let mut without = |version| {
        fs::remove_dir_all(folder.path().join("bundles").join(bundle_name(version))).unwrap();
        loader.look();
        loader.reload.tally.missing.load(Relaxed)
    };
    assert_eq!([without(3), without(2)], [false, true]);
}

#[test]
fn the_trainer_spares_what_the_pools_went_back_to_or_may_go_back_to() {
    let (folder, mut loader, shelf) = serving(&[2, 0]);
    let bundles = folder.path().join("bundles");
    let spared = || serving_versions(&bundles).unwrap();
    loader.look();
    assert_eq!(spared(), BTreeSet::from([2]), "version 3 is the current one");
    loader.reload.go_back_to = Box::new(|| vec![1]);
    loader.look();
    assert_eq!(spared(), BTreeSet::from([1, 2]));
    // It has seen none of these, publishes version 4 and keeps one.
    let config = TrainConfig { keep_bundles: 1, ..train_config(folder.path()) };
    fs::remove_file(bundles.join(CURRENT_FILE)).unwrap();
    let round = Trainer::open(config).unwrap().run_once().unwrap();
    assert!(matches!(round, Round::Published { version: 4, .. }), "{round:?}");
    assert_eq!(shelf::versions(&bundles), [1, 2, 4]);
    order(&mut loader, &shelf, Order::Pin(2)).unwrap();
    loader.look();
    assert_eq!(spared(), BTreeSet::from([1]), "what is pinned is spared anyway");
    loader.reload.go_back_to = Box::new(Vec::new);
    loader.look();
    assert!(!bundles.join(SERVING_FILE).exists());
}

#[test]
fn the_list_has_every_bundle_and_says_why_one_was_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (mut loader, _chain, shelf) = shelf(folder.path());
    assert_eq!(shelf.bundles(), []);
    publish(folder.path());
    copy(folder.path(), 1, 2);
    let model = folder.path().join("bundles").join(bundle_name(2)).join("model.onnx");
    let sound = fs::read(&model).unwrap();
    fs::write(&model, "spoiled").unwrap();
    loader.look();
    let listed = shelf.bundles();
    let [second, first] = &listed[..] else { panic!("{listed:?}") };
    assert_eq!((second.version, second.current, first.version), (2, true, 1));
    assert!(second.refused.as_ref().is_some_and(|why| why.contains("sha-256")), "{second:?}");
    assert_eq!((&first.refused, first.trees), (&None, 20));
    assert_eq!(first.gains.len(), weir_schema::FEATURE_COUNT);
    assert!(first.holdout.is_some(), "{first:?}");
    let refused = order(&mut loader, &shelf, Order::Pin(2)).unwrap_err();
    assert!(matches!(refused, OrderError::Refused { version: 2, .. }), "{refused:?}");
    fs::write(&model, sound).unwrap();
    order(&mut loader, &shelf, Order::Reload).unwrap();
    assert_eq!(shelf.bundles()[0].refused, None);
    assert_eq!(loader.reload.tally.version.load(Relaxed), 2);
}

#[test]
fn without_the_runtime_orders_are_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let (loader, _chain, shelf) = shelf(folder.path());
    let (_bell, heard) = Bell::new();
    let asked = std::thread::scope(|scope| {
        let asked = scope.spawn(|| shelf.order(Order::Reload));
        loader.reload.without_runtime("no onnx runtime", &heard, || asked.is_finished());
        asked.join().unwrap()
    });
    assert_eq!(asked, Err(OrderError::NoLoader("no onnx runtime".to_owned())));
}

/// The version that a chain serves after its next batch.
fn served(chain: &mut Chain) -> u64 {
    let mut out = [Prediction::default()];
    chain.predict(&[row(5)], &mut out).unwrap();
    chain.status().model_version
}

#[test]
fn a_published_bundle_comes_into_service_and_outlives_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let (mut loader, mut chain) = loader(folder.path());
    loader.look();
    assert_eq!(served(&mut chain), 0);
    assert_eq!(loader.reload.tally.reason.lock().as_deref(), Some("no bundle yet"));

    publish(folder.path());
    loader.look();
    assert_eq!(served(&mut chain), 1);
    assert_eq!(loader.reload.tally.version.load(Relaxed), 1);
    loader.look();
    assert_eq!(loader.reload.tally.loaded.load(Relaxed), 1, "the same bundle is loaded once");

    fs::remove_dir_all(folder.path().join("bundles")).unwrap();
    loader.look();
    assert!(loader.reload.tally.missing.load(Relaxed));
    assert_eq!(served(&mut chain), 1);
}

#[test]
fn a_bundle_is_evaluated_by_its_trees_with_the_runtime_and_without_it() {
    let folder = tempfile::tempdir().unwrap();
    publish(folder.path());
    let said = |choice, runtime: bool| {
        let (mut loader, mut chain) = loader(folder.path());
        let runtime = runtime.then(|| Runtime::load(None).unwrap());
        loader.evaluators = Evaluators { choice, runtime };
        loader.look();
        assert_eq!(served(&mut chain), 1);
        let by = chain.status().model_evaluator.unwrap();
        (by.source.name(), by.reason)
    };
    for runtime in [true, false] {
        assert_eq!(said(Choice::Auto, runtime), ("forest", String::new()));
        assert_eq!(said(Choice::Forest, runtime), ("forest", String::new()));
    }
    assert_eq!(said(Choice::Ort, true), ("onnx", "configured".to_owned()));
}

#[test]
fn a_bundle_that_is_refused_leaves_the_one_before_it_in_service() {
    let folder = tempfile::tempdir().unwrap();
    let (mut loader, mut chain) = loader(folder.path());
    publish(folder.path());
    loader.look();
    let bundles = folder.path().join("bundles");
    let spoiled = bundles.join(bundle_name(2));
    fs::create_dir(&spoiled).unwrap();
    fs::write(spoiled.join(MANIFEST_FILE), "{}").unwrap();
    fs::write(bundles.join(CURRENT_FILE), bundle_name(2)).unwrap();
    loader.look();
    loader.look();
    let tally = &loader.reload.tally;
    assert_eq!(tally.refused.load(Relaxed), 1, "a refused bundle is not tried again");
    assert_eq!(tally.reason.lock().as_deref(), Some("bundle refused: corrupt_manifest"));
    assert_eq!(served(&mut chain), 1);
}

#[test]
fn a_bundle_whose_graph_comes_after_its_manifest_is_taken_once_it_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let (mut loader, mut chain) = loader(folder.path());
    publish(folder.path());
    copy(folder.path(), 1, 2);
    let model = folder.path().join("bundles").join(bundle_name(2)).join(MODEL_FILE);
    let whole = fs::read(&model).unwrap();
    fs::remove_file(&model).unwrap();
    let reason = |loader: &Loader| loader.reload.tally.reason.lock().clone().unwrap();
    loader.look();
    assert_eq!(reason(&loader), "bundle refused: missing");
    fs::write(&model, &whole[..whole.len() / 2]).unwrap();
    let begun = fs::metadata(&model).unwrap().modified().unwrap();
    loader.look();
    assert_ne!(reason(&loader), "bundle refused: missing");
    fs::write(&model, whole).unwrap();
    fs::File::options().write(true).open(&model).unwrap().set_modified(begun).unwrap();
    loader.look();
    assert_eq!(served(&mut chain), 2);
}

#[test]
fn without_the_runtime_the_chain_says_why_it_serves_the_prior() {
    let folder = tempfile::tempdir().unwrap();
    let (loader, mut chain) = loader(folder.path());
    loader.reload.withdraw("no onnx runtime library found");
    assert_eq!(served(&mut chain), 0);
    let reason = chain.status().fallback_reason.unwrap();
    assert!(reason.contains("no onnx runtime"), "{reason}");
}

#[test]
fn what_the_trainer_says_of_its_rounds_is_heard_and_outlives_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let (loader, _chain) = loader(folder.path());
    let heard = || {
        loader.reload.look_at_rounds();
        loader.reload.tally.round.lock().clone()
    };
    assert_eq!(heard(), None);
    publish(folder.path());
    let last = heard().unwrap();
    assert_eq!((last.failed.as_ref(), last.published_unix_ms), (None, Some(last.ended_unix_ms)));
    let file = folder.path().join("bundles").join(ROUND_FILE);
    for spoilt in ["", "no json", "[]"] {
        fs::write(&file, spoilt).unwrap();
        assert_eq!(heard(), Some(last.clone()), "{spoilt:?}");
    }
    fs::remove_file(&file).unwrap();
    assert_eq!(heard(), Some(last));
    fs::write(&file, r#"{"ended_unix_ms": 5, "failed": "no room", "of_later": 1}"#).unwrap();
    let failed = Some("no room".to_owned());
    assert_eq!(heard(), Some(LastRound { ended_unix_ms: 5, failed, published_unix_ms: None }));
}

#[test]
fn a_change_of_the_folder_rings_the_bell() {
    let folder = tempfile::tempdir().unwrap();
    let (loader, _chain) = loader(folder.path());
    let (bell, heard) = Bell::new();
    let _watcher = loader.reload.listen(bell).unwrap();
    fs::write(folder.path().join("bundles").join(CURRENT_FILE), "").unwrap();
    heard.recv_timeout(Duration::from_secs(30)).unwrap();
}
