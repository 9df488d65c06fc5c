//! The policy that sees the future: it tries a request on each pod and keeps the best.
//!
//! It has a copy of every engine, noise included, and keeps it in step with the real one. When a request arrives, with its
//! true length, each copy is forked with the request on it and run until it is idle; the request goes where most requests
//! then are in time, counting those that are there already, and of equals where the times to their ends grow least. A request that
//! gains nothing anywhere, being late or taking the place of another, is held and tried again from time to time; once its deadline has
//! passed it is put aside until a pod has nothing else to do, or refused where only a promise counts. It looks at one request at
//! a time and knows nothing of those that have not come: it is what can be reached by seeing well, not the best there is.
//!
//! A fork costs as much as simulating the pod until it is idle, or until nothing can be gained any more: the request is late, or
//! others are, for as much. [`Sight`] says how many pods are tried each time.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use rand::{SeedableRng, rngs::SmallRng};
use weir_core::{
    Action, Band, Dispatch, Event, PodId, Refusal, RefusalReason, RequestId, Snapshot, Time,
};
use weir_engine::{Engine, EngineConfig, Job, Output, SeqId};
use weir_schema::{Prediction, Quantiles};

use super::work;
use crate::sim::{
    AdapterNames, Dispatcher, Outcome, Pool, Run, SimPod, SimRequest, drive, drive_while,
};

/// How much of the future is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sight {
    /// Pods that are tried for a request at a time, drawn anew each time; all of them if there are no more.
    pub pods: usize,
    /// Whether it is held to a promise of the highest band: one of those counts for more than any number of others, and what is
    /// late is refused.
    pub promised: bool,
}

impl Sight {
    /// The same, held to a promise of the highest band.
    #[must_use]
    pub const fn promised(self) -> Self {
        Self { promised: true, ..self }
    }
}

impl Default for Sight {
    /// Every pod.
    fn default() -> Self {
        Self { pods: usize::MAX, promised: false }
    }
}

/// Serves `requests` with the policy that sees the future. The seed is that of the run it is compared with: arrivals and
/// noise are the same.
pub fn clairvoyant(pool: &Pool, requests: &[SimRequest], sight: Sight, seed: u64) -> Run {
    let (pods, dispatcher) = set_up(pool, requests, sight, seed);
    drive(&pods, pool.scrape_every, dispatcher, requests)
}

/// The same for as long as `goes_on` says so of each outcome; `None` once it did not.
pub(super) fn clairvoyant_while(
    pool: &Pool,
    requests: &[SimRequest],
    sight: Sight,
    seed: u64,
    goes_on: impl FnMut(usize, &Outcome) -> bool,
) -> Option<Run> {
    let (pods, dispatcher) = set_up(pool, requests, sight, seed);
    drive_while(&pods, pool.scrape_every, dispatcher, requests, goes_on)
}

fn set_up(
    pool: &Pool,
    requests: &[SimRequest],
    sight: Sight,
    seed: u64,
) -> (Vec<SimPod>, Box<dyn Dispatcher>) {
    let pods = pool.seeded(seed);
    let quiet = |engine: &EngineConfig| EngineConfig { every_token: false, ..engine.clone() };
    let names = Arc::new(AdapterNames::of(requests));
    let dispatcher = Clairvoyant {
        requests: requests.into(),
        pods: pods.iter().map(|pod| Mirror::new(quiet(&pod.engine), &names)).collect(),
        held: Vec::new(),
        retry_at: Time::ZERO,
        aside: VecDeque::new(),
        sight,
        top: requests.iter().map(|asked| asked.request.band).max(),
        dice: SmallRng::seed_from_u64(seed),
    };
    (pods, Box::new(dispatcher))
}

/// Requests of lower bands that one of the highest counts for.
const MUCH: i64 = 1_000_000;

/// Time for which a request without a deadline is held.
const PATIENCE: Duration = Duration::from_secs(60);

/// Time after which what is held is tried again.
const RETRY: Duration = Duration::from_millis(50);

/// Milliseconds of a trial after which it is looked at whether it still can gain something.
const LOOK_MS: f64 = 500.0;

struct Clairvoyant {
    requests: Arc<[SimRequest]>,
    pods: Vec<Mirror>,
    /// Requests that are held: they are tried again while they can still be in time.
    held: Vec<Held>,
    /// When they are.
    retry_at: Time,
    /// Requests that cannot be in time any more and when they came, the oldest first.
    aside: VecDeque<(Time, usize)>,
    sight: Sight,
    /// The highest band of all requests.
    top: Option<Band>,
    dice: SmallRng,
}

