//! The measurements: all peers up, then round after round every kind of load through each of them in turn; last their memory,
//! each fresh.

use std::{fs, net::SocketAddr, path::PathBuf, time::Duration};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use tokio::time::{Instant, sleep, timeout};

use super::{
    cost::Family,
    figures::{Column, Figures, quantile},
    load::{CLOSED, Caller, Crew, IdleStreams, Outcome, PACED, STREAMS},
    model,
    peer::Peer,
    pod::{EVERY, Pods},
    setup::{Site, free_address},
    threads,
    tools::Tools,
    wire,
};
use crate::children::Child;

/// How long a peer has to come up.
const READY: Duration = Duration::from_secs(60);
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// What is measured, and with what.
pub(super) struct Plan {
    pub(super) peers: Vec<Peer>,
    pub(super) rounds: usize,
    /// Time of each measurement.
    pub(super) lasts: Duration,
    /// Rounds in which memory is measured.
    pub(super) memory_rounds: usize,
    pub(super) dir: PathBuf,
    /// Core of the peers.
    pub(super) cores: String,
    /// Those and the load's.
    pub(super) all_cores: String,
    /// Threads of Weir's data plane: those that it is compared with first.
    pub(super) threads: Vec<usize>,
    pub(super) bundles: Option<PathBuf>,
    pub(super) tools: Tools,
}

/// What came of it.
#[derive(Debug, Default)]
pub(super) struct Played {
    pub(super) figures: Figures,
    /// Weir by itself, by its threads.
    pub(super) threads: Vec<threads::Turn>,
    /// Who was measured.
    pub(super) peers: Vec<Peer>,
    pub(super) left_out: Vec<(Peer, String)>,
    /// Peers whose answers were wrong, with the first error of each turn.
    pub(super) errors: Vec<(Peer, String)>,
}

/// A peer that is up.
pub(super) struct Running {
    peer: Peer,
    pub(super) target: SocketAddr,
    /// Its other listener, if it has one.
    pub(super) side: SocketAddr,
    /// Ended with all its children when this is dropped; `None` for no peer at all.
    process: Option<Child>,
}

/// The kinds of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Small,
    Large,
    AtRate,
    FirstTokens,
    Streams,
}

impl Kind {
    const ALL: [Self; 5] =
        [Self::Small, Self::Large, Self::AtRate, Self::FirstTokens, Self::Streams];
}

/// The requests of all kinds.
struct Requests {
    small: Bytes,
    large: Bytes,
    one_token: Bytes,
    stream: Bytes,
    tokens: u32,
}

impl Requests {
    fn new(lasts: Duration) -> Self {
        let tokens = u32::try_from(lasts.as_millis() / EVERY.as_millis()).unwrap_or(1).max(2);
        let [small, large] = [150, 32 << 10].map(|bytes| Bytes::from(wire::whole(bytes)));
        let [one_token, stream] = [1, tokens].map(|tokens| Bytes::from(wire::stream(tokens)));
        Self { small, large, one_token, stream, tokens }
    }
}

impl Plan {
    /// Measures everything.
    ///
    /// # Errors
    /// When nobody can be measured.
    pub(super) async fn play(&self, pods: &Pods) -> Result<Played> {
        let mut played = Played::default();
        let mut running = Vec::new();
        for peer in &self.peers {
            match self.start(*peer, pods).await {
                Ok(up) => running.push(up),
                Err(error) => played.left_out.push((*peer, format!("{error:#}"))),
            }
        }
        ensure!(!running.is_empty(), "none of the peers is up: {:?}", played.left_out);
        played.peers = running.iter().map(|up| up.peer).collect();
        let requests = Requests::new(self.lasts);
        for round in 0..self.rounds {
            eprintln!("round {} of {}", round + 1, self.rounds);
            for kind in Kind::ALL {
                // Whoever is first finds the caches cold: that is somebody else every time.
                running.rotate_left(1);
                self.turn(kind, round, &running, &requests, &mut played).await;
            }
        }
        drop(running);
        for round in 0..self.memory_rounds {
            for peer in played.peers.clone().into_iter().filter(|peer| *peer != Peer::Direct) {
                eprintln!("memory of {peer}");
                let measured = self.memory(peer, round, pods, &mut played.figures).await;
                note(&mut played, peer, measured);
            }
        }
        if self.threads.len() > 1 {
            let measured = self.by_threads(pods, &requests.small).await;
            played.threads = note(&mut played, Peer::Weir, measured).unwrap_or_default();
        }
        Ok(played)
    }

