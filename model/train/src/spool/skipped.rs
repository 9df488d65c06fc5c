//! What a trainer left out of the spool, counted by reason.

use std::fmt;

use serde::Serialize;

/// Problems told in full; beyond it they are only counted.
const MAX_PROBLEMS: usize = 8;

/// What was read and not learned from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// Lines written with another feature schema.
    pub other_schema: u64,
    /// Lines that are no JSON object of a sample.
    pub not_json: u64,
    /// Lines that are not UTF-8.
    pub not_utf8: u64,
    /// Samples with a value that cannot be true.
    pub absurd: u64,
    /// Lines longer than any sample.
    pub too_long: u64,
    /// Last lines of finished segments that break off.
    pub torn: u64,
    /// Samples older than the window.
    pub too_old: u64,
    /// Good samples that teach no target: not streamed, failed, or without a prior.
    pub no_target: u64,
    /// Samples of pod classes that are not configured any more.
    pub other_class: u64,
    /// Segments that could not be read, and failures to list the spool.
    pub unreadable: u64,
    /// The first of the unreadable, with path and reason, as of the last look.
    pub problems: Vec<String>,
}

impl Skipped {
    /// Every counter with the name of its reason, for metrics.
    pub fn by_reason(&self) -> [(&'static str, u64); 10] {
        [
            ("other_schema", self.other_schema),
            ("not_json", self.not_json),
            ("not_utf8", self.not_utf8),
            ("absurd", self.absurd),
            ("too_long", self.too_long),
            ("torn", self.torn),
            ("too_old", self.too_old),
            ("no_target", self.no_target),
            ("other_class", self.other_class),
            ("unreadable", self.unreadable),
        ]
    }

    /// Adds the counters of a later look, whose problems replace those known so far.
    pub(crate) fn add(&mut self, later: &Self) {
        self.other_schema += later.other_schema;
        self.not_json += later.not_json;
        self.not_utf8 += later.not_utf8;
        self.absurd += later.absurd;
        self.too_long += later.too_long;
        self.torn += later.torn;
        self.too_old += later.too_old;
        self.no_target += later.no_target;
        self.other_class += later.other_class;
        self.unreadable += later.unreadable;
        self.problems.clone_from(&later.problems);
    }

    /// Keeps the text of a problem unless there are many already.
    pub(crate) fn tell(&mut self, problem: String) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(problem);
        }
    }
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (reason, count) in self.by_reason().into_iter().filter(|(_, count)| *count > 0) {
            write!(f, "{separator}{count} {reason}")?;
            separator = ", ";
        }
        if separator.is_empty() { f.write_str("nothing") } else { Ok(()) }
    }
}
