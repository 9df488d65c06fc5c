//! Pods from a file: of one kind or several.
//!
//! ```yaml
//! scrape_every_ms: 50
//! pods:
//!   - { gpu: h100-qwen3-32b-tp2, count: 2 }
//!   - { gpu: h100-qwen3-32b-tp2, count: 2, chunk_tokens: 512, slowdown: 2 }
//!   - { gpu: h100-qwen3-32b-tp2, count: 1, data_parallel_size: 8 }
//! ```

use std::{path::Path, time::Duration};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use weir_core::Role;
use weir_engine::{EngineConfig, Hardware, SeqId};

use crate::{
    bounds::{MOST_LORA_LOAD_MS, MOST_PODS},
    sim::Pool,
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPool {
    /// Age of a scrape, at most.
    #[serde(default)]
    scrape_every_ms: Option<u64>,
    /// Of a prompt of which a pod that answers has fewer tokens to compute it does so itself, where others prefill.
    #[serde(default)]
    local_tokens: Option<u32>,
    /// Whether one that no pod prefills at once may go to a pod that answers with room for it.
    #[serde(default)]
    overflow: Option<bool>,
    pods: Vec<RawPods>,
}

/// Pods of one kind. What is left out is as vLLM has it on that hardware.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPods {
    gpu: String,
    #[serde(default = "one")]
    count: usize,
    #[serde(default)]
    chunk_tokens: Option<u32>,
    #[serde(default)]
    max_sequences: Option<u32>,
    #[serde(default)]
    kv_blocks: Option<u32>,
    #[serde(default)]
    prefix_caching: Option<bool>,
    /// What dispatchers are told of that, where it is something else.
    #[serde(default)]
    prefix_caching_told: Option<bool>,
    #[serde(default)]
    prefill_factor: Option<f64>,
    /// Standard deviation of the log of a step's noise.
    #[serde(default)]
    noise: Option<f64>,
    #[serde(default)]
    api_ms: Option<f64>,
    /// What every step takes, as a multiple.
    #[serde(default)]
    slowdown: Option<f64>,
    /// Engines of each, which step together as those of a mixture of experts do; everything else is of one engine.
    #[serde(default = "one_engine")]
    data_parallel_size: u16,
    /// Whether each of these is a pod to dispatchers; else they are one, and it chooses the engine.
    #[serde(default = "yes")]
    apart: bool,
    /// So many of these in a row are known to dispatchers to step together, as where a server stands on several nodes; all when left out,
    /// none where it is 1.
    #[serde(default)]
    known_together: Option<u16>,
    /// Different LoRA adapters that each runs at once; 0 or left out: any number.
    #[serde(default)]
    max_loras: Option<u32>,
    /// What each stands still for an adapter that it brings.
    #[serde(default)]
    lora_load_ms: Option<f64>,
    /// Whether dispatchers are told `max_loras`.
    #[serde(default = "yes")]
    known_max_loras: bool,
    /// What they do: both, prefill or decode.
    #[serde(default)]
    role: Role,
    /// What loading a prompt takes that another pod has computed, of each token.
    #[serde(default)]
    transfer_us_per_token: Option<f64>,
}

fn one() -> usize {
    1
}

fn one_engine() -> u16 {
    1
}

fn yes() -> bool {
    true
}

/// Reads a pool.
///
/// # Errors
/// When it cannot be read, or a number in it makes no sense.
pub(crate) fn read(path: &Path) -> Result<Pool> {
    let at = || format!("--pool {}", path.display());
    let text = std::fs::read_to_string(path).with_context(at)?;
    // JSON is YAML.
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let raw: RawPool = serde_yaml_ng::from_str(text).with_context(at)?;
    pool(&raw).with_context(at)
}

