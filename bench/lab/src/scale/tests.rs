use std::{path::Path, sync::Arc, time::Duration};

use clap::Parser;
use parking_lot::Mutex;
use weir_core::{Action, Event, Need, Phase, PodId, Request, Scrape, Snapshot, Time};

use super::{
    args::without_shape,
    rule::{Autoscaler, Limits, Rule, STABLE_FOR},
    run::{self, Plan, simulate},
    *,
};
use crate::{
    contender::Contender,
    sim::{
        Dispatcher, Growth, Outcome, SCALE_EVERY, Scaled, Scaler, SimRequest, View, drive,
        drive_scaled,
    },
    study::requests_of,
};

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    asked: ScaleArgs,
}

fn asked(words: &str) -> Result<ScaleArgs, String> {
    let line = Line::try_parse_from(std::iter::once("scale").chain(words.split_whitespace()));
    line.map(|line| line.asked).map_err(|error| error.to_string())
}

/// Long enough for a few pods to come and go, and short enough for a test.
fn plan() -> Plan {
    let words =
        "--scenario bi-pattern+steps:1,4,1 --mean-pods 2 --hours 0.15 --load 0.6 --start 40";
    asked(words).unwrap().plan().unwrap()
}

fn scrape(running: u32, waiting: u32, kv_usage: f32) -> Scrape {
    Scrape { running, waiting, kv_usage, ..Scrape::default() }
}

/// A view at `at_s` seconds of pods that all say the same.
fn view(at_s: u64, pods: &[Scrape], starting: usize) -> View<'_> {
    let now = Time::from_millis(at_s * 1000);
    View { now, ready: pods.len(), starting, pods, waiting: 0, need: None }
}

const WIDE: Limits = Limits { least: 1, most: 1000 };

fn once(rule: &str, view: &View<'_>) -> usize {
    Autoscaler::new(rule.parse().unwrap(), WIDE).pods(view)
}

#[test]
fn a_rule_is_called_what_it_says_and_one_that_makes_no_sense_is_refused() {
    for name in ["fixed:8", "weir", "weir-all", "weir-load:0.8", "running:24", "kv:0.5", "queue:8"]
    {
        assert_eq!(name.parse::<Rule>().unwrap().to_string(), name);
    }
    for name in ["", "fixed", "fixed:0", "fixed:1.5", "running:0", "kv:-1", "queue:inf", "weir:2"] {
        assert!(name.parse::<Rule>().is_err(), "{name}");
    }
    assert!("random".parse::<Rule>().unwrap_err().contains("weir-load:LOAD"));
}

#[test]
fn a_mean_within_a_tenth_of_its_target_changes_nothing() {
    let pods = |running| vec![scrape(running, 0, 0.0); 10];
    assert_eq!(once("running:100", &view(15, &pods(110), 0)), 10);
    assert_eq!(once("running:100", &view(15, &pods(111), 0)), 12);
    // Below it, what there was is kept for a while.
    assert_eq!(once("running:100", &view(15, &pods(50), 0)), 10);
    assert_eq!(once("kv:0.5", &view(15, &[scrape(0, 0, 0.75); 4], 0)), 6);
}

#[test]
fn pods_that_load_count_as_pods_that_do_nothing_where_more_are_wanted() {
    let pods = [scrape(20, 0, 0.0); 4];
    assert_eq!(once("running:10", &view(15, &pods, 0)), 8);
    assert_eq!(once("running:10", &view(15, &pods, 3)), 8);
    // 80 for 8 pods is what is asked for, and 80 for 9 would be a call for fewer.
    assert_eq!(once("running:10", &view(15, &pods, 4)), 8);
    assert_eq!(once("running:10", &view(15, &pods, 5)), 9);
}

#[test]
fn a_load_is_one_of_the_pods_that_are_ready() {
    let pods = [Scrape::default(); 5];
    let of = |load, starting| {
        let need = Some(Need { load, ..Need::default() });
        once("weir-load:0.8", &View { need, ..view(15, &pods, starting) })
    };
    assert_eq!((of(1.6, 0), of(1.6, 3), of(0.84, 0), of(0.84, 1)), (10, 10, 5, 6));
    assert_eq!(once("weir-load:0.8", &view(15, &pods, 2)), 7, "nothing is said: as it is");
    let need = Some(Need { load: f64::NAN, ..Need::default() });
    assert_eq!(once("weir-load:0.8", &View { need, ..view(15, &pods, 0) }), 5);
    let nobody = View { need: Some(Need { load: 3.0, ..Need::default() }), ..view(15, &[], 2) };
    assert_eq!(once("weir-load:0.8", &nobody), 2);
}

