//! The configuration that the demo runs Weir with: only what differs from Weir's defaults.

use std::{fmt::Write, path::Path};

use super::{
    args::{DemoArgs, Policy},
    pool::{Group, model},
};

/// Seconds between two rounds of training: often enough that versions change while one watches.
const TRAIN_EVERY_S: u32 = 20;

/// The text of `weir.yaml`; `dir` is absolute.
pub(super) fn yaml(args: &DemoArgs, groups: &[Group], dir: &Path) -> String {
    let policy = args.policy.name();
    let (mut classes, mut pods) = (String::new(), String::new());
    for group in groups {
        classes.push_str(&class(group));
        for address in &group.pods {
            let (number, class) = (pods.lines().count(), group.class());
            let _ = writeln!(
                pods,
                "      - {{ name: pod-{number}, url: \"http://{address}\", class: {class} }}"
            );
        }
    }
    let [bundles, spool, state] = ["bundles", "spool", "state"].map(|name| dir.join(name));
    format!(
        "# Written by `weir-bench demo`. Objectives and everything else are Weir's defaults.
listen: {api}
admin: {{ listen: {admin} }}
classes:
{classes}pools:
  - model: {model}
    policy: {policy}
    pods:
{pods}model: {{ bundles: {bundles:?} }}
spool: {{ dir: {spool:?} }}
state: {{ dir: {state:?} }}
trainer: {{ run: {train}, interval_s: {TRAIN_EVERY_S} }}
",
        api = args.api(),
        admin = args.admin(),
        model = model(groups),
        train = args.policy == Policy::Weir || args.policy.rules().ask_predictions(),
    )
}

/// A class of pods as Weir's configuration has it.
pub(crate) fn class(group: &Group) -> String {
    let engine = &group.engine;
    format!(
        "  - name: {class}
    chunk_tokens: {chunk}
    max_sequences: {sequences}
    kv_blocks: {blocks}
    block_tokens: {block}
",
        class = group.class(),
        chunk = engine.max_num_batched_tokens,
        sequences = engine.max_num_seqs,
        blocks = engine.num_blocks,
        block = engine.block_size,
    )
}
