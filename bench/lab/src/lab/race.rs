//! Which rival holds the highest load. The first of the screening is searched in full, and every other is run once, a step above what
//! it holds, with all seeds: who cannot keep the promise there holds no more. Those who can are searched in turn, until nobody is left.
//! So the table's rival is the best of all of them, whatever the screening made of it.

use std::time::Instant;

use anyhow::{Context, Result};

use super::{
    contest::{Errand, Showing, best, level},
    probe::{Probe, Share},
    progress::Progress,
    stage::{Job, Stage, Task, run},
};
use crate::{
    contender::Contender,
    study::{RESOLUTION, in_parallel},
};

/// One highest load of one case.
struct Race<'a> {
    /// The case's place among the stages.
    place: usize,
    level: (Share, f64),
    /// Who may hold more than was found so far, the best of the screening first.
    left: Vec<&'a str>,
    /// What was found so far.
    held: f64,
}

/// Those who were searched, by stage; each with the one level that it was searched for.
///
/// # Errors
/// When a study cannot be run.
pub(super) fn races(
    stages: &[Stage<'_>],
    screened: &[Vec<Showing>],
    seeds: &[u64],
    threads: usize,
    started: Instant,
) -> Result<Vec<Vec<Showing>>> {
    let mut races: Vec<Race<'_>> = stages
        .iter()
        .zip(screened)
        .enumerate()
        .flat_map(|(place, (stage, screened))| of_case(place, stage, screened))
        .collect();
    let mut searched: Vec<Vec<Showing>> = stages.iter().map(|_| Vec::new()).collect();
    loop {
        races.retain(|race| !race.left.is_empty());
        if races.is_empty() {
            return Ok(searched);
        }
        search_first(stages, &mut races, &mut searched, (seeds, threads, started))?;
        challenge(stages, &mut races, (seeds, threads, started))?;
    }
}

/// The races of a case.
fn of_case<'a>(
    place: usize,
    stage: &Stage<'_>,
    screened: &'a [Showing],
) -> impl Iterator<Item = Race<'a>> {
    let asks = stage.entry.rows.iter().map(|row| row.ask).collect::<Vec<_>>();
    asks.into_iter().filter_map(move |ask| {
        let ranked = best(screened, ask, usize::MAX).into_iter();
        let left = ranked.map(|showing| showing.policy.as_str()).collect();
        Some(Race { place, level: level(ask)?, left, held: 0.0 })
    })
}