#[test]
fn what_the_dispatcher_wants_is_taken_from_it_and_put_through_the_same_way() {
    let pods = [Scrape::default(); 5];
    let need = Some(Need { pods: 7, pods_for_all: 9, ..Need::default() });
    let view = View { need, ..view(15, &pods, 0) };
    assert_eq!((once("weir", &view), once("weir-all", &view)), (7, 9));
    let many = [Scrape::default(); 20];
    let need = Some(Need { pods: 22, ..Need::default() });
    assert_eq!(once("weir", &View { need, ready: 20, pods: &many, ..view }), 20, "within a tenth");
}

#[test]
fn requests_that_wait_are_counted_wherever_they_do() {
    let pods = [scrape(50, 3, 0.9); 2];
    assert_eq!(once("queue:2", &View { waiting: 4, ..view(15, &pods, 0) }), 5);
    assert_eq!(once("queue:2", &View { waiting: 4, ..view(15, &pods, 3) }), 5);
}

#[test]
fn a_step_doubles_the_pods_or_adds_four_and_no_limit_is_passed() {
    let wanted = |ready, limits| {
        let pods = vec![scrape(1000, 0, 0.0); ready];
        Autoscaler::new(Rule::Running(1.0), limits).pods(&view(15, &pods, 0))
    };
    assert_eq!([1, 3, 4, 10].map(|ready| wanted(ready, WIDE)), [5, 7, 8, 20]);
    assert_eq!(wanted(10, Limits { least: 1, most: 15 }), 15);
    let idle = view(15, &[], 0);
    assert_eq!(Autoscaler::new(Rule::Queue(1.0), Limits { least: 3, most: 9 }).pods(&idle), 3);
    let fixed = Autoscaler::new(Rule::Fixed(30), Limits { least: 3, most: 9 }).pods(&idle);
    assert_eq!(fixed, 30, "a fixed number heeds no limit");
}

#[test]
fn fewer_pods_are_had_only_when_fewer_were_wanted_for_five_minutes() {
    let mut rule = Autoscaler::new(Rule::Queue(1.0), WIDE);
    let looks = STABLE_FOR.as_secs() / SCALE_EVERY.as_secs();
    let mut had = 10;
    let mut look = |turn: u64, waiting| {
        let pods = vec![Scrape::default(); had];
        had = rule.pods(&View { waiting, ..view(15 * turn, &pods, 0) });
        had
    };
    // The pods that there are at the first look were wanted then.
    assert!((1..=looks).all(|turn| look(turn, 4) == 10));
    assert_eq!(look(looks + 1, 6), 6, "the highest of the last five minutes");
    assert_eq!(look(looks + 2, 2), 6);
    assert_eq!(look(looks + 3, 9), 9, "more at once");
    assert!((1..looks).all(|turn| look(looks + 3 + turn, 1) == 9));
    assert_eq!(look(2 * looks + 3, 1), 1);
}

/// What a dispatcher was told and did, and when.
#[derive(Clone, Debug, PartialEq)]
enum Told {
    Up(PodId),
    Draining(PodId),
    Down(PodId),
    Scraped(PodId),
    Sent(PodId),
}

type Log = Arc<Mutex<Vec<(Time, Told)>>>;

/// Writes down what the dispatcher in it is told of pods.
struct Watched(Box<dyn Dispatcher>, Log);

impl Dispatcher for Watched {
    fn handle(&mut self, now: Time, event: Event, actions: &mut Vec<Action>) {
        let told = match &event {
            Event::PodUp(spec) => Some(Told::Up(spec.id)),
            Event::PodPhase(pod, Phase::Draining) => Some(Told::Draining(*pod)),
            Event::PodDown(pod) => Some(Told::Down(*pod)),
            Event::Scraped(pod, _) => Some(Told::Scraped(*pod)),
            _ => None,
        };
        self.1.lock().extend(told.map(|told| (now, told)));
        self.0.handle(now, event, actions);
        let sent = actions.iter().filter_map(|action| match action {
            Action::Dispatch(dispatch) => Some((now, Told::Sent(dispatch.pod))),
            _ => None,
        });
        self.1.lock().extend(sent);
    }

