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
    let (mut kept, mut superseded) = (Vec::<T>::new(), Vec::new());
    for one in all {
        let known =
            kept.iter_mut().enumerate().find(|(_, known)| question(known) == question(&one));
        match known {
            Some((at, known)) if rank(&one) >= rank(known) => {
                superseded.push((std::mem::replace(known, one), at));
            }
            Some((at, _)) => superseded.push((one, at)),
            None => kept.push(one),
        }
    }
    // What counted when a run was put aside may have been put aside itself since.
    let counts = |(one, at): (T, usize)| kept.get(at).map(|known| (one, rank(known).2));
    let superseded = superseded.into_iter().filter_map(counts).collect();
    Choice { kept, superseded }
}

impl Runs {
    /// The rank of a run of so many requests in the file at this place.
    pub(super) fn rank(&self, requests: usize, file: usize) -> Rank {
        (requests, self.files.get(file).and_then(|file| file.modified), file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_three_runs_of_a_question_both_others_name_the_one_that_counts() {
        let runs = [("load", 100, 0), ("other", 1, 1), ("load", 200, 2), ("load", 300, 3)];
        let choice = choose(runs, |one| one.0, |one| (one.1, None, one.2));
        assert_eq!(choice.kept, [("load", 300, 3), ("other", 1, 1)]);
        let by: Vec<_> = choice.superseded.iter().map(|(one, by)| (one.2, *by)).collect();
        assert_eq!(by, [(0, 3), (2, 3)]);
    }
}