    /// One kind of load through everybody.
    async fn turn(
        &self,
        kind: Kind,
        round: usize,
        running: &[Running],
        requests: &Requests,
        played: &mut Played,
    ) {
        let mut firsts = Vec::new();
        for up in running {
            let measured = self.measure(kind, up, requests).await;
            let Some((outcome, cpu)) = note(played, up.peer, measured) else { continue };
            if let Some(error) = outcome.error {
                played.errors.push((up.peer, format!("{} of {kind:?}: {error}", outcome.errors)));
            }
            if kind == Kind::FirstTokens {
                firsts.push((up.peer, sorted_us(&outcome.firsts)));
                continue;
            }
            let count = if kind == Kind::Streams {
                outcome.requests * u64::from(requests.tokens)
            } else {
                outcome.requests
            } as f64;
            let figures = &mut played.figures;
            if kind == Kind::Small {
                let per_s = count / outcome.took.as_secs_f64();
                figures.add(round, up.peer, Column::RequestsPerS, per_s);
            }
            if let Some(cpu) = cpu.filter(|_| count > 0.0) {
                figures.add(round, up.peer, cpu_of(kind), cpu.as_secs_f64() * 1e6 / count);
            }
        }
        added(&mut played.figures, round, &firsts);
    }

    /// One kind of load through one peer, and the CPU time that it took for it.
    async fn measure(
        &self,
        kind: Kind,
        up: &Running,
        requests: &Requests,
    ) -> Result<(Outcome, Option<Duration>)> {
        let callers = match kind {
            Kind::Small | Kind::Large => CLOSED,
            Kind::AtRate | Kind::FirstTokens => PACED,
            Kind::Streams => STREAMS,
        };
        let crew = Crew::gather(up.target, callers, &requests.small).await?;
        let family = up.family();
        let cpu = || family.as_ref().map(Family::cpu).transpose();
        let before = cpu()?;
        let outcome = match kind {
            Kind::Small => crew.closed(&requests.small, self.lasts).await,
            Kind::Large => crew.closed(&requests.large, self.lasts).await,
            Kind::AtRate => crew.paced(&requests.small, self.lasts).await,
            Kind::FirstTokens => crew.paced(&requests.one_token, self.lasts).await,
            Kind::Streams => crew.streams(&requests.stream, requests.tokens).await,
        };
        let spent = cpu()?.zip(before).map(|(after, before)| after.saturating_sub(before));
        Ok((outcome, spent))
    }

    /// Memory of a peer that has done nothing but hold streams.
    async fn memory(
        &self,
        peer: Peer,
        round: usize,
        pods: &Pods,
        figures: &mut Figures,
    ) -> Result<()> {
        let up = self.start(peer, pods).await?;
        let process = up.process.as_ref().context("nothing has no memory")?;
        let mut streams = IdleStreams::none(up.target);
        let mut kb = [0.0; 2];
        for (kb, count) in kb.iter_mut().zip([1000, 5000]) {
            streams.grow(count).await?;
            *kb = Family::of(process.id()).pss_kb()? as f64;
        }
        let [few, many] = kb;
        figures.add(round, peer, Column::PssMb1000Streams, few / 1024.0);
        figures.add(round, peer, Column::PssMb5000Streams, many / 1024.0);
        figures.add(round, peer, Column::KbPerIdleStream, (many - few) / 4000.0);
        Ok(())
    }

    /// Starts a peer and waits until it answers.
    async fn start(&self, peer: Peer, pods: &Pods) -> Result<Running> {
        let threads = self.threads.first().copied().unwrap_or(1);
        self.start_on(peer, pods, &self.cores, threads).await
    }

    /// The same on these cores, with so many threads of Weir's data plane.
    pub(super) async fn start_on(
        &self,
        peer: Peer,
        pods: &Pods,
        cores: &str,
        threads: usize,
    ) -> Result<Running> {
        if peer == Peer::Direct {
            let target = *pods.addresses.first().context("no pods")?;
            return Ok(Running { peer, target, side: target, process: None });
        }
        let program = self.tools.program(peer)?;
        let dir = self.dir.join(peer.name());
        fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let (target, side) = (free_address()?, free_address()?);
        let site = Site {
            dir: &dir,
            pods: &pods.addresses,
            cores,
            address: target,
            side,
            threads,
            bundles: self.bundles.as_deref(),
        };
        let mut command = site.command(peer, &program)?;
        let process = Child::start(peer.name(), &mut command, &dir.join("log"))?;
        let mut up = Running { peer, target, side, process: Some(process) };
        up.answers().await?;
        if peer == Peer::Weir && self.bundles.is_some() {
            model::serves(side).await?;
        }
        Ok(up)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.process.iter().for_each(|process| Family::of(process.id()).end());
    }
}

