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
use tokio::{io::AsyncWriteExt, net::TcpStream, task::JoinSet};
use weir_core::{
    Band, EndKind, Event, Gate, Phase, PodId, Policy, PromptSize, RefusalReason, Scrape, Time,
};

use super::{
    Circle, Replicas, ReplicasConfig, bind,
    rank::Rank,
    wire::{self, Side, Welcome, Why},
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
        let others = all.iter().map(|other| (other.ip().to_string(), other.port())).collect();
        let config = ReplicasConfig { listen: all[place], others, secret };
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
async fn what_waits_is_decided_anew_when_who_decides_is_gone() {
    let [mut elder, middle, younger] = Member::several().await;
    let tickets = [younger.admit(1), younger.admit(2)];
    until("both wait there", || elder.waiting() == 2).await;
    middle.hub.add_pod(pods());
    younger.hub.add_pod(pods());
    let [mut first, second] = tickets;
    assert!(first.verdict().now_or_never().is_none(), "no pod is known where it is decided");
    elder.vanish();
    middle.follows(None).await;
    let lease = first.verdict().await.unwrap();
    assert!(lease.dispatch().waited >= younger.hub.clock().now().since(Time::ZERO) / 1000);
    assert_eq!(middle.hub.snapshot().counters.arrived, 2);
    drop((lease, first, second));
    until("everything is over", || middle.hub.idle() && younger.hub.idle()).await;
    assert_settled(&middle.hub);
    assert_settled(&younger.hub);
}

#[tokio::test]
async fn streams_outlive_who_decided_for_them() {
    let [mut elder, younger] = Member::several().await;
    elder.hub.add_pod(pods());
    younger.hub.add_pod(pods());
    let mut ticket = younger.admit(1);
    let lease = ticket.verdict().await.unwrap();
    lease.first_token();
    let mut undelivered = younger.admit(2);
    let second = undelivered.verdict().await.unwrap();
    elder.vanish();
    younger.follows(None).await;
    assert_eq!(younger.hub.snapshot().in_flight, 2, "in the ledger here now");
    // What did not reach its pod is decided here, with the pod that it has not failed on here.
    younger.hub.add_pod(pod(2, "10.0.0.2:8000"));
    second.undelivered(&mut undelivered);
    let again = undelivered.verdict().await.unwrap();
    assert_eq!(again.pod().id, PodId(2));
    again.end(EndKind::Complete, Some(3), None);
    lease.end(EndKind::Complete, Some(3), None);
    let counters = younger.hub.snapshot().counters;
    assert_eq!((counters.adopted, counters.completed), (2, 2));
    assert_settled(&younger.hub);
    assert_settled(&elder.hub);
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
async fn whoever_decides_next_has_everybodys_streams_in_its_ledger() {
    let [mut elder, middle, younger] = Member::several().await;
    for member in [&elder, &middle, &younger] {
        member.hub.add_pod(pods());
    }
    let mut tickets = [middle.admit(1), younger.admit(1), younger.admit(2)];
    let mut leases = Vec::new();
    for ticket in &mut tickets {
        leases.push(ticket.verdict().await.unwrap());
    }
    for (lease, member) in leases.iter_mut().zip([&middle, &younger]) {
        lease.first_token();
        lease.carried(40, member.hub.clock().now());
    }
    until("it is known where it is decided", || ledger(&elder).2 >= 280).await;
    let before = ledger(&elder);
    assert_eq!((before.0, before.1), (1, 2));
    elder.vanish();
    middle.follows(None).await;
    until("all of it is known where it is decided now", || ledger(&middle) == before).await;
    younger.follows(Some(middle.config.listen)).await;
    assert_eq!(ledger(&younger), (0, 0, 0), "it is in one ledger at a time");

    // From then on it is told there.
    leases[1].carried(90, younger.hub.clock().now());
    leases[2].first_token();
    until("it goes by the tokens there", || ledger(&middle).2 >= 430).await;
    assert_eq!(ledger(&middle).0, 0);
    leases.into_iter().for_each(|lease| lease.end(EndKind::Complete, Some(90), Some(100)));
    until("it is over", || middle.hub.idle() && younger.hub.idle()).await;
    let counters = middle.hub.snapshot().counters;
    assert_eq!((counters.adopted, counters.completed, counters.arrived), (3, 3, 0));
    for member in [&elder, &middle, &younger] {
        assert_settled(&member.hub);
    }
}

#[tokio::test]
async fn what_did_not_reach_its_pod_is_decided_by_whoever_took_it_over() {
    let [mut elder, middle, younger] = Member::several().await;
    for member in [&elder, &middle, &younger] {
        member.hub.add_pod(pods());
    }
    // The one that takes over does not know the pod of the second.
    let other = |id| pod(id, "10.0.0.2:8000");
    let mut first = younger.admit(1);
    let lease = first.verdict().await.unwrap();
    elder.hub.remove_pod(PodId(1));
    elder.hub.add_pod(other(2));
    younger.hub.add_pod(other(2));
    let mut second = younger.admit(2);
    let unknown = second.verdict().await.unwrap();
    elder.vanish();
    middle.follows(None).await;
    until("one of them is in the ledger", || middle.hub.snapshot().in_flight == 1).await;
    younger.follows(Some(middle.config.listen)).await;
    // All that was handed over is there with what comes after it.
    let mut third = younger.admit(3);
    drop(third.verdict().await.unwrap());
    middle.hub.add_pod(other(7));
    lease.undelivered(&mut first);
    unknown.undelivered(&mut second);
    for ticket in [&mut first, &mut second] {
        ticket.verdict().await.unwrap().end(EndKind::Complete, None, None);
    }
    until("it is over", || middle.hub.idle() && younger.hub.idle()).await;
    let counters = middle.hub.snapshot().counters;
    assert_eq!((counters.adopted, counters.requeued, counters.arrived), (1, 1, 2));
    for member in [&middle, &younger] {
        assert_settled(&member.hub);
    }
}

#[tokio::test]
async fn those_that_hear_each_other_again_have_one_ledger_and_one_queue() {
    let all = addresses::<3>();
    let [middle, younger] = [1, 2].map(|place| Member::start(place, &all, SECRET));
    younger.follows(Some(all[1])).await;
    for member in [&middle, &younger] {
        member.hub.add_pod(pods());
    }
    let mut tickets = [middle.admit(1), younger.admit(1)];
    let mut leases = Vec::new();
    for ticket in &mut tickets {
        leases.push(ticket.verdict().await.unwrap());
    }
    middle.hub.pause(Gate::Pool);
    let waits = [middle.admit(2), younger.admit(2), middle.admit(3)];
    until("they wait", || middle.waiting() == 3).await;
    // The first in rank had not been heard.
    let elder = Member::start(0, &all, SECRET);
    elder.hub.add_pod(pod(4, "10.0.0.1:8000"));
    elder.hub.pause(Gate::Pool);
    middle.follows(Some(all[0])).await;
    younger.follows(Some(all[0])).await;
    until("all of it is there", || {
        let seen = elder.hub.snapshot();
        (seen.waiting, seen.in_flight) == (3, 2)
    })
    .await;
    until("and nowhere else", || {
        let seen = middle.hub.snapshot();
        (seen.waiting, seen.in_flight) == (0, 0)
    })
    .await;
    drop((leases, tickets, waits));
    until("it is over", || elder.hub.idle() && middle.hub.idle() && younger.hub.idle()).await;
    for member in [&elder, &middle, &younger] {
        assert_settled(&member.hub);
    }
}

#[tokio::test]
async fn one_that_is_asked_to_stop_hands_its_own_streams_over() {
    let [elder, younger] = Member::several().await;
    for member in [&elder, &younger] {
        member.hub.add_pod(pods());
    }
    let mut ticket = elder.admit(1);
    let mut lease = ticket.verdict().await.unwrap();
    lease.first_token();
    lease.carried(20, elder.hub.clock().now());
    elder.hub.pause(Gate::Pool);
    until("it is held there too", || younger.hub.held() == elder.hub.held()).await;
    let waits = elder.admit(2);
    elder.life.move_on(Stage::Draining);
    until("both are there", || {
        let seen = younger.hub.snapshot();
        (seen.in_flight, seen.waiting) == (1, 1)
    })
    .await;
    assert_eq!((elder.hub.snapshot().in_flight, elder.waiting()), (0, 0));
    assert!(!elder.hub.idle(), "it has a stream to finish");
    lease.end(EndKind::Complete, Some(20), None);
    drop((ticket, waits));
    until("it is over", || elder.hub.idle() && younger.hub.idle()).await;
    assert_eq!(younger.hub.snapshot().counters.completed, 1);
    for member in [&elder, &younger] {
        assert_settled(&member.hub);
    }
}

#[tokio::test]
async fn more_than_a_channel_holds_is_handed_over_all_the_same() {
    let all = addresses::<2>();
    let younger = Member::start(1, &all, SECRET);
    let waits: Vec<Ticket> = (0..20_000).map(|id| younger.admit(id)).collect();
    let elder = Member::start(0, &all, SECRET);
    younger.follows(Some(all[0])).await;
    until("they wait there", || elder.waiting() == waits.len()).await;
    assert_eq!(elder.circle.view().changes, 0);
    assert_eq!(younger.circle.view().changes, 1, "nobody was given up meanwhile");
    drop(waits);
    until("it is over", || elder.hub.idle() && younger.hub.idle()).await;
}

#[tokio::test]
async fn what_runs_on_is_counted_by_gauges_once_who_decided_is_gone() {
    let [mut elder, younger] = Member::several().await;
    younger.hub.add_pod(pods());
    let elsewhere = || {
        let scrape = Scrape { running: 5, ..Scrape::default() };
        younger.hub.post(Event::Scraped(PodId(1), scrape));
        younger.hub.snapshot().pods[0].elsewhere
    };
    assert_eq!(elsewhere(), 0, "at other times that is the noise of scrapes");
    elder.vanish();
    younger.follows(None).await;
    assert_eq!(elsewhere(), 5);
}

#[tokio::test]
async fn whoever_decides_next_knows_what_is_cached_where() {
    let [mut elder, middle, younger] = Member::several().await;
    for member in [&elder, &middle, &younger] {
        (1..=3).for_each(|id| member.hub.add_pod(pod(id, format!("10.0.0.{id}:8000"))));
    }
    let with_blocks = |hub: &Arc<Hub>, id: u64, prompt: u64| {
        let blocks = (prompt * 1000..prompt * 1000 + 300).collect::<Vec<u64>>();
        let mut one = request(hub, id);
        (one.prompt, one.blocks) = (PromptSize::Bytes(38_400), Arc::from(blocks));
        hub.admit(one)
    };
    let mut went = Vec::new();
    // Prompts of all three, each of which leaves before the next one comes: all would go to the first pod otherwise.
    let mut held = Vec::new();
    for (prompt, member) in [&elder, &middle, &younger].into_iter().enumerate() {
        let mut ticket = with_blocks(&member.hub, 100, prompt as u64);
        let lease = ticket.verdict().await.unwrap();
        went.push(lease.pod().name.clone());
        held.push((lease, ticket));
    }
    for (lease, _ticket) in held {
        lease.end(EndKind::Complete, Some(200), Some(11_520));
    }
    until("they are over where it is decided", || elder.hub.idle()).await;
    let learned = |member: &Member| member.hub.snapshot().tokens_per_byte;
    assert!(learned(&elder) > 0.28, "{}", learned(&elder));
    until("all have learned of them", || learned(&middle) == learned(&elder)).await;
    let distinct: std::collections::BTreeSet<_> = went.iter().collect();
    assert_eq!(distinct.len(), 3, "{went:?}");
    elder.vanish();
    middle.follows(None).await;
    for prompt in (0..3).rev() {
        let mut ticket = with_blocks(&younger.hub, 200 + prompt, prompt);
        let lease = ticket.verdict().await.unwrap();
        assert_eq!(lease.pod().name, went[prompt as usize], "where it is cached");
        lease.end(EndKind::Complete, Some(200), None);
        until("it is over", || middle.hub.idle()).await;
    }
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
async fn what_an_operator_holds_is_held_by_whoever_decides_next() {
    let [mut elder, middle, younger] = Member::several().await;
    for member in [&elder, &middle, &younger] {
        member.hub.add_pod(pods());
        member.hub.add_pod(pod(2, "10.0.0.2:8000"));
    }
    elder.hub.pause(Gate::Band(Band(0)));
    elder.hub.pause(Gate::Pool);
    elder.hub.ask_pod("pod-2", Ask::Drain).unwrap();
    let held = elder.hub.held();
    assert_eq!((held.gates.len(), held.pods.len()), (2, 1));
    until("all hold it", || middle.hub.held() == held && younger.hub.held() == held).await;
    elder.hub.resume(Gate::Pool);
    elder.hub.pause(Gate::Band(Band(0)));
    until("the pool goes on, and the band is held", || {
        let only = |member: &Member| member.hub.held().gates.iter().eq(["b0"]);
        only(&middle) && only(&younger)
    })
    .await;
    elder.vanish();
    middle.follows(None).await;
    let mut ticket = younger.admit(1);
    until("it waits where it is decided now", || middle.waiting() == 1).await;
    middle.hub.resume(Gate::Pool);
    let lease = ticket.verdict().await.unwrap();
    assert_eq!(&*lease.pod().name, "pod-1", "the other one is being drained");
    lease.end(EndKind::Complete, None, None);
    // What it heard last of a decider before that decided may be a beat old.
    until("and here nothing is paused any more, and the pod is drained", || {
        let phase = younger.hub.pod_seen("pod-2").unwrap().detail.view.phase;
        younger.hub.held().gates.is_empty() && phase == Phase::Draining
    })
    .await;
}

#[tokio::test]
async fn what_an_operator_did_meanwhile_is_not_undone_by_one_that_comes_back() {
    let [mut elder, younger] = Member::several().await;
    for member in [&elder, &younger] {
        member.hub.add_pod(pods());
    }
    elder.hub.pause(Gate::Band(Band(1)));
    until("both hold it", || younger.hub.held() == elder.hub.held()).await;
    elder.vanish();
    younger.follows(None).await;
    younger.hub.resume(Gate::Band(Band(1)));
    younger.hub.pause(Gate::Band(Band(0)));
    younger.hub.ask_pod("pod-1", Ask::Drain).unwrap();
    let held = younger.hub.held();
    elder.appear();
    younger.follows(Some(elder.config.listen)).await;
    until("the elder holds what was asked meanwhile", || elder.hub.held() == held).await;
    assert_eq!(younger.hub.held(), held);
    // And whoever learns of a pod later asks the same of it.
    elder.hub.ask_pod("pod-1", Ask::Cordon).unwrap();
    until("it is told", || younger.hub.held() == elder.hub.held()).await;
    elder.hub.add_pod(pod(2, "10.0.0.2:8000"));
    elder.hub.ask_pod("pod-2", Ask::Cordon).unwrap();
    until("it is told", || younger.hub.held() == elder.hub.held()).await;
    younger.hub.add_pod(pod(7, "10.0.0.2:8000"));
    assert_eq!(younger.hub.pod_seen("pod-7").unwrap().detail.view.phase, Phase::Cordoned);
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
async fn one_that_is_asked_to_stop_leaves_decisions_to_the_next() {
    let [elder, younger] = Member::several().await;
    let ticket = younger.admit(1);
    until("it waits there", || elder.waiting() == 1).await;
    elder.life.move_on(Stage::Draining);
    younger.follows(None).await;
    until("it waits here", || younger.waiting() == 1).await;
    until("and there no more", || elder.hub.idle()).await;
    // What still comes to it is asked of the one that stays.
    until("the elder asks", || elder.circle.view().lead.is_some()).await;
    let late = elder.admit(1);
    until("both wait here", || younger.waiting() == 2).await;
    drop((ticket, late));
    until("it is over", || younger.hub.idle()).await;
    assert_settled(&younger.hub);
    assert_settled(&elder.hub);
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
async fn without_the_secret_nobody_is_asked() {
    let all = addresses::<2>();
    let elder = Member::start(0, &all, SECRET);
    let stranger = Member::start(1, &all, [8; 32]);
    let mut ticket = stranger.admit(1);
    stranger.hub.add_pod(pods());
    assert!(ticket.verdict().await.is_ok(), "it decides for itself");
    assert_eq!((elder.circle.view().others, stranger.circle.view().others), (0, 0));
}

#[tokio::test]
async fn who_may_not_ask_is_told_why() {
    let all = addresses::<1>();
    let member = Member::start(0, &all, SECRET);
    let told = async |protocol, model: &str, secret| {
        let stream = TcpStream::connect(all[0]).await.unwrap();
        let (from, mut to) = stream.into_split();
        let mut says = wire::Values::new(from);
        let mut bytes = Vec::new();
        let hello = wire::Hello { protocol, nonce: [1; 32], model: model.to_owned() };
        wire::put(&hello, &mut bytes).unwrap();
        to.write_all(&bytes).await.unwrap();
        match says.next::<Welcome>().await.unwrap() {
            Welcome::Prove { nonce, proof } => {
                let nonces = [&[1; 32], &nonce];
                assert_eq!(proof, wire::proof(&SECRET, Side::Called, nonces), "it knows it");
                bytes.clear();
                wire::put(&wire::proof(&secret, Side::Caller, nonces), &mut bytes).unwrap();
                to.write_all(&bytes).await.unwrap();
                says.next::<Welcome>().await.unwrap()
            }
            said => said,
        }
    };
    let (ours, model) = (wire::PROTOCOL, member.hub.model().to_string());
    let rank = Rank { started_unix_ms: 0, lot: 0 };
    assert_eq!(told(ours, &model, SECRET).await, Welcome::Come(rank));
    assert_eq!(told(ours + 1, &model, SECRET).await, Welcome::Stay(Why::Protocol(ours)));
    assert_eq!(told(ours, &model, [8; 32]).await, Welcome::Stay(Why::Secret));
    assert_eq!(told(ours, "another", SECRET).await, Welcome::Stay(Why::Model));
    member.life.move_on(Stage::Draining);
    assert_eq!(told(ours, &model, SECRET).await, Welcome::Stay(Why::Leaving));
}

#[tokio::test]
async fn who_does_not_know_the_secret_is_not_followed_and_learns_nothing_of_it() {
    let comes = Welcome::Come(Rank { started_unix_ms: 0, lot: 0 });
    for welcome in [comes, Welcome::Prove { nonce: [2; 32], proof: [3; 32] }] {
        let all = addresses::<2>();
        let impostor = tokio::net::TcpListener::bind(all[0]).await.unwrap();
        let member = Member::start(1, &all, SECRET);
        let (stream, _) = impostor.accept().await.unwrap();
        let (from, mut to) = stream.into_split();
        let mut asks = wire::Values::new(from);
        asks.next::<wire::Hello>().await.unwrap();
        let mut bytes = Vec::new();
        wire::put(&welcome, &mut bytes).unwrap();
        to.write_all(&bytes).await.unwrap();
        assert!(asks.next::<[u8; 32]>().await.is_err(), "it has nothing more to say");
        assert_eq!(member.circle.view().others, 0);
    }
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

/// One request of a client that may leave at any moment, over a network that may lose it before its pod.
async fn come_and_go(hub: Arc<Hub>, id: u64, mut dice: SmallRng) -> &'static str {
    let mut ticket = hub.admit(request(&hub, id));
    if dice.random_bool(0.1) {
        tokio::task::yield_now().await;
        return "left";
    }
    loop {
        let Ok(mut lease) = ticket.verdict().await else { return "refused" };
        for _ in 0..dice.random_range(0..20) {
            tokio::task::yield_now().await;
        }
        if dice.random_bool(0.1) {
            lease.undelivered(&mut ticket);
            continue;
        }
        lease.first_token();
        for events in 1..dice.random_range(2..30) {
            lease.carried(events, hub.clock().now());
            tokio::task::yield_now().await;
        }
        if dice.random_bool(0.1) {
            return "left";
        }
        lease.end(EndKind::Complete, Some(30), Some(100));
        return "served";
    }
}

#[tokio::test]
async fn whoever_vanishes_every_request_has_one_outcome_and_every_ledger_is_empty() {
    for seed in 0..12 {
        let mut dice = SmallRng::seed_from_u64(seed);
        let mut members = Member::several::<3>().await;
        for member in &members {
            (1..=3).for_each(|id| member.hub.add_pod(pod(id, format!("10.0.0.{id}:8000"))));
        }
        let mut clients = JoinSet::new();
        let vanishes = [dice.random_range(0..300), dice.random_range(0..300)];
        let appears = [dice.random_range(0..300), dice.random_range(0..300)];
        for id in 0..300 {
            let hub = members[dice.random_range(0..3)].hub.clone();
            clients.spawn(come_and_go(hub, id, SmallRng::seed_from_u64(seed * 1000 + id)));
            // A dispatcher that cannot be heard any more, while its own clients go on.
            for (place, at) in vanishes.into_iter().enumerate() {
                if at == id && members[place].worker.is_some() {
                    members[place].vanish();
                }
            }
            for (place, at) in appears.into_iter().enumerate() {
                if at == id && members[place].worker.is_none() {
                    members[place].appear();
                }
            }
            tokio::task::yield_now().await;
        }
        let outcomes = tokio::time::timeout(LONG, clients.join_all()).await.expect("all are over");
        assert_eq!(outcomes.len(), 300);
        for member in &members {
            until("nothing is left", || member.hub.idle()).await;
            assert_settled(&member.hub);
        }
    }
}
