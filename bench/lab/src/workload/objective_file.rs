//! Objectives by name, or from a file that people write: YAML or JSON.

use std::{collections::HashSet, fs, path::Path};

use anyhow::{Context, Result, bail, ensure};

use super::{Objective, Objectives};
use crate::results::name_of_file;

type Build = fn() -> Objectives;

/// What is built in, by its name.
const BUILT_IN: [(&str, Build); 8] = [
    ("one", Objectives::default),
    ("two", Objectives::two_classes),
    ("three", Objectives::three_classes),
    ("none", Objectives::none),
    ("one-long", || Objectives::default().longer_for_long_prompts()),
    ("two-long", || Objectives::two_classes().longer_for_long_prompts()),
    ("bi-pattern", Objectives::bi_pattern),
    ("multi-pattern", Objectives::multi_pattern),
];

impl Objectives {
    /// The built-in objectives of that name, or those of the file with that path; and what the mix is called in tables, which
    /// for a file is its name without its ending.
    ///
    /// # Errors
    /// When there is no such name or file, or the file is not sound.
    pub fn named_or_read(text: &str) -> Result<(String, Self)> {
        if let Some((name, build)) = BUILT_IN.iter().find(|(name, _)| *name == text) {
            return Ok(((*name).to_owned(), build()));
        }
        let path = Path::new(text);
        if !path.exists() {
            let known = BUILT_IN.map(|(name, _)| name).join(", ");
            bail!("{text:?} is neither a file nor built in; built in are {known}");
        }
        Ok((name_of_file(path), Self::read(path)?))
    }

    /// Reads `classes`, a list of [`Objective`]s, from a YAML or JSON file.
    ///
    /// # Errors
    /// When the file cannot be read, has a key that is not known or a value that makes no sense; the message names the key.
    pub fn read(path: &Path) -> Result<Self> {
        let file = || path.display().to_string();
        let text = fs::read_to_string(path).with_context(file)?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let read: Self = serde_yaml_ng::from_str(text).with_context(file)?;
        read.check().with_context(file)?;
        Ok(read)
    }

    /// What a highest load needs: a promise that a load can break.
    ///
    /// # Errors
    /// When nobody of the highest band is promised anything.
    pub fn check_promised(&self, name: &str) -> Result<()> {
        let top = self.classes.iter().map(|class| class.band).max();
        let mut banded = self.classes.iter().filter(|class| Some(class.band) == top);
        let promised = banded.any(|class| class.ttft_ms.or(class.tpot_ms).is_some());
        ensure!(promised, "--slo {name}: without an objective any load is sustainable");
        Ok(())
    }

    fn check(&self) -> Result<()> {
        ensure!(!self.classes.is_empty(), "classes: there must be at least one");
        let mut names = HashSet::new();
        for (place, class) in self.classes.iter().enumerate() {
            class.check().with_context(|| format!("classes[{place}] ({:?})", class.name))?;
            ensure!(
                names.insert(&class.name),
                "classes[{place}].name: {:?} is there twice",
                class.name
            );
        }
        Ok(())
    }

    /// 0.15 ms of TTFT objective more for every token of the prompt: with one objective for all, prompts of tens of thousands of
    /// tokens could not meet it even on an idle pod.
    fn longer_for_long_prompts(mut self) -> Self {
        self.classes.iter_mut().for_each(|class| class.ttft_ms_per_input_token = 0.15);
        self
    }
}

