//! Who is who in the pictures: a policy has the same colour and marker everywhere, but for pictures in which another has them.

use super::{
    group::groups,
    input::Runs,
    palette::{RIVALS, SUBJECT},
    plot::Look,
};
use crate::study::Row;

/// The policy that a report is about, where it is among those that ran.
pub(super) const SUBJECT_NAME: &str = "weir";

/// How many rivals are named in one picture.
pub(super) const NAMED: usize = 5;

/// All policies of a report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cast {
    /// Rivals, those first that do best.
    rivals: Vec<String>,
}

/// Whether a policy is Weir with something changed.
pub(super) fn is_variant(policy: &str) -> bool {
    policy
        .strip_prefix(SUBJECT_NAME)
        .is_some_and(|rest| rest.starts_with(['-', ':', ' ', '+', '(', '/']))
}

impl Cast {
    /// Everybody in the rows and series.
    pub(super) fn of(runs: &Runs) -> Self {
        let mut ranked = ranks(runs);
        ranked.sort_by(|(_, a), (_, b)| a.total_cmp(b));
        let mut rivals: Vec<String> = ranked.into_iter().map(|(name, _)| name).collect();
        for series in runs.series.iter().map(|placed| &placed.item) {
            if series.policy != SUBJECT_NAME && !rivals.contains(&series.policy) {
                rivals.push(series.policy.clone());
            }
        }
        Self { rivals }
    }

    /// These rivals, in this order.
    pub(super) fn named<'a>(rivals: impl Iterator<Item = &'a str>) -> Self {
        Self { rivals: rivals.map(str::to_owned).collect() }
    }

    /// How a policy is drawn where it is named.
    pub(super) fn look(&self, policy: &str) -> Look {
        if policy == SUBJECT_NAME {
            return Look { colour: SUBJECT, marker: 0, named: true };
        }
        let place = self.rivals.iter().position(|rival| rival == policy).unwrap_or(0);
        let colour = RIVALS.iter().cycle().nth(place).copied().unwrap_or(SUBJECT);
        Look { colour, marker: 1 + place % 5, named: true }
    }

    /// Everybody of one picture with their looks: Weir, the first rivals of `best_first` by name, the rest without. No two that
    /// are named share a colour or a marker.
    pub(super) fn looks<'a>(&self, best_first: &[&'a str]) -> Vec<(&'a str, Look)> {
        let (subject, rivals): (Vec<&str>, Vec<&str>) =
            best_first.iter().partition(|policy| **policy == SUBJECT_NAME);
        let (named, others) = rivals.split_at(rivals.len().min(NAMED));
        let subject = subject.iter().map(|policy| (*policy, self.look(policy)));
        let looks = apart(named.iter().map(|policy| self.look(policy)).collect());
        let named = named.iter().copied().zip(looks);
        let others = others.iter().map(|policy| (*policy, Look::OTHER));
        subject.chain(named).chain(others).collect()
    }
}

/// Looks of which no two share a colour or a marker, while there are enough: a later one gives way to an earlier.
fn apart(mut looks: Vec<Look>) -> Vec<Look> {
    let colours = distinct(looks.iter().map(|look| look.colour).collect(), &RIVALS);
    let markers = distinct(looks.iter().map(|look| look.marker).collect(), &[1, 2, 3, 4, 5]);
    for (look, (colour, marker)) in looks.iter_mut().zip(colours.into_iter().zip(markers)) {
        (look.colour, look.marker) = (colour, marker);
    }
    looks
}

/// The same with those that were there before exchanged for what nobody has of `all`.
fn distinct<T: Copy + PartialEq>(mut own: Vec<T>, all: &[T]) -> Vec<T> {
    let mut free: Vec<T> = all.iter().copied().filter(|one| !own.contains(one)).collect();
    for place in 0..own.len() {
        let (before, after) = own.split_at_mut(place);
        let Some(one) = after.first_mut().filter(|one| before.contains(one)) else { continue };
        if !free.is_empty() {
            *one = free.remove(0);
        }
    }
    own
}

/// Rivals with their mean places, over the questions that rows answer.
fn ranks(runs: &Runs) -> Vec<(String, f64)> {
    let mut places: Vec<(String, f64, f64)> = Vec::new();
    for group in groups(runs, |_| true) {
        let mut questions: Vec<Vec<&Row>> = Vec::new();
        for row in group.of_class().filter(|row| row.policy != SUBJECT_NAME) {
            let same = |rows: &&mut Vec<&Row>| {
                rows.first().is_some_and(|first| (first.load, first.at) == (row.load, row.at))
            };
            match questions.iter_mut().find(same) {
                Some(rows) => rows.push(row),
                None => questions.push(vec![row]),
            }
        }
        for mut rows in questions {
            rows.sort_by(|a, b| worth(b).total_cmp(&worth(a)));
            for (place, row) in rows.iter().enumerate() {
                // Weir's own variants come after everybody else: they are in pictures of their own.
                let place = place as f64 + if is_variant(&row.policy) { 1000.0 } else { 0.0 };
                match places.iter_mut().find(|(name, ..)| *name == row.policy) {
                    Some((_, sum, count)) => (*sum, *count) = (*sum + place, *count + 1.0),
                    None => places.push((row.policy.clone(), place, 1.0)),
                }
            }
        }
    }
    places.into_iter().map(|(name, sum, count)| (name, sum / count)).collect()
}

/// What makes a policy good: the load it holds, else what it attains, else a short end to end.
pub(super) fn worth(row: &Row) -> f64 {
    match (row.max_load, row.mix.as_str()) {
        (Some(load), _) => load,
        (None, "none") => -row.e2e_ms_mean.unwrap_or(f64::INFINITY),
        (None, _) => row.attainment,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_named_in_a_picture_can_be_told_apart() {
        let names: Vec<String> = (0..20).map(|number| format!("rival-{number}")).collect();
        let cast = Cast::named(names.iter().map(String::as_str));
        // Six colours and five markers apart, so that some have the same look in the whole cast.
        let shown =
            [&*names[0], &*names[6], &*names[12], &*names[5], "weir", &*names[3], &*names[7]];
        let looks = cast.looks(&shown);
        assert_eq!(looks[0].0, "weir");
        let named: Vec<Look> =
            looks.iter().map(|(_, look)| *look).filter(|look| look.named).collect();
        assert_eq!((named.len(), looks.len()), (1 + NAMED, shown.len()));
        for (place, look) in named.iter().enumerate() {
            let before = &named[..place];
            assert!(before.iter().all(|one| one.colour != look.colour), "{looks:?}");
            assert!(before.iter().all(|one| one.marker != look.marker), "{looks:?}");
        }
        assert_eq!(looks[1].1, cast.look(&names[0]), "the first keeps its own");
    }
}
