//! How many requests a run takes for its figures to show what pods hold, and what a reader is told where it had fewer.
//!
//! A queue must have time to grow: while requests come for less than a few times as long as one may wait and be answered, a load
//! that the pods cannot hold passes for one that they can, and the shorter the run, the higher the load. That goes for every
//! class: what waits at the last arrival is served while nothing comes any more, so a class that may wait half a minute is all
//! in time in a run of half a minute, whatever the load.

use super::{
    Row, Setting,
    seek::{RESOLUTION, told},
};

/// Requests come for so many times as long as one may take in all.
const TIMES: f64 = 3.0;

/// Seconds for which requests have to come: three times the longest that one may take, to its first token and for a mean answer
/// at its pace. Classes below the highest band count where they are promised a first token.
pub(crate) fn least_span_s(setting: &Setting) -> f64 {
    let (means, objectives) = (setting.source.means(), &setting.objectives);
    let top = objectives.classes.iter().map(|class| class.band).max();
    let counted = objectives.classes.iter();
    let counted = counted.filter(|class| Some(class.band) == top || class.ttft_ms.is_some());
    let takes_s = counted.map(|class| {
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

/// What is to be known of these rows: highest loads that the run does not bound, and loads for which it is too short.
pub(super) fn notes(setting: &Setting, rows: &[Row]) -> Vec<String> {
    let all = || rows.iter().filter(|row| row.class == "all");
    let found = all().filter_map(|row| Some((&*row.policy, row.max_load?, row.bounded)));
    let given: Vec<f64> = all().filter_map(|row| row.load).collect();
    let found: Vec<_> = found.collect();
    let mut notes = notes_of_found(setting, &found);
    if found.iter().any(|(_, load, _)| *load == 0.0) {
        notes.push(format!("a row without a highest load says how it went at {RESOLUTION}"));
    }
    notes.extend(note_of_given(setting, &given));
    notes
}

/// The same of highest loads, each with whose it is and whether the run bounds it.
pub(crate) fn notes_of_found(setting: &Setting, found: &[(&str, f64, bool)]) -> Vec<String> {
    let names = |of: &dyn Fn(f64, bool) -> bool| {
        let those = found.iter().filter(|(_, load, bounded)| of(*load, *bounded));
        let names: Vec<&str> = those.map(|(name, ..)| *name).collect();
        (!names.is_empty()).then(|| names.join(", "))
    };
    let unbounded = names(&|_, bounded| !bounded);
    let unbounded = unbounded
        .map(|names| format!("{names}: {}, not bounded by this run", told(f64::INFINITY, false)));
    let none = names(&|load, bounded| bounded && load == 0.0);
    let none = none.map(|names| {
        format!("{names}: no load that was tried keeps that share, the least of them {RESOLUTION}")
    });
    let short = names(&|load, _| least_requests(setting, load) > setting.requests);
    let most = found.iter().map(|(_, load, _)| *load).fold(0.0, f64::max);
    let short = short.map(|names| {
        too_short(setting, &format!("the highest load of {names}"), least_requests(setting, most))
    });
    unbounded.into_iter().chain(none).chain(short).collect()
}

/// The warning of those of the given loads for which the run is too short, if it is for any.
pub(crate) fn note_of_given(setting: &Setting, loads: &[f64]) -> Option<String> {
    let mut short = loads.to_vec();
    short.retain(|load| least_requests(setting, *load) > setting.requests);
    short.sort_by(f64::total_cmp);
    short.dedup();
    let most = short.last().copied()?;
    let said: Vec<String> = short.iter().map(f64::to_string).collect();
    Some(too_short(setting, &format!("load {}", said.join(", ")), least_requests(setting, most)))
}

/// The warning that a run had too few requests for what is said.
pub(crate) fn too_short(setting: &Setting, what: &str, least: usize) -> String {
    format!(
        "warning: {} requests per seed are too few for {what}: there they come in less than {:.0} s, three times the longest \
         that one may take, to its first token and for a mean answer; what waits at the end is served while nothing comes any \
         more, and shares in time and highest loads can be too high. It takes --requests {least}",
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
            dispatchers: 1,
        }
    }

    #[test]
    fn a_run_lasts_three_times_what_a_request_of_any_class_may_take() {
        let near = |objectives, span_s: f64| {
            let found = least_span_s(&setting(objectives));
            assert!((found - span_s).abs() < 1e-6, "{found} for {span_s}");
        };
        near(Objectives::default(), 3.0 * (2.0 + 5.0));
        near(Objectives::two_classes(), 3.0 * (30.0 + 10.0));
        let mut nightly = Objectives::two_classes();
        (nightly.classes[1].ttft_ms, nightly.classes[1].tpot_ms) = (None, Some(1e6));
        // Whoever may take for ever has nothing to show.
        near(nightly, 3.0 * (1.0 + 4.0));
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

    #[test]
    fn where_no_load_keeps_the_share_that_is_said_and_of_which_load_the_row_is() {
        let row = Row { max_load: Some(0.0), bounded: true, ..Row::default() };
        let rows = [Row { policy: "weir".to_owned(), class: "all".to_owned(), ..row }];
        let [none, row] = &notes(&setting(Objectives::default()), &rows)[..] else { panic!() };
        assert_eq!(none, "weir: no load that was tried keeps that share, the least of them 0.01");
        assert_eq!(row, "a row without a highest load says how it went at 0.01");
        assert_eq!((told(0.0, true), told(0.01, true)), ("none".to_owned(), "0.01".to_owned()));
    }

    #[test]
    fn given_loads_of_a_short_run_are_warned_of_too() {
        let mut setting = setting(Objectives::two_classes());
        let row = |policy: &str, load| Row {
            policy: policy.to_owned(),
            class: "all".to_owned(),
            load: Some(load),
            bounded: true,
            ..Row::default()
        };
        let rows = [row("weir", 1.3), row("random", 1.3), row("weir", 0.5), row("random", 0.5)];
        let least = least_requests(&setting, 1.3);
        setting.requests = least - 1;
        let [note] = &notes(&setting, &rows)[..] else { panic!() };
        assert!(note.contains("too few for load 1.3:"), "{note}");
        assert!(note.contains(" 120 s") && note.ends_with(&format!(" {least}")), "{note}");
        setting.requests = least;
        assert!(notes(&setting, &rows).is_empty());
        // Traffic with rates of its own is as long as it is.
        setting.requests = 1;
        assert!(notes(&setting, &[Row { load: None, ..row("weir", 1.0) }]).is_empty());
    }
}
