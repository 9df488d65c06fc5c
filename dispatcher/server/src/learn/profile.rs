//! The profile files of pod classes, read when the configuration is checked.
//!
//! A file that cannot be used is a problem of the configuration like any other: `weir check` names
//! the file and the cell, and `weir serve` does not start on half of what was meant. Cells that a file
//! itself calls infeasible are notes: printed by `weir check`, logged by `weir serve`.

use std::{path::PathBuf, sync::Arc};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use weir_predict::ClassProfile;
use weir_schema::profile::{Percentile, Profile};

use crate::{
    config::{Problems, choice},
    fleet::config::RawClass,
};

/// The profile files of a class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a file or a list of files")]
pub enum RawProfile {
    /// One file.
    File(PathBuf),
    /// Several, of different kinds.
    Files(Vec<PathBuf>),
}

impl RawProfile {
    fn files(&self) -> &[PathBuf] {
        match self {
            Self::File(file) => std::slice::from_ref(file),
            Self::Files(files) => files,
        }
    }
}

/// The schema of a statistic's name.
pub fn percentile_schema(_: &mut SchemaGenerator) -> Schema {
    choice(&Percentile::ALL.map(Percentile::name))
}

/// The profiles of the classes that have one, by index.
pub fn check(classes: &[RawClass], problems: &mut Problems) -> Vec<(u16, ClassProfile)> {
    let mut profiles = Vec::new();
    for (index, class) in classes.iter().enumerate() {
        let Some(files) = &class.profile else { continue };
        let key = format!("classes[{index}].profile");
        let profile = read(&key, files.files(), class.profile_percentile, problems);
        let Ok(index) = u16::try_from(index) else { continue };
        let class = ClassProfile {
            class: Arc::from(class.name.as_str()),
            chunk_tokens: class.chunk_tokens,
            profile: Arc::new(profile),
        };
        profiles.push((index, class));
    }
    profiles
}

fn read(key: &str, files: &[PathBuf], percentile: Percentile, problems: &mut Problems) -> Profile {
    let mut profile = Profile::default();
    problems.require(!files.is_empty(), key, "name at least one file");
    for file in files {
        let added = std::fs::read_to_string(file)
            .map_err(|error| format!("cannot be read: {error}"))
            .and_then(|text| profile.add(&text, percentile).map_err(|error| error.to_string()));
        if let Err(wrong) = added {
            problems.add(key, format!("{}: {wrong}", file.display()));
        }
    }
    profile
}

/// What is noteworthy in the profiles, a line each with the class's name.
pub fn notes(profiles: &[(u16, ClassProfile)]) -> Vec<String> {
    let of = |(_, class): &(u16, ClassProfile)| {
        let notes = class.profile.notes().into_iter();
        notes.map(|note| format!("profile of {}: {note}", class.class)).collect::<Vec<_>>()
    };
    profiles.iter().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTFT: &str = r#"{"results": [{"tokens_num": 128, "p50": 42.0}]}"#;

    fn checked(
        files: &[(&str, &str)],
        raw: fn(Vec<PathBuf>) -> RawProfile,
    ) -> (String, Vec<String>) {
        let folder = tempfile::tempdir().unwrap();
        let write = |(name, text): &(&str, &str)| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let profile = Some(raw(files.iter().map(write).collect()));
        let class = RawClass { name: "h100".to_owned(), profile, ..RawClass::default() };
        let mut problems = Problems::default();
        let profiles = check(&[RawClass::default(), class], &mut problems);
        assert_eq!(profiles.len(), 1);
        assert_eq!((profiles[0].0, &*profiles[0].1.class), (1, "h100"));
        let folder = folder.path().display().to_string() + "/";
        (problems.to_string().replace(&folder, ""), notes(&profiles))
    }

    fn one(mut files: Vec<PathBuf>) -> RawProfile {
        RawProfile::File(files.remove(0))
    }

    #[test]
    fn a_file_or_a_list_of_files_is_read() {
        assert_eq!(checked(&[("a", TTFT)], one), (String::new(), vec![]));
        let tpot = r#"{"results": [{"batch_size": 1, "tokens_per_request": 8, "p50": 1}]}"#;
        let both = checked(&[("a", TTFT), ("b", tpot)], RawProfile::Files);
        assert_eq!(both, (String::new(), vec![]));
    }

    #[test]
    fn what_is_wrong_with_a_file_is_said_with_its_key_and_name() {
        let wrong = [
            (
                "{",
                "classes[1].profile: a: is no JSON: EOF while parsing an object at line 1 column 1",
            ),
            ("{}", "classes[1].profile: a: is neither an AIBrix profile"),
            (
                r#"{"indexes": [[16], [256]], "tputs": [[4.0]]}"#,
                "classes[1].profile: a: e2e: is missing; without it no capacity RPS x E2E is known",
            ),
            (
                r#"{"indexes": [[16], [256]], "tputs": [[4.0]], "e2e": [[NaN]]}"#,
                "classes[1].profile: a: e2e[0][0] (256 in, 16 out): NaN is no latency",
            ),
            (
                r#"{"results": [{"tokens_num": 128, "mean": 42.0}]}"#,
                "classes[1].profile: a: results[0].p50: is missing",
            ),
        ];
        for (text, want) in wrong {
            let (said, _) = checked(&[("a", text)], one);
            assert!(said.starts_with(want), "{said}");
        }
        let (said, _) = checked(&[("a", TTFT), ("b", TTFT)], RawProfile::Files);
        assert_eq!(said, "classes[1].profile: b: is a second Llumnix TTFT profile for the class");
        let (said, _) = checked(&[], RawProfile::Files);
        assert_eq!(said, "classes[1].profile: name at least one file");
        let (said, _) = checked(&[], |_| RawProfile::File(PathBuf::from("/nowhere/p.json")));
        assert!(
            said.starts_with("classes[1].profile: /nowhere/p.json: cannot be read: "),
            "{said}"
        );
    }

    #[test]
    fn an_infeasible_cell_is_a_note_and_no_problem() {
        let text = r#"{"indexes": [[16], [256, 512]], "tputs": [[4.0, 0.0]], "e2e": [[0.5, NaN]]}"#;
        let note = "profile of h100: tputs[0][1] (512 in, 16 out): infeasible, no rate met the \
                    profile's objective";
        assert_eq!(checked(&[("a", text)], one), (String::new(), vec![note.to_owned()]));
    }
}
