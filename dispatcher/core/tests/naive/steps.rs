//! Random interleavings as data, and how they become events.
//!
//! A step names its request or pod by a number that is looked up among those it makes sense for, so
//! that most steps do something; one in ten is wild and may name what is unknown or long over.

use std::{sync::Arc, time::Duration};

use proptest::{collection::vec, option, prelude::*, sample::select};
use weir_core::{
    Band, Bounds, CacheInfo, Control, End, EndKind, Event, Gate, HeadRule, Phase, PodClass, PodId,
    PodSpec, Policy, Progress, PromptSize, Pulse, Request, RequestId, Role, SchedulerConfig,
    Scrape, Slo, Time,
};

use super::{curious, model::Tale, moody::Mood, watched::Watched};

/// Pods that a case knows by number.
const PODS: u32 = 4;

/// One interleaving.
#[derive(Clone, Debug)]
pub struct Case {
    pub config: SchedulerConfig,
    pub mood: Mood,
    pub pods: Vec<u16>,
    pub steps: Vec<Step>,
}

/// Time passes, then something happens.
#[derive(Clone, Debug)]
pub struct Step {
    after_us: u32,
    deed: Deed,
}

#[derive(Clone, Debug)]
enum Deed {
    Arrive(Draft),
    Cancel(Pick),
    Undelivered(Pick),
    FirstToken(Pick),
    Progress(Vec<(Pick, u32)>, Vec<(u32, u16)>),
    End(Pick, EndKind, Option<u32>, Option<u32>),
    Scraped(u32, Scrape),
    PodUp(u32, u16),
    PodPhase(u32, Phase),
    PodDown(u32),
    CancelSome(Vec<Pick>),
    Move(Pick, i8),
    Pause(Hold),
    Resume(Hold),
    Tick,
    StoodStill,
}

/// What an operator holds: everything, a band, or the lane that a request is in.
#[derive(Clone, Copy, Debug)]
enum Hold {
    Pool,
    Band(i8),
    LaneOf(Pick),
}

/// A request by number, or any that was ever heard of and some that were not.
#[derive(Clone, Copy, Debug)]
struct Pick {
    number: u16,
    wild: bool,
}

#[derive(Clone, Debug)]
struct Draft {
    band: i8,
    slo: Slo,
    prompt: PromptSize,
    max_output_tokens: Option<u32>,
    sequences: u32,
    streamed: bool,
    body_bytes: u32,
    family: Option<(u8, u8)>,
    tenant: Option<bool>,
    adapter: Option<u8>,
    age_ms: u8,
    ttl: Option<Duration>,
    immediate: bool,
}

/// Interleavings of `length` steps under any of the rules and in any of the moods.
pub fn cases(
    rules: &'static [(Policy, HeadRule)],
    moods: impl Strategy<Value = Mood>,
    length: usize,
) -> impl Strategy<Value = Case> {
    let steps = vec((time(), deed()), length / 2..=length);
    (config(rules), moods, vec(0..4u16, 0..4), any::<bool>(), steps).prop_map(
        |(config, mood, pods, cold, steps)| {
            let mut steps: Vec<Step> =
                steps.into_iter().map(|(after_us, deed)| Step { after_us, deed }).collect();
            // Half of the cases know no prompt blocks: there the strict order can be checked.
            steps.iter_mut().filter(|_| cold).for_each(|step| {
                if let Deed::Arrive(draft) = &mut step.deed {
                    draft.family = None;
                }
            });
            Case { config, mood, pods, steps }
        },
    )
}

/// Moods of a predictor that fails.
pub fn failing() -> impl Strategy<Value = Mood> {
    prop_oneof![3 => any::<u64>().prop_map(Mood::Failing), 1 => any::<u64>().prop_map(Mood::Mad)]
}

fn config(rules: &'static [(Policy, HeadRule)]) -> impl Strategy<Value = SchedulerConfig> {
    let bounds = (
        select(&[2usize, 5, 50][..]),
        select(&[9_000u64, 60_000][..]),
        select(&[200u64, 3000][..]),
        select(&[2u64, 8][..]),
        select(&[1u64, 4, 60][..]),
        select(&[1u64, 3][..]),
    );
    let binds = select(&[0.0, 0.0, 0.1][..]);
    let late = select(&[1.0, 0.5][..]);
    let bounds =
        bounds.prop_map(|(max_requests, max_bytes, predicted_ms, wait, late, no_pods)| Bounds {
            max_requests,
            max_bytes,
            max_predicted_wait: Duration::from_millis(predicted_ms),
            max_wait: Duration::from_secs(wait),
            max_wait_late: Duration::from_secs(late),
            max_wait_no_pods: Duration::from_secs(no_pods),
        });
    let of = (select(rules), bounds, 1..4u32, binds, late);
    of.prop_map(|((policy, head_rule), bounds, max_attempts, bind_share, late_share)| {
        let mut config = SchedulerConfig {
            policy,
            bounds,
            max_attempts,
            classes: classes(),
            ..SchedulerConfig::default()
        };
        (config.pull.head_rule, config.pull.bind_share) = (head_rule, bind_share);
        config.pull.late_share = late_share;
        config
    })
}

