//! With the real libraries: a bundle is trained, published, loaded, removed and spoiled.

use std::io::Write as _;

use weir_predict::Chain;
use weir_schema::{
    Feature, Features, Predict as _, Prediction, Row, Sample, SampleOutcome, manifest::bundle_name,
    schema_hash, spool::segment_name,
};
use weir_train::{Round, TrainConfig, Trainer};

use super::*;

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
        schema: schema_hash(),
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
    let config =
        TrainConfig { spool, bundles: folder.join("bundles"), trees: 20, ..TrainConfig::default() };
    let round = Trainer::open(config).unwrap().run_once().unwrap();
    assert!(matches!(round, Round::Published { version: 1, .. }), "{round:?}");
}

fn loader(folder: &Path) -> (Loader, Chain) {
    let slot = Slot::new();
    let reload = Reload {
        bundles: folder.join("bundles"),
        library: None,
        slots: vec![slot.clone()],
        tally: Arc::default(),
    };
    let runtime = Runtime::load(None).unwrap();
    (Loader { reload, runtime, serving: None, tried: None }, Chain::with_slot(slot))
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
fn without_the_runtime_the_chain_says_why_it_serves_the_prior() {
    let folder = tempfile::tempdir().unwrap();
    let (loader, mut chain) = loader(folder.path());
    loader.reload.without_runtime("no onnx runtime library found");
    assert_eq!(served(&mut chain), 0);
    let reason = chain.status().fallback_reason.unwrap();
    assert!(reason.contains("no onnx runtime"), "{reason}");
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