/// A request that is held.
#[derive(Clone, Copy, Debug)]
struct Held {
    /// When its first token is due.
    due: Time,
    came: Time,
    place: usize,
}

/// A pod's engine, and what is known to become of the requests on it.
struct Mirror {
    engine: Engine,
    names: Arc<AdapterNames>,
    residents: Vec<Resident>,
    outputs: Vec<Output>,
}

/// A request on a pod.
#[derive(Clone, Copy, Debug)]
struct Resident {
    sequence: SeqId,
    fate: Fate,
}

/// When a request comes, gets its first token, and ends, in milliseconds; and what it was promised.
#[derive(Clone, Copy, Debug)]
struct Fate {
    arrived_ms: f64,
    first_ms: f64,
    last_ms: f64,
    gaps: f64,
    ttft_ms: Option<f64>,
    tpot_ms: Option<f64>,
    /// What it counts for in time.
    worth: i64,
}

impl Fate {
    fn in_time(&self) -> bool {
        let within = |taken_ms: f64, objective_ms: Option<f64>, times: f64| {
            objective_ms.is_none_or(|ms| taken_ms <= ms * times)
        };
        within(self.first_ms - self.arrived_ms, self.ttft_ms, 1.0)
            && within(self.last_ms - self.first_ms, self.tpot_ms, self.gaps)
    }

    /// Whether it is late although what has not come by `now_ms` came right then.
    fn late_by(&self, now_ms: f64) -> bool {
        let come = |ms: f64| if ms > 0.0 { ms } else { now_ms };
        let soonest = Self { first_ms: come(self.first_ms), last_ms: come(self.last_ms), ..*self };
        !soonest.in_time()
    }
}

/// How long a trial goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Until {
    /// Until the pod is idle.
    Idle,
    /// Until then, or until it is known that nothing is gained.
    Vain,
}

/// A request, when it came, and what it counts for in time.
#[derive(Clone, Copy, Debug)]
struct Came<'a> {
    asked: &'a SimRequest,
    came_ms: f64,
    worth: i64,
}

/// What giving a request to a pod would do.
#[derive(Clone, Debug)]
struct Trial {
    pod: usize,
    /// Requests in time that are gained, each for what it counts.
    gain: i64,
    /// Milliseconds that all the ends move away, the request's own whole time included.
    delay_ms: f64,
    fates: Vec<Resident>,
}

impl Mirror {
    fn new(engine: EngineConfig, names: &Arc<AdapterNames>) -> Self {
        let (engine, names) = (Engine::new(engine), Arc::clone(names));
        Self { engine, names, residents: Vec::new(), outputs: Vec::new() }
    }

    /// Lets the engine come to `now_ms`, and forgets who has left it.
    fn advance(&mut self, now_ms: f64) {
        self.engine.advance(now_ms, &mut self.outputs);
        for output in self.outputs.drain(..) {
            if let Output::Finished { id, .. } = output {
                self.residents.retain(|resident| resident.sequence != id);
            }
        }
    }

    /// What would become of everybody with one more request.
    fn try_with(&self, pod: usize, now_ms: f64, came: &Came<'_>, until: Until) -> Option<Trial> {
        let Came { asked, came_ms, worth } = *came;
        let mut engine = self.engine.clone();
        let sequence = engine.submit(now_ms, job(asked, &self.names)).ok()?;
        let ms = |slo: Option<Duration>| slo.map(|slo| slo.as_secs_f64() * 1e3);
        let newcomer = Fate {
            arrived_ms: came_ms,
            first_ms: 0.0,
            last_ms: 0.0,
            gaps: f64::from(work::output_tokens(asked)) - 1.0,
            ttft_ms: ms(asked.request.slo.ttft),
            tpot_ms: ms(asked.request.slo.tpot),
            worth,
        };
        let mut fates = self.residents.clone();
        fates.push(Resident { sequence, fate: newcomer });
        let mut outputs = Vec::new();
        let mut lost = 0;
        let mut look_ms = if until == Until::Vain { now_ms + LOOK_MS } else { f64::INFINITY };
        loop {
            engine.advance(look_ms, &mut outputs);
            for output in outputs.drain(..) {
                let mut known = fates.iter_mut().enumerate();
                let one = known.find(|(_, one)| one.sequence == output.id());
                let Some((place, Resident { fate, .. })) = one else { continue };
                match output {
                    Output::Token { at_ms, .. } => fate.first_ms = seen_ms(at_ms),
                    Output::Finished { at_ms, .. } => {
                        fate.last_ms = seen_ms(at_ms);
                        let was = self.residents.get(place).is_some_and(|one| one.fate.in_time());
                        lost += if was && !fate.in_time() { fate.worth } else { 0 };
                    }
                }
            }
            if engine.next_event_ms().is_none() {
                break;
            }
            if lost >= worth || fates.last().is_some_and(|one| one.fate.late_by(look_ms)) {
                return Some(Trial { pod, gain: 0, delay_ms: 0.0, fates: Vec::new() });
            }
            look_ms += LOOK_MS;
        }
        let in_time = |those: &[Resident]| -> i64 {
            those.iter().filter(|one| one.fate.in_time()).map(|one| one.fate.worth).sum()
        };
        let ends = |those: &[Resident]| -> f64 { those.iter().map(|one| one.fate.last_ms).sum() };
        let gain = in_time(&fates) - in_time(&self.residents);
        let delay_ms = ends(&fates) - ends(&self.residents) - came_ms;
        Some(Trial { pod, gain, delay_ms, fates })
    }
}

