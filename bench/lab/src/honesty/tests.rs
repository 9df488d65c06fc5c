use super::{compare::Comparison, simulated};
use crate::real::{
    Figures, Got, Prediction, Slice,
    tests::{pool, slice},
};

/// Figures with this TTFT and attainment.
fn figures(slice: &Slice, ttft_ms: f64, tpot_ms: f64, missed: usize) -> Figures {
    let got = |place: usize| {
        let miss = slice.compared().start + missed > place;
        let ttft_ms = (!miss).then_some(ttft_ms);
        Got { class: 0, ttft_ms, tpot_ms: ttft_ms.map(|_| tpot_ms) }
    };
    let run: Vec<Got> = (0..slice.requests.len()).map(got).collect();
    Figures::of(slice, &run, 0.0)
}

#[test]
fn ten_percent_and_two_points_hold_and_more_does_not() {
    let mut slice = slice(60.0);
    slice.classes.truncate(1);
    let real = figures(&slice, 100.0, 20.0, 0);
    let holds = |simulated: Figures| Comparison::new(&slice, &real, &[simulated], (1.0, 0.1)).holds;
    assert!(holds(figures(&slice, 109.0, 21.9, 0)));
    assert!(!holds(figures(&slice, 111.0, 20.0, 0)));
    assert!(!holds(figures(&slice, 100.0, 17.9, 0)));
    let points = |points: usize| slice.compared().len() * points / 100;
    assert!(holds(figures(&slice, 100.0, 20.0, points(2))));
    assert!(!holds(figures(&slice, 100.0, 20.0, points(3) + 1)));
    let text =
        Comparison::new(&slice, &real, &[figures(&slice, 111.0, 20.0, 0)], (1.0, 0.1)).for_people();
    assert!(text.contains("+11.0 %") && text.contains("does not hold"), "{text}");
}

#[test]
fn a_machine_that_was_too_busy_to_tell_is_named() {
    let slice = slice(20.0);
    let real = figures(&slice, 100.0, 20.0, 0);
    let says = |ttft_ms: f64, lag_ms: f64| {
        let simulated = [figures(&slice, ttft_ms, 20.0, 0)];
        Comparison::new(&slice, &real, &simulated, (1.0, lag_ms)).for_people()
    };
    assert!(says(150.0, 5.0).ends_with("does not hold."));
    assert!(says(150.0, 36.0).contains("too busy"));
    assert!(says(100.0, 36.0).ends_with("The simulation holds."));
}

#[test]
fn a_simulation_of_the_slice_serves_every_request() {
    let slice = slice(15.0);
    let runs = simulated::run(&slice, &pool(), Prediction::Fitted, &[1, 2]).unwrap();
    assert_eq!((runs.len(), runs[0].len()), (2, slice.requests.len()));
    assert!(runs.iter().flatten().all(|got| got.ttft_ms.is_some_and(|ms| ms > 15.0)));
    assert_ne!(runs[0], runs[1], "each has noise of its own");
}
