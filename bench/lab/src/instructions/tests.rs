//! The comparison without callgrind, and the workloads without counting.

use super::{
    InstructionsArgs,
    callgrind::collected,
    stored::Stored,
    verdict::{Counted, Verdict, table},
    work,
};

fn counted(count: u64, stored: Option<u64>) -> Counted {
    Counted { work: &work::ALL[0], count, stored }
}

#[test]
fn the_guard_trips_above_the_tolerance_and_tells_of_a_gain() {
    for (count, stored, same, verdict) in [
        (102_900, Some(100_000), true, Verdict::Kept),
        (103_100, Some(100_000), true, Verdict::More),
        (96_900, Some(100_000), true, Verdict::Fewer),
        (200_000, Some(100_000), false, Verdict::Unjudged),
        (1, None, true, Verdict::Unjudged),
    ] {
        assert_eq!(counted(count, stored).verdict(same), verdict, "{count} {stored:?} {same}");
    }
    let text = table(&[counted(110, Some(100))], true).to_string();
    assert!(text.contains("+10.00 %") && text.contains("MORE"), "{text}");
}

#[test]
fn the_count_is_read_from_what_callgrind_says() {
    let said =
        "==7== Events    : Ir\n==7== Collected : 123456\n==7== \n==7== I   refs:      123,456\n";
    assert_eq!(collected(said).unwrap(), 123_456);
    assert!(collected("==7== nothing").unwrap_err().to_string().contains("nothing"));
}

#[test]
fn what_is_stored_is_of_the_workloads_and_says_its_compiler() {
    let stored = Stored::built_in().unwrap();
    assert!(stored.compiler.starts_with("rustc "), "{}", stored.compiler);
    assert!(stored.counts.keys().all(|name| work::Work::named(name).is_ok()), "{stored:?}");
}

#[derive(clap::Parser)]
struct Line {
    #[command(flatten)]
    instructions: InstructionsArgs,
}

#[test]
fn only_the_workloads_that_are_asked_for_are_counted() {
    let names = |words: &str| {
        let words = std::iter::once("instructions").chain(words.split_whitespace());
        let line = <Line as clap::Parser>::try_parse_from(words).unwrap();
        let chosen = line.instructions.chosen().map_err(|error| error.to_string())?;
        Ok(chosen.iter().map(|work| work.name).collect::<Vec<_>>())
    };
    assert_eq!(names("--only hop-s,queue"), Ok(vec!["queue-10000", "hop-small"]));
    assert_eq!(names("").map(|all| all.len()), Ok(work::ALL.len()));
    let error: String = names("--only hop,typo").unwrap_err();
    assert!(error.contains("\"typo\"") && error.contains("hop-token"), "{error}");
}

#[test]
fn a_workload_of_the_whole_program_is_not_done_in_this_one() {
    assert!(work::Work::named("hop-small").unwrap().run(0).is_err());
}

#[test]
fn a_workload_that_does_not_exist_is_an_error() {
    assert!(work::Work::named("decide-7").is_err());
}
