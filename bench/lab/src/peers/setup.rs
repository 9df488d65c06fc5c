//! How each peer is configured and started: one worker, connections kept on both sides, no log of requests, streams passed on
//! as they come, bounds above what the load brings.

use std::{
    fmt::Write as _,
    fs,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use super::{peer::Peer, wire::MODEL};

/// Where a peer runs.
#[derive(Debug)]
pub(super) struct Site<'a> {
    /// Folder of its configuration and log.
    pub(super) dir: &'a Path,
    pub(super) pods: &'a [SocketAddr],
    /// The core that it may use.
    pub(super) cores: &'a str,
    /// Where the load goes.
    pub(super) address: SocketAddr,
    /// Its other listener, if it has one.
    pub(super) side: SocketAddr,
    /// Threads of Weir's data plane.
    pub(super) threads: usize,
    /// Bundles that Weir predicts with.
    pub(super) bundles: Option<&'a Path>,
}

impl Site<'_> {
    /// The command that starts a peer on its core, its configuration written.
    ///
    /// # Errors
    /// When the configuration cannot be written.
    pub(super) fn command(&self, peer: Peer, program: &Path) -> Result<Command> {
        let mut command = Command::new("taskset");
        command.args(["-c", self.cores]).arg(program);
        match peer {
            Peer::Direct => {}
            Peer::Nginx => {
                command.arg("-c").arg(self.write("nginx.conf", &self.nginx())?);
            }
            Peer::Haproxy => {
                command.arg("-db").arg("-f").arg(self.write("haproxy.cfg", &self.haproxy())?);
            }
            Peer::Envoy => {
                let file = self.write("envoy.json", &self.envoy())?;
                command.arg("-c").arg(file);
                command.args([
                    "--concurrency",
                    "1",
                    "--disable-hot-restart",
                    "--log-level",
                    "error",
                ]);
            }
            Peer::SglangRouter => {
                command.args(["-m", "sglang_router.launch_router"]);
                self.router(&mut command);
                command.args(["--max-concurrent-requests", "-1", "--log-level", "warn"]);
            }
            Peer::VllmRouter => {
                self.router(&mut command);
                command.args(["--max-concurrent-requests", "100000", "--log-level", "warning"]);
            }
            Peer::Weir => {
                let file = self.write("weir.yaml", &self.weir())?;
                command.arg("serve").arg("--config").arg(file);
            }
        }
        Ok(command)
    }

    fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let file = self.dir.join(name);
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        Ok(file)
    }

    fn nginx(&self) -> String {
        let servers = self.lines(|_, pod| format!("    server {pod};"));
        let temp = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(|kind| {
            format!("  {kind}_temp_path {};\n", self.dir.join(format!("nginx-{kind}")).display())
        });
        format!(
            "daemon off;
user root;
worker_processes 1;
worker_rlimit_nofile 20000;
pid {pid};
error_log {log} warn;
events {{ worker_connections 16384; }}
http {{
  access_log off;
{temp}  client_body_buffer_size 128k;
  client_max_body_size 64m;
  keepalive_requests 1000000000;
  keepalive_timeout 600s;
  tcp_nodelay on;
  upstream pods {{
{servers}    keepalive 256;
    keepalive_requests 1000000000;
  }}
  server {{
    listen {address} backlog=4096;
    location / {{
      proxy_pass http://pods;
      proxy_http_version 1.1;
      proxy_set_header Connection \"\";
      proxy_buffering off;
      proxy_read_timeout 600s;
    }}
  }}
}}
",
            pid = self.dir.join("nginx.pid").display(),
            log = self.dir.join("nginx-error.log").display(),
            temp = temp.concat(),
            address = self.address,
        )
    }

    fn haproxy(&self) -> String {
        let servers = self.lines(|number, pod| format!("  server pod-{number} {pod}"));
        format!(
            "global
  nbthread 1
  maxconn 8000
defaults
  mode http
  timeout connect 5s
  timeout client 600s
  timeout server 600s
  timeout http-keep-alive 600s
  http-reuse always
frontend api
  bind {}
  default_backend pods
backend pods
  balance roundrobin
{servers}",
            self.address
        )
    }

    fn envoy(&self) -> String {
        let at = |address: &SocketAddr| {
            serde_json::json!({ "socket_address": {
                "address": address.ip().to_string(), "port_value": address.port() } })
        };
        let pods =
            self.pods.iter().map(|pod| serde_json::json!({ "endpoint": { "address": at(pod) } }));
        let pods: Vec<_> = pods.collect();
        let kind = |name: &str| format!("type.googleapis.com/envoy.extensions.filters.{name}");
        let router = serde_json::json!({ "name": "envoy.filters.http.router",
            "typed_config": { "@type": kind("http.router.v3.Router") } });
        let route = serde_json::json!({ "match": { "prefix": "/" },
            "route": { "cluster": "pods", "timeout": "0s", "idle_timeout": "0s" } });
        let manager = serde_json::json!({
            "@type": kind("network.http_connection_manager.v3.HttpConnectionManager"),
            "stat_prefix": "api",
            "stream_idle_timeout": "0s",
            "http_filters": [router],
            "route_config": { "virtual_hosts": [
                { "name": "all", "domains": ["*"], "routes": [route] } ] } });
        let most = 100_000;
        let bounds = serde_json::json!({ "max_connections": most, "max_pending_requests": most,
            "max_requests": most });
        serde_json::json!({ "static_resources": {
            "listeners": [{ "name": "api", "address": at(&self.address), "filter_chains": [
                { "filters": [{ "name": "envoy.filters.network.http_connection_manager",
                    "typed_config": manager }] }] }],
            "clusters": [{ "name": "pods", "type": "STATIC", "connect_timeout": "5s",
                "circuit_breakers": { "thresholds": [bounds] },
                "load_assignment": { "cluster_name": "pods",
                    "endpoints": [{ "lb_endpoints": pods }] } }] } })
        .to_string()
    }

    fn router(&self, command: &mut Command) {
        command.args(["--host", "127.0.0.1", "--policy", "round_robin"]);
        command.args(["--port", &self.address.port().to_string()]);
        command.args(["--prometheus-host", "127.0.0.1"]);
        command.args(["--prometheus-port", &self.side.port().to_string()]);
        command.args(["--request-timeout-secs", "1800", "--worker-urls"]);
        command.args(self.pods.iter().map(|pod| format!("http://{pod}")));
    }

    /// Weir as it is, with a queue that nothing has to wait in: the other peers have none.
    fn weir(&self) -> String {
        let pods = pod_lines(self.pods);
        let bundles = self.bundles.map_or_else(|| self.dir.join("bundles"), Path::to_owned);
        format!(
            "listen: {api}
admin: {{ listen: {admin} }}
threads: {threads}
classes:
  - {{ name: bench, chunk_tokens: 8192, max_sequences: 16384, kv_blocks: 10000000, block_tokens: 16 }}
pools:
  - model: {MODEL}
    pods:
{pods}objectives:
  standard: {{ band: 0, ttft_ms: 600000, tpot_ms: 60000 }}
service_tiers: {{}}
pull:
  top_band_tokens: 1000000000
  pending_tokens: 1000000000
  step_tokens: 1000000000
model: {{ bundles: {bundles:?} }}
spool: {{ dir: {spool:?} }}
state: {{ dir: {state:?} }}
upstream: {{ first_token_timeout_s: 600, stall_timeout_s: 600 }}
log: {{ level: warn }}
",
            api = self.address,
            admin = self.side,
            threads = self.threads,
            spool = self.dir.join("spool"),
            state = self.dir.join("state"),
        )
    }

    fn lines(&self, line: impl Fn(usize, &SocketAddr) -> String) -> String {
        lines(self.pods, line)
    }
}

