use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};

use futures_util::{FutureExt, future::join_all};
use parking_lot::Mutex;
use rand::{Rng, SeedableRng, rngs::SmallRng};
use tokio::runtime::Builder;
use weir_core::{Bounds, EndKind, Event, PodId, Policy, RefusalReason, RequestId, TICK};
use weir_schema::{
    FirstToken, Predict, PredictError, Prediction, Row, Sample, Status, StepTime, Stride,
};

use super::{
    Hub, Lease,
    fixture::{Fixture, Flat, assert_settled, pod, request, until},
    run_ticks,
};

fn hub() -> Arc<Hub> {
    Fixture::default().hub().0
}

async fn lease(hub: &Arc<Hub>, id: u64) -> Box<Lease> {
    hub.admit(request(hub, id)).verdict().await.unwrap()
}

#[tokio::test]
async fn a_request_gets_a_pod_and_gives_it_back() {
    let hub = hub();
    hub.add_pod(pod(1, "127.0.0.1:1"));
    let mut lease = lease(&hub, 1).await;
    assert_eq!((lease.id().0, lease.pod().id), (1, PodId(1)));
    assert!(!hub.idle());
    lease.first_token();
    lease.carried(3, hub.clock().now());
    lease.end(EndKind::Complete, Some(3), Some(100));
    assert_settled(&hub);
    assert_eq!(hub.snapshot().counters.completed, 1);
}

#[tokio::test]
async fn what_runs_on_a_pod_that_leaves_and_comes_back_is_in_its_ledger_unless_it_was_restarted() {
    for restarted in [false, true] {
        let hub = hub();
        hub.add_pod(pod(1, "127.0.0.1:1"));
        let lease = lease(&hub, 1).await;
        lease.first_token();
        if restarted {
            hub.remove_restarted(PodId(1))
        } else {
            hub.remove_pod(PodId(1))
        }
        hub.add_pod(pod(2, "127.0.0.1:2"));
        hub.add_pod(pod(3, "127.0.0.1:1"));
        let residents = || {
            let mut pods = hub.snapshot().pods;
            pods.sort_by(|one, other| one.name.cmp(&other.name));
            pods.iter().map(|pod| pod.residents).collect::<Vec<_>>()
        };
        assert_eq!(residents(), [0, usize::from(!restarted)]);
        lease.end(EndKind::Complete, Some(3), Some(100));
        assert_eq!(residents(), [0, 0]);
        assert_settled(&hub);
    }
}

#[tokio::test]
async fn what_runs_on_a_pod_that_joins_anew_before_it_leaves_is_in_its_ledger_unless_it_was_restarted()
 {
    for restarted in [false, true] {
        let hub = hub();
        hub.add_pod(pod(1, "127.0.0.1:1"));
        let lease = lease(&hub, 1).await;
        lease.first_token();
        // One that DNS had found is listed from now on.
        hub.add_pod(pod(2, "127.0.0.1:1"));
        if restarted {
            hub.remove_restarted(PodId(1))
        } else {
            hub.remove_pod(PodId(1))
        }
        let residents = || hub.snapshot().pods.iter().map(|pod| pod.residents).collect::<Vec<_>>();
        assert_eq!(residents(), [usize::from(!restarted)]);
        lease.end(EndKind::Complete, Some(3), Some(100));
        assert_eq!(residents(), [0]);
        assert_settled(&hub);
    }
}

#[tokio::test]
async fn a_pod_that_comes_back_gets_no_more_than_it_had_room_for() {
    let (hub, _) = Fixture { policy: Policy::Weir, ..Fixture::default() }.hub();
    hub.add_pod(pod(1, "127.0.0.1:1"));
    let mut tickets: Vec<_> = (0..3000).map(|id| hub.admit(request(&hub, id))).collect();
    let mut leases = Vec::new();
    for ticket in &mut tickets {
        if let Some(Ok(lease)) = ticket.verdict().now_or_never() {
            lease.first_token();
            leases.push(lease);
        }
    }
    let full = || {
        let seen = hub.snapshot();
        (seen.in_flight, seen.waiting)
    };
    let before = full();
    assert!(before.0 > 0 && before.1 > 0, "{before:?}");
    hub.remove_pod(PodId(1));
    hub.add_pod(pod(2, "127.0.0.1:1"));
    let after = full();
    assert!(after.0 <= before.0, "{before:?} {after:?}");
    drop((leases, tickets));
    assert_settled(&hub);
}

