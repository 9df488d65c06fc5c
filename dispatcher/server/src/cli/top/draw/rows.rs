//! Lanes, pods, decisions and requests as tables.

use ratatui::{
    Frame,
    layout::{Constraint, Rect},
    text::Line,
    widgets::{Block, Cell, Row, Table, TableState},
};

use super::Paint;
use crate::cli::{
    answers::{Decision, Lane, Pod, Waiting},
    output::{
        figures::{count, percent, text, time},
        table::plain,
    },
    pods::note,
    top::seat::{Pane, Seat},
};

/// A table in a frame of its own.
struct Part<'a> {
    title: String,
    columns: &'a [(Cell<'static>, Constraint)],
    focused: bool,
    picked: usize,
    rows: Vec<Row<'a>>,
}

impl Part<'_> {
    fn draw(self, frame: &mut Frame<'_>, area: Rect, paint: Paint) {
        let border = if self.focused { paint.focused() } else { paint.dim() };
        let titles = self.columns.iter().map(|(title, _)| title.clone());
        let widths = self.columns.iter().map(|(_, width)| *width);
        let some = !self.rows.is_empty();
        let table = Table::new(self.rows, widths)
            .header(Row::new(titles).style(paint.dim()))
            .column_spacing(2)
            .row_highlight_style(paint.picked())
            .block(Block::bordered().title(self.title).border_style(border));
        // The picked row is kept in sight.
        let picked = (self.focused && some).then_some(self.picked);
        frame.render_stateful_widget(table, area, &mut TableState::new().with_selected(picked));
    }
}

/// Wide enough for the longest name, within reason.
fn as_wide_as<'a>(names: impl Iterator<Item = &'a str>) -> Constraint {
    let widest = names.map(|name| name.chars().count()).max().unwrap_or_default();
    Constraint::Length(u16::try_from(widest).unwrap_or(u16::MAX).clamp(7, 36))
}

fn cell(text: &str) -> Cell<'static> {
    Cell::from(plain(text))
}

fn figure(text: impl Into<String>) -> Cell<'static> {
    Cell::from(Line::raw(text.into()).right_aligned())
}

pub(super) fn lanes(frame: &mut Frame<'_>, area: Rect, seat: &Seat, paint: Paint) {
    let lanes = &seat.board.queues;
    let deepest = lanes.iter().map(|lane| lane.depth).max().unwrap_or_default();
    let row = |lane: &Lane| {
        let why = if lane.paused { "paused".to_owned() } else { text(&lane.reason.to_string()) };
        Row::new([
            cell(&lane.lane).style(paint.risk(lane.risk)),
            figure(lane.depth.to_string()),
            Cell::from(paint.bar(lane.risk, lane.depth, deepest)),
            figure(format!("{}/{}/{}", lane.risk.late, lane.risk.tight, lane.risk.ok)),
            figure(time(lane.head_wait_ms)),
            figure(time(lane.drain_ms)),
            cell(&why),
        ])
    };
    let columns = [
        (cell("LANE"), as_wide_as(lanes.iter().map(|lane| lane.lane.as_str()))),
        (figure("DEPTH"), Constraint::Length(5)),
        (cell(""), Constraint::Length(12)),
        (figure("LATE/TIGHT/OK"), Constraint::Length(13)),
        (figure("OLDEST"), Constraint::Length(6)),
        (figure("DRAIN"), Constraint::Length(6)),
        (cell("WHY THE HEAD WAITS"), Constraint::Fill(1)),
    ];
    let title = match lanes.len() {
        0 => " lanes: nothing waits ".to_owned(),
        count => format!(" {count} lanes   █ late  ▓ tight  ░ in time "),
    };
    let part = Part {
        title,
        columns: &columns,
        focused: seat.pane == Pane::Lanes,
        picked: seat.places()[0],
        rows: lanes.iter().map(row).collect(),
    };
    part.draw(frame, area, paint);
}

pub(super) fn pods(frame: &mut Frame<'_>, area: Rect, seat: &Seat, paint: Paint) {
    let pods = &seat.board.pods;
    let row = |pod: &Pod| {
        let pace = format!("{}/{}", time(pod.step_ms), time(pod.tightest_tpot_ms));
        Row::new([
            cell(&pod.pod),
            cell(&pod.phase).style(paint.phase(&pod.phase)),
            figure(pod.residents.to_string()),
            figure(pod.pending.to_string()),
            Cell::from(paint.gauge(pod.pace_left().map(|left| 1.0 - left), pace)),
            Cell::from(paint.gauge(pod.kv_usage, percent(pod.kv_usage))),
            figure(time(pod.stall_budget_ms)),
            cell(&note(pod)),
        ])
    };
    let columns = [
        (cell("POD"), as_wide_as(pods.iter().map(|pod| pod.pod.as_str()))),
        (cell("STATE"), Constraint::Length(8)),
        (figure("RESID"), Constraint::Length(5)),
        (figure("PEND"), Constraint::Length(4)),
        (cell("STEP / TIGHTEST"), Constraint::Length(21)),
        (cell("KV CACHE"), Constraint::Length(14)),
        (figure("STALL"), Constraint::Length(6)),
        (cell("NOTE"), Constraint::Fill(1)),
    ];
    let ready = pods.iter().filter(|pod| pod.phase == "ready").count();
    let part = Part {
        title: format!(" {} pods, {ready} ready ", pods.len()),
        columns: &columns,
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
        Row::new([
            figure(time(decision.at_ms)),
            cell(&decision.kind).style(style),
            cell(&text(&decision.request_id)),
            cell(&text(decision.pod.as_deref().unwrap_or_default())),
            figure(time(decision.wait_ms)),
            figure(time(decision.ttft_ms)),
            cell(&decision.why()),
        ])
    };
    let columns = [
        (figure("AGO"), Constraint::Length(6)),
        (cell("DECISION"), Constraint::Length(8)),
        (cell("REQUEST"), as_wide_as(decisions.iter().map(|of| of.request_id.as_str()))),
        (cell("POD"), as_wide_as(decisions.iter().filter_map(|of| of.pod.as_deref()))),
        (figure("WAITED"), Constraint::Length(7)),
        (figure("TTFT"), Constraint::Length(7)),
        (cell("WHY"), Constraint::Fill(1)),
    ];
    let part = Part {
        title: " decisions ".into(),
        columns: &columns,
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
        Row::new([
            cell(&text(&request.request_id)),
            cell(request.tenant.as_deref().unwrap_or("-")),
            figure(time(request.age_ms)),
            Cell::from(Line::styled(time(left), style).right_aligned()),
            figure(count(request.input_tokens)),
            figure(count(request.output_tokens)),
            cell(&request.reason.to_string()),
        ])
    };
    let requests = seat.requests();
    let tenants = requests.iter().filter_map(|request| request.tenant.as_deref());
    let columns = [
        (cell("REQUEST"), as_wide_as(requests.iter().map(|of| of.request_id.as_str()))),
        (cell("TENANT"), as_wide_as(tenants)),
        (figure("AGE"), Constraint::Length(7)),
        (figure("LEFT"), Constraint::Length(7)),
        (figure("IN"), Constraint::Length(7)),
        (figure("OUT"), Constraint::Length(7)),
        (cell("WHY"), Constraint::Fill(1)),
    ];
    let part = Part {
        title: format!("{}the oldest {} ", plain(title), requests.len()),
        columns: &columns,
        focused: true,
        picked: seat.places()[3],
        rows: requests.iter().map(row).collect(),
    };
    part.draw(frame, area, paint);
}
