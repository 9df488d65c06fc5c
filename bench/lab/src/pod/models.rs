//! What a pod serves: a model, and LoRA adapters of it under names of their own (vLLM's `--lora-modules`).

use std::rc::Rc;

use anyhow::{Result, ensure};
use serde_json::json;
use weir_engine::Adapters;
use xxhash_rust::xxh3::xxh3_64;

use super::error::Refusal;

/// A model and its adapters, which the engine knows by their places.
#[derive(Clone, Debug)]
pub(super) struct Models {
    model: Rc<str>,
    adapters: Vec<Rc<str>>,
}

impl Models {
    pub(super) fn new(model: &str, adapters: &[String]) -> Self {
        let adapters = adapters.iter().map(|name| Rc::from(name.as_str())).collect();
        Self { model: model.into(), adapters }
    }

    /// Checks names that are to be served beside a model.
    ///
    /// # Errors
    /// When one is empty, stands for two, or could not stand in a list of them.
    pub(super) fn check(model: &str, adapters: &[String]) -> Result<()> {
        for (place, name) in adapters.iter().enumerate() {
            ensure!(!name.is_empty() && !name.contains(','), "{name:?} cannot name an adapter");
            let before = adapters.get(..place).unwrap_or_default();
            ensure!(name != model && !before.contains(name), "two models are called {name:?}");
        }
        Ok(())
    }

    /// The model itself.
    pub(super) fn model(&self) -> &str {
        &self.model
    }

    /// The adapter that a name asks for; an empty name is none and asks for the model, as for vLLM.
    pub(super) fn adapter(&self, asked: Option<&str>) -> Result<Option<u32>, Refusal> {
        let Some(asked) = asked.filter(|asked| !asked.is_empty() && **asked != *self.model) else {
            return Ok(None);
        };
        let place = self.adapters.iter().position(|name| **name == *asked);
        match place {
            Some(place) => Ok(Some(place as u32)),
            None => Err(Refusal::UnknownModel(asked.to_owned())),
        }
    }

    /// The name under which that is served.
    pub(super) fn name(&self, adapter: Option<u32>) -> &Rc<str> {
        let named = adapter.and_then(|place| self.adapters.get(place as usize));
        named.unwrap_or(&self.model)
    }

    /// Makes the blocks of the model those of an adapter, which has other KV for the same text.
    pub(super) fn salt(&self, adapter: Option<u32>, blocks: &mut [u64]) {
        if adapter.is_some() {
            let salt = xxh3_64(self.name(adapter).as_bytes());
            blocks.iter_mut().for_each(|block| *block = block.wrapping_add(salt));
        }
    }

    /// The names of what runs and of what waits, as the metric has them.
    pub(super) fn told(&self, adapters: &Adapters) -> [String; 2] {
        [&adapters.running, &adapters.waiting].map(|list| {
            let names: Vec<&str> = list.iter().map(|place| &**self.name(Some(*place))).collect();
            names.join(",")
        })
    }

    /// The body of `/v1/models`.
    pub(super) fn json(&self, max_model_len: u32) -> String {
        let card = |name: &str, parent: Option<&str>, max_model_len: Option<u32>| {
            json!({
                "id": name, "object": "model", "created": 0, "owned_by": "vllm", "root": name,
                "parent": parent, "max_model_len": max_model_len, "permission": [],
            })
        };
        let mut data = vec![card(&self.model, None, Some(max_model_len))];
        data.extend(self.adapters.iter().map(|name| card(name, Some(&self.model), None)));
        json!({"object": "list", "data": data}).to_string()
    }
}
