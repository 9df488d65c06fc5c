//! A change that is asked for on the board: the question, the call, and what came of it.

use serde_json::{Value, json};

use crate::cli::{
    answers::Called,
    failure::Failure,
    remote::{Admin, path::Path},
};

/// A change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    /// The pool.
    pub(super) pool: String,
    /// What is done.
    pub(super) deed: Deed,
}

/// What is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    /// A lane is held.
    Pause(String),
    /// A lane goes on.
    Resume(String),
    /// A pod is drained.
    Drain(String),
    /// A pod takes requests again.
    Uncordon(String),
    /// One request is cancelled.
    Cancel(Called),
    /// Every request of a lane is cancelled; so many were there when it was asked.
    CancelLane(String, u64),
}

impl Change {
    /// The question that is asked first.
    pub(super) fn question(&self) -> String {
        match &self.deed {
            Deed::Pause(lane) => format!("pause lane {lane}? it accepts and holds"),
            Deed::Resume(lane) => format!("resume lane {lane}?"),
            Deed::Drain(pod) => {
                format!("drain {pod}? it gets nothing new and finishes what it has")
            }
            Deed::Uncordon(pod) => format!("let {pod} take requests again?"),
            Deed::Cancel(request) => format!("cancel {request}? its client gets 503"),
            Deed::CancelLane(lane, depth) => {
                format!("cancel all {depth} requests of lane {lane}? their clients get 503")
            }
        }
    }

    fn call(&self) -> (Path, Value) {
        let pool = &self.pool;
        let place = |lane: &String| json!({"pool": pool, "lane": lane});
        let alone = json!({"pool": pool});
        match &self.deed {
            Deed::Pause(lane) => (Path::new("/queues/pause"), place(lane)),
            Deed::Resume(lane) => (Path::new("/queues/resume"), place(lane)),
            Deed::Drain(pod) => (Path::new("/pods").segment(pod).segment("drain"), alone),
            Deed::Uncordon(pod) => (Path::new("/pods").segment(pod).segment("uncordon"), alone),
            Deed::Cancel(request) => (request.path().segment("cancel"), alone),
            Deed::CancelLane(lane, _) => (
                Path::new("/requests/cancel"),
                json!({"pool": pool, "lane": lane, "dry_run": false}),
            ),
        }
    }

    /// Carries it out; says what came of it.
    pub(super) fn carry_out(&self, admin: &Admin) -> Result<String, Failure> {
        let (path, body) = self.call();
        let answer = admin.post(path.as_str(), &body)?;
        let cancelled = answer.get("cancelled").and_then(Value::as_u64);
        Ok(match &self.deed {
            Deed::Pause(lane) => format!("{lane} is paused"),
            Deed::Resume(lane) => format!("{lane} goes on"),
            Deed::Drain(pod) => format!("{pod} drains"),
            Deed::Uncordon(pod) => format!("{pod} takes requests"),
            Deed::Cancel(request) => format!("{request} is cancelled"),
            Deed::CancelLane(lane, _) => {
                format!("{} requests of {lane} are cancelled", cancelled.unwrap_or_default())
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_names_what_it_is_about_in_its_call() {
        let change = |deed| Change { pool: "m".to_owned(), deed };
        let (path, body) = change(Deed::Pause("b0/i512".into())).call();
        assert_eq!(
            (path.as_str(), body),
            ("/queues/pause", json!({"pool": "m", "lane": "b0/i512"}))
        );
        let (path, _) = change(Deed::Drain("pod 1".into())).call();
        assert_eq!(path.as_str(), "/pods/pod%201/drain");
        // Another request may be called 57 by its client.
        let one = Called { number: 57, name: "r-1".to_owned() };
        let cancel = change(Deed::Cancel(one));
        assert_eq!(cancel.call().0.as_str(), "/requests/%2357/cancel");
        assert_eq!(cancel.question(), "cancel r-1 (number 57)? its client gets 503");
        let (path, body) = change(Deed::CancelLane("b0".into(), 3)).call();
        assert_eq!(path.as_str(), "/requests/cancel");
        assert_eq!(body["dry_run"], false);
    }
}
