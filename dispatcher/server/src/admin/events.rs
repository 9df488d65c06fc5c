//! The stream of boards: once a second everything that the page shows, the same for all who watch, and
//! made only while somebody does.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    extract::State,
    response::sse::{Event, KeepAlive, Sse},
};
use futures_util::stream::{self, Stream};
use serde::Serialize;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    time::{MissedTickBehavior, interval},
};
use utoipa::ToSchema;

use super::{
    decision::{self, DecisionRow},
    fault::{ErrorBody, Fault},
    overview::{self, Overview},
    pod::{self, PodRow},
    queue::{self, Queue},
    seat::Seat,
};

/// Most streams at once: a stuck script must not take every connection.
pub const STREAMS: usize = 64;
/// Lanes of a pool in one board, those most at risk.
const LANES: usize = 50;
/// Decisions of a pool in one board.
const DECISIONS: usize = 40;

/// A board as it is sent; empty before the first.
type Text = Arc<str>;

/// Those who watch.
#[derive(Debug)]
pub struct Broadcast {
    boards: watch::Sender<Text>,
    room: Arc<Semaphore>,
}

impl Default for Broadcast {
    fn default() -> Self {
        Self {
            boards: watch::Sender::new(Text::default()),
            room: Arc::new(Semaphore::new(STREAMS)),
        }
    }
}

/// What the page shows at one moment.
#[derive(Debug, Serialize, ToSchema)]
pub struct Board {
    /// Every pool in a few figures.
    pub overview: Overview,
    /// The lanes most at risk, at most 50 of each pool.
    pub queues: Vec<Queue>,
    /// Every pod, without its requests.
    pub pods: Vec<PodRow>,
    /// Decisions of the last seconds, newest first, at most 40 of each pool.
    pub decisions: Vec<DecisionRow>,
}

/// A stream that also keeps its place among those that are open.
struct Watching {
    boards: watch::Receiver<Text>,
    _place: OwnedSemaphorePermit,
}

/// Server-sent events: `event: board` with everything that the page shows, once a second.
#[utoipa::path(
    get, path = "/events", tag = "overview", operation_id = "events",
    responses(
        (status = 200, content_type = "text/event-stream", body = String,
            description = "`event: board` once a second; its data is a Board"),
        (status = 503, body = ErrorBody, description = "As many streams as there may be are open"),
        (status = "4XX", body = ErrorBody),
    )
)]
pub(super) async fn events(
    State(seat): State<Arc<Seat>>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Fault> {
    let broadcast = seat.broadcast();
    let place = broadcast.room.clone().try_acquire_owned();
    let place = place.map_err(|_| Fault::TooManyStreams(STREAMS))?;
    let mut boards = broadcast.boards.subscribe();
    // Nobody waits a second for the first picture.
    let first = seat.clone().aside(|seat| Ok(board(seat))).await?;
    boards.mark_unchanged();
    let first = stream::once(std::future::ready(Ok(event(&first))));
    let watching = Watching { boards, _place: place };
    let rest = stream::unfold(watching, |mut watching| async {
        watching.boards.changed().await.ok()?;
        let text = watching.boards.borrow_and_update().clone();
        Some((Ok(event(&text)), watching))
    });
    let all = stream::StreamExt::chain(first, rest);
    Ok(Sse::new(all).keep_alive(KeepAlive::default()))
}

fn event(board: &str) -> Event {
    Event::default().event("board").data(board)
}

/// Sends a board every second to whoever watches, for as long as it is driven.
pub(super) async fn broadcast(seat: Arc<Seat>) {
    let mut seconds = interval(Duration::from_secs(1));
    seconds.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        seconds.tick().await;
        if seat.broadcast().boards.receiver_count() == 0 {
            continue;
        }
        if let Ok(board) = seat.clone().aside(|seat| Ok(board(seat))).await {
            seat.broadcast().boards.send_replace(board);
        }
    }
}

/// Everything that the page shows, as JSON. One that cannot be written is empty.
fn board(seat: &Seat) -> Text {
    let pools = seat.pools(None).unwrap_or_default();
    let board = Board {
        overview: overview::of(seat),
        queues: queue::riskiest(queue::of(&pools), LANES),
        pods: pools.iter().flat_map(|pool| pod::rows(*pool, 0)).collect(),
        decisions: pools
            .iter()
            .flat_map(|pool| decision::rows(*pool, 0, DECISIONS, None))
            .collect(),
    };
    serde_json::to_string(&board).unwrap_or_default().into()
}
