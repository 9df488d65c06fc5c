//! From what policies showed to the rows of the table.

use std::path::Path;

use super::{
    case::Case,
    contest::{Showing, WEIR, best},
    probe::Share,
    reach::Reach,
    reading::Reading,
    wanted::{
        Ask, EXACT, FREE_LOAD, LADDER_RIVAL, LARGE_LOAD, LIVE_LOAD, OVERLOAD, Predicted, Wanted,
    },
};
use crate::{limits::Line, report::Target, study::Row, workload::Objectives};

/// The share that a stated 90th percentile is to hold for.
const STATED: f64 = 0.9;

/// What a row is judged by: who did what.
pub(super) struct Evidence<'a> {
    /// The case.
    pub(super) case: &'static Case,
    /// Weir and the finalists, with all seeds.
    pub(super) showings: &'a [Showing],
    /// Weir's variants at the loads that rows ask about.
    pub(super) variants: &'a [Showing],
    /// Weir and its best rival beside what no scheduler exceeds, at the loads that were looked at.
    pub(super) limits: &'a [Line],
    /// How far highest loads could go.
    pub(super) reach: &'a [Reach],
    /// Seeds.
    pub(super) seeds: usize,
    /// Requests per seed.
    pub(super) requests: usize,
    /// Where traces are.
    pub(super) traces: Option<&'a Path>,
}

/// A row that could not be run, and why.
pub(super) fn not_run(wanted: &Wanted, why: String) -> Target {
    Target { note: Some(why), ..blank(wanted) }
}

fn blank(wanted: &Wanted) -> Target {
    Target {
        id: wanted.id(),
        what: wanted.what(),
        start: wanted.start.map(str::to_owned),
        target: wanted.target,
        keep: wanted.ask.keep(),
        judged: wanted.ask.judged(),
        ..Target::default()
    }
}