    fn waiting(&self) -> usize {
        self.0.waiting()
    }

    fn takes_whole(&self, now: Time, request: &Request, local_tokens: f64) -> bool {
        self.0.takes_whole(now, request, local_tokens)
    }

    fn need(&self, now: Time) -> Option<Need> {
        self.0.need(now)
    }

    fn snapshot(&self, now: Time) -> Option<Snapshot> {
        self.0.snapshot(now)
    }
}

/// Wants so many pods, look by look, and in the end the last number; writes down what it saw.
struct Script(Vec<usize>, Vec<(Time, usize, usize)>);

impl Scaler for Script {
    fn pods(&mut self, view: &View<'_>) -> usize {
        assert_eq!(view.ready, view.pods.len());
        let wanted = self.0.get(self.1.len()).or(self.0.last()).copied();
        self.1.push((view.now, view.ready, view.starting));
        wanted.unwrap_or_default()
    }
}

/// The requests of the plan with these pods, look by look.
fn scripted(first: usize, pods: &[usize]) -> (Vec<SimRequest>, Scaled, Vec<(Time, Told)>, Script) {
    let plan = plan();
    let setting = &plan.setting;
    let requests = requests_of(setting, plan.load, 1).unwrap();
    let log = Log::default();
    let weir = setting.dispatcher(&Contender::named("weir").unwrap(), 1).unwrap();
    let growth = Growth {
        pod: &|number| setting.pool.pods[0].seeded(1, number),
        first,
        start: plan.start,
        scrape_every: setting.pool.scrape_every,
    };
    let mut script = Script(pods.to_vec(), Vec::new());
    let watched = Box::new(Watched(weir, log.clone()));
    let scaled = drive_scaled(growth, watched, &requests, &mut script);
    let log = std::mem::take(&mut *log.lock());
    (requests, scaled, log, script)
}

fn at(log: &[(Time, Told)], told: &Told) -> Vec<Time> {
    log.iter().filter(|(_, one)| one == told).map(|(at, _)| *at).collect()
}

#[test]
fn a_pod_that_drains_gets_nothing_new_ends_what_it_has_and_is_gone() {
    // In the crowd, when every pod has something.
    let looks = [vec![3; 13], vec![1]].concat();
    let (_, scaled, log, _) = scripted(3, &looks);
    let gone: Vec<PodId> = log
        .iter()
        .filter_map(|(_, told)| if let Told::Down(pod) = told { Some(*pod) } else { None })
        .collect();
    assert_eq!(gone.len(), 2);
    let look = Time::from_millis(14 * 15_000);
    for pod in gone {
        assert_eq!(at(&log, &Told::Draining(pod)), [look]);
        let [down] = at(&log, &Told::Down(pod))[..] else { panic!() };
        assert!(down >= look);
        assert!(at(&log, &Told::Sent(pod)).iter().all(|sent| *sent <= look));
        assert!(at(&log, &Told::Scraped(pod)).iter().all(|seen| *seen <= down));
        let ends = scaled.run.served().filter(|one| one.pod == pod);
        let ends = ends.map(|one| one.arrived.as_micros() as f64 / 1000.0 + one.e2e_ms);
        let last_ms = ends.fold(0.0, f64::max);
        // It has something when it is told, and is gone at the end of the last of it.
        assert!(last_ms > look.as_micros() as f64 / 1000.0, "{last_ms}");
        assert!((last_ms - down.as_micros() as f64 / 1000.0).abs() < 0.01, "{last_ms} {down:?}");
    }
}

