//! The events, one after the other, with the cost of each.

mod events;

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    hint::black_box,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use weir_core::{
    Action, Bounds, Dispatch, Event, PodId, PodSpec, RequestId, Scheduler, SchedulerConfig, TICK,
    Time,
};
use weir_schema::{Predict, Sample};

use super::{
    backlog,
    cost::{Bill, Meter},
    evaluator::Counted,
    load::{Load, Sizes},
    pool::{Pool, Times},
};

/// Requests per second and pod at a real GPU's pace, of the kinds that come, that its objectives just allow.
pub(super) const POD_RPS: f64 = 14.0;
/// Time between two scrapes of a pod, as the server has it.
const SCRAPE_EVERY: Duration = Duration::from_millis(50);
/// Time that one of the backlog keeps a pod which had nothing else.
const PATIENCE: Duration = Duration::from_millis(1);

/// What is driven.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Course {
    pub(crate) pods: usize,
    pub(crate) qps: f64,
    pub(crate) patterns: usize,
    /// How hard the pods work: 1 is what their objectives just allow.
    pub(crate) load: f64,
    /// Share of requests whose response is not streamed.
    pub(crate) unstreamed: f64,
    /// Share of requests without objectives.
    pub(crate) unpromised: f64,
    /// Requests that wait and cannot go.
    pub(crate) depth: usize,
    /// Dispatches before anything is counted.
    pub(crate) warm_up: u64,
    /// Dispatches that are counted.
    pub(crate) decisions: u64,
    pub(crate) seed: u64,
    /// Whether the clocks are read.
    pub(crate) is_timed: bool,
    /// Rounds of idle work in every call, to see what measuring finds.
    pub(crate) handicap: u32,
}

impl Course {
    /// How much faster than a real GPU the pods are.
    fn pace(&self) -> f64 {
        self.qps / self.pods.max(1) as f64 / POD_RPS / self.load
    }
}

/// What is due. Of two at one moment the first here comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    FirstToken(RequestId),
    End(RequestId),
    /// One of the backlog found a pod idle.
    Unstuck(RequestId),
    Sweep,
    Scrape,
    Tick,
    Arrival,
}

/// A request on a pod.
#[derive(Clone, Copy, Debug)]
struct Stream {
    id: RequestId,
    /// Whether it is; of what is not, nothing is seen until its end.
    streamed: bool,
    pod: PodId,
    times: Times,
    input_tokens: u32,
    output_tokens: u32,
    told: u32,
}

/// What came out.
#[derive(Debug, Default)]
pub(crate) struct Driven {
    /// Requests given out in the whole run.
    pub(crate) all_dispatched: u64,
    pub(super) bill: Bill,
    pub(super) rows: u64,
    /// Virtual time that was counted.
    pub(super) seconds: f64,
    /// Samples of the whole run, if they were asked for.
    pub(super) samples: Vec<Sample>,
    /// Requests that wait at the end, without the backlog.
    pub(super) waiting: usize,
    /// Mean requests on a pod at the end.
    pub(super) residents: f64,
}

/// Drives a scheduler through a course.
pub(crate) fn drive(course: &Course, predictor: Box<dyn Predict>, keep_samples: bool) -> Driven {
    let mut run = Run::new(course, predictor, keep_samples);
    run.open();
    run.until(course.warm_up);
    let (rows, since) = (run.rows.load(Relaxed), run.now);
    run.driven.bill = Bill::default();
    run.until(course.decisions);
    run.driven.rows = run.rows.load(Relaxed) - rows;
    run.driven.seconds = run.now.since(since).as_secs_f64();
    run.driven.waiting = run.scheduler.waiting().saturating_sub(course.depth);
    run.driven.residents = run.scheduler.in_flight() as f64 / course.pods.max(1) as f64;
    run.driven
}

/// What is counted: a function of its own, so that a profiler finds it.
#[inline(never)]
fn counted_call(
    scheduler: &mut Scheduler,
    now: Time,
    event: Event,
    actions: &mut Vec<Action>,
    handicap: u32,
) {
    for round in 0..handicap {
        black_box(round);
    }
    scheduler.handle(now, event, actions);
}

struct Run<'a> {
    course: &'a Course,
    scheduler: Scheduler,
    rows: Arc<AtomicU64>,
    pool: Pool,
    load: Load,
    due: BinaryHeap<Reverse<(Time, Due)>>,
    /// Requests that wait, until they are dispatched or refused.
    asked: HashMap<RequestId, Sizes>,
    streams: HashMap<RequestId, usize>,
    running: Vec<Stream>,
    now: Time,
    ticking: bool,
    arrivals: f64,
    actions: Vec<Action>,
    meter: Meter,
    keep_samples: bool,
    driven: Driven,
}

