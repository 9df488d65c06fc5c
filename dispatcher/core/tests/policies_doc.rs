//! docs/policies.md names a test for every decision; each of them exists.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every function that follows a test's attribute, under a folder.
fn tests_under(folder: &Path, found: &mut BTreeSet<String>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            tests_under(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            tests_in(&fs::read_to_string(&path).unwrap_or_default(), found);
        }
    }
}

fn tests_in(text: &str, found: &mut BTreeSet<String>) {
    let mut marked = false;
    for line in text.lines().map(str::trim) {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            marked = true;
        } else if let Some((before, name)) = line.split_once("fn ") {
            let name = name.split(['(', '<']).next().unwrap_or_default();
            if marked && matches!(before, "" | "async ") {
                found.insert(name.to_owned());
            }
            marked = false;
        }
    }
}

/// The words between backticks in the column of tests: those that read as a sentence.
fn named(doc: &str) -> Vec<&str> {
    let mut column = None;
    let mut names = Vec::new();
    for line in doc.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        if !line.starts_with('|') {
            column = None;
        } else if let Some(at) = cells.iter().position(|cell| *cell == "test") {
            column = Some(at);
        } else if let Some(cell) = column.and_then(|at| cells.get(at)) {
            names.extend(cell.split('`').skip(1).step_by(2));
        }
    }
    names
}

#[test]
fn every_test_that_the_page_names_exists() {
    let doc = fs::read_to_string(repository().join("docs/policies.md")).unwrap();
    let named = named(&doc);
    assert!(named.len() > 50, "the tables are not read: {named:?}");
    let mut found = BTreeSet::new();
    tests_under(&repository().join("dispatcher"), &mut found);
    let missing: Vec<_> = named.into_iter().filter(|name| !found.contains(*name)).collect();
    assert_eq!(missing, [""; 0], "named in docs/policies.md, but there is no such test");
}

#[test]
fn every_preset_and_every_decision_has_a_line() {
    let doc = fs::read_to_string(repository().join("docs/policies.md")).unwrap();
    for policy in weir_core::Policy::ALL {
        assert!(doc.contains(&format!("`{}`", policy.name())), "{policy:?}");
    }
    let rows = doc.lines().filter(|line| line.starts_with("| ") && line.matches('|').count() == 6);
    let untested = rows.filter(|row| !row.contains("| decision |")).filter(|row| {
        let test = row.split('|').nth(4).unwrap_or_default();
        !test.contains('`')
    });
    assert_eq!(untested.collect::<Vec<_>>(), [""; 0]);
}
