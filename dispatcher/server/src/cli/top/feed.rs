//! Hears the admin side's boards on a thread of its own, and carries out what is asked for.
//!
//! The boards are those of `/events`: made once a second for all who watch, without the requests of
//! each pod, so that watching costs the same with one pod and with hundreds. A stream that breaks is
//! opened again until it stands. Both ways to the board are bounded: one that does not listen holds
//! the feed up, and a feed that waits for an answer refuses further asks. It ends when the board drops
//! its end.

use std::{
    cmp::Reverse,
    io,
    sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    time::{Duration, Instant},
};

use serde::Deserialize;
use serde_json::Value;

use super::change::Change;
use crate::{
    cli::{
        answers::{
            self, Answer, Called, Decision, Decisions, Lane, Overview, Pod, Pods, Queues, Request,
            Requests, has,
        },
        failure::Failure,
        remote::{Admin, path::Path},
    },
    worker::Worker,
};

/// News and asks that may be on their way.
const ON_THE_WAY: usize = 8;
/// The longest that a key waits for its effect.
const PIECE: Duration = Duration::from_millis(50);
/// Boards come once a second; after so long without one the stream is not trusted.
const SILENCE: Duration = Duration::from_secs(5);
/// Pause before a broken stream is opened again.
const AGAIN: Duration = Duration::from_secs(1);
/// Decisions that are shown.
const DECISIONS: u32 = 30;
/// Requests of a lane that are shown.
const REQUESTS: u32 = 200;
/// Time that an unanswered call has when the board is left.
const FAREWELL: Duration = Duration::from_millis(300);

/// Everything on the board at one moment: what an event of `/events` says.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct Board {
    pub(super) overview: Overview,
    pub(super) queues: Vec<Lane>,
    pub(super) pods: Vec<Pod>,
    pub(super) decisions: Vec<Decision>,
}

has! { Board: "overview"; }

/// What is looked at more closely.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Focus {
    /// Nothing.
    #[default]
    Board,
    /// The requests of a lane.
    Lane {
        /// Its pool.
        pool: String,
        /// Its key.
        lane: String,
    },
    /// One request.
    Request {
        /// Its pool.
        pool: String,
        /// Which.
        request: Called,
    },
    /// One pod.
    Pod {
        /// Its pool.
        pool: String,
        /// Its name.
        pod: String,
    },
}

/// What a closer look found.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Detail {
    /// Requests of a lane.
    Lane(Requests),
    /// One request.
    Request(Box<Request>),
    /// One pod.
    Pod(Box<Pod>),
    /// It is not there any more.
    Gone(String),
}

/// What the board hears.
#[derive(Clone, Debug)]
pub(super) enum News {
    /// How things are.
    Board(Box<Board>),
    /// How what is looked at is.
    Detail(Focus, Detail),
    /// No answer.
    Lost(String),
    /// A change was carried out.
    Done(String),
    /// A change was not.
    NotDone(String),
}

/// What the board asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// Look at this too from now on.
    Look(Focus),
    /// Change something.
    Do(Change),
}

/// A running feed.
#[derive(Debug)]
pub(super) struct Feed {
    asks: SyncSender<Ask>,
    news: Receiver<News>,
    worker: Worker,
}

impl Feed {
    /// Starts to listen.
    pub(super) fn start(admin: Admin, pool: Option<String>) -> io::Result<Self> {
        let (asks, asked) = sync_channel(ON_THE_WAY);
        let (told, news) = sync_channel(ON_THE_WAY);
        let worker = Worker::spawn("weir-top", move |_| {
            let mut reader = Reader { admin, pool, focus: Focus::Board, asked, told };
            while reader.listen().is_some() && reader.wait(AGAIN).is_some() {}
        })?;
        Ok(Self { asks, news, worker })
    }

    /// The next news, if there are any.
    pub(super) fn news(&self) -> Option<News> {
        self.news.try_recv().ok()
    }

    /// Says whether the ask is taken.
    pub(super) fn ask(&self, ask: Ask) -> bool {
        self.asks.try_send(ask).is_ok()
    }

    /// Ends it.
    pub(super) fn end(self) {
        drop((self.asks, self.news));
        self.worker.join(FAREWELL);
    }
}

/// Every step says `None` once nobody listens any more.
struct Reader {
    admin: Admin,
    pool: Option<String>,
    focus: Focus,
    asked: Receiver<Ask>,
    told: SyncSender<News>,
}

impl Reader {
    /// Listens until the stream breaks.
    fn listen(&mut self) -> Option<()> {
        let mut events = match self.admin.listen("/events") {
            Ok(events) => events,
            Err(failure) => return self.tell(News::Lost(failure.to_string())),
        };
        let mut heard = Instant::now();
        loop {
            match self.admin.next(&mut events, PIECE) {
                Err(failure) => return self.tell(News::Lost(failure.to_string())),
                Ok(None) if heard.elapsed() > SILENCE => {
                    return self.tell(News::Lost("no news from the admin side".to_owned()));
                }
                Ok(None) => {}
                Ok(Some(event)) => {
                    heard = Instant::now();
                    self.board(event)?;
                }
            }
            self.wait(Duration::ZERO)?;
        }
    }

