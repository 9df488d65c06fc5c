mod chance;
mod greet;
mod handover;
mod held;
mod narrow;

use std::{
    net::{SocketAddr, TcpListener},
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering::Relaxed},
    },
    time::Duration,
};

use futures_util::FutureExt;
use rand::{Rng, SeedableRng, rngs::SmallRng};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
};
use weir_core::{
    Band, EndKind, Event, Gate, Phase, PodId, Policy, PromptSize, RefusalReason, Scrape, Time,
};

use super::{
    BEAT, Circle, Replicas, ReplicasConfig, SILENT, bind,
    rank::Rank,
    seal::{SEAL, Seals, Side, proof},
    wire::{self, Welcome, Why},
};
use crate::{
    fleet::{Ask, Failing, Pod, occupancy::Occupancy},
    hub::{
        Hub, Ticket,
        fixture::{Fixture, assert_settled, pod, request, until},
        run_ticks,
    },
    shutdown::{Life, Stage},
    worker::Worker,
};

const SECRET: [u8; 32] = [7; 32];
const LONG: Duration = Duration::from_secs(20);

/// A dispatcher of a pool, as far as others have to do with it.
struct Member {
    hub: Arc<Hub>,
    circle: Arc<Circle>,
    life: Life,
    worker: Option<Worker>,
    config: ReplicasConfig,
    rank: Rank,
}

/// Addresses that nobody listens on: below those that the system gives to who asks for any, so that nobody takes one meanwhile.
fn addresses<const N: usize>() -> [SocketAddr; N] {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let free = |()| {
        let any = |_| {
            let own = (std::process::id() as u16).wrapping_mul(199);
            let offset = own.wrapping_add(NEXT.fetch_add(1, Relaxed));
            let address = SocketAddr::from(([127, 0, 0, 1], 10_000 + offset % 9000));
            TcpListener::bind(address).ok().map(|_| address)
        };
        (0..9000).find_map(any).unwrap()
    };
    [(); N].map(free)
}

impl Member {
    /// The one at `place` of these addresses; the first is the oldest.
    fn start(place: usize, all: &[SocketAddr], secret: [u8; 32]) -> Self {
        Self::start_among(place, all[place], all, secret)
    }

    /// One that calls these.
    fn start_among(
        place: usize,
        listen: SocketAddr,
        others: &[SocketAddr],
        secret: [u8; 32],
    ) -> Self {
        let others = others.iter().map(|other| (other.ip().to_string(), other.port())).collect();
        let config = ReplicasConfig { listen, others, secret };
        let (hub, _) = Fixture { policy: Policy::Weir, ..Fixture::default() }.hub();
        tokio::spawn(run_ticks(hub.clone()));
        let life = Life::default();
        let rank = Rank { started_unix_ms: place as u64, lot: 0 };
        let circle = Circle::new(hub.clone(), rank, life.clone());
        let mut member = Self { hub, circle, life, worker: None, config, rank };
        member.appear();
        member
    }

    /// It can be heard, and hears.
    fn appear(&mut self) {
        let hubs = std::slice::from_ref(&self.hub);
        let config = self.config.clone();
        let listener = bind(&config).unwrap();
        let replicas = Replicas::ranked(listener, config, hubs, &self.life, self.rank);
        self.circle = replicas.circles()[0].clone();
        let worker = Worker::spawn_async("test-replicas", move |stop| replicas.run(stop)).unwrap();
        self.worker = Some(worker);
    }

    /// As many as there are addresses; every one but the first asks the first.
    async fn several<const N: usize>() -> [Self; N] {
        let all = addresses::<N>();
        let mut place = 0..;
        let members = [(); N].map(|()| Self::start(place.next().unwrap(), &all, SECRET));
        for member in &members[1..] {
            member.follows(Some(all[0])).await;
        }
        members
    }

    /// Waits until it goes by the one at that address, or decides.
    async fn follows(&self, whom: Option<SocketAddr>) {
        let whom = whom.map(|whom| whom.to_string());
        until("somebody else decides", || self.circle.view().lead == whom).await;
    }

    /// It is gone from one moment to the next, as far as the others can tell. Its own clients go on.
    fn vanish(&mut self) {
        assert!(self.worker.take().unwrap().join(LONG));
    }

    fn admit(&self, id: u64) -> Ticket {
        self.hub.admit(request(&self.hub, id))
    }

    fn waiting(&self) -> usize {
        self.hub.snapshot().waiting
    }
}

fn pods() -> Arc<Pod> {
    pod(1, "10.0.0.1:8000")
}

/// Residents of a pod.
fn ledger_of(member: &Member, which: &Pod) -> usize {
    let pods = member.hub.snapshot().pods;
    pods.iter().filter(|one| one.name == *which.name).map(|one| one.residents).sum()
}

/// What a ledger says of the first pod: prompts without a first token, residents, tokens in the cache.
fn ledger(member: &Member) -> (usize, usize, u64) {
    let pod = member.hub.snapshot().pods.remove(0);
    (pod.pending, pod.residents, pod.kv_tokens)
}

