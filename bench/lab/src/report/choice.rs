//! Which of several runs counts that answer the same question.
//!
//! The one with more requests does, of equals the one of the newer file. A run counts as a whole: rows of two runs are never
//! mixed. What counts no more is kept, so that the page can say so.

use std::time::SystemTime;

use super::input::Runs;

/// How much a run is worth: its requests, when its file was written, and the file's place, by which no two are equal.
pub(super) type Rank = (usize, Option<SystemTime>, usize);

/// The runs that count, and the others.
#[derive(Clone, Debug)]
pub(super) struct Choice<T> {
    /// One per question, in the order in which the questions first come.
    pub(super) kept: Vec<T>,
    /// Those that do not count, each with the place of the file whose run does in its stead.
    pub(super) superseded: Vec<(T, usize)>,
}

/// Chooses by question and rank.
pub(super) fn choose<T, Q: PartialEq>(
    all: impl IntoIterator<Item = T>,
    question: impl Fn(&T) -> Q,
    rank: impl Fn(&T) -> Rank,
) -> Choice<T> {
    let mut choice = Choice { kept: Vec::new(), superseded: Vec::new() };
    for one in all {
        match choice.kept.iter_mut().find(|known| question(known) == question(&one)) {
            Some(known) if rank(&one) >= rank(known) => {
                let before = std::mem::replace(known, one);
                choice.superseded.push((before, rank(known).2));
            }
            Some(known) => choice.superseded.push((one, rank(known).2)),
            None => choice.kept.push(one),
        }
    }
    choice
}

impl Runs {
    /// The rank of a run of so many requests in the file at this place.
    pub(super) fn rank(&self, requests: usize, file: usize) -> Rank {
        (requests, self.files.get(file).and_then(|file| file.modified), file)
    }
}
