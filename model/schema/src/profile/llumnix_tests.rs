//! The formulas are those of Llumnix's `predict_utils.go` and `interpolation_predictor.go`.

use super::{super::Profile, *};

/// The two snippets of Llumnix's page on SLO-aware scheduling, unchanged.
const TTFT_SNIPPET: &str = r#"{
"metadata": {
"model": "model-name",
"timestamp": "2026-01-01T00:00:00Z",
"description": "TTFT profiling results"
},
"results": [
{
"tokens_num": 128,
"mean": 45.2,
"p50": 42.0,
"p95": 58.1,
"p99": 62.3
}
]
}"#;
const TPOT_SNIPPET: &str = r#"{
"metadata": {
"model": "model-name",
"timestamp": "2026-01-01T00:00:00Z"
},
"results": [
{
"batch_size": 16,
"tokens_per_request": 8,
"mean": 12.5,
"p50": 11.8,
"p95": 15.2
}
]
}"#;

fn read(text: &str, percentile: Percentile) -> Result<Profile, ProfileError> {
    let mut profile = Profile::default();
    profile.add(text, percentile).map(|_| profile)
}

fn curve(points: &[(f64, f64)]) -> TtftCurve {
    let points: Vec<String> = points
        .iter()
        .map(|(tokens, ms)| format!(r#"{{"tokens_num": {tokens}, "p50": {ms}}}"#))
        .collect();
    let text = format!(r#"{{"results": [{}]}}"#, points.join(","));
    read(&text, Percentile::P50).unwrap().ttft.unwrap()
}

fn grid(points: &[(f64, f64, f64)]) -> TpotGrid {
    let point = |(batch, tokens, ms): &(f64, f64, f64)| {
        format!(r#"{{"batch_size": {batch}, "tokens_per_request": {tokens}, "p50": {ms}}}"#)
    };
    let points: Vec<String> = points.iter().map(point).collect();
    let text = format!(r#"{{"results": [{}]}}"#, points.join(","));
    read(&text, Percentile::P50).unwrap().tpot.unwrap()
}

fn batch(requests: f64, each: f64) -> Batch {
    Batch { requests, tokens: requests * each }
}

/// An idle pod whose engine takes 1000 tokens per step.
fn alone(own_tokens: f64) -> Prefill {
    let decoding = Batch::default();
    Prefill { ahead_tokens: 0.0, own_tokens, elapsed_ms: 0.0, chunk_tokens: 1000.0, decoding }
}

#[track_caller]
fn assert_reads(reading: Reading<f64>, value: f64, inside: bool) {
    assert!((reading.value - value).abs() < 1e-9, "{reading:?}, not {value}");
    assert_eq!(reading.inside, inside, "{reading:?}");
}

#[test]
fn llumnix_files_are_read_unchanged() {
    let ttft = read(TTFT_SNIPPET, Percentile::P50).unwrap().ttft.unwrap();
    assert_reads(ttft.ttft_ms(None, &alone(128.0)), 42.0, true);
    let tpot = read(TPOT_SNIPPET, Percentile::P50).unwrap().tpot.unwrap();
    assert_reads(tpot.tpot_ms(batch(16.0, 8.0)), 11.8, true);
}

// "Now, only p50 values are used": here any statistic of the file can be.
#[test]
fn the_chosen_percentile_counts_and_a_point_without_it_is_named() {
    for (percentile, ms) in [
        (Percentile::Mean, 45.2),
        (Percentile::P50, 42.0),
        (Percentile::P95, 58.1),
        (Percentile::P99, 62.3),
    ] {
        let ttft = read(TTFT_SNIPPET, percentile).unwrap().ttft.unwrap();
        assert_reads(ttft.ttft_ms(None, &alone(128.0)), ms, true);
    }
    let error = read(TPOT_SNIPPET, Percentile::P99).unwrap_err().to_string();
    assert_eq!(error, "results[0].p99: is missing");
}

// (1-wa)(1-wb) z11 + (1-wa) wb z12 + wa (1-wb) z21 + wa wb z22.
#[test]
fn between_four_points_tpot_is_bilinear() {
    let grid =
        grid(&[(20.0, 100.0, 30.0), (10.0, 500.0, 20.0), (10.0, 100.0, 10.0), (20.0, 500.0, 60.0)]);
    for (wa, wb) in [(0.0, 0.0), (1.0, 1.0), (0.25, 0.5), (0.9, 0.1), (0.5, 0.0)] {
        let want = (1.0 - wa) * (1.0 - wb) * 10.0
            + (1.0 - wa) * wb * 20.0
            + wa * (1.0 - wb) * 30.0
            + wa * wb * 60.0;
        let reading = grid.tpot_ms(batch(10.0 + 10.0 * wa, 100.0 + 400.0 * wb));
        assert_reads(reading, want, true);
    }
}

// 0 if reqs <= 0 or tokens <= 0; else Interp(reqs, max(8, tokens / reqs)).
#[test]
fn tpot_is_read_by_batch_and_at_least_eight_tokens_per_request() {
    let grid =
        grid(&[(1.0, 8.0, 10.0), (1.0, 1000.0, 20.0), (4.0, 8.0, 12.0), (4.0, 1000.0, 24.0)]);
    assert_reads(grid.tpot_ms(Batch { requests: 4.0, tokens: 4.0 }), 12.0, true);
    assert_reads(grid.tpot_ms(batch(4.0, 504.0)), 18.0, true);
    assert_reads(grid.tpot_ms(Batch { requests: 0.0, tokens: 9.0 }), 0.0, true);
    assert_reads(grid.tpot_ms(Batch { requests: 9.0, tokens: 0.0 }), 0.0, true);
}

// Llumnix: below the minimum or above the maximum the latency is +Inf and the instance filtered.
#[test]
fn outside_the_grid_the_edge_is_read_and_said_to_be_the_edge() {
    let grid =
        grid(&[(2.0, 100.0, 10.0), (2.0, 200.0, 12.0), (8.0, 100.0, 16.0), (8.0, 200.0, 20.0)]);
    assert_reads(grid.tpot_ms(batch(1.0, 150.0)), 11.0, false);
    assert_reads(grid.tpot_ms(batch(99.0, 150.0)), 18.0, false);
    assert_reads(grid.tpot_ms(batch(2.0, 20.0)), 10.0, false);
    assert_reads(grid.tpot_ms(batch(8.0, 9000.0)), 20.0, false);
    let curve = curve(&[(100.0, 50.0), (400.0, 80.0)]);
    assert_reads(curve.ttft_ms(None, &alone(3.0)), 50.0, false);
}

#[test]
fn a_prompt_longer_than_the_longest_profiled_is_computed_as_several() {
    let curve = curve(&[(100.0, 50.0), (400.0, 80.0)]);
    // 400 + 400 + 100, though the engine would take 900 in one step.
    assert_reads(curve.ttft_ms(None, &alone(900.0)), 80.0 + 80.0 + 50.0, false);
}

// Llumnix: a missing corner of the rectangle is an error, so infinity.
#[test]
fn a_missing_corner_is_the_edge_of_its_own_batch() {
    let grid = grid(&[(1.0, 100.0, 10.0), (1.0, 1000.0, 20.0), (64.0, 100.0, 30.0)]);
    assert_reads(grid.tpot_ms(batch(64.0, 1000.0)), 30.0, false);
    assert_reads(grid.tpot_ms(batch(1.0, 550.0)), 15.0, true);
}

// TTFT(P) = sum over chunks c_i = min(remaining, maxBatched) of [T_prefill(c_i) + T_tpot(decode)].
#[test]
fn ttft_is_the_sum_over_chunks_of_prefill_and_decode_step() {
    let curve = curve(&[(200.0, 20.0), (1000.0, 100.0)]);
    let grid = grid(&[(1.0, 8.0, 7.0), (10.0, 8.0, 7.0), (1.0, 900.0, 7.0), (10.0, 900.0, 7.0)]);
    let busy = Prefill { decoding: batch(5.0, 100.0), ..alone(2600.0) };
    // 1000, 1000, 600, each beside a decode step of 7 ms; nothing decodes: no such step.
    assert_reads(curve.ttft_ms(Some(&grid), &busy), 100.0 + 100.0 + 60.0 + 3.0 * 7.0, true);
    assert_reads(curve.ttft_ms(Some(&grid), &alone(2600.0)), 260.0, true);
    assert_reads(curve.ttft_ms(Some(&grid), &alone(2000.0)), 200.0, true);
    assert_reads(curve.ttft_ms(None, &busy), 260.0, true);
}

// existing = TTFT(uncomputed prefill tokens); elapsed > existing ? TTFT(request)
// : TTFT(existing + request) - elapsed.
#[test]
fn work_ahead_counts_less_the_time_it_has_had() {
    let curve = curve(&[(100.0, 10.0), (1000.0, 100.0)]);
    let behind = |elapsed_ms| Prefill { ahead_tokens: 500.0, elapsed_ms, ..alone(300.0) };
    assert_reads(curve.ttft_ms(None, &behind(0.0)), 80.0, true);
    assert_reads(curve.ttft_ms(None, &behind(30.0)), 50.0, true);
    assert_reads(curve.ttft_ms(None, &behind(50.0)), 30.0, true);
    assert_reads(curve.ttft_ms(None, &behind(51.0)), 30.0, true);
    assert_reads(curve.ttft_ms(None, &behind(1e9)), 30.0, true);
}

// Llumnix does not clamp: TTFT(all) - elapsed can be negative there when more tokens cost less.
#[test]
fn ttft_is_never_negative() {
    let noisy = curve(&[(100.0, 90.0), (200.0, 10.0)]);
    let prefill = Prefill { ahead_tokens: 100.0, elapsed_ms: 90.0, ..alone(100.0) };
    assert_reads(noisy.ttft_ms(None, &prefill), 0.0, true);
    assert_reads(noisy.ttft_ms(None, &alone(0.0)), 0.0, true);
}

#[test]
fn a_point_that_cannot_be_true_is_refused_by_name() {
    for (point, want) in [
        (r#"{"tokens_num": 1, "p50": NaN}"#, "results[1].p50: must be a finite number above 0"),
        (r#"{"tokens_num": 1, "p50": 0}"#, "results[1].p50: must be a finite number above 0"),
        (
            r#"{"tokens_num": -1, "p50": 1}"#,
            "results[1].tokens_num: must be a finite number above 0",
        ),
        (r#"{"tokens_num": 1, "p50": "1"}"#, "results[1].p50: is missing"),
        (r#"{"p50": 1}"#, "results[1].tokens_num: is missing"),
        (r#"{"tokens_num": 8, "p50": 1}"#, "results[1]: is a second point at the same place"),
    ] {
        let text = format!(r#"{{"results": [{{"tokens_num": 8, "p50": 1}}, {point}]}}"#);
        assert_eq!(read(&text, Percentile::P50).unwrap_err().to_string(), want, "{point}");
    }
    let text = r#"{"results": [{"batch_size": 8, "p50": 1}]}"#;
    let error = read(text, Percentile::P50).unwrap_err().to_string();
    assert_eq!(error, "results[0].tokens_per_request: is missing");
}
