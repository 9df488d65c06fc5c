//! Charts of the last five minutes as pictures, for reports and chat windows; the page draws its own.

use std::sync::Arc;

use axum::{
    extract::State,
    http::header,
    response::{IntoResponse, Response},
};
use plotters::prelude::*;
use serde::Deserialize;
use utoipa::ToSchema;

use super::{
    fault::{ErrorBody, Fault},
    history::{KEPT_S, Second},
    seat::Seat,
    take::{Name, Query},
};

const SIZE: (u32, u32) = (720, 260);
/// Seconds over which attainment is averaged: a single second has too few requests.
const SMOOTHED_S: usize = 10;

/// Colours of a chart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Theme {
    /// On white.
    #[default]
    Light,
    /// On nearly black.
    Dark,
}

/// Which pool, in which colours.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ChartQuery {
    /// The pool; may be left out when there is one.
    pub pool: Option<String>,
    /// Colours; light unless said otherwise.
    #[param(inline)]
    pub theme: Option<Theme>,
}

/// A chart of the last five minutes.
#[utoipa::path(
    get, path = "/chart/{chart}", tag = "overview", operation_id = "chart",
    params(
        ("chart" = String, Path, description = "ttft.svg, attainment.svg, queue.svg or sheds.svg",
            pattern = "^(ttft|attainment|queue|sheds)\\.svg$"),
        ChartQuery,
    ),
    responses(
        (status = 200, content_type = "image/svg+xml", body = String),
        (status = "4XX", body = ErrorBody),
    )
)]
pub(super) async fn chart(
    State(seat): State<Arc<Seat>>,
    Name(name): Name,
    Query(query): Query<ChartQuery>,
) -> Result<Response, Fault> {
    seat.aside(move |seat| answer(seat, &name, &query)).await
}

fn answer(seat: &Seat, name: &str, query: &ChartQuery) -> Result<Response, Fault> {
    let of = name.strip_suffix(".svg").and_then(|name| CHARTS.iter().find(|of| of.name == name));
    let of = of.ok_or_else(|| Fault::not_found("chart", name))?;
    let pool = seat.pool(query.pool.as_deref())?;
    let seconds = seat.history().seconds(pool.index);
    let svg = draw(of, &seconds, query.theme.unwrap_or_default())
        .map_err(|error| Fault::Conflict(format!("the chart cannot be drawn: {error}")))?;
    let headers = [(header::CONTENT_TYPE, "image/svg+xml"), (header::CACHE_CONTROL, "no-store")];
    Ok((headers, svg).into_response())
}

/// The value of a line at a second, from that second and those before it.
type Value = fn(&[Second]) -> Option<f64>;

/// What a chart shows.
struct Chart {
    name: &'static str,
    title: &'static str,
    lines: &'static [(&'static str, Value)],
    /// The top of its axis, if that does not follow from what it shows.
    top: Option<f64>,
}

const CHARTS: &[Chart] = &[
    Chart {
        name: "ttft",
        title: "Median TTFT of what ended, seconds",
        lines: &[
            ("measured", |seconds| Some(seconds.last()?.ttft_p50_ms? / 1000.0)),
            ("predicted", |seconds| Some(seconds.last()?.predicted_ttft_p50_ms? / 1000.0)),
        ],
        top: None,
    },
    Chart {
        name: "attainment",
        title: "Share of requests inside their objectives, over 10 s",
        lines: &[("attained", attained)],
        top: Some(1.0),
    },
    Chart {
        name: "queue",
        title: "Requests",
        lines: &[
            ("waiting", |seconds| Some(seconds.last()?.waiting as f64)),
            ("on pods", |seconds| Some(seconds.last()?.in_flight as f64)),
        ],
        top: None,
    },
    Chart {
        name: "sheds",
        title: "Requests refused per second",
        lines: &[("refused", |seconds| Some(seconds.last()?.ends.refused as f64))],
        top: None,
    },
];

fn attained(seconds: &[Second]) -> Option<f64> {
    let sum =
        |of: fn(&Second) -> u64| seconds.iter().rev().take(SMOOTHED_S).map(of).sum::<u64>() as f64;
    let sent = sum(|second| second.ends.sent);
    (sent > 0.0).then(|| sum(|second| second.ends.attained) / sent)
}

/// Paper, ink, grid, and the lines in their order.
struct Ink {
    paper: RGBColor,
    text: RGBColor,
    grid: RGBColor,
    lines: [RGBColor; 2],
}

const LIGHT: Ink = Ink {
    paper: RGBColor(0xFF, 0xFF, 0xFF),
    text: RGBColor(0x3A, 0x41, 0x4A),
    grid: RGBColor(0xE3, 0xE6, 0xEA),
    lines: [RGBColor(0x15, 0x58, 0xD6), RGBColor(0xC7, 0x5B, 0x00)],
};
const DARK: Ink = Ink {
    paper: RGBColor(0x15, 0x18, 0x1D),
    text: RGBColor(0xC9, 0xCE, 0xD5),
    grid: RGBColor(0x2C, 0x31, 0x38),
    lines: [RGBColor(0x7F, 0xB0, 0xFF), RGBColor(0xF5, 0xA3, 0x5C)],
};