#[tokio::test]
async fn a_ticket_dropped_in_the_queue_takes_its_request_out() {
    let hub = hub();
    let ticket = hub.admit(request(&hub, 1));
    assert_eq!(hub.snapshot().waiting, 1);
    assert!(hub.explain(RequestId(1)).is_some());
    drop(ticket);
    assert_settled(&hub);
    assert_eq!(hub.snapshot().counters.cancelled, 1);
}

#[tokio::test]
async fn a_wait_that_is_given_up_and_taken_up_again_loses_nothing() {
    let hub = hub();
    let mut ticket = hub.admit(request(&hub, 1));
    assert!(ticket.verdict().now_or_never().is_none());
    hub.add_pod(pod(1, "127.0.0.1:1"));
    assert!(ticket.verdict().await.is_ok());
    drop(ticket);
    assert_settled(&hub);
}

#[tokio::test]
async fn a_pod_given_to_a_ticket_that_nobody_asks_is_given_back() {
    let hub = hub();
    hub.add_pod(pod(1, "127.0.0.1:1"));
    let ticket = hub.admit(request(&hub, 1));
    assert_eq!(hub.snapshot().in_flight, 1);
    drop(ticket);
    assert_settled(&hub);
    assert_eq!(hub.snapshot().counters.client_gone, 1);
}

#[tokio::test]
async fn an_arrival_without_a_ticket_gives_its_pod_back() {
    let hub = hub();
    hub.add_pod(pod(1, "127.0.0.1:1"));
    hub.post(Event::Arrive(Box::new(request(&hub, 1))));
    assert_settled(&hub);
    assert_eq!(hub.snapshot().counters.client_gone, 1);
}

#[tokio::test]
async fn what_was_not_delivered_goes_to_another_pod_by_the_same_ticket() {
    let hub = hub();
    hub.add_pod(pod(1, "127.0.0.1:1"));
    let mut ticket = hub.admit(request(&hub, 1));
    ticket.verdict().await.unwrap().undelivered(&mut ticket);
    assert_eq!(hub.snapshot().waiting, 1);
    hub.add_pod(pod(2, "127.0.0.1:1"));
    let second = ticket.verdict().await.unwrap();
    assert_eq!((second.pod().id, second.dispatch().attempt), (PodId(2), 2));
    drop((second, ticket));
    assert_settled(&hub);
}

#[tokio::test]
async fn closing_refuses_what_waits() {
    let hub = hub();
    let mut ticket = hub.admit(request(&hub, 1));
    hub.post(Event::Close);
    assert_eq!(ticket.verdict().await.unwrap_err().reason, RefusalReason::Closing);
    drop(ticket);
    assert_settled(&hub);
}

#[tokio::test]
async fn a_pod_that_left_gets_nothing_and_its_streams_go_on() {
    let hub = hub();
    hub.add_pod(pod(1, "127.0.0.1:1"));
    let running = lease(&hub, 1).await;
    hub.remove_pod(PodId(1));
    assert!(hub.pods().is_empty());
    let waiting = hub.admit(request(&hub, 2));
    assert_eq!(hub.snapshot().waiting, 1);
    running.end(EndKind::Complete, None, None);
    drop(waiting);
    assert_eq!(hub.snapshot().counters.completed, 1);
    assert!(hub.idle());
}

#[tokio::test]
async fn a_request_is_refused_when_its_time_has_come_though_nothing_else_happens() {
    let bounds = Bounds { max_wait: Duration::from_millis(30), ..Bounds::default() };
    let (hub, _samples) = Fixture { bounds, ..Fixture::default() }.hub();
    let ticks = tokio::spawn(run_ticks(hub.clone()));
    let refusal = hub.admit(request(&hub, 1)).verdict().await.unwrap_err();
    assert_eq!(refusal.reason, RefusalReason::MaxWait);
    ticks.abort();
    assert_settled(&hub);
}

