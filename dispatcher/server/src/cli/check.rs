//! `weir check`: the configuration in force, every policy with all its parts, or everything that is
//! wrong with it.

use std::process::ExitCode;

use super::{
    bad_config,
    output::{exit, print, say},
};
use crate::config::{Origin, RawPolicy};

pub(super) fn run(origin: &Origin) -> ExitCode {
    let (config, mut raw) = match origin.load().and_then(|config| Ok((config, origin.raw()?))) {
        Ok(both) => both,
        Err(error) => return bad_config(&error),
    };
    for note in config.notes() {
        say(note);
    }
    for pool in &mut raw.pools {
        pool.policy = pool.policy.spelled_out();
        pool.policy_by_header = pool.policy_by_header.as_ref().map(RawPolicy::spelled_out);
    }
    match serde_yaml_ng::to_string(&raw) {
        Ok(text) => exit(print(&text)),
        Err(error) => {
            say(error);
            ExitCode::FAILURE
        }
    }
}
