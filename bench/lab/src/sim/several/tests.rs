use std::{cell::RefCell, rc::Rc, sync::Arc};

use weir_core::{End, EndKind, PodSpec, PromptSize, Request, Scheduler, SchedulerConfig, Scrape};
use weir_predict::Chain;

use super::*;
use crate::sim::{
    Outcome, Run, SimConfig, drive,
    tests::{pool, requests, simulate},
};

/// What a dispatcher was told, and how it looked after the last event.
#[derive(Default)]
struct Log {
    arrived: Vec<u64>,
    progress: Vec<Progress>,
    scrapes: usize,
    idle_ticks: usize,
    /// Requests that wait, that are on pods, and that events named without being known.
    left: (usize, usize, u64),
}

type Shared = Rc<RefCell<Log>>;

/// A scheduler whose events are noted.
struct Noted(Scheduler, Shared);

impl Noted {
    fn boxed(config: &SchedulerConfig) -> (Box<dyn Dispatcher>, Shared) {
        let scheduler = Scheduler::new(config.clone(), Box::new(Chain::new()));
        let log = Shared::default();
        (Box::new(Self(scheduler, log.clone())), log)
    }
}

impl Dispatcher for Noted {
    fn handle(&mut self, now: Time, event: Event, actions: &mut Vec<Action>) {
        let mut log = self.1.borrow_mut();
        match &event {
            Event::Arrive(request) => log.arrived.push(request.id.0),
            Event::Progress(progress) => log.progress.push(progress.clone()),
            Event::Scraped(..) => log.scrapes += 1,
            Event::Tick => log.idle_ticks += usize::from(self.0.waiting() == 0),
            _ => {}
        }
        let ends = matches!(event, Event::End(_));
        self.0.handle(now, event, actions);
        if ends {
            let ignored = self.0.snapshot(now).counters.ignored;
            log.left = (self.0.waiting(), self.0.in_flight(), ignored);
        }
    }

    fn waiting(&self) -> usize {
        self.0.waiting()
    }

    fn snapshot(&self, now: Time) -> Option<Snapshot> {
        Some(self.0.snapshot(now))
    }
}

fn noted(count: usize, config: &SchedulerConfig) -> (Several, Vec<Shared>) {
    let (each, logs) = (0..count).map(|_| Noted::boxed(config)).unzip();
    (Several::new(each), logs)
}

fn served_by(several: Several, config: &SimConfig, requests: &[SimRequest]) -> Run {
    drive(&config.pods, config.scrape_every, Box::new(several), requests)
}

#[test]
fn one_of_several_decides_as_it_would_alone() {
    for streamed in [1.0, 0.5] {
        // More than the pods hold, so that some wait and some are refused.
        let requests = requests(&[40.0], 20.0, streamed, 5);
        let (several, _) = noted(1, &pool().scheduler);
        let (one, alone) = (served_by(several, &pool(), &requests), simulate(&requests));
        assert_eq!(one.outcomes, alone.outcomes, "{streamed} streamed");
        assert_eq!(one.samples.len(), alone.samples.len(), "{streamed} streamed");
    }
}

#[test]
fn two_dispatchers_over_one_pod_share_the_requests_and_each_request_has_one_outcome() {
    let mut config = pool();
    config.pods.truncate(1);
    let requests = requests(&[20.0], 30.0, 0.5, 5);
    let (several, logs) = noted(2, &config.scheduler);
    let run = served_by(several, &config, &requests);
    assert_eq!(run.outcomes.len(), requests.len());
    let refused = run.outcomes.iter().filter(|one| matches!(one, Outcome::Refused(_))).count();
    assert_eq!(run.served().count() + refused, requests.len());
    assert!(refused > 10 && run.samples.len() == run.served().count(), "{refused} refused");
    for (place, log) in logs.iter().enumerate() {
        let log = log.borrow();
        let share = (0..requests.len() as u64).filter(|id| id % 2 == place as u64);
        assert_eq!(log.arrived, share.collect::<Vec<_>>());
        assert_eq!(log.left, (0, 0, 0), "waiting, on pods, unknown");
        let told = log.progress.iter().flat_map(|progress| &progress.events);
        assert!(told.clone().count() > 100);
        assert!(told.clone().all(|(id, _)| id.0 % 2 == place as u64), "only of its own streams");
        assert!(log.scrapes > 100 && log.scrapes == logs[0].borrow().scrapes);
        assert_eq!(log.idle_ticks, 0);
    }
}

