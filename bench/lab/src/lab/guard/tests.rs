//! The guard holds, trips, and says so.

use std::path::Path;

use super::{
    slice::SLICES,
    stored::{Measured, Stored},
    *,
};

fn measured(ratio: f64) -> Measured {
    Measured {
        slice: "demo".to_owned(),
        traffic: None,
        load: 1.2,
        requests: 3000,
        seeds: 5,
        weir_rps: 10.0 * ratio,
        rival: "jspt".to_owned(),
        rival_rps: 10.0,
        ratio,
        interval: 0.05,
    }
}

fn stored(slices: Vec<Measured>) -> Stored {
    Stored { command: String::new(), slices }
}

fn code(judged: &[Judged<'_>]) -> String {
    format!("{:?}", exit_code(judged))
}

/// The smallest part of a slice that tells policies apart.
fn small() -> Slice {
    Slice { requests: 400, seeds: 3, rivals: &["round-robin"], ..SLICES[0] }
}

#[test]
fn a_ratio_has_fallen_when_it_is_below_the_stored_one_by_more_than_its_interval() {
    let stored = stored(vec![measured(2.0)]);
    for (ratio, verdict, ended) in [
        (1.94, Verdict::Fallen, ExitCode::FAILURE),
        (1.96, Verdict::Held, ExitCode::SUCCESS),
        (2.04, Verdict::Held, ExitCode::SUCCESS),
        (2.06, Verdict::Better, ExitCode::SUCCESS),
    ] {
        let now = [measured(ratio)];
        let judged = judge(&now, &stored);
        assert_eq!(judged[0].verdict, verdict, "{ratio}");
        assert_eq!(code(&judged), format!("{ended:?}"), "{ratio}");
    }
}

#[test]
fn what_is_not_stored_fails_and_another_trace_is_not_judged() {
    let stored = stored(vec![Measured { traffic: Some("old".to_owned()), ..measured(2.0) }]);
    let other = [Measured { traffic: Some("new".to_owned()), ..measured(0.1) }];
    let judged = judge(&other, &stored);
    assert_eq!((judged[0].verdict, judged[0].then), (Verdict::Elsewhere, None));
    assert_eq!(code(&judged), format!("{:?}", ExitCode::SUCCESS));
    let longer = [Measured { traffic: Some("old".to_owned()), requests: 1, ..measured(2.0) }];
    let judged = judge(&longer, &stored);
    assert_eq!(judged[0].verdict, Verdict::Unknown);
    assert_eq!(code(&judged), format!("{:?}", ExitCode::FAILURE));
}

#[test]
fn every_slice_is_stored_as_it_is_run() {
    let stored = Stored::built_in().unwrap();
    assert_eq!(stored.command, "weir-bench guard --renew");
    for slice in &SLICES {
        let of = stored.slices.iter().find(|one| one.slice == slice.name()).unwrap();
        let (load, requests, seeds) = (slice.load, slice.requests, slice.seeds);
        assert_eq!((of.load, of.requests, of.seeds), (load, requests, seeds), "{}", of.slice);
        assert_eq!(of.traffic.is_none(), slice.is_generated(), "{}", of.slice);
        assert!(slice.rivals.contains(&of.rival.as_str()), "{}", of.slice);
        assert!(of.interval > 0.0 && of.interval < of.ratio / 2.0, "{}", of.slice);
    }
    assert_eq!(stored.slices.len(), SLICES.len());
}

#[test]
fn a_worse_weir_trips_the_guard_and_the_same_one_does_not_on_any_number_of_threads() {
    let weir = Contender::named("weir").unwrap();
    let measure = |who: &Contender, threads| small().measure(who, None, threads).unwrap().unwrap();
    let then = stored(vec![measure(&weir, 1)]);
    let again = [measure(&weir, 2)];
    assert_eq!(again[0], then.slices[0]);
    let judged = judge(&again, &then);
    assert_eq!(
        (judged[0].verdict, code(&judged)),
        (Verdict::Held, format!("{:?}", ExitCode::SUCCESS))
    );
    let worse = [measure(&Contender::named("weir:push").unwrap(), 2)];
    let judged = judge(&worse, &then);
    assert_eq!(judged[0].verdict, Verdict::Fallen, "{worse:?} {then:?}");
    assert_eq!(code(&judged), format!("{:?}", ExitCode::FAILURE));
    let table = verdict::table(&judged, "weir:push").to_string();
    assert!(table.contains("weir:push") && table.contains("FALLEN"), "{table}");
    assert!(words(&judged, "weir:push", &[]).contains("--renew"));
}

#[test]
fn a_slice_of_a_trace_is_left_out_where_the_trace_is_not() {
    let slice = SLICES.iter().find(|slice| !slice.is_generated()).unwrap();
    let weir = Contender::named("weir").unwrap();
    assert!(slice.measure(&weir, None, 1).unwrap().is_none());
    assert!(slice.measure(&weir, Some(Path::new("/nowhere")), 1).unwrap().is_none());
    let folder = tempfile::tempdir().unwrap();
    let error = guard(&format!("--only {} --traces {}", slice.name(), folder.path().display()));
    let said = error.measured(&error.wanted().unwrap()).unwrap_err().to_string();
    assert!(said.contains(slice.name()) && said.contains("no file azure2023_conv.*"), "{said}");
    let words = words(&[], "weir", &["conv-two: not run".to_owned()]);
    assert!(words.contains("conv-two: not run") && words.contains("where it was measured"));
}

/// The guard of a command line, whatever the environment says.
fn guard(words: &str) -> GuardArgs {
    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        guard: GuardArgs,
    }
    let words = std::iter::once("guard").chain(words.split_whitespace());
    <Line as clap::Parser>::try_parse_from(words).unwrap().guard
}

