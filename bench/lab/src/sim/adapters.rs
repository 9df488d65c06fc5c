//! LoRA adapters: engines know them by number, everybody else by name.

use std::{collections::HashMap, sync::Arc};

use weir_engine::Adapters;

use super::SimRequest;

/// The adapters that the requests of a simulation ask for; numbers are in the order of their first requests.
#[derive(Clone, Debug, Default)]
pub struct AdapterNames {
    names: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, u32>,
}

impl AdapterNames {
    /// Those of all requests.
    pub fn of(requests: &[SimRequest]) -> Self {
        let mut all = Self::default();
        for name in requests.iter().filter_map(|one| one.request.adapter.as_ref()) {
            if !all.numbers.contains_key(name) {
                all.numbers.insert(Arc::clone(name), all.names.len() as u32);
                all.names.push(Arc::clone(name));
            }
        }
        all
    }

    /// The number of the adapter that a request asks for.
    pub fn number(&self, asked: &SimRequest) -> Option<u32> {
        asked.request.adapter.as_ref().and_then(|name| self.numbers.get(name)).copied()
    }

    /// What an engine says of them, with their names.
    pub(super) fn told(&self, most: u32, told: &Adapters) -> LoraScrape {
        let named = |numbers: &[u32]| {
            let names = numbers.iter().filter_map(|number| self.names.get(*number as usize));
            names.cloned().collect()
        };
        LoraScrape { most, running: named(&told.running), waiting: named(&told.waiting) }
    }
}

/// What a scrape says of adapters from the first request for one on, as vLLM's `vllm:lora_requests_info`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoraScrape {
    /// Most that run at once; 0: any number of them.
    pub most: u32,
    /// Those of requests that run, each once.
    pub running: Vec<Arc<str>>,
    /// Those of requests that wait inside the engine, each once.
    pub waiting: Vec<Arc<str>>,
}

#[cfg(test)]
mod tests;
