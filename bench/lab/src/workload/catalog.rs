//! Every source by its name.

use std::{path::Path, sync::Arc};

use anyhow::{Context, Result, bail, ensure};

use super::{
    BuiltIn, Mixture, Replay, Shape, Shaped, Source,
    scenarios::{self, SCENARIOS, VARIANTS},
};
use crate::bounds::MOST_REQUESTS;

/// A name of the catalogue, what is behind it, and how it is made under a seed.
struct Entry {
    name: String,
    what: String,
    build: Box<dyn Fn(u64) -> Result<Arc<dyn Source>>>,
}

/// What is not one name but a form of names.
const FORMS: [(&str, &str); 4] = [
    ("ladder:FACTOR", "the production ladder, all its rates times FACTOR"),
    ("trace:FILE", "a recorded trace"),
    (
        "NAME+diurnal[:AMPLITUDE]",
        "any of them without rates of its own, over a day and a night (0.5: peak three times the trough)",
    ),
    (
        "NAME+flash[:FACTOR]",
        "with a tenth of the run at FACTOR (3) times the rate of the rest; NAME+steps:1,3,2 for other steps",
    ),
];

/// The source of a name; `seed` decides the sample for its means, and places arrivals where a trace has none.
///
/// # Errors
/// When nothing is called that, a trace cannot be read, or a shape does not parse; the message lists what there is.
pub fn scenario(name: &str, seed: u64) -> Result<Arc<dyn Source>> {
    scenario_held_by(name, seed, u64::MAX)
}

/// The same of pods that hold so many tokens at most: rows of a trace that are longer are left out, as of any trace.
///
/// # Errors
/// As [`scenario`], and when no row is left.
pub fn scenario_held_by(name: &str, seed: u64, most_tokens: u64) -> Result<Arc<dyn Source>> {
    let plain = |name: &str| plain(name, seed, most_tokens);
    let Some((base, shape)) = name.rsplit_once('+') else { return plain(name) };
    match shape.parse::<Shape>() {
        Ok(shape) => Ok(Arc::new(Shaped::new(plain(base)?, shape)?)),
        // A file may be called like that.
        Err(_) if base.starts_with("trace:") => plain(name),
        Err(error) => Err(error).with_context(|| format!("scenario {name:?}")),
    }
}

/// Every name that [`scenario`] knows, with a line on what it is.
pub fn names() -> Vec<(String, String)> {
    let listed = entries().into_iter().map(|entry| (entry.name, entry.what));
    listed.chain(FORMS.map(|(name, what)| (name.to_owned(), what.to_owned()))).collect()
}

fn plain(name: &str, seed: u64, most_tokens: u64) -> Result<Arc<dyn Source>> {
    if let Some(file) = name.strip_prefix("trace:") {
        return Ok(Arc::new(Replay::read(Path::new(file))?.held_by(most_tokens)?));
    }
    if let Some(factor) = name.strip_prefix("ladder:") {
        return ladder(name, factor, seed);
    }
    match entries().into_iter().find(|entry| entry.name.eq_ignore_ascii_case(name)) {
        Some(entry) => (entry.build)(seed),
        None => {
            let known: Vec<String> = names().into_iter().map(|(name, _)| name).collect();
            bail!("no scenario is called {name:?}; there are {}", known.join(", "))
        }
    }
}

/// The production ladder at its rates times a factor.
fn ladder(name: &str, factor: &str, seed: u64) -> Result<Arc<dyn Source>> {
    let factor: f64 = factor.parse().with_context(|| format!("{factor:?} is no factor"))?;
    ensure!(factor.is_finite() && factor > 0.0, "{name:?}: a factor is above zero");
    let ladder = scenarios::production_ladder(name, factor, seed);
    // In floating point: whole numbers would overflow before such a factor is refused.
    let stages = ladder.stages().into_iter().flatten();
    let requests: f64 = stages.map(|(rate_rps, for_s)| rate_rps * for_s).sum();
    ensure!(
        requests <= MOST_REQUESTS as f64,
        "{name:?} is of {requests:.0} requests, and at most {MOST_REQUESTS} are made: a lower factor"
    );
    Ok(Arc::new(ladder))
}

fn entry<S: Source + 'static>(
    name: impl Into<String>,
    what: impl Into<String>,
    build: impl Fn(u64) -> Result<S> + 'static,
) -> Entry {
    let build = move |seed| Ok(Arc::new(build(seed)?) as Arc<dyn Source>);
    Entry { name: name.into(), what: what.into(), build: Box::new(build) }
}

fn entries() -> Vec<Entry> {
    let variants = VARIANTS.iter();
    let published = SCENARIOS.iter().flat_map(|scenario| {
        variants.clone().map(move |variant| {
            let name = format!("{}{}", scenario.letter, variant.suffix);
            let what = format!("{}; {}", scenario.what, variant.what);
            entry(name, what, |seed| Ok(scenarios::conversation(scenario, variant, seed)))
        })
    });
    published.chain(others()).collect()
}

fn others() -> Vec<Entry> {
    let stage = |name: &'static str, rate_rps| {
        let what =
            format!("the production ladder's requests at {rate_rps} requests per second only");
        entry(name, what, move |seed| Ok(scenarios::production_stage(name, rate_rps, seed)))
    };
    vec![
        entry("ladder", "the production ladder: 8 stages of 1 and 5 requests per second", |seed| {
            Ok(scenarios::production_ladder("ladder", 1.0, seed))
        }),
        stage("ladder-1", 1.0),
        stage("ladder-5", 5.0),
        entry("production", "the production ladder's requests at any rate", |seed| {
            Ok(scenarios::production("production", seed))
        }),
        entry("sharegpt", "short chat requests that share nothing", |seed| {
            Ok(Mixture::sharegpt(seed))
        }),
        entry("bi-pattern", "256/16 and 4096/32 tokens at equal rates (AIBrix RFC)", |seed| {
            Ok(Mixture::bi_pattern(seed))
        }),
        entry("multi-pattern", "four patterns of a real log (AIBrix RFC)", |seed| {
            Ok(Mixture::multi_pattern(seed))
        }),
        entry("apps", "two applications, with a system prompt of 11000 tokens each", |seed| {
            Ok(scenarios::applications("apps", seed))
        }),
        entry("demo", "the mix of weir-bench demo", BuiltIn::new),
    ]
}
