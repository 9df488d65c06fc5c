//! The same requests each time through one life of Weir, for whoever counts what it takes.

use std::{path::Path, process::Command, time::Duration};

use anyhow::{Result, bail};
use bytes::Bytes;

use super::{
    life::Site,
    load::{Caller, Crew},
    pod::Pods,
    wire::{self, Prompt},
};

const PODS: usize = 4;
/// Requests before those that are asked for: connections are made, and code is reached for the first time.
const BEFORE: u32 = 100;
/// Bytes of the body of a small request.
pub const SMALL_BYTES: usize = 150;
/// What comes by the clock and not by requests is to be next to nothing.
const SCRAPED_EVERY: Duration = Duration::from_secs(10);

/// What a life serves after its first requests.
#[derive(Clone, Copy, Debug)]
pub enum Served {
    /// So many requests one after another, with such prompts and bodies of so many bytes.
    Whole(u32, Prompt, usize),
    /// So many streams at once, of so many tokens.
    Streams(usize, u32),
}

impl Served {
    /// How many requests that is, or tokens.
    pub fn times(self) -> u64 {
        match self {
            Self::Whole(requests, ..) => u64::from(requests),
            Self::Streams(count, tokens) => count as u64 * u64::from(tokens),
        }
    }

    /// Serves it through Weir, which `program` starts, with all of its files in `dir`, and says what that wrote.
    ///
    /// # Errors
    /// When Weir does not come up or does not end, or an answer was wrong.
    pub async fn through(self, program: Command, dir: &Path) -> Result<String> {
        let pods = Pods::start(PODS).await?;
        let site = Site {
            dir,
            pods: &pods.addresses,
            sequences: 1024,
            bundles: None,
            scraped_every: Some(SCRAPED_EVERY),
        };
        let life = site.begin(program).await?;
        let small = wire::whole(SMALL_BYTES);
        let mut caller = Caller::call(life.target).await?;
        caller.ask_again(&small, BEFORE).await?;
        match self {
            Self::Whole(requests, prompt, bytes) => {
                caller.ask_again(&wire::prompted(prompt, bytes), requests).await?;
            }
            Self::Streams(count, tokens) => {
                let crew = Crew::gather(life.target, count, &small).await?;
                let outcome = crew.streams(&Bytes::from(wire::stream(tokens)), tokens).await;
                if let Some(error) = outcome.error {
                    bail!("{} of {count} streams: {error}", outcome.errors);
                }
            }
        }
        drop(caller);
        life.end().await?;
        Ok(std::fs::read_to_string(site.log())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_program_that_is_no_weir_is_an_error_with_what_it_said() {
        let folder = tempfile::tempdir().unwrap();
        let mut program = Command::new("sh");
        program.args(["-c", "echo no such thing >&2; exit 3"]);
        let error = Served::Whole(1, Prompt::Prose, SMALL_BYTES)
            .through(program, folder.path())
            .await
            .unwrap_err();
        assert!(error.to_string().contains("no such thing"), "{error}");
    }
}
