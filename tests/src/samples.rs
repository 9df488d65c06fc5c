//! Samples of a made-up world, and a bundle that `weir train` learned from them.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::OnceLock,
    time::{SystemTime, UNIX_EPOCH},
};

use serde_json::json;
use tempfile::TempDir;
use weir_schema::{
    FEATURE_COUNT, Feature, Features, Prediction, Sample, SampleOutcome, schema_hash,
    spool::segment_name,
};

use crate::{MODEL, built};

/// Samples of which every latency is a known function of the row; the newest ended now.
pub fn made_up(count: u64) -> Vec<Sample> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now_unix_ms = since.as_millis() as u64;
    (0..count).map(|number| sample(number, now_unix_ms - (count - number))).collect()
}

fn sample(number: u64, at_unix_ms: u64) -> Sample {
    // Three numbers of a Weyl sequence: even, and the same in every run.
    let [size, busy, full] = [0.754_877_7, 0.569_840_3, 0.438_579_2]
        .map(|step: f64| (number as f64 * step).fract() as f32);
    let (input, running) = ((50.0 + 4000.0 * size).round(), (30.0 * busy).floor());
    let mut row = Features([0.0; FEATURE_COUNT]);
    for (feature, value) in [
        (Feature::KvUsage, full),
        (Feature::InputTokens, input),
        (Feature::RunningRequests, running),
        (Feature::UncachedTokens, input),
        (Feature::WorkAheadTokens, input),
        (Feature::ExpectedOutputTokens, 100.0),
        (Feature::PriorTtftMs, 20.0 + 0.05 * input),
        (Feature::PriorTpotMs, 14.0 + 0.1 * running),
    ] {
        row.set(feature, value);
    }
    let ttft_ms = row.get(Feature::PriorTtftMs) * (0.9 + full);
    let tpot_ms = row.get(Feature::PriorTpotMs) * (1.0 + 0.5 * full);
    Sample {
        schema: schema_hash().into(),
        at_unix_ms,
        model: MODEL.into(),
        pod_class: "h100-qwen3-32b-tp2".into(),
        row: row.0,
        predicted: Prediction::default(),
        streamed: true,
        outcome: SampleOutcome::Complete,
        ttft_ms: Some(ttft_ms),
        tpot_ms: Some(tpot_ms),
        e2e_ms: ttft_ms + 40.0 * tpot_ms,
        wait_ms: 1.0,
        output_tokens: 41,
    }
}

/// Writes samples as a segment of a spool.
///
/// # Panics
/// When the disk refuses.
pub fn write(spool: &Path, segment: u64, samples: &[Sample]) {
    let line = |sample| serde_json::to_string(sample).expect("a sample is JSON") + "\n";
    let text: String = samples.iter().map(line).collect();
    fs::create_dir_all(spool).expect("the spool can be made");
    fs::write(spool.join(segment_name(segment)), text).expect("the spool can be written");
}

/// Every sample in a spool.
///
/// # Panics
/// When a whole line of it is none.
pub fn read(spool: &Path) -> Vec<Sample> {
    let segments = weir_schema::spool::segments(spool).unwrap_or_default();
    let mut samples = Vec::new();
    for (_, path) in segments {
        let text = fs::read_to_string(path).expect("a segment is text");
        // The last line may still be in the making.
        let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        samples.extend(whole.map(|line| {
            serde_json::from_str::<Sample>(line).unwrap_or_else(|error| panic!("{error}: {line}"))
        }));
    }
    samples
}

/// One round of `weir train` over the spool and the bundles of a folder.
///
/// # Panics
/// When the program cannot be started.
pub fn train_once(dir: &Path) -> Output {
    let config = dir.join("train.yaml");
    let text = json!({
        "pools": [{"model": MODEL, "pods": [{"url": "http://127.0.0.1:1"}]}],
        "model": {"bundles": dir.join("bundles")},
        "spool": {"dir": dir.join("spool")},
        "trainer": {"trees": 20},
    });
    fs::write(&config, text.to_string()).expect("the configuration can be written");
    let mut train = Command::new(built::binary("weir"));
    train.args(["train", "--once", "--config"]).arg(config).output().expect("weir train runs")
}

/// Puts a copy of a real bundle, trained once per test process, into a folder of bundles. Returns the
/// bundle's own folder.
///
/// # Panics
/// When it cannot be trained or copied.
pub fn bundle_into(bundles: &Path) -> PathBuf {
    static TRAINED: OnceLock<TempDir> = OnceLock::new();
    let trained = TRAINED.get_or_init(|| {
        let dir = tempfile::tempdir().expect("a folder can be made");
        write(&dir.path().join("spool"), 1, &made_up(1000));
        let trained = train_once(dir.path());
        assert!(trained.status.success(), "{}", String::from_utf8_lossy(&trained.stderr));
        dir
    });
    copy(&trained.path().join("bundles"), bundles);
    let current = weir_schema::manifest::current_bundle(bundles).expect("there is a pointer");
    current.expect("there is a bundle")
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder can be made");
    for entry in fs::read_dir(from).expect("the folder can be read") {
        let entry = entry.expect("the folder can be read").path();
        let target = to.join(entry.file_name().expect("an entry has a name"));
        if entry.is_dir() {
            copy(&entry, &target);
        } else {
            fs::copy(&entry, &target).expect("a file can be copied");
        }
    }
}
