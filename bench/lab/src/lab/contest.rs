//! Who is run in which case, and with how much: first all rivals briefly, then Weir and the best of them in full.

use std::path::Path;

use anyhow::Result;

use super::{
    case::Case,
    probe::{Highest, Probe, Share},
    wanted::{Ask, FREE_LOAD, Kind, LADDER_RIVAL, LARGE_LOAD, LIVE_LOAD, OVERLOAD, Wanted, kind},
};
use crate::{
    contender::Contender,
    study::{Row, Setting},
};

/// The policy that the table is about.
pub(super) const WEIR: &str = "weir";
/// Rivals per question that are run in full.
const BEST: usize = 3;
/// The same where push and pull are asked for each.
const BEST_OF_KIND: usize = 2;
/// Loads of the curves.
const CURVE: [f64; 3] = [LARGE_LOAD, 1.0, OVERLOAD];
/// Loads at which rivals are screened, as multiples of what Weir holds.
const AROUND: [f64; 4] = [0.4, 0.7, 1.0, 1.3];

/// What is looked at.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Errand {
    /// Highest loads.
    pub(super) levels: Vec<(Share, f64)>,
    /// Given loads.
    pub(super) loads: Vec<f64>,
    /// Whether highest loads are only read off, from the given ones and from these.
    pub(super) is_brief: bool,
    /// The lowest first: looked at until none of the levels is held.
    pub(super) around: Vec<f64>,
}

/// What a policy showed in a case.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Showing {
    /// Whose.
    pub(super) policy: String,
    /// Its highest loads.
    pub(super) levels: Vec<(Share, f64, Highest)>,
    /// Its figures at given loads.
    pub(super) loads: Vec<AtLoad>,
}

/// Figures at a load.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct AtLoad {
    /// The load.
    pub(super) load: f64,
    /// Over all seeds, all classes together first.
    pub(super) rows: Vec<Row>,
    /// Of each seed.
    pub(super) each: Vec<Vec<Row>>,
}

impl Errand {
    /// What the rows of a case need.
    pub(super) fn of(rows: &[Wanted]) -> Self {
        let mut errand = Self::default();
        for row in rows {
            match row.ask {
                Ask::Load(_) | Ask::Trained(_) | Ask::LoadFrom16(_) => {}
                Ask::Goodput(_) => errand.load(OVERLOAD),
                Ask::Largest | Ask::WorstWait | Ask::Cost => errand.load(LARGE_LOAD),
                Ask::MeanE2e | Ask::MeanTtft => errand.load(FREE_LOAD),
                Ask::MedianE2e | Ask::MedianTtft => errand.load(1.0),
                Ask::Error(_) | Ask::Coverage(_) => errand.load(LIVE_LOAD),
            }
            add(&mut errand.levels, level(row.ask));
        }
        errand
    }

    /// The same with the loads of the curves, where anybody is promised anything and steps are the engine's own.
    pub(super) fn in_full(&self, case: &Case) -> Self {
        let mut errand = self.clone();
        if case.mix != "none" && case.chunk_tokens.is_none() && !case.trained {
            CURVE.into_iter().for_each(|load| errand.load(load));
        }
        errand
    }

    /// The same for a screening: highest loads are read off a few loads around the one that Weir held.
    pub(super) fn in_brief(&self, weir: Option<&Showing>) -> Self {
        let held = weir.and_then(|weir| weir.levels.first()).map(|level| level.2.load.value);
        let near = |held: f64| AROUND.map(|part| (held.max(0.02) * part * 100.0).round() / 100.0);
        let around = held.map(near).into_iter().flatten().collect();
        Self { is_brief: true, around, ..self.clone() }
    }

    fn load(&mut self, load: f64) {
        add(&mut self.loads, Some(load));
    }

    /// Simulations per seed that highest loads take, about.
    pub(super) fn sought(&self) -> usize {
        match self.levels.len() {
            0 => 0,
            // Few rivals hold a level at the highest of them.
            _ if self.is_brief => AROUND.len() - 1,
            levels => 11 + 4 * (levels - 1),
        }
    }

