//! The pods of a study, and what they can hold.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use weir_core::{PodClass, Role, halves::LOCAL_TOKENS};
use weir_engine::{EngineConfig, all_hardware, fluid_capacity_rps, hardware};

use super::SimPod;
use crate::workload::{self, Means};

/// Pods of one or more classes.
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    /// Their classes, as a dispatcher is told of them.
    pub classes: Vec<PodClass>,
    /// The pods, in the order of their ids.
    pub pods: Vec<SimPod>,
    /// Time between two scrapes of a pod.
    pub scrape_every: Duration,
    /// Tokens of each of the blocks that requests name.
    pub named_tokens: u32,
    /// Where some of the pods compute prompts for the others: of a prompt of which one of those has fewer tokens than this to compute
    /// it does so itself.
    pub local_tokens: u32,
    /// And one that no pod prefills at once may go to a pod that answers with room for it.
    pub overflow: bool,
}

impl Pool {
    /// Age of a scrape that dispatchers in the field have at most.
    pub const SCRAPE_EVERY: Duration = Duration::from_millis(50);

    /// `count` pods of a GPU, model and tensor parallelism by its name, with vLLM's defaults but for the tokens of a step.
    ///
    /// # Errors
    /// When the name is not known.
    pub fn of(gpu: &str, count: usize, chunk_tokens: Option<u32>) -> Result<Self> {
        let hardware = hardware(gpu).with_context(|| {
            let known: Vec<_> = all_hardware().iter().map(|hardware| hardware.name).collect();
            format!("gpu {gpu:?} is not known; known are {}", known.join(", "))
        })?;
        let mut engine = EngineConfig::for_hardware(hardware);
        engine.max_num_batched_tokens = chunk_tokens.unwrap_or(engine.max_num_batched_tokens);
        let mut pool = Self::empty(Self::SCRAPE_EVERY);
        pool.add(&engine, count, Role::Both);
        Ok(pool)
    }

    /// None yet.
    pub const fn empty(scrape_every: Duration) -> Self {
        Self {
            classes: Vec::new(),
            pods: Vec::new(),
            scrape_every,
            named_tokens: workload::BLOCK_TOKENS,
            local_tokens: LOCAL_TOKENS,
            overflow: true,
        }
    }

    /// Adds a class and its pods.
    pub fn add(&mut self, engine: &EngineConfig, count: usize, role: Role) {
        let class = u16::try_from(self.classes.len()).unwrap_or(u16::MAX);
        // Those of a server that is one pod together.
        let ranks = u32::from(engine.ranks.max(1));
        self.classes.push(PodClass {
            name: Arc::from(engine.hardware.name),
            chunk_tokens: engine.max_num_batched_tokens,
            max_sequences: engine.max_num_seqs * ranks,
            kv_blocks: engine.num_blocks * ranks,
            block_tokens: engine.block_size,
            prefix_caching: engine.prefix_caching,
            max_loras: engine.max_loras,
            role,
            ..PodClass::default()
        });
        let prefills = role == Role::Prefill;
        let pod = SimPod { prefills, ..SimPod::of(engine.clone(), class) };
        self.pods.extend(std::iter::repeat_n(pod, count));
    }

    /// Adds servers of so many engines that step together, each engine a pod; of so many in a row that is known.
    pub fn add_apart(&mut self, engine: &EngineConfig, servers: usize, [engines, known]: [u16; 2]) {
        let next = |of: fn(&SimPod) -> Option<u32>, pods: &[SimPod]| {
            pods.iter().filter_map(of).max().map_or(0, |last| last + 1)
        };
        let (server, group) =
            (next(|pod| pod.server, &self.pods), next(|pod| pod.group, &self.pods));
        let before = self.pods.len();
        self.add(engine, servers * usize::from(engines), Role::Both);
        if let Some(class) = self.classes.last_mut() {
            class.data_parallel_size = engines;
        }
        let added = self.pods.iter_mut().skip(before);
        for (number, pod) in (0..).zip(added) {
            pod.server = Some(server + number / u32::from(engines));
            pod.group = (known > 1).then_some(group + number / u32::from(known.max(1)));
        }
    }

    /// Has every pod run at most so many adapters at once, 0 any number, and stand still for so long for each that it brings, if that is said.
    pub fn limit_loras(&mut self, max_loras: u32, lora_load_ms: Option<f64>) {
        self.classes.iter_mut().for_each(|class| class.max_loras = max_loras);
        for SimPod { engine, .. } in &mut self.pods {
            engine.max_loras = max_loras;
            engine.lora_load_ms = lora_load_ms.unwrap_or(engine.lora_load_ms);
        }
    }

    /// Makes all pods of a pool of one class engines of one server, which step together.
    pub fn unite(&mut self) {
        let engines = u16::try_from(self.pods.len()).unwrap_or(u16::MAX);
        self.classes.iter_mut().for_each(|class| class.data_parallel_size = engines);
        self.pods.iter_mut().for_each(|pod| (pod.server, pod.group) = (Some(0), Some(0)));
    }

    /// Has the first so many pods of a pool of one class compute prompts for the others.
    pub fn divide(&mut self, prefill: usize) {
        let Some(class) = self.classes.first().cloned().filter(|_| prefill > 0) else { return };
        self.classes.push(PodClass { role: Role::Prefill, ..class });
        let second = u16::try_from(self.classes.len() - 1).unwrap_or(u16::MAX);
        for pod in self.pods.iter_mut().take(prefill) {
            (pod.class, pod.prefills) = (second, true);
        }
    }

    /// Whether some of the pods compute prompts for the others.
    pub fn is_split(&self) -> bool {
        self.pods.iter().any(|pod| pod.prefills)
    }

    /// For who simulates only pods that serve whole requests.
    ///
    /// # Errors
    /// When some of the pods prefill for the others.
    pub fn undivided(self) -> Result<Self> {
        ensure!(
            !self.is_split(),
            "pods that prefill for others are simulated by `weir-bench sim` alone"
        );
        Ok(self)
    }

    /// Those of the pods alone that do so, or that do not.
    #[must_use]
    pub fn half(&self, prefills: bool) -> Self {
        let pods = self.pods.iter().filter(|pod| pod.prefills == prefills);
        Self { pods: pods.cloned().collect(), ..self.clone() }
    }

    /// The pods with noise of their own.
    pub fn seeded(&self, seed: u64) -> Vec<SimPod> {
        self.pods.iter().enumerate().map(|(number, pod)| pod.seeded(seed, number)).collect()
    }

    /// Tokens of prompt and answer that the pod with the largest cache can hold: a request of more is taken by none.
    pub fn most_tokens(&self) -> u64 {
        let of =
            |pod: &SimPod| u64::from(pod.engine.usable_blocks()) * u64::from(pod.engine.block_size);
        self.pods.iter().map(of).max().unwrap_or_default()
    }

    /// Requests per second of such traffic that the pods hold at a pace of `tpot_ms`, by formula: load 1.
    pub fn capacity_rps(&self, means: &Means, tpot_ms: f64) -> f64 {
        let of = |pod: &SimPod| {
            let (input, output) = (means.input_tokens, means.output_tokens);
            let ranks = f64::from(pod.engine.ranks.max(1));
            ranks * fluid_capacity_rps(&pod.engine, input, output, means.hit, tpot_ms)
        };
        self.pods.iter().map(of).sum()
    }
}
