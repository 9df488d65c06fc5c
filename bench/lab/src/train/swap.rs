//! Decisions while bundles are swapped: what is lost, and what the longest of them takes.
//!
//! One thread decides at a fixed rate with the real scheduler and the real predictor; what it dispatches ends a little later,
//! and each end gives a sample that the predictor learns from. Another thread loads and verifies the same bundle again and again,
//! under a new version each time, and hands it over through the slot, as the loader of `weir serve` does. Stretches with swaps and
//! without take turns, so that whatever else the machine does falls on both.

use std::{
    collections::VecDeque,
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow, ensure};
use serde::Serialize;
use weir_core::{
    Action, End, EndKind, Event, PodClass, PodId, PodSpec, PromptSize, Request, RequestId,
    Scheduler, SchedulerConfig, Slo, Time,
};
use weir_predict::{Bundle, Chain, Evaluators, Offer, Runtime, Slot};
use weir_schema::{
    Manifest,
    manifest::{MANIFEST_FILE, MODEL_FILE, bundle_name},
};

use super::clock::{Took, took};

const PODS: u32 = 100;
/// Decisions per second.
pub(super) const RATE_RPS: u64 = 5_000;
/// From a dispatch to the first token and to the end, in decisions: 10 ms and 40 ms.
const FIRST_TOKEN: u64 = 50;
const LASTS: u64 = 200;
const STEP: Duration = Duration::from_micros(1_000_000 / RATE_RPS);
const PROMPT: u32 = 100;
const TOKENS: u32 = 16;
/// A decision that takes longer than this is one too many.
pub(super) const LIMIT_MS: f64 = 5.0;
const BETWEEN_SWAPS: Duration = Duration::from_millis(100);

/// What some stretches came to.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Stretch {
    /// Requests.
    pub decisions: u64,
    /// Requests that got no dispatch.
    pub lost: u64,
    /// Calls of the predictor that failed.
    pub failures: u64,
    /// Versions that came into service.
    pub swaps: u64,
    /// The longest call of the scheduler, in milliseconds on a processor.
    pub longest_cpu_ms: f64,
    /// The longest call, in milliseconds by the wall.
    pub longest_wall_ms: f64,
    /// Calls above [`LIMIT_MS`] on a processor, and by the wall.
    pub over_cpu: u64,
    pub over_wall: u64,
    /// Time on a processor of all calls, in seconds.
    pub cpu_s: f64,
}

impl Stretch {
    fn note(&mut self, took: Took) {
        let (cpu_ms, wall_ms) = (took.cpu_s * 1e3, took.wall_s * 1e3);
        self.longest_cpu_ms = self.longest_cpu_ms.max(cpu_ms);
        self.longest_wall_ms = self.longest_wall_ms.max(wall_ms);
        self.over_cpu += u64::from(cpu_ms > LIMIT_MS);
        self.over_wall += u64::from(wall_ms > LIMIT_MS);
        self.cpu_s += took.cpu_s;
    }
}

/// Without swaps and with them.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Swaps {
    pub without: Stretch,
    pub with: Stretch,
}

/// Turns of so many decisions without swaps and as many with them.
pub(super) fn swaps(bundle: &Path, folder: &Path, turns: usize, decisions: u64) -> Result<Swaps> {
    let slot = Slot::new();
    let evaluators = Evaluators { runtime: Runtime::load(None).ok(), ..Evaluators::default() };
    let first = Bundle::load_by(&evaluators, bundle)?;
    let mut version = first.version();
    let mut desk = Desk::new(Chain::with_slot(slot.clone()));
    slot.publish(Offer::Bundle(Box::new(first)));
    // What is made on first use is not what a swap costs.
    desk.work(decisions.min(RATE_RPS), &mut Stretch::default());
    let mut swaps = Swaps::default();
    for _ in 0..turns {
        desk.work(decisions, &mut swaps.without);
        let (stop, made) = (AtomicBool::new(false), AtomicU64::new(version));
        let swapping = || swap(&evaluators, &slot, bundle, folder, (&made, &stop));
        version = thread::scope(|scope| {
            let loader = scope.spawn(swapping);
            desk.work(decisions, &mut swaps.with);
            stop.store(true, Relaxed);
            loader.join().map_err(|_| anyhow!("the loader panicked"))?
        })?;
    }
    ensure!(swaps.with.swaps > 0, "no bundle came into service");
    Ok(swaps)
}

/// Loads and hands over version after version until it is stopped, and says which was the last.
fn swap(
    evaluators: &Evaluators,
    slot: &Slot,
    bundle: &Path,
    folder: &Path,
    (made, stop): (&AtomicU64, &AtomicBool),
) -> Result<u64> {
    while !stop.load(Relaxed) {
        let version = made.fetch_add(1, Relaxed) + 1;
        let dir = renumbered(bundle, folder, version)?;
        let loaded = Bundle::load_by(evaluators, &dir)?;
        fs::remove_dir_all(dir)?;
        slot.publish(Offer::Bundle(Box::new(loaded)));
        thread::sleep(BETWEEN_SWAPS);
        slot.retire();
    }
    Ok(made.load(Relaxed))
}

