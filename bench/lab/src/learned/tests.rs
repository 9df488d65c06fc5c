use std::time::Duration;

use weir_schema::Predict as _;

use super::*;
use crate::{
    contender::Contender,
    sim::{Outcome, Pool, Run, Several, drive},
    trace::Arrival,
    workload::{Objectives, Replay, Source},
};

/// Rows of made-up lengths, one every 100 ms.
fn replay() -> Replay {
    let row = |number: u32| Arrival {
        at_s: f64::from(number) / 10.0,
        input_tokens: 100 + (number * 7919) % 1900,
        output_tokens: 10 + (number * 104_729) % 120,
        class: None,
        prefix: vec![],
    };
    Replay::new("rows".to_owned(), (0..1000).map(row).collect()).unwrap()
}

/// Small trees: what is shown here needs no accuracy.
fn training() -> Training {
    let learn = weir_train::TrainConfig { trees: 10, depth: 3, ..Default::default() };
    Training { interval: Duration::from_secs(20), takes: Duration::from_secs(3), learn }
}

fn serve(count: usize) -> Run {
    let pool = Pool::of("h100-qwen3-32b-tp2", 2, None).unwrap();
    let requests = replay().requests(12.0, count, &Objectives::default(), 1).unwrap();
    let weir = Contender::named("weir").unwrap();
    let dispatcher = dispatcher(&weir, &pool, &training(), 1).unwrap();
    drive(&pool.seeded(1), pool.scrape_every, dispatcher, &requests)
}

#[test]
fn bundles_come_as_virtual_time_passes_and_not_before_they_are_made() {
    let run = serve(700);
    let versions: Vec<(f64, u64)> = run
        .served()
        .map(|one| {
            (one.arrived.as_micros() as f64 / 1e6 + one.wait_ms / 1e3, one.predicted.model_version)
        })
        .collect();
    let first = versions.iter().filter(|(_, version)| *version > 0);
    let first_s = first.map(|(at_s, _)| *at_s).fold(f64::INFINITY, f64::min);
    assert!((23.0..26.0).contains(&first_s), "the first bundle serves at {first_s} s");
    assert!(versions.iter().any(|(_, version)| *version >= 2), "there is a second one");
    let status = run.end.unwrap().predictor;
    assert!(status.failures == 0 && status.model_version >= 2, "{status:?}");
}

#[test]
fn each_of_two_dispatchers_trains_by_itself_of_its_own_samples() {
    let pool = Pool::of("h100-qwen3-32b-tp2", 2, None).unwrap();
    let requests = replay().requests(12.0, 1000, &Objectives::default(), 1).unwrap();
    let weir = Contender::named("weir").unwrap();
    let both = || {
        let each = [1, 2].map(|seed| dispatcher(&weir, &pool, &training(), seed).unwrap());
        let several = Box::new(Several::new(each.into()));
        drive(&pool.seeded(1), pool.scrape_every, several, &requests)
    };
    let run = both();
    let predicted = |place: usize| {
        let of_it = run.outcomes.iter().skip(place).step_by(2);
        let served = of_it.filter_map(|outcome| match outcome {
            Outcome::Served(served) => Some(served.predicted),
            _ => None,
        });
        served.filter(|one| one.model_version > 0).collect::<Vec<_>>()
    };
    let (first, second) = (predicted(0), predicted(1));
    assert!(first.len() > 100 && second.len() > 100, "{} and {}", first.len(), second.len());
    assert_eq!(both().outcomes, run.outcomes);
}

#[test]
fn the_same_requests_give_the_same_bundles() {
    assert_eq!(serve(400).outcomes, serve(400).outcomes);
}

#[test]
fn a_folder_without_a_bundle_is_an_error_that_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let error = recorded(dir.path()).unwrap_err().to_string();
    assert!(error.contains(&dir.path().display().to_string()), "{error}");
}

#[test]
fn a_recorded_bundle_serves_from_the_first_request_on() {
    let (dir, run) = (tempfile::tempdir().unwrap(), serve(300));
    let (spool, bundles) = (dir.path().join("spool"), dir.path().join("bundles"));
    std::fs::create_dir(&spool).unwrap();
    let lines: Vec<String> =
        run.samples.iter().map(|sample| serde_json::to_string(sample).unwrap() + "\n").collect();
    std::fs::write(spool.join(weir_schema::spool::segment_name(1)), lines.concat()).unwrap();
    let learn = weir_train::TrainConfig { spool, bundles: bundles.clone(), ..training().learn };
    let at_unix_ms = run.ended.as_micros() / 1000;
    weir_train::Trainer::open(learn).unwrap().run_at(at_unix_ms).unwrap();

    let row = run.samples[0].row;
    let mut predicted = [weir_schema::Prediction::default()];
    recorded(&bundles).unwrap().predict(&[row], &mut predicted).unwrap();
    let (one, of_one) = (predicted[0], recorded(&bundles.join("v000000000001")));
    assert_eq!((one.model_version, one.ttft_source), (1, weir_schema::Source::Onnx));
    of_one.unwrap().predict(&[row], &mut predicted).unwrap();
    assert_eq!(predicted[0], one);
}
