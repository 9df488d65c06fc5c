//! The work itself: calibration, screening, finals, variants and single runs, on all threads.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use anyhow::{Context, Result};

use super::{
    contest::{Entry, Errand, Showing, WEIR, best, finalists, rivals},
    effort::{SCREEN_SEEDS, VARIANT_SEEDS, screen_seeds},
    progress::Progress,
    race::{merge, races},
    wanted::{Ask, EXACT, LARGE_LOAD, OVERLOAD},
};
use crate::{
    contender::Contender,
    limits::{Line, compare},
    report::Series,
    study::{Knowledge, Setting, in_parallel, once, simulated_here},
};

/// Requests of the run that a case is timed with.
const TIMED: usize = 500;
/// Seconds per request of a run with the trainer in the loop: rounds of it are most of the work, and so short a run has none.
const TRAINED_S: f64 = 2e-3;
/// Load of that run, and of the variants' rows.
const FULL: f64 = 1.0;
/// Policies in the pictures of single requests.
const SINGLE: usize = 4;

/// A case with its setting.
pub(super) struct Stage<'a> {
    /// The case and its rows.
    pub(super) entry: &'a Entry,
    /// What contenders share.
    pub(super) setting: Arc<Setting>,
    /// What its tasks took so far.
    spent: Spent,
}

/// Time of threads, and the requests that were simulated in it.
#[derive(Debug, Default)]
struct Spent {
    us: AtomicU64,
    requests: AtomicU64,
}

/// Who is run in a case, for what, and with which seeds.
pub(super) struct Task<'a> {
    /// The case's place among the stages.
    pub(super) place: usize,
    /// Who.
    pub(super) name: &'a str,
    /// What for.
    pub(super) errand: Errand,
    /// With which seeds.
    pub(super) seeds: &'a [u64],
}

impl<'a> Stage<'a> {
    /// Nothing is run yet.
    pub(super) fn new(entry: &'a Entry, setting: Setting) -> Self {
        Self { entry, setting: Arc::new(setting), spent: Spent::default() }
    }

    /// Seconds of a thread per request, of the tasks so far; `None` before the first.
    pub(super) fn per_request_s(&self) -> Option<f64> {
        let requests = self.spent.requests.load(Ordering::Relaxed);
        let us = self.spent.us.load(Ordering::Relaxed);
        (requests > 0).then(|| us as f64 / 1e6 / requests as f64)
    }

    /// Does a task, and counts what it takes.
    fn run(&self, task: &Task<'_>) -> Result<Showing> {
        let (started, before) = (Instant::now(), simulated_here());
        let showing = self.showing(task);
        self.spent.us.fetch_add(started.elapsed().as_micros() as u64, Ordering::Relaxed);
        self.spent.requests.fetch_add(simulated_here() - before, Ordering::Relaxed);
        showing
    }

    fn showing(&self, Task { name, errand, seeds, .. }: &Task<'_>) -> Result<Showing> {
        let (name, seeds) = (*name, *seeds);
        if name != EXACT {
            return errand.run(&self.setting, &Contender::named(name)?, seeds);
        }
        let setting =
            Setting { knowledge: Knowledge::Oracle { error: 0.0 }, ..(*self.setting).clone() };
        Ok(errand.run(&setting, &Contender::named(WEIR)?, seeds)?.renamed(EXACT))
    }
}

/// Work for a thread.
pub(super) type Job<'a, T> = Box<dyn FnOnce() -> T + Send + 'a>;

/// Seconds per request on one thread, for each case: of Weir and of a rival that overloads pods.
///
/// # Errors
/// When a case cannot be run.
pub(super) fn timed(entries: &[Entry], traces: Option<&Path>, threads: usize) -> Result<Vec<f64>> {
    let job = |entry: &Entry| {
        if entry.case.trained {
            return Ok(TRAINED_S);
        }
        let setting = entry.setting(traces, TIMED)?;
        let started = Instant::now();
        for name in [WEIR, "round-robin"] {
            once(&setting, &Contender::named(name)?, FULL, 1)?;
        }
        Ok(started.elapsed().as_secs_f64() / (2 * setting.requests) as f64)
    };
    let jobs = entries.iter().map(|entry| Box::new(move || job(entry)) as Job<'_, Result<f64>>);
    in_parallel(jobs.collect(), threads).into_iter().collect()
}

/// Settings with so many requests per seed, for each of them.
///
/// # Errors
/// When one is not there any more.
pub(super) fn stages<'a>(
    entries: &'a [Entry],
    traces: Option<&Path>,
    requests: &[usize],
) -> Result<Vec<Stage<'a>>> {
    let stage = |(entry, requests): (&'a Entry, &usize)| {
        Ok(Stage::new(entry, entry.setting(traces, *requests)?))
    };
    entries.iter().zip(requests).map(stage).collect()
}

