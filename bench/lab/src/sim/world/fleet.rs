//! Pods that come and go while requests are served: somebody looks every [`SCALE_EVERY`] and says how many there are to be.
//!
//! A pod that is started loads its model first; no dispatcher knows of it until it is ready. Of pods too many, those that
//! load are given up first, the youngest first, then those with the fewest requests in flight: they get nothing new, end what
//! they have, and are gone. Nobody looks any more once the last request has arrived.

use std::{cmp::Reverse, collections::VecDeque, time::Duration};

use weir_core::{Event, Need, Phase, PodId, Scrape, Time};

use super::{Due, World};
use crate::sim::{
    Dispatcher, Run, SimPod, SimRequest,
    pod::{Pod, Stage},
};

/// Time between two looks at the pods: the period of Kubernetes' autoscaler.
pub const SCALE_EVERY: Duration = Duration::from_secs(15);

/// Says how many pods there are to be.
pub trait Scaler {
    /// How many, ready or on their way. Called every [`SCALE_EVERY`] until the last request has arrived.
    fn pods(&mut self, view: &View<'_>) -> usize;
}

/// What a scaler is shown.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// When it looks.
    pub now: Time,
    /// Pods that take requests.
    pub ready: usize,
    /// Pods that load their model.
    pub starting: usize,
    /// What a scrape of each pod that takes requests says at this moment.
    pub pods: &'a [Scrape],
    /// Requests that wait in the dispatcher.
    pub waiting: usize,
    /// What the dispatcher says of its need, if it does.
    pub need: Option<Need>,
}

/// How a pool grows.
#[derive(Clone, Copy)]
pub struct Growth<'a> {
    /// Makes the pod of a number, from 0 on. No number comes twice.
    pub pod: &'a dyn Fn(usize) -> SimPod,
    /// Pods that are ready at the beginning.
    pub first: usize,
    /// Time from the start of a pod until it is ready.
    pub start: Duration,
    /// Time between two scrapes of a pod.
    pub scrape_every: Duration,
}

/// A simulation of pods that came and went.
#[derive(Clone, Debug)]
pub struct Scaled {
    /// What became of the requests.
    pub run: Run,
    /// Seconds that pods were there, from the start of each, its loading included, until it was gone or all was over.
    pub pod_s: f64,
    /// The most pods that were there at once, those that load or drain included.
    pub most_pods: usize,
}

/// Serves `requests`, which are in the order of their arrivals, with pods of which `scaler` says how many there are to be.
pub fn drive_scaled(
    growth: Growth<'_>,
    dispatcher: Box<dyn Dispatcher>,
    requests: &[SimRequest],
    scaler: &mut dyn Scaler,
) -> Scaled {
    let first: Vec<SimPod> = (0..growth.first).map(growth.pod).collect();
    let mut world = World::new(&first, growth.scrape_every, dispatcher, requests);
    world.fleet = Some(Fleet {
        growth,
        scaler,
        since: vec![Time::ZERO; first.len()],
        starting: VecDeque::new(),
        left: Duration::ZERO,
        most: first.len(),
        scaled_at: Time::ZERO,
    });
    world.run(&mut |_, _| true);
    let (pod_s, most_pods) = (world.pod_time().as_secs_f64(), world.most_pods());
    Scaled { run: world.end(), pod_s, most_pods }
}

/// How the pods of a world come and go.
pub(super) struct Fleet<'a> {
    growth: Growth<'a>,
    scaler: &'a mut dyn Scaler,
    /// Since when each pod that was ever ready is there, its loading included; by its number.
    since: Vec<Time>,
    /// When those that load began to, the first of them in front.
    starting: VecDeque<Time>,
    /// For how long all those were there that are not any more.
    left: Duration,
    most: usize,
    scaled_at: Time,
}

