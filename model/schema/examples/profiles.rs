//! Writes the example profiles of config/profiles: one of each format, computed from the step-time
//! formula instead of measured.
//!
//! ```text
//! cargo run -p weir-schema --example profiles -- config/profiles
//! ```
//! The pods are those of [`StepTime::default`]: a 32B model on two H100, 8192 tokens per step and
//! 304,000 tokens of KV cache. A real file comes from a benchmark of real pods.

use std::{fmt::Write as _, io, path::Path};

use weir_schema::StepTime;

/// Most prompt tokens of a step.
const CHUNK_TOKENS: f64 = 8192.0;
/// Tokens that the KV cache holds.
const KV_TOKENS: f64 = 304_000.0;
/// Most requests that decode together.
const MOST_REQUESTS: u32 = 1024;
/// The objective of the pattern profile: time per output token, in milliseconds.
const TPOT_OBJECTIVE_MS: f64 = 50.0;
/// Spread of single measurements around the median, as a measured file has it.
const P95: f64 = 1.1;
/// As [`P95`].
const P99: f64 = 1.2;

fn main() -> io::Result<()> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "config/profiles".to_owned());
    for (name, text) in files() {
        std::fs::write(Path::new(&folder).join(name), text)?;
    }
    Ok(())
}

fn files() -> [(&'static str, String); 3] {
    [
        ("h100-qwen3-32b-tp2.aibrix.json", patterns()),
        ("h100-qwen3-32b-tp2.llumnix-ttft.json", ttft()),
        ("h100-qwen3-32b-tp2.llumnix-tpot.json", tpot()),
    ]
}

fn ttft() -> String {
    let steps = StepTime::default();
    let points = (0..=13).map(|power| {
        let tokens = f64::from(1 << power);
        let ms = steps.step_ms(0.0, 0.0, tokens) + steps.api_ms;
        format!("{{ \"tokens_num\": {tokens}, {} }}", statistics(ms))
    });
    results("TTFT of an idle pod by prompt tokens", points)
}

fn tpot() -> String {
    let steps = StepTime::default();
    let grid = (0..=8).flat_map(|batch| (3..=15).map(move |tokens| (1 << batch, 1 << tokens)));
    let fits = grid.filter(|(batch, tokens)| f64::from(batch * tokens) <= KV_TOKENS);
    let points = fits.map(|(batch, tokens)| {
        let (requests, each) = (f64::from(batch), f64::from(tokens));
        let ms = steps.step_ms(requests, requests * each, 0.0);
        let (batch, each) = (batch, tokens);
        format!("{{ \"batch_size\": {batch}, \"tokens_per_request\": {each}, {} }}", statistics(ms))
    });
    results("TPOT by batch size and tokens per request", points)
}

fn statistics(ms: f64) -> String {
    let [mean, p95, p99] = [ms, ms * P95, ms * P99];
    format!("\"mean\": {mean:.3}, \"p50\": {ms:.3}, \"p95\": {p95:.3}, \"p99\": {p99:.3}")
}

fn results(what: &str, points: impl Iterator<Item = String>) -> String {
    let points: Vec<String> = points.map(|point| format!("    {point}")).collect();
    let metadata = format!(
        "{{ \"model\": \"qwen3-32b\", \"timestamp\": \"2026-01-01T00:00:00Z\", \"description\": \
         \"{what}; computed by the example `profiles` of weir-schema\" }}"
    );
    format!("{{\n  \"metadata\": {metadata},\n  \"results\": [\n{}\n  ]\n}}\n", points.join(",\n"))
}

/// What a pod does with one pattern at the highest rate inside the objective.
struct Steady {
    rps: f64,
    e2e_s: f64,
    ttft_s: f64,
    tpot_s: f64,
}

fn patterns() -> String {
    let inputs: Vec<f64> = (6..=15).map(|power| f64::from(1 << power)).collect();
    let outputs: Vec<f64> = (4..=11).map(|power| f64::from(1 << power)).collect();
    let cells: Vec<Vec<Steady>> = outputs
        .iter()
        .map(|output| inputs.iter().map(|input| steady(*input, *output)).collect())
        .collect();
    let mut text = String::from("{\n  \"gpu\": \"h100-qwen3-32b-tp2\",\n  \"cost\": 1.0,\n");
    let axis = |axis: &[f64]| axis.iter().map(f64::to_string).collect::<Vec<_>>().join(", ");
    let (outputs, inputs) = (axis(&outputs), axis(&inputs));
    // Writing to a String cannot fail.
    let _ = writeln!(text, "  \"indexes\": [\n    [{outputs}],\n    [{inputs}]\n  ],");
    let mut matrix = |key: &str, of: fn(&Steady) -> f64| {
        let line = |row: &Vec<Steady>| {
            let row: Vec<String> = row.iter().map(|cell| format!("{:.5}", of(cell))).collect();
            format!("    [{}]", row.join(", "))
        };
        let rows: Vec<String> = cells.iter().map(line).collect();
        let _ = writeln!(text, "  \"{key}\": [\n{}\n  ],", rows.join(",\n"));
    };
    matrix("tputs", |cell| cell.rps);
    matrix("e2e", |cell| cell.e2e_s);
    matrix("ttft", |cell| cell.ttft_s);
    matrix("tpot", |cell| cell.tpot_s);
    let tpot_s = TPOT_OBJECTIVE_MS / 1000.0;
    let _ = writeln!(
        text,
        "  \"created\": 1767225600.0,\n  \"slos\": {{ \"percentile\": 50, \"tpot\": {tpot_s} }}\n}}"
    );
    text
}

/// The largest batch inside the objective and the cache; without one a rate of zero, and the
/// latencies of a single request.
fn steady(input: f64, output: f64) -> Steady {
    let fits = |batch: &f64| batch * (input + output) <= KV_TOKENS;
    let batches = (1..=MOST_REQUESTS).map(f64::from).filter(fits);
    let served = batches.map(|batch| of_batch(input, output, batch));
    let inside = |cell: &Steady| cell.tpot_s * 1000.0 <= TPOT_OBJECTIVE_MS;
    let alone = Steady { rps: 0.0, ..of_batch(input, output, 1.0) };
    served.take_while(inside).last().unwrap_or(alone)
}

/// The steady state with `batch` requests decoding: every step that a request decodes for, others
/// arrive at the rate at which requests end, and their prompts lengthen the steps.
fn of_batch(input: f64, output: f64, batch: f64) -> Steady {
    let steps = StepTime::default();
    let step_ms = steps.step_ms(batch, batch * (input + output / 2.0), 0.0);
    let prefill_ms = steps.per_prefill_ms * input;
    // tpot = step / (1 - rate x prefill) and rate = batch / ((output - 1) x tpot), solved for tpot.
    let tpot_ms = step_ms + batch * prefill_ms / (output - 1.0);
    let rps = 1000.0 * batch / ((output - 1.0) * tpot_ms);
    let ttft_ms = (0.5 + (input / CHUNK_TOKENS).ceil()) * step_ms + prefill_ms + steps.api_ms;
    let e2e_ms = ttft_ms + (output - 1.0) * tpot_ms;
    Steady { rps, e2e_s: e2e_ms / 1000.0, ttft_s: ttft_ms / 1000.0, tpot_s: tpot_ms / 1000.0 }
}

#[cfg(test)]
mod tests {
    use weir_schema::profile::{Batch, Percentile, Prefill, Profile};

    use super::*;

    #[test]
    fn the_shipped_profiles_are_those_that_the_example_writes() {
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../config/profiles"));
        for (name, text) in files() {
            let shipped = std::fs::read_to_string(folder.join(name)).unwrap();
            assert!(shipped == text, "{name}: run the example again");
        }
    }

    #[test]
    fn the_shipped_profiles_are_read_and_say_what_the_formula_says() {
        let mut profile = Profile::default();
        for (_, text) in files() {
            profile.add(&text, Percentile::P50).unwrap();
        }
        let steps = StepTime::default();
        let curve = profile.ttft.as_ref().unwrap();
        let decoding = Batch { requests: 48.0, tokens: 48.0 * 1536.0 };
        let read = profile.tpot.as_ref().unwrap().tpot_ms(decoding);
        assert!(read.inside && (read.value - steps.step_ms(48.0, 48.0 * 1536.0, 0.0)).abs() < 0.1);
        let prefill = Prefill {
            ahead_tokens: 0.0,
            own_tokens: 3000.0,
            elapsed_ms: 0.0,
            chunk_tokens: CHUNK_TOKENS,
            decoding: Batch::default(),
        };
        let read = curve.ttft_ms(profile.tpot.as_ref(), &prefill);
        assert!((read.value - steps.step_ms(0.0, 0.0, 3000.0) - steps.api_ms).abs() < 0.1);

        let patterns = profile.patterns.as_ref().unwrap();
        // The longest prompts with the shortest outputs leave no room for a token every 50 ms.
        assert!(patterns.at(32_768.0, 16.0).is_err() && patterns.at(32_768.0, 128.0).is_ok());
        assert_eq!(patterns.infeasible().count(), 3);
        let cell = patterns.at(1024.0, 256.0).unwrap().value;
        assert!(cell.tpot_s.unwrap() <= 0.05 && cell.tpot_s.unwrap() > 0.045, "{cell:?}");
        // Little's law: what decodes is the rate times the time it decodes for.
        let batch = cell.rps * 255.0 * cell.tpot_s.unwrap();
        assert!((batch - batch.round()).abs() < 0.01, "{batch}");
    }
}
