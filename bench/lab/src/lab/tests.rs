//! The whole of it, as small as it goes.

use std::fs;

use super::*;

fn args(out: &Path, only: &str) -> LabArgs {
    LabArgs {
        out: out.to_owned(),
        traces: None,
        minutes: 1.0,
        seeds: 3,
        requests: Some(10),
        only: vec![only.to_owned()],
        threads: NonZeroUsize::new(2),
    }
}

#[test]
fn a_run_writes_every_row_of_its_table_a_page_and_pictures() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("runs")).unwrap();
    fs::write(folder.path().join("runs/old-full.json"), "not JSON").unwrap();
    let case = Case::named("ladder").unwrap();
    args(folder.path(), case.id).run().unwrap();
    let text = fs::read_to_string(folder.path().join("summary.json")).unwrap();
    let summary: Summary = serde_json::from_str(&text).unwrap();
    let ids: Vec<&str> = summary.targets.iter().map(|target| target.id.as_str()).collect();
    assert_eq!(ids, ["ladder/median-e2e", "ladder/median-ttft"]);
    for target in &summary.targets {
        assert_eq!(target.best_rival.as_deref(), Some("load-prefix-322"));
        assert!(target.passed.is_some() && target.interval.is_some(), "{target:?}");
        assert!(target.command.contains("--scenario ladder"), "{target:?}");
    }
    let page = fs::read_to_string(folder.path().join("report.html")).unwrap();
    assert!(page.contains("median TTFT (ms) against load-prefix-322"));
    assert!(!folder.path().join("runs/old-full.json").exists());
    assert!(folder.path().join("runs/ladder-full.json").exists());
}

#[test]
fn what_needs_a_trace_is_said_to_need_one() {
    let folder = tempfile::tempdir().unwrap();
    let (entries, left) =
        LabArgs { only: Vec::new(), ..args(folder.path(), "") }.entries().unwrap();
    assert!(entries.iter().all(|entry| matches!(entry.case.traffic, case::Traffic::Scenario(_))));
    let said = reasons(&left);
    assert!(said.iter().any(|line| line.starts_with("conv-one, conv-two, ")), "{said:?}");
    let targets: Vec<Target> = left.iter().flat_map(Left::targets).collect();
    assert!(targets.iter().all(|target| target.passed.is_none()));
    let notes = targets.iter().map(|target| target.note.as_deref().unwrap());
    assert!(notes.clone().all(|note| note.contains("set WEIR_TRACES")));
    let of_entries: usize = entries.iter().map(|entry| entry.rows.len()).sum();
    assert_eq!(of_entries + targets.len(), table().len());
    let error = args(folder.path(), "conv").run().unwrap_err().to_string();
    assert!(error.starts_with("nothing to run: conv-one, conv-two, "), "{error}");
    assert!(error.contains("set WEIR_TRACES") && !error.contains("cases are"), "{error}");
}

#[test]
fn a_name_that_is_no_case_is_an_error_that_lists_them() {
    let folder = tempfile::tempdir().unwrap();
    let error = args(folder.path(), "nowhere").run().unwrap_err();
    assert!(error.to_string().contains("c-two"), "{error}");
}

#[test]
fn a_wrong_argument_leaves_the_last_lab_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("summary.json");
    fs::write(&path, "precious").unwrap();
    let right = || args(folder.path(), "ladder");
    for wrong in [
        LabArgs { requests: Some(0), ..right() },
        LabArgs { minutes: f64::INFINITY, requests: None, ..right() },
        LabArgs { minutes: f64::NAN, ..right() },
        LabArgs { seeds: 2, ..right() },
        LabArgs { traces: Some(folder.path().join("no-traces")), ..right() },
        LabArgs { only: vec!["ladder".to_owned(), "laddr".to_owned()], ..right() },
    ] {
        let said = format!("{wrong:?}");
        assert!(wrong.run().is_err(), "{said}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious", "{said}");
    }
}

#[test]
fn runs_of_somebody_else_are_neither_removed_nor_in_the_page() {
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("runs/my.json");
    fs::create_dir_all(folder.path().join("runs")).unwrap();
    fs::write(&own, "rows").unwrap();
    let error = args(folder.path(), "ladder").run().unwrap_err();
    assert!(format!("{error:#}").contains("my.json is of no lab run"), "{error:#}");
    assert_eq!(fs::read_to_string(own).unwrap(), "rows");
}

#[test]
fn pictures_and_pages_of_somebody_else_are_not_removed() {
    for (name, runs) in [
        ("plots/a.svg", false),
        ("plots/a.ods", true),
        ("summary.json", false),
        ("report.html", false),
    ] {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("plots")).unwrap();
        if runs {
            fs::create_dir_all(folder.path().join("runs")).unwrap();
        } else if !name.starts_with("plots") {
            fs::remove_dir(folder.path().join("plots")).unwrap();
        }
        let own = folder.path().join(name);
        fs::write(&own, "precious").unwrap();
        let error = format!("{:#}", args(folder.path(), "ladder").run().unwrap_err());
        assert!(error.contains("is of no lab run"), "{name}: {error}");
        assert_eq!(fs::read_to_string(own).unwrap(), "precious");
    }
}
