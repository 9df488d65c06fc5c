//! `weir-bench exercise`: the load under which a profile of Weir is taken (deploy/profiled.sh).
//!
//! It is the same work each time: so many requests of each kind, from prompts that a seed makes. They are not those that
//! `weir-bench peers` measures with, which are one prompt again and again; here prompts differ, some go on from the one
//! before, bodies have what clients put into them, and for a part of the time requests wait.

use std::{
    env, fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use clap::Args;
use rand::{Rng, SeedableRng, rngs::SmallRng};
use tokio::{
    task::JoinSet,
    time::{Instant, interval_at},
};

use super::{life::Site, load::Caller, model, pod::Pods, wire::MODEL};
use crate::{
    children::{INTERRUPTED, unless_interrupted},
    http_get,
    prompt::{Segment, write_text},
};

/// Pods, few and many.
const PODS: [usize; 2] = [4, 8];
/// Requests that a pod may run where none has to wait, and where most do.
const SEQUENCES: [u32; 2] = [16384, 4];
/// Prompts of each kind.
const PROMPTS: u64 = 256;

/// Let a dispatcher that counts its branches serve every kind of request, and end it
///
/// What it counts is written by itself, to the file that LLVM_PROFILE_FILE names.
#[derive(Debug, Args)]
pub struct ExerciseArgs {
    /// The dispatcher. Left out: beside this program
    #[arg(long, value_name = "FILE")]
    weir: Option<PathBuf>,
    /// Requests of each kind for each connection, in hundredths of what a profile needs
    #[arg(long, default_value_t = 100, value_name = "N")]
    percent: u32,
    /// Folder of configurations, logs and bundles
    #[arg(long, default_value = "target/exercise", value_name = "DIR")]
    dir: PathBuf,
}

/// A kind of load.
struct Kind {
    connections: u32,
    /// Requests of each connection.
    requests: u32,
    /// Time between two requests of a connection; `None`: as soon as there is an answer.
    every: Option<Duration>,
    /// Least and most tokens of a prompt.
    tokens: [u32; 2],
    /// Tokens of the answer, if it is a stream.
    stream: Option<u32>,
}

/// Weighed by what a request of each kind costs, so that none of them is what a profile is made of.
const KINDS: [Kind; 5] = [
    // Small ones as fast as they are answered.
    Kind { connections: 64, requests: 200, every: None, tokens: [48, 120], stream: None },
    // Large ones.
    Kind { connections: 32, requests: 60, every: None, tokens: [1000, 9000], stream: None },
    // Middling ones at leisure.
    Kind {
        connections: 20,
        requests: 50,
        every: Some(Duration::from_millis(40)),
        tokens: [30, 800],
        stream: None,
    },
    // Streams.
    Kind { connections: 100, requests: 2, every: None, tokens: [20, 400], stream: Some(60) },
    // Streams that have little to say.
    Kind { connections: 40, requests: 30, every: None, tokens: [20, 400], stream: Some(2) },
];

impl ExerciseArgs {
    /// Serves it all, with a model and without, with room for every request and with less.
    ///
    /// # Errors
    /// When a native library is missing, Weir does not come up or does not end, or an answer was wrong.
    pub fn run(self) -> Result<ExitCode> {
        ensure!((1..=1000).contains(&self.percent), "--percent must be from 1 to 1000");
        fs::create_dir_all(&self.dir)
            .with_context(|| format!("cannot make {}", self.dir.display()))?;
        let dir = self.dir.canonicalize()?;
        let weir = match self.weir {
            Some(named) => named,
            None => env::current_exe()?.with_file_name("weir"),
        };
        let trained = model::trained(&dir.join("model"))?;
        let trained = trained.as_path();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let exercised = runtime.block_on(unless_interrupted(async {
            let [few, many] = PODS;
            let [roomy, tight] = SEQUENCES;
            for (pods, sequences, bundles) in
                [(few, roomy, Some(trained)), (many, tight, Some(trained)), (few, tight, None)]
            {
                let pods = Pods::start(pods).await?;
                let (dir, pods) = (dir.as_path(), pods.addresses.as_slice());
                let site = Site { dir, pods, sequences, bundles, scraped_every: None };
                Box::pin(exercise(&site, &weir, self.percent)).await?;
            }
            Ok(())
        }))?;
        Ok(exercised.map_or(ExitCode::from(INTERRUPTED), |()| ExitCode::SUCCESS))
    }
}

/// One life of Weir, from its start over all kinds of load to its end.
async fn exercise(site: &Site<'_>, weir: &Path, percent: u32) -> Result<()> {
    let life = site.begin(Command::new(weir)).await?;
    if site.bundles.is_some() {
        model::serves(life.admin).await?;
    }
    for kind in &KINDS {
        kind.play(life.target, percent).await?;
        http_get::get(life.admin, "/metrics").await?;
    }
    life.end().await
}

impl Kind {
    async fn play(&self, target: SocketAddr, percent: u32) -> Result<()> {
        let requests: Arc<[Bytes]> = (0..PROMPTS).map(|seed| self.request(seed).into()).collect();
        let each = (self.requests * percent).div_ceil(100);
        let (start, mut callers) = (Instant::now(), JoinSet::new());
        for number in 0..self.connections {
            let (requests, every) = (requests.clone(), self.every);
            callers.spawn(async move {
                let mut caller = Caller::call(target).await?;
                let mut due = every.map(|every| interval_at(start + every * number / 20, every));
                let mine = requests.iter().cycle().skip(number as usize * 7).take(each as usize);
                for request in mine {
                    if let Some(due) = &mut due {
                        due.tick().await;
                    }
                    caller.ask(request).await?;
                }
                anyhow::Ok(())
            });
        }
        while let Some(played) = callers.join_next().await {
            played??;
        }
        Ok(())
    }

    /// A request as one of three clients writes it.
    fn request(&self, seed: u64) -> Vec<u8> {
        let mut rng = SmallRng::seed_from_u64(seed);
        let [least, most] = self.tokens;
        let tokens = rng.random_range(least..=most);
        // A few ways to begin, one of which is a conversation that goes on.
        let begin = Segment { id: seed % 5, tokens: tokens * (seed % 4) as u32 / 4 };
        let mut text = Vec::new();
        write_text(&mut text, tokens, &[begin], seed + 1000);
        let text = String::from_utf8_lossy(&text);
        let stream = if self.stream.is_some() { r#""stream":true,"# } else { "" };
        let bound = self.stream.unwrap_or(16);
        match seed % 3 {
            0 => post(
                "/v1/completions",
                "",
                &format!(r#"{{"model":"{MODEL}",{stream}"max_tokens":{bound},"prompt":"{text}"}}"#),
            ),
            1 => post(
                "/v1/chat/completions",
                "",
                &format!(
                    r#"{{"model":"{MODEL}",{stream}"max_tokens":{bound},"messages":[{{"role":"user","content":"{text}"}}]}}"#
                ),
            ),
            _ => post("/v1/chat/completions", CLIENT, &conversation(&text, stream, bound)),
        }
    }
}

/// What a client's library sends with each request.
const CLIENT: &str = "accept: application/json\r\naccept-encoding: gzip, deflate\r\n\
    user-agent: AsyncOpenAI/Python 1.99.1\r\nauthorization: Bearer sk-none\r\nx-stainless-lang: python\r\n\
    x-stainless-async: async:asyncio\r\nx-stainless-retry-count: 0\r\nx-stainless-read-timeout: 600\r\n";

fn conversation(text: &str, stream: &str, bound: u32) -> String {
    let usage = if stream.is_empty() { "" } else { r#""stream_options":{"include_usage":true},"# };
    let (asked, more) = text.split_at(text.len() / 2);
    format!(
        r#"{{"messages":[{{"role":"system","content":"You are brief.\n"}},{{"role":"user","content":"{asked}"}},{{"role":"assistant","content":"\"{more}\""}},{{"role":"user","content":"Go on \u2013 please."}}],"model":"{MODEL}","temperature":0.7,"top_p":0.95,{usage}{stream}"max_tokens":{bound},"user":"somebody"}}"#
    )
}

fn post(path: &str, headers: &str, body: &str) -> Vec<u8> {
    format!(
        "POST {path} HTTP/1.1\r\nhost: bench\r\n{headers}content-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use serde_json::Value;

    use super::{super::wire, *};

    fn body(request: &[u8]) -> Value {
        let head = wire::head(request).unwrap();
        assert_eq!(head.length, Some(request.len() - head.bytes));
        serde_json::from_slice(&request[head.bytes..]).unwrap()
    }

    #[test]
    fn every_prompt_is_another_and_the_same_the_next_time() {
        for kind in &KINDS {
            let requests = || (0..PROMPTS).map(|seed| kind.request(seed)).collect::<Vec<_>>();
            assert_eq!(requests(), requests());
            let different: HashSet<Vec<u8>> = requests().into_iter().collect();
            assert_eq!(different.len() as u64, PROMPTS);
        }
    }

    #[test]
    fn every_request_is_one_that_a_pod_answers_in_its_kind() {
        for (kind, seed) in KINDS.iter().flat_map(|kind| (0..9).map(move |seed| (kind, seed))) {
            let body = body(&kind.request(seed));
            assert_eq!(body["stream"].as_bool(), kind.stream.map(|_| true));
            assert_eq!(body["max_tokens"], kind.stream.unwrap_or(16));
            assert_eq!(body["model"], MODEL);
            assert_ne!(body["prompt"].is_string(), body["messages"].is_array());
        }
    }

    #[tokio::test]
    async fn every_kind_of_load_is_answered_by_the_pods_themselves() {
        let pods = Pods::start(1).await.unwrap();
        for kind in &KINDS {
            kind.play(pods.addresses[0], 1).await.unwrap();
        }
    }
}