impl Objective {
    fn check(&self) -> Result<()> {
        let above_zero = |key: &str, value: f64| {
            ensure!(value.is_finite() && value > 0.0, "{key} must be above zero, not {value}");
            Ok(())
        };
        ensure!(!self.name.is_empty(), "name must not be empty");
        ensure!(self.name != "all", "name: rows of all classes together are called \"all\"");
        above_zero("share", self.share)?;
        self.ttft_ms.map_or(Ok(()), |ms| above_zero("ttft_ms", ms))?;
        self.tpot_ms.map_or(Ok(()), |ms| above_zero("tpot_ms", ms))?;
        let extra = self.ttft_ms_per_input_token;
        ensure!(
            extra.is_finite() && extra >= 0.0,
            "ttft_ms_per_input_token must not be below zero, as {extra} is"
        );
        ensure!(
            extra == 0.0 || self.ttft_ms.is_some(),
            "ttft_ms_per_input_token needs a ttft_ms that it adds to"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn read(text: &str) -> Result<Objectives> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        Objectives::read(file.path())
    }

    fn message(text: &str) -> String {
        format!("{:#}", read(text).unwrap_err())
    }

    #[test]
    fn yaml_and_json_are_read_and_what_is_left_out_has_a_default() {
        let yaml = "classes:\n- name: chat\n  share: 3\n  band: 1\n  ttft_ms: 500\n  tpot_ms: 30\n- {name: batch, share: 1, band: -1}\n";
        let json = r#"{"classes":[{"name":"chat","share":3,"band":1,"ttft_ms":500,"tpot_ms":30},{"name":"batch","band":-1}]}"#;
        assert_eq!(read(yaml).unwrap(), read(json).unwrap());
        let batch = &read(json).unwrap().classes[1];
        assert_eq!((batch.share, batch.ttft_ms, batch.tpot_ms), (1.0, None, None));
    }

    #[test]
    fn a_file_that_makes_no_sense_is_an_error_that_names_the_key() {
        for (text, expected) in [
            ("classes: []", "classes: there must be at least one"),
            ("classes:\n- {name: a, ttft: 5}", "unknown field `ttft`"),
            ("klasses: []", "unknown field `klasses`"),
            ("classes:\n- {name: all}", "rows of all classes together"),
            ("classes:\n- {share: 1}", "missing field `name`"),
            ("classes:\n- {name: a, share: 0}", "classes[0] (\"a\"): share must be above zero"),
            ("classes:\n- {name: a}\n- {name: b, share: -1}", "classes[1] (\"b\"): share"),
            ("classes:\n- {name: a, tpot_ms: 0}", "tpot_ms must be above zero"),
            ("classes:\n- {name: a, ttft_ms: .nan}", "ttft_ms must be above zero"),
            ("classes:\n- {name: a, ttft_ms: soon}", "classes[0].ttft_ms"),
            ("classes:\n- {name: a, ttft_ms_per_input_token: 1}", "needs a ttft_ms"),
            ("classes:\n- {name: a}\n- {name: a}", "classes[1].name: \"a\" is there twice"),
            ("classes:\n- {name: a, band: 1000}", "classes[0].band"),
        ] {
            assert!(message(text).contains(expected), "{text:?} gives {}", message(text));
        }
    }

    #[test]
    fn a_name_is_looked_up_before_a_file_and_anything_else_lists_the_names() {
        let (name, two) = Objectives::named_or_read("two").unwrap();
        assert_eq!((name.as_str(), two), ("two", Objectives::two_classes()));
        let (_, long) = Objectives::named_or_read("one-long").unwrap();
        let slo = long.classes[0].slo(10_000);
        assert_eq!(slo.ttft.unwrap().as_millis(), 3500);
        let error = Objectives::named_or_read("seven").unwrap_err().to_string();
        assert!(error.contains("one, two, three, none, one-long"), "{error}");
    }

    #[test]
    fn a_file_gives_the_mix_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine.yaml");
        fs::write(&path, "classes: [{name: a, ttft_ms: 1}]").unwrap();
        let (name, read) = Objectives::named_or_read(path.to_str().unwrap()).unwrap();
        assert_eq!((name.as_str(), read.classes.len()), ("mine", 1));
    }

    #[test]
    fn everything_built_in_is_sound() {
        for (name, build) in BUILT_IN {
            let built = build();
            // The one class of those that promise nothing is called as it is in stored files.
            let check = if name == "none" { Ok(()) } else { built.check() };
            check.unwrap_or_else(|error| panic!("{name}: {error:#}"));
        }
    }
}