#[test]
fn a_slice_that_nobody_knows_and_a_folder_that_is_not_there_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let there = format!("--traces {}", folder.path().display());
    let error = guard(&format!("{there} --only patterns,typo")).wanted().unwrap_err().to_string();
    assert!(error.contains("\"typo\"") && error.contains("servegen-one"), "{error}");
    let error = guard("--traces /nowhere --only patterns").wanted().unwrap_err().to_string();
    assert!(error.contains("/nowhere is no folder"), "{error}");
    let names = |words: &str| {
        let wanted = guard(&format!("{there} {words}")).wanted().unwrap();
        wanted.iter().map(|slice| slice.name()).collect::<Vec<_>>()
    };
    assert_eq!(names("--only c,dem"), ["demo", "c-two", "conv-two"]);
    assert_eq!(names("").len(), SLICES.len());
    let unset = GuardArgs { traces: Some(PathBuf::new()), ..guard(&there) };
    assert!(unset.wanted().is_ok() && super::folder(unset.traces.as_deref()).is_none());
}

#[test]
fn a_subject_that_nobody_knows_is_an_error_with_those_that_are_known() {
    let error = guard("--subject foo").measured(&[]).unwrap_err().to_string();
    let begin = r#"--subject "foo": there is no policy "foo"; known are weir, round-robin"#;
    assert!(error.starts_with(begin), "{error}");
    assert_eq!(guard("").subject, WEIR);
}

#[test]
fn a_renewal_keeps_the_slices_that_were_not_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("guard.json");
    let conv = Measured { slice: "conv-two".to_owned(), ..measured(1.5) };
    Stored::read(&path).unwrap().renewed(vec![measured(2.0), conv.clone()]).write(&path).unwrap();
    Stored::read(&path).unwrap().renewed(vec![measured(3.0)]).write(&path).unwrap();
    let read = Stored::read(&path).unwrap();
    assert_eq!(read.slices, [measured(3.0), conv]);
    assert_eq!(read.command, "weir-bench guard --renew");
}