#[tokio::test]
async fn the_one_that_started_first_decides_for_all() {
    let [elder, younger] = Member::several().await;
    // The same pod has another number in every process.
    let there = pod(5, "10.0.0.1:8000");
    elder.hub.add_pod(there.clone());
    younger.hub.add_pod(pods());
    let mut ticket = younger.admit(1);
    let mut lease = ticket.verdict().await.unwrap();
    assert_eq!((lease.id().0, lease.pod().id, lease.dispatch().attempt), (1, PodId(1), 1));
    assert_eq!(lease.dispatch().slo.ttft, Some(Duration::from_secs(2)));
    let seen = elder.hub.snapshot();
    assert_eq!((seen.counters.arrived, seen.pods[0].pending), (1, 1));
    assert!(!younger.hub.idle(), "it has a stream");

    lease.first_token();
    lease.carried(30, younger.hub.clock().now());
    lease.pod().pulse.chunk(younger.hub.clock().now());
    until("the ledger there goes by the tokens here", || {
        let detail = elder.hub.snapshot().pods[0].kv_tokens;
        detail >= 130
    })
    .await;
    until("and by the step that was seen here", || there.pulse.read().steps == 1).await;
    lease.end(EndKind::Complete, Some(31), Some(100));
    until("the ledger there is empty", || elder.hub.idle()).await;
    assert_eq!(elder.hub.snapshot().counters.completed, 1);
    assert_settled(&elder.hub);
    assert_settled(&younger.hub);
    assert_eq!(younger.hub.snapshot().counters.arrived, 0, "nothing was decided here");
    assert_eq!((younger.circle.view().heard, elder.circle.view().told), (1, 1));
}

#[tokio::test]
async fn who_listens_no_more_is_forgotten() {
    let (hub, _) = Fixture::default().hub();
    let (to, news) = async_channel::bounded(1);
    hub.listen(to.clone());
    drop(news);
    let (other, _news) = async_channel::bounded(1);
    hub.listen(other);
    assert_eq!(to.sender_count(), 1, "this one");
}

#[tokio::test]
async fn who_is_lost_leaves_nothing_where_it_asked() {
    let [elder, mut younger] = Member::several().await;
    elder.hub.add_pod(pods());
    younger.hub.add_pod(pods());
    let mut ticket = younger.admit(1);
    let lease = ticket.verdict().await.unwrap();
    lease.first_token();
    elder.hub.remove_pod(PodId(1));
    let waits = younger.admit(2);
    until("one waits and one runs", || {
        let seen = elder.hub.snapshot();
        (seen.waiting, seen.in_flight) == (1, 1)
    })
    .await;
    younger.vanish();
    until("nothing of it is left", || elder.hub.idle()).await;
    assert_settled(&elder.hub);
    drop((lease, ticket, waits));
    assert_settled(&younger.hub);
}

#[tokio::test]
async fn a_client_that_leaves_takes_its_place_where_it_waits() {
    let [elder, younger] = Member::several().await;
    let ticket = younger.admit(1);
    until("it waits there", || elder.waiting() == 1).await;
    drop(ticket);
    until("it does not wait any more", || elder.hub.idle()).await;
    assert_eq!(elder.hub.snapshot().counters.cancelled, 1);
    assert_settled(&elder.hub);
    assert_settled(&younger.hub);
}

#[tokio::test]
async fn a_pod_that_is_not_known_here_is_another_ones() {
    let [elder, younger] = Member::several().await;
    elder.hub.add_pod(pod(1, "10.0.0.1:8000"));
    let mut ticket = younger.admit(1);
    until("it was given a pod and gave it back", || {
        elder.hub.snapshot().counters.requeued == 1 && elder.waiting() == 1
    })
    .await;
    younger.hub.add_pod(pod(9, "10.0.0.2:8000"));
    elder.hub.add_pod(pod(2, "10.0.0.2:8000"));
    let lease = ticket.verdict().await.unwrap();
    assert_eq!((lease.pod().id, lease.dispatch().attempt), (PodId(9), 1), "none was made before");
    drop((lease, ticket));
    until("it is over", || elder.hub.idle()).await;
    assert_settled(&elder.hub);
}

#[tokio::test]
async fn a_refusal_is_passed_on() {
    let [elder, younger] = Member::several().await;
    let mut one = request(&younger.hub, 1);
    one.immediate = true;
    let refusal = younger.hub.admit(one).verdict().await.unwrap_err();
    assert_eq!((refusal.id.0, refusal.reason), (1, RefusalReason::NoPods), "at once");
    assert_settled(&elder.hub);
    assert_settled(&younger.hub);
}

#[tokio::test]
async fn who_has_a_pod_does_not_refuse_for_want_of_one_elsewhere() {
    let [elder, younger] = Member::several().await;
    younger.hub.add_pod(pods());
    let mut one = request(&younger.hub, 1);
    one.immediate = true;
    let lease = younger.hub.admit(one).verdict().await.unwrap();
    assert_eq!(younger.hub.snapshot().in_flight, 1, "it is decided here");
    lease.end(EndKind::Complete, Some(3), None);
    assert_settled(&younger.hub);
    assert_settled(&elder.hub);
}

