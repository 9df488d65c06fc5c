//! Which models there are: the table from a name to its pool, and the answers of `GET /v1/models` and `/v1/models/NAME`.
//!
//! Built once from the configuration. An alias is listed as a model of its own, as vLLM lists its
//! served names. Weir sends bodies on unchanged, so a pod must know the aliases of its pool too
//! (vLLM: `--served-model-name`). A LoRA adapter is a name of its own too (vLLM: `--lora-modules`),
//! listed as vLLM lists it, with the model that it adapts as its parent. It is served by that model's
//! pool and counted there; only what a pod has cached is kept apart, as the engine does it.

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;
use serde::Serialize;

/// Two pools, or two names of one, are called alike.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("pools: the model, alias or adapter {0:?} is listed twice")]
pub struct NameTaken(pub Arc<str>);

/// What one pool's model is called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// The model.
    pub model: Arc<str>,
    /// Further names of it.
    pub aliases: Vec<Arc<str>>,
    /// Adapters of it.
    pub adapters: Vec<Arc<str>>,
    /// Tokens of a prompt and its answer together that it takes, if that is to be told.
    pub max_model_len: Option<u32>,
    /// Whether no client asks for it.
    pub hidden: bool,
}

/// Where a name is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// The number of the pool.
    pub pool: usize,
    /// Whose cached prompts its requests share: the model's, or an adapter's own.
    pub cached_as: Arc<str>,
    /// The adapter that it names.
    pub adapter: Option<Arc<str>>,
    /// The answer of `GET /v1/models/NAME`.
    pub json: Bytes,
}

/// The models and where they are served.
#[derive(Clone, Debug)]
pub struct Catalogue {
    served: HashMap<Arc<str>, Served>,
    /// The model of the only pool.
    only: Option<Arc<str>>,
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
    /// The model that an adapter adapts.
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_model_len: Option<u32>,
}

impl Catalogue {
    /// A catalogue of pools; a pool's number is its place in the list.
    ///
    /// # Errors
    /// When a name is listed twice.
    pub fn new(pools: &[Names], created_unix_s: u64) -> Result<Self, NameTaken> {
        let mut served = HashMap::new();
        let mut data = Vec::new();
        let shown = || pools.iter().enumerate().filter(|(_, names)| !names.hidden);
        for (pool, names) in shown() {
            let model = &names.model;
            let same = std::iter::once(model).chain(&names.aliases).map(|name| (name, model, None));
            let adapters = names.adapters.iter().map(|name| (name, name, Some(&**model)));
            for (name, root, parent) in same.chain(adapters) {
                let (object, owned_by) = ("model", "weir");
                let (created, max_model_len) = (created_unix_s, names.max_model_len);
                let model =
                    Model { id: name, object, created, owned_by, root, parent, max_model_len };
                let adapter = parent.map(|_| name.clone());
                let at = Served { pool, cached_as: root.clone(), adapter, json: json(&model) };
                if served.insert(name.clone(), at).is_some() {
                    return Err(NameTaken(name.clone()));
                }
                data.push(model);
            }
        }
        let json = json(&List { object: "list", data });
        let only = shown().next().filter(|_| shown().count() == 1);
        let only = only.map(|(_, one)| one.model.clone());
        Ok(Self { served, only, json })
    }

    /// Where a request is served that names no model: nowhere, unless there is one pool.
    pub fn only(&self) -> Option<&Served> {
        self.find(self.only.as_ref()?)
    }

    /// Where the model, alias or adapter of this name is served.
    pub fn find(&self, name: &str) -> Option<&Served> {
        self.served.get(name)
    }

    /// The answer of `GET /v1/models`.
    pub fn json(&self) -> Bytes {
        self.json.clone()
    }
}

fn json(what: &impl Serialize) -> Bytes {
    // Strings and numbers always serialise; an empty answer would still be an answer.
    serde_json::to_vec(what).unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(names: &[&str]) -> Vec<Arc<str>> {
        names.iter().map(|name| Arc::from(*name)).collect()
    }

    fn pool(model: &str, aliases: &[&str], adapters: &[&str]) -> Names {
        let (aliases, adapters) = (named(aliases), named(adapters));
        let (max_model_len, hidden) = (None, false);
        Names { model: Arc::from(model), aliases, adapters, max_model_len, hidden }
    }

    #[test]
    fn models_aliases_and_adapters_of_all_pools_are_listed_once() {
        let pools = [pool("qwen3-32b", &["gpt-4o"], &["sql"]), pool("bge-m3", &[], &[])];
        let catalogue = Catalogue::new(&pools, 1_700_000_000).unwrap();
        let list: serde_json::Value = serde_json::from_slice(&catalogue.json()).unwrap();
        assert_eq!(list["object"], "list");
        let data = list["data"].as_array().unwrap();
        let ids: Vec<_> = data.iter().map(|model| model["id"].as_str().unwrap()).collect();
        assert_eq!(ids, ["qwen3-32b", "gpt-4o", "sql", "bge-m3"]);
        assert_eq!((&data[1]["root"], data[1].get("parent")), (&"qwen3-32b".into(), None));
        let adapter = (&data[2]["root"], &data[2]["parent"]);
        assert_eq!(adapter, (&"sql".into(), &"qwen3-32b".into()));
        assert_eq!(data[0]["created"], 1_700_000_000);
        assert!(data.iter().all(|model| model["object"] == "model"));
        for one in data {
            let alone = &catalogue.find(one["id"].as_str().unwrap()).unwrap().json;
            assert_eq!(&serde_json::from_slice::<serde_json::Value>(alone).unwrap(), one);
        }
    }

    #[test]
    fn an_alias_or_adapter_leads_to_its_pool_and_only_an_adapter_is_cached_apart() {
        let pools = [pool("a", &[], &["d"]), pool("b", &["c"], &[])];
        let catalogue = Catalogue::new(&pools, 0).unwrap();
        assert_eq!(catalogue.only(), None);
        let alone = Catalogue::new(&[pool("a", &["b"], &["c"])], 0).unwrap();
        assert_eq!(alone.only().map(|at| (at.pool, &*at.cached_as)), Some((0, "a")));
        let found = |name| catalogue.find(name).map(|at| (at.pool, at.cached_as.to_string()));
        let want = |pool, cached_as: &str| Some((pool, cached_as.to_owned()));
        assert_eq!(
            ["a", "b", "c", "d", "e"].map(found),
            [want(0, "a"), want(1, "b"), want(1, "b"), want(0, "d"), None]
        );
    }

    #[test]
    fn how_many_tokens_a_model_takes_is_told_under_each_of_its_names_where_it_is_known() {
        let long = Names { max_model_len: Some(32_768), ..pool("a", &["b"], &["c"]) };
        let catalogue = Catalogue::new(&[long, pool("d", &[], &[])], 0).unwrap();
        let told = |name: &str| {
            let json = &catalogue.find(name).unwrap().json;
            let model: serde_json::Value = serde_json::from_slice(json).unwrap();
            model.get("max_model_len").and_then(serde_json::Value::as_u64)
        };
        assert_eq!(["a", "b", "c"].map(told), [Some(32_768); 3]);
        assert_eq!(told("d"), None);
    }

    #[test]
    fn a_name_taken_twice_is_refused() {
        for second in [pool("b", &["a"], &[]), pool("b", &[], &["a"])] {
            let twice = Catalogue::new(&[pool("a", &[], &[]), second], 0).unwrap_err();
            assert!(twice.to_string().contains("\"a\""), "{twice}");
        }
    }
}