fn lines(pods: &[SocketAddr], line: impl Fn(usize, &SocketAddr) -> String) -> String {
    let mut text = String::new();
    for (number, pod) in pods.iter().enumerate() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", line(number, pod));
    }
    text
}

/// The pods of a pool in Weir's configuration.
pub(super) fn pod_lines(pods: &[SocketAddr]) -> String {
    lines(pods, |number, pod| {
        format!("      - {{ name: pod-{number}, url: \"http://{pod}\", class: bench }}")
    })
}

/// An address of this machine that nobody listens on.
///
/// # Errors
/// When there is none.
pub(super) fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0").context("no free port")?.local_addr()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_peer_is_told_its_core_its_address_and_all_pods() {
        let folder = tempfile::tempdir().unwrap();
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let site = Site {
            dir: folder.path(),
            pods: &[at(7001), at(7002)],
            cores: "1",
            address: at(7100),
            side: at(7101),
            threads: 1,
            bundles: None,
        };
        for peer in Peer::ALL.into_iter().filter(|peer| *peer != Peer::Direct) {
            let command = site.command(peer, Path::new("/bin/peer")).unwrap();
            let words: Vec<_> =
                command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
            assert_eq!(words[..3], ["-c", "1", "/bin/peer"], "{peer}");
            let files =
                words.iter().filter(|word| word.starts_with(folder.path().to_str().unwrap()));
            let told: String = files.map(|file| fs::read_to_string(file).unwrap()).collect();
            let told = told + &words.join(" ");
            for port in ["7001", "7002", "7100"] {
                assert!(told.contains(port), "{peer} {port}: {told}");
            }
        }
    }
}