/// A class as it comes, one with a small chunk and little memory, one of another role; a pod may
/// also name a fourth, which nobody configured.
fn classes() -> Vec<PodClass> {
    let small = PodClass {
        name: Arc::from("small"),
        chunk_tokens: 512,
        max_sequences: 4,
        kv_blocks: 500,
        ..PodClass::default()
    };
    let decode = PodClass { name: Arc::from("decode"), role: Role::Decode, ..PodClass::default() };
    vec![PodClass::default(), small, decode]
}

fn time() -> impl Strategy<Value = u32> {
    prop_oneof![
        3 => Just(0),
        5 => 0..20_000u32,
        2 => 20_000..400_000u32,
        1 => 400_000..4_000_000u32,
    ]
}

fn deed() -> impl Strategy<Value = Deed> {
    let streams = vec((pick(), 0..200u32), 0..4);
    let pulses = vec((0..PODS + 1, 0..20u16), 0..3);
    let counted = || option::of(prop_oneof![9 => 0..2000u32, 1 => Just(u32::MAX)]);
    prop_oneof![
        24 => draft().prop_map(Deed::Arrive),
        3 => pick().prop_map(Deed::Cancel),
        4 => pick().prop_map(Deed::Undelivered),
        8 => pick().prop_map(Deed::FirstToken),
        5 => (streams, pulses).prop_map(|(streams, pulses)| Deed::Progress(streams, pulses)),
        10 => (pick(), end_kind(), counted(), counted())
            .prop_map(|(pick, kind, output, prompt)| Deed::End(pick, kind, output, prompt)),
        4 => (0..PODS + 1, scrape()).prop_map(|(pod, scrape)| Deed::Scraped(pod, scrape)),
        4 => (0..PODS, 0..4u16).prop_map(|(pod, class)| Deed::PodUp(pod, class)),
        4 => (0..PODS + 1, phase()).prop_map(|(pod, phase)| Deed::PodPhase(pod, phase)),
        1 => (0..PODS + 1).prop_map(Deed::PodDown),
        2 => vec(pick(), 0..4).prop_map(Deed::CancelSome),
        2 => (pick(), -1..3i8).prop_map(|(pick, band)| Deed::Move(pick, band)),
        2 => hold().prop_map(Deed::Pause),
        3 => hold().prop_map(Deed::Resume),
        14 => Just(Deed::Tick),
        1 => Just(Deed::StoodStill),
    ]
}

fn pick() -> impl Strategy<Value = Pick> {
    (any::<u16>(), prop::bool::weighted(0.1)).prop_map(|(number, wild)| Pick { number, wild })
}

fn hold() -> impl Strategy<Value = Hold> {
    prop_oneof![
        1 => Just(Hold::Pool),
        2 => (-1..3i8).prop_map(Hold::Band),
        3 => pick().prop_map(Hold::LaneOf),
    ]
}

fn end_kind() -> impl Strategy<Value = EndKind> {
    select(
        &[
            EndKind::Complete,
            EndKind::ClientGone,
            EndKind::PodError,
            EndKind::BadRequest,
            EndKind::PodFailed,
        ][..],
    )
}

fn phase() -> impl Strategy<Value = Phase> {
    let phases = [Phase::Ready, Phase::Ready, Phase::Broken, Phase::Cordoned, Phase::Draining];
    select(phases.to_vec())
}

fn scrape() -> impl Strategy<Value = Scrape> {
    let count = || prop_oneof![4 => 0..200u32, 1 => Just(u32::MAX)];
    let usage = prop_oneof![
        6 => 0.0..1.0f32,
        1 => Just(f32::NAN),
        1 => Just(f32::INFINITY),
        1 => Just(-1.0f32),
    ];
    let blocks = option::of(select(&[0u32, 400, 19_000, u32::MAX][..]));
    let size = option::weighted(0.2, select(&[0u32, 4, 64][..]));
    let tokens = option::weighted(0.2, select(&[0u64, 6_000, 300_000][..]));
    let cache = (blocks, size, tokens, option::weighted(0.3, any::<bool>())).prop_map(
        |(blocks, block_tokens, tokens, prefix_caching)| CacheInfo {
            blocks,
            block_tokens,
            found_tokens: block_tokens.map(|tokens| 3 * tokens),
            tokens,
            prefix_caching,
        },
    );
    let gauges = (count(), count(), usage, cache, any::<bool>(), any::<Option<u64>>());
    gauges.prop_map(|(running, waiting, kv_usage, cache, shared, generated)| Scrape {
        running,
        waiting,
        kv_usage,
        cache,
        generated,
        cache_use: None,
        max_loras: (waiting % 3 == 0).then_some(running % 3),
        engines: running % 3,
        shared,
    })
}