impl Evidence<'_> {
    /// The row.
    pub(super) fn judge(&self, wanted: &Wanted) -> Target {
        let blank = Target { seeds: self.seeds, requests: self.requests, ..blank(wanted) };
        if wanted.ask == Ask::Cost {
            return self.cost(blank);
        }
        let weir = self.showings.iter().find(|showing| showing.policy == WEIR);
        if let Ask::Error(_) | Ask::Coverage(_) = wanted.ask {
            return self.alone(weir, wanted.ask, blank);
        }
        let (Some(weir), Some(rival)) = (weir, self.rival(wanted.ask)) else {
            return Target { note: Some("not run: no rival of this kind".to_owned()), ..blank };
        };
        let (own, others) = (reading(weir, wanted.ask), reading(rival, wanted.ask));
        let (Some(own), Some(others)) = (own, others) else {
            return Target { note: Some("not run: nothing was measured".to_owned()), ..blank };
        };
        let command = self.command(wanted.ask, &rival.policy, own.value, others.value);
        Target {
            measured: Some(own.value),
            rival: Some(others.value),
            best_rival: Some(rival.policy.clone()),
            interval: own.over(&others),
            limit: self.limit(weir, wanted.ask),
            lower_in_time: self.lower_in_time(weir, wanted.ask),
            rival_lower_in_time: self.lower_in_time(rival, wanted.ask),
            note: self.oracle(wanted.ask),
            command,
            ..blank
        }
        .judged()
    }

    /// The highest load that no scheduler exceeds; or requests per second that none has more of in time: those that came while
    /// Weir served, times the share that can be.
    fn limit(&self, weir: &Showing, ask: Ask) -> Option<f64> {
        if let Some(reach) = self.reach_of(ask) {
            return Some(reach.limit);
        }
        let Ask::Goodput(_) = ask else { return None };
        let line = self.limits.iter().find(|line| line.policy == WEIR && line.load == OVERLOAD)?;
        let row = weir.at(OVERLOAD)?.rows.first().filter(|row| row.attainment > 0.0)?;
        Some(row.goodput_rps / row.attainment * line.attainment_limit)
    }

    /// Share of the requests below the highest band that are in time at a highest load: a load is held for that band alone.
    fn lower_in_time(&self, showing: &Showing, ask: Ask) -> Option<f64> {
        let (share, at) = match ask {
            Ask::Load(at) => (Share::Attained, at),
            Ask::LoadFrom16(at) => (Share::From16, at),
            _ => return None,
        };
        let (_, objectives) = Objectives::named_or_read(self.case.mix).ok()?;
        let top = objectives.classes.iter().map(|class| class.band).max()?;
        let is_lower = |row: &&Row| {
            let class = objectives.place_of(&row.class).and_then(|at| objectives.classes.get(at));
            class.is_some_and(|class| class.band < top)
        };
        let rows = &showing.highest(share, at)?.rows;
        let (in_time, came) = rows.iter().filter(is_lower).fold((0.0, 0.0), |(part, all), row| {
            let came = row.requests as f64;
            (part + row.attainment * came, all + came)
        });
        (came > 0.0).then(|| in_time / came)
    }

    fn reach_of(&self, ask: Ask) -> Option<&Reach> {
        let Ask::Load(at) = ask else { return None };
        self.reach.iter().find(|reach| (reach.at - at).abs() < 1e-9)
    }

    /// What the oracle attains where a target is missed.
    fn oracle(&self, ask: Ask) -> Option<String> {
        Some(format!("of what the target asks for: {}", self.reach_of(ask)?.oracle?.words()))
    }

    fn rival(&self, ask: Ask) -> Option<&Showing> {
        match ask {
            // Both figures of the same rival: it cannot be the one with the shorter TTFT too.
            Ask::MeanTtft => best(self.showings, Ask::MeanE2e, 1).into_iter().next(),
            Ask::MedianE2e | Ask::MedianTtft => {
                self.showings.iter().find(|showing| showing.policy == LADDER_RIVAL)
            }
            Ask::Trained(_) => self.showings.iter().find(|showing| showing.policy == EXACT),
            ask => best(self.showings, ask, 1).into_iter().next(),
        }
    }

    /// A row that no rival is asked about.
    fn alone(&self, weir: Option<&Showing>, ask: Ask, blank: Target) -> Target {
        let Some(reading) = weir.and_then(|weir| reading(weir, ask)) else {
            return Target { note: Some("not run: nothing was measured".to_owned()), ..blank };
        };
        let command = self.line(WEIR, &format!("--load {LIVE_LOAD}"));
        let (measured, note) = match ask {
            Ask::Coverage(_) => {
                let off = (reading.value - STATED).abs();
                (off, Some(format!("coverage {:.1} %", reading.value * 100.0)))
            }
            _ => (reading.value, None),
        };
        let interval = reading.interval();
        Target { measured: Some(measured), interval, command, note, ..blank }.judged()
    }

    /// Points of attainment over all that the best variant has more than Weir.
    fn cost(&self, blank: Target) -> Target {
        let attained = |showing: &Showing| {
            let at = showing.at(LARGE_LOAD)?;
            Some((showing.policy.clone(), seeds_of(&at.each, |row| Some(row.attainment))))
        };
        let Some((_, own)) = self.showings.iter().find(|one| one.policy == WEIR).and_then(attained)
        else {
            return Target { note: Some("not run: nothing was measured".to_owned()), ..blank };
        };
        // Variants may have run with fewer seeds: the same seeds of Weir are compared.
        let points = |(name, theirs): (String, Vec<f64>)| {
            let pairs = theirs.iter().zip(&own).map(|(theirs, own)| (theirs - own) * 100.0);
            (name, Reading::mean(&pairs.collect::<Vec<_>>()))
        };
        let variants = self
            .variants
            .iter()
            .filter(|one| one.policy != WEIR && !is_told(&one.policy))
            .filter_map(attained)
            .map(points);
        let Some((name, most)) = variants.max_by(|a, b| a.1.value.total_cmp(&b.1.value)) else {
            return Target { note: Some("not run: no variant".to_owned()), ..blank };
        };
        let command = self.line(&format!("{WEIR},{name}"), &format!("--load {LARGE_LOAD}"));
        let (measured, interval) = (Some(most.value.max(0.0)), most.interval());
        Target { measured, interval, best_rival: Some(name), command, ..blank }.judged()
    }

    fn command(&self, ask: Ask, rival: &str, own: f64, others: f64) -> String {
        let policies = format!("{WEIR},{rival}");
        let question = match ask {
            Ask::Load(at) => format!("--at {at}"),
            // Read in the column of 16 tokens.
            Ask::LoadFrom16(_) => format!("--load {own:.2},{others:.2}"),
            Ask::Goodput(_) => format!("--load {OVERLOAD}"),
            Ask::Largest | Ask::WorstWait | Ask::Cost => format!("--load {LARGE_LOAD}"),
            Ask::MeanE2e | Ask::MeanTtft => format!("--load {FREE_LOAD}"),
            // With rates of its own.
            Ask::MedianE2e | Ask::MedianTtft => String::new(),
            // The rival is Weir itself: `--prediction oracle:0` in place of `trained`.
            Ask::Trained(at) => return self.line(WEIR, &format!("--at {at}")),
            Ask::Error(_) | Ask::Coverage(_) => format!("--load {LIVE_LOAD}"),
        };
        self.line(&policies, &question)
    }

    fn line(&self, policies: &str, question: &str) -> String {
        format!(
            "weir-bench sim {} --policy {policies}{}{question} --seeds {} --requests {}",
            self.case.arguments(self.traces),
            if question.is_empty() { "" } else { " " },
            self.seeds,
            self.requests,
        )
    }
}

