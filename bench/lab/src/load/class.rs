//! Classes of requests: their share of the load and the objectives they are judged by.

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;

/// One class. Its name is sent as the request's objective.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Class {
    /// Value of the header `x-llm-d-inference-objective`.
    pub name: String,
    /// Share of the requests, 0 to 1; only for requests whose trace row names no class.
    pub share: f64,
    /// Objective for the time to the first token, in milliseconds from the moment of sending.
    pub ttft_ms: f64,
    /// Objective for the mean time per token after the first, in milliseconds.
    pub tpot_ms: f64,
}

impl Class {
    /// Whether a served request met both objectives. A request of one token has no TPOT to miss.
    pub fn met(&self, ttft_ms: f64, tpot_ms: Option<f64>) -> bool {
        ttft_ms <= self.ttft_ms && tpot_ms.is_none_or(|tpot_ms| tpot_ms <= self.tpot_ms)
    }
}

/// TTFT and TPOT in milliseconds of the objectives that Weir's default configuration names.
const DEFAULTS: [(&str, f64, f64); 3] =
    [("interactive", 2000.0, 50.0), ("standard", 4000.0, 100.0), ("batch", 30_000.0, 100.0)];

/// Classes from `name:share` and `name=ttft_ms/tpot_ms`; shares are scaled to sum to 1.
///
/// # Errors
/// When one does not parse, a class has no objectives, or an objective has no class.
pub fn parse_classes(shares: &[String], objectives: &[String]) -> Result<Vec<Class>> {
    let given: Vec<(&str, f64, f64)> =
        objectives.iter().map(|text| objective(text)).collect::<Result<_>>()?;
    let mut classes: Vec<Class> = Vec::new();
    for text in shares {
        let (name, share) = text.split_once(':').unwrap_or((text, "1"));
        ensure!(classes.iter().all(|known| known.name != name), "--classes names {name:?} twice");
        let share = number(share).with_context(|| format!("--classes {text:?}"))?;
        let found = given.iter().chain(&DEFAULTS).find(|(known, ..)| *known == name);
        let Some(&(_, ttft_ms, tpot_ms)) = found else {
            bail!("class {name:?} has no objectives: give --slo {name}=ttft_ms/tpot_ms");
        };
        classes.push(Class { name: name.to_owned(), share, ttft_ms, tpot_ms });
    }
    for (place, (name, ..)) in given.iter().enumerate() {
        let twice = given.iter().skip(place + 1).any(|(later, ..)| later == name);
        ensure!(!twice, "--slo names {name:?} twice");
        ensure!(
            classes.iter().any(|class| class.name == *name),
            "--slo names {name:?}, which is no class"
        );
    }
    let total: f64 = classes.iter().map(|class| class.share).sum();
    ensure!(total > 0.0, "--classes needs at least one class with a share above zero");
    classes.iter_mut().for_each(|class| class.share /= total);
    Ok(classes)
}

fn objective(text: &str) -> Result<(&str, f64, f64)> {
    let parts = text.split_once('=').and_then(|(name, rest)| Some((name, rest.split_once('/')?)));
    let (name, (ttft, tpot)) =
        parts.with_context(|| format!("--slo {text:?} is not name=ttft_ms/tpot_ms"))?;
    Ok((name, number(ttft)?, number(tpot)?))
}

fn number(text: &str) -> Result<f64> {
    let value: f64 = text.parse().with_context(|| format!("{text:?} is no number"))?;
    ensure!(value.is_finite() && value >= 0.0, "{text:?} is below zero or not finite");
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(list: &[&str]) -> Vec<String> {
        list.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn shares_are_scaled_and_objectives_default_by_name() {
        let classes =
            parse_classes(&texts(&["interactive:2", "x:2"]), &texts(&["x=100/5"])).unwrap();
        assert_eq!(classes[0].share, 0.5);
        assert_eq!((classes[0].ttft_ms, classes[0].tpot_ms), (2000.0, 50.0));
        assert_eq!((classes[1].ttft_ms, classes[1].tpot_ms), (100.0, 5.0));
    }

    #[test]
    fn a_class_without_objectives_and_an_objective_without_a_class_are_errors() {
        assert!(parse_classes(&texts(&["gold:1"]), &[]).is_err());
        assert!(parse_classes(&texts(&["batch:1"]), &texts(&["gold=1/1"])).is_err());
        assert!(parse_classes(&texts(&["batch:0"]), &[]).is_err());
        assert!(parse_classes(&texts(&["batch:-1"]), &[]).is_err());
    }

    #[test]
    fn what_is_named_twice_is_an_error() {
        let twice = |shares, objectives| {
            parse_classes(&texts(shares), &texts(objectives)).unwrap_err().to_string()
        };
        assert_eq!(twice(&["batch:1", "batch:2"], &[]), "--classes names \"batch\" twice");
        let objectives = &["batch=1/1", "interactive=1/1", "batch=2/2"];
        assert_eq!(twice(&["batch", "interactive"], objectives), "--slo names \"batch\" twice");
    }

    #[test]
    fn both_objectives_must_be_met() {
        let class = &parse_classes(&texts(&["interactive"]), &[]).unwrap()[0];
        assert!(class.met(2000.0, Some(50.0)) && class.met(10.0, None));
        assert!(!class.met(2000.1, None) && !class.met(10.0, Some(50.1)));
    }
}