/// Clients see things at whole microseconds.
fn seen_ms(at_ms: f64) -> f64 {
    (at_ms * 1e3).ceil() / 1e3
}

fn job(asked: &SimRequest, names: &AdapterNames) -> Job {
    Job {
        prompt_tokens: asked.input_tokens,
        blocks: work::blocks(asked).to_vec(),
        output_tokens: work::output_tokens(asked),
        priority: 0,
        brought_tokens: 0,
        keeps: false,
        adapter: names.number(asked),
    }
}

impl Clairvoyant {
    fn arrive(&mut self, now: Time, place: usize, actions: &mut Vec<Action>) {
        let Some(asked) = self.requests.get(place).cloned() else { return };
        let due = now.plus(asked.request.slo.ttft.unwrap_or(PATIENCE));
        match self.best(now, &asked, now) {
            Some(trial) if trial.gain > 0 => self.give(now, now, place, trial, actions),
            Some(_) => {
                self.held.push(Held { due, came: now, place });
                self.fill_idle(now, actions);
            }
            // No engine takes it.
            None => actions.push(refuse(place, RefusalReason::Undeliverable, Duration::ZERO)),
        }
    }

    /// Of the trials on some pods, the one that gains most, and of those the one that delays least.
    fn best(&mut self, now: Time, asked: &SimRequest, came: Time) -> Option<Trial> {
        let came = &self.came(asked, came);
        let count = self.pods.len();
        let drawn = rand::seq::index::sample(&mut self.dice, count, self.sight.pods.min(count));
        let mut drawn = drawn.into_vec();
        drawn.sort_unstable();
        let of = |pods: &mut dyn Iterator<Item = usize>| {
            let trials = pods
                .filter_map(|pod| self.pods.get(pod)?.try_with(pod, ms(now), came, Until::Vain));
            trials.min_by(|one, other| {
                other.gain.cmp(&one.gain).then(one.delay_ms.total_cmp(&other.delay_ms))
            })
        };
        // Not every engine takes every request.
        of(&mut drawn.into_iter()).or_else(|| of(&mut (0..count)))
    }

