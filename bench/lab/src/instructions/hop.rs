//! What a request costs in the whole program: two lives of `weir serve` under callgrind, one of which serves more.
//!
//! Everything that it runs is counted, of all threads, from its start to its end; what both lives have in common falls out of the
//! difference.

use std::path::PathBuf;

use anyhow::{Context, Result};

use super::callgrind;
use crate::{
    children::unless_interrupted,
    peers::{Prompt, SMALL_BYTES, Served},
};

/// Bytes of the body of a long request: as many as surely come in one piece. Linux sends what is written on its way once it is half of
/// the window, 32 KB on loopback, and whether Weir finds the rest there as well is a matter of microseconds; if not, it copies the body.
const LONG_BYTES: usize = 24 << 10;
/// Streams at once, and tokens of each: as many as `weir-bench peers` has, for as many are sent together.
const STREAMS: usize = 100;
const TOKENS: [u32; 2] = [2, 202];

/// What is counted.
#[derive(Clone, Copy, Debug)]
pub(super) enum Hop {
    /// A small request.
    Small,
    /// One with a long prompt, a program.
    Code,
    /// One with long definitions of tools, the same each time.
    Tools,
    /// A token of a stream.
    Token,
}

/// Where Weir is.
#[derive(Debug)]
pub(super) struct Weir {
    pub(super) program: PathBuf,
    /// Folder of its configuration, log and spool.
    pub(super) dir: PathBuf,
}

impl Hop {
    /// What the two lives serve. `handicap` makes prompts longer by so many bytes.
    fn lives(self, handicap: u32) -> [Served; 2] {
        let [small, long] = [SMALL_BYTES, LONG_BYTES].map(|bytes| bytes + handicap as usize);
        match self {
            Self::Small => [0, 4000].map(|count| Served::Whole(count, Prompt::Prose, small)),
            Self::Code => [0, 1000].map(|count| Served::Whole(count, Prompt::Code, long)),
            Self::Tools => [0, 1000].map(|count| Served::Whole(count, Prompt::Tools, long)),
            Self::Token => TOKENS.map(|tokens| Served::Streams(STREAMS, tokens)),
        }
    }

    /// Instructions of one of them. `None`: told to end.
    ///
    /// # Errors
    /// When Weir or valgrind cannot be started, or an answer was wrong.
    pub(super) fn count(self, weir: &Weir, handicap: u32) -> Result<Option<u64>> {
        std::fs::create_dir_all(&weir.dir)
            .with_context(|| format!("cannot make {}", weir.dir.display()))?;
        let lives = self.lives(handicap);
        let more = |[few, many]: [u64; 2]| many.saturating_sub(few);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let counted = runtime.block_on(unless_interrupted(async {
            let mut counted = [0; 2];
            for (served, count) in lives.into_iter().zip(&mut counted) {
                let mut valgrind = callgrind::callgrind();
                valgrind.arg(&weir.program);
                let said = Box::pin(served.through(valgrind, &weir.dir)).await;
                *count = callgrind::collected(&said.with_context(|| format!("{served:?}"))?)?;
            }
            Ok(counted)
        }))?;
        Ok(counted.map(|counted| more(counted) / more(lives.map(Served::times)).max(1)))
    }
}
