//! The command line of `weir-bench pod`.

use std::{
    io::{Read, stdin},
    process::ExitCode,
};

use anyhow::{Context, Result, ensure};
use clap::Args;
use weir_engine::{EngineConfig, SeqId, all_hardware, hardware};

use super::{PodPlan, Pods, models::Models};
use crate::{bounds, children::interrupted, results::say};

/// Host simulated vLLM pods on consecutive ports of 127.0.0.1
#[derive(Debug, Args)]
pub struct PodArgs {
    /// How many pods
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    count: u16,
    /// Port of the first pod, the others follow; 0 lets the system choose that of each pod
    #[arg(long, default_value_t = 18001)]
    port: u16,
    /// GPU, model and tensor parallelism whose measured step times are used
    #[arg(long, default_value = "h100-qwen3-32b-tp2")]
    gpu: String,
    /// Model that the pods serve
    #[arg(long, default_value = "qwen3-32b")]
    model: String,
    /// Engine seconds per second
    #[arg(long, default_value_t = 1.0, allow_negative_numbers = true)]
    speed: f64,
    /// Decides noise and drawn output lengths; pod n uses this plus n
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// vLLM's --data-parallel-size of a mixture of experts, whose engines step together: so many ranks behind each
    /// port, for X-data-parallel-rank to choose among; each has --max-sequences, --chunk-tokens and --kv-blocks of its own
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=i64::from(SeqId::MOST_RANKS)))]
    data_parallel_size: u16,
    /// vLLM's --data-parallel-size-local: so many of the ranks behind each port, on consecutive ports; all of them behind one
    /// when absent; 1 is an engine for each port, as --data-parallel-multi-port-external-lb
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    data_parallel_size_local: Option<u16>,
    /// vLLM's --max-model-len
    #[arg(long, default_value_t = 131_072, value_parser = clap::value_parser!(u32).range(1..))]
    max_model_len: u32,
    /// vLLM's --max-num-batched-tokens; the GPU's default when absent
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    chunk_tokens: Option<u32>,
    /// vLLM's --max-num-seqs; the GPU's default when absent
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    max_sequences: Option<u32>,
    /// vLLM's --max-num-queued-reqs: with so many requests, running or waiting, more are answered 503; no limit when absent
    #[arg(long, value_name = "N")]
    max_num_queued_reqs: Option<u32>,
    /// vLLM's --max-num-queued-tokens: the same with so many tokens of prompts without a first token
    #[arg(long, value_name = "N")]
    max_num_queued_tokens: Option<u32>,
    /// KV blocks; what fits the GPU when absent
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..))]
    kv_blocks: Option<u32>,
    /// vLLM's --max-loras: different adapters that an engine runs at once
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    max_loras: u32,
    /// LoRA adapters that are served beside the model, by their names
    #[arg(long, value_name = "NAME", num_args = 1..)]
    lora_modules: Vec<String>,
    /// Milliseconds in which an engine stands still for each adapter that it brings onto the GPU; 20 when absent
    #[arg(long, value_name = "MS", value_parser = bounds::lora_load_ms)]
    lora_load_ms: Option<f64>,
    /// End when standard input is closed, as a child of a program that may die
    #[arg(long)]
    end_with_stdin: bool,
}

impl PodArgs {
    /// Serves until it is interrupted.
    ///
    /// # Errors
    /// When the arguments make no sense or a port is taken.
    pub fn run(self) -> Result<ExitCode> {
        let plan = self.plan()?;
        if self.end_with_stdin {
            end_with_stdin()?;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let pods = Pods::bind(&plan).await?;
            for address in pods.addresses() {
                say!("pod {} on http://{address}", plan.model)?;
            }
            tokio::select! {
                () = pods.serve() => {}
                stopped = interrupted() => stopped?,
            }
            Ok(ExitCode::SUCCESS)
        })
    }

    fn plan(&self) -> Result<PodPlan> {
        let speed_is_fine = self.speed.is_finite() && self.speed > 0.0;
        ensure!(speed_is_fine, "--speed must be above zero");
        let plan = PodPlan {
            count: self.count,
            port: self.port,
            ranks_per_port: self.data_parallel_size_local,
            model: self.model.clone(),
            adapters: self.lora_modules.clone(),
            engine: self.engine()?,
            speed: self.speed,
            max_model_len: self.max_model_len,
        };
        Models::check(&plan.model, &plan.adapters).context("--lora-modules")?;
        let each = plan.ranks_by_port().context("--data-parallel-size-local")?.len();
        plan.port_of((usize::from(self.count) * each).saturating_sub(1))
            .context("--port and --count")?;
        Ok(plan)
    }

    fn engine(&self) -> Result<EngineConfig> {
        let known = || {
            let names: Vec<&str> = all_hardware().iter().map(|hardware| hardware.name).collect();
            format!("--gpu {:?} is not known; known are {}", self.gpu, names.join(", "))
        };
        let defaults = EngineConfig::for_hardware(hardware(&self.gpu).with_context(known)?);
        Ok(EngineConfig {
            ranks: self.data_parallel_size,
            max_num_batched_tokens: self.chunk_tokens.unwrap_or(defaults.max_num_batched_tokens),
            max_num_seqs: self.max_sequences.unwrap_or(defaults.max_num_seqs),
            num_blocks: self.kv_blocks.unwrap_or(defaults.num_blocks),
            max_num_queued_reqs: self.max_num_queued_reqs,
            max_num_queued_tokens: self.max_num_queued_tokens.map(u64::from),
            max_loras: self.max_loras,
            lora_load_ms: self.lora_load_ms.unwrap_or(defaults.lora_load_ms),
            seed: self.seed,
            ..defaults
        })
    }
}

