//! Ways that are narrow, or do not lead everywhere.

use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use weir_core::{Bounds, Request, RequestId, SchedulerConfig};
use weir_schema::Prediction;

use super::*;
use crate::hub::errand::{Errand, Facts, Given, Word};
use wire::{Asks, Hello, Out, Says, Values};

/// One that is followed and does nothing by itself.
struct Decider {
    asks: Values<OwnedReadHalf>,
    says: OwnedWriteHalf,
    out: Out,
}

impl Decider {
    /// One that is followed by another, which has a pod.
    async fn followed() -> (Self, Member) {
        let all = addresses::<2>();
        let listener = tokio::net::TcpListener::bind(all[0]).await.unwrap();
        let member = Member::start(1, &all, SECRET);
        member.hub.add_pod(pods());
        let decider = Self::called(&listener).await;
        member.follows(Some(all[0])).await;
        (decider, member)
    }

    async fn called(listener: &tokio::net::TcpListener) -> Self {
        let (from, says) = listener.accept().await.unwrap().0.into_split();
        let mut decider = Self { asks: Values::new(from), says, out: Out::default() };
        let hello: Hello = decider.asks.next().await.unwrap();
        let nonce = [2; 32];
        let nonces = [&hello.nonce, &nonce];
        let proof = proof(&SECRET, Side::Called, nonces);
        decider.say(&Welcome::Prove { nonce, proof }).await;
        let _: [u8; 32] = decider.asks.next().await.unwrap();
        decider.asks.seal(Seals::new(&SECRET, Side::Caller, nonces));
        decider.out.seal(Seals::new(&SECRET, Side::Called, nonces));
        decider.say(&Welcome::Come(Rank { started_unix_ms: 0, lot: 0 })).await;
        decider
    }

    async fn say<T: serde::Serialize>(&mut self, value: &T) {
        self.out.put(value).unwrap();
        self.out.send(&mut self.says).await.unwrap();
    }

    /// The next request that it is to decide, and which asking that is. Signs of life it answers.
    async fn asked(&mut self) -> (RequestId, u32) {
        loop {
            match self.asks.next().await.unwrap() {
                Asks::Errand(Errand::Admit(facts)) => return (facts.id, facts.ask),
                Asks::Beat => self.say(&Says::Done).await,
                Asks::Errand(_) => {}
            }
        }
    }
}

/// One that asks and does nothing by itself.
struct Asker {
    asks: OwnedWriteHalf,
    says: Values<OwnedReadHalf>,
    out: Out,
}

impl Asker {
    async fn calls(member: &Member) -> Self {
        let stream = TcpStream::connect(member.config.listen).await.unwrap();
        let (from, asks) = stream.into_split();
        let mut asker = Self { asks, says: Values::new(from), out: Out::default() };
        let model = member.hub.model().to_string();
        asker.ask(&Hello { protocol: wire::PROTOCOL, nonce: [1; 32], model }).await;
        let Welcome::Prove { nonce, .. } = asker.says.next().await.unwrap() else { panic!() };
        let nonces = [&[1; 32], &nonce];
        asker.ask(&proof(&SECRET, Side::Caller, nonces)).await;
        asker.says.seal(Seals::new(&SECRET, Side::Called, nonces));
        asker.out.seal(Seals::new(&SECRET, Side::Caller, nonces));
        let Welcome::Come(_) = asker.says.next().await.unwrap() else { panic!() };
        asker
    }

    async fn ask<T: serde::Serialize>(&mut self, value: &T) {
        self.out.put(value).unwrap();
        self.out.send(&mut self.asks).await.unwrap();
    }
}

#[tokio::test]
async fn a_sign_of_life_is_answered_once_the_scheduler_knows_what_came_before_it() {
    let all = addresses::<1>();
    let member = Member::start(0, &all, SECRET);
    let mut asker = Asker::calls(&member).await;
    for count in 1..4 {
        let one = request(&member.hub, count);
        let facts = Facts::of(&one, 0, member.hub.clock().now());
        asker.ask(&Asks::Errand(Errand::Admit(Box::new(facts)))).await;
        asker.ask(&Asks::Beat).await;
        let heard = async {
            while asker.says.next::<Says>().await.unwrap() != Says::Done {}
            member.waiting()
        };
        assert_eq!(tokio::time::timeout(LONG, heard).await.unwrap(), count as usize);
    }
}

