//! The board alone: what putting one request in and taking one out cost, by how much waits.

use std::{sync::Arc, time::Duration};

use rand::{Rng, SeedableRng, rngs::SmallRng};
use smallvec::SmallVec;
use weir_core::{
    Band, BucketEdges, PromptSize, Reason, Request, RequestId, Slo, Time,
    decide::standing::Shuts,
    pattern::Pattern,
    policy::Order,
    queue::{Board, Waiting, board},
};

use super::cost::Meter;

/// Requests put in and taken out for one figure.
const TURNS: u64 = 200_000;

/// What turning over a board of so many costs, in microseconds for one in and one out.
pub(super) fn turnover_us(depth: u64, patterns: usize) -> f64 {
    let (mut board, mut chance) = (Board::default(), SmallRng::seed_from_u64(depth));
    (0..depth).for_each(|id| board.insert(waiting(id, patterns)));
    let mut alive: Vec<u64> = (0..depth).collect();
    let meter = Meter::new();
    let fresh: Vec<Waiting> = (depth..depth + TURNS).map(|id| waiting(id, patterns)).collect();
    let mut gone = Vec::with_capacity(fresh.len());
    let cost = meter.of(|| {
        for (id, waiting) in (depth..).zip(fresh) {
            board.insert(waiting);
            let place = chance.random_range(0..alive.len().max(1));
            if let Some(one) = alive.get_mut(place) {
                gone.extend(board.remove(RequestId(*one)));
                *one = id;
            }
        }
    });
    cost.cpu_us / TURNS as f64
}

fn waiting(id: u64, patterns: usize) -> Waiting {
    let kind = id % patterns.max(1) as u64;
    let input_tokens = 64 << (kind % 6);
    let arrived = Time::from_micros(id);
    let request = Request {
        id: RequestId(id),
        arrived,
        prompt: PromptSize::Tokens(input_tokens),
        max_output_tokens: None,
        sequences: 1,
        slo: Slo { ttft: Some(Duration::from_secs(2)), tpot: Some(Duration::from_millis(50)) },
        band: Band(0),
        tenant: None,
        body_bytes: 100,
        blocks: Arc::from([]),
        streamed: true,
        ttl: None,
        immediate: false,
        by_header: false,
        name: Arc::default(),
    };
    let output_tokens = 16 << (kind / 6 % 6);
    Waiting {
        pattern: Pattern::of(&BucketEdges::default(), Band(0), input_tokens, output_tokens, None),
        rank: board::rank(&request, input_tokens, id, Order::Deadline),
        request: Box::new(request),
        input_tokens,
        output_tokens,
        attempts: 0,
        excluded: SmallVec::new(),
        late: false,
        reason: Reason::NotConsidered,
        claim: None,
        matches: Vec::new(),
        matched_at: 0,
        shut: Shuts::default(),
    }
}
