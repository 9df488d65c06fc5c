use std::time::Duration;

use super::{
    clock::{Took, took},
    fresh::{Fresh, Seen, serving},
    process::{parsed, peak_mb},
    round::rounds,
    rows::costs,
    samples::samples,
    swap::swaps,
    table::Report,
};

#[test]
fn work_takes_time_on_a_processor_and_sleep_does_not() {
    let (sum, worked) = took(|| (0..3_000_000_u64).map(std::hint::black_box).sum::<u64>());
    assert!(sum > 0 && worked.cpu_s > 0.0 && worked.wall_s > 0.0, "{worked:?}");
    let (left, right) = std::os::unix::net::UnixStream::pair().unwrap();
    right.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let (_, waited) = took(|| std::io::Read::read(&mut &right, &mut [0]));
    drop(left);
    assert!(waited.wall_s >= 0.05 && waited.cpu_s < 0.02, "{waited:?}");
}

#[test]
fn a_process_with_brackets_in_its_name_is_read() {
    let stat = "12 (we) ir) Z 1 1 1 0 -1 4194304 5 0 0 0 150 25 0 0 20 0 1 0 99";
    assert_eq!(parsed(stat), Some(('Z', 1.75)));
    assert_eq!(parsed("12 weir"), None);
}

#[test]
fn the_trainers_memory_is_what_it_says() {
    let line = |mb: f64| format!(r#"{{"level":"INFO","peak_memory_mb":{mb}}}"#);
    let log = ["no JSON".to_owned(), line(120.5), line(119.0), "{}".to_owned()].join("\n");
    assert_eq!((peak_mb(&log), peak_mb("{}")), (Some(120.5), None));
}

#[test]
fn the_longest_way_of_a_sample_is_from_one_round_to_the_bundle_of_the_next() {
    let seen = [(1_000, 1_400, 0), (6_500, 7_000, 0), (20_000, 20_300, 2)];
    let seen = seen.map(|(began_unix_ms, served_unix_ms, held_back)| Seen {
        began_unix_ms,
        served_unix_ms,
        held_back,
    });
    let fresh = Fresh::of(Duration::from_secs(5), &seen);
    assert_eq!(fresh.served_after_s, [0.4, 0.5, 0.3]);
    assert_eq!((fresh.longest_s, fresh.held_back_s), (vec![6.0], vec![13.8]));
    assert_eq!(serving("x 1\nweir_model_version{model=\"m\"} 7\n"), 7);
    assert_eq!(serving("weir_model_versions 3\n"), 0);
}

#[test]
fn a_small_run_trains_compares_and_swaps_without_a_loss() {
    let folder = tempfile::tempdir().unwrap();
    let samples = samples(1200).unwrap();
    let rounds = rounds(&samples, folder.path(), 1).unwrap();
    assert!(rounds.rows[0] > 1000 && rounds.median.cpu_s > 0.0, "{rounds:?}");
    let costs = costs(&rounds.bundle, &samples).unwrap();
    assert!(costs.iter().all(|cost| cost.forest_ns > 0.0 && cost.onnx_ns > 0.0), "{costs:?}");
    let swaps = swaps(&rounds.bundle, &folder.path().join("swaps"), 1, 500).unwrap();
    let (without, with) = (swaps.without, swaps.with);
    assert_eq!((without.decisions, without.lost, without.failures, without.swaps), (500, 0, 0, 0));
    assert_eq!((with.decisions, with.lost, with.failures), (500, 0, 0));
    assert!(with.swaps > 0, "{with:?}");
    let mut report = Report::new(1200);
    (report.rounds, report.evaluators, report.swaps) = (Some(rounds), Some(costs), Some(swaps));
    let text = report.for_people();
    assert!(text.contains("1200 samples") && text.contains("with swaps"), "{text}");
    assert!(serde_json::to_string(&report).unwrap().contains("longest_cpu_ms"));
}

#[test]
fn a_missed_target_is_said() {
    let mut report = Report::new(1);
    let took = Took { wall_s: 9.0, cpu_s: 2.0 };
    report.process = Some(super::process::Process { took, peak_mb: 301.0 });
    assert!(report.for_people().contains("missed"));
}