fn draft() -> impl Strategy<Value = Draft> {
    let millis = |choices: &'static [u64]| {
        option::weighted(0.8, select(choices).prop_map(Duration::from_millis))
    };
    let slo = (millis(&[50, 400, 1500, 6000]), millis(&[10, 30, 100]))
        .prop_map(|(ttft, tpot)| Slo { ttft, tpot });
    let prompt = prop_oneof![
        2 => (1..20_000u32).prop_map(PromptSize::Tokens),
        2 => (1..1000u32).prop_map(PromptSize::Tokens),
        1 => (1..80_000u32).prop_map(PromptSize::Bytes),
    ];
    let shape = (
        option::weighted(0.6, prop_oneof![1 => Just(0), 6 => 1..500u32]),
        prop_oneof![4 => Just(1u32), 1 => 2..5u32],
        prop::bool::weighted(0.75),
        0..5000u32,
        option::of((0..3u8, 1..40u8)),
        option::of(any::<bool>()),
        option::weighted(0.4, 0..4u8),
        0..50u8,
    );
    let ttl = select(&[1u64, 300, 1500, 20_000][..]).prop_map(Duration::from_millis);
    let patience = (option::weighted(0.2, ttl), prop::bool::weighted(0.2));
    let parts = (-1..3i8, slo, prompt, shape, patience);
    parts.prop_map(|(band, slo, prompt, shape, (ttl, immediate))| {
        let (max_output_tokens, sequences, streamed, body_bytes, family, tenant, adapter, age_ms) =
            shape;
        // Nothing streams when there is nothing to decode.
        let streamed = streamed && max_output_tokens != Some(0);
        Draft {
            band,
            slo,
            prompt,
            max_output_tokens,
            sequences,
            streamed,
            body_bytes,
            family,
            tenant,
            adapter,
            age_ms,
            ttl,
            immediate,
        }
    })
}

impl Draft {
    fn request(&self, id: RequestId, now: Time) -> Request {
        // Names of blocks are equal only after equal beginnings, as the index demands.
        let family = |(family, length): (u8, u8)| {
            (0..u64::from(length)).map(move |block| u64::from(family) * 1000 + block + 1)
        };
        let age = u64::from(self.age_ms) * 1000;
        let arrived = Time::from_micros(now.as_micros().saturating_sub(age));
        Request {
            max_output_tokens: self.max_output_tokens,
            sequences: self.sequences,
            slo: self.slo,
            band: Band(self.band),
            tenant: self.tenant.map(|one| Arc::from(if one { "one" } else { "two" })),
            adapter: self.adapter.map(|one| Arc::from(format!("adapter-{one}"))),
            body_bytes: self.body_bytes,
            blocks: self.family.into_iter().flat_map(family).collect(),
            streamed: self.streamed,
            expires: self.ttl.map_or(Time::NEVER, |ttl| arrived.plus(ttl)),
            immediate: self.immediate,
            name: Arc::from(format!("name-{}", id.0)),
            ..Request::new(id, arrived, self.prompt)
        }
    }
}

/// Plays a case to its end: everything is closed, ended, and looked at once more.
pub fn play(case: &Case, watched: &mut Watched) {
    for (id, class) in (0..).zip(&case.pods) {
        watched.pod_up(id, *class);
    }
    let mut steps = [0u64; PODS as usize + 1];
    for step in &case.steps {
        watched.now = watched.now.plus(Duration::from_micros(step.after_us.into()));
        let event = event(&step.deed, watched, &mut steps);
        watched.send(event);
    }
    finish(watched);
}

fn finish(watched: &mut Watched) {
    watched.send(Event::Close);
    let kinds = [EndKind::Complete, EndKind::ClientGone, EndKind::PodFailed];
    let flying: Vec<RequestId> = watched.naive.flying().map(|(tale, _)| tale.request.id).collect();
    for (id, turn) in flying.into_iter().zip(0usize..) {
        let event = match kinds.get(turn % 4) {
            Some(kind) => Event::End(end(id, *kind, None, None, watched.now)),
            None => Event::Undelivered(id),
        };
        watched.send(event);
    }
    let open = watched.naive.tales.values().find(|tale| tale.waits() || tale.stay().is_some());
    assert!(open.is_none(), "I1: no outcome for {open:?}");
    let snapshot = watched.scheduler.snapshot(watched.now);
    assert_eq!((snapshot.waiting, snapshot.waiting_bytes, snapshot.in_flight), (0, 0, 0), "I4");
    for pod in snapshot.pods {
        assert_eq!((pod.pending, pod.residents), (0, 0), "I3: {pod:?}");
        assert_eq!((pod.pending_tokens, pod.kv_tokens), (0, 0), "I3: {pod:?}");
    }
}

