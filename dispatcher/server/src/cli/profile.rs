//! `weir profile`: checks profile files of AIBrix and Llumnix, and prints what they say.
//!
//! The files are those of `classes[].profile`; docs/profiles.md says how they are read. Nothing is
//! asked of a running dispatcher.

use std::path::PathBuf;

use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};
use serde_json::{Value, json};
use weir_schema::profile::{Batch, Percentile, Prefill, Profile};

use super::{
    failure::Failure,
    output::{
        Format, OutputArgs, Sheet,
        figures::time,
        say,
        table::{Grid, Left, Right},
    },
};

/// Prompts that are printed, in tokens.
const INPUTS: [f64; 5] = [128.0, 512.0, 2048.0, 8192.0, 32_768.0];
/// Responses that are printed, in tokens.
const OUTPUTS: [f64; 3] = [64.0, 256.0, 1024.0];
/// Requests that decode together.
const BATCHES: [f64; 5] = [1.0, 8.0, 32.0, 128.0, 512.0];
/// Tokens that each of them holds.
const CONTEXTS: [f64; 3] = [512.0, 2048.0, 8192.0];
/// Most tokens of a step, as in `classes[].chunk_tokens` when left out.
const CHUNK_TOKENS: u32 = 8192;

/// Check profile files of one pod class.
#[derive(Clone, Debug, Args)]
pub(super) struct ProfileArgs {
    /// Files of one class: an AIBrix profile, Llumnix's TTFT results, Llumnix's TPOT results
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Which of a Llumnix profile's statistics counts
    #[arg(long, value_name = "NAME", default_value = "p50", value_parser = percentile())]
    percentile: Percentile,
    /// Most tokens the engine puts into one step
    #[arg(long, value_name = "TOKENS", default_value_t = CHUNK_TOKENS,
          value_parser = clap::value_parser!(u32).range(1..))]
    chunk_tokens: u32,
    #[command(flatten)]
    output: OutputArgs,
}

fn percentile() -> impl TypedValueParser<Value = Percentile> {
    PossibleValuesParser::new(Percentile::ALL.map(Percentile::name)).map(|name| {
        let named = Percentile::ALL.into_iter().find(|percentile| percentile.name() == name);
        named.unwrap_or_default()
    })
}

pub(super) fn run(args: &ProfileArgs) -> Result<(), Failure> {
    let format = args.output.output;
    let profile = read(&args.files, args.percentile)?;
    for note in profile.notes() {
        say(note);
    }
    let points = points(&profile, f64::from(args.chunk_tokens));
    let format = if format == Format::Wide { Format::Table } else { format };
    format.print::<Points>("the profile", json!({ "points": points }))
}

/// Every file that cannot be used is named, not only the first.
fn read(files: &[PathBuf], percentile: Percentile) -> Result<Profile, Failure> {
    let mut profile = Profile::default();
    let mut wrong = Vec::new();
    for file in files {
        let added = std::fs::read_to_string(file)
            .map_err(|error| format!("cannot be read: {error}"))
            .and_then(|text| profile.add(&text, percentile).map_err(|error| error.to_string()));
        if let Err(why) = added {
            wrong.push(format!("{}: {why}", file.display()));
        }
    }
    if wrong.is_empty() { Ok(profile) } else { Err(Failure::Config(wrong.join("\n"))) }
}