#[test]
fn a_pod_that_loads_serves_nothing_before_its_time_and_has_a_number_of_its_own() {
    let (_, scaled, log, script) = scripted(2, &[3, 3, 3, 3, 3, 1, 1, 1, 1, 4, 2, 3]);
    let ups: Vec<(Time, PodId)> = log
        .iter()
        .filter_map(|(at, told)| if let Told::Up(pod) = told { Some((*at, *pod)) } else { None })
        .collect();
    // At 15 s one, at 150 s three more of which two are given up at 165 s, and at 180 s one.
    let expected = [(0, 0), (0, 1), (55_000, 2), (190_000, 3), (220_000, 4)];
    assert_eq!(ups, expected.map(|(ms, pod)| (Time::from_millis(ms), PodId(pod))));
    assert_eq!(scaled.most_pods, 4);
    for (up, pod) in ups {
        let sent = at(&log, &Told::Sent(pod));
        assert!(!sent.is_empty() && sent.iter().all(|sent| *sent >= up), "{pod:?}");
        assert!(at(&log, &Told::Scraped(pod)).iter().all(|seen| *seen >= up));
    }
    let counts: Vec<_> = script.1.iter().map(|(_, ready, starting)| (*ready, *starting)).collect();
    assert_eq!(
        counts[..15],
        [
            (2, 0),
            (2, 1),
            (2, 1),
            (3, 0),
            (3, 0),
            (3, 0),
            (1, 0),
            (1, 0),
            (1, 0),
            (1, 0),
            (1, 3),
            (1, 1),
            (2, 1),
            (2, 1),
            (3, 0),
        ]
    );
}

#[test]
fn pod_seconds_are_those_from_each_start_to_each_end() {
    let (requests, scaled, log, script) = scripted(2, &[3, 3, 3, 3, 3, 1, 1, 1, 1, 4, 2, 3]);
    let ended = scaled.run.ended;
    let mut pod_s = 0.0;
    // Loading from the look on at which they were started.
    let since = [(0, 0), (1, 0), (2, 15_000), (3, 150_000), (4, 180_000)];
    for (pod, from_ms) in since {
        let to = at(&log, &Told::Down(PodId(pod))).first().copied().unwrap_or(ended);
        pod_s += to.since(Time::from_millis(from_ms)).as_secs_f64();
    }
    // Two were given up after one look.
    pod_s += 2.0 * SCALE_EVERY.as_secs_f64();
    assert!((scaled.pod_s - pod_s).abs() < 1e-6, "{} {pod_s}", scaled.pod_s);
    let last = requests.last().unwrap().request.arrived;
    let looks = last.as_micros() / SCALE_EVERY.as_micros() as u64;
    assert_eq!(script.1.len() as u64, looks, "nobody looks after the last arrival");
}

#[test]
fn every_request_has_one_outcome_when_nobody_is_ready_too() {
    let (requests, scaled, _, _) = scripted(0, &[0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 0, 1]);
    assert_eq!(scaled.run.outcomes.len(), requests.len());
    let refused = scaled.run.outcomes.iter().filter(|one| matches!(one, Outcome::Refused(_)));
    let refused = refused.count();
    assert_eq!(scaled.run.served().count() + refused, requests.len());
    assert!(refused > 50 && scaled.run.served().count() > 50, "{refused} of {}", requests.len());
    let end = scaled.run.end.as_ref().unwrap();
    assert_eq!((end.waiting, end.in_flight, end.counters.ignored), (0, 0, 0));
    let (requests, never, _, _) = scripted(0, &[0]);
    assert_eq!(never.run.outcomes.len(), requests.len());
    assert_eq!((never.run.served().count(), never.pod_s, never.most_pods), (0, 0.0, 0));
}

#[test]
fn a_fixed_number_of_pods_gives_what_those_pods_give_when_nobody_looks() {
    let plan = plan();
    let (requests, scaled, moments) = simulate(&plan, Rule::Fixed(3), 2).unwrap();
    let setting = &plan.setting;
    let mut pool = setting.pool.clone();
    pool.pods = vec![pool.pods[0].clone(); 3];
    let weir = setting.dispatcher(&Contender::named("weir").unwrap(), 2).unwrap();
    let run = drive(&pool.seeded(2), pool.scrape_every, weir, &requests);
    assert_eq!(scaled.run.outcomes, run.outcomes);
    assert_eq!((scaled.run.ended, scaled.run.engines), (run.ended, run.engines));
    assert_eq!(scaled.most_pods, 3);
    assert!((scaled.pod_s - 3.0 * run.ended.since(Time::ZERO).as_secs_f64()).abs() < 1e-6);
    assert!(moments.iter().all(|one| (one.ready, one.starting, one.wanted) == (3, 0, 3)));
}

