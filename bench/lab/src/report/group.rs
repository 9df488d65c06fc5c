//! Rows of one setting, and what is said of a setting in words.

use super::{
    choice::{Choice, choose},
    common::Common,
    input::Runs,
    words,
};
use crate::{
    report::cast::{SUBJECT_NAME, is_variant},
    study::Row,
    workload::{Objective, Objectives},
};

/// Rows that can be compared: the same traffic, objectives, pods, predictions and number of dispatchers.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Group<'a> {
    /// What they have in common.
    pub(super) common: Common,
    /// That in words which no other group of the page has.
    pub(super) heading: String,
    /// The rows with the places of their files.
    pub(super) rows: Vec<(&'a Row, usize)>,
    /// The class that is spoken of: the interactive one, or the first, or all.
    pub(super) class: String,
}

/// What a policy made of a question, in one file: a row for all classes, and one for each.
#[derive(Clone, Debug)]
pub(super) struct Answer<'a> {
    setting: usize,
    /// Place of the file.
    pub(super) file: usize,
    rows: Vec<&'a Row>,
}

/// What is asked of a policy: a load, or a share to keep.
type Question<'a> = (usize, &'a str, Option<u64>, Option<u64>);

impl<'a> Answer<'a> {
    fn question(&self) -> Question<'a> {
        self.rows.first().map(|row| asked(self.setting, row)).unwrap_or_default()
    }

    /// As many as the row of all classes has.
    fn requests(&self) -> usize {
        self.rows.iter().map(|row| row.requests).max().unwrap_or_default()
    }

    fn has(&self, class: &str) -> bool {
        self.rows.iter().any(|row| row.class == class)
    }

    /// Whether this is the same answer, not an equal one.
    fn is(&self, other: &Self) -> bool {
        let first = |of: &Self| of.rows.first().copied().map(std::ptr::from_ref);
        first(self) == first(other)
    }
}

fn asked(setting: usize, row: &Row) -> Question<'_> {
    (setting, &row.policy, row.load.map(f64::to_bits), row.at.map(f64::to_bits))
}

/// The rows by their settings, in the order in which these first come. `wanted` says which rows count. Those of a screening are
/// left out.
pub(super) fn groups<'a>(runs: &'a Runs, wanted: impl Fn(&Row) -> bool) -> Vec<Group<'a>> {
    grouped(runs, |row, file| !runs.is_screening(file) && wanted(row))
}

/// The same of the screenings alone.
pub(super) fn screenings(runs: &Runs) -> Vec<Group<'_>> {
    grouped(runs, |_, file| runs.is_screening(file))
}

/// The same of Weir's variants, with the Weir of the same files: it has the same seeds.
pub(super) fn variants(runs: &Runs) -> Vec<Group<'_>> {
    grouped(runs, beside_variants(runs))
}

fn beside_variants(runs: &Runs) -> impl Fn(&Row, usize) -> bool {
    let variants = runs.rows.iter().filter(|placed| is_variant(&placed.item.policy));
    let files: Vec<usize> = variants.map(|placed| placed.file).collect();
    move |row, file| {
        let is_weir = row.policy == SUBJECT_NAME || is_variant(&row.policy);
        row.mix != "none" && is_weir && files.contains(&file) && !runs.is_screening(file)
    }
}

/// Answers that are on no part of the page because another one counts, each with the place of that one's file.
pub(super) fn superseded(runs: &Runs) -> Vec<(Answer<'_>, usize)> {
    let shown = chosen(runs, beside_variants(runs)).kept;
    let full = chosen(runs, |_, file| !runs.is_screening(file)).superseded;
    let screened = chosen(runs, |_, file| runs.is_screening(file)).superseded;
    let hidden = |(answer, _): &(Answer<'_>, usize)| !shown.iter().any(|other| other.is(answer));
    full.into_iter().chain(screened).filter(hidden).collect()
}

/// Those that are wanted, given the place of their file too.
fn grouped(runs: &Runs, wanted: impl Fn(&Row, usize) -> bool) -> Vec<Group<'_>> {
    let mut groups: Vec<(usize, Vec<(&Row, usize)>)> = Vec::new();
    for Answer { setting, file, rows } in chosen(runs, wanted).kept {
        let rows = rows.into_iter().map(|row| (row, file));
        match groups.iter_mut().find(|(of, _)| *of == setting) {
            Some((_, known)) => known.extend(rows),
            None => groups.push((setting, rows.collect())),
        }
    }
    let groups = groups.into_iter().map(|(setting, rows)| Group {
        common: runs.common(setting),
        heading: runs.heading(setting),
        class: class_of(&rows),
        rows,
    });
    groups.collect()
}

fn chosen(runs: &Runs, wanted: impl Fn(&Row, usize) -> bool) -> Choice<Answer<'_>> {
    let answers = answers(runs, wanted);
    choose(answers, Answer::question, |one| runs.rank(one.requests(), one.file))
}

/// The rows that are wanted, those together that are of one run.
fn answers(runs: &Runs, wanted: impl Fn(&Row, usize) -> bool) -> Vec<Answer<'_>> {
    let mut answers: Vec<Answer<'_>> = Vec::new();
    for placed in runs.rows.iter().filter(|placed| wanted(&placed.item, placed.file)) {
        let (row, file, setting) = (&placed.item, placed.file, placed.setting);
        let of_file = answers.iter_mut().rev().take_while(|answer| answer.file == file);
        let same = of_file.into_iter().find(|answer| answer.question() == asked(setting, row));
        match same {
            // A class that is there already is of another run.
            Some(answer) if !answer.has(&row.class) => answer.rows.push(row),
            _ => answers.push(Answer { setting, file, rows: vec![row] }),
        }
    }
    answers
}