/// What the profile says, a point each.
fn points(profile: &Profile, chunk_tokens: f64) -> Vec<Value> {
    let mut points = Vec::new();
    if let Some(patterns) = &profile.patterns {
        let grid = INPUTS.into_iter().flat_map(|input| OUTPUTS.map(|output| (input, output)));
        points.extend(grid.map(|(input, output)| match patterns.at(input, output) {
            Err(infeasible) => point("pattern", input, output, &infeasible.to_string()),
            Ok(reading) => {
                let cell = reading.value;
                let said = format!(
                    "{:.2} requests/s, end {}, capacity {:.1}",
                    cell.rps,
                    time(Some(cell.e2e_s * 1e3)),
                    cell.rps * cell.e2e_s
                );
                edge(point("pattern", input, output, &said), reading.inside)
            }
        }));
    }
    if let Some(ttft) = &profile.ttft {
        points.extend(INPUTS.map(|own_tokens| {
            let decoding = Batch::default();
            let prefill =
                Prefill { ahead_tokens: 0.0, own_tokens, elapsed_ms: 0.0, chunk_tokens, decoding };
            let reading = ttft.ttft_ms(profile.tpot.as_ref(), &prefill);
            edge(point("ttft", own_tokens, 0.0, &time(Some(reading.value))), reading.inside)
        }));
    }
    if let Some(tpot) = &profile.tpot {
        let grid = BATCHES.into_iter().flat_map(|requests| CONTEXTS.map(|each| (requests, each)));
        points.extend(grid.map(|(requests, each)| {
            let reading = tpot.tpot_ms(Batch { requests, tokens: requests * each });
            edge(point("tpot", requests, each, &time(Some(reading.value))), reading.inside)
        }));
    }
    points
}

fn point(what: &str, one: f64, other: f64, said: &str) -> Value {
    json!({"what": what, "at": [one, other], "said": said, "inside": true})
}

fn edge(mut point: Value, inside: bool) -> Value {
    if let Some(member) = point.get_mut("inside") {
        *member = inside.into();
    }
    point
}

#[derive(serde::Deserialize)]
struct Points {
    points: Vec<Point>,
}

#[derive(serde::Deserialize)]
struct Point {
    what: String,
    at: [f64; 2],
    said: String,
    inside: bool,
}

impl Point {
    fn place(&self) -> String {
        let [one, other] = self.at;
        match self.what.as_str() {
            "pattern" => format!("{one} in, {other} out"),
            "ttft" => format!("{one} in, idle pod"),
            _ => format!("{one} requests of {other} tokens"),
        }
    }
}

super::answers::has! { Points: "points"; }

impl Sheet for Points {
    fn sheet(&self, _: bool) -> String {
        let mut grid = Grid::new(&[("WHAT", Left), ("AT", Right), ("SAYS", Left), ("", Left)]);
        for point in &self.points {
            let beyond = if point.inside { "" } else { "beyond the profile: its edge" };
            grid.row([point.what.clone(), point.place(), point.said.clone(), beyond.to_owned()]);
        }
        grid.text_or("the profile is empty")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shipped(name: &str) -> PathBuf {
        let server = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        server.join("../../config/profiles").join(name)
    }

    fn sheet(files: &[PathBuf]) -> String {
        let profile = read(files, Percentile::P50).unwrap();
        let points = points(&profile, f64::from(CHUNK_TOKENS));
        Format::Table.text::<Points>("", json!({ "points": points })).unwrap()
    }

    #[test]
    fn the_shipped_profiles_are_printed() {
        let text = sheet(&[shipped("h100-qwen3-32b-tp2.aibrix.json")]);
        assert!(text.contains("128 in, 64 out") && text.contains("capacity"), "{text}");
        let text = sheet(&[
            shipped("h100-qwen3-32b-tp2.llumnix-ttft.json"),
            shipped("h100-qwen3-32b-tp2.llumnix-tpot.json"),
        ]);
        assert!(
            text.contains("512 in, idle pod") && text.contains("32 requests of 2048 tokens"),
            "{text}"
        );
        assert!(text.contains("beyond the profile"), "{text}");
    }

    #[test]
    fn every_file_that_cannot_be_used_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let (broken, missing) = (dir.path().join("broken.json"), dir.path().join("missing.json"));
        std::fs::write(&broken, "{}").unwrap();
        let failure = read(&[broken, missing], Percentile::P50).unwrap_err();
        assert_eq!(failure.code(), 64);
        let said = failure.to_string();
        assert!(said.contains("broken.json: is neither"), "{said}");
        assert!(said.contains("missing.json: cannot be read"), "{said}");
    }
}
