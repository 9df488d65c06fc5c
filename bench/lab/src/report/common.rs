//! What runs have in common that can be compared, and how it is said.
//!
//! Everything that was simulated is in it but the policy and the question. Two settings that differ in anything are two, whatever
//! they are called, and no two of a page have the same heading: what the names do not tell apart is said behind them.

use serde::Deserialize;

use super::words::counted;
use crate::study::{Fingerprints, one_dispatcher};

/// A setting, as rows, series and lines about limits tell it alike.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(super) struct Common {
    /// Name of the traffic.
    pub(super) workload: String,
    /// Name of the objectives.
    pub(super) mix: String,
    /// What the pods are called.
    pub(super) gpu: String,
    /// How many pods.
    pub(super) pods: usize,
    /// Tokens of a step.
    pub(super) chunk_tokens: u32,
    /// What dispatchers knew of the engines; empty in files that are older than this field.
    #[serde(default)]
    pub(super) prediction: String,
    /// How many dispatchers stood in front of the pods; one where a file does not say.
    #[serde(default = "one_dispatcher")]
    pub(super) dispatchers: usize,
    /// What tells settings apart that are called the same; empty in files that are older than this field.
    #[serde(default)]
    pub(super) fingerprints: Fingerprints,
}

impl Common {
    /// A heading among all settings of a page. Behind the names stands what tells this one from others of the same names.
    pub(super) fn heading(&self, all: &[Self]) -> String {
        let names = self.names();
        let alike: Vec<&Self> = all.iter().filter(|other| other.names() == names).collect();
        let parts: [fn(&Self) -> String; 5] = [
            |of| of.gpu.clone(),
            |of| format!("objectives called {}", of.mix),
            |of| print("traffic", &of.fingerprints.traffic),
            |of| print("objectives", &of.fingerprints.objectives),
            |of| print("pods", &of.fingerprints.pods),
        ];
        let differs = |part: &fn(&Self) -> String| {
            let own = part(self);
            alike.iter().any(|other| part(other) != own).then_some(own)
        };
        std::iter::once(names.clone())
            .chain(parts.iter().filter_map(differs))
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// Traffic, objectives and pods, and what is not as usual about the dispatchers and the predictions.
    fn names(&self) -> String {
        let mix = match self.mix.as_str() {
            "one" => "one class",
            "two" => "two classes",
            "one-long" => "one class with more time for long prompts",
            "two-long" => "two classes with more time for long prompts",
            "none" => "no objectives",
            other => other,
        };
        let predictions = match self.prediction.as_str() {
            "oracle" => String::new(),
            // An older file does not say.
            "" => ", predictions not told".to_owned(),
            other => format!(", predictions {other}"),
        };
        format!(
            "{}, {mix}, {}, chunk {}{}{predictions}",
            self.workload,
            pods_words(self.pods),
            self.chunk_tokens,
            self.before(),
        )
    }

    /// Who stands before the pods, where it is more than one dispatcher.
    pub(super) fn before(&self) -> String {
        if self.dispatchers > 1 {
            format!(", {} dispatchers", self.dispatchers)
        } else {
            String::new()
        }
    }

    /// The pods.
    pub(super) fn pool_words(&self) -> String {
        let (pods, gpu, chunk) = (pods_words(self.pods), &self.gpu, self.chunk_tokens);
        format!("{pods} of `{gpu}` with at most {chunk} tokens in a step")
    }
}

fn pods_words(pods: usize) -> String {
    counted(pods, "pod", "pods")
}

/// A fingerprint as a heading has it.
fn print(of: &str, print: &str) -> String {
    let print = if print.is_empty() { "not told" } else { print };
    format!("{of} {print}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_settings_have_the_same_heading_and_one_alone_has_its_names() {
        let of = |workload: &str| Common {
            workload: workload.to_owned(),
            mix: "one".to_owned(),
            gpu: "h100".to_owned(),
            pods: 4,
            chunk_tokens: 512,
            prediction: "fitted".to_owned(),
            dispatchers: 1,
            fingerprints: Fingerprints::default(),
        };
        let prints = |traffic: &str, objectives: &str, pods: &str| Fingerprints {
            traffic: traffic.to_owned(),
            objectives: objectives.to_owned(),
            pods: pods.to_owned(),
        };
        let all = [
            of("prod"),
            of("other"),
            Common { gpu: "a100".to_owned(), ..of("prod") },
            Common { mix: "one class".to_owned(), ..of("prod") },
            Common { fingerprints: prints("1", "1", "1"), ..of("prod") },
            Common { fingerprints: prints("2", "1", "1"), ..of("prod") },
            Common { fingerprints: prints("1", "2", "1"), ..of("prod") },
            Common { fingerprints: prints("1", "1", "2"), ..of("prod") },
            Common { prediction: "oracle".to_owned(), ..of("prod") },
            Common { dispatchers: 2, ..of("prod") },
        ];
        let headings: Vec<String> = all.iter().map(|one| one.heading(&all)).collect();
        for (place, heading) in headings.iter().enumerate() {
            assert!(!headings[..place].contains(heading), "{headings:#?}");
        }
        assert_eq!(headings[1], "other, one class, 4 pods, chunk 512, predictions fitted");
        let said = &headings[5];
        assert!(said.contains("h100") && said.contains("traffic 2, objectives 1"), "{said}");
    }
}
