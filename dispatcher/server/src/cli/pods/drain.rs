//! Waiting until a pod has nothing left, with progress on standard error.
//!
//! Ends when the pod is drained, when it has left the pool and its last request is over, when the time of all that are waited for is
//! up, or when somebody else lets the pod go on. An interrupt ends the waiting and not the drain.

use std::{
    io::{IsTerminal as _, Write as _},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::cli::{
    answers::{self, Pod},
    failure::Failure,
    output::{figures::time, table::plain},
    remote::Admin,
};

/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(500);

/// The phase of a pod that the dispatcher does not know any more, of which this program tells.
pub(super) const GONE: &str = "gone";

/// Looks at a draining pod until nothing is left on it, or the time is up; returns it as it is then. It is known: its drain was
/// asked for.
pub(super) fn until_drained(
    admin: &Admin,
    name: &str,
    pool: Option<&str>,
    until: Option<Instant>,
) -> Result<Value, Failure> {
    let mut progress = Progress::default();
    loop {
        let answer = match super::look(admin, name, pool) {
            // One that leaves the pool is known as long as anything is left on it.
            Err(Failure::NotFound(_)) => {
                progress.end();
                return Ok(json!({"pod": name, "phase": GONE}));
            }
            answer => answer?,
        };
        let pod: Pod = answers::read(answer.clone())
            .map_err(|error| Failure::not_understood("the pod", error))?;
        if pod.is_drained() {
            progress.end();
            return Ok(answer);
        }
        if !matches!(pod.phase.as_str(), "draining" | "leaving" | "broken") {
            progress.end();
            return Err(Failure::Failed(format!(
                "{name} is {} again: somebody let it go on; nothing more to wait for",
                pod.phase
            )));
        }
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            progress.end();
            return Err(Failure::Failed(format!(
                "{name} is not drained: {}; it goes on draining: `weir pods show {name}` lists what is known",
                pod.awaited()
            )));
        }
        progress.say(&words(&pod));
        std::thread::sleep(left.unwrap_or(PAUSE).min(PAUSE));
    }
}

fn words(pod: &Pod) -> String {
    let expected = pod.drain.as_ref().and_then(|drain| drain.expected_ms);
    let expected = expected.filter(|_| pod.left() > 0);
    let expected =
        expected.map(|ms| format!(", about {} more", time(Some(ms)))).unwrap_or_default();
    let does = if pod.phase == "leaving" { "has left the pool" } else { "drains" };
    format!("{} {does}: {}{expected}", plain(&pod.pod), pod.awaited())
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
    use std::{
        collections::BTreeMap,
        io::Read as _,
        net::{TcpListener, TcpStream},
        thread::{self, JoinHandle},
    };

    use clap::Parser;

    use super::*;
    use crate::cli::pods::{PodsArgs, run};

    #[derive(Parser)]
    struct Alone {
        #[command(flatten)]
        args: PodsArgs,
    }

    /// An admin side of which one pod is drained at the second look, and the other never; it ends with the last of so
    /// many calls, and says how often each was looked at.
    fn serve(listener: TcpListener, calls: usize) -> JoinHandle<BTreeMap<String, u32>> {
        thread::spawn(move || {
            let mut looks = BTreeMap::new();
            for _ in 0..calls {
                let (mut stream, _) = listener.accept().unwrap();
                let head = read_call(&mut stream);
                let pod = if head.contains("/pods/first") { "first" } else { "second" };
                let seen = looks.entry(pod.to_owned()).or_default();
                *seen += u32::from(head.starts_with("GET"));
                let phase = if (pod, *seen) == ("first", 2) { "drained" } else { "draining" };
                let body = json!({"pod": pod, "phase": phase}).to_string();
                write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
                    .unwrap();
            }
            looks
        })
    }

    fn read_call(stream: &mut TcpStream) -> String {
        let mut head = String::new();
        let mut piece = [0; 1024];
        while !is_whole(&head) {
            let read = stream.read(&mut piece).unwrap();
            assert!(read > 0, "the call ends before its time: {head}");
            head.push_str(std::str::from_utf8(&piece[..read]).unwrap());
        }
        head
    }

    fn is_whole(call: &str) -> bool {
        let body = call.split_once("\r\n\r\n").map(|(_, body)| body);
        body.is_some_and(|body| call.starts_with("GET") || body == "{}")
    }

    #[test]
    fn a_timeout_is_that_of_all_pods_together() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let admin = listener.local_addr().unwrap().to_string();
        // Two drains, and the looks: the first pod's second one is when the time is up.
        let served = serve(listener, 5);
        let words = ["weir", "drain", "first", "second", "--wait", "--timeout", "50ms"];
        let words = words.into_iter().chain(["--admin", &admin]);
        let failure = run(Alone::try_parse_from(words).unwrap().args).unwrap_err();
        assert!(failure.to_string().starts_with("second is not drained"), "{failure}");
        let looks = served.join().unwrap();
        assert_eq!(looks, [("first".to_owned(), 2), ("second".to_owned(), 1)].into());
    }

    #[test]
    fn a_pod_that_leaves_the_pool_is_waited_for_until_it_is_known_no_more() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let admin = listener.local_addr().unwrap().to_string();
        let answers = [
            (200, r#"{"pod": "first", "phase": "draining", "drain": {"left": 2}}"#),
            (200, r#"{"pod": "first", "phase": "leaving", "drain": {"left": 1}}"#),
            (404, r#"{"error": {"message": "there is no pod \"first\"", "code": "not_found"}}"#),
        ];
        let served = thread::spawn(move || {
            for (status, body) in answers {
                let (mut stream, _) = listener.accept().unwrap();
                read_call(&mut stream);
                write!(
                    stream,
                    "HTTP/1.1 {status} -\r\ncontent-length: {}\r\n\r\n{body}",
                    body.len()
                )
                .unwrap();
            }
        });
        let words = ["weir", "drain", "first", "--wait", "--admin", &admin];
        run(Alone::try_parse_from(words).unwrap().args).unwrap();
        served.join().unwrap();
    }

    #[test]
    fn progress_says_what_is_left_and_how_long_it_may_take() {
        let pod = |drain| -> Pod {
            serde_json::from_value(json!({"pod": "pod-1", "phase": "draining", "drain": drain}))
                .unwrap()
        };
        let known = pod(json!({"left": 7, "expected_ms": 12_400.0}));
        assert_eq!(words(&known), "pod-1 drains: 7 left, about 12s more");
        let left = serde_json::from_value(
            json!({"pod": "pod-1", "phase": "leaving", "drain": {"left": 1}}),
        );
        assert_eq!(words(&left.unwrap()), "pod-1 has left the pool: 1 left");
        let unknown = pod(json!({"left": 1, "expected_ms": null}));
        assert_eq!(words(&unknown), "pod-1 drains: 1 left");
        let others = pod(json!({"left": 0, "others": 2, "expected_ms": 0.0}));
        assert_eq!(words(&others), "pod-1 drains: 2 on it that this dispatcher did not send");
    }
}
