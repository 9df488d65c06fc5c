//! An operator who looks at everything after every step. What is shown must be true, and looking must
//! change nothing.

use std::time::Duration;

use weir_core::{
    Band, Slo,
    inspect::{Census, Filter, State, Supposition, WaitingView, Would},
};

use super::watched::Watched;

/// Everything that waits, oldest first.
pub fn everything(watched: &Watched) -> Vec<WaitingView> {
    let (scheduler, now) = (&watched.scheduler, watched.now);
    scheduler.waiting_page(now, None, &Filter::default(), usize::MAX, usize::MAX).requests
}

/// Looks at everything there is to see.
pub fn look(watched: &mut Watched) {
    let before = shown(watched);
    pages(watched);
    counts(watched);
    requests(watched);
    suppositions(watched);
    let now = watched.now;
    let pods = watched.scheduler.pods_page(now, None, usize::MAX, usize::MAX);
    assert_eq!(pods.len(), watched.naive.pods.len());
    let lanes = watched.scheduler.lanes();
    let depth: usize =
        watched.scheduler.queue_views(now, &lanes).iter().map(|lane| lane.depth).sum();
    assert_eq!(depth, watched.scheduler.waiting(), "every request is in a lane");
    for key in lanes {
        let name = watched.scheduler.name_of(key);
        assert_eq!(watched.scheduler.lane_called(&name), Some(key), "{name}");
    }
    assert_eq!(shown(watched), before, "looking has changed something");
}

/// All that is shown of the pool, with the reason of every request.
fn shown(watched: &Watched) -> String {
    let reasons = watched.naive.waiting().map(|tale| {
        let id = tale.request.id;
        (id, watched.scheduler.reason(id))
    });
    let reasons: Vec<_> = reasons.collect();
    format!("{reasons:?} {:?}", watched.scheduler.snapshot(watched.now))
}

/// Walks in small slices see what one large slice sees, and filters leave what they say.
fn pages(watched: &Watched) {
    let (all, scheduler, now) = (everything(watched), &watched.scheduler, watched.now);
    let mut waiting: Vec<_> =
        watched.naive.waiting().map(|tale| (tale.request.arrived, tale.request.id)).collect();
    waiting.sort_unstable();
    assert!(all.iter().map(|one| one.id).eq(waiting.iter().map(|(_, id)| *id)), "{all:?}");
    let (mut sliced, mut after) = (Vec::new(), None);
    loop {
        let page = scheduler.waiting_page(now, after, &Filter::default(), 2, 3);
        assert!(page.scanned <= 3 && page.requests.len() <= 2);
        sliced.extend(page.requests);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(sliced, all);
    let high = Filter { band: Some(Band(1)), late: Some(false), ..Filter::default() };
    let page = scheduler.waiting_page(now, None, &high, usize::MAX, usize::MAX);
    let in_time = |one: &WaitingView| one.slack_ms.is_none_or(|ms| ms >= 0.0 && !one.late);
    let expected = all.iter().filter(|one| one.band == Band(1) && in_time(one));
    assert!(page.requests.iter().eq(expected));
    let old = Filter { older_than: Some(Duration::from_millis(100)), ..Filter::default() };
    let page = scheduler.waiting_page(now, None, &old, usize::MAX, usize::MAX);
    assert!(page.requests.iter().eq(all.iter().filter(|one| one.age_ms >= 100.0)));
}

fn counts(watched: &Watched) {
    let (mut census, mut after) = (Census::default(), None);
    loop {
        after = watched.scheduler.count(watched.now, after, 3, &mut census);
        if after.is_none() {
            break;
        }
    }
    let waiting = watched.scheduler.waiting();
    let snapshot = watched.scheduler.snapshot(watched.now);
    assert_eq!(census.counted, waiting);
    let lanes: usize = census.lanes.values().map(|count| count.depth).sum();
    let bytes: u64 = census.bands.values().map(|count| count.bytes).sum();
    assert_eq!((lanes, bytes), (waiting, snapshot.waiting_bytes));
    let risks = census.bands.values().map(|count| count.risk);
    assert_eq!(risks.map(|risk| risk.ok + risk.tight + risk.late).sum::<usize>(), waiting);
    let tenants: usize = census.tenants.values().map(|count| count.depth).sum();
    assert_eq!(tenants + census.no_tenant.depth, waiting);
}

/// Every request is found by its name and told of as what it is.
fn requests(watched: &mut Watched) {
    let now = watched.now;
    for tale in watched.naive.tales.values() {
        let id = tale.request.id;
        let found = watched.scheduler.find(&tale.request.name);
        let seen = watched.scheduler.inspect(now, id);
        let expected = match (tale.waits(), tale.stay()) {
            (true, _) => State::Waiting,
            (false, Some(_)) => State::Running,
            (false, None) => State::Recent,
        };
        if !tale.request.name.is_empty() {
            assert_eq!(found, Some(id), "{}", tale.request.name);
        }
        assert!(seen.is_some(), "nothing is known of {id:?}");
        let Some(seen) = seen else { continue };
        assert_eq!(seen.state, expected, "{seen:?}");
        assert!(seen.explanation.ends_with('.') && !seen.history.is_empty(), "{seen:?}");
        let pods = if tale.waits() { watched.naive.pods.len() } else { 0 };
        assert_eq!(seen.pods.len(), pods);
        for (look, pod) in seen.pods.iter().zip(watched.naive.pods.keys()) {
            let usable = watched.naive.may_use(tale, *pod);
            assert!(usable || !look.fits, "{look:?} of {tale:?}");
            assert_eq!(look.fits, look.verdict.is_none());
        }
    }
    let decisions = watched.scheduler.decisions(now, 0, usize::MAX, |_| true);
    assert!(decisions.iter().all(|one| one.alternatives.len() <= 4));
}

fn suppositions(watched: &mut Watched) {
    let ms = Duration::from_millis;
    for (input_tokens, ttft, band) in [(10, None, 0), (5000, Some(ms(300)), -1), (900, None, 2)] {
        let slo = Slo { ttft, tpot: Some(ms(50)) };
        let band = Band(band);
        let what = Supposition { input_tokens, slo, band, ..Supposition::default() };
        let would = watched.scheduler.suppose(watched.now, &what);
        assert_eq!(would.would == Would::Dispatch, would.pod.is_some());
        assert!(would.explanation.ends_with('.'), "{would:?}");
        if watched.naive.closing {
            assert_eq!(would.would, Would::Refuse);
        }
    }
}