fn event(deed: &Deed, watched: &Watched, steps: &mut [u64]) -> Event {
    let now = watched.now;
    match deed {
        Deed::Arrive(draft) => {
            let id = RequestId(watched.naive.tales.len() as u64);
            Event::Arrive(Box::new(draft.request(id, now)))
        }
        Deed::Cancel(pick) => Event::Cancel(choose(watched, *pick, Tale::waits)),
        Deed::Undelivered(pick) => Event::Undelivered(choose(watched, *pick, flies)),
        Deed::FirstToken(pick) => Event::FirstToken(choose(watched, *pick, starts)),
        Deed::Progress(streams, pulses) => Event::Progress(Progress {
            events: streams.iter().map(|stream| count(watched, *stream)).collect(),
            pulses: pulses.iter().map(|pulse| beat(now, *pulse, steps)).collect(),
        }),
        Deed::End(pick, kind, output, prompt) => {
            Event::End(end(choose(watched, *pick, flies), *kind, *output, *prompt, now))
        }
        Deed::Scraped(pod, scrape) => Event::Scraped(PodId(*pod), *scrape),
        Deed::PodUp(pod, class) => {
            let name = Arc::from(format!("pod-{pod}"));
            Event::PodUp(PodSpec { id: PodId(*pod), name, class: *class, group: None })
        }
        Deed::PodPhase(pod, phase) => Event::PodPhase(PodId(*pod), *phase),
        Deed::PodDown(pod) => Event::PodDown(PodId(*pod)),
        Deed::CancelSome(picks) => {
            let ids = picks.iter().map(|pick| choose(watched, *pick, Tale::waits));
            Event::Control(Control::Cancel(ids.collect()))
        }
        Deed::Move(pick, band) => {
            Event::Control(Control::Move(choose(watched, *pick, Tale::waits), Band(*band)))
        }
        Deed::Pause(hold) => Event::Control(Control::Pause(gate(watched, *hold))),
        Deed::Resume(hold) => Event::Control(Control::Resume(gate(watched, *hold))),
        Deed::Tick => Event::Tick,
        Deed::StoodStill => Event::StoodStill,
    }
}

fn gate(watched: &Watched, hold: Hold) -> Gate {
    match hold {
        Hold::Pool => Gate::Pool,
        Hold::Band(band) => Gate::Band(Band(band)),
        Hold::LaneOf(pick) => {
            let id = choose(watched, pick, Tale::waits);
            let page = curious::everything(watched);
            let lane = page.iter().find(|one| one.id == id).map(|one| one.lane.clone());
            let key = lane.and_then(|name| watched.scheduler.lane_called(&name));
            key.map_or(Gate::Band(Band(0)), Gate::Lane)
        }
    }
}

fn choose(watched: &Watched, pick: Pick, apt: fn(&Tale) -> bool) -> RequestId {
    let tales = &watched.naive.tales;
    let number = usize::from(pick.number);
    let apt: Vec<RequestId> =
        tales.values().filter(|tale| apt(tale)).map(|tale| tale.request.id).collect();
    match apt.get(number % apt.len().max(1)) {
        Some(id) if !pick.wild => *id,
        _ => RequestId((number % (tales.len() + 2)) as u64),
    }
}

const fn flies(tale: &Tale) -> bool {
    tale.stay().is_some()
}

fn starts(tale: &Tale) -> bool {
    tale.request.streamed && tale.stay().is_some_and(|stay| !stay.seen)
}

/// A stream that has come further by some tokens. Counts never fall.
fn count(watched: &Watched, (pick, further): (Pick, u32)) -> (RequestId, u32) {
    let id = choose(watched, pick, flies);
    let tale = watched.naive.tales.get(&id);
    let stay = tale.and_then(|tale| Some((tale.request.sequences, tale.stay()?.generated)));
    let so_far = stay.map_or(0, |(sequences, generated)| sequences * generated);
    (id, so_far + further.max(1))
}

fn beat(now: Time, (pod, further): (u32, u16), steps: &mut [u64]) -> (PodId, Pulse) {
    let count = steps.get_mut(pod as usize).map_or(0, |steps| {
        *steps += u64::from(further);
        *steps
    });
    (PodId(pod), Pulse { steps: count, last_step_at: now })
}

/// The end of a request now.
pub const fn end(
    id: RequestId,
    kind: EndKind,
    output_tokens: Option<u32>,
    prompt_tokens: Option<u32>,
    now: Time,
) -> End {
    End { id, kind, output_tokens, events: 0, prompt_tokens, last_token_at: Some(now) }
}
