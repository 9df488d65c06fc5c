//! The command line.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::{
    advise::AdviseArgs,
    decide::DecideArgs,
    demo::DemoArgs,
    honesty::HonestyArgs,
    instructions::InstructionsArgs,
    lab::{GuardArgs, LabArgs},
    limits::LimitsArgs,
    load::LoadArgs,
    peers::{ExerciseArgs, PeersArgs},
    pod::PodArgs,
    qps::QpsArgs,
    report::ReportArgs,
    rfc::RfcArgs,
    scale::ScaleArgs,
    sensitivity::SensitivityArgs,
    study::SimArgs,
    train::TrainArgs,
    versus::VersusArgs,
};

/// The lab: simulated pods, load and a demo of Weir, without a GPU
#[derive(Debug, Parser)]
#[command(name = "weir-bench", disable_help_subcommand = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Pod(PodArgs),
    Load(LoadArgs),
    Demo(DemoArgs),
    Sim(SimArgs),
    Scale(ScaleArgs),
    Limits(LimitsArgs),
    Report(ReportArgs),
    Lab(LabArgs),
    Guard(GuardArgs),
    Advise(AdviseArgs),
    Rfc(RfcArgs),
    Honesty(HonestyArgs),
    Versus(VersusArgs),
    Sensitivity(SensitivityArgs),
    Qps(QpsArgs),
    Peers(PeersArgs),
    Exercise(ExerciseArgs),
    Train(TrainArgs),
    Decide(DecideArgs),
    Instructions(InstructionsArgs),
}

impl Cli {
    /// Runs the chosen command.
    ///
    /// # Errors
    /// Whatever stopped the command before it had a result.
    pub fn run(self) -> Result<ExitCode> {
        match self.command {
            Command::Pod(pod) => pod.run(),
            Command::Load(load) => load.run(),
            Command::Demo(demo) => demo.run(),
            Command::Sim(sim) => sim.run(),
            Command::Scale(scale) => scale.run(),
            Command::Limits(limits) => limits.run(),
            Command::Report(report) => report.run(),
            Command::Lab(lab) => lab.run(),
            Command::Guard(guard) => guard.run(),
            Command::Advise(advise) => advise.run(),
            Command::Rfc(rfc) => rfc.run(),
            Command::Honesty(honesty) => honesty.run(),
            Command::Versus(versus) => versus.run(),
            Command::Sensitivity(sensitivity) => sensitivity.run(),
            Command::Qps(qps) => qps.run(),
            Command::Peers(peers) => peers.run(),
            Command::Exercise(exercise) => exercise.run(),
            Command::Train(train) => train.run(),
            Command::Decide(decide) => decide.run(),
            Command::Instructions(instructions) => instructions.run(),
        }
    }
}