    /// Runs it.
    ///
    /// # Errors
    /// When the study cannot be run.
    pub(super) fn run(
        &self,
        setting: &Setting,
        contender: &Contender,
        seeds: &[u64],
    ) -> Result<Showing> {
        let mut probe = Probe::new(setting, contender, seeds);
        let mut showing = Showing { policy: contender.name().to_owned(), ..Showing::default() };
        if !self.is_brief {
            for (share, at) in &self.levels {
                showing.levels.push((*share, *at, probe.highest(*share, *at)?));
            }
        }
        for load in &self.loads {
            probe.at(*load)?;
        }
        for load in &self.around {
            if self.levels.iter().any(|(share, at)| probe.may_hold(*load, *share, *at)) {
                probe.at(*load)?;
            }
        }
        if self.is_brief {
            let estimates = self.levels.iter();
            showing.levels =
                estimates.map(|(share, at)| (*share, *at, probe.estimate(*share, *at))).collect();
        }
        for load in probe.complete() {
            let (rows, each) = probe.at(load)?;
            showing.loads.push(AtLoad { load, rows, each });
        }
        Ok(showing)
    }
}

impl Showing {
    /// The same under another name.
    pub(super) fn renamed(mut self, name: &str) -> Self {
        let levels = self.levels.iter_mut().flat_map(|level| &mut level.2.rows);
        let loads = self.loads.iter_mut();
        let loads = loads.flat_map(|at| at.rows.iter_mut().chain(at.each.iter_mut().flatten()));
        levels.chain(loads).for_each(|row| name.clone_into(&mut row.policy));
        Self { policy: name.to_owned(), ..self }
    }

    /// The highest load of a level.
    pub(super) fn highest(&self, share: Share, at: f64) -> Option<&Highest> {
        self.levels.iter().find(|level| (level.0, level.1) == (share, at)).map(|level| &level.2)
    }

    /// Figures at a load.
    pub(super) fn at(&self, load: f64) -> Option<&AtLoad> {
        self.loads.iter().find(|at| (at.load - load).abs() < 1e-6)
    }

    /// Adds what it showed at other loads.
    pub(super) fn add_loads(&mut self, loads: Vec<AtLoad>) {
        let new = |at: &AtLoad| self.at(at.load).is_none();
        let new: Vec<AtLoad> = loads.into_iter().filter(new).collect();
        self.loads.extend(new);
        self.loads.sort_by(|one, other| one.load.total_cmp(&other.load));
    }

    /// What it is worth to an ask: more is better. `None` where it was not looked at, or is no rival to it.
    fn worth(&self, ask: Ask) -> Option<f64> {
        let all = |load: f64| self.at(load)?.rows.first();
        // Whoever refuses the hard ones is quick with the others.
        let push =
            |load: f64| all(load).filter(|row| kind(&self.policy) == Kind::Push && serves_all(row));
        match ask {
            Ask::Load(at) => Some(self.highest(Share::Attained, at)?.load.value),
            Ask::LoadFrom16(at) => Some(self.highest(Share::From16, at)?.load.value),
            Ask::Goodput(of) if kind(&self.policy) == of => Some(all(OVERLOAD)?.goodput_rps),
            Ask::Largest => all(LARGE_LOAD)?.attainment_large5,
            Ask::WorstWait => push(LARGE_LOAD)?.worst_wait_ms.map(|ms| -ms),
            Ask::MeanE2e => push(FREE_LOAD)?.e2e_ms_mean.map(|ms| -ms),
            _ => None,
        }
    }
}

/// The highest load that an ask is about.
pub(super) const fn level(ask: Ask) -> Option<(Share, f64)> {
    match ask {
        Ask::Load(at) | Ask::Trained(at) => Some((Share::Attained, at)),
        Ask::LoadFrom16(at) => Some((Share::From16, at)),
        _ => None,
    }
}

/// Adds what is not there yet.
fn add<T: PartialEq>(list: &mut Vec<T>, new: Option<T>) {
    list.extend(new.filter(|new| !list.contains(new)));
}

fn serves_all(row: &Row) -> bool {
    (row.refused + row.rejected) as f64 <= 0.005 * row.requests as f64
}

/// The best rivals of a screening for the rows of a case, each once, in the order of the rows.
pub(super) fn finalists<'a>(rows: &[Wanted], screened: &'a [Showing]) -> Vec<&'a str> {
    let mut names = Vec::new();
    for row in rows {
        if matches!(row.ask, Ask::MedianE2e | Ask::MedianTtft) {
            add(&mut names, Some(LADDER_RIVAL));
        }
        let most = if matches!(row.ask, Ask::Goodput(_)) { BEST_OF_KIND } else { BEST };
        let best = best(screened, row.ask, most);
        best.into_iter().for_each(|showing| add(&mut names, Some(showing.policy.as_str())));
    }
    names
}