/// A copy of a bundle under another version.
fn renumbered(bundle: &Path, folder: &Path, version: u64) -> Result<PathBuf> {
    let dir = folder.join(bundle_name(version));
    fs::create_dir_all(&dir)?;
    fs::copy(bundle.join(MODEL_FILE), dir.join(MODEL_FILE))?;
    let manifest: Manifest = serde_json::from_slice(&fs::read(bundle.join(MANIFEST_FILE))?)?;
    let manifest = Manifest { version, ..manifest };
    fs::write(dir.join(MANIFEST_FILE), serde_json::to_vec(&manifest)?)?;
    Ok(dir)
}

/// The scheduler with pods that answer by themselves. Its time moves by a step with every request.
struct Desk {
    scheduler: Scheduler,
    /// Requests that have come.
    arrived: u64,
    dispatched: u64,
    /// What waits for its first token, and what for its end, by the request at which that comes.
    pending: VecDeque<(u64, RequestId)>,
    running: VecDeque<(u64, RequestId)>,
    /// Version of the bundle that the last dispatch was predicted by.
    version: u64,
    /// Kept for its memory.
    actions: Vec<Action>,
}

impl Desk {
    fn new(chain: Chain) -> Self {
        let config =
            SchedulerConfig { classes: vec![PodClass::default()], ..SchedulerConfig::default() };
        let mut scheduler = Scheduler::new(config, Box::new(chain));
        let mut actions = Vec::new();
        for id in 0..PODS {
            let name = Arc::from(format!("pod-{id}"));
            let pod = PodSpec { id: PodId(id), name, class: 0, group: None };
            scheduler.handle(Time::ZERO, Event::PodUp(pod), &mut actions);
        }
        let (pending, running) = (VecDeque::new(), VecDeque::new());
        Self { scheduler, arrived: 0, dispatched: 0, pending, running, version: 0, actions }
    }

    /// Makes so many decisions at the rate, in time with the wall, and lets all of them end.
    fn work(&mut self, count: u64, stretch: &mut Stretch) {
        let failures = self.scheduler.predictor().failures;
        let (arrived, dispatched) = (self.arrived, self.dispatched);
        let began = Instant::now();
        for number in 0..count {
            let due = began + STEP * u32::try_from(number).unwrap_or(u32::MAX);
            if let Some(early) = due.checked_duration_since(Instant::now()) {
                thread::sleep(early);
            }
            self.answer(stretch);
            let request = request(self.arrived, self.now());
            self.tell(Event::Arrive(Box::new(request)), stretch);
            self.arrived += 1;
        }
        // Nothing more comes: what is under way ends.
        let last = self.arrived + 2 * LASTS;
        let came = std::mem::replace(&mut self.arrived, last);
        self.answer(stretch);
        self.tell(Event::Tick, stretch);
        self.arrived += 2 * LASTS;
        self.answer(stretch);
        stretch.decisions += came - arrived;
        stretch.lost += (came - arrived).saturating_sub(self.dispatched - dispatched);
        stretch.failures += self.scheduler.predictor().failures - failures;
    }

    /// What is due at the pods.
    fn answer(&mut self, stretch: &mut Stretch) {
        while let Some(id) = due(&mut self.pending, self.arrived) {
            self.tell(Event::FirstToken(id), stretch);
        }
        while let Some(id) = due(&mut self.running, self.arrived) {
            let end = End {
                id,
                kind: EndKind::Complete,
                output_tokens: Some(TOKENS),
                events: TOKENS,
                prompt_tokens: Some(PROMPT),
                last_token_at: Some(self.now()),
            };
            self.tell(Event::End(end), stretch);
        }
    }

    fn tell(&mut self, event: Event, stretch: &mut Stretch) {
        let now = self.now();
        let mut actions = std::mem::take(&mut self.actions);
        let ((), took) = took(|| self.scheduler.handle(now, event, &mut actions));
        stretch.note(took);
        for action in actions.drain(..) {
            if let Action::Dispatch(dispatch) = action {
                self.dispatched += 1;
                self.pending.push_back((self.arrived + FIRST_TOKEN, dispatch.id));
                self.running.push_back((self.arrived + LASTS, dispatch.id));
                let version = dispatch.prediction.model_version;
                stretch.swaps += u64::from(version > self.version);
                self.version = self.version.max(version);
            }
        }
        self.actions = actions;
    }

    fn now(&self) -> Time {
        Time::ZERO.plus(STEP * u32::try_from(self.arrived).unwrap_or(u32::MAX))
    }
}

/// The next that is due by this request.
fn due(queue: &mut VecDeque<(u64, RequestId)>, now: u64) -> Option<RequestId> {
    let (at, id) = *queue.front()?;
    (at <= now).then(|| queue.pop_front())?;
    Some(id)
}

fn request(number: u64, now: Time) -> Request {
    Request {
        max_output_tokens: Some(TOKENS),
        slo: Slo { ttft: Some(Duration::from_secs(10)), tpot: Some(Duration::from_millis(500)) },
        body_bytes: 4 * PROMPT,
        ..Request::new(RequestId(number), now, PromptSize::Tokens(PROMPT))
    }
}