#[tokio::test]
async fn counters_of_streams_reach_the_scheduler_without_a_message() {
    let hub = hub();
    hub.add_pod(pod(1, "127.0.0.1:1"));
    let mut lease = lease(&hub, 1).await;
    lease.first_token();
    let before = hub.snapshot().pods[0].kv_tokens;
    lease.carried(50, hub.clock().now());
    until("the sweep", || hub.snapshot().pods[0].kv_tokens >= before + 49).await;
    drop(lease);
    assert_settled(&hub);
}

#[tokio::test]
async fn a_sweep_is_not_faster_than_the_first_token() {
    let hub = hub();
    hub.add_pod(pod(1, "127.0.0.1:1"));
    let mut lease = lease(&hub, 1).await;
    let later = hub.clock().now().plus(2 * TICK);
    lease.carried(1, hub.clock().now());
    until("two sweeps", || {
        hub.tick();
        hub.clock().now() > later
    })
    .await;
    lease.first_token();
    drop(lease);
    assert_settled(&hub);
}

#[tokio::test]
async fn a_sample_that_finds_no_room_is_dropped_and_counted() {
    let (hub, samples) = Fixture { samples: 1, ..Fixture::default() }.hub();
    hub.add_pod(pod(1, "127.0.0.1:1"));
    for id in 1..=3 {
        let lease = lease(&hub, id).await;
        lease.first_token();
        lease.end(EndKind::Complete, Some(2), None);
    }
    let sample = samples.try_recv().unwrap();
    assert!(sample.at_unix_ms > 0);
    assert_eq!((sample.output_tokens, hub.snapshot().in_flight), (2, 0));
    assert_eq!(hub.samples_dropped(), 2);
}

/// A predictor that parks inside the scheduler, once it is told to, until it is let go: while it
/// predicts, or while the scheduler is looked at.
struct Gate {
    predicting: Arc<AtomicBool>,
    looked_at: Arc<AtomicBool>,
    reached: SyncSender<()>,
    open: Mutex<Receiver<()>>,
}

impl Gate {
    fn pass(&self, shut: &AtomicBool) {
        if shut.swap(false, SeqCst) {
            self.reached.send(()).unwrap();
            self.open.lock().recv().unwrap();
        }
    }
}

/// The other side of a [`Gate`], and a hub whose desk it can hold.
struct Gated {
    hub: Arc<Hub>,
    predicting: Arc<AtomicBool>,
    looked_at: Arc<AtomicBool>,
    reached: Receiver<()>,
    open: SyncSender<()>,
}

fn gated(mailbox: usize) -> Gated {
    let (predicting, looked_at) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
    let (at_gate, reached) = sync_channel(1);
    let (open, opened) = sync_channel(1);
    let gate = Gate {
        predicting: predicting.clone(),
        looked_at: looked_at.clone(),
        reached: at_gate,
        open: Mutex::new(opened),
    };
    let (hub, _samples) =
        Fixture { mailbox, predictor: Box::new(gate), ..Fixture::default() }.hub();
    hub.add_pod(pod(1, "127.0.0.1:1"));
    Gated { hub, predicting, looked_at, reached, open }
}

impl Predict for Gate {
    fn predict(&mut self, rows: &[Row], out: &mut [Prediction]) -> Result<(), PredictError> {
        self.pass(&self.predicting);
        Flat.predict(rows, out)
    }

    fn take_up(&mut self) {}

    fn step_time(&self, pod_class: u16) -> StepTime {
        Flat.step_time(pod_class)
    }

    fn observe_stride(&mut self, _stride: &Stride) {}

    fn observe_first_token(&mut self, _: &FirstToken) {}

    fn observe_sample(&mut self, _sample: &Sample) {}

    fn status(&self) -> Status {
        self.pass(&self.looked_at);
        Flat.status()
    }
}

#[test]
fn what_comes_while_the_desk_is_taken_is_done_by_whoever_has_it() {
    // More than one turn takes in.
    let Gated { hub, predicting, reached, open, .. } = gated(4096);
    predicting.store(true, SeqCst);
    thread::scope(|threads| {
        let first = threads.spawn(|| hub.admit(request(&hub, 1)));
        reached.recv().unwrap();
        (0..2000).for_each(|_| hub.tick());
        let mut second = hub.admit(request(&hub, 2));
        assert!(second.verdict().now_or_never().is_none());
        open.send(()).unwrap();
        let first = first.join().unwrap();
        assert!(second.verdict().now_or_never().is_some());
        drop(first);
    });
    assert_settled(&hub);
}