impl Fleet<'_> {
    /// What is due next, and when; nobody looks any more once no request is to come.
    pub(super) fn next(&self, to_come: bool) -> Option<(Time, Due)> {
        let up = self.starting.front().map(|from| (from.plus(self.growth.start), Due::PodUp));
        let look = to_come.then(|| (self.scaled_at.plus(SCALE_EVERY), Due::Scale));
        up.into_iter().chain(look).min()
    }

    /// Gives up as many of those that load as there are, at most so many; says how many.
    fn give_up(&mut self, now: Time, most: usize) -> usize {
        let kept = self.starting.len().saturating_sub(most);
        let given_up = self.starting.split_off(kept);
        self.left += given_up.iter().map(|from| now.since(*from)).sum::<Duration>();
        given_up.len()
    }
}

impl World<'_> {
    /// Somebody looks at the pods and says how many there are to be.
    pub(super) fn scale(&mut self) {
        let open = self.pods.iter().filter(|pod| pod.stage() == Stage::Open);
        let scrapes: Vec<Scrape> = open.map(|pod| pod.scrape(None)).collect();
        let Some(fleet) = &mut self.fleet else { return };
        fleet.scaled_at = self.now;
        let (ready, starting) = (scrapes.len(), fleet.starting.len());
        let wanted = fleet.scaler.pods(&View {
            now: self.now,
            ready,
            starting,
            pods: &scrapes,
            waiting: self.dispatcher.waiting(),
            need: self.dispatcher.need(self.now),
        });
        let too_few = wanted.saturating_sub(ready + starting);
        fleet.starting.extend(std::iter::repeat_n(self.now, too_few));
        let too_many = (ready + starting).saturating_sub(wanted);
        let too_many = too_many - fleet.give_up(self.now, too_many);
        let there = self.pods.iter().filter(|pod| !pod.is_gone()).count() + fleet.starting.len();
        fleet.most = fleet.most.max(there);
        for pod in self.idlest(too_many) {
            self.drain(pod);
        }
    }

    /// A pod has loaded its model.
    pub(super) fn pod_up(&mut self) {
        let Some(fleet) = &mut self.fleet else { return };
        let Some(from) = fleet.starting.pop_front() else { return };
        fleet.since.push(from);
        let pod = (fleet.growth.pod)(self.pods.len());
        self.open(&pod);
    }

    /// So many of the pods that take requests: those with the fewest in flight, the youngest of equals.
    fn idlest(&self, count: usize) -> Vec<usize> {
        let open = self.pods.iter().enumerate().filter(|(_, pod)| pod.stage() == Stage::Open);
        let mut open: Vec<_> =
            open.map(|(number, pod)| (pod.in_flight(), Reverse(number))).collect();
        open.sort_unstable();
        open.into_iter().take(count).map(|(_, Reverse(number))| number).collect()
    }

    /// A pod gets nothing new, ends what it has, and is gone.
    fn drain(&mut self, number: usize) {
        let Some(pod) = self.pods.get_mut(number) else { return };
        pod.enter(Stage::Draining);
        self.tell(Event::PodPhase(PodId(number as u32), Phase::Draining));
        self.close_if_done(number);
    }

    /// A pod that drains and has nothing any more is gone.
    pub(super) fn close_if_done(&mut self, number: usize) {
        let Some(fleet) = &mut self.fleet else { return };
        let drained = |pod: &&mut Pod| pod.stage() == Stage::Draining && pod.in_flight() == 0;
        let Some(pod) = self.pods.get_mut(number).filter(drained) else { return };
        pod.enter(Stage::Gone);
        let since = fleet.since.get(number).copied().unwrap_or_default();
        fleet.left += self.now.since(since);
        self.tell(Event::PodDown(PodId(number as u32)));
    }

    /// For how long all pods together were there until now.
    fn pod_time(&self) -> Duration {
        let Some(fleet) = &self.fleet else { return Duration::ZERO };
        let there = fleet.since.iter().zip(&self.pods).filter(|(_, pod)| !pod.is_gone());
        let since = there.map(|(since, _)| since).chain(&fleet.starting);
        fleet.left + since.map(|since| self.now.since(*since)).sum::<Duration>()
    }

    fn most_pods(&self) -> usize {
        self.fleet.as_ref().map_or(0, |fleet| fleet.most)
    }
}