/// The best of these for an ask, the best first.
pub(super) fn best(showings: &[Showing], ask: Ask, most: usize) -> Vec<&Showing> {
    let rivals = showings.iter().filter(|showing| !showing.policy.starts_with(WEIR));
    let mut worth: Vec<(f64, &Showing)> =
        rivals.filter_map(|showing| Some((showing.worth(ask)?, showing))).collect();
    worth.sort_by(|a, b| b.0.total_cmp(&a.0));
    worth.into_iter().take(most).map(|(_, showing)| showing).collect()
}

/// Everybody who is screened in a case.
pub(super) fn rivals(rows: &[Wanted]) -> Vec<&'static str> {
    let only_push = rows.iter().all(|row| matches!(row.ask, Ask::MeanE2e | Ask::MeanTtft));
    let only_one = rows.iter().all(|row| matches!(row.ask, Ask::MedianE2e | Ask::MedianTtft));
    if only_one || rows.iter().all(|row| !row.ask.is_contest()) {
        return Vec::new();
    }
    let wanted = |name: &&str| !only_push || kind(name) == Kind::Push;
    Contender::rivals().into_iter().filter(wanted).collect()
}

/// A case that can be run, with the rows of the table that are about it.
pub(super) struct Entry {
    /// The case.
    pub(super) case: &'static Case,
    /// The rows.
    pub(super) rows: Vec<Wanted>,
    /// Requests per seed that it needs at least.
    pub(super) least: usize,
}

impl Entry {
    /// The setting with so many requests per seed.
    ///
    /// # Errors
    /// When it is not there any more.
    pub(super) fn setting(&self, traces: Option<&Path>, usual: usize) -> Result<Setting> {
        let setting = self.case.setting(traces, usual)?;
        setting.ok_or_else(|| anyhow::anyhow!(self.case.missing(traces)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::reading::Reading;

    const LEVELS: [(Share, f64); 2] = [(Share::Attained, 0.99), (Share::Attained, 0.95)];

    /// Holds so much at 99 % and at 95 %, with so many in time in overload.
    fn showing(policy: &str, held: [f64; 2], goodput_rps: f64) -> Showing {
        let highest =
            |value| Highest { load: Reading { value, without: Vec::new() }, rows: Vec::new() };
        let levels = LEVELS.iter().zip(held).map(|(level, held)| (level.0, level.1, highest(held)));
        let rows = vec![Row { goodput_rps, ..Row::default() }];
        let at = AtLoad { load: OVERLOAD, rows, each: Vec::new() };
        Showing { policy: policy.to_owned(), levels: levels.collect(), loads: vec![at] }
    }

    #[test]
    fn the_finalists_are_the_best_for_each_row_each_once() {
        let want = |ask| Wanted { case: "a-one", ask, start: None, target: 1.0 };
        let rows = [Ask::Load(0.99), Ask::Load(0.95), Ask::Goodput(Kind::Push)].map(want);
        let screened = [
            showing("random", [0.5, 0.9], 1.0),
            showing("jspt", [0.4, 0.8], 9.0),
            showing("round-robin", [0.3, 0.5], 2.0),
            showing("power-of-two", [0.2, 0.7], 3.0),
            showing("load-prefix", [0.1, 0.1], 4.0),
            showing("least-request", [0.1, 0.1], 3.0),
        ];
        let wanted = ["random", "jspt", "round-robin", "power-of-two", "load-prefix"];
        assert_eq!(finalists(&rows, &screened), wanted);
        let errand = Errand::of(&rows);
        assert_eq!((errand.levels, errand.loads), (LEVELS.to_vec(), vec![OVERLOAD]));
    }

    #[test]
    fn a_screening_goes_no_higher_than_where_nothing_is_held() {
        let setting = Case::named("c-one").unwrap().setting(None, 100).unwrap().unwrap();
        let errand = Errand {
            levels: LEVELS.to_vec(),
            loads: vec![4.0],
            is_brief: true,
            around: vec![0.1, 0.2, 6.0],
        };
        let contender = Contender::named("round-robin").unwrap();
        let showing = errand.run(&setting, &contender, &[1]).unwrap();
        let loads: Vec<f64> = showing.loads.iter().map(|at| at.load).collect();
        assert_eq!(loads, [0.1, 0.2, 4.0]);
        let held = LEVELS.map(|(share, at)| showing.highest(share, at).unwrap().load.value);
        assert!(0.2 < held[0] && held[0] < held[1] && held[1] < 4.0, "{held:?}");
    }
}
