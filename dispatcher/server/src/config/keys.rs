//! What differs between two configurations, key by key, and what of it counts without a restart.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_yaml_ng::{Mapping, Value};

use super::RawConfig;

/// Keys whose parts are made once: sockets, threads, files and processes. With everything below them.
pub const NEED_RESTART: [&str; 24] = [
    "listen",
    "tls",
    "threads",
    "admin",
    "classes",
    "cors_origins",
    "limits.max_header_bytes",
    "limits.max_connections",
    "limits.header_timeout_ms",
    "limits.write_timeout_ms",
    "limits.idle_timeout_ms",
    "scrape",
    "upstream",
    "replicas",
    "model",
    "state",
    "spool",
    "trainer",
    "telemetry",
    "log",
    "shutdown",
    // Models come and go with their pools.
    "pools",
    "pools.model",
    // What waits in one of the two was told of the other.
    "pools.prefill.pool",
];

/// Keys below those that count without a restart all the same.
const EXCEPT: [&str; 4] =
    ["upstream.max_attempts", "admin.tokens", "admin.open_metrics", "log.level"];

/// When a changed key counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Applies {
    /// By a reload.
    Reload,
    /// By a restart.
    Restart,
}

/// A key that differs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// Its path in the file.
    pub key: String,
    /// What counts now.
    pub running: Value,
    /// What the file says.
    pub file: Value,
    /// When that counts.
    pub applies: Applies,
}

impl Change {
    /// In one line, for the log. Lists are named only: they may hold digests of keys.
    pub fn line(&self) -> String {
        let word = |value: &Value| match value {
            Value::Null => Some("null".to_owned()),
            Value::Bool(yes) => Some(yes.to_string()),
            Value::Number(number) => Some(number.to_string()),
            Value::String(text) => Some(text.clone()),
            _ => None,
        };
        match (word(&self.running), word(&self.file)) {
            (Some(running), Some(file)) => format!("{}: {running} -> {file}", self.key),
            _ => self.key.clone(),
        }
    }
}

/// When a change of the key at this path counts. A pool's keys are asked for without its number.
pub fn applies(path: &str) -> Applies {
    let within = |key: &&str| {
        let below = path.strip_prefix(*key).is_some_and(|rest| rest.starts_with('.'));
        path == *key || (below && *key != "pools")
    };
    let excepted = EXCEPT.iter().any(within);
    if !excepted && NEED_RESTART.iter().any(within) { Applies::Restart } else { Applies::Reload }
}

/// What differs between what runs and what the file says, and the configuration that counts after a
/// reload: the file's, but for what needs a restart.
///
/// # Errors
/// When a configuration cannot be written or read back, which is a mistake of this program.
pub fn compare(
    running: &RawConfig,
    file: &RawConfig,
) -> Result<(Vec<Change>, RawConfig), serde_yaml_ng::Error> {
    let (mut before, mut after) = (mapping(running)?, mapping(file)?);
    let mut changes = Vec::new();
    let pools = pools(before.remove("pools"), after.remove("pools"), &mut changes);
    walk(("", ""), &before, &mut after, &mut changes);
    after.insert("pools".into(), pools);
    changes.sort_by(|one, other| one.key.cmp(&other.key));
    Ok((changes, serde_yaml_ng::from_value(Value::Mapping(after))?))
}

fn mapping(raw: &RawConfig) -> Result<Mapping, serde_yaml_ng::Error> {
    serde_yaml_ng::from_value(serde_yaml_ng::to_value(raw)?)
}

/// The pools that count after a reload: those that run, each as the file has it. Pools that are new or
/// gone need a restart; in which order they stand makes no difference.
fn pools(running: Option<Value>, file: Option<Value>, changes: &mut Vec<Change>) -> Value {
    let list = |of: Option<Value>| match of {
        Some(Value::Sequence(pools)) => pools,
        _ => vec![],
    };
    let model = |pool: &Value| pool.get("model").cloned().unwrap_or_default();
    let (running, file) = (list(running), list(file));
    let old: Vec<Value> = running.iter().map(model).collect();
    let new: Vec<Value> = file.iter().map(model).collect();
    let same = old.len() == new.len() && old.iter().all(|name| new.contains(name));
    if !same {
        let (running, file) = (Value::Sequence(old), Value::Sequence(new.clone()));
        let (key, applies) = ("pools".to_owned(), applies("pools"));
        changes.push(Change { key, running, file, applies });
    }
    let merge = |pool: Value| {
        let at = new.iter().position(|name| *name == model(&pool));
        let theirs = at.and_then(|at| Some((at, file.get(at)?.as_mapping()?.clone())));
        match (pool, theirs) {
            (Value::Mapping(ours), Some((at, mut theirs))) => {
                walk((&format!("pools[{at}]"), "pools"), &ours, &mut theirs, changes);
                Value::Mapping(theirs)
            }
            (pool, _) => pool,
        }
    };
    Value::Sequence(running.into_iter().map(merge).collect())
}

