//! The answers about models, for people.

use serde::Deserialize;

use crate::cli::{
    answers::{
        Model, Models, Version, has,
        models::{Errors, Feature},
    },
    output::{
        Sheet,
        figures::{self, count, percent, text, time},
        table::{Grid, Left, Right, facts, plain},
    },
};

impl Sheet for Models {
    fn sheet(&self, wide: bool) -> String {
        let heads = self.pools.iter().filter(|pool| pool.serving.is_none());
        let mut out: String = heads.map(without_bundle).collect();
        // One folder of bundles, one pin.
        if let Some(why) = self.pools.iter().find_map(|pool| pool.pin_failing.as_deref()) {
            out += &format!(
                "{}; nothing newer is taken until that is mended, or `weir model unpin`\n",
                plain(why)
            );
        }
        let mut columns = vec![
            ("POOL", Left),
            ("VERSION", Right),
            ("STATE", Left),
            ("AGE", Right),
            ("ROWS", Right),
            ("HOLDOUT TTFT/TPOT", Right),
            ("LIVE TTFT/TPOT", Right),
            ("COVERED TTFT/TPOT", Right),
            ("NOTE", Left),
        ];
        if wide {
            columns.push(("OUTCOMES", Right));
        }
        let mut grid = Grid::new(&columns);
        for pool in &self.pools {
            pool.versions.iter().for_each(|version| grid.row(row(pool, version)));
        }
        out += &grid.text_or("there are no versions; `weir train` publishes them, and so does `weir serve` with trainer.run: true");
        out
    }
}

fn without_bundle(pool: &Model) -> String {
    let by = if pool.evaluator.is_empty() { "nothing" } else { &pool.evaluator };
    let why = if pool.fallback.is_empty() { String::new() } else { format!(": {}", pool.fallback) };
    format!("{} is predicted without a model, by the {by}{}\n", plain(&pool.pool), plain(&why))
}

fn row(pool: &Model, version: &Version) -> [String; 10] {
    let live = version.live.as_ref();
    let pinned = if pool.pinned == Some(version.version) { "pinned" } else { "" };
    let note = version.refused.as_deref().unwrap_or(pinned);
    [
        pool.pool.clone(),
        version.version.to_string(),
        text(&version.state),
        time(version.age_s.map(|age_s| age_s * 1e3)),
        count(version.rows),
        off(version.holdout.as_ref()),
        off(live),
        covered(live),
        note.to_owned(),
        count(live.and_then(|live| live.rows)),
    ]
}

fn off(errors: Option<&Errors>) -> String {
    let off = |error: fn(&Errors) -> Option<f64>| figures::off(errors.and_then(error));
    format!("{}/{}", off(|errors| errors.mape_ttft), off(|errors| errors.mape_tpot))
}

fn covered(errors: Option<&Errors>) -> String {
    let percent = |share: fn(&Errors) -> Option<f64>| percent(errors.and_then(share));
    format!("{}/{}", percent(|errors| errors.coverage_ttft), percent(|errors| errors.coverage_tpot))
}

/// One version: alone, or in every pool that knows it.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum OneVersion {
    /// In every pool that knows it.
    Pools {
        /// The pools.
        pools: Vec<Model>,
    },
    /// Alone.
    Alone(Box<Version>),
}

has! { OneVersion: "pools" | "version"; }

impl Sheet for OneVersion {
    fn sheet(&self, wide: bool) -> String {
        match self {
            Self::Alone(version) => one(None, version, wide),
            Self::Pools { pools } => {
                let all =
                    pools.iter().flat_map(|pool| pool.versions.iter().map(move |v| (pool, v)));
                all.map(|(pool, version)| one(Some(pool), version, wide))
                    .collect::<Vec<_>>()
                    .join("\n")
            }
        }
    }
}