/// Interrupts this process when its standard input closes, which happens when the process that holds the other end dies.
fn end_with_stdin() -> Result<()> {
    std::thread::Builder::new().name("stdin".to_owned()).spawn(|| {
        let mut rest = [0; 256];
        while matches!(stdin().read(&mut rest), Ok(read) if read > 0) {}
        crate::children::interrupt();
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        pod: PodArgs,
    }

    fn parse(words: &str) -> Result<PodArgs, clap::Error> {
        let words = std::iter::once("pod").chain(words.split_whitespace());
        Line::try_parse_from(words).map(|line| line.pod)
    }

    #[test]
    fn what_makes_no_pod_is_refused() {
        for name in [
            "--count",
            "--data-parallel-size",
            "--data-parallel-size-local",
            "--chunk-tokens",
            "--max-sequences",
            "--max-model-len",
        ] {
            let error = parse(&format!("{name} 0")).unwrap_err();
            assert!(error.to_string().contains(name), "{error}");
        }
        assert!(parse("--data-parallel-size 1025").is_err(), "the most that an engine has");
        assert!(parse("--kv-blocks 1").is_err(), "the engine's own");
        for speed in ["0", "-1", "nan"] {
            let error = parse(&format!("--speed {speed}")).unwrap().plan().unwrap_err();
            assert!(error.to_string().contains("--speed must be above zero"), "{error}");
        }
    }

    #[test]
    fn adapters_have_names_of_their_own() {
        let plan = |words: &str| parse(words).unwrap().plan();
        let two = plan("--lora-modules a b --max-loras 2 --lora-load-ms 3.5").unwrap();
        assert_eq!(two.adapters, ["a", "b"]);
        assert_eq!((two.engine.max_loras, two.engine.lora_load_ms), (2, 3.5));
        assert_eq!(plan("").unwrap().engine.max_loras, 1, "vLLM's own");
        for twice in ["--lora-modules a b a", "--model a --lora-modules a"] {
            let error = format!("{:#}", plan(twice).unwrap_err());
            assert!(error.contains("--lora-modules: two models are called \"a\""), "{error}");
        }
        assert!(plan("--lora-modules a,b").is_err(), "the metric lists them so");
        assert!(parse("--max-loras 0").is_err() && parse("--lora-load-ms -1").is_err());
    }

    #[test]
    fn each_port_has_as_many_ranks_or_none_is_bound() {
        let plan = |words: &str| parse(words).unwrap().plan();
        for words in ["--data-parallel-size 4", "--data-parallel-size 6 --port 0", ""] {
            let error = plan(&format!("{words} --data-parallel-size-local 5")).unwrap_err();
            let error = format!("{error:#}");
            assert!(error.starts_with("--data-parallel-size-local: "), "{error}");
        }
        let ranks = |words| plan(words).unwrap().ranks_by_port().unwrap();
        assert_eq!(ranks("--data-parallel-size 4 --data-parallel-size-local 2"), [0..2, 2..4]);
        assert_eq!(
            ranks("--data-parallel-size 3 --data-parallel-size-local 1"),
            [0..1, 1..2, 2..3]
        );
        assert_eq!(ranks("--data-parallel-size 3 --data-parallel-size-local 3").len(), 1);
        assert_eq!(ranks("--data-parallel-size 3").len(), 1);
    }

    #[test]
    fn ports_beyond_the_last_one_are_refused_before_any_is_bound() {
        let plan = |words: &str| parse(words).unwrap().plan();
        let error = format!("{:#}", plan("--count 2 --port 65535").unwrap_err());
        assert!(error.contains("beyond 65535") && error.contains("--port"), "{error}");
        assert_eq!(plan("--count 2 --port 65534").unwrap().port_of(1).unwrap(), 65535);
        assert_eq!(plan("--count 2 --port 0").unwrap().port_of(1).unwrap(), 0);
        let two_each = "--count 2 --data-parallel-size 4 --data-parallel-size-local 2";
        assert!(plan(&format!("{two_each} --port 65533")).is_err());
        assert!(plan(&format!("{two_each} --port 65532")).is_ok());
    }
}