fn pool(raw: &RawPool) -> Result<Pool> {
    let scrape_every = raw.scrape_every_ms.map_or(Pool::SCRAPE_EVERY, Duration::from_millis);
    ensure!(!scrape_every.is_zero(), "scrape_every_ms must be above zero");
    let mut pool = Pool::empty(scrape_every);
    for (number, pods) in (1..).zip(&raw.pods) {
        let more = MOST_PODS - pool.pods.len();
        let engines = pods.data_parallel_size;
        let before = pool.pods.len();
        let made = pods.count.saturating_mul(usize::from(engines));
        ensure!(made <= more, "entry {number} makes more than {MOST_PODS} pods");
        let engine = pods.engine().with_context(|| format!("pods of entry {number}"))?;
        match (engines, pods.apart) {
            (1, _) => pool.add(&engine, pods.count, pods.role),
            (_, true) => {
                pool.add_apart(&engine, pods.count, [engines, pods.known_together()?]);
            }
            (ranks, false) => {
                pool.add(&EngineConfig { ranks, ..engine }, pods.count, pods.role);
            }
        }
        if let (Some(class), Some(told)) = (pool.classes.last_mut(), pods.prefix_caching_told) {
            class.prefix_caching = told;
        }
        if !pods.known_max_loras {
            pool.classes.last_mut().into_iter().for_each(|class| class.max_loras = 0);
            pool.pods.iter_mut().skip(before).for_each(|pod| pod.tells_max_loras = false);
        }
    }
    ensure!(!pool.pods.is_empty(), "there is no pod");
    let answers = pool.pods.iter().any(|pod| !pod.prefills);
    ensure!(answers, "all pods prefill: somebody has to decode");
    let decodes = pool.classes.iter().any(|class| class.role == Role::Decode);
    ensure!(!decodes || pool.is_split(), "some pods only decode: somebody has to prefill");
    pool.local_tokens = raw.local_tokens.unwrap_or(pool.local_tokens);
    pool.overflow = raw.overflow.unwrap_or(pool.overflow);
    Ok(pool)
}

impl RawPods {
    fn known_together(&self) -> Result<u16> {
        let engines = self.data_parallel_size;
        let known = self.known_together.unwrap_or(engines);
        let divides = known > 0 && engines.is_multiple_of(known);
        ensure!(divides, "known_together must divide data_parallel_size");
        Ok(known)
    }

    fn engine(&self) -> Result<EngineConfig> {
        // Beyond these no engine is, and a run would not end.
        for (name, value, least, most) in [
            ("prefill_factor", self.prefill_factor, 0.01, 100.0),
            ("noise", self.noise, 0.0, 1.0),
            ("api_ms", self.api_ms, 0.0, 60_000.0),
            ("slowdown", self.slowdown, 0.01, 100.0),
            ("transfer_us_per_token", self.transfer_us_per_token, 0.0, 1e6),
            ("lora_load_ms", self.lora_load_ms, 0.0, MOST_LORA_LOAD_MS),
        ] {
            let fine = value.is_none_or(|value| (least..=most).contains(&value));
            ensure!(fine, "{name} must be {least} to {most}");
        }
        for (name, value, most) in [
            ("chunk_tokens", self.chunk_tokens, 1 << 20),
            ("max_sequences", self.max_sequences, 1 << 20),
            ("kv_blocks", self.kv_blocks, 1 << 24),
        ] {
            let fine = value.is_none_or(|value| (1..=most).contains(&value));
            ensure!(fine, "{name} must be 1 to {most}");
        }
        let engines = self.data_parallel_size;
        ensure!((1..=SeqId::MOST_RANKS).contains(&engines), "data_parallel_size must be 1 to 1024");
        let both = engines == 1 || self.role == Role::Both;
        ensure!(both, "engines that step together are simulated with role: both alone");
        let like = Pool::of(&self.gpu, 1, self.chunk_tokens)?;
        let like = like.pods.first().context("no pod")?.engine.clone();
        Ok(EngineConfig {
            hardware: slower(like.hardware, self.slowdown.unwrap_or(1.0)),
            max_num_seqs: self.max_sequences.unwrap_or(like.max_num_seqs),
            num_blocks: self.kv_blocks.unwrap_or(like.num_blocks),
            prefix_caching: self.prefix_caching.unwrap_or(like.prefix_caching),
            prefill_factor: self.prefill_factor.unwrap_or(like.prefill_factor),
            noise_sigma: self.noise.unwrap_or(like.noise_sigma),
            api_cost_ms: self.api_ms.unwrap_or(like.api_cost_ms),
            transfer_us_per_token: self.transfer_us_per_token.unwrap_or(like.transfer_us_per_token),
            max_loras: self.max_loras.unwrap_or(like.max_loras),
            lora_load_ms: self.lora_load_ms.unwrap_or(like.lora_load_ms),
            ..like
        })
    }
}

