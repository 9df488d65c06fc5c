//! One policy in one setting, looked at load by load; nothing is simulated twice.

use anyhow::Result;

use super::reading::Reading;
use crate::{
    contender::Contender,
    study::{Asked, Figures, Row, Setting, figures_of, rows, seek},
};

/// A load that can no longer come nearer than this to what is asked is given up before all seeds have run. Those that are
/// nearer are run with all of them, for the interval.
const NEAR: f64 = 0.05;

/// Which share is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Share {
    /// Both objectives met.
    Attained,
    /// The same with TPOT counted only for answers of 16 tokens and more.
    From16,
}

/// One policy in one setting.
pub(super) struct Probe<'a> {
    setting: &'a Setting,
    contender: &'a Contender,
    seeds: &'a [u64],
    seen: Vec<Seen>,
}

/// What a load came to.
struct Seen {
    load: f64,
    /// Of the seeds that were run, in their order.
    figures: Vec<Figures>,
    /// Rows of each of them.
    each: Vec<Vec<Row>>,
}

/// A highest load.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Highest {
    /// The load, with what it would have been without each seed.
    pub(super) load: Reading,
    /// Figures there: all classes together first.
    pub(super) rows: Vec<Row>,
}

impl<'a> Probe<'a> {
    /// Nothing is run yet.
    pub(super) fn new(setting: &'a Setting, contender: &'a Contender, seeds: &'a [u64]) -> Self {
        Self { setting, contender, seeds, seen: Vec::new() }
    }

    /// Figures of a load over all seeds, and of each seed: rows of all classes together first.
    ///
    /// # Errors
    /// When the study cannot be run.
    pub(super) fn at(&mut self, load: f64) -> Result<(Vec<Row>, Vec<Vec<Row>>)> {
        self.run(load, |_, _| false)?;
        let asked = Asked { load: self.told(load), ..Asked::default() };
        let Some(seen) = self.find(load) else { return Ok(Default::default()) };
        Ok((rows(self.setting, self.contender, &seen.figures, asked), seen.each.clone()))
    }

    /// The share of the class of the highest band at a load, the mean over the seeds.
    ///
    /// # Errors
    /// When the study cannot be run.
    pub(super) fn share_at(&mut self, load: f64, share: Share) -> Result<f64> {
        let (class, (_, each)) = (self.top_class(), self.at(load)?);
        let sum: f64 = each.iter().map(|rows| of(rows, &class, share)).sum();
        Ok(sum / each.len().max(1) as f64)
    }

    /// The highest load at which this share of the class of the highest band is at least `at`, by the search of
    /// [`crate::study::max_load`].
    ///
    /// # Errors
    /// When the study cannot be run.
    pub(super) fn highest(&mut self, share: Share, at: f64) -> Result<Highest> {
        let found = seek(|load| self.passes(load, (share, at), NEAR))?;
        let load = found.load;
        // Nothing passes: the figures of a load at which next to nothing comes.
        let shown = if load > 0.0 { load } else { 0.01 };
        self.run(shown, |_, _| false)?;
        let asked = Asked { load: None, max_load: Some(found), at: Some(at) };
        let figures = self.find(shown).map(|seen| seen.figures.as_slice()).unwrap_or_default();
        let rows = rows(self.setting, self.contender, figures, asked);
        let left_out = (0..self.seeds.len()).map(Some);
        let without = left_out.map(|seed| self.crossing(share, at, seed)).collect();
        Ok(Highest { load: Reading { value: load, without }, rows })
    }

    /// Where this share falls below `at` by the loads that were run already, without seeking it.
    pub(super) fn estimate(&self, share: Share, at: f64) -> Highest {
        let load = self.crossing(share, at, None);
        Highest { load: Reading { value: load, without: Vec::new() }, rows: Vec::new() }
    }

    /// Whether this share may be `at` of a load, as no lower one that was run has less: what falls below it is taken to stay there.
    pub(super) fn may_hold(&self, load: f64, share: Share, at: f64) -> bool {
        let class = self.top_class();
        let lower = self.seen.iter().filter(|seen| seen.load < load);
        lower.map(|seen| seen.mean(&class, share, None)).all(|mean| mean >= at)
    }

    /// The loads that were run with all seeds, the lowest first.
    pub(super) fn complete(&self) -> Vec<f64> {
        let full = self.seen.iter().filter(|seen| seen.each.len() == self.seeds.len());
        let mut loads: Vec<f64> = full.map(|seen| seen.load).collect();
        loads.sort_by(f64::total_cmp);
        loads
    }

