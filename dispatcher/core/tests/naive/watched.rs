//! A scheduler with the model beside it: every event goes to both, and both must agree.

use std::{sync::Arc, time::Duration};

use weir_core::{
    Action, Control, Dispatch, Event, PodId, PodSpec, PromptSize, Reason, Refusal, Request,
    RequestId, Scheduler, SchedulerConfig, Time,
};

use super::{
    check::{self, Call},
    curious,
    model::Naive,
    moody::{Mood, Moody},
};

/// A scheduler under watch.
pub struct Watched {
    pub scheduler: Scheduler,
    pub naive: Naive,
    pub now: Time,
    pub mood: Mood,
    pub refused: Vec<Refusal>,
    /// Whether an operator looks at everything after every step.
    pub curious: bool,
    /// Every action so far as text, when kept.
    pub log: Option<Vec<String>>,
}

impl Watched {
    pub fn new(config: SchedulerConfig, mood: Mood) -> Self {
        Self {
            scheduler: Scheduler::new(config.clone(), Box::new(Moody::new(mood))),
            naive: Naive::new(config),
            now: Time::ZERO,
            mood,
            refused: Vec::new(),
            curious: false,
            log: None,
        }
    }

    /// A pod joins.
    pub fn pod_up(&mut self, id: u32, class: u16) {
        let name = Arc::from(format!("pod-{id}"));
        self.send(Event::PodUp(PodSpec { id: PodId(id), name, class, group: None }));
    }

    /// A streamed request of 1000 tokens without objectives arrives, changed by `build`.
    pub fn arrive(&mut self, build: impl FnOnce(&mut Request)) -> RequestId {
        let id = RequestId(self.naive.tales.len() as u64);
        let mut request =
            Request { body_bytes: 1000, ..Request::new(id, self.now, PromptSize::Tokens(1000)) };
        build(&mut request);
        self.send(Event::Arrive(Box::new(request)));
        id
    }

    /// Lets time pass, with a tick at the end of it.
    pub fn pass(&mut self, time: Duration) {
        self.now = self.now.plus(time);
        self.send(Event::Tick);
    }

    /// The pod that a request is on.
    pub fn pod_of(&self, id: RequestId) -> Option<PodId> {
        self.naive.tales.get(&id)?.stay().map(|stay| stay.pod)
    }

    /// Sends an event to both and checks everything that must be true.
    pub fn send(&mut self, event: Event) {
        let name = name(&event);
        let (late, paused) = (self.saying(Reason::Late), self.saying(Reason::Paused));
        let opened = matches!(&event, Event::Control(Control::Resume(_) | Control::Move(..)));
        self.naive.hear(self.now, &event);
        let plain = self.naive.waiting().all(|tale| tale.request.blocks.is_empty());
        let pulled = !matches!(event, Event::Progress(_) | Event::Scraped(..) | Event::StoodStill);
        let mut actions = Vec::new();
        self.scheduler.handle(self.now, event, &mut actions);
        let mut dispatched: Vec<Dispatch> = Vec::new();
        for action in &actions {
            self.naive.obey(self.now, name, action);
            match action {
                Action::Dispatch(dispatch) => dispatched.push(*dispatch),
                Action::Refuse(refusal) => self.refused.push(*refusal),
                Action::Sample(_) => {}
            }
        }
        if self.curious {
            curious::look(self);
        }
        if let Some(log) = &mut self.log {
            return log.push(format!("{:?} {name} {actions:?}", self.now));
        }
        let sound = self.mood.steps_are_sound();
        let now = self.now;
        let call = Call { name, now, pulled, plain, sound, late, paused, opened, dispatched };
        check::all(&self.naive, &self.scheduler, &call);
    }

    fn saying(&self, reason: Reason) -> Vec<RequestId> {
        let waiting = self.naive.waiting().map(|tale| tale.request.id);
        waiting.filter(|id| self.scheduler.reason(*id) == Some(reason)).collect()
    }
}

const fn name(event: &Event) -> &'static str {
    match event {
        Event::Arrive(_) => "arrive",
        Event::Cancel(_) => "cancel",
        Event::Undelivered(_) => "undelivered",
        Event::FirstToken(_) => "first token",
        Event::Progress(_) => "progress",
        Event::End(_) => "end",
        Event::Scraped(..) => "scraped",
        Event::PodUp(_) | Event::PodUpAs(..) => "pod up",
        Event::PodPhase(..) => "pod phase",
        Event::PodDown(_) => "pod down",
        Event::Tick => "tick",
        Event::StoodStill => "stood still",
        Event::Reconfigure(_) => "reconfigure",
        Event::Close => "close",
        Event::Control(_) => "control",
        Event::Told(_) => "told",
        Event::Adopt(_) => "adopt",
        Event::Declined(_) => "declined",
        Event::TurnedAway(_) => "turned away",
    }
}