/// Variants that know what nobody can know are no alternative.
fn is_told(policy: &str) -> bool {
    policy.ends_with(":length-known") || policy.ends_with(":perfect")
}

/// The figure that an ask is about.
fn reading(showing: &Showing, ask: Ask) -> Option<Reading> {
    let about = |load: f64, figure: fn(&Row) -> Option<f64>| {
        let at = showing.at(load)?;
        Some(Reading::about(figure(at.rows.first()?)?, &seeds_of(&at.each, figure)))
    };
    match ask {
        Ask::Load(at) | Ask::Trained(at) => {
            Some(showing.highest(Share::Attained, at)?.load.clone())
        }
        Ask::LoadFrom16(at) => Some(showing.highest(Share::From16, at)?.load.clone()),
        Ask::Goodput(_) => about(OVERLOAD, |row| Some(row.goodput_rps)),
        Ask::Largest => about(LARGE_LOAD, |row| row.attainment_large5),
        Ask::WorstWait => about(LARGE_LOAD, |row| row.worst_wait_ms),
        Ask::Cost => None,
        Ask::MeanE2e => about(FREE_LOAD, |row| row.e2e_ms_mean),
        Ask::MeanTtft => about(FREE_LOAD, |row| row.ttft_ms_mean),
        Ask::MedianE2e => about(1.0, |row| row.e2e_ms_p50),
        Ask::MedianTtft => about(1.0, |row| row.ttft_ms_p50),
        Ask::Error(Predicted::Ttft) => about(LIVE_LOAD, |row| row.mape_ttft),
        Ask::Error(Predicted::Tpot) => about(LIVE_LOAD, |row| row.mape_tpot),
        Ask::Coverage(Predicted::Ttft) => about(LIVE_LOAD, |row| row.coverage_ttft),
        Ask::Coverage(Predicted::Tpot) => about(LIVE_LOAD, |row| row.coverage_tpot),
    }
}

