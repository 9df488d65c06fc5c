//! The replicas' thread: looks the others up, calls each of them once for each pool, and lets them call.

use std::{
    collections::{BTreeSet, HashSet},
    io,
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::{
    net::{TcpListener, lookup_host},
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval, sleep},
};

use super::{
    ReplicasConfig,
    call::{Over, call},
    circle::Circle,
    desk,
    lobby::Lobby,
    rank::Rank,
    wire::Why,
};
use crate::{
    accept::REPLICAS,
    descriptors,
    hub::Hub,
    shutdown::{Life, Stage},
    worker::Stop,
};

/// Between two look-ups of the others' names.
const LOOK_UP_EVERY: Duration = Duration::from_secs(2);
/// Before a lost call is tried again, at first and at most.
const AGAIN: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(1)];
/// Before an address is called again that need not or may not be called, or answered too late for the first time.
const MUCH_LATER: Duration = Duration::from_secs(5);
/// The same where it does so time and again: each time what comes meanwhile waits for it.
const SELDOM: Duration = Duration::from_secs(30);

/// Opens the listener, so that an address that is taken is known before anything starts.
///
/// # Errors
/// When the address cannot be listened on.
pub fn bind(config: &ReplicasConfig) -> io::Result<std::net::TcpListener> {
    let listener = std::net::TcpListener::bind(config.listen)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// What the thread is made of.
pub struct Replicas {
    listener: std::net::TcpListener,
    config: ReplicasConfig,
    circles: Vec<Arc<Circle>>,
    life: Life,
}

/// The addresses that the others have now.
type Wanted = Arc<Mutex<BTreeSet<SocketAddr>>>;

impl Replicas {
    /// With a circle for each hub.
    pub fn new(
        listener: std::net::TcpListener,
        config: ReplicasConfig,
        hubs: &[Arc<Hub>],
        life: &Life,
    ) -> Self {
        let started = hubs.first().map(|hub| hub.clock().unix_ms());
        Self::ranked(listener, config, hubs, life, Rank::drawn(started.unwrap_or_default()))
    }

    /// The same with a rank that is known.
    pub(super) fn ranked(
        listener: std::net::TcpListener,
        config: ReplicasConfig,
        hubs: &[Arc<Hub>],
        life: &Life,
        own: Rank,
    ) -> Self {
        let circle = |hub: &Arc<Hub>| Circle::new(hub.clone(), own, life.clone());
        let circles = hubs.iter().map(circle).collect();
        Self { listener, config, circles, life: life.clone() }
    }

    /// The dispatchers of each pool.
    pub fn circles(&self) -> &[Arc<Circle>] {
        &self.circles
    }

    /// Calls and is called until it is told to stop.
    pub async fn run(self, mut stop: Stop) {
        let listener = match TcpListener::from_std(self.listener) {
            Ok(listener) => listener,
            Err(error) => return tracing::error!(%error, "other dispatchers cannot be listened to"),
        };
        let circles = self.circles.clone();
        let leaving = async {
            self.life.reached(Stage::Draining).await;
            circles.iter().for_each(|circle| circle.leave());
            std::future::pending::<()>().await;
        };
        let moving = async {
            join_all(circles.iter().map(|circle| circle.keep_moving())).await;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = moving => {}
            () = answer(listener, circles.clone(), self.config.secret) => {}
            () = scout(self.config, self.circles) => {}
            () = leaving => {}
            () = stop.requested() => {}
        }
        // Who cannot be heard any more decides for nobody.
        circles.iter().for_each(|circle| circle.hub.follow(None));
    }
}

/// Lets others call.
async fn answer(listener: TcpListener, circles: Vec<Arc<Circle>>, secret: [u8; 32]) {
    let circles: Arc<[Arc<Circle>]> = circles.into();
    let mut lobby = Lobby::new(descriptors::most_strangers());
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, from)) => {
                    let circles = circles.clone();
                    let meeting = async move { desk::meet(stream, &circles, secret).await };
                    lobby.enter(from, meeting).await;
                }
                Err(error) => REPLICAS.failed(error, lobby.open()).await,
            },
            () = lobby.go_on() => {}
            () = REPLICAS.calm() => {}
        }
    }
}

