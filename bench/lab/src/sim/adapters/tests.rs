use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use weir_core::{Action, Dispatch, Event, PodId, PromptSize, Request, RequestId, Snapshot, Time};
use weir_engine::{EngineConfig, hardware};
use weir_schema::Prediction;

use crate::sim::{
    Dispatcher, Halves, LoraScrape, Pool, Run, Served, Several, SimPod, SimRequest, drive,
};

/// What was told at each moment: the most adapters by the scrape, and what it says of them.
type Scrapes = Vec<(Option<u32>, Option<LoraScrape>)>;
type Told = Arc<Mutex<Scrapes>>;

/// Sends everything to the first pod it knows, and writes down what that says.
#[derive(Default)]
struct Listener {
    pod: Option<PodId>,
    adapters: Option<LoraScrape>,
    told: Told,
}

impl Dispatcher for Listener {
    fn adapters(&mut self, pod: PodId, scrape: &LoraScrape) {
        assert_eq!(Some(pod), self.pod);
        self.adapters = Some(scrape.clone());
    }

    fn handle(&mut self, now: Time, event: Event, actions: &mut Vec<Action>) {
        match event {
            Event::PodUp(spec) => self.pod = Some(spec.id),
            Event::Scraped(_, scrape) => {
                self.told.lock().push((scrape.max_loras, self.adapters.take()));
            }
            Event::Arrive(request) => actions.push(Action::Dispatch(Dispatch {
                id: request.id,
                pod: self.pod.unwrap(),
                attempt: 1,
                arrived: request.arrived,
                waited: now.since(request.arrived),
                slo: request.slo,
                sequences: 1,
                uncached_tokens: 0.0,
                prediction: Prediction::default(),
                tokens_per_event: 1.0,
            })),
            _ => {}
        }
    }

    fn waiting(&self) -> usize {
        0
    }

    fn snapshot(&self, _now: Time) -> Option<Snapshot> {
        None
    }
}

fn pod(max_loras: u32) -> SimPod {
    let hardware = hardware("h100-qwen3-32b-tp2").unwrap();
    SimPod::of(EngineConfig { max_loras, ..EngineConfig::for_hardware(hardware) }, 0)
}

/// One request each second, of so many tokens, for these adapters.
fn requests(adapters: &[Option<&str>], output_tokens: u32) -> Vec<SimRequest> {
    let one = |(place, adapter): (usize, &Option<&str>)| SimRequest {
        request: Request {
            adapter: adapter.map(Arc::from),
            ..Request::new(
                RequestId(place as u64),
                Time::from_micros(place as u64 * 1_000_000),
                PromptSize::Tokens(100),
            )
        },
        class: 0,
        input_tokens: 100,
        output_tokens,
        blocks_with_answer: None,
        after: None,
    };
    adapters.iter().enumerate().map(one).collect()
}

fn run(pod: SimPod, requests: &[SimRequest]) -> (Run, Scrapes) {
    let told = Told::default();
    let listener = Listener { told: Arc::clone(&told), ..Listener::default() };
    let run = drive(&[pod], Duration::from_millis(100), Box::new(listener), requests);
    let told = std::mem::take(&mut *told.lock());
    (run, told)
}

fn scrape(most: u32, running: &[&str], waiting: &[&str]) -> LoraScrape {
    let names = |list: &[&str]| list.iter().map(|name| Arc::from(*name)).collect();
    LoraScrape { most, running: names(running), waiting: names(waiting) }
}

#[test]
fn adapters_that_do_not_run_together_wait_and_are_told_by_name() {
    let (run, told) = run(pod(1), &requests(&[None, Some("y"), Some("x"), Some("y")], 200));
    let served: Vec<&Served> = run.served().collect();
    let ended_ms = |one: &Served| one.arrived.as_micros() as f64 / 1e3 + one.e2e_ms;
    let begun_ms = |one: &Served| one.arrived.as_micros() as f64 / 1e3 + one.ttft_ms;
    assert!(begun_ms(served[2]) > ended_ms(served[1]), "x waits for y");
    assert!(begun_ms(served[3]) < ended_ms(served[1]), "which the second y passes");
    assert!(begun_ms(served[2]) > ended_ms(served[3]));
    let first = told.iter().position(|(_, adapters)| adapters.is_some()).unwrap();
    assert!((9..=11).contains(&first), "the first second is of the model itself: {first}");
    let said: Vec<_> =
        told[first..].iter().map(|(_, adapters)| adapters.clone().unwrap()).collect();
    for expected in [scrape(1, &["y"], &[]), scrape(1, &["y"], &["x"]), scrape(1, &["x"], &[])] {
        assert!(said.contains(&expected), "{expected:?}");
    }
}

#[test]
fn a_pod_says_from_the_start_how_many_it_runs_unless_it_is_not_to() {
    let requests = requests(&[None, Some("x")], 10);
    let most = |pod: SimPod| {
        let (_, told) = run(pod, &requests);
        assert!(told.len() > 5 && told.iter().all(|(most, _)| *most == told[0].0));
        told[0].0
    };
    assert_eq!((most(pod(4)), most(pod(0))), (Some(4), None));
    assert_eq!(most(SimPod { tells_max_loras: false, ..pod(4) }), None);
}

#[test]
fn without_a_bound_requests_run_as_they_would_without_adapters() {
    let names = [Some("x"), Some("y"), Some("x")];
    let quick = |max_loras| {
        let mut pod = pod(max_loras);
        pod.engine.lora_load_ms = 0.0;
        pod
    };
    let (plain, said) = run(quick(0), &requests(&[None; 3], 200));
    assert!(said.iter().all(|(_, adapters)| adapters.is_none()));
    assert_eq!(run(quick(0), &requests(&names, 200)).0.outcomes, plain.outcomes);
    assert_ne!(run(quick(1), &requests(&names, 200)).0.outcomes, plain.outcomes);
}

#[test]
fn all_of_several_dispatchers_are_told_and_of_two_halves_the_one_that_has_the_pod() {
    let hears = |told: &Told| told.lock().iter().any(|(_, adapters)| adapters.is_some());
    let each: [Told; 2] = Default::default();
    let listeners = each.iter().map(|told| {
        let listener = Listener { told: Arc::clone(told), ..Listener::default() };
        Box::new(listener) as Box<dyn Dispatcher>
    });
    let requests = requests(&[Some("x"), Some("x")], 50);
    let several = Several::new(listeners.collect());
    drive(&[pod(1)], Duration::from_millis(100), Box::new(several), &requests);
    assert!(each.iter().all(hears));

    let halves: [Told; 2] = Default::default();
    let [prefill, decode] = halves.each_ref().map(|told| {
        let listener = Listener { told: Arc::clone(told), ..Listener::default() };
        Box::new(listener) as Box<dyn Dispatcher>
    });
    let mut pool = Pool::of("h100-qwen3-32b-tp2", 2, None).unwrap();
    pool.divide(1);
    let dispatcher = Halves::new(prefill, decode, &pool);
    let run = drive(&pool.pods, pool.scrape_every, Box::new(dispatcher), &requests);
    assert_eq!(run.served().count(), 2);
    assert!(halves.iter().all(hears), "the prompt's pod runs the adapter as well");
}
