use clap::{Args as _, FromArgMatches as _};
use weir_core::Policy;

use super::{
    args::{VersusArgs, turns},
    standings::{Ran, Standings},
    way::Way,
};
use crate::real::{Gave, Got, Slice};

fn asked(line: &[&str]) -> VersusArgs {
    let line = ["versus"].iter().chain(line).copied();
    let matches = VersusArgs::augment_args(clap::Command::new("versus")).get_matches_from(line);
    VersusArgs::from_arg_matches(&matches).unwrap()
}

fn error(line: &[&str]) -> String {
    asked(line).contest().err().unwrap().to_string()
}

#[test]
fn what_makes_no_contest_is_said_before_anything_starts() {
    let nobody = ["versus", "--policy", "weir,nobody"];
    let command = VersusArgs::augment_args(clap::Command::new("versus"));
    let said = command.try_get_matches_from(nobody).unwrap_err().to_string();
    assert!(said.contains("nobody") && said.contains("llumnix-slo, ") && said.contains("direct"));
    assert!(error(&["--policy", "weir,direct"]).contains("one engine of your own"));
    assert!(error(&["--policy", "weir,weir"]).contains("twice"));
    assert!(error(&["--load", "0"]).contains("--load"));
    assert!(error(&["--classes", "gold:1"]).contains("no objectives"));
    let own = ["--policy", "weir,direct", "--engines", "127.0.0.1:1", "--for", "20"];
    assert!(asked(&own).contest().is_ok());
}

#[test]
fn every_round_has_requests_of_its_own_and_begins_with_the_next() {
    let contest = asked(&["--for", "20", "--rounds", "3"]).contest().unwrap();
    let lengths = |slice: &Slice| slice.requests.iter().map(|one| one.input_tokens).collect();
    let rounds: Vec<Vec<u32>> = contest.slices.iter().map(lengths).collect();
    assert!(rounds.len() == 3 && rounds[0] != rounds[1] && rounds[1] != rounds[2]);
    let ways = [Policy::Weir, Policy::Random, Policy::LeastRequest].map(Way::Weir);
    let seats = |round| turns(&ways, round).map(|(seat, _)| seat).collect::<Vec<_>>();
    assert_eq!([seats(0), seats(1), seats(5)], [[0, 1, 2], [1, 2, 0], [2, 0, 1]]);
}

#[test]
fn a_trace_goes_on_where_the_last_round_ended() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("own.csv");
    let rows: String = (0..4000).map(|n| format!("{n},{},40,gold\n", 100 + n)).collect();
    std::fs::write(&path, "arrival_s,input_tokens,output_tokens,class\n".to_owned() + &rows)
        .unwrap();
    let trace = path.to_str().unwrap();
    let line = ["--trace", trace, "--for", "10", "--rounds", "2"];
    let contest = asked(&line).contest().unwrap();
    let load = |round: usize| {
        let slice: &Slice = &contest.slices[round];
        // Behind the lone ones, in which nothing is shared.
        slice.requests[10..].iter().map(|one| one.input_tokens).collect::<Vec<_>>()
    };
    assert_eq!(load(0).last().unwrap() + 1, load(1)[0]);
    let more = [&line[..], &["--classes", "silver", "--slo", "silver=900/45"]].concat();
    assert_eq!(asked(&more).contest().unwrap().slices[0].classes[0].ttft_ms, 900.0, "one for all");
    let two = [&line[..], &["--classes", "silver,batch", "--slo", "silver=900/45"]].concat();
    assert!(error(&two).contains("gold"), "a row's class is not among them");
}

#[test]
fn standings_are_over_all_rounds_and_say_how_far_these_lie_apart() {
    let line = ["--for", "20", "--rounds", "2", "--classes", "interactive"];
    let contest = asked(&line).contest().unwrap();
    let ran = contest.slices.iter().zip([(100.0, 1.0), (3000.0, 30.0)]);
    let ran = ran.map(|(slice, (ttft_ms, lag_p99_ms))| {
        let got = Got { class: 0, ttft_ms: Some(ttft_ms), tpot_ms: Some(20.0) };
        Ran::of(slice, Gave { got: vec![got; slice.requests.len()], lag_p99_ms })
    });
    let way = [Way::Weir(Policy::Weir)];
    let standings = Standings::of(&contest.slices, &way, &[ran.collect()]);
    let compared: Vec<usize> = contest.slices.iter().map(|slice| slice.compared().len()).collect();
    let json = serde_json::to_value(&standings).unwrap();
    let row = &json["rows"][0];
    assert_eq!(row["attained_range"], serde_json::json!([0.0, 1.0]));
    assert_eq!(row["requests"], compared[0] + compared[1]);
    let share = compared[0] as f64 / (compared[0] + compared[1]) as f64;
    assert!((row["attained"].as_f64().unwrap() - share).abs() < 1e-9);
    let text = standings.for_people();
    assert!(text.contains("0.00 % to 100.00 %"), "{text}");
    assert!(
        text.contains("30.0 ms late") && text.contains("too busy"),
        "of the worst round: {text}"
    );
}