#[tokio::test]
async fn a_pod_that_fails_whoever_asks_is_taken_out_where_it_is_decided() {
    let [elder, younger] = Member::several().await;
    let (seen_there, other) = (pod(1, "10.0.0.1:8000"), pod(2, "10.0.0.2:8000"));
    elder.hub.add_pod(seen_there.clone());
    elder.hub.add_pod(other.clone());
    younger.hub.add_pod(pods());
    let failing = Failing::Badly { begun: false };
    for id in 0..5 {
        let mut ticket = younger.admit(id);
        let lease = ticket.verdict().await.unwrap();
        lease.hold_against(failing);
        lease.end(EndKind::PodError, None, None);
    }
    until("its breaker is open", || seen_there.breaker.is_open()).await;
    assert!(!other.breaker.is_open());
}

#[tokio::test]
async fn pods_that_are_of_no_use_here_cost_no_attempts_and_nobody_elses_requests() {
    let [elder, younger] = Member::several().await;
    let now = elder.hub.clock().now();
    let there = [1, 2, 3, 4, 5].map(|id| {
        let one = Pod::new(PodId(id), "there".into(), format!("10.0.0.{id}:8000"), 0);
        let occupancy = Occupancy::new(Some(LONG), now);
        // They answer the scrapes of who decides.
        occupancy.scraped(now, 0);
        Arc::new(Pod { occupancy, ..one })
    });
    there.iter().for_each(|one| elder.hub.add_pod(one.clone()));
    // Here one of them is known, and another one that only this dispatcher knows.
    younger.hub.add_pod(pod(9, "10.0.0.9:8000"));
    let mut tickets: Vec<_> = (0..4).map(|id| younger.admit(id)).collect();
    for ticket in &mut tickets {
        let lease = ticket.verdict().await.unwrap();
        assert_eq!((&*lease.pod().authority, lease.dispatch().attempt), ("10.0.0.9:8000", 1));
        lease.end(EndKind::Complete, Some(3), None);
    }
    until("they are in the books here", || elder.hub.snapshot().counters.handed_over == 4).await;
    assert_eq!(elder.hub.snapshot().counters.client_gone, 0, "nobody has left");
    // A pod that is not reached from here, as its scrapes say, is not tried, nor held against it there.
    let unreached = pod(3, "10.0.0.3:8000");
    for _ in 0..3 {
        unreached.breaker.scrape_failed();
    }
    assert!(unreached.breaker.is_open());
    younger.hub.add_pod(unreached.clone());
    let mut ticket = younger.admit(10);
    let lease = ticket.verdict().await.unwrap();
    assert_eq!(lease.pod().id, PodId(9));
    lease.end(EndKind::Complete, Some(3), None);
    for id in [1, 2, 4, 5] {
        younger.hub.add_pod(pod(10 + id, format!("10.0.0.{id}:8000")));
    }
    let mut given = younger.admit(11);
    let lease = given.verdict().await.unwrap();
    let charged = there.iter().find(|one| one.authority == lease.pod().authority).unwrap();
    (0..5).for_each(|_| lease.hold_against(Failing::Undelivered));
    lease.first_token();
    until("all of it was heard", || ledger_of(&elder, charged) == 1).await;
    assert!(!charged.breaker.is_open(), "it answers there");
    (0..3).for_each(|_| lease.hold_against(Failing::Unanswered));
    until("what has reached it counts", || charged.breaker.is_open()).await;
    drop((lease, ticket, tickets, given));
    until("it is over", || elder.hub.idle() && younger.hub.idle()).await;
    assert_settled(&elder.hub);
    assert_settled(&younger.hub);
}

#[tokio::test]
async fn who_closes_refuses_what_waits_elsewhere() {
    let [elder, younger] = Member::several().await;
    let mut ticket = younger.admit(1);
    until("it waits there", || elder.waiting() == 1).await;
    younger.hub.post(Event::Close);
    assert_eq!(ticket.verdict().await.unwrap_err().reason, RefusalReason::Closing);
    until("and there no more", || elder.hub.idle()).await;
    assert_settled(&elder.hub);
}

#[tokio::test]
async fn steps_that_several_saw_count_once() {
    let at = Time::from_millis;
    let pod = pods();
    pod.pulse.chunk(at(100));
    pod.pulse.told(at(101), 1, Time::ZERO);
    assert_eq!(pod.pulse.read().steps, 1, "the same step");
    pod.pulse.told(at(130), 1, at(101));
    assert_eq!(pod.pulse.read().steps, 2);
    pod.pulse.told(at(190), 2, at(130));
    assert_eq!(pod.pulse.read().steps, 4, "nobody else has streams there");
    pod.pulse.chunk(at(220));
    pod.pulse.told(at(250), 2, at(190));
    assert_eq!(pod.pulse.read().steps, 6, "one of the two was seen here");
    assert_eq!(pod.pulse.read().last_step_at, at(250));
}
