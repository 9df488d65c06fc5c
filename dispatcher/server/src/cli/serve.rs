//! `weir serve`, and what a new user is told when it runs without a file.

use std::{fmt::Write as _, net::SocketAddr, process::ExitCode};

use super::{output::show, with_config};
use crate::{app, config::Origin};

pub(super) fn run(origin: &Origin) -> ExitCode {
    with_config(origin.load(), |config| {
        let tried = origin.file.is_none().then(|| Tried::of(origin)).flatten();
        let greet = |api, admin| {
            if let Some(tried) = &tried {
                show(&tried.welcome(api, admin));
            }
        };
        Ok(app::serve(config, origin, greet)?)
    })
}

/// The one pod of the built-in configuration.
#[derive(Debug, PartialEq, Eq)]
struct Tried {
    model: String,
    pod: String,
}

impl Tried {
    fn of(origin: &Origin) -> Option<Self> {
        let raw = origin.raw().ok()?;
        let pool = raw.pools.first()?;
        Some(Self { model: pool.model.clone(), pod: pool.pods.first()?.url.clone() })
    }

    /// What is served, and what to do next.
    fn welcome(&self, api: SocketAddr, admin: SocketAddr) -> String {
        let Self { model, pod } = self;
        let port = pod.rsplit(':').next().unwrap_or_default();
        let body = format!(
            r#"{{"model":"{model}","messages":[{{"role":"user","content":"Why hold a request?"}}],"max_tokens":16,"stream":true}}"#
        );
        let mut text = format!(
            "\nWithout --config this is the built-in configuration: model {model} on one simulated pod at {pod}.\n\n"
        );
        let known = if admin.port() == 8081 { String::new() } else { format!(" --admin {admin}") };
        for (label, words) in [
            ("OpenAI API", format!("http://{api}/v1")),
            ("admin side", format!("http://{admin}")),
            ("", String::new()),
            ("start the pod", format!("weir-bench pod --count 1 --port {port}")),
            (
                "send a request",
                format!(
                    "curl -N http://{api}/v1/chat/completions -H 'content-type: application/json' \\"
                ),
            ),
            ("", format!("     -d '{body}'")),
            ("watch", format!("weir top{known}, or http://{admin}/ in a browser")),
            (
                "ask",
                format!(
                    "weir queue ls{known}, weir pods ls{known}, weir explain --input-tokens 4000{known}"
                ),
            ),
            (
                "your own pods",
                "weir serve --config FILE; a file to start from: config/examples/one-machine.yaml"
                    .to_owned(),
            ),
        ] {
            let line = format!("  {label:<16}{words}");
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{}", line.trim_end());
        }
        text + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_welcome_has_the_addresses_a_call_the_page_and_the_board() {
        let tried = Tried::of(&Origin::default()).unwrap();
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let text = tried.welcome(address(8080), address(8081));
        for part in [
            "weir-bench pod --count 1 --port 18001",
            "curl -N http://127.0.0.1:8080/v1/chat/completions",
            r#"{"model":"qwen3-32b""#,
            "weir top, or http://127.0.0.1:8081/ in a browser",
            "--config FILE",
        ] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
        let elsewhere = tried.welcome(address(9000), address(9001));
        assert!(elsewhere.contains("weir top --admin 127.0.0.1:9001"), "{elsewhere}");
    }
}
