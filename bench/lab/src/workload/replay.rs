//! A recorded trace as a source: its rows in their order, compressed to the rate that is asked for, from another place on
//! for every seed.

use std::{collections::BTreeSet, path::Path, sync::OnceLock};

use anyhow::{Context, Result, ensure};
use rand::Rng;
use xxhash_rust::xxh3::Xxh3;

use super::{
    BLOCK_TOKENS, Means, Objectives, Source, arrivals,
    chain::{self, Chain},
    draft::Draft,
    draw::stream,
    means::Count,
};
use crate::{
    results::name_of_file,
    sim::SimRequest,
    trace::{self, Arrival, Recorded},
};

/// A trace.
#[derive(Clone, Debug)]
pub struct Replay {
    name: String,
    rows: Vec<Arrival>,
    /// Seconds from the first row to the end of the last one's gap.
    span_s: f64,
    means: Means,
    fingerprint: u64,
    /// Whether the times are recorded ones.
    is_timed: bool,
    /// Set once it was told which classes of the rows the objectives lack.
    told: OnceLock<()>,
}

impl Replay {
    /// Reads a trace; the name is that of the file without the endings that say what it is.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(path: &Path) -> Result<Self> {
        let Recorded { rows, is_timed } = trace::recorded(path, 1)?;
        Ok(Self { is_timed, ..Self::new(name_of_file(path), rows)? })
    }

    /// A trace from its rows, which are in the order of time.
    ///
    /// # Errors
    /// When there are fewer than two rows, or all at one moment.
    pub fn new(name: String, rows: Vec<Arrival>) -> Result<Self> {
        let last_s = rows.last().context("a trace without rows")?.at_s;
        ensure!(last_s > 0.0, "{name}: a rate needs rows at different times");
        let span_s = last_s * rows.len() as f64 / (rows.len() - 1).max(1) as f64;
        let (means, fingerprint) = (means(&rows, u64::MAX), fingerprint(&rows));
        let told = OnceLock::new();
        Ok(Self { name, rows, span_s, means, fingerprint, is_timed: true, told })
    }

    /// The same for pods that hold so many tokens of a request at most: rows of more, which no pod takes, count in no mean, so
    /// that one of them does not decide what load 1 is. They are replayed all the same, and rejected.
    ///
    /// # Errors
    /// When no row is left.
    pub fn held_by(mut self, most_tokens: u64) -> Result<Self> {
        let left_out = self.rows.iter().filter(|row| tokens(row) > most_tokens).count();
        let kept = self.rows.len() - left_out;
        ensure!(
            kept > 0,
            "{}: no pod holds any of its rows: the largest KV cache has room for {most_tokens} tokens",
            self.name
        );
        if left_out > 0 {
            tracing::warn!(
                left_out,
                kept,
                most_tokens,
                "load 1 is that of the other rows: these are longer than any pod's KV cache, and rejected"
            );
            self.means = means(&self.rows, most_tokens);
        }
        Ok(self)
    }

    /// Warns of classes that the objectives do not have: their rows are drawn by share like those without one.
    fn tell_unknown(&self, objectives: &Objectives) {
        let named = self.rows.iter().filter_map(|row| row.class.as_deref());
        let unknown: BTreeSet<_> =
            named.filter(|name| objectives.place_of(name).is_none()).collect();
        if !unknown.is_empty() {
            let classes = unknown.into_iter().map(trace::shown).collect::<Vec<_>>().join(", ");
            tracing::warn!(
                classes,
                "the objectives have no such class: its rows are drawn by share"
            );
        }
    }

    /// Requests per second of the rows as they were recorded.
    pub fn own_rps(&self) -> f64 {
        self.rows.len() as f64 / self.span_s
    }

    /// Whether that is a rate at which anything came: where the file has no times it is made up.
    pub(crate) const fn is_timed(&self) -> bool {
        self.is_timed
    }

    /// How many rows there are.
    pub(crate) fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Seconds that they took.
    pub(crate) const fn span_s(&self) -> f64 {
        self.span_s
    }

    /// KV blocks that their prompts name.
    pub(crate) fn blocks(&self) -> usize {
        let named = self.rows.iter().filter(|row| !row.prefix.is_empty());
        named.map(|row| row.input_tokens.div_ceil(BLOCK_TOKENS) as usize).sum()
    }

    /// The most rows within so many seconds.
    pub(crate) fn most_within(&self, for_s: f64) -> usize {
        let mut end = 0;
        let mut within = |(from, row): (usize, &Arrival)| {
            let inside = |later: &Arrival| later.at_s < row.at_s + for_s;
            while self.rows.get(end).is_some_and(inside) {
                end += 1;
            }
            end - from
        };
        let mut most = 0;
        for place in self.rows.iter().enumerate() {
            most = most.max(within(place));
        }
        most
    }

    /// The row from which on so many rows come in the shortest time.
    pub(crate) fn busiest(&self, count: usize) -> usize {
        let lengths = self.rows.iter().zip(self.rows.iter().skip(count.saturating_sub(1)));
        let lengths = lengths.map(|(first, last)| last.at_s - first.at_s).enumerate();
        lengths.min_by(|(_, a), (_, b)| a.total_cmp(b)).map_or(0, |(from, _)| from)
    }

    /// So many requests from a row on, at a rate. Of the classes of rows without one the seed decides.
    ///
    /// # Errors
    /// As for [`Source::requests`].
    pub(crate) fn stretch(
        &self,
        Stretch { from, before }: Stretch,
        rate_rps: f64,
        count: usize,
        objectives: &Objectives,
        seed: u64,
    ) -> Result<Vec<SimRequest>> {
        arrivals::above_zero(rate_rps, count)?;
        self.told.get_or_init(|| self.tell_unknown(objectives));
        let rows = self.rows.len();
        let speed = rate_rps * self.span_s / rows as f64;
        let mut classes = stream(seed, "classes");
        let start_s = self.rows.get(from).map_or(0.0, |row| row.at_s);
        let turns = self.rows.iter().cycle().skip(from).take(count).enumerate();
        let one = |(place, row): (usize, &Arrival)| {
            let round = ((from + place) / rows) as f64;
            let at_s = (row.at_s + round * self.span_s - start_s) / speed;
            // Counted from where the seed starts: every pass over the rows shares as much as the trace does.
            let pass = place.checked_sub(before).map_or(u64::MAX, |place| (place / rows) as u64);
            draft(row, at_s, place, pass).request(place, objectives, &mut classes)
        };
        Ok(turns.map(one).collect())
    }
}