/// A figure of each seed, all classes together.
fn seeds_of(each: &[Vec<Row>], figure: fn(&Row) -> Option<f64>) -> Vec<f64> {
    each.iter().filter_map(|rows| figure(rows.first()?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::{
        contest::AtLoad,
        probe::Highest,
        reach::{self, Beyond},
        wanted::Kind,
    };

    fn showing(policy: &str, attained: f64, e2e_ms: f64) -> Showing {
        let row = |off: f64| Row {
            class: "all".to_owned(),
            attainment: attained + off,
            e2e_ms_mean: Some(e2e_ms * (1.0 + off)),
            ttft_ms_mean: Some(e2e_ms / 10.0),
            ..Row::default()
        };
        let each = [-0.01, 0.0, 0.01].map(|off| vec![row(off)]).to_vec();
        let at = |load| AtLoad { load, rows: vec![row(0.0)], each: each.clone() };
        Showing {
            policy: policy.to_owned(),
            loads: vec![at(FREE_LOAD), at(LARGE_LOAD)],
            ..Showing::default()
        }
    }

    fn judge(ask: Ask, target: f64) -> Target {
        let showings = [
            showing(WEIR, 0.9, 800.0),
            showing("round-robin", 0.5, 1000.0),
            showing("cap-16", 0.5, 10.0),
        ];
        let variants = [showing("weir:strict", 0.93, 1.0), showing("weir:perfect", 0.99, 1.0)];
        let evidence = Evidence {
            case: Case::named("conv-none").unwrap(),
            showings: &showings,
            variants: &variants,
            limits: &[],
            reach: &[],
            seeds: 3,
            requests: 100,
            traces: None,
        };
        evidence.judge(&Wanted { case: "conv-none", ask, start: None, target })
    }

    #[test]
    fn the_best_rival_of_the_kind_is_the_one_that_counts() {
        let target = judge(Ask::MeanE2e, 0.85);
        assert_eq!(
            (target.best_rival.as_deref(), target.passed),
            (Some("round-robin"), Some(true))
        );
        assert_eq!(target.ratio, Some(0.8));
        assert!(target.interval.unwrap() < 1e-9, "the same seeds are as hard for both: {target:?}");
        assert!(
            target
                .command
                .contains("--policy weir,round-robin --load 0.9 --seeds 3 --requests 100"),
            "{target:?}"
        );
    }

    #[test]
    fn both_figures_without_objectives_are_of_the_same_rival() {
        assert_eq!(judge(Ask::MeanTtft, 1.1).best_rival.as_deref(), Some("round-robin"));
    }

    #[test]
    fn the_cost_is_what_the_best_variant_has_more_that_could_be_had() {
        let target = judge(Ask::Cost, 2.0);
        assert_eq!(
            (target.best_rival.as_deref(), target.passed),
            (Some("weir:strict"), Some(false))
        );
        assert!((target.measured.unwrap() - 3.0).abs() < 1e-9);
    }

    #[test]
    fn goodput_is_told_with_what_no_scheduler_exceeds() {
        let at = |goodput_rps, attainment| {
            let row = Row { goodput_rps, attainment, ..Row::default() };
            AtLoad { load: OVERLOAD, rows: vec![row.clone()], each: vec![vec![row]] }
        };
        let one = |policy: &str, at| Showing {
            policy: policy.to_owned(),
            loads: vec![at],
            ..Showing::default()
        };
        let line = |load, attainment_limit| Line {
            policy: WEIR.to_owned(),
            load,
            attainment_limit,
            ..Line::default()
        };
        let evidence = Evidence {
            case: Case::named("conv-one").unwrap(),
            showings: &[one(WEIR, at(36.0, 0.9)), one("cap-16", at(25.0, 0.6))],
            variants: &[],
            limits: &[line(1.0, 1.0), line(OVERLOAD, 0.95)],
            reach: &[],
            seeds: 1,
            requests: 100,
            traces: None,
        };
        let ask = |ask| evidence.judge(&Wanted { case: "conv-one", ask, start: None, target: 2.0 });
        let target = ask(Ask::Goodput(Kind::Pull));
        assert_eq!(
            (target.ratio, target.limit, target.most()),
            (Some(1.44), Some(38.0), Some(1.52))
        );
        assert_eq!(ask(Ask::Largest).limit, None);
    }

    #[test]
    fn a_highest_load_is_told_with_what_could_be_held() {
        let highest = |value| Highest { load: Reading::about(value, &[]), rows: Vec::new() };
        let one = |policy: &str, load| Showing {
            policy: policy.to_owned(),
            levels: vec![(Share::Attained, 0.99, highest(load))],
            ..Showing::default()
        };
        let showings = [one(WEIR, 1.06), one("cap-16", 0.93)];
        let row = Wanted { case: "conv-one", ask: Ask::Load(0.99), start: None, target: 1.25 };
        assert_eq!(reach::missing(&showings, &row, 0.99), Some(1.17));
        assert_eq!(reach::missing(&showings, &Wanted { target: 1.1, ..row }, 0.99), None);
        let evidence = Evidence {
            case: Case::named("conv-one").unwrap(),
            showings: &showings,
            variants: &[],
            limits: &[],
            reach: &[Reach {
                at: 0.99,
                limit: 1.41,
                oracle: Some(Beyond { load: 1.17, shares: [0.951, 0.948] }),
            }],
            seeds: 1,
            requests: 100,
            traces: None,
        };
        let target = evidence.judge(&row);
        assert_eq!((target.limit, target.passed), (Some(1.41), Some(false)));
        let note = "of what the target asks for: at 1.17 the clairvoyant has 95.1 % of two seeds in time, Weir 94.8 %";
        assert_eq!(target.note.as_deref(), Some(note));
    }

    #[test]
    fn a_highest_load_is_told_with_what_lower_classes_pay_for_it() {
        let row = |class: &str, requests, attainment| Row {
            class: class.to_owned(),
            requests,
            attainment,
            ..Row::default()
        };
        let one = |policy: &str, load, batch| {
            let rows = vec![
                row("all", 1000, 0.97),
                row("interactive", 700, 0.99),
                row("batch", 300, batch),
            ];
            let highest = Highest { load: Reading::about(load, &[]), rows };
            let levels = vec![(Share::Attained, 0.99, highest)];
            Showing { policy: policy.to_owned(), levels, ..Showing::default() }
        };
        let showings = [one(WEIR, 1.1, 0.86), one("cap-16", 0.6, 1.0)];
        let judge = |case: &'static str| {
            let evidence = Evidence {
                case: Case::named(case).unwrap(),
                showings: &showings,
                variants: &[],
                limits: &[],
                reach: &[],
                seeds: 1,
                requests: 100,
                traces: None,
            };
            let target =
                evidence.judge(&Wanted { case, ask: Ask::Load(0.99), start: None, target: 1.8 });
            (target.lower_in_time, target.rival_lower_in_time)
        };
        assert_eq!(judge("conv-two"), (Some(0.86), Some(1.0)));
        assert_eq!(judge("conv-one"), (None, None), "of one class there is no lower one");
    }

    #[test]
    fn what_was_not_measured_is_not_passed() {
        let target = judge(Ask::MedianE2e, 0.65);
        assert_eq!((target.passed, target.measured), (None, None));
        assert!(target.note.unwrap().starts_with("not run"));
    }
}