fn class_of(rows: &[(&Row, usize)]) -> String {
    let classes = || rows.iter().map(|(row, _)| row.class.as_str());
    let interactive = classes().find(|class| *class == "interactive");
    let class = interactive.or_else(|| classes().find(|class| *class != "all")).unwrap_or("all");
    class.to_owned()
}

impl<'a> Group<'a> {
    /// Rows of the class that is spoken of.
    pub(super) fn of_class(&self) -> impl Iterator<Item = &'a Row> {
        self.rows.iter().map(|(row, _)| *row).filter(|row| row.class == self.class)
    }

    /// Rows of all classes together.
    pub(super) fn of_all(&self) -> impl Iterator<Item = &'a Row> {
        self.rows.iter().map(|(row, _)| *row).filter(|row| row.class == "all")
    }

    /// Names of the policies, in their order.
    pub(super) fn policies(&self) -> Vec<&'a str> {
        let mut names: Vec<&str> = Vec::new();
        for (row, _) in &self.rows {
            if !names.contains(&row.policy.as_str()) {
                names.push(&row.policy);
            }
        }
        names
    }

    /// What was run, as a sentence.
    pub(super) fn what_was_run(&self, runs: &Runs) -> String {
        let of = &self.common;
        let (seeds, requests) = self.effort();
        let policies = words::counted(self.policies().len(), "policy", "policies");
        format!(
            "{policies} in front of {}{}; traffic `{}`; {}; {seeds}, {requests} counted per run of all seeds. {}{}",
            of.pool_words(),
            of.before(),
            of.workload,
            mix_words(&of.mix),
            self.commands(runs),
            caveat(self.rows.iter().map(|(row, _)| *row)),
        )
    }

    /// Seeds and requests, as ranges where rows differ.
    fn effort(&self) -> (String, String) {
        let range = |of: fn(&Row) -> usize, one: &str, many: &str| {
            let low = self.of_all().map(of).min().unwrap_or(0);
            let high = self.of_all().map(of).max().unwrap_or(0);
            let counted = words::counted(high, one, many);
            if low == high { counted } else { format!("{low} to {counted}") }
        };
        let seeds = range(|row| row.seeds, "seed", "seeds");
        (seeds, range(|row| row.requests, "request", "requests"))
    }

    /// What wrote the rows.
    fn commands(&self, runs: &Runs) -> String {
        let mut commands: Vec<&str> = Vec::new();
        for (_, file) in &self.rows {
            let command = runs.files.get(*file).and_then(|file| file.command.as_deref());
            commands.extend(command.filter(|command| !commands.contains(command)));
        }
        match commands.split_first() {
            None => String::new(),
            Some((first, [])) => format!("Command: `{first}`."),
            Some((first, rest)) => {
                format!("Command: `{first}` and {} more (end of this page).", rest.len())
            }
        }
    }

    /// A name for files.
    pub(super) fn slug(&self) -> String {
        words::slug(&self.heading)
    }
}

/// A warning where some runs were too short for their loads to show, or nothing.
pub(super) fn caveat<'a>(mut rows: impl Iterator<Item = &'a Row>) -> &'static str {
    if rows.any(|row| row.too_short) {
        " Warning: some of these runs were too short for their loads to show, and what waited at their end was served while nothing came any more: shares in time and highest loads can be too high."
    } else {
        ""
    }
}

/// Objectives by their name.
pub(super) fn mix_words(mix: &str) -> String {
    let objectives = match mix {
        "none" => return "no objectives".to_owned(),
        "one" | "two" | "three" | "one-long" | "two-long" | "bi-pattern" | "multi-pattern" => {
            Objectives::named_or_read(mix)
        }
        other => return format!("objectives of `{other}`"),
    };
    objectives.map_or_else(
        |_| format!("objectives of `{mix}`"),
        |(_, all)| objectives_words(&all.classes),
    )
}

/// Objectives in full.
pub(super) fn objectives_words(classes: &[Objective]) -> String {
    let total: f64 = classes.iter().map(|class| class.share).sum();
    let one = |class: &Objective| {
        let promise = match (class.ttft_ms, class.tpot_ms) {
            (None, None) => "no promise".to_owned(),
            (ttft, tpot) => {
                let more = class.ttft_ms_per_input_token;
                let more = if more > 0.0 {
                    format!(" + {more} ms per prompt token")
                } else {
                    String::new()
                };
                let ttft = ttft.map(|ttft| format!("first token within {}{more}", words::ms(ttft)));
                let tpot = tpot.map(|tpot| format!("{} per token", words::ms(tpot)));
                ttft.into_iter().chain(tpot).collect::<Vec<_>>().join(" and ")
            }
        };
        let share = words::number(class.share / total.max(1e-9) * 100.0);
        let sheddable = if class.band < 0 { ", may be refused" } else { "" };
        format!("{share} % {} ({promise}{sheddable})", class.name)
    };
    format!("objectives: {}", classes.iter().map(one).collect::<Vec<_>>().join(", "))
}
