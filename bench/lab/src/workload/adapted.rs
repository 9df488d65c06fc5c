//! Any source whose requests ask for LoRA adapters, some of which are asked for much more often than others.
//!
//! An adapter belongs to what a prompt begins with: requests whose prompts begin alike, as the turns of a conversation or those
//! of one system prompt do, ask for the same one, every other request for one of its own. What more than half of all prompts
//! begin with tells nobody apart and is passed over. Which adapter it is follows from the beginning and the seed, by Zipf's law:
//! number k of N has a share of 1 / k^skew. An adapter computes other KV than the model does, so that blocks of different
//! adapters have different names. Rate, order and lengths stay those of the source.

use std::{collections::HashMap, sync::Arc};

use anyhow::{Result, ensure};
use weir_core::Request;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::{Means, Objectives, Source, chain};
use crate::sim::SimRequest;

/// Seeds of the names of who asks: of a request that begins like no other, and of the draw.
const ALONE: u64 = 1;
const DRAW: u64 = 2;

/// A source with adapters.
pub struct Adapted {
    name: String,
    source: Arc<dyn Source>,
    skew: f64,
    /// Name of each adapter, what its blocks differ by, and the share of the requests that ask for it or one before it.
    adapters: Vec<(Arc<str>, u64, f64)>,
}

impl Adapted {
    /// Exponent of Zipf's law unless another is asked for.
    pub const SKEW: f64 = 1.0;

    /// The source with so many adapters, `lora-0` the most popular of them; with a skew of 0 all are equally popular.
    ///
    /// # Errors
    /// When there is none, or the skew is below zero or no number.
    pub fn new(source: Arc<dyn Source>, count: u32, skew: f64) -> Result<Self> {
        ensure!(count > 0, "a source with adapters needs one");
        ensure!(skew.is_finite() && skew >= 0.0, "the skew of adapters is from 0 on, not {skew}");
        let weight = |rank: u32| f64::from(rank).powf(-skew);
        let total: f64 = (1..=count).map(weight).sum();
        let mut share = 0.0;
        let adapter = |rank: u32| {
            share += weight(rank) / total;
            let name = format!("lora-{}", rank - 1);
            let salt = xxh3_64(name.as_bytes());
            (Arc::from(name), salt, share)
        };
        let adapters = (1..=count).map(adapter).collect();
        let skewed = if skew == Self::SKEW { String::new() } else { format!(":{skew}") };
        let name = format!("{}+adapters:{count}{skewed}", source.name());
        Ok(Self { name, source, skew, adapters })
    }

    /// Gives a request the adapter of whoever asks.
    fn give(&self, one: &mut SimRequest, who: u64, seed: u64) {
        let drawn = chain::name([who, seed, 0], DRAW) as f64 / u64::MAX as f64;
        let place = self.adapters.partition_point(|(_, _, share)| *share < drawn);
        let Some((name, salt, _)) = self.adapters.get(place).or(self.adapters.last()) else {
            return;
        };
        // Blocks that were neighbours by name stay so.
        let salted = |blocks: &[u64]| blocks.iter().map(|hash| hash.wrapping_add(*salt)).collect();
        let Request { adapter, blocks, .. } = &mut one.request;
        *adapter = Some(Arc::clone(name));
        *blocks = salted(blocks);
        one.blocks_with_answer = one.blocks_with_answer.as_deref().map(salted);
    }
}

impl Source for Adapted {
    fn name(&self) -> &str {
        &self.name
    }

    fn means(&self) -> Means {
        self.source.means()
    }

    fn stages(&self) -> Option<&[(f64, f64)]> {
        self.source.stages()
    }

    fn fingerprint(&self) -> u64 {
        let of = format!("{} adapters {}", self.adapters.len(), self.skew);
        xxh3_64_with_seed(of.as_bytes(), self.source.fingerprint())
    }

    fn requests(
        &self,
        rate_rps: f64,
        count: usize,
        objectives: &Objectives,
        seed: u64,
    ) -> Result<Vec<SimRequest>> {
        let mut requests = self.source.requests(rate_rps, count, objectives, seed)?;
        let common = beginning_of_most(&requests);
        for (place, one) in requests.iter_mut().enumerate() {
            let alone = || chain::name([place as u64, 0, 0], ALONE);
            let own = first_behind(&one.request.blocks, &common);
            self.give(one, own.unwrap_or_else(alone), seed);
        }
        Ok(requests)
    }
}

