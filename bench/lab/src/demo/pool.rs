//! The pods that the demo starts: of one GPU type, or of two that serve the same model.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use weir_engine::{EngineConfig, fluid_capacity_rps, hardware};

use super::args::{DemoArgs, local};
use crate::load::MixMeans;

/// Pods of `--gpu` when all are alike.
const ALIKE: u16 = 3;
/// GPU types of the mixed pool and how many pods of each: Llama 3.1 70B, the measured model whose capacity on two and two
/// pods is nearest to that of the pool of one type. An A100 holds a quarter of what an H100 does.
const MIXED: [(&str, u16); 2] = [("h100-llama-3.1-70b-tp4", 2), ("a100-llama-3.1-70b-tp4", 2)];

/// Which pods there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum PoolKind {
    /// Three pods of one GPU type
    #[default]
    Uniform,
    /// Two H100 pods and two A100 pods that serve the same model
    Mixed,
}

/// Pods of one class.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// Their engine; the hardware's name is the class.
    pub(crate) engine: EngineConfig,
    pub(crate) pods: Vec<SocketAddr>,
}

impl DemoArgs {
    /// The pods, class by class, on consecutive ports.
    pub(super) fn groups(&self) -> Result<Vec<Group>> {
        let types = match self.pool {
            PoolKind::Uniform => vec![(self.gpu.as_str(), ALIKE)],
            PoolKind::Mixed => MIXED.to_vec(),
        };
        let mut port = self.pod_port;
        let mut groups = Vec::new();
        for (name, count) in types {
            let hardware =
                hardware(name).with_context(|| format!("--gpu {name:?} is not known"))?;
            let pods = (0..count).map(|number| local(port.saturating_add(number))).collect();
            groups.push(Group { engine: EngineConfig::for_hardware(hardware), pods });
            port = port.saturating_add(count);
        }
        Ok(groups)
    }
}

impl Group {
    /// The class of its pods.
    pub(super) const fn class(&self) -> &'static str {
        self.engine.hardware.name
    }

    /// The model that they serve.
    pub(super) const fn model(&self) -> &'static str {
        self.engine.hardware.model
    }

    /// Requests per second of a mix that its pods can hold together at so many milliseconds per token.
    pub(super) fn capacity_rps(&self, means: &MixMeans, tpot_ms: f64) -> Result<f64> {
        let (input, output) = (means.input_tokens, means.output_tokens);
        let one = fluid_capacity_rps(&self.engine, input, output, means.shared, tpot_ms);
        ensure!(one > 0.0, "{} cannot hold {tpot_ms} ms per token at any load", self.class());
        Ok(one * self.pods.len() as f64)
    }
}

/// The model of all pods.
pub(super) fn model(groups: &[Group]) -> &'static str {
    groups.first().map_or("", Group::model)
}

/// Where all pods listen.
pub(super) fn addresses(groups: &[Group]) -> Vec<SocketAddr> {
    groups.iter().flat_map(|group| group.pods.iter().copied()).collect()
}
