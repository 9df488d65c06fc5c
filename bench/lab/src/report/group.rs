//! Rows of one setting, and what is said of a setting in words.

use super::{input::Runs, words};
use crate::{
    study::Row,
    workload::{Objective, Objectives},
};

/// Rows that can be compared: the same traffic, objectives, pods, predictions and number of dispatchers.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Group<'a> {
    /// The rows with the places of their files.
    pub(super) rows: Vec<(&'a Row, usize)>,
    /// The class that is spoken of: the interactive one, or the first, or all.
    pub(super) class: String,
}

/// What makes rows comparable.
fn key(row: &Row) -> (&str, &str, &str, usize, u32, &str, usize) {
    let (pods, dispatchers) = (row.pods, row.dispatchers);
    (&row.workload, &row.mix, &row.gpu, pods, row.chunk_tokens, &row.prediction, dispatchers)
}

/// The rows by their settings, in the order in which these first come. `wanted` says which rows count. Of two rows that
/// answer the same question, the one with more requests does. Those of a screening are left out.
pub(super) fn groups<'a>(runs: &'a Runs, wanted: impl Fn(&Row) -> bool) -> Vec<Group<'a>> {
    grouped(runs, |row, file| !runs.is_screening(file) && wanted(row))
}

/// The same of the screenings alone.
pub(super) fn screenings(runs: &Runs) -> Vec<Group<'_>> {
    grouped(runs, |_, file| runs.is_screening(file))
}

/// Those that are wanted, given the place of their file too.
pub(super) fn grouped(runs: &Runs, wanted: impl Fn(&Row, usize) -> bool) -> Vec<Group<'_>> {
    let mut groups: Vec<Vec<(&Row, usize)>> = Vec::new();
    for (row, file) in runs.rows.iter().filter(|(row, file)| wanted(row, *file)) {
        let same = |group: &&mut Vec<(&Row, usize)>| {
            group.first().is_some_and(|(first, _)| key(first) == key(row))
        };
        match groups.iter_mut().find(same) {
            Some(group) => insert(group, row, *file),
            None => groups.push(vec![(row, *file)]),
        }
    }
    groups.into_iter().map(|rows| Group { class: class_of(&rows), rows }).collect()
}

fn insert<'a>(group: &mut Vec<(&'a Row, usize)>, row: &'a Row, file: usize) {
    let question = |row: &'a Row| {
        (&row.policy, &row.class, row.load.map(f64::to_bits), row.at.map(f64::to_bits))
    };
    match group.iter_mut().find(|(known, _)| question(known) == question(row)) {
        Some(known) if known.0.requests < row.requests => *known = (row, file),
        Some(_) => {}
        None => group.push((row, file)),
    }
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

    /// A heading: traffic, objectives and what is not as usual about the pods, the dispatchers and the predictions.
    pub(super) fn heading(&self) -> String {
        let Some((row, _)) = self.rows.first() else { return String::new() };
        let setting = heading(&row.workload, &row.mix, row.pods, row.chunk_tokens);
        let setting = format!("{setting}{}", before(row.dispatchers));
        match row.prediction.as_str() {
            "oracle" => setting,
            // An older file does not say.
            "" => format!("{setting}, predictions not told"),
            other => format!("{setting}, predictions {other}"),
        }
    }

    /// What was run, as a sentence.
    pub(super) fn what_was_run(&self, runs: &Runs) -> String {
        let Some((row, _)) = self.rows.first() else { return String::new() };
        let pool = pool_words(row.pods, &row.gpu, row.chunk_tokens);
        let (seeds, requests) = self.effort();
        let count = self.policies().len();
        let policies = if count == 1 { "1 policy".to_owned() } else { format!("{count} policies") };
        format!(
            "{policies} in front of {pool}{}; traffic `{}`; {}; {seeds}, {requests} requests counted per run of all seeds. {}{}",
            before(row.dispatchers),
            row.workload,
            mix_words(&row.mix),
            self.commands(runs),
            caveat(self.rows.iter().map(|(row, _)| *row)),
        )
    }

    /// Seeds and requests, as ranges where rows differ.
    fn effort(&self) -> (String, String) {
        let range = |values: Vec<usize>| {
            let (low, high) = (values.iter().min().copied(), values.iter().max().copied());
            match (low.unwrap_or(0), high.unwrap_or(0)) {
                (low, high) if low == high => low.to_string(),
                (low, high) => format!("{low} to {high}"),
            }
        };
        let seeds = range(self.of_all().map(|row| row.seeds).collect());
        let seeds = if seeds == "1" { "1 seed".to_owned() } else { format!("{seeds} seeds") };
        (seeds, range(self.of_all().map(|row| row.requests).collect()))
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
        words::slug(&self.heading())
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

/// Traffic, objectives, and pods.
pub(super) fn heading(workload: &str, mix: &str, pods: usize, chunk_tokens: u32) -> String {
    let mix = match mix {
        "one" => "one class",
        "two" => "two classes",
        "one-long" => "one class with more time for long prompts",
        "two-long" => "two classes with more time for long prompts",
        "none" => "no objectives",
        other => other,
    };
    let pods = if pods == 1 { "1 pod".to_owned() } else { format!("{pods} pods") };
    format!("{workload}, {mix}, {pods}, chunk {chunk_tokens}")
}

/// Who stands before the pods, where it is more than one dispatcher.
pub(super) fn before(dispatchers: usize) -> String {
    if dispatchers > 1 { format!(", {dispatchers} dispatchers") } else { String::new() }
}

/// The pods.
pub(super) fn pool_words(pods: usize, gpu: &str, chunk_tokens: u32) -> String {
    let pods = if pods == 1 { "1 pod".to_owned() } else { format!("{pods} pods") };
    format!("{pods} of `{gpu}` with at most {chunk_tokens} tokens in a step")
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