impl<'a> Run<'a> {
    fn new(course: &'a Course, predictor: Box<dyn Predict>, keep_samples: bool) -> Self {
        let pace = course.pace();
        let pool = Pool::new(course.pods, pace, course.seed);
        let bounds = Bounds { max_requests: usize::MAX, ..Bounds::default() };
        let config = SchedulerConfig {
            classes: vec![pool.class().clone()],
            bounds,
            ..SchedulerConfig::default()
        };
        let (counted, rows) = Counted::new(predictor);
        Self {
            course,
            scheduler: Scheduler::new(config, Box::new(counted)),
            rows,
            pool,
            load: Load::new(course, pace),
            due: BinaryHeap::new(),
            asked: HashMap::new(),
            streams: HashMap::new(),
            running: Vec::new(),
            now: Time::ZERO,
            ticking: false,
            arrivals: 0.0,
            actions: Vec::new(),
            meter: Meter::new(course.is_timed),
            keep_samples,
            driven: Driven::default(),
        }
    }

    /// The pods join, and each gets something to do before the backlog comes, for what cannot go must not start.
    fn open(&mut self) {
        for id in 0..self.course.pods as u32 {
            let name = Arc::from(format!("pod-{id}"));
            self.handle(
                "pod",
                Event::PodUp(PodSpec { id: PodId(id), name, class: 0, group: None }),
            );
        }
        self.plan(self.now, Due::Arrival);
        self.plan(self.now.plus(TICK), Due::Sweep);
        self.plan(self.now.plus(SCRAPE_EVERY), Due::Scrape);
        self.until(20 * self.course.pods as u64);
        (0..self.course.depth).for_each(|_| self.stuck());
    }

    /// One more of the backlog comes.
    fn stuck(&mut self) {
        let id = self.load.number();
        let request = Box::new(backlog::stuck(id, self.now, self.pool.class()));
        self.handle("stuck", Event::Arrive(request));
    }

    fn plan(&mut self, at: Time, due: Due) {
        self.due.push(Reverse((at, due)));
    }

    /// Goes on until so many requests more have been dispatched.
    fn until(&mut self, dispatches: u64) {
        let last = self.driven.bill.dispatched + dispatches;
        while self.driven.bill.dispatched < last {
            let Some(Reverse((at, due))) = self.due.pop() else { return };
            self.now = at;
            match due {
                Due::Arrival => self.arrival(),
                Due::FirstToken(id) => self.first_token(id),
                Due::End(id) => self.end(id),
                Due::Unstuck(id) => self.unstuck(id),
                Due::Sweep => self.sweep(),
                Due::Scrape => self.scrape(),
                Due::Tick => self.tick(),
            }
        }
    }

    /// Gives the scheduler an event and does what it says.
    fn handle(&mut self, kind: &'static str, event: Event) {
        let (scheduler, actions, now) = (&mut self.scheduler, &mut self.actions, self.now);
        let handicap = self.course.handicap;
        let cost = self.meter.of(|| counted_call(scheduler, now, event, actions, handicap));
        let mut actions = std::mem::take(&mut self.actions);
        let is_dispatch = |action: &&Action| matches!(action, Action::Dispatch(_));
        let dispatched = actions.iter().filter(is_dispatch).count() as u64;
        self.driven.bill.add(kind, cost, dispatched);
        self.driven.all_dispatched += dispatched;
        for action in actions.drain(..) {
            match action {
                Action::Dispatch(dispatch) => self.send(&dispatch),
                Action::Refuse(refusal) => {
                    self.asked.remove(&refusal.id);
                    self.driven.bill.refused += 1;
                }
                Action::Sample(sample) if self.keep_samples => self.driven.samples.push(*sample),
                Action::Sample(_) => {}
            }
        }
        self.actions = actions;
        if self.scheduler.waiting() > 0 && !self.ticking {
            self.ticking = true;
            self.plan(self.now.plus(TICK), Due::Tick);
        }
    }

    fn send(&mut self, dispatch: &Dispatch) {
        let Some(sizes) = self.asked.remove(&dispatch.id) else {
            return self.plan(self.now.plus(PATIENCE), Due::Unstuck(dispatch.id));
        };
        let Sizes { streamed, input_tokens, output_tokens, shared_tokens } = sizes;
        let uncached = input_tokens.saturating_sub(shared_tokens);
        let sizes = [input_tokens, uncached, output_tokens];
        let Some(times) = self.pool.send(self.now, dispatch.pod, sizes) else { return };
        let (id, pod) = (dispatch.id, dispatch.pod);
        self.streams.insert(id, self.running.len());
        self.running.push(Stream {
            id,
            streamed,
            pod,
            times,
            input_tokens,
            output_tokens,
            told: 0,
        });
        self.plan(times.first_token, Due::FirstToken(id));
        self.plan(times.end, Due::End(id));
    }
}
