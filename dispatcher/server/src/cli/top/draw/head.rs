//! The dispatcher and its pools, in two lines each.

use ratatui::text::{Line, Span};

use super::Paint;
use crate::cli::{
    answers::PoolOverview,
    output::{
        figures::{drain, percent, time},
        table::plain,
    },
    top::seat::Seat,
};

pub(super) fn lines(seat: &Seat, paint: Paint, most: usize, width: u16) -> Vec<Line<'static>> {
    let mut lines = vec![first(seat, paint)];
    for pool in seat.board.overview.pools.iter().take(most) {
        lines.push(counts(pool, paint, usize::from(width)));
        lines.push(outcomes(pool, paint));
    }
    lines
}

fn first(seat: &Seat, paint: Paint) -> Line<'static> {
    let overview = &seat.board.overview;
    let mut spans = vec![
        Span::styled(format!("weir {}", plain(&overview.version)), paint.strong()),
        Span::raw(format!("  {}  up {}  ", seat.address, time(Some(overview.uptime_s * 1e3)))),
    ];
    match &seat.lost {
        Some(why) => {
            spans.push(Span::styled(format!("LOST, this is old: {}", plain(why)), paint.late()))
        }
        None if overview.draining => {
            spans.push(Span::styled("DRAINING, it was asked to stop", paint.tight()))
        }
        None => spans.push(Span::styled("live", paint.ok())),
    }
    let hidden = overview.pools.len().saturating_sub(super::POOLS);
    if hidden > 0 {
        spans.push(Span::raw(format!("  {hidden} pools more: --pool")));
    }
    Line::from(spans)
}

fn counts(pool: &PoolOverview, paint: Paint, width: usize) -> Line<'static> {
    let late = if pool.late > 0 { paint.late() } else { paint.dim() };
    let pods = if pool.pods_ready < pool.pods { paint.tight() } else { paint.ok() };
    let model = match pool.model_version {
        Some(version @ 1..) => format!("v{version}"),
        _ => "none yet".to_owned(),
    };
    let mut spans = vec![Span::styled(plain(&pool.pool), paint.strong())];
    if let Some(address) = &pool.decided_by {
        let elsewhere = format!("  DECIDED BY {}", plain(address));
        spans.push(Span::styled(elsewhere, paint.tight()));
    }
    if pool.paused {
        spans.push(Span::styled("  PAUSED", paint.tight()));
    } else if !pool.held.is_empty() {
        let held = plain(&pool.held.join(" "));
        spans.push(Span::styled(format!("  held: {held}"), paint.tight()));
    }
    spans.extend([
        Span::raw(format!("  waiting {} ", pool.waiting)),
        Span::styled(format!("({} late)", pool.late), late),
        Span::raw("  pods "),
        Span::styled(format!("{}/{} ready", pool.pods_ready, pool.pods), pods),
    ]);
    if let Some(need) = &pool.need {
        let style = if need.pods > pool.pods_ready { paint.tight() } else { paint.dim() };
        spans.push(Span::styled(format!(" ({} needed)", need.pods), style));
    }
    let mut line = Line::from(spans);
    // On a narrow terminal what matters least is left out: half a figure would be another one.
    for part in [
        format!("  oldest {}", time(pool.oldest_wait_ms)),
        format!("  drain {}", drain(pool.drain_ms)),
        format!("  in flight {}", pool.in_flight),
        format!("  model {model}"),
        format!("  policy {}", plain(&pool.policy)),
    ] {
        if line.width() + part.len() <= width {
            line.push_span(Span::raw(part));
        }
    }
    line
}

fn outcomes(pool: &PoolOverview, paint: Paint) -> Line<'static> {
    let mut spans = vec![Span::styled("  attained", paint.dim())];
    for class in &pool.attainment {
        let share = class.share();
        let style = match share {
            Some(share) if share < 0.9 => paint.late(),
            Some(share) if share < 0.99 => paint.tight(),
            Some(_) => paint.ok(),
            None => paint.dim(),
        };
        spans.push(Span::raw(format!(" {} ", plain(&class.name()))));
        spans.push(Span::styled(percent(share), style));
    }
    if pool.attainment.is_empty() {
        spans.push(Span::styled(" nothing has ended lately", paint.dim()));
    }
    let refused: Vec<_> = pool.refused.iter().filter(|(_, count)| **count > 0).collect();
    if !refused.is_empty() {
        spans.push(Span::styled("   refused", paint.dim()));
    }
    for (reason, count) in refused {
        spans.push(Span::raw(format!(" {} {count}", plain(reason))));
    }
    Line::from(spans)
}