#[tokio::test]
async fn one_that_gives_signs_of_life_and_does_not_answer_is_not_waited_for() {
    let (mut decider, member) = Decider::followed().await;
    let mut tickets = [1, 2].map(|id| member.admit(id));
    let asked = [decider.asked().await, decider.asked().await];
    let lives_on = tokio::spawn(async move {
        let mut beat = tokio::time::interval(BEAT);
        loop {
            beat.tick().await;
            decider.out.put(&Says::Beat).unwrap();
            if decider.out.send(&mut decider.says).await.is_err() {
                return;
            }
        }
    });
    member.follows(None).await;
    for (ticket, (id, _)) in tickets.iter_mut().zip(asked) {
        let lease = ticket.verdict().await.unwrap();
        assert_eq!(lease.id(), id);
        lease.end(EndKind::Complete, Some(3), None);
    }
    assert_eq!(member.hub.snapshot().counters.arrived, 2);
    assert_settled(&member.hub);
    lives_on.await.unwrap();
}

#[tokio::test]
async fn a_verdict_is_heard_while_there_is_more_to_say_than_is_taken() {
    let (mut decider, member) = Decider::followed().await;
    let mut first = member.admit(1);
    let (id, ask) = decider.asked().await;
    // Some 70 MB, of which a connection holds less than what is left when some of it was read.
    let blocks: Arc<[u64]> = (0..30_000).collect();
    let long = |id| Request { blocks: blocks.clone(), ..request(&member.hub, id) };
    let more: Vec<Ticket> = (2..300).map(|id| member.hub.admit(long(id))).collect();
    for _ in 0..64 {
        decider.asked().await;
    }
    let (pod, prediction) = ("10.0.0.1:8000".to_owned(), Prediction::default());
    let given =
        Given { id, ask, pod, attempt: 1, uncached_tokens: 0.0, prediction, tokens_per_event: 1.0 };
    decider.say(&Says::Word(Word::Give(given))).await;
    let lease = first.verdict().await.unwrap();
    assert_eq!(member.circle.view().heard, 1, "it is not decided here");
    assert!(member.circle.view().lead.is_some());
    drop((lease, first, more));
}

#[tokio::test]
async fn who_does_not_reach_the_one_that_decides_is_seen_to_be_decided_for_by_another() {
    let all = addresses::<3>();
    let [_elder, middle] = [0, 1].map(|place| Member::start(place, &all[..2], SECRET));
    middle.follows(Some(all[0])).await;
    let far = Member::start_among(2, all[2], &all[1..], SECRET);
    far.follows(Some(all[1])).await;
    middle.hub.add_pod(pods());
    far.hub.add_pod(pods());
    let elsewhere = || {
        let scrape = Scrape { running: 5, ..Scrape::default() };
        middle.hub.post(Event::Scraped(PodId(1), scrape));
        middle.hub.snapshot().pods[0].elsewhere
    };
    assert_eq!((middle.circle.view().decides, elsewhere()), (false, 0));
    let mut ticket = far.admit(1);
    let lease = ticket.verdict().await.unwrap();
    assert_eq!(middle.circle.view().lead, Some(all[0].to_string()));
    assert!(middle.circle.view().decides, "for one that asks it");
    assert!(elsewhere() > 0, "the first in rank has sent something that is in no books here");
    lease.end(EndKind::Complete, None, None);
    until("it decides for nobody any more", || !middle.circle.view().decides).await;
    assert!(!far.circle.view().decides);
}

#[tokio::test]
async fn what_waited_on_two_sides_and_is_too_much_for_one_queue_is_not_refused() {
    let [mut elder, younger] = Member::several().await;
    elder.vanish();
    younger.follows(None).await;
    let bounds = Bounds { max_requests: 2, ..Bounds::default() };
    let config = SchedulerConfig { policy: Policy::Weir, bounds, ..SchedulerConfig::default() };
    for member in [&elder, &younger] {
        member.hub.post(Event::Reconfigure(Box::new(config.clone())));
    }
    let there = [1, 2].map(|id| elder.admit(id));
    let mut here = [1, 2].map(|id| younger.admit(id));
    elder.appear();
    younger.follows(Some(elder.config.listen)).await;
    until("there is room for two of them where it is decided", || {
        (elder.waiting(), younger.waiting()) == (2, 2)
    })
    .await;
    let refusal = younger.admit(3).verdict().await.unwrap_err();
    assert_eq!(refusal.reason, RefusalReason::QueueFull, "it was let in nowhere");
    younger.hub.add_pod(pods());
    for ticket in &mut here {
        ticket.verdict().await.unwrap().end(EndKind::Complete, None, None);
    }
    drop((there, here));
    until("it is over", || elder.hub.idle() && younger.hub.idle()).await;
}
