//! The picture: what the seat shows, painted.
//!
//! # Layout
//! - [`paint`]: colours, bars and gauges
//! - [`head`]: the dispatcher and its pools, in two lines each
//! - [`rows`]: lanes, pods, decisions and requests as tables

mod head;
mod paint;
mod rows;

use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    text::{Line, Span},
    widgets::{Block, Paragraph, Wrap},
};

pub(super) use self::paint::Paint;
use super::{
    feed::{Detail, Focus},
    seat::{Pane, Seat},
};
use crate::cli::output::{Sheet as _, table::plain};

/// Most pools with lines of their own at the top.
const POOLS: usize = 4;
/// Rows of a table besides its own: the border and the titles.
const AROUND: u16 = 3;
/// Most rows of a table that are drawn, and have to be held, in a plain frame.
const MOST_ROWS: u16 = 2000;

/// Paints everything.
pub(super) fn frame(frame: &mut Frame<'_>, seat: &Seat, paint: Paint) {
    let [head, foot] = edges(seat);
    let [top, middle, foot] =
        Layout::vertical([Constraint::Length(head), Constraint::Fill(1), Constraint::Length(foot)])
            .areas(frame.area());
    frame.render_widget(Paragraph::new(head::lines(seat, paint, POOLS, top.width)), top);
    match seat.views.last() {
        None => board(frame, middle, seat, paint),
        Some(focus) => closer(frame, middle, seat, focus, paint),
    }
    frame.render_widget(Paragraph::new(bottom(seat, paint)), foot);
}

/// Heights of the lines above the tables and below them.
fn edges(seat: &Seat) -> [u16; 2] {
    let pools = seat.board.overview.pools.len().min(POOLS);
    [1 + 2 * u16::try_from(pools).unwrap_or_default(), 1]
}

/// The heights at which lanes, pods and decisions have every row.
fn wanted(seat: &Seat) -> [u16; 3] {
    let board = &seat.board;
    [board.queues.len(), board.pods.len(), board.decisions.len()]
        .map(|rows| u16::try_from(rows).unwrap_or(MOST_ROWS).clamp(1, MOST_ROWS) + AROUND)
}

/// The height at which the board has every row.
pub(super) fn full_height(seat: &Seat) -> u16 {
    edges(seat).into_iter().chain(wanted(seat)).sum()
}

/// Lanes, pods and decisions below each other, each as high as it needs if there is room.
fn board(frame: &mut Frame<'_>, area: Rect, seat: &Seat, paint: Paint) {
    let [lanes, pods, decisions] = heights(area.height, wanted(seat));
    let [first, second, third] = Layout::vertical([
        Constraint::Length(lanes),
        Constraint::Length(pods),
        Constraint::Length(decisions),
    ])
    .areas(area);
    rows::lanes(frame, first, seat, paint);
    rows::pods(frame, second, seat, paint);
    rows::decisions(frame, third, seat, paint);
}

/// Decisions get what lanes and pods leave, but at least a fifth if they need it; of the rest nobody takes more
/// than half while the other needs it. Where there is room for all, each gets what it needs.
fn heights(height: u16, wanted: [u16; 3]) -> [u16; 3] {
    let [wanted_lanes, wanted_pods, wanted_decisions] = wanted;
    let room = height - wanted_decisions.min(height / 5);
    let lanes = wanted_lanes.min((room / 2).max(room.saturating_sub(wanted_pods)));
    let pods = wanted_pods.min(room - lanes);
    [lanes, pods, height - lanes - pods]
}

/// One lane, pod or request.
fn closer(frame: &mut Frame<'_>, area: Rect, seat: &Seat, focus: &Focus, paint: Paint) {
    let title = match focus {
        Focus::Board => String::new(),
        Focus::Lane { lane, .. } => format!(" lane {lane} "),
        Focus::Request { request, .. } => format!(" request {request} "),
        Focus::Pod { pod, .. } => format!(" pod {pod} "),
    };
    let text = match &seat.detail {
        None => "reading".to_owned(),
        Some(Detail::Gone(why)) => why.clone(),
        Some(Detail::Lane(_)) => return rows::requests(frame, area, seat, &title, paint),
        Some(Detail::Request(request)) => request.sheet(false),
        Some(Detail::Pod(pod)) => pod.sheet(false),
    };
    let lines: Vec<Line<'_>> = text.lines().map(|line| paint.explanation(line)).collect();
    let last = u16::try_from(lines.len()).unwrap_or(u16::MAX).saturating_sub(1);
    let block = Block::bordered().title(plain(&title)).border_style(paint.focused());
    let text = Paragraph::new(lines).block(block).wrap(Wrap { trim: false });
    frame.render_widget(text.scroll((seat.scroll.min(last), 0)), area);
}

/// The question, what came of the last change, or the keys.
fn bottom(seat: &Seat, paint: Paint) -> Line<'static> {
    if let Some(change) = &seat.asking {
        let question = format!(" {}  y yes  any other key no", plain(&change.question()));
        return Line::styled(question, paint.question());
    }
    if let Some(said) = &seat.said {
        let style = if said.is_error { paint.late() } else { paint.ok() };
        return Line::styled(format!(" {}", plain(&said.words)), style);
    }
    let keys: &[(&str, &str)] = match seat.views.last() {
        None => match seat.pane {
            Pane::Lanes => &[
                ("tab", "next part"),
                ("enter", "look closer"),
                ("p", "pause lane"),
                ("c", "cancel lane"),
                ("q", "quit"),
            ],
            Pane::Pods => &[
                ("tab", "next part"),
                ("enter", "look closer"),
                ("d", "drain or let go on"),
                ("q", "quit"),
            ],
            Pane::Decisions => &[("tab", "next part"), ("enter", "look closer"), ("q", "quit")],
        },
        Some(Focus::Lane { .. }) => &[
            ("enter", "why it waits"),
            ("c", "cancel it"),
            ("p", "pause lane"),
            ("esc", "back"),
            ("q", "quit"),
        ],
        Some(Focus::Pod { .. }) => &[("d", "drain or let go on"), ("esc", "back"), ("q", "quit")],
        Some(_) => &[("c", "cancel it"), ("esc", "back"), ("q", "quit")],
    };
    let span = |(key, what): &(&'static str, &'static str)| {
        [
            Span::styled(format!(" {key}"), paint.strong()),
            Span::styled(format!(" {what} "), paint.dim()),
        ]
    };
    Line::from(keys.iter().flat_map(span).collect::<Vec<_>>())
}