/// Where requests begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    /// The row of the first one.
    pub(crate) from: usize,
    /// So many of them share nothing with those behind them, of which the first begins a pass over the rows.
    pub(crate) before: usize,
}

impl Source for Replay {
    fn name(&self) -> &str {
        &self.name
    }

    fn means(&self) -> Means {
        self.means
    }

    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    fn requests(
        &self,
        rate_rps: f64,
        count: usize,
        objectives: &Objectives,
        seed: u64,
    ) -> Result<Vec<SimRequest>> {
        let from = stream(seed, "start").random_range(0..self.rows.len());
        self.stretch(Stretch { from, before: 0 }, rate_rps, count, objectives, seed)
    }
}

/// Tokens that a row takes of a cache in the end.
fn tokens(row: &Arrival) -> u64 {
    u64::from(row.input_tokens) + u64::from(row.output_tokens)
}

/// A digest of all that rows say, times to the microsecond.
fn fingerprint(rows: &[Arrival]) -> u64 {
    let mut print = Xxh3::new();
    for row in rows {
        print.update(&((row.at_s * 1e6).round() as u64).to_le_bytes());
        print.update(&row.input_tokens.to_le_bytes());
        print.update(&row.output_tokens.to_le_bytes());
        print.update(row.class.as_deref().unwrap_or_default().as_bytes());
        for segment in &row.prefix {
            print.update(&segment.id.to_le_bytes());
            print.update(&segment.tokens.to_le_bytes());
        }
        // Where a row ends.
        print.update(&(row.prefix.len() as u64).to_le_bytes());
    }
    print.digest()
}

