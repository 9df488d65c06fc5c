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

/// Each row of a table that has a column of tests: the row, and the names in that column.
fn rows(doc: &str) -> Vec<(&str, Vec<&str>)> {
    let mut column = None;
    let mut rows = Vec::new();
    for line in doc.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        if !line.starts_with('|') {
            column = None;
        } else if let Some(at) = cells.iter().position(|cell| *cell == "test") {
            column = Some((at, cells.len()));
        } else if let Some((at, cells_in_head)) = column {
            assert_eq!(cells.len(), cells_in_head, "a cell too many or too few: {line}");
            let cell = cells.get(at).filter(|cell| !cell.starts_with("---"));
            rows.extend(cell.map(|cell| (line, cell.split('`').skip(1).step_by(2).collect())));
        }
    }
    rows
}

#[test]
fn every_test_that_the_page_names_exists() {
    let doc = fs::read_to_string(repository().join("docs/policies.md")).unwrap();
    let named: Vec<&str> = rows(&doc).into_iter().flat_map(|(_, tests)| tests).collect();
    assert!(named.len() > 150, "the tables are not read: {named:?}");
    let mut found = BTreeSet::new();
    for folder in ["dispatcher", "model", "bench", "tests"] {
        tests_under(&repository().join(folder), &mut found);
    }
    let missing: Vec<_> = named.into_iter().filter(|name| !found.contains(*name)).collect();
    assert_eq!(missing, [""; 0], "named in docs/policies.md, but there is no such test");
}

#[test]
fn every_preset_and_every_decision_has_a_line() {
    let doc = fs::read_to_string(repository().join("docs/policies.md")).unwrap();
    for policy in weir_core::Policy::ALL {
        assert!(doc.contains(&format!("`{}`", policy.name())), "{policy:?}");
    }
    let rows = rows(&doc);
    let untested = rows.iter().filter(|(_, tests)| tests.is_empty()).map(|(row, _)| *row);
    assert_eq!(untested.collect::<Vec<_>>(), [""; 0]);
    for number in 1..=13 {
        let start = format!("| {number}. ");
        let lines = rows.iter().filter(|(row, _)| row.starts_with(&start)).count();
        assert_eq!(lines, 1, "row {number}");
    }
}

#[test]
fn every_part_of_llm_ds_numbers_has_a_line() {
    let Ok(folder) = std::env::var("WEIR_VECTORS") else {
        println!("skipped: WEIR_VECTORS does not name the folder of llmd_vectors.json");
        return;
    };
    let doc = fs::read_to_string(repository().join("docs/policies.md")).unwrap();
    let text = fs::read_to_string(Path::new(&folder).join("llmd_vectors.json")).unwrap();
    let vectors: serde_json::Value = serde_json::from_str(&text).unwrap();
    let rows = rows(&doc);
    for part in vectors.as_object().unwrap().keys().filter(|part| *part != "source") {
        let start = format!("| `{part}`");
        assert!(rows.iter().any(|(row, _)| row.starts_with(&start)), "{part}");
    }
}