fn one(pool: Option<&Model>, version: &Version, wide: bool) -> String {
    let state = match pool {
        Some(pool) if pool.pinned == Some(version.version) => format!("{}, pinned", version.state),
        _ => version.state.clone(),
    };
    let live = version.live.as_ref();
    let mut out = facts(&[
        ("version", version.version.to_string()),
        ("pool", pool.map(|pool| pool.pool.clone()).unwrap_or_default()),
        ("state", state),
        ("refused", version.refused.clone().unwrap_or_default()),
        (
            "trained",
            format!("{} ago on {} rows", time(version.age_s.map(|s| s * 1e3)), count(version.rows)),
        ),
        ("holdout", format!("off by {} (ttft/tpot)", off(version.holdout.as_ref()))),
        ("in service", format!("off by {}, covered {} of a stated 90%", off(live), covered(live))),
    ]);
    if let Some(features) = version.features.as_ref().filter(|features| !features.is_empty()) {
        out.push('\n');
        out += &gains(features, wide);
    }
    out
}

/// The features that add most; all of them when `wide`.
fn gains(features: &[Feature], wide: bool) -> String {
    let most = |feature: &Feature| {
        feature.gain_ttft.unwrap_or_default().max(feature.gain_tpot.unwrap_or_default())
    };
    let mut sorted: Vec<_> = features.iter().collect();
    sorted.sort_by(|one, other| most(other).total_cmp(&most(one)));
    let mut grid = Grid::new(&[("FEATURE", Left), ("GAIN TTFT", Right), ("GAIN TPOT", Right)]);
    for feature in sorted.iter().take(if wide { usize::MAX } else { 12 }) {
        grid.row([feature.name.clone(), percent(feature.gain_ttft), percent(feature.gain_tpot)]);
    }
    grid.text_or("")
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn versions_show_both_errors_and_why_one_is_refused() {
        let models: Models = from_value(json!({"pools": [{
            "pool": "m", "serving": 7, "pinned": 7, "evaluator": "onnx", "versions": [
                {"version": 7, "state": "serving", "age_s": 3720.0, "rows": 41_200,
                 "holdout": {"mape_ttft": 0.081, "mape_tpot": 0.031},
                 "live": {"mape_ttft": 0.092, "mape_tpot": 0.034, "coverage_ttft": 0.912, "coverage_tpot": 0.905}},
                {"version": 6, "state": "refused", "refused": "golden row 3 differs", "live": null},
            ]}]}))
        .unwrap();
        let text = models.sheet(false);
        let row = |at: usize| text.lines().nth(at).unwrap();
        for part in ["7", "serving", "1h02m", "41.2k", "8%/3%", "9%/3%", "91.2%/90.5%", "pinned"] {
            assert!(row(1).contains(part), "{part}: {text}");
        }
        assert!(row(2).contains("golden row 3 differs"), "{text}");
    }

    #[test]
    fn a_pool_without_a_bundle_says_what_predicts() {
        let models: Models = from_value(
            json!({"pools": [{"pool": "m", "serving": null, "evaluator": "step_time"}]}),
        )
        .unwrap();
        let text = models.sheet(false);
        assert!(text.starts_with("m is predicted without a model, by the step_time\n"), "{text}");
        assert!(text.contains("weir train"), "{text}");
    }

    #[test]
    fn a_pin_that_fails_is_said_once_however_many_pools_there_are() {
        let pool =
            |name| json!({"pool": name, "serving": 6, "pin_failing": "the pin cannot be read: no"});
        let models: Models = from_value(json!({"pools": [pool("m"), pool("n")]})).unwrap();
        let text = models.sheet(false);
        assert!(text.starts_with("the pin cannot be read: no; nothing newer"), "{text}");
        assert_eq!(text.matches("weir model unpin").count(), 1, "{text}");
    }

    #[test]
    fn one_version_is_read_alone_or_below_its_pools_and_sorted_by_gain() {
        let version = json!({"version": 7, "state": "serving", "features": [
            {"name": "queue_depth", "gain_ttft": 0.1}, {"name": "work_ahead", "gain_ttft": 0.6}]});
        for answer in
            [version.clone(), json!({"pools": [{"pool": "m", "versions": [version.clone()]}]})]
        {
            let text = from_value::<OneVersion>(answer).unwrap().sheet(false);
            let (work, queue) =
                (text.find("work_ahead").unwrap(), text.find("queue_depth").unwrap());
            assert!(work < queue, "{text}");
        }
    }
}