/// The blocks that more than half of the prompts with blocks begin with.
fn beginning_of_most(requests: &[SimRequest]) -> Vec<u64> {
    let prompts = || requests.iter().map(|one| &one.request.blocks);
    let half = prompts().filter(|blocks| !blocks.is_empty()).count() / 2;
    let mut common: Vec<u64> = Vec::new();
    loop {
        let mut counts: HashMap<u64, usize> = HashMap::new();
        for next in prompts().filter_map(|blocks| next_behind(blocks, &common)) {
            *counts.entry(next).or_default() += 1;
        }
        match counts.into_iter().find(|(_, count)| *count > half) {
            Some((block, _)) => common.push(block),
            None => return common,
        }
    }
}

/// The block behind a beginning, of a prompt that begins so.
fn next_behind(blocks: &[u64], beginning: &[u64]) -> Option<u64> {
    blocks.strip_prefix(beginning).and_then(|rest| rest.first()).copied()
}

/// The first block that is not part of a beginning.
fn first_behind(blocks: &[u64], beginning: &[u64]) -> Option<u64> {
    let beginning = beginning.iter().map(Some).chain(std::iter::repeat(None));
    blocks.iter().zip(beginning).find(|(own, other)| Some(*own) != *other).map(|(own, _)| *own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{prompt::Segment, trace::Arrival, workload::Replay};

    /// Every row begins as all do, every third one then as those of its conversation.
    fn source() -> Arc<dyn Source> {
        let row = |number: u32| Arrival {
            at_s: f64::from(number),
            input_tokens: 600,
            output_tokens: 10,
            class: None,
            prefix: vec![
                Segment { id: 7, tokens: 320 },
                Segment { id: u64::from(100 + number / 3), tokens: 160 },
            ],
        };
        Arc::new(Replay::new("rows".to_owned(), (0..3000).map(row).collect()).unwrap())
    }

    fn requests(source: &dyn Source, rate_rps: f64, seed: u64) -> Vec<SimRequest> {
        source.requests(rate_rps, 3000, &Objectives::default(), seed).unwrap()
    }

    fn adapters(requests: &[SimRequest]) -> Vec<Arc<str>> {
        requests.iter().map(|one| one.request.adapter.clone().unwrap()).collect()
    }

    #[test]
    fn all_of_a_conversation_ask_for_one_adapter_whatever_the_rate() {
        let adapted = Adapted::new(source(), 16, 1.0).unwrap();
        let plain = requests(&*source(), 1.0, 1);
        let own = |one: &SimRequest| one.request.blocks[20];
        let slow = requests(&adapted, 1.0, 1);
        let names = adapters(&slow);
        let mut of: HashMap<u64, Arc<str>> = HashMap::new();
        for (one, name) in plain.iter().zip(&names) {
            assert_eq!(of.entry(own(one)).or_insert_with(|| Arc::clone(name)), name);
        }
        assert_eq!(adapters(&requests(&adapted, 9.0, 1)), names);
        assert_ne!(adapters(&requests(&adapted, 1.0, 2)), names);
        assert!(plain.iter().zip(&slow).all(|(a, b)| a.request.arrived == b.request.arrived));
    }

    #[test]
    fn popularity_follows_zipfs_law() {
        let share = |skew: f64, name: &str| {
            let adapted = Adapted::new(source(), 4, skew).unwrap();
            let names = adapters(&requests(&adapted, 1.0, 1));
            names.iter().filter(|one| ***one == *name).count() as f64 / names.len() as f64
        };
        // 1 + 1/2 + 1/3 + 1/4 is 25/12.
        assert!((share(1.0, "lora-0") - 12.0 / 25.0).abs() < 0.04);
        assert!((share(1.0, "lora-3") - 3.0 / 25.0).abs() < 0.04);
        assert!((share(0.0, "lora-3") - 0.25).abs() < 0.04);
    }

    #[test]
    fn blocks_are_shared_within_an_adapter_alone() {
        let adapted = Adapted::new(source(), 2, 0.0).unwrap();
        let sent = requests(&adapted, 1.0, 1);
        let names = adapters(&sent);
        let other = names.iter().position(|name| *name != names[0]).unwrap();
        let alike = (1..other).find(|place| names[*place] == names[0]).unwrap();
        let first = |place: usize| sent[place].request.blocks[0];
        assert_eq!(first(0), first(alike));
        assert_ne!(first(0), first(other));
    }

    #[test]
    fn requests_that_share_nothing_each_have_their_own() {
        let rows = (0..50).map(|number| Arrival {
            at_s: f64::from(number),
            input_tokens: 5,
            output_tokens: 10,
            class: None,
            prefix: vec![],
        });
        let source = Arc::new(Replay::new("rows".to_owned(), rows.collect()).unwrap());
        let adapted = Adapted::new(source, 4, 0.0).unwrap();
        let names = adapters(&requests(&adapted, 1.0, 1));
        assert!((0..4).all(|number| names.contains(&Arc::from(format!("lora-{number}")))));
    }
}