    fn came<'a>(&self, asked: &'a SimRequest, came: Time) -> Came<'a> {
        let counts = self.sight.promised && Some(asked.request.band) == self.top;
        Came { asked, came_ms: ms(came), worth: if counts { MUCH } else { 1 } }
    }

    /// Tries what is held again, the one that is due first before the others.
    fn retry(&mut self, now: Time, actions: &mut Vec<Action>) {
        if now < self.retry_at {
            return;
        }
        self.retry_at = now.plus(RETRY);
        let mut held = std::mem::take(&mut self.held);
        held.sort_by_key(|one| (one.due, one.came, one.place));
        for one in held {
            let Some(asked) = self.requests.get(one.place).cloned() else { continue };
            if now > one.due {
                if self.sight.promised {
                    actions.push(refuse(one.place, RefusalReason::Hopeless, now.since(one.came)));
                } else {
                    self.aside.push_back((one.came, one.place));
                }
                continue;
            }
            match self.best(now, &asked, one.came).filter(|trial| trial.gain > 0) {
                Some(trial) => self.give(now, one.came, one.place, trial, actions),
                None => self.held.push(one),
            }
        }
    }

    /// Gives a request that came at `came` to the pod of a trial.
    fn give(&mut self, now: Time, came: Time, place: usize, trial: Trial, to: &mut Vec<Action>) {
        let Some(asked) = self.requests.get(place) else { return };
        let Some(mirror) = self.pods.get_mut(trial.pod) else { return };
        let told = trial.fates.last().map(|one| one.fate);
        if mirror.engine.submit(ms(now), job(asked, &mirror.names)).is_err() {
            return;
        }
        mirror.residents = trial.fates;
        let quantiles = |ms: f64| Quantiles { p50: ms as f32, p90: ms as f32 };
        let prediction = told.map(|fate| Prediction {
            ttft_ms: quantiles(fate.first_ms - ms(now)),
            tpot_ms: quantiles((fate.last_ms - fate.first_ms) / fate.gaps.max(1.0)),
            ..Prediction::default()
        });
        to.push(Action::Dispatch(Dispatch {
            id: RequestId(place as u64),
            pod: PodId(trial.pod as u32),
            attempt: 1,
            arrived: came,
            waited: now.since(came),
            slo: asked.request.slo,
            sequences: asked.request.sequences,
            uncached_tokens: 0.0,
            prediction: prediction.unwrap_or_default(),
            tokens_per_event: 1.0,
        }));
    }

    /// Gives what was put aside to pods that have nothing else to do.
    fn fill_idle(&mut self, now: Time, actions: &mut Vec<Action>) {
        while let Some((came, place)) = self.aside.front().copied() {
            let Some(asked) = self.requests.get(place).cloned() else { return };
            let idle = self.pods.iter().enumerate().filter(|(_, pod)| pod.residents.is_empty());
            let one = &self.came(&asked, came);
            let trial = idle
                .filter_map(|(pod, mirror)| mirror.try_with(pod, ms(now), one, Until::Idle))
                .min_by(|one, other| one.delay_ms.total_cmp(&other.delay_ms));
            let Some(trial) = trial else { return };
            self.aside.pop_front();
            self.give(now, came, place, trial, actions);
        }
    }
}

impl Dispatcher for Clairvoyant {
    fn handle(&mut self, now: Time, event: Event, actions: &mut Vec<Action>) {
        for mirror in &mut self.pods {
            mirror.advance(ms(now));
        }
        match event {
            Event::Arrive(request) => self.arrive(now, request.id.0 as usize, actions),
            _ => {
                self.retry(now, actions);
                self.fill_idle(now, actions);
            }
        }
    }

    fn waiting(&self) -> usize {
        self.held.len() + self.aside.len()
    }

    fn snapshot(&self, _now: Time) -> Option<Snapshot> {
        None
    }
}

fn refuse(place: usize, reason: RefusalReason, waited: Duration) -> Action {
    let id = RequestId(place as u64);
    Action::Refuse(Refusal { id, band: Band(0), reason, waited, retry_after: Duration::ZERO })
}

fn ms(time: Time) -> f64 {
    time.as_micros() as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::{
        super::tests::{GPU, pool, request, slo},
        *,
    };

    #[test]
    fn a_trial_ends_early_only_where_it_gains_nothing() {
        let engine = pool(&[GPU], 2048).seeded(1).remove(0).engine;
        let mut mirror =
            Mirror::new(EngineConfig { every_token: false, ..engine }, &Arc::default());
        let (mut gained, mut ended_early) = (0, 0);
        for place in 0..60 {
            let now_ms = 70.0 * place as f64;
            mirror.advance(now_ms);
            let input = if place % 5 == 0 { 6000 } else { 300 };
            let asked =
                request(place, 70 * place as u64, input, 30 + 5 * place as u32, slo(600, 30));
            let came = Came { asked: &asked, came_ms: now_ms, worth: 1 };
            let [vain, idle] = [Until::Vain, Until::Idle]
                .map(|until| mirror.try_with(0, now_ms, &came, until).unwrap());
            assert_eq!(vain.gain > 0, idle.gain > 0, "{place}");
            if vain.gain > 0 {
                assert_eq!((vain.gain, vain.delay_ms), (idle.gain, idle.delay_ms), "{place}");
                mirror.engine.submit(now_ms, job(&asked, &mirror.names)).unwrap();
                mirror.residents = vain.fates;
                gained += 1;
            } else {
                ended_early += usize::from(vain.fates.is_empty());
            }
        }
        assert!(gained > 10 && ended_early > 10, "{gained} {ended_early}");
    }
}