    /// Whether this share is at least `at` of a load. The seeds are run until they cannot be any more.
    ///
    /// # Errors
    /// When the study cannot be run.
    pub(super) fn holds(&mut self, load: f64, share: Share, at: f64) -> Result<bool> {
        self.passes(load, (share, at), 0.0)
    }

    fn passes(&mut self, load: f64, (share, at): (Share, f64), near: f64) -> Result<bool> {
        let class = self.top_class();
        let count = self.seeds.len();
        let most = |sum: f64, done: usize| (sum + (count - done) as f64) / count as f64;
        self.run(load, |each, done| {
            let sum: f64 = each.iter().map(|rows| of(rows, &class, share)).sum();
            most(sum, done) < at - near - 1e-9
        })?;
        let Some(seen) = self.find(load) else { return Ok(false) };
        let sum: f64 = seen.each.iter().map(|rows| of(rows, &class, share)).sum();
        // Rounding must not fail a share of exactly `at`.
        Ok(most(sum, seen.each.len()) >= at - 1e-9 && seen.each.len() == count)
    }

    /// Runs the seeds of a load that were not run yet, until it is given up.
    fn run(&mut self, load: f64, give_up: impl Fn(&[Vec<Row>], usize) -> bool) -> Result<()> {
        let place = match self.seen.iter().position(|seen| same(seen.load, load)) {
            Some(place) => place,
            None => {
                self.seen.push(Seen { load, figures: Vec::new(), each: Vec::new() });
                self.seen.len() - 1
            }
        };
        let told = self.told(load);
        let Some(seen) = self.seen.get_mut(place) else { return Ok(()) };
        while let Some(seed) = self.seeds.get(seen.each.len()) {
            if give_up(&seen.each, seen.each.len()) {
                return Ok(());
            }
            let figures = figures_of(self.setting, self.contender, load, *seed)?;
            let asked = Asked { load: told, ..Asked::default() };
            seen.each.push(rows(
                self.setting,
                self.contender,
                std::slice::from_ref(&figures),
                asked,
            ));
            seen.figures.push(figures);
        }
        Ok(())
    }

    /// The load that rows name: none of traffic with rates of its own.
    fn told(&self, load: f64) -> Option<f64> {
        self.setting.source.stages().is_none().then_some(load)
    }

    fn find(&self, load: f64) -> Option<&Seen> {
        self.seen.iter().find(|seen| same(seen.load, load))
    }

    /// Name of the class of the highest band.
    fn top_class(&self) -> String {
        let classes = &self.setting.objectives.classes;
        let top = classes.iter().map(|class| class.band).max();
        let top = classes.iter().find(|class| Some(class.band) == top);
        top.map_or_else(|| "all".to_owned(), |class| class.name.clone())
    }

    /// Where the share falls below `at`, without one of the seeds if so: between the loads that were run with all of them, on
    /// a straight line. At no load all attain.
    fn crossing(&self, share: Share, at: f64, left_out: Option<usize>) -> f64 {
        let class = self.top_class();
        let mean = |seen: &Seen| seen.mean(&class, share, left_out);
        let full = self.seen.iter().filter(|seen| seen.each.len() == self.seeds.len());
        let mut points: Vec<(f64, f64)> = full.map(|seen| (seen.load, mean(seen))).collect();
        points.push((0.0, 1.0));
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let last = points.iter().rposition(|(_, share)| *share >= at).unwrap_or(0);
        match (points.get(last), points.get(last + 1)) {
            (Some((low, above)), Some((high, below))) => {
                low + (high - low) * (above - at) / (above - below).max(1e-9)
            }
            (Some((low, _)), None) => *low,
            (None, _) => 0.0,
        }
    }
}

impl Seen {
    /// The mean share of a class over the seeds that were run, without one of them if so.
    fn mean(&self, class: &str, share: Share, left_out: Option<usize>) -> f64 {
        let others = self.each.iter().enumerate().filter(|(seed, _)| Some(*seed) != left_out);
        let shares: Vec<f64> = others.map(|(_, rows)| of(rows, class, share)).collect();
        shares.iter().sum::<f64>() / shares.len().max(1) as f64
    }
}

fn same(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-6
}

fn of(rows: &[Row], class: &str, share: Share) -> f64 {
    let row = rows.iter().find(|row| row.class == class).or_else(|| rows.first());
    row.map_or(0.0, |row| match share {
        Share::Attained => row.attainment,
        Share::From16 => row.attainment_from_16,
    })
}
