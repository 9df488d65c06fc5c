//! Which models there are: the table from a name to its pool, and the answer of `GET /v1/models`.
//!
//! Built once from the configuration. An alias is listed as a model of its own, as vLLM lists its
//! served names. Weir sends bodies on unchanged, so a pod must know the aliases of its pool too
//! (vLLM: `--served-model-name`).

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;
use serde::Serialize;

/// Two pools, or two names of one, are called alike.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("pools: the model or alias {0:?} is listed twice")]
pub struct NameTaken(pub Arc<str>);

/// The models and where they are served.
#[derive(Clone, Debug)]
pub struct Catalogue {
    pools: HashMap<Arc<str>, usize>,
    json: Bytes,
}

#[derive(Serialize)]
struct List<'a> {
    object: &'static str,
    data: Vec<Model<'a>>,
}

#[derive(Serialize)]
struct Model<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    owned_by: &'static str,
    /// The model behind an alias; the name itself otherwise.
    root: &'a str,
}

impl Catalogue {
    /// A catalogue of pools, each a model and its aliases; a pool's number is its place in the list.
    ///
    /// # Errors
    /// When a name is listed twice.
    pub fn new(
        pools: &[(Arc<str>, Vec<Arc<str>>)],
        created_unix_s: u64,
    ) -> Result<Self, NameTaken> {
        let mut numbers = HashMap::new();
        let mut data = Vec::new();
        for (number, (model, aliases)) in pools.iter().enumerate() {
            for name in std::iter::once(model).chain(aliases) {
                if numbers.insert(name.clone(), number).is_some() {
                    return Err(NameTaken(name.clone()));
                }
                data.push(Model {
                    id: name,
                    object: "model",
                    created: created_unix_s,
                    owned_by: "weir",
                    root: model,
                });
            }
        }
        // Strings and numbers always serialise; an empty answer would still be an answer.
        let json = serde_json::to_vec(&List { object: "list", data }).unwrap_or_default();
        Ok(Self { pools: numbers, json: Bytes::from(json) })
    }

    /// The number of the pool that serves the model of this name.
    pub fn pool(&self, name: &str) -> Option<usize> {
        self.pools.get(name).copied()
    }

    /// The answer of `GET /v1/models`.
    pub fn json(&self) -> Bytes {
        self.json.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(model: &str, aliases: &[&str]) -> (Arc<str>, Vec<Arc<str>>) {
        (Arc::from(model), aliases.iter().map(|alias| Arc::from(*alias)).collect())
    }

    #[test]
    fn models_and_aliases_of_all_pools_are_listed_once() {
        let catalogue =
            Catalogue::new(&[pool("qwen3-32b", &["gpt-4o"]), pool("bge-m3", &[])], 1_700_000_000)
                .unwrap();
        let list: serde_json::Value = serde_json::from_slice(&catalogue.json()).unwrap();
        assert_eq!(list["object"], "list");
        let data = list["data"].as_array().unwrap();
        let ids: Vec<_> = data.iter().map(|model| model["id"].as_str().unwrap()).collect();
        assert_eq!(ids, ["qwen3-32b", "gpt-4o", "bge-m3"]);
        assert_eq!(data[1]["root"], "qwen3-32b");
        assert_eq!(data[0]["created"], 1_700_000_000);
        assert!(data.iter().all(|model| model["object"] == "model"));
    }

    #[test]
    fn an_alias_leads_to_its_pool() {
        let catalogue = Catalogue::new(&[pool("a", &[]), pool("b", &["c"])], 0).unwrap();
        assert_eq!(
            ["a", "b", "c", "d"].map(|name| catalogue.pool(name)),
            [Some(0), Some(1), Some(1), None]
        );
    }

    #[test]
    fn a_name_taken_twice_is_refused() {
        let twice = Catalogue::new(&[pool("a", &[]), pool("b", &["a"])], 0).unwrap_err();
        assert!(twice.to_string().contains("\"a\""), "{twice}");
    }
}
