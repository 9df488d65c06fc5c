//! Lanes, pods, decisions and requests as tables.

use ratatui::{
    Frame,
    layout::{Constraint, Flex, Layout, Rect},
    style::Style,
    text::{Line, Span},
    widgets::{Block, Cell, Row, Table, TableState},
};

use super::Paint;
use crate::cli::{
    answers::{Decision, Lane, Pod, Waiting},
    output::{
        figures::{count, drain, many, percent, text, time},
        table::plain,
    },
    pods::note,
    top::seat::{Pane, Seat},
};

/// Columns of a terminal from which on every column of a table is shown.
const WIDE: u16 = 100;

/// Blanks between two columns.
const SPACING: u16 = 2;

/// A column: its title, its width, and when it is shown.
type Column = (Piece<'static>, Constraint, Shown);

/// When a column is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    Always,
    /// Where there is room: the last column says why, and goes before these.
    Wide,
}

use Shown::{Always, Wide};

/// What stands in a column: words, which are cut where the column ends, or something that is drawn as it is.
#[derive(Clone)]
enum Piece<'a> {
    Words(String, Style),
    Drawn(Cell<'a>),
}

impl<'a> Piece<'a> {
    fn style(self, style: Style) -> Self {
        match self {
            Self::Words(words, _) => Self::Words(words, style),
            Self::Drawn(cell) => Self::Drawn(cell.style(style)),
        }
    }

    fn cell(self, width: u16) -> Cell<'a> {
        match self {
            Self::Words(words, style) => Cell::from(cut(words, width)).style(style),
            Self::Drawn(cell) => cell,
        }
    }
}

impl<'a, T: Into<Cell<'a>>> From<T> for Piece<'a> {
    fn from(drawn: T) -> Self {
        Self::Drawn(drawn.into())
    }
}

/// Words as far as they fit, with a sign where they go on: half an id is not to be taken for a whole one.
fn cut(words: String, width: u16) -> String {
    let width = usize::from(width);
    if Span::raw(words.as_str()).width() <= width {
        return words;
    }
    let mut fits = String::new();
    for letter in words.chars() {
        let longer = format!("{fits}{letter}");
        if Span::raw(longer.as_str()).width() >= width {
            break;
        }
        fits = longer;
    }
    fits + "…"
}

/// A table in a frame of its own.
struct Part<'a, const N: usize> {
    title: String,
    columns: [Column; N],
    focused: bool,
    picked: usize,
    rows: Vec<[Piece<'a>; N]>,
}

impl<const N: usize> Part<'_, N> {
    fn draw(self, frame: &mut Frame<'_>, area: Rect, paint: Paint) {
        let border = if self.focused { paint.focused() } else { paint.dim() };
        let shown = self.columns.each_ref().map(|(.., when)| *when == Always || area.width >= WIDE);
        let columns =
            || self.columns.iter().zip(shown).filter_map(|(of, shown)| shown.then_some(of));
        let widths: Vec<_> = columns().map(|(_, width, _)| *width).collect();
        // As the table will lay them out, inside of its frame.
        let inside = Rect { width: area.width.saturating_sub(2), ..area };
        let laid = Layout::horizontal(&widths).flex(Flex::Start).spacing(SPACING).split(inside);
        let room = || laid.iter().map(|column| column.width);
        let titles: Vec<_> =
            columns().zip(room()).map(|((title, ..), width)| title.clone().cell(width)).collect();
        let count = self.rows.len();
        let hidden = count.saturating_sub(usize::from(area.height.saturating_sub(super::AROUND)));
        let rows = self.rows.into_iter().map(|row| {
            let pieces =
                row.into_iter().zip(shown).filter_map(|(piece, shown)| shown.then_some(piece));
            Row::new(pieces.zip(room()).map(|(piece, width)| piece.cell(width)))
        });
        let mut block = Block::bordered()
            .title(Line::styled(self.title, paint.title(self.focused)))
            .border_style(border);
        if hidden > 0 {
            block = block.title_bottom(format!(" … {hidden} more "));
        }
        let table = Table::new(rows, widths)
            .header(Row::new(titles).style(paint.dim()))
            .column_spacing(SPACING)
            .row_highlight_style(paint.picked())
            .block(block);
        // The picked row is kept in sight.
        let picked = (self.focused && count > 0).then_some(self.picked);
        frame.render_stateful_widget(table, area, &mut TableState::new().with_selected(picked));
    }
}