/// Looks the others up and keeps a caller for each address and pool.
async fn scout(config: ReplicasConfig, circles: Vec<Arc<Circle>>) {
    let wanted = Wanted::default();
    let mut callers = JoinSet::new();
    // One by one: a pool's caller may be at an end while that of another, whose call goes on, does not look whether it is.
    let mut called: HashSet<(SocketAddr, usize)> = HashSet::new();
    let mut every = interval(LOOK_UP_EVERY);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = every.tick() => {}
            Some(over) = callers.join_next(), if !callers.is_empty() => {
                if let Ok(caller) = over {
                    called.remove(&caller);
                }
                continue;
            }
        }
        look_up(&config.others, &wanted).await;
        let addresses: Vec<SocketAddr> = wanted.lock().iter().copied().collect();
        for address in addresses {
            for (pool, circle) in circles.iter().enumerate() {
                if called.insert((address, pool)) {
                    let calling =
                        keep_calling(circle.clone(), address, config.secret, wanted.clone());
                    callers.spawn(async move {
                        calling.await;
                        (address, pool)
                    });
                }
            }
        }
    }
}

/// Notes which addresses the others have. While one of the names cannot be looked up those that are known stay.
async fn look_up(others: &[(String, u16)], wanted: &Wanted) {
    let mut found = BTreeSet::new();
    let mut all = true;
    for (host, port) in others {
        match lookup_host((host.trim_matches(['[', ']']), *port)).await {
            Ok(addresses) => found.extend(addresses),
            Err(error) => {
                all = false;
                tracing::debug!(host, %error, "another dispatcher cannot be looked up");
            }
        }
    }
    let mut wanted = wanted.lock();
    if all {
        wanted.clear();
    }
    wanted.extend(found);
}

/// Calls an address for as long as one of the others has it; what cannot be reached is called again.
async fn keep_calling(circle: Arc<Circle>, address: SocketAddr, secret: [u8; 32], wanted: Wanted) {
    let mut pause = AGAIN[0];
    let mut said = None;
    while wanted.lock().contains(&address) {
        let began = Instant::now();
        let over = call(&circle, address, secret).await;
        if began.elapsed() > SELDOM {
            pause = AGAIN[0];
        }
        match &over {
            Ok(Over::Refused(why)) => say_once(&mut said, *why, address),
            Ok(Over::Lost(error)) | Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                tracing::warn!(%address, %error, "what another dispatcher says is not believed");
            }
            Ok(Over::Late) => {
                tracing::warn!(%address, "another dispatcher answers too late, and is left alone for a while");
            }
            Ok(Over::Lost(error)) | Err(error) => {
                tracing::debug!(%address, %error, "another dispatcher cannot be heard");
            }
            Ok(_) => {}
        }
        pause = again_after(&over, pause);
        sleep(pause).await;
    }
}

/// When an address is called again, which was called for the last time after such a pause.
fn again_after(over: &io::Result<Over>, pause: Duration) -> Duration {
    let [first, longest] = AGAIN;
    match over {
        Ok(Over::Needless) => MUCH_LATER,
        Ok(Over::Late) => (2 * pause).clamp(MUCH_LATER, SELDOM),
        Ok(Over::Refused(Why::Leaving) | Over::Farewell) => longest,
        Ok(Over::Refused(_)) => MUCH_LATER,
        Ok(Over::Lost(error)) if error.kind() == io::ErrorKind::InvalidData => longest,
        // Whoever was there a moment ago mostly is still, and until it is heard two decide.
        Ok(Over::Lost(_)) => first,
        Err(_) => longest.min(2 * pause),
    }
}

fn say_once(said: &mut Option<Why>, why: Why, address: SocketAddr) {
    if *said != Some(why) && why != Why::Leaving {
        tracing::warn!(%address, "another dispatcher may not be asked: {why}");
    }
    *said = Some(why);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_was_answered_and_lost_is_made_again_at_once_however_long_it_took_to_be_answered()
    {
        let broken = || io::Error::from(io::ErrorKind::ConnectionReset);
        let [first, longest] = AGAIN;
        let pause = (0..9).fold(first, |pause, _| again_after(&Err(broken()), pause));
        assert_eq!(pause, longest, "nobody is there");
        assert_eq!(again_after(&Ok(Over::Lost(broken())), pause), first);
    }

    #[test]
    fn who_answers_too_late_time_and_again_is_called_ever_less() {
        let mut pause = AGAIN[0];
        let pauses = [(); 5].map(|()| {
            pause = again_after(&Ok(Over::Late), pause);
            pause.as_secs()
        });
        assert_eq!(pauses, [5, 10, 20, 30, 30]);
    }
}
