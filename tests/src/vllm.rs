//! A real vLLM on this machine's CPUs, where `WEIR_VLLM` names the folder that `tests/vllm/install.sh` has filled.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use serde_json::{Value, json};

use crate::{
    Call, MODEL, Plan, Program, Stage,
    wait::within,
    weir::{Metrics, read},
};

/// Adapters for its model that are installed beside it.
pub const ADAPTERS: [&str; 3] = ["sql", "tax", "law"];

/// A server takes this long to start, at most, on a machine that starts several.
const STARTS: Duration = Duration::from_secs(240);

/// A running vLLM.
#[derive(Debug)]
pub struct Vllm {
    /// Where it listens, also after a restart.
    pub address: SocketAddr,
    launch: Launch,
    program: Program,
}

#[derive(Debug)]
struct Launch {
    installed: PathBuf,
    log: PathBuf,
    arguments: Vec<String>,
    /// Variables of its environment.
    variables: Vec<(String, String)>,
}

/// The folder with what is installed; says that its check is skipped and returns `None` when there is none.
pub fn installed() -> Option<PathBuf> {
    let folder = std::env::var_os("WEIR_VLLM").map(PathBuf::from);
    if folder.is_none() {
        println!("skipped: WEIR_VLLM does not name a folder with vLLM (make vllm)");
    }
    folder
}

/// Where adapters are, for an engine that runs so many of them at once.
pub fn with_adapters(installed: &Path, max_loras: u32) -> Vec<String> {
    let adapter = |name: &&str| format!("{name}={}", installed.join("models").join(name).display());
    let fixed = ["--enable-lora", "--max-lora-rank", "8", "--max-loras"].map(str::to_owned);
    let modules = ["--lora-modules".to_owned()].into_iter().chain(ADAPTERS.iter().map(adapter));
    fixed.into_iter().chain([max_loras.to_string()]).chain(modules).collect()
}

/// Servers, each with further arguments, and a dispatcher in front of them.
pub async fn raise(installed: &Path, each: &[&[String]], plan: Plan) -> (Vec<Vllm>, Stage) {
    let servers = Vllm::start(installed, &plan.path(""), each).await;
    let plan = servers.iter().fold(plan, |plan, server| plan.upstream(server.address));
    (servers, plan.raise().await)
}

/// So many words that are a token each to its model, and others for every other number.
pub fn words(count: usize, number: usize) -> String {
    let known = ["what", "pods", "pull", "request", "waits", "turn", "weir", "flow"];
    let word = |at: usize| known.get((at * at * (number + 1) + 7 * at + number / 8) % known.len());
    (number..number + count).filter_map(word).copied().collect::<Vec<_>>().join(" ")
}

/// A chat's messages with one text.
pub fn says(text: &str) -> Value {
    json!([{"role": "user", "content": text}])
}

/// A streamed chat of exactly so many tokens, the same ones every time.
pub fn chat(prompt: &str, tokens: u32) -> Call {
    chat_of(MODEL, prompt, tokens)
}

/// The same of an adapter.
pub fn chat_of(model: &str, prompt: &str, tokens: u32) -> Call {
    let mut fields =
        json!({"model": model, "messages": says(prompt), "temperature": 0, "ignore_eos": true});
    fields["stream_options"] = json!({"include_usage": true});
    Call::chat_with(tokens, &fields)
}

impl Vllm {
    /// Starts servers with further arguments of `vllm serve`, beside each other, and waits until each answers.
    pub async fn start(installed: &Path, logs: &Path, each: &[&[String]]) -> Vec<Self> {
        let mut servers = Vec::new();
        for (number, arguments) in each.iter().enumerate() {
            // Of a server with NIXL the others are told where to find it.
            let side_channel = free_port().to_string();
            let launch = Launch {
                installed: installed.to_owned(),
                log: logs.join(format!("vllm-{number}.log")),
                arguments: arguments.to_vec(),
                variables: vec![("VLLM_NIXL_SIDE_CHANNEL_PORT".to_owned(), side_channel)],
            };
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
            servers.push(Self { address, program: launch.start(address.port()), launch });
        }
        for server in &mut servers {
            server.answers().await;
        }
        servers
    }

    /// Waits until it answers.
    async fn answers(&mut self) {
        let address = self.address;
        within(STARTS, "vLLM answers", async || {
            assert!(self.program.ended().is_none(), "vLLM has ended:\n{}", self.program.log());
            match Call::get("/health").try_open(address).await {
                Ok(answer) if answer.status == 200 => Ok(()),
                other => Err(other.map(|answer| answer.status)),
            }
        })
        .await;
    }

    /// Starts another one at the same address and waits until it answers.
    pub async fn restart(&mut self) {
        self.kill();
        self.program = self.launch.start(self.address.port());
        self.answers().await;
    }

    /// Ends its server and its engines at once, as a lost machine would.
    pub fn kill(&mut self) {
        self.signal("-KILL");
        self.program.kill();
    }

    /// Asks it to end, with SIGTERM, as Kubernetes does.
    pub fn terminate(&self) {
        self.program.terminate();
    }

    /// Its own `/metrics`.
    pub async fn metrics(&self) -> Metrics {
        Metrics(read(self.address, "/metrics/").await)
    }

    /// Of these metrics, which cost it less than all.
    pub async fn told(&self, names: &[&str]) -> Metrics {
        let names: Vec<String> = names.iter().map(|name| format!("name[]={name}")).collect();
        Metrics(read(self.address, &format!("/metrics/?{}", names.join("&"))).await)
    }

    /// To all of its processes: engines are processes of their own, in the server's group.
    fn signal(&self, which: &str) {
        let group = format!("-{}", self.program.id());
        // An error means that they have ended already.
        let _ = Command::new("kill").args([which, "--", &group]).output();
    }
}

impl Drop for Vllm {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Launch {
    fn start(&self, port: u16) -> Program {
        let mut command = Command::new(self.installed.join("venv/bin/vllm"));
        command.arg("serve").arg(self.installed.join("models/tiny"));
        command.args([
            "--served-model-name",
            MODEL,
            "--host",
            "127.0.0.1",
            "--port",
            &port.to_string(),
        ]);
        command.args(["--max-model-len", "4096", "--max-num-seqs", "32", "--enforce-eager"]);
        command.args(&self.arguments).envs(self.variables.iter().cloned());
        // What it keeps, in GB; nothing is fetched and nobody is told.
        command.env("VLLM_CPU_KVCACHE_SPACE", "1").env("HF_HUB_OFFLINE", "1");
        command.env("VLLM_NO_USAGE_STATS", "1").env("UCX_TLS", "tcp,self,shm");
        Program::start(command.process_group(0), &self.log)
    }
}

/// A port that nobody listens on.
///
/// # Panics
/// When there is none.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    listener.local_addr().expect("a listener has an address").port()
}
