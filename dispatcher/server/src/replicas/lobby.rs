//! Those who call: strangers until they have shown that they are another dispatcher.
//!
//! Anybody who reaches the port can connect to it. There are so many places for strangers, and who comes when all are taken gets
//! that of the one who is there for longest: another dispatcher needs its place for two ways to and fro, and calls again when it
//! lost it. What becomes of strangers is said once in a row, for a port scan is a thousand of them.

use std::{collections::VecDeque, io, net::SocketAddr};

use tokio::task::{AbortHandle, JoinError, JoinSet};

use super::desk::{self, Caller};
use crate::accept::{REPLICAS, Row};

/// Calls answered at once.
const MOST_CALLS: usize = 1024;

/// Who a stranger turned out to be; `None` if it may not ask.
type Met = (SocketAddr, io::Result<Option<Caller>>);

/// Everybody who calls.
pub(super) struct Lobby {
    most_strangers: usize,
    strangers: JoinSet<Met>,
    /// The same in the order in which they came.
    order: VecDeque<AbortHandle>,
    calls: JoinSet<()>,
    /// Strangers that left, or said nothing that another dispatcher would.
    lost: Row,
}

impl Lobby {
    /// With places for so many strangers, of which there is at least one.
    pub(super) fn new(most_strangers: usize) -> Self {
        Self {
            most_strangers: most_strangers.max(1),
            strangers: JoinSet::new(),
            order: VecDeque::new(),
            calls: JoinSet::new(),
            lost: Row::new(),
        }
    }

    /// Connections that there are.
    pub(super) fn open(&self) -> usize {
        self.strangers.len() + self.calls.len()
    }

    /// Lets a stranger in, in the place of another if there is none. Ends when there is a place.
    pub(super) async fn enter(
        &mut self,
        from: SocketAddr,
        meeting: impl Future<Output = io::Result<Option<Caller>>> + Send + 'static,
    ) {
        while let Some(met) = self.strangers.try_join_next() {
            self.welcome(met);
        }
        self.order.retain(|stranger| !stranger.is_finished());
        while self.strangers.len() >= self.most_strangers {
            if let Some(oldest) = self.order.pop_front() {
                REPLICAS.displaced(self.strangers.len());
                oldest.abort();
            }
            if let Some(met) = self.strangers.join_next().await {
                self.welcome(met);
            }
        }
        self.order.push_back(self.strangers.spawn(async move { (from, meeting.await) }));
    }

    /// Ends when somebody has turned out to be another dispatcher or not, a call is over, or a row is.
    pub(super) async fn go_on(&mut self) {
        tokio::select! {
            Some(met) = self.strangers.join_next() => self.welcome(met),
            Some(_) = self.calls.join_next() => {}
            lost = self.lost.over() => {
                tracing::info!(lost, "no stranger calls as another dispatcher any more");
            }
        }
    }

    fn welcome(&mut self, met: Result<Met, JoinError>) {
        match met {
            Ok((from, Ok(Some(caller)))) if self.calls.len() < MOST_CALLS => {
                self.calls.spawn(attend(from, caller));
            }
            Ok((from, Err(error))) if self.lost.one_more() => {
                tracing::info!(%from, %error, "who calls is no other dispatcher, or left before it said so");
            }
            _ => {}
        }
    }
}

async fn attend(from: SocketAddr, caller: Caller) {
    if let Err(error) = desk::answer(caller).await {
        tracing::info!(%from, %error, "a call of another dispatcher was lost");
    }
}

#[cfg(test)]
mod tests {
    use std::{future::pending, sync::Arc};

    use tokio::sync::Semaphore;

    use super::*;

    const FROM: SocketAddr =
        SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 1);

    #[tokio::test]
    async fn the_stranger_who_is_there_for_longest_goes_for_a_newcomer() {
        let mut lobby = Lobby::new(2);
        let mut there = Vec::new();
        for _ in 0..5 {
            let here = Arc::new(());
            there.push(Arc::downgrade(&here));
            let meeting = async move {
                let _here = here;
                pending().await
            };
            lobby.enter(FROM, meeting).await;
            assert!(lobby.open() <= 2);
        }
        let there: Vec<bool> = there.iter().map(|one| one.strong_count() > 0).collect();
        assert_eq!(there, [false, false, false, true, true]);
    }

    #[tokio::test]
    async fn strangers_that_have_left_make_room_and_are_said_once() {
        let mut lobby = Lobby::new(2);
        let stays = Arc::new(Semaphore::new(0));
        let waits = stays.clone();
        lobby
            .enter(FROM, async move {
                let _ = waits.acquire().await;
                Ok(None)
            })
            .await;
        for _ in 0..5 {
            lobby.enter(FROM, async { Err(io::ErrorKind::UnexpectedEof.into()) }).await;
            lobby.go_on().await;
        }
        assert_eq!(lobby.open(), 1, "who was there before still is");
        assert!(!lobby.lost.one_more(), "the row has begun");
        stays.add_permits(1);
        lobby.go_on().await;
        assert_eq!(lobby.open(), 0);
    }
}