fn slower(hardware: Hardware, by: f64) -> Hardware {
    Hardware {
        a_ms: hardware.a_ms * by,
        b_us: hardware.b_us * by,
        c_us: hardware.c_us * by,
        d_ns: hardware.d_ns * by,
        e_ns: hardware.e_ns * by,
        ..hardware
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Pool> {
        pool(&serde_yaml_ng::from_str(text)?)
    }

    #[test]
    fn pods_of_two_kinds_are_two_classes() {
        let text = "{scrape_every_ms: 20, pods: [{gpu: h100-qwen3-32b-tp2, count: 2}, \
                    {gpu: h100-qwen3-32b-tp2, chunk_tokens: 512, kv_blocks: 900, slowdown: 2}]}";
        let pool = parse(text).unwrap();
        assert_eq!((pool.pods.len(), pool.classes.len()), (3, 2));
        assert_eq!((pool.classes[1].chunk_tokens, pool.classes[1].kv_blocks), (512, 900));
        let steps = |pod: usize| pool.pods[pod].engine.hardware.a_ms;
        assert_eq!(steps(2), 2.0 * steps(0));
        assert_eq!((pool.scrape_every.as_millis(), pool.pods[2].class), (20, 1));
        let text =
            "{pods: [{gpu: h100-qwen3-32b-tp2, prefix_caching: false, prefix_caching_told: true}]}";
        let pool = parse(text).unwrap();
        assert!(!pool.pods[0].engine.prefix_caching && pool.classes[0].prefix_caching);
    }

    #[test]
    fn some_pods_prefill_for_others() {
        let gpu = "gpu: h100-qwen3-32b-tp2";
        let split = format!(
            "{{local_tokens: 64, overflow: false, pods: [{{{gpu}, role: prefill}}, {{{gpu}, count: 2, role: decode}}]}}"
        );
        let pool = parse(&split).unwrap();
        assert_eq!((pool.local_tokens, pool.overflow), (64, false));
        assert_eq!((pool.half(true).pods.len(), pool.half(false).pods.len()), (1, 2));
        let pool = parse(&format!("{{pods: [{{{gpu}}}]}}")).unwrap();
        assert!(!pool.is_split() && pool.overflow);
        let error = |text: &str| format!("{:#}", parse(text).unwrap_err());
        assert!(error(&format!("{{pods: [{{{gpu}, role: prefill}}]}}")).contains("has to decode"));
        assert!(error(&format!("{{pods: [{{{gpu}, role: decode}}]}}")).contains("has to prefill"));
        assert!(
            error(&format!("{{pods: [{{{gpu}, role: both, transfer_us_per_token: -1}}]}}"))
                .contains("transfer_us_per_token")
        );
    }

    #[test]
    fn engines_that_step_together_are_pods_of_one_server_or_one_pod() {
        let of = |more: &str| {
            let gpu = "gpu: h100-qwen3-32b-tp2, count: 2, data_parallel_size: 4";
            parse(&format!("{{pods: [{{{gpu}{more}}}]}}"))
        };
        let apart = of("").unwrap();
        let servers: Vec<_> = apart.pods.iter().map(|pod| pod.server.unwrap()).collect();
        assert_eq!(servers, [0, 0, 0, 0, 1, 1, 1, 1]);
        let groups = |pool: &Pool| pool.pods.iter().map(|pod| pod.group).collect::<Vec<_>>();
        assert_eq!(groups(&apart), [0, 0, 0, 0, 1, 1, 1, 1].map(Some));
        let halves = of(", known_together: 2").unwrap();
        assert_eq!(groups(&halves), [0, 0, 1, 1, 2, 2, 3, 3].map(Some));
        assert_eq!(groups(&of(", known_together: 1").unwrap()), [None; 8]);
        assert_eq!(apart.classes[0].data_parallel_size, 4);
        let whole = of(", apart: false").unwrap();
        assert_eq!((whole.pods.len(), whole.pods[0].engine.ranks), (2, 4));
        assert_eq!(whole.classes[0].kv_blocks, 4 * apart.classes[0].kv_blocks);
        let error = |more: &str| format!("{:#}", of(more).unwrap_err());
        assert!(error(", role: decode").contains("role: both"));
        for known in ["0", "3", "8"] {
            assert!(error(&format!(", known_together: {known}")).contains("known_together"));
        }
        let none = "{pods: [{gpu: h100-qwen3-32b-tp2, data_parallel_size: 0}]}";
        assert!(format!("{:#}", parse(none).unwrap_err()).contains("data_parallel_size"));
    }

    #[test]
    fn pods_run_so_many_adapters_at_once_and_may_keep_it_to_themselves() {
        let of = |more: &str| {
            let gpu = "gpu: h100-qwen3-32b-tp2, count: 2";
            parse(&format!("{{pods: [{{{gpu}}}, {{{gpu}{more}}}]}}"))
        };
        let pool = of(", max_loras: 4, lora_load_ms: 7.5").unwrap();
        let engine = &pool.pods[3].engine;
        assert_eq!((engine.max_loras, engine.lora_load_ms), (4, 7.5));
        assert_eq!((pool.classes[0].max_loras, pool.classes[1].max_loras), (0, 4));
        let pool = of(", max_loras: 4, known_max_loras: false").unwrap();
        assert_eq!((pool.pods[3].engine.max_loras, pool.classes[1].max_loras), (4, 0));
        let tells: Vec<bool> = pool.pods.iter().map(|pod| pod.tells_max_loras).collect();
        assert_eq!(tells, [true, true, false, false]);
        let error = format!("{:#}", of(", lora_load_ms: -1").unwrap_err());
        assert!(error.contains("lora_load_ms must be"), "{error}");
    }

    #[test]
    fn a_number_that_makes_no_sense_is_named() {
        let error = |text: &str| format!("{:#}", parse(text).unwrap_err());
        assert!(error("{pods: [{gpu: h100-qwen3-32b-tp2, slowdown: -1}]}").contains("slowdown"));
        assert!(error("{pods: [{gpu: h100-qwen3-32b-tp2, kv_blocks: 0}]}").contains("kv_blocks"));
        let blocks = "{pods: [{gpu: h100-qwen3-32b-tp2, kv_blocks: 4294967295}]}";
        assert!(error(blocks).contains("kv_blocks must be 1 to 16777216"));
        for endless in ["noise: 50", "api_ms: 1e12", "prefill_factor: .nan", "slowdown: .inf"] {
            let text = format!("{{pods: [{{gpu: h100-qwen3-32b-tp2, {endless}}}]}}");
            let (name, _) = endless.split_once(':').unwrap();
            assert!(error(&text).contains(&format!("{name} must be")), "{endless}");
        }
        assert!(error("{pods: [{gpu: quantum, count: 1}]}").contains("quantum"));
        assert!(error("{pods: [{gpu: h100-qwen3-32b-tp2, colour: red}]}").contains("colour"));
        assert!(error("{pods: []}").contains("no pod"));
        let many =
            "{pods: [{gpu: h100-qwen3-32b-tp2}, {gpu: h100-qwen3-32b-tp2, count: 100000000000}]}";
        assert!(error(many).contains("entry 2 makes more than 10000 pods"));
    }
}