/// Wide enough for the longest name, within reason.
fn as_wide_as<'a>(names: impl Iterator<Item = &'a str>) -> Constraint {
    let widest = names.map(|name| name.chars().count()).max().unwrap_or_default();
    Constraint::Length(u16::try_from(widest).unwrap_or(u16::MAX).clamp(7, 36))
}

fn cell(text: &str) -> Piece<'static> {
    Piece::Words(plain(text), Style::default())
}

fn figure(text: impl Into<String>) -> Piece<'static> {
    Piece::from(Line::raw(text.into()).right_aligned())
}

pub(super) fn lanes(frame: &mut Frame<'_>, area: Rect, seat: &Seat, paint: Paint) {
    let lanes = &seat.board.queues;
    let deepest = lanes.iter().map(|lane| lane.depth).max().unwrap_or_default();
    let row = |lane: &Lane| {
        let why = if lane.paused { "paused".to_owned() } else { text(&lane.reason.to_string()) };
        [
            cell(&lane.lane).style(paint.risk(lane.risk)),
            figure(lane.depth.to_string()),
            Piece::from(paint.bar(lane.risk, lane.depth, deepest)),
            figure(format!("{}/{}/{}", lane.risk.late, lane.risk.tight, lane.risk.ok)),
            figure(time(lane.head_wait_ms)),
            figure(drain(lane.drain_ms)),
            cell(&why),
        ]
    };
    let columns = [
        (cell("LANE"), as_wide_as(lanes.iter().map(|lane| lane.lane.as_str())), Always),
        (figure("DEPTH"), Constraint::Length(5), Always),
        (cell(""), Constraint::Length(12), Wide),
        (figure("LATE/TIGHT/OK"), Constraint::Length(13), Always),
        (figure("OLDEST"), Constraint::Length(6), Always),
        (figure("DRAIN"), Constraint::Length(6), Always),
        (cell("WHY THE HEAD WAITS"), Constraint::Fill(1), Always),
    ];
    let title = match lanes.len() {
        0 => " lanes: nothing waits ".to_owned(),
        count if area.width >= WIDE => {
            format!(" {}   █ late  ▓ tight  ░ in time ", many(count, "lane"))
        }
        count => format!(" {} ", many(count, "lane")),
    };
    let part = Part {
        title,
        columns,
        focused: seat.pane == Pane::Lanes,
        picked: seat.places()[0],
        rows: lanes.iter().map(row).collect(),
    };
    part.draw(frame, area, paint);
}

pub(super) fn pods(frame: &mut Frame<'_>, area: Rect, seat: &Seat, paint: Paint) {
    let pods = &seat.board.pods;
    let wide = area.width >= WIDE;
    let gauge = |used, words| {
        Piece::from(if wide { paint.gauge(used, words) } else { paint.share(used, words) })
    };
    let row = |pod: &Pod| {
        let pace = format!("{}/{}", time(pod.step_ms), time(pod.tightest_tpot_ms));
        [
            cell(&pod.pod),
            cell(&pod.phase).style(paint.phase(&pod.phase)),
            figure(pod.residents.to_string()),
            figure(pod.pending.to_string()),
            gauge(pod.pace_left().map(|left| 1.0 - left), pace),
            gauge(pod.kv_usage, percent(pod.kv_usage)),
            figure(time(pod.stall_budget_ms)),
            cell(&note(pod)),
        ]
    };
    let columns = [
        (cell("POD"), as_wide_as(pods.iter().map(|pod| pod.pod.as_str())), Always),
        (cell("STATE"), Constraint::Length(8), Always),
        (figure("RESID"), Constraint::Length(5), Always),
        (figure("PEND"), Constraint::Length(4), Wide),
        (cell("STEP / TIGHTEST"), Constraint::Length(if wide { 21 } else { 15 }), Always),
        (cell("KV CACHE"), Constraint::Length(if wide { 14 } else { 8 }), Always),
        (figure("STALL"), Constraint::Length(6), Wide),
        (cell("NOTE"), Constraint::Fill(1), Always),
    ];
    let ready = pods.iter().filter(|pod| pod.phase == "ready").count();
    let part = Part {
        title: format!(" {}, {ready} ready ", many(pods.len(), "pod")),
        columns,
        focused: seat.pane == Pane::Pods,
        picked: seat.places()[1],
        rows: pods.iter().map(row).collect(),
    };
    part.draw(frame, area, paint);
}