/// All rivals in all cases, briefly. Cases in their order.
///
/// # Errors
/// When a study cannot be run.
pub(super) fn screen(
    stages: &[Stage<'_>],
    threads: usize,
    started: Instant,
) -> Result<Vec<Vec<Showing>>> {
    let task = |place, stage: &Stage<'_>, name, errand| {
        let seeds = screen_seeds(stage.setting.requests);
        Task { place, name, errand, seeds }
    };
    let places = || stages.iter().enumerate();
    let weirs = places().filter_map(|(place, stage)| {
        let errand = Errand::of(&stage.entry.rows);
        let level = errand.levels.first().filter(|_| !rivals(&stage.entry.rows).is_empty())?;
        let errand = Errand { levels: vec![*level], ..Errand::default() };
        Some(task(place, stage, WEIR, errand))
    });
    let held = run(stages, weirs.collect(), threads, (started, "screening"))?;
    let everybody = places().zip(&held).flat_map(|((place, stage), held)| {
        let errand = Errand::of(&stage.entry.rows).in_brief(held.first());
        let rivals = rivals(&stage.entry.rows).into_iter();
        rivals.map(move |name| task(place, stage, name, errand.clone()))
    });
    run(stages, everybody.collect(), threads, (started, "screening"))
}

/// Weir and the best rivals of the screening, in full, and those who hold the highest loads. Cases in their order, Weir first.
///
/// # Errors
/// When a study cannot be run.
pub(super) fn finals<'a>(
    stages: &[Stage<'_>],
    screened: &'a [Vec<Showing>],
    seeds: &'a [u64],
    threads: usize,
    started: Instant,
) -> Result<Vec<Vec<Showing>>> {
    let searched = races(stages, screened, seeds, threads, started)?;
    let of_case = |(place, (stage, screened)): (usize, (&Stage<'_>, &'a Vec<Showing>))| {
        let rows = &stage.entry.rows;
        let sought = Errand::of(rows).in_full(stage.entry.case);
        let given = Errand { levels: Vec::new(), ..sought.clone() };
        let is_asked = rows.iter().any(|row| matches!(row.ask, Ask::Trained(_)));
        let own = std::iter::once(WEIR).chain(is_asked.then_some(EXACT));
        let own = own.map(move |name| (name, sought.clone()));
        let rivals = finalists(rows, screened).into_iter().map(move |name| (name, given.clone()));
        own.chain(rivals).map(move |(name, errand)| Task { place, name, errand, seeds })
    };
    let tasks = stages.iter().zip(screened).enumerate().flat_map(of_case).collect();
    let mut finals = run(stages, tasks, threads, (started, "in full"))?;
    merge(&mut finals, searched);
    Ok(finals)
}

/// Weir's variants where rows ask for them, and in the second case of the table.
///
/// # Errors
/// When a study cannot be run.
pub(super) fn variants(
    stages: &[Stage<'_>],
    threads: usize,
    started: Instant,
) -> Result<Vec<Vec<Showing>>> {
    let load = |stage: &Stage<'_>| {
        let asks = stage.entry.rows.iter().any(|row| row.ask == Ask::Cost);
        match stage.entry.case.id {
            _ if asks => Some(LARGE_LOAD),
            "conv-two" => Some(FULL),
            _ => None,
        }
    };
    // Weir too: with as many seeds as they.
    let names: Vec<&str> =
        Contender::all().into_iter().filter(|name| name.starts_with(WEIR)).collect();
    let of_stage = |(place, stage)| Some((place, load(stage)?));
    let tasks = stages.iter().enumerate().filter_map(of_stage).flat_map(|(place, load)| {
        let errand = Errand { loads: vec![load], ..Errand::default() };
        let names = names.iter();
        names.map(move |name| Task { place, name, errand: errand.clone(), seeds: &VARIANT_SEEDS })
    });
    run(stages, tasks.collect(), threads, (started, "variant"))
}