/// Means of the rows of at most so many tokens.
fn means(rows: &[Arrival], most_tokens: u64) -> Means {
    let mut count = Count::default();
    let held = rows.iter().enumerate().filter(|(_, row)| tokens(row) <= most_tokens);
    held.for_each(|(place, row)| count.draft(&draft(row, row.at_s, place, 0)));
    count.means()
}

/// Seed of the names of what a row has to itself.
const OWN_TEXT: u64 = 1;

/// Seed of the names of what rows share when they come again.
const LATER_TEXT: u64 = 2;

/// A row as the request at a place, in a pass over the rows. Behind what it may share is text of its own.
fn draft(row: &Arrival, at_s: f64, place: usize, pass: u64) -> Draft<'_> {
    let mut text = Chain::default();
    let mut left = row.input_tokens;
    for segment in &row.prefix {
        text.append(shared(segment.id, pass), segment.tokens.min(left));
        left -= segment.tokens.min(left);
    }
    if !row.prefix.is_empty() {
        text.append(chain::name([place as u64, 0, 0], OWN_TEXT), left);
    }
    Draft {
        at_s,
        input_tokens: row.input_tokens,
        output_tokens: row.output_tokens,
        class: row.class.as_deref(),
        blocks: text.blocks(),
        ..Draft::default()
    }
}

