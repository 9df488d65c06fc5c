//! The board alone: what putting one request in and taking one out cost, by how much waits.

use std::time::Duration;

use rand::{Rng, SeedableRng, rngs::SmallRng};
use weir_core::{
    Band, BucketEdges, PromptSize, Request, RequestId, Slo, Time,
    pattern::Pattern,
    policy::Order,
    queue::{Board, Waiting, order},
};

use super::cost::Meter;

/// Who leaves a board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaves {
    /// The one that goes first, as when pods take what waits.
    Head,
    /// Anyone, as when clients leave: nothing of it is in the processor's caches.
    Anyone,
}

/// What turning over a board of so many costs, in microseconds for one in and one out.
pub(crate) fn turnover_us(
    depth: u64,
    patterns: usize,
    (turns, leaves): (u64, Leaves),
    is_timed: bool,
) -> f64 {
    let mut chance = SmallRng::seed_from_u64(depth);
    let mut board = Board::default();
    (0..depth).for_each(|id| board.insert(waiting(id, patterns)));
    let mut alive: Vec<u64> = (0..depth).collect();
    let turn = |id| {
        // All have the same objective, so that who came first goes first.
        let place = match leaves {
            Leaves::Head => id % depth.max(1),
            Leaves::Anyone => chance.random_range(0..depth.max(1)),
        };
        let leaver = alive.get_mut(place as usize).map(|one| std::mem::replace(one, id));
        (waiting(id, patterns), RequestId(leaver.unwrap_or(id)))
    };
    let turned: Vec<(Waiting, RequestId)> = (depth..depth + turns).map(turn).collect();
    let mut gone = Vec::with_capacity(turned.len());
    let cost = Meter::new(is_timed).of(|| counted_turns(&mut board, turned, &mut gone));
    cost.cpu_us / turns as f64
}

/// The longest that any request took to go in while a board filled with so many, in microseconds of the processor.
pub(super) fn longest_us(depth: u64, patterns: usize) -> f64 {
    let (meter, mut board) = (Meter::new(true), Board::default());
    let comers = (0..depth).map(|id| waiting(id, patterns));
    comers.map(|comes| meter.of(|| board.insert(comes)).cpu_us).fold(0.0, f64::max)
}

/// What is counted: a function of its own, so that a profiler finds it.
#[inline(never)]
fn counted_turns(board: &mut Board, turned: Vec<(Waiting, RequestId)>, gone: &mut Vec<Waiting>) {
    for (comes, leaves) in turned {
        board.insert(comes);
        gone.extend(board.remove(leaves));
    }
}

fn waiting(id: u64, patterns: usize) -> Waiting {
    let kind = id % patterns.max(1) as u64;
    let input_tokens = 64 << (kind % 6);
    let arrived = Time::from_micros(id);
    let request = Request {
        slo: Slo { ttft: Some(Duration::from_secs(2)), tpot: Some(Duration::from_millis(50)) },
        body_bytes: 100,
        ..Request::new(RequestId(id), arrived, PromptSize::Tokens(input_tokens))
    };
    let output_tokens = 16 << (kind / 6 % 6);
    let pattern = Pattern::of(&BucketEdges::default(), Band(0), input_tokens, output_tokens, None);
    let due = order::due(&request, input_tokens, Order::Deadline, Duration::ZERO);
    Waiting::new(Box::new(request), (input_tokens, output_tokens), pattern, due)
}