    fn board(&self, event: Value) -> Option<()> {
        let pool = self.pool.as_deref();
        match Board::heard(pool, event) {
            Ok(board) => self.tell(News::Board(Box::new(board)))?,
            Err(failure) => self.tell(News::Lost(failure.to_string()))?,
        }
        self.look()
    }

    fn look(&self) -> Option<()> {
        match detail(&self.admin, &self.focus) {
            None => Some(()),
            Some(Ok(detail)) => self.tell(News::Detail(self.focus.clone(), detail)),
            Some(Err(Failure::NotFound(why))) => {
                self.tell(News::Detail(self.focus.clone(), Detail::Gone(why)))
            }
            Some(Err(failure)) => self.tell(News::Lost(failure.to_string())),
        }
    }

    /// Does what is asked for within `wait`, and what has been.
    fn wait(&mut self, wait: Duration) -> Option<()> {
        let until = Instant::now() + wait;
        loop {
            match self.asked.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Ask::Look(focus)) => {
                    self.focus = focus;
                    self.look()?;
                }
                Ok(Ask::Do(change)) => self.tell(match change.carry_out(&self.admin) {
                    Ok(words) => News::Done(words),
                    Err(failure) => News::NotDone(failure.to_string()),
                })?,
                Err(RecvTimeoutError::Timeout) => return Some(()),
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    fn tell(&self, news: News) -> Option<()> {
        self.told.send(news).ok()
    }
}

fn read<T: Answer>(admin: &Admin, what: &str, path: &Path) -> Result<T, Failure> {
    let answer = admin.get(path.as_str())?;
    answers::read(answer).map_err(|error| Failure::not_understood(what, error))
}

impl Board {
    /// Reads everything that is always on the board, once.
    ///
    /// # Errors
    /// When there is no answer or it is not understood.
    pub(super) fn read(admin: &Admin, pool: Option<&str>) -> Result<Self, Failure> {
        let path = |start: &str| Path::new(start).with("pool", pool);
        let queues: Queues = read(admin, "queues", &path("/queues"))?;
        let pods: Pods = read(admin, "pods", &path("/pods"))?;
        let decisions = path("/decisions").with("limit", Some(DECISIONS));
        let decisions: Decisions = read(admin, "decisions", &decisions)?;
        let overview = read(admin, "overview", &Path::new("/overview"))?;
        let (queues, pods, decisions) = (queues.queues, pods.pods, decisions.decisions);
        Ok(Self { overview, queues, pods, decisions }.of(pool))
    }

    /// What an event says.
    fn heard(pool: Option<&str>, event: Value) -> Result<Self, Failure> {
        let heard: Self =
            answers::read(event).map_err(|error| Failure::not_understood("events", error))?;
        Ok(heard.of(pool))
    }

    /// Only what is of a pool, in the order in which it is shown.
    fn of(mut self, pool: Option<&str>) -> Self {
        if let Some(pool) = pool {
            self.overview.pools.retain(|of| of.pool == pool);
            self.queues.retain(|of| of.pool == pool);
            self.pods.retain(|of| of.pool == pool);
            self.decisions.retain(|of| of.pool == pool);
        }
        self.sort();
        self
    }

    /// The lanes that need eyes first; the newest decisions, of whichever pool.
    pub(super) fn sort(&mut self) {
        let urgent = |lane: &Lane| Reverse((lane.risk.late, lane.risk.tight, lane.depth));
        self.queues.sort_by(|one, other| {
            urgent(one).cmp(&urgent(other)).then_with(|| one.lane.cmp(&other.lane))
        });
        let age = |decision: &Decision| decision.at_ms.unwrap_or(f64::MAX);
        self.decisions.sort_by(|one, other| age(one).total_cmp(&age(other)));
    }
}

/// A closer look; `None` when nothing is looked at.
fn detail(admin: &Admin, focus: &Focus) -> Option<Result<Detail, Failure>> {
    let in_pool = |path: Path, pool: &str| path.with("pool", (!pool.is_empty()).then_some(pool));
    Some(match focus {
        Focus::Board => return None,
        Focus::Lane { pool, lane } => {
            let path = in_pool(Path::new("/requests"), pool);
            let path = path.with("lane", Some(lane)).with("limit", Some(REQUESTS));
            read(admin, "requests", &path).map(Detail::Lane)
        }
        Focus::Request { pool, request } => {
            let path = in_pool(request.path(), pool);
            read(admin, "the request", &path).map(|found| Detail::Request(Box::new(found)))
        }
        Focus::Pod { pool, pod } => {
            let path = in_pool(Path::new("/pods").segment(pod), pool);
            read(admin, "the pod", &path).map(|found| Detail::Pod(Box::new(found)))
        }
    })
}