#[test]
fn a_rule_does_the_same_every_time_and_its_figures_add_up() {
    let plan = plan();
    let [one, other] = [(); 2].map(|()| simulate(&plan, Rule::Weir, 1).unwrap());
    assert_eq!(one.1.run.outcomes, other.1.run.outcomes);
    assert_eq!((one.1.pod_s, &one.2), (other.1.pod_s, &other.2));
    let figures = run::play(&plan, Rule::Weir, 1).unwrap();
    assert_eq!(figures.pod_hours, one.1.pod_s / 3600.0);
    let (seen, came): (usize, usize) =
        (figures.series.iter().map(|one| one.arrivals).sum(), one.0.len());
    let behind = |one: &&SimRequest| {
        let looks = figures.series.len() as u64 * SCALE_EVERY.as_micros() as u64;
        one.request.arrived.as_micros() >= looks
    };
    assert_eq!(seen + one.0.iter().filter(behind).count(), came);
    assert!(figures.series.iter().all(|one| one.in_time <= one.arrivals));
    assert!(figures.series.iter().all(|one| one.load.is_some() && one.held.is_some()));
    assert_eq!(figures.in_time, figures.in_time_top, "of one band");
    assert!(figures.series.iter().any(|one| one.wanted > 2), "it grew for the crowd");
}

#[test]
fn the_rate_is_that_of_the_mean_pods_and_the_run_as_long_as_asked() {
    let of = |words: &str| asked(words).unwrap().plan();
    let plan = of("--scenario sharegpt+diurnal --mean-pods 3 --load 0.5 --hours 2").unwrap();
    let rate = plan.setting.capacity_rps() * 0.5;
    assert_eq!(plan.setting.requests, (rate * 7200.0).round() as usize);
    assert_eq!((plan.first, plan.start), (3, Duration::from_secs(120)));
    let limited = of("--scenario sharegpt --mean-pods 3 --most 2").unwrap();
    assert_eq!(limited.first, 2);
    let failed = |words: &str| of(words).map(|_| ()).unwrap_err().to_string();
    assert!(failed("--scenario ladder").contains("rates of its own"));
    assert!(failed("--scenario sharegpt --least 5 --most 4").contains("more than"));
    assert!(failed("--scenario sharegpt --mean-pods 10000 --hours 1000").contains("simulated"));
    for wrong in ["--hours 0", "--load 0", "--rules kv", "--least 0", "--trace x", ""] {
        let words = format!("--scenario sharegpt {wrong}");
        assert_eq!(asked(words.trim()).is_err(), !wrong.is_empty(), "{wrong}");
    }
    assert!(asked("--rules weir").is_err(), "no traffic");
}

#[test]
fn the_file_of_a_trace_is_told_from_its_shape() {
    let of = |text: &'static str| without_shape(Path::new(text)).to_str().unwrap();
    assert_eq!(of("a/b.csv+flash:3"), "a/b.csv");
    assert_eq!((of("a/b.csv"), of("a/b+c.csv")), ("a/b.csv", "a/b+c.csv"));
}

#[test]
fn a_row_and_a_line_of_the_series_say_what_was_seen() {
    let mut plan = plan();
    plan.setting.requests = 400;
    let seeds = [1, 2].map(|seed| run::play(&plan, Rule::Fixed(2), seed).unwrap());
    let row = ScaleRow::of(&plan, Rule::Fixed(2), &seeds);
    assert_eq!((row.rule.as_str(), row.seeds, row.requests, row.most_pods), ("fixed:2", 2, 760, 2));
    assert!((row.mean_pods - 2.0).abs() < 1e-9 && row.pod_hours_ci.is_some());
    let text = table::of(std::slice::from_ref(&row)).to_string();
    assert!(text.contains("fixed:2") && text.contains(" ± "), "{text}");
    let json = serde_json::to_value(&row).unwrap();
    assert!(json["in_time_top"].is_f64() && json["ttft_ms_p95"].is_f64(), "{json}");
    let mut file = Vec::new();
    let looks = seeds[0].series.len();
    series::write(&mut file, &[(Rule::Fixed(2), seeds.to_vec())]).unwrap();
    let file = String::from_utf8(file).unwrap();
    let head = "rule,t_s,arrivals,ready,starting,wanted,load,held,in_time";
    assert!(file.starts_with(head) && file.contains("\nfixed:2,15.0,"), "{file}");
    assert_eq!(file.lines().count(), looks + 1);
}
