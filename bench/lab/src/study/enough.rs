//! How many requests a run takes for a highest load to show, and what a reader is told where it had fewer.
//!
//! A queue must have time to grow: while requests come for less than a few times as long as one may wait and be answered, a load
//! that the pods cannot hold passes for one that they can, and the shorter the run, the higher the load.

use super::{Row, Setting, seek::told};

/// Requests come for so many times as long as one may take in all.
const TIMES: f64 = 3.0;

/// Seconds for which requests have to come: three times the longest that one of the highest band may take, to its first token
/// and for a mean answer at its pace.
pub(crate) fn least_span_s(setting: &Setting) -> f64 {
    let (means, objectives) = (setting.source.means(), &setting.objectives);
    let top = objectives.classes.iter().map(|class| class.band).max();
    let banded = objectives.classes.iter().filter(|class| Some(class.band) == top);
    let takes_s = banded.map(|class| {
        let ttft = class.slo(means.input_tokens as u32).ttft.unwrap_or_default();
        let tpot_ms = class.tpot_ms.unwrap_or_else(|| objectives.tightest_tpot_ms());
        ttft.as_secs_f64() + means.output_tokens * tpot_ms / 1e3
    });
    TIMES * takes_s.fold(0.0, f64::max)
}

/// Requests that come in that time at a load.
pub(crate) fn least_requests(setting: &Setting, load: f64) -> usize {
    (load * setting.capacity_rps() * least_span_s(setting)).ceil() as usize
}

/// What is to be known of the highest loads among these rows.
pub(super) fn notes(setting: &Setting, rows: &[Row]) -> Vec<String> {
    let found = || rows.iter().filter(|row| row.class == "all" && row.max_load.is_some());
    let names = |of: &dyn Fn(&Row) -> bool| {
        let names: Vec<&str> = found().filter(|row| of(row)).map(|row| &*row.policy).collect();
        (!names.is_empty()).then(|| names.join(", "))
    };
    let least = |row: &Row| least_requests(setting, row.max_load.unwrap_or_default());
    let unbounded = names(&|row| !row.bounded);
    let unbounded = unbounded
        .map(|names| format!("{names}: {}, not bounded by this run", told(f64::INFINITY, false)));
    let short = names(&|row| least(row) > setting.requests);
    let most = found().map(least).max().unwrap_or_default();
    let short = short.map(|names| too_short(setting, &names, most));
    unbounded.into_iter().chain(short).collect()
}

/// The warning that a run had too few requests.
pub(crate) fn too_short(setting: &Setting, whose: &str, least: usize) -> String {
    format!(
        "warning: {} requests per seed are too few for the highest load of {whose}: at that load they come in less than {:.0} s, \
         three times the TTFT objective and a mean answer. It takes --requests {least}",
        setting.requests,
        least_span_s(setting),
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        sim::Pool,
        study::Knowledge,
        trace::Arrival,
        workload::{Objectives, Replay},
    };

    fn setting(objectives: Objectives) -> Setting {
        let row = |number: u32| Arrival {
            at_s: f64::from(number),
            input_tokens: 1000,
            output_tokens: 100,
            class: None,
            prefix: Vec::new(),
        };
        let source = Replay::new("rows".to_owned(), (0..50).map(row).collect()).unwrap();
        Setting {
            pool: Pool::of("h100-qwen3-32b-tp2", 1, None).unwrap(),
            gpu: String::new(),
            source: Arc::new(source),
            objectives,
            mix: String::new(),
            requests: 100,
            knowledge: Knowledge::default(),
        }
    }

    #[test]
    fn a_run_lasts_three_times_what_a_request_of_the_highest_band_may_take() {
        let near = |objectives, span_s: f64| {
            let found = least_span_s(&setting(objectives));
            assert!((found - span_s).abs() < 1e-6, "{found} for {span_s}");
        };
        near(Objectives::default(), 3.0 * (2.0 + 5.0));
        near(Objectives::two_classes(), 3.0 * (1.0 + 4.0));
        near(Objectives::named_or_read("one-long").unwrap().1, 3.0 * (2.15 + 5.0));
        near(Objectives::none(), 3.0 * 5.0);
    }

    #[test]
    fn a_highest_load_of_a_short_run_is_warned_of_once_for_all_policies() {
        let mut setting = setting(Objectives::default());
        let row = |policy: &str, load, bounded| Row {
            policy: policy.to_owned(),
            class: "all".to_owned(),
            max_load: Some(load),
            bounded,
            ..Row::default()
        };
        let rows = [row("weir", 15.99, false), row("random", 12.0, true)];
        let [unbounded, short] = &notes(&setting, &rows)[..] else { panic!() };
        assert_eq!(unbounded, "weir: at least 16, not bounded by this run");
        let least = least_requests(&setting, 15.99);
        assert!(short.contains("weir, random") && short.ends_with(&format!(" {least}")), "{short}");
        setting.requests = least;
        assert_eq!(notes(&setting, &rows).len(), 1);
        assert_eq!(notes(&setting, &[Row { max_load: None, ..row("weir", 0.0, true) }]).len(), 0);
    }
}