#[test]
fn what_no_engine_takes_is_over_for_the_one_that_sent_it() {
    let mut requests = requests(&[5.0], 10.0, 1.0, 8);
    requests[3].input_tokens = 1_000_000;
    let (several, logs) = noted(2, &pool().scheduler);
    let run = served_by(several, &pool(), &requests);
    assert_eq!(run.outcomes[3], Outcome::Rejected);
    assert_eq!(run.served().count(), requests.len() - 1);
    assert!(logs.iter().all(|log| log.borrow().left == (0, 0, 0)));
}

/// Two dispatchers in front of one pod that is up, which has been given these requests.
fn with_requests(ids: &[u64]) -> (Several, Vec<Shared>) {
    let (mut several, logs) = noted(2, &pool().scheduler);
    let pod = PodSpec { id: PodId(0), name: Arc::from("pod-0"), class: 0, group: None };
    let mut actions = Vec::new();
    several.handle(Time::ZERO, Event::PodUp(pod), &mut actions);
    several.handle(Time::ZERO, Event::Scraped(PodId(0), Scrape::default()), &mut actions);
    for id in ids {
        let request = Request::new(RequestId(*id), Time::ZERO, PromptSize::Tokens(100));
        several.handle(Time::ZERO, Event::Arrive(Box::new(request)), &mut actions);
    }
    let sent = actions.iter().filter(|action| matches!(action, Action::Dispatch(_))).count();
    assert_eq!(sent, ids.len(), "an empty pod takes them all");
    (several, logs)
}

/// Lets two pods have made so many steps, the other one without a stream of anybody, and says what each dispatcher saw.
fn seen(several: &mut Several, logs: &[Shared], steps: u64) -> Vec<u64> {
    let pulse = Pulse { steps, last_step_at: Time::from_micros(steps * 1000) };
    let pulses = vec![(PodId(0), pulse), (PodId(1), pulse)];
    let progress = Progress { events: Vec::new(), pulses };
    several.handle(pulse.last_step_at, Event::Progress(progress), &mut Vec::new());
    let last = logs.iter().map(|log| log.borrow().progress.last().unwrap().pulses.clone());
    let last: Vec<_> = last.collect();
    assert!(last.iter().all(|pulses| pulses[1] == (PodId(1), Pulse::default())), "{last:?}");
    last.iter().map(|pulses| pulses[0].1.steps).collect()
}

fn end(several: &mut Several, id: u64, events: u32) {
    let (id, kind) = (RequestId(id), EndKind::Complete);
    let (output_tokens, prompt_tokens, last_token_at) = (Some(9), None, None);
    let end = End { id, kind, output_tokens, events, prompt_tokens, last_token_at };
    several.handle(Time::from_micros(1), Event::End(end), &mut Vec::new());
}

fn first_token(several: &mut Several, id: u64) {
    several.handle(Time::from_micros(1), Event::FirstToken(RequestId(id)), &mut Vec::new());
}

#[test]
fn a_dispatcher_sees_steps_of_a_pod_only_while_it_has_a_stream_there() {
    let (mut several, logs) = with_requests(&[0, 1]);
    assert_eq!(seen(&mut several, &logs, 5), [0, 0], "before the first token");
    first_token(&mut several, 0);
    assert_eq!(seen(&mut several, &logs, 7), [2, 0]);
    first_token(&mut several, 1);
    assert_eq!(seen(&mut several, &logs, 10), [5, 3]);
    end(&mut several, 0, 9);
    assert_eq!(seen(&mut several, &logs, 11), [6, 4], "it was there for a part of the time");
    assert_eq!(seen(&mut several, &logs, 20), [6, 13]);
}

#[test]
fn the_end_of_what_never_was_a_stream_hides_no_other() {
    let (mut several, logs) = with_requests(&[0, 2]);
    first_token(&mut several, 0);
    // It was not streamed, whatever is said of its events.
    end(&mut several, 2, 9);
    assert_eq!(seen(&mut several, &logs, 5), [5, 0]);
    assert_eq!(seen(&mut several, &logs, 9), [9, 0]);
    // A stream without an event that was counted is over all the same.
    end(&mut several, 0, 0);
    assert_eq!(seen(&mut several, &logs, 10), [10, 0]);
    assert_eq!(seen(&mut several, &logs, 15), [10, 0]);
}

#[test]
fn nobody_serves_nothing() {
    let requests = requests(&[5.0], 2.0, 1.0, 8);
    let run = served_by(Several::new(Vec::new()), &pool(), &requests);
    assert_eq!(run.outcomes, vec![Outcome::Rejected; requests.len()]);
}