/// Notes what differs between two mappings, and gives `after` the value of `before` where that needs a
/// restart. The paths are that in the file and the same without numbers.
fn walk(at: (&str, &str), before: &Mapping, after: &mut Mapping, changes: &mut Vec<Change>) {
    let names = before.keys().chain(after.keys()).filter_map(Value::as_str).map(str::to_owned);
    let names: BTreeSet<String> = names.collect();
    for name in names {
        let below = |path: &str| match path {
            "" => name.clone(),
            path => format!("{path}.{name}"),
        };
        let (key, path) = (below(at.0), below(at.1));
        let value = |of: &Mapping| of.get(name.as_str()).cloned().unwrap_or_default();
        match (value(before), value(after)) {
            (running, file) if running == file => {}
            // A policy is one thing.
            (Value::Mapping(running), Value::Mapping(mut file))
                if !path.starts_with("pools.policy") =>
            {
                walk((&key, &path), &running, &mut file, changes);
                after.insert(name.into(), Value::Mapping(file));
            }
            (running, file) => {
                let applies = applies(&path);
                if applies == Applies::Restart {
                    after.insert(name.into(), running.clone());
                }
                changes.push(Change { key, running, file, applies });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::load::parse;

    const BEFORE: &str = "threads: 1\nqueue: { max_wait_s: 5 }\npools:\n\
        - { model: a, pods: [ { url: 'http://a:1' } ] }\n- { model: b, pods: [ { url: 'http://b:1' } ] }\n";

    fn compared(after: &str) -> (Vec<String>, RawConfig) {
        let (changes, merged) = compare(&parse(BEFORE).unwrap(), &parse(after).unwrap()).unwrap();
        let line = |change: &Change| format!("{:?} {}", change.applies, change.line());
        (changes.iter().map(line).collect(), merged)
    }

    #[test]
    fn nothing_differs_from_itself() {
        let (changes, merged) = compared(BEFORE);
        assert_eq!((changes, merged), (vec![], parse(BEFORE).unwrap()));
    }

    #[test]
    fn what_needs_a_restart_stays_as_it_runs() {
        let text =
            BEFORE.replace("threads: 1", "threads: 4").replace("max_wait_s: 5", "max_wait_s: 9");
        let (changes, merged) = compared(&text);
        let want = ["Reload queue.max_wait_s: 5.0 -> 9.0", "Restart threads: 1 -> 4"];
        assert_eq!(changes, want);
        assert_eq!((merged.threads, merged.queue.max_wait_s), (1, 9.0));
    }

    #[test]
    fn pools_are_known_by_their_models() {
        // In another order, one with another pod.
        let text = "threads: 1\nqueue: { max_wait_s: 5 }\npools:\n\
            - { model: b, policy: round-robin, pods: [ { url: 'http://b:1' }, { url: 'http://b:2' } ] }\n\
            - { model: a, pods: [ { url: 'http://a:1' } ] }\n";
        let (changes, merged) = compared(text);
        assert_eq!(
            changes,
            ["Reload pools[0].pods", "Reload pools[0].policy: weir -> round-robin"]
        );
        let models: Vec<&str> = merged.pools.iter().map(|pool| &*pool.model).collect();
        assert_eq!((models, merged.pools[1].pods.len()), (vec!["a", "b"], 2));
    }

    #[test]
    fn a_pool_that_comes_or_goes_needs_a_restart_and_the_others_do_not() {
        let text = "threads: 1\nqueue: { max_wait_s: 5 }\npools:\n\
            - { model: c, pods: [ { url: 'http://c:1' } ] }\n\
            - { model: a, pods: [ { url: 'http://a:2' } ] }\n";
        let (changes, merged) = compared(text);
        assert_eq!(changes, ["Restart pools", "Reload pools[1].pods"]);
        let urls: Vec<&str> = merged.pools.iter().map(|pool| &*pool.pods[0].url).collect();
        assert_eq!(urls, ["http://a:2", "http://b:1"]);
    }

    #[test]
    fn objectives_come_and_go_and_keys_are_not_shown() {
        let (changes, _) = compared(&format!(
            "{BEFORE}objectives: {{ standard: {{ ttft_ms: 4000, tpot_ms: 100 }}, gold: {{ band: 3 }} }}\n\
             keys: [ {{ sha256: {}, tenant: t }} ]\n",
            "ab".repeat(32)
        ));
        let want = [
            "Reload keys",
            "Reload objectives.batch",
            "Reload objectives.gold",
            "Reload objectives.interactive",
        ];
        assert_eq!(changes, want);
    }

    #[test]
    fn an_exception_counts_without_a_restart() {
        assert_eq!(applies("upstream.max_attempts"), Applies::Reload);
        assert_eq!(applies("upstream.stall_timeout_s"), Applies::Restart);
        assert_eq!(applies("admin.tokens"), Applies::Reload);
        assert_eq!(applies("admin.listen"), Applies::Restart);
        assert_eq!(applies("log.level"), Applies::Reload);
        assert_eq!(applies("log.format"), Applies::Restart);
        assert_eq!(applies("limits.max_body_bytes"), Applies::Reload);
        assert_eq!(applies("pools"), Applies::Restart);
        assert_eq!(applies("pools.pods"), Applies::Reload);
        assert_eq!(applies("model.bundles"), Applies::Restart);
    }
}