/// Searches the first that is left of each race.
fn search_first(
    stages: &[Stage<'_>],
    races: &mut [Race<'_>],
    searched: &mut [Vec<Showing>],
    (seeds, threads, started): (&[u64], usize, Instant),
) -> Result<()> {
    let tasks = races.iter().filter_map(|race| {
        let errand = Errand { levels: vec![race.level], ..Errand::default() };
        Some(Task { place: race.place, name: race.left.first()?, errand, seeds })
    });
    let found = run(stages, tasks.collect(), threads, (started, "search"))?;
    for (place, (found, searched)) in found.into_iter().zip(searched).enumerate() {
        for showing in found {
            let of = |race: &&mut Race<'_>| {
                race.place == place && showing.highest(race.level.0, race.level.1).is_some()
            };
            if let Some(race) = races.iter_mut().find(of) {
                let highest = showing.highest(race.level.0, race.level.1);
                race.held = race.held.max(highest.map_or(0.0, |highest| highest.load.value));
                race.left.retain(|name| *name != showing.policy);
            }
            searched.push(showing);
        }
    }
    Ok(())
}

/// Leaves only those in a race who hold more than was found so far.
fn challenge(
    stages: &[Stage<'_>],
    races: &mut [Race<'_>],
    (seeds, threads, started): (&[u64], usize, Instant),
) -> Result<()> {
    let progress = Progress::new(started, races.iter().map(|race| race.left.len()).sum());
    let job = |race: &Race<'_>, name: &str| {
        let stage = stages.get(race.place).context("a case that is there")?;
        let (share, at) = race.level;
        let load = ((race.held / RESOLUTION).round() + 1.0) / RESOLUTION.recip();
        let contender = Contender::named(name)?;
        let holds = Probe::new(&stage.setting, &contender, seeds).holds(load, share, at)?;
        let told = if holds { "holds" } else { "does not hold" };
        let id = stage.entry.case.id;
        progress.done(&format!("challenge {id:<17} {name:<20} {told} {load:.2} at {at}"));
        Ok(holds)
    };
    let job = &job;
    let jobs = races.iter().flat_map(|race| {
        let names = race.left.iter();
        names.map(move |name| Box::new(move || job(race, name)) as Job<'_, Result<bool>>)
    });
    let mut holds = in_parallel(jobs.collect(), threads).into_iter();
    for race in races {
        let mut left = Vec::new();
        for name in &race.left {
            if holds.next().transpose()? == Some(true) {
                left.push(*name);
            }
        }
        race.left = left;
    }
    Ok(())
}

/// Adds what was searched to what was run in full.
pub(super) fn merge(finals: &mut [Vec<Showing>], searched: Vec<Vec<Showing>>) {
    for (finals, searched) in finals.iter_mut().zip(searched) {
        for Showing { policy, levels, loads } in searched {
            match finals.iter_mut().find(|known| known.policy == policy) {
                Some(known) => {
                    levels.into_iter().for_each(|level| known.levels.push(level));
                    known.add_loads(loads);
                }
                None => finals.push(Showing { policy, levels, loads }),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::lab::{
        case::Case,
        contest::{AtLoad, Entry},
        probe::Highest,
        reading::Reading,
        wanted::{Ask, Wanted},
    };

    const LEVEL: (Share, f64) = (Share::Attained, 0.95);
    const SEEDS: [u64; 2] = [1, 2];

    fn showing(policy: &str, load: f64) -> Showing {
        let highest = Highest { load: Reading { value: load, without: vec![] }, rows: vec![] };
        let levels = vec![(LEVEL.0, LEVEL.1, highest)];
        Showing { policy: policy.to_owned(), levels, loads: Vec::new() }
    }

    #[test]
    fn whoever_holds_most_is_searched_whatever_the_screening_made_of_it() {
        let case = Case::named("c-one").unwrap();
        let rows = vec![Wanted { case: case.id, ask: Ask::Load(0.95), start: None, target: 1.0 }];
        let entry = Entry { case, rows, least: 0 };
        let setting = Arc::new(case.setting(None, 80).unwrap().unwrap());
        let held = |name: &'static str| {
            let contender = Contender::named(name).unwrap();
            let mut probe = Probe::new(&setting, &contender, &SEEDS);
            (probe.highest(LEVEL.0, LEVEL.1).unwrap().load.value, name)
        };
        let mut holders = ["random", "cap-16", "llumnix-slo"].map(held);
        holders.sort_by(|one, other| one.0.total_cmp(&other.0));
        let (names, most) = (holders.map(|one| one.1), holders[2].0);
        assert!(holders[0].0 + 0.05 < most, "{holders:?}");
        // The screening has it the wrong way round.
        let order = names.iter().zip([0.9, 0.8, 0.7]);
        let screened = vec![order.map(|(name, load)| showing(name, load)).collect::<Vec<_>>()];
        let stages = [Stage::new(&entry, (*setting).clone())];
        assert_eq!(stages[0].per_request_s(), None);
        let searched = races(&stages, &screened, &SEEDS, 2, Instant::now()).unwrap();
        let loads = searched[0].iter().map(|showing| showing.levels[0].2.load.value);
        assert_eq!(loads.fold(0.0, f64::max), most);
        assert_eq!(searched[0][0].policy, names[0], "the first of the screening goes first");
        assert!(stages[0].per_request_s().is_some_and(|seconds| seconds > 0.0), "searches count");
        // Where it is the first, nobody else is searched.
        let best = vec![vec![screened[0][0].clone(), showing(names[2], 1.0)]];
        let searched = races(&stages, &best, &SEEDS, 2, Instant::now()).unwrap();
        assert_eq!((searched[0].len(), searched[0][0].policy.as_str()), (1, names[2]));
    }

    #[test]
    fn what_was_searched_is_added_to_what_was_run() {
        let at = |load| AtLoad { load, ..AtLoad::default() };
        let known = Showing {
            policy: "jspt".to_owned(),
            loads: vec![at(0.7), at(1.3)],
            ..Showing::default()
        };
        let mut searched = [showing("jspt", 0.6), showing("random", 0.5)];
        searched[0].loads = vec![at(0.6), at(0.7)];
        let mut finals = vec![vec![known]];
        merge(&mut finals, vec![searched.to_vec()]);
        let [jspt, random] = finals[0].as_slice() else { panic!("{finals:?}") };
        assert_eq!(jspt.loads.iter().map(|at| at.load).collect::<Vec<_>>(), [0.6, 0.7, 1.3]);
        assert!(jspt.highest(LEVEL.0, LEVEL.1).is_some());
        assert_eq!(random.policy, "random");
    }
}
