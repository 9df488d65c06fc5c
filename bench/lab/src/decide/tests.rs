//! The measurement as small as it goes.

use clap::Parser;

use super::{
    args::DecideArgs,
    drive::{Course, drive},
    evaluator::Evaluator,
    queue::{self, Leaves},
    table::{self, Decided, Turned},
};

fn course(depth: usize) -> Course {
    Course {
        pods: 4,
        qps: 400.0,
        patterns: 3,
        load: 1.0,
        unstreamed: 0.0,
        unpromised: 0.0,
        depth,
        warm_up: 100,
        decisions: 400,
        seed: 1,
        is_timed: true,
        handicap: 0,
    }
}

fn decided(depth: usize) -> Decided {
    let course = course(depth);
    let predictor = Evaluator::Prior.predictor(std::path::Path::new("")).unwrap();
    Decided::of(&course, "prior", drive(&course, predictor, false))
}

#[test]
fn every_request_is_decided_and_every_event_is_billed() {
    let run = decided(0);
    assert_eq!(run.decisions, 400);
    assert!(run.events_per_decision >= 3.0, "arrival, first token and end: {run:?}");
    assert!(run.rows_per_decision >= 0.5 && run.cpu_us_per_decision > 0.0, "{run:?}");
    assert!(run.p50_us <= run.p99_us && run.p99_us <= run.p999_us, "{run:?}");
    let share = run.cpu_us_per_decision * run.qps / 1e6;
    assert!((run.cpu_share / share - 1.0).abs() < 0.5, "{share} {run:?}");
}

#[test]
fn of_responses_that_are_not_streamed_nothing_is_told_before_their_end() {
    let course = Course { unstreamed: 1.0, ..course(0) };
    let predictor = Evaluator::Prior.predictor(std::path::Path::new("")).unwrap();
    let run = Decided::of(&course, "prior", drive(&course, predictor, false));
    assert_eq!(run.decisions, 400);
    assert!(!run.kinds().contains("first token") && run.kinds().contains("end"), "{}", run.kinds());
    assert!(decided(0).kinds().contains("first token"));
}

#[test]
fn in_a_large_pool_few_pods_are_asked_about_whatever_is_promised() {
    for unpromised in [0.0, 0.5, 1.0] {
        let course = Course { pods: 60, qps: 6000.0, unpromised, ..course(0) };
        let predictor = Evaluator::Prior.predictor(std::path::Path::new("")).unwrap();
        let run = Decided::of(&course, "prior", drive(&course, predictor, false));
        assert_eq!(run.decisions, 400);
        assert!(run.rows_per_decision < 30.0, "{unpromised} {run:?}");
    }
}

#[test]
fn the_backlog_waits_to_the_end_and_keeps_nobody_from_going() {
    let run = decided(300);
    assert_eq!((run.decisions, run.depth), (400, 300));
    assert!(run.waiting < 50 && run.refused < 50, "{run:?}");
}

#[test]
fn a_pod_that_takes_one_of_the_backlog_is_free_again() {
    // Pods fall idle. If one of the backlog kept the pod that it then goes to, nothing would be given out and this would not end.
    let course = Course { patterns: 1, load: 0.1, ..course(300) };
    let predictor = Evaluator::Prior.predictor(std::path::Path::new("")).unwrap();
    let run = Decided::of(&course, "prior", drive(&course, predictor, false));
    assert_eq!((run.decisions, run.depth), (400, 300));
    assert!(run.waiting < 50 && run.refused < 50, "{run:?}");
}

#[test]
fn the_board_alone_is_measured_at_any_depth() {
    for leaves in [Leaves::Head, Leaves::Anyone] {
        assert!(queue::turnover_us(50, 7, (500, leaves), true) > 0.0);
    }
    assert!(queue::longest_us(500, 7) > 0.0);
}

#[test]
fn there_is_a_table_and_a_picture_of_each_axis_that_has_two_values() {
    let (runs, folder) = ([decided(0), decided(10)], tempfile::tempdir().unwrap());
    let turned =
        [10, 20].map(|depth| Turned { depth, head_us: 0.5, turnover_us: 1.0, longest_us: 9.0 });
    assert!(table::decisions(&runs).to_string().contains("decisions/s"));
    table::plot(&runs, &turned, folder.path()).unwrap();
    let mut files: Vec<_> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    assert_eq!(files, ["decide-depth.svg", "decide-queue.svg"]);
}

#[test]
fn runs_of_two_rates_are_told_apart_in_table_and_picture() {
    let (folder, slow) = (tempfile::tempdir().unwrap(), decided(0));
    let other = Decided { pods: 8, ..slow.clone() };
    let runs = [slow.clone(), other.clone()].map(|run| Decided { qps: 200.5, ..run });
    let runs = [runs.to_vec(), vec![slow, other]].concat();
    let text = table::decisions(&runs).to_string();
    assert!(text.contains("requests/s |") && text.contains(" 200.5 |"), "{text}");
    assert!(runs[0].kinds().contains("200.5 requests/s"), "{}", runs[0].kinds());
    table::plot(&runs, &[], folder.path()).unwrap();
    let picture = std::fs::read_to_string(folder.path().join("decide-pods.svg")).unwrap();
    assert!(picture.contains("200.5 requests/s") && picture.contains("400 requests/s"));
}

#[test]
fn what_makes_no_measurement_is_refused() {
    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        decide: DecideArgs,
    }
    let parse = |words: [&str; 2]| Line::try_parse_from(["decide"].iter().chain(&words));
    for words in [["--patterns", "0"], ["--pods", "0"], ["--decisions", "0"]] {
        assert!(parse(words).unwrap_err().to_string().contains(words[0]), "{words:?}");
    }
    for words in [["--load", "-1"], ["--qps", "-1"], ["--unstreamed", "-1"], ["--unpromised", "2"]]
    {
        let error = parse(words).unwrap().decide.check().unwrap_err().to_string();
        assert!(error.contains(words[0]), "{error}");
    }
}
