//! Calls that go on in the background while something is done to the dispatcher.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use crate::{Call, Reply};

/// One call of a load.
#[derive(Debug)]
pub struct Outcome {
    /// The answer.
    pub reply: Reply,
    /// Time from the call to the end of the answer.
    pub took: Duration,
    /// Time from the call to the first token, for an answer that has one.
    pub ttft: Option<Duration>,
}

impl Outcome {
    /// Makes a call and measures it.
    pub async fn of(call: &Call, address: SocketAddr) -> Self {
        let started = Instant::now();
        let mut live = call.open(address).await;
        let streams = live.headers.get("content-type");
        let streams = streams.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
        let ttft = if streams {
            live.first_token().await;
            Some(started.elapsed())
        } else {
            None
        };
        Self { reply: live.rest().await, took: started.elapsed(), ttft }
    }
}

/// Pause of a client that was refused and told to come back later.
const PATIENCE: Duration = Duration::from_secs(1);

/// Clients that call again and again, each after the answer to the call before.
#[derive(Debug)]
pub struct Load {
    stop: Arc<watch::Sender<bool>>,
    done: watch::Receiver<usize>,
    clients: JoinSet<Vec<Reply>>,
}

impl Load {
    /// Starts so many clients; `call` makes the call of a client's number and turn.
    pub fn start(
        address: SocketAddr,
        clients: usize,
        call: impl Fn(usize, usize) -> Call + Clone + Send + 'static,
    ) -> Self {
        let stop = Arc::new(watch::Sender::new(false));
        let (count, done) = watch::channel(0);
        let count = Arc::new(count);
        let mut set = JoinSet::new();
        for client in 0..clients {
            let (call, stopped, count) = (call.clone(), stop.subscribe(), count.clone());
            set.spawn(async move {
                let mut replies = Vec::new();
                while !*stopped.borrow() {
                    let reply = call(client, replies.len()).to(address).await;
                    let told = reply.headers.get("retry-after").is_some();
                    replies.push(reply);
                    count.send_modify(|count| *count += 1);
                    if told {
                        sleep(PATIENCE).await;
                    }
                }
                replies
            });
        }
        Self { stop, done, clients: set }
    }

    /// Waits until so many further calls were answered.
    ///
    /// # Panics
    /// When that takes too long, or a client has failed.
    pub async fn answers(&mut self, further: usize) {
        let goal = *self.done.borrow() + further;
        let reached = timeout(Duration::from_secs(60), self.done.wait_for(|done| *done >= goal));
        let reached = reached.await.expect("the load goes on");
        drop(reached.expect("clients call until they are stopped"));
    }

    /// Stops it and returns every answer.
    pub async fn stop(self) -> Vec<Reply> {
        self.stop.send_replace(true);
        self.clients.join_all().await.into_iter().flatten().collect()
    }
}
