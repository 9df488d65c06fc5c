//! Waiting until a pod has nothing left, with progress on standard error.
//!
//! Ends when the pod is drained, when the time is up, or when somebody else lets the pod go on. An
//! interrupt ends the waiting and not the drain.

use std::{
    io::{IsTerminal as _, Write as _},
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::cli::{
    answers::{self, Pod},
    failure::Failure,
    output::{figures::time, table::plain},
    remote::Admin,
};

/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(500);

/// Looks at a draining pod until nothing is left on it; returns it as it is then.
pub(super) fn until_drained(
    admin: &Admin,
    name: &str,
    pool: Option<&str>,
    limit: Option<Duration>,
) -> Result<Value, Failure> {
    let began = Instant::now();
    let mut progress = Progress::default();
    loop {
        let answer = super::look(admin, name, pool)?;
        let pod: Pod = answers::read(answer.clone())
            .map_err(|error| Failure::not_understood("the pod", error))?;
        if pod.is_drained() {
            progress.end();
            return Ok(answer);
        }
        if !matches!(pod.phase.as_str(), "draining" | "broken") {
            progress.end();
            return Err(Failure::Failed(format!(
                "{name} is {} again: somebody let it go on; nothing more to wait for",
                pod.phase
            )));
        }
        if limit.is_some_and(|limit| began.elapsed() >= limit) {
            progress.end();
            return Err(Failure::Failed(format!(
                "{name} is not drained: {}; it goes on draining: `weir pods show {name}` lists what is known",
                pod.awaited()
            )));
        }
        progress.say(&words(&pod));
        std::thread::sleep(PAUSE);
    }
}

fn words(pod: &Pod) -> String {
    let expected = pod.drain.as_ref().and_then(|drain| drain.expected_ms);
    let expected = expected.filter(|_| pod.left() > 0);
    let expected =
        expected.map(|ms| format!(", about {} more", time(Some(ms)))).unwrap_or_default();
    format!("{} drains: {}{expected}", plain(&pod.pod), pod.awaited())
}

/// One line that is written over on a terminal; elsewhere a line for each change.
#[derive(Debug, Default)]
struct Progress {
    last: String,
}

impl Progress {
    fn say(&mut self, words: &str) {
        if self.last == words {
            return;
        }
        self.last = words.to_owned();
        let mut out = std::io::stderr();
        // Nobody to tell is no reason to stop.
        let _ = if out.is_terminal() {
            write!(out, "\r\x1b[K{words}").and_then(|()| out.flush())
        } else {
            writeln!(out, "{words}")
        };
    }

    fn end(&self) {
        let mut out = std::io::stderr();
        if out.is_terminal() && !self.last.is_empty() {
            let _ = write!(out, "\r\x1b[K").and_then(|()| out.flush());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn progress_says_what_is_left_and_how_long_it_may_take() {
        let pod = |drain| -> Pod {
            serde_json::from_value(json!({"pod": "pod-1", "phase": "draining", "drain": drain}))
                .unwrap()
        };
        let known = pod(json!({"left": 7, "expected_ms": 12_400.0}));
        assert_eq!(words(&known), "pod-1 drains: 7 left, about 12s more");
        let unknown = pod(json!({"left": 1, "expected_ms": null}));
        assert_eq!(words(&unknown), "pod-1 drains: 1 left");
        let others = pod(json!({"left": 0, "others": 2, "expected_ms": 0.0}));
        assert_eq!(words(&others), "pod-1 drains: 2 on it that this dispatcher did not send");
    }
}