pub(super) fn decisions(frame: &mut Frame<'_>, area: Rect, seat: &Seat, paint: Paint) {
    let decisions = &seat.board.decisions;
    let row = |decision: &Decision| {
        let style = match decision.kind.as_str() {
            "dispatch" => paint.ok(),
            "refuse" | "cancel" => paint.late(),
            _ => paint.tight(),
        };
        [
            figure(time(decision.at_ms)),
            cell(&decision.kind).style(style),
            cell(&text(&decision.request_id)),
            cell(&text(decision.pod.as_deref().unwrap_or_default())),
            figure(time(decision.wait_ms)),
            figure(time(decision.ttft_ms)),
            cell(&decision.why()),
        ]
    };
    let columns = [
        (figure("AGO"), Constraint::Length(6), Always),
        (cell("DECISION"), Constraint::Length(8), Always),
        (cell("REQUEST"), as_wide_as(decisions.iter().map(|of| of.request_id.as_str())), Always),
        (cell("POD"), as_wide_as(decisions.iter().filter_map(|of| of.pod.as_deref())), Always),
        (figure("WAITED"), Constraint::Length(7), Wide),
        (figure("TTFT"), Constraint::Length(7), Wide),
        (cell("WHY"), Constraint::Fill(1), Always),
    ];
    let title = match decisions.len() {
        0 => " decisions: none is remembered ".to_owned(),
        count => format!(" the newest {} ", many(count, "decision")),
    };
    let part = Part {
        title,
        columns,
        focused: seat.pane == Pane::Decisions,
        picked: seat.places()[2],
        rows: decisions.iter().map(row).collect(),
    };
    part.draw(frame, area, paint);
}

pub(super) fn requests(frame: &mut Frame<'_>, area: Rect, seat: &Seat, title: &str, paint: Paint) {
    let row = |request: &Waiting| {
        let left = request.deadline_ms;
        let style = match (request.late, left, request.ttft_slo_ms) {
            (true, ..) => paint.late(),
            (_, Some(left), Some(slo)) if left < slo / 4.0 => paint.tight(),
            _ => paint.ok(),
        };
        [
            cell(&text(&request.request_id)),
            cell(request.tenant.as_deref().unwrap_or("-")),
            figure(time(request.age_ms)),
            Piece::from(Line::styled(time(left), style).right_aligned()),
            figure(count(request.input_tokens)),
            figure(count(request.output_tokens)),
            cell(&request.reason.to_string()),
        ]
    };
    let requests = seat.requests();
    let tenants = requests.iter().filter_map(|request| request.tenant.as_deref());
    let columns = [
        (cell("REQUEST"), as_wide_as(requests.iter().map(|of| of.request_id.as_str())), Always),
        (cell("TENANT"), as_wide_as(tenants), Always),
        (figure("AGE"), Constraint::Length(7), Always),
        (figure("LEFT"), Constraint::Length(7), Always),
        (figure("IN"), Constraint::Length(7), Always),
        (figure("OUT"), Constraint::Length(7), Wide),
        (cell("WHY"), Constraint::Fill(1), Always),
    ];
    let part = Part {
        title: format!("{}the oldest {} ", plain(title), requests.len()),
        columns,
        focused: true,
        picked: seat.places()[3],
        rows: requests.iter().map(row).collect(),
    };
    part.draw(frame, area, paint);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_do_not_fit_end_in_a_sign_that_they_go_on() {
        assert_eq!(cut("request-1".to_owned(), 9), "request-1");
        assert_eq!(cut("request-12".to_owned(), 9), "request-…");
        assert_eq!(cut("東京都".to_owned(), 5), "東京…", "a letter may be two columns wide");
    }
}