#[test]
fn what_comes_while_somebody_looks_is_done_by_the_one_who_looks() {
    let Gated { hub, looked_at, reached, open, .. } = gated(64);
    looked_at.store(true, SeqCst);
    thread::scope(|threads| {
        let look = threads.spawn(|| hub.snapshot());
        reached.recv().unwrap();
        let mut ticket = hub.admit(request(&hub, 1));
        open.send(()).unwrap();
        assert_eq!(look.join().unwrap().in_flight, 0);
        assert!(ticket.verdict().now_or_never().is_some());
    });
    assert_settled(&hub);
}

#[test]
fn a_full_mailbox_makes_its_poster_wait_and_loses_no_end() {
    const LEASES: u64 = 9;
    const MAILBOX: usize = 2;
    let Gated { hub, predicting, reached, open, .. } = gated(MAILBOX);
    let runtime = Builder::new_current_thread().build().unwrap();
    let leases: Vec<_> = (0..LEASES).map(|id| runtime.block_on(lease(&hub, id))).collect();

    predicting.store(true, SeqCst);
    let (posted, progress) = sync_channel(LEASES as usize);
    thread::scope(|threads| {
        threads.spawn(|| drop(hub.admit(request(&hub, LEASES))));
        reached.recv().unwrap();
        threads.spawn(|| {
            for lease in leases {
                lease.end(EndKind::Complete, Some(1), None);
                posted.send(()).unwrap();
            }
        });
        // The desk is taken: this many fit, the next one has to wait for it.
        for _ in 0..MAILBOX {
            progress.recv().unwrap();
        }
        assert!(progress.try_recv().is_err());
        open.send(()).unwrap();
    });
    assert_settled(&hub);
    assert_eq!(hub.snapshot().counters.completed, LEASES);
}

/// Walks one request through its life and lets go of it at a random point.
async fn live_and_die(hub: &Arc<Hub>, id: u64, random: &mut SmallRng) {
    let mut ticket = hub.admit(request(hub, id));
    loop {
        let patience = random.random_range(0..6);
        let verdict = tokio::select! {
            biased;
            verdict = ticket.verdict() => verdict,
            () = yields(patience) => return,
        };
        let Ok(mut lease) = verdict else { return };
        for tokens in 0..random.random_range(0..4) {
            if tokens == 1 {
                lease.first_token();
            }
            lease.carried(tokens, hub.clock().now());
            tokio::task::yield_now().await;
        }
        match random.random_range(0..4) {
            0 => return,
            1 => return lease.end(EndKind::Complete, None, Some(90)),
            2 => return lease.end(EndKind::PodFailed, None, None),
            _ => lease.undelivered(&mut ticket),
        }
    }
}

async fn yields(times: u32) {
    for _ in 0..times {
        tokio::task::yield_now().await;
    }
}

#[test]
fn requests_that_let_go_at_any_moment_leave_nothing_behind() {
    for (seed, policy) in [(1, Policy::LeastRequest), (2, Policy::Weir), (3, Policy::RoundRobin)] {
        let (hub, _samples) = Fixture { policy, mailbox: 3, ..Fixture::default() }.hub();
        for id in 1..=3 {
            hub.add_pod(pod(id, "127.0.0.1:1"));
        }
        let next = AtomicU64::new(0);
        thread::scope(|threads| {
            for worker in 0..3 {
                let (hub, next) = (&hub, &next);
                threads.spawn(move || {
                    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
                    let ticks = runtime.spawn(run_ticks(hub.clone()));
                    runtime.block_on(async {
                        for round in 0..40 {
                            let lives = (0..8).map(|life| {
                                let seed = seed * 1_000_000 + worker * 10_000 + round * 10 + life;
                                let mut random = SmallRng::seed_from_u64(seed);
                                let id = next.fetch_add(1, SeqCst);
                                async move { live_and_die(hub, id, &mut random).await }
                            });
                            join_all(lives).await;
                        }
                    });
                    ticks.abort();
                });
            }
        });
        assert_settled(&hub);
        assert_eq!(hub.snapshot().counters.arrived, 960, "{policy:?}");
    }
}