/// Single requests of one seed at full load, of Weir and the rivals that came first, in three cases.
///
/// # Errors
/// When a study cannot be run.
pub(super) fn series(
    stages: &[Stage<'_>],
    finals: &[Vec<Showing>],
    threads: usize,
) -> Result<Vec<Series>> {
    let shown = stages
        .iter()
        .zip(finals)
        .filter(|(stage, _)| ["conv-one", "mooncake-8", "live"].contains(&stage.entry.case.id));
    let tasks = shown.flat_map(|(stage, showings)| {
        let own = showings.iter().filter(|showing| showing.policy != EXACT);
        own.take(SINGLE).map(move |showing| (stage, showing.policy.as_str()))
    });
    let job = |(stage, name): (&Stage<'_>, &str)| {
        let (requests, run) = once(&stage.setting, &Contender::named(name)?, FULL, 1)?;
        Ok(Series::of(&requests, &run).labelled(&stage.setting, name, FULL, 1))
    };
    let jobs = tasks.map(|task| Box::new(move || job(task)) as Job<'_, Result<Series>>);
    in_parallel(jobs.collect(), threads).into_iter().collect()
}

/// Weir and its best rival against what no scheduler could beat, at full load and in overload; by stage.
///
/// # Errors
/// When a study cannot be run.
pub(super) fn limits(
    stages: &[Stage<'_>],
    finals: &[Vec<Showing>],
    threads: usize,
) -> Result<Vec<Vec<Line>>> {
    let of_stage = |(stage, showings): (&Stage<'_>, &Vec<Showing>)| {
        let asked = stage.entry.rows.iter().find(|row| matches!(row.ask, Ask::Goodput(_)));
        let Some(row) = asked else { return Ok(Vec::new()) };
        let rival = best(showings, row.ask, 1).into_iter().map(|showing| showing.policy.as_str());
        let names = std::iter::once(WEIR).chain(rival);
        let contenders = names.map(Contender::named).collect::<Result<Vec<_>>>()?;
        let loads = [FULL, OVERLOAD];
        compare(&stage.setting, &contenders, &loads, &SCREEN_SEEDS, None, threads)
    };
    stages.iter().zip(finals).map(of_stage).collect()
}

/// Does the tasks; their showings by stage.
///
/// # Errors
/// When a study cannot be run.
pub(super) fn run(
    stages: &[Stage<'_>],
    tasks: Vec<Task<'_>>,
    threads: usize,
    (started, phase): (Instant, &str),
) -> Result<Vec<Vec<Showing>>> {
    let progress = Progress::new(started, tasks.len());
    let job = |task: &Task<'_>| {
        let stage = stages.get(task.place).context("a case that is there")?;
        let id = stage.entry.case.id;
        let showing = stage.run(task).with_context(|| format!("{id} with {}", task.name))?;
        progress.done(&format!("{phase} {id:<17} {}", told(&showing)));
        Ok((task.place, showing))
    };
    let job = &job;
    let jobs = tasks.iter().map(|task| Box::new(move || job(task)) as Job<'_, Result<_>>);
    let mut by_stage: Vec<Vec<Showing>> = stages.iter().map(|_| Vec::new()).collect();
    for done in in_parallel(jobs.collect(), threads) {
        let (place, showing): (usize, Showing) = done?;
        if let Some(showings) = by_stage.get_mut(place) {
            showings.push(showing);
        }
    }
    Ok(by_stage)
}

/// A showing in a few words.
fn told(showing: &Showing) -> String {
    let levels =
        showing.levels.iter().map(|(_, at, highest)| format!("{:.2} at {at}", highest.load.value));
    let loads = showing.loads.iter().filter_map(|at| {
        let row = at.rows.first()?;
        Some(format!("{:.1} % at load {}", row.attainment * 100.0, at.load))
    });
    let words: Vec<String> = levels.chain(loads).take(3).collect();
    format!("{:<20} {}", showing.policy, words.join(", "))
}