type Drawn<T> = Result<T, Box<dyn std::error::Error>>;

fn draw(of: &Chart, seconds: &[Second], theme: Theme) -> Drawn<String> {
    let ink = if theme == Theme::Dark { &DARK } else { &LIGHT };
    let points = |value: Value| -> Vec<Option<f64>> {
        let each = (1..=seconds.len()).map(|end| value(seconds.get(..end).unwrap_or_default()));
        each.collect()
    };
    let lines: Vec<_> = of.lines.iter().map(|(name, value)| (*name, points(*value))).collect();
    let highest = lines.iter().flat_map(|(_, line)| line).flatten().copied().fold(0.0, f64::max);
    let above = if highest > 0.0 { highest * 1.1 } else { 1.0 };
    let top = of.top.unwrap_or(above);
    let mut svg = String::new();
    plot(of.title, &lines, top, ink, &mut svg)?;
    Ok(svg)
}

fn plot(
    title: &str,
    lines: &[(&'static str, Vec<Option<f64>>)],
    top: f64,
    ink: &Ink,
    svg: &mut String,
) -> Drawn<()> {
    let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    area.fill(&ink.paper)?;
    let past = -(KEPT_S as f64);
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 15, &ink.text))
        .margin(8)
        .x_label_area_size(24)
        .y_label_area_size(48)
        .build_cartesian_2d(past..0.0, 0.0..top)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .bold_line_style(ink.grid)
        .light_line_style(ink.paper)
        .axis_style(ink.grid)
        .label_style(("sans-serif", 12, &ink.text))
        .x_labels(6)
        .y_labels(5)
        .x_label_formatter(&|x| if *x > -0.5 { "now".to_owned() } else { format!("{x:.0} s") })
        .draw()?;
    // The first over the second, which is wider: where they agree both are seen.
    for ((name, line), (colour, width)) in lines.iter().zip(ink.lines.into_iter().zip([2, 5])).rev()
    {
        for (number, run) in runs(line).into_iter().enumerate() {
            let drawn = chart.draw_series(LineSeries::new(run, colour.stroke_width(width)))?;
            if number == 0 {
                let sign = move |(x, y)| PathElement::new([(x, y), (x + 14, y)], colour);
                drawn.label(*name).legend(sign);
            }
        }
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .border_style(ink.grid)
        .background_style(ink.paper)
        .label_font(("sans-serif", 12, &ink.text))
        .draw()?;
    area.present()?;
    Ok(())
}

/// A line without its gaps: a second without a value has no point, and the line does not bridge it.
fn runs(line: &[Option<f64>]) -> Vec<Vec<(f64, f64)>> {
    let mut runs = vec![vec![]];
    let last = line.len() as f64 - 1.0;
    for (index, value) in line.iter().enumerate() {
        match (value, runs.last_mut()) {
            (Some(value), Some(run)) => run.push((index as f64 - last, *value)),
            (None, Some(run)) if !run.is_empty() => runs.push(vec![]),
            _ => {}
        }
    }
    runs.retain(|run| !run.is_empty());
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::history::Ends;

    fn seconds() -> Vec<Second> {
        let one = |number: u64| Second {
            ends: Ends { sent: 10, attained: 9, refused: number % 3 },
            waiting: number as usize,
            ttft_p50_ms: (number != 5).then_some(100.0 * number as f64),
            predicted_ttft_p50_ms: Some(110.0 * number as f64),
            ..Second::default()
        };
        (0..12).map(one).collect()
    }

    #[test]
    fn every_chart_is_drawn_in_both_themes_and_without_a_past() {
        for of in CHARTS {
            let light = draw(of, &seconds(), Theme::Light).unwrap();
            let dark = draw(of, &seconds(), Theme::Dark).unwrap();
            for svg in [&light, &dark, &draw(of, &[], Theme::Light).unwrap()] {
                assert!(svg.starts_with("<svg") && svg.contains(of.title), "{svg}");
            }
            assert!(light.contains("polyline") && light.contains("#1558D6"), "{light}");
            assert!(dark.contains("#7FB0FF") && !dark.contains("#1558D6"), "{dark}");
        }
    }

    #[test]
    fn a_line_has_gaps_where_there_is_nothing() {
        let runs = runs(&[None, Some(1.0), Some(2.0), None, None, Some(3.0)]);
        assert_eq!(runs, [vec![(-4.0, 1.0), (-3.0, 2.0)], vec![(0.0, 3.0)]]);
        assert!(super::runs(&[]).is_empty());
    }
}