/// The name of what rows share, in a pass over them. A later pass is other traffic of the same kind: with the same names it
/// would be served from what the caches kept of the pass before, and a longer run would hold a higher load.
fn shared(id: u64, pass: u64) -> u64 {
    if pass == 0 { id } else { chain::name([id, pass, 0], LATER_TEXT) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prompt::Segment;

    fn rows() -> Vec<Arrival> {
        let row = |number: u32| Arrival {
            at_s: f64::from(number),
            input_tokens: 600,
            output_tokens: 10 + number,
            class: None,
            prefix: vec![Segment { id: 7, tokens: 512 }],
        };
        (0..100).map(row).collect()
    }

    #[test]
    fn the_rate_is_the_one_asked_for_and_rows_come_round_again() {
        let replay = Replay::new("rows".to_owned(), rows()).unwrap();
        let requests = replay.requests(4.0, 1000, &Objectives::default(), 3).unwrap();
        let last_s = requests[999].request.arrived.as_micros() as f64 / 1e6;
        assert!((last_s - 999.0 / 4.0).abs() < 0.5, "{last_s}");
        assert!(requests.windows(2).all(|p| p[0].request.arrived <= p[1].request.arrived));
        assert_eq!(requests[5].output_tokens, requests[105].output_tokens);
    }

    #[test]
    fn a_trace_is_told_from_another_by_anything_that_its_rows_say() {
        let print =
            |rows: Vec<Arrival>| Replay::new("rows".to_owned(), rows).unwrap().fingerprint();
        let own = print(rows());
        assert_eq!(own, print(rows()));
        let changes: [fn(&mut Arrival); 5] = [
            |row| row.at_s += 0.25,
            |row| row.input_tokens += 1,
            |row| row.output_tokens += 1,
            |row| row.class = Some("batch".to_owned()),
            |row| row.prefix[0].id = 8,
        ];
        for change in changes {
            let mut rows = rows();
            change(&mut rows[50]);
            assert_ne!(print(rows), own);
        }
        assert_ne!(print(rows()[..99].to_vec()), own);
    }

    #[test]
    fn another_seed_starts_elsewhere_and_the_same_one_does_not() {
        let replay = Replay::new("rows".to_owned(), rows()).unwrap();
        let first =
            |seed| replay.requests(1.0, 1, &Objectives::default(), seed).unwrap()[0].output_tokens;
        assert_eq!(first(1), first(1));
        assert!((2..9).any(|seed| first(seed) != first(1)));
    }

    #[test]
    fn what_rows_share_is_a_hit_from_the_second_on() {
        let replay = Replay::new("rows".to_owned(), rows()).unwrap();
        assert!((replay.means().hit - 0.99 * 512.0 / 600.0).abs() < 1e-9, "{:?}", replay.means());
        let requests = replay.requests(1.0, 2, &Objectives::default(), 1).unwrap();
        let [first, second] = [0, 1].map(|place: usize| &requests[place].request.blocks);
        assert_eq!((first.len(), &first[..32]), (37, &second[..32]));
        assert_ne!(first[32..], second[32..]);
    }

    #[test]
    fn a_trace_that_goes_round_shares_no_more_than_it_does_itself() {
        let mut rows = rows();
        let own = |(place, row): (usize, &mut Arrival)| row.prefix[0].id = place as u64 / 2;
        rows.iter_mut().enumerate().for_each(own);
        let replay = Replay::new("rows".to_owned(), rows).unwrap();
        let hit =
            |count| Means::of(&replay.requests(1.0, count, &Objectives::default(), 1).unwrap()).hit;
        assert!((hit(100) - replay.means().hit).abs() < 0.01, "{}", hit(100));
        assert!((hit(300) - hit(100)).abs() < 1e-9, "{} {}", hit(300), hit(100));
    }

    #[test]
    fn the_busiest_part_of_a_trace_is_found() {
        let mut rows = rows();
        // Rows 40 to 59 come in two seconds.
        for (place, row) in rows.iter_mut().enumerate() {
            let at_s = |place: usize| {
                place.min(40) as f64 + place.saturating_sub(40).min(20) as f64 / 10.0
            };
            row.at_s = at_s(place) + place.saturating_sub(60) as f64;
        }
        let replay = Replay::new("rows".to_owned(), rows).unwrap();
        assert_eq!((replay.busiest(20), replay.busiest(100), replay.busiest(1000)), (40, 0, 0));
        assert_eq!((replay.most_within(2.0), replay.most_within(1e9)), (20, 100));
    }

    #[test]
    fn what_comes_before_a_stretch_shares_nothing_with_it() {
        let replay = Replay::new("rows".to_owned(), rows()).unwrap();
        let stretch = Stretch { from: 95, before: 5 };
        let sent = replay.stretch(stretch, 1.0, 105, &Objectives::default(), 1).unwrap();
        assert_eq!((sent[0].output_tokens, sent[5].output_tokens), (105, 10));
        assert_eq!(Means::of(&sent[5..]).hit, replay.means().hit);
        assert_ne!(sent[0].request.blocks[0], sent[5].request.blocks[0]);
    }

    #[test]
    fn a_row_that_no_pod_can_hold_is_in_no_mean() {
        let mut long = rows();
        long[7].input_tokens = 9_000_000;
        let replay = Replay::new("rows".to_owned(), long).unwrap();
        assert!(replay.means().input_tokens > 90_000.0);
        let held = replay.clone().held_by(1_000_000).unwrap();
        assert_eq!(held.means().input_tokens, 600.0);
        let sent = held.requests(1.0, 100, &Objectives::default(), 1).unwrap();
        assert!(sent.iter().any(|one| one.input_tokens == 9_000_000));
        let all = Replay::new("rows".to_owned(), rows()).unwrap();
        assert_eq!(all.clone().held_by(1_000_000).unwrap().means(), all.means());
        assert!(replay.held_by(10).unwrap_err().to_string().contains("no pod holds"));
    }

    #[test]
    fn rows_at_one_moment_have_no_rate() {
        let mut rows = rows();
        rows.iter_mut().for_each(|row| row.at_s = 0.0);
        assert!(Replay::new("rows".to_owned(), rows).is_err());
    }
}
