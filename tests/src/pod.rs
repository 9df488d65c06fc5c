//! One simulated pod: a process that can be killed and come back, shows faults, and keeps an account of
//! its own to compare the dispatcher's with.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use crate::{
    Call, MODEL, Program, built,
    weir::{Metrics, read},
};

/// A simulated pod.
#[derive(Debug)]
pub struct Pod {
    /// Where it listens, also after a restart.
    pub address: SocketAddr,
    arguments: Vec<String>,
    log: PathBuf,
    program: Program,
}

impl Pod {
    /// Starts a pod with further arguments of `weir-bench pod` and waits until it answers.
    pub async fn start(log: &Path, arguments: &[String]) -> Self {
        let mut program = launch(log, 0, arguments);
        let address = program
            .says("the pod says where it listens", |line| {
                line.rsplit_once("http://").and_then(|(_, address)| address.parse().ok())
            })
            .await;
        Self { address, arguments: arguments.to_vec(), log: log.to_owned(), program }
    }

    /// Ends it at once, as a lost machine would.
    pub fn kill(&mut self) {
        self.program.kill();
    }

    /// Stops it where it is, as on a machine that hangs.
    pub fn hang(&self) {
        self.program.hang();
    }

    /// Lets it go on after [`Pod::hang`].
    pub fn go_on(&self) {
        self.program.go_on();
    }

    /// Starts another process at the same address and waits until it answers.
    pub async fn restart(&mut self) {
        self.program.kill();
        self.program = launch(&self.log, self.address.port(), &self.arguments);
        let address = self.address;
        crate::eventually("the pod answers again", async || {
            Call::get("/health").try_open(address).await
        })
        .await;
    }

    /// Whether its process runs.
    pub fn is_up(&mut self) -> bool {
        self.program.ended().is_none()
    }

    /// Makes it show a fault, given as the body of `POST /fault`.
    ///
    /// # Panics
    /// When it does not take the fault.
    pub async fn fault(&self, fault: Value) {
        let reply = Call::post("/fault", fault.to_string()).to(self.address).await;
        assert_eq!(reply.status, 200, "{reply:?}");
    }

    /// Its own `/metrics`.
    pub async fn metrics(&self) -> Metrics {
        Metrics(read(self.address, "/metrics").await)
    }

    /// Requests that its engine runs or has queued.
    pub async fn busy(&self) -> f64 {
        let metrics = self.metrics().await;
        metrics.sum("vllm:num_requests_running", &[])
            + metrics.sum("vllm:num_requests_waiting", &[])
    }
}

fn launch(log: &Path, port: u16, arguments: &[String]) -> Program {
    let mut command = Command::new(built::binary("weir-bench"));
    command.args(["pod", "--model", MODEL, "--port", &port.to_string()]).args(arguments);
    Program::start(&mut command, log)
}
