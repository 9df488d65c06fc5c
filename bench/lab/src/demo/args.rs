//! The command line of `weir-bench demo`.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    process::ExitCode,
};

use anyhow::{Result, ensure};
use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};
pub(super) use weir_core::Policy;

use super::{
    play::play,
    pool::{PoolKind, model},
    stage::Place,
};
use crate::{
    children::{INTERRUPTED, interrupted, unless_interrupted},
    results::say,
};

/// Show Weir with a few simulated pods: learning, overload, and a verdict
#[derive(Clone, Debug, Args)]
pub struct DemoArgs {
    /// Preset by which Weir gives requests to pods
    #[arg(long, value_name = "NAME", value_parser = policy_names(), default_value = "weir")]
    pub(super) policy: Policy,
    /// Pods that serve
    #[arg(long, value_enum, default_value_t)]
    pub(super) pool: PoolKind,
    /// Stay up after the table, to be tried by hand
    #[arg(long)]
    pub(super) keep: bool,
    /// Seconds of each of the two stretches of load
    #[arg(long, default_value_t = 75.0, value_name = "SECONDS")]
    pub(super) stretch: f64,
    /// Load of the first stretch, as a share of what the pods can hold
    #[arg(long, default_value_t = 0.7)]
    pub(super) low: f64,
    /// Load of the second stretch
    #[arg(long, default_value_t = 1.2)]
    pub(super) high: f64,
    /// GPU, model and tensor parallelism of the pods of a uniform pool
    #[arg(long, default_value = "h100-qwen3-32b-tp2")]
    pub(super) gpu: String,
    /// Decides arrivals, lengths and noise
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// Port of Weir's OpenAI API
    #[arg(long, default_value_t = 8080)]
    pub(super) port: u16,
    /// Port of Weir's admin side
    #[arg(long, default_value_t = 8081)]
    pub(super) admin_port: u16,
    /// Port of the first pod; the others follow
    #[arg(long, default_value_t = 18001)]
    pub(super) pod_port: u16,
    /// Folder for the configuration, logs, samples, bundles and the summary
    #[arg(long, default_value = "target/demo")]
    pub(super) dir: PathBuf,
}

/// The names of all policies, as one argument.
fn policy_names() -> impl TypedValueParser<Value = Policy> {
    PossibleValuesParser::new(Policy::ALL.map(Policy::name)).try_map(|name| name.parse::<Policy>())
}

impl DemoArgs {
    /// Runs the demo; the exit code is 0 if everything it checks holds, 1 if not.
    ///
    /// # Errors
    /// When it could not be run at all.
    pub fn run(self) -> Result<ExitCode> {
        let positive = |value: f64| value.is_finite() && value > 0.0;
        ensure!(
            positive(self.stretch) && positive(self.low) && positive(self.high),
            "--stretch, --low and --high must be above zero"
        );
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(self.until_interrupted())
    }

    async fn until_interrupted(&self) -> Result<ExitCode> {
        let played = unless_interrupted(Box::pin(play(self))).await?;
        let Some((stage, passed)) = played else {
            return Ok(ExitCode::from(INTERRUPTED));
        };
        if self.keep {
            self.invite(model(&self.groups()?))?;
            interrupted().await?;
        }
        drop(stage);
        Ok(ExitCode::from(u8::from(!passed)))
    }

    fn invite(&self, model: &str) -> Result<()> {
        let (api, admin) = (self.api(), self.admin());
        say!("Still up; Ctrl-C ends it. Try it:")?;
        say!(
            "  curl -N http://{api}/v1/chat/completions -H 'content-type: application/json' -H \
             'x-llm-d-inference-objective: interactive' -d '{{\"model\":\"{model}\",\"stream\":true,\
             \"messages\":[{{\"role\":\"user\",\"content\":\"hello\"}}]}}'"
        )?;
        say!("  curl http://{admin}/snapshot")
    }

    /// Where everything is.
    pub(super) fn place(&self) -> Place {
        Place { api: self.api(), admin: self.admin(), dir: self.dir.clone(), seed: self.seed }
    }

    /// Where Weir listens.
    pub(super) fn api(&self) -> SocketAddr {
        local(self.port)
    }

    /// Where Weir's admin side listens.
    pub(super) fn admin(&self) -> SocketAddr {
        local(self.admin_port)
    }
}

/// A port of this machine.
pub(crate) fn local(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}