impl Running {
    /// The process with all below it; `None` for no peer at all.
    pub(super) fn family(&self) -> Option<Family> {
        self.process.as_ref().map(|process| Family::of(process.id()))
    }

    async fn answers(&mut self) -> Result<()> {
        let (start, request) = (Instant::now(), wire::whole(150));
        loop {
            if let Some(process) = &mut self.process {
                process.check()?;
            }
            let ask = async { Caller::call(self.target).await?.ask(&request).await };
            match timeout(READY, ask).await {
                Ok(Ok(_)) => return Ok(()),
                Ok(Err(error)) if start.elapsed() > READY => {
                    return Err(error.context(format!("not ready within {READY:?}")));
                }
                _ => sleep(ASK_AGAIN).await,
            }
        }
    }
}

/// Keeps the error of a turn.
fn note<T>(played: &mut Played, peer: Peer, measured: Result<T>) -> Option<T> {
    measured.map_err(|error| played.errors.push((peer, format!("{error:#}")))).ok()
}

const fn cpu_of(kind: Kind) -> Column {
    match kind {
        Kind::Small | Kind::FirstTokens => Column::CpuUsPerRequest,
        Kind::Large => Column::CpuUsPerRequest32kb,
        Kind::AtRate => Column::CpuUsPerRequestAt500Rps,
        Kind::Streams => Column::CpuUsPerChunk,
    }
}

fn sorted_us(durations: &[Duration]) -> Vec<f64> {
    let mut us: Vec<f64> = durations.iter().map(|one| one.as_secs_f64() * 1e6).collect();
    us.sort_by(f64::total_cmp);
    us
}

/// What each peer adds to the time to first token without one.
fn added(figures: &mut Figures, round: usize, firsts: &[(Peer, Vec<f64>)]) {
    let Some((_, direct)) = firsts.iter().find(|(peer, _)| *peer == Peer::Direct) else { return };
    for (peer, us) in firsts.iter().filter(|(peer, _)| *peer != Peer::Direct) {
        for (column, share) in [(Column::AddedTtftP50Us, 0.5), (Column::AddedTtftP99Us, 0.99)] {
            figures.add(round, *peer, column, quantile(us, share) - quantile(direct, share));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_is_what_the_load_sees_less_what_it_sees_without() {
        let mut figures = Figures::default();
        let firsts = [(Peer::Weir, vec![30.0, 40.0]), (Peer::Direct, vec![10.0, 11.0])];
        added(&mut figures, 0, &firsts);
        assert_eq!(figures.spread(Peer::Weir, Column::AddedTtftP50Us).unwrap().median, 20.0);
        assert_eq!(figures.spread(Peer::Weir, Column::AddedTtftP99Us).unwrap().median, 29.0);
        assert_eq!(figures.spread(Peer::Direct, Column::AddedTtftP50Us), None);
    }

    #[tokio::test]
    async fn a_peer_that_is_not_there_is_left_out_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let tools = Tools {
            venv: folder.path().join("venv"),
            weir: folder.path().join("weir"),
            install: false,
        };
        let plan = Plan {
            peers: vec![Peer::Direct, Peer::Weir, Peer::Envoy],
            rounds: 1,
            lasts: Duration::from_millis(40),
            memory_rounds: 1,
            dir: folder.path().to_owned(),
            cores: "0".to_owned(),
            all_cores: "0".to_owned(),
            threads: vec![1],
            bundles: None,
            tools,
        };
        let played = plan.play(&Pods::start(1).await.unwrap()).await.unwrap();
        assert_eq!(played.peers, [Peer::Direct]);
        let left_out: Vec<Peer> = played.left_out.iter().map(|(peer, _)| *peer).collect();
        assert_eq!((left_out, played.errors.len()), (vec![Peer::Weir, Peer::Envoy], 0));
        assert!(played.figures.spread(Peer::Direct, Column::RequestsPerS).unwrap().median > 0.0);
    }
}
