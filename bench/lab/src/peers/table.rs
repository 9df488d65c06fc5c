//! The rows, for people and for programs.

use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Map, Value, json};

use super::{
    figures::{Column, Figures, Spread},
    peer::Peer,
};

/// Two tables: medians with their extremes, and ratios to nginx with theirs.
pub(super) fn for_people(figures: &Figures, peers: &[Peer]) -> String {
    let values = table(peers, |peer, column| {
        figures.spread(peer, column).map(|spread| cell(spread, column.decimals()))
    });
    let proxies: Vec<Peer> =
        peers.iter().copied().filter(|peer| !matches!(peer, Peer::Direct)).collect();
    let ratios = table(&proxies, |peer, column| {
        figures.over_nginx(peer, column).map(|spread| cell(spread, 2))
    });
    format!(
        "Median (least to most):\n{values}\nRatio to nginx of the same turn, median (least to most):\n{ratios}\n"
    )
}

/// What is missing from the tables because of who was not measured.
pub(super) fn missing(peers: &[Peer]) -> Vec<&'static str> {
    [
        (
            Peer::Direct,
            "no added TTFT: it is what a peer adds to the time without one, and direct was not measured; --only takes direct too",
        ),
        (Peer::Nginx, "no ratios: nginx was not measured; --only takes nginx too"),
    ]
    .into_iter()
    .filter_map(|(peer, why)| (!peers.contains(&peer)).then_some(why))
    .collect()
}

fn table(peers: &[Peer], text: impl Fn(Peer, Column) -> Option<String>) -> Table {
    let mut table = Table::new();
    let titles = Column::ALL.iter().map(|column| column.title());
    table.load_preset(presets::ASCII_MARKDOWN).set_header(["peer"].into_iter().chain(titles));
    for peer in peers {
        let cells = Column::ALL.iter().map(|column| text(*peer, *column).unwrap_or("-".to_owned()));
        table.add_row([peer.name().to_owned()].into_iter().chain(cells));
    }
    let columns = table.column_iter_mut().skip(1);
    columns.for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table
}

fn cell(spread: Spread, decimals: usize) -> String {
    let Spread { median, min, max } = spread;
    if min == max {
        return format!("{median:.decimals$}");
    }
    format!("{median:.decimals$} ({min:.decimals$} to {max:.decimals$})")
}

/// A row per peer: each column as median, least and most, and the same of its ratio to nginx.
pub(super) fn for_programs(
    figures: &Figures,
    peers: &[Peer],
    left_out: &[(Peer, String)],
) -> Value {
    let rows = peers.iter().map(|peer| {
        let mut row = Map::from_iter([("peer".to_owned(), json!(peer.name()))]);
        for column in Column::ALL {
            let Some(spread) = figures.spread(*peer, column) else { continue };
            let name = json!(column).as_str().unwrap_or_default().to_owned();
            row.insert(format!("{name}_over_nginx"), json!(figures.over_nginx(*peer, column)));
            row.insert(name, json!(spread));
        }
        Value::Object(row)
    });
    let left_out: Map<String, Value> =
        left_out.iter().map(|(peer, why)| (peer.name().to_owned(), json!(why))).collect();
    json!({ "peers": rows.collect::<Vec<_>>(), "left_out": left_out })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures() -> Figures {
        let mut figures = Figures::default();
        for (round, nginx, weir) in [(0, 10.0, 12.0), (1, 20.0, 22.0)] {
            figures.add(round, Peer::Nginx, Column::CpuUsPerRequest, nginx);
            figures.add(round, Peer::Weir, Column::CpuUsPerRequest, weir);
        }
        figures.add(0, Peer::Direct, Column::RequestsPerS, 50_000.0);
        figures
    }

    #[test]
    fn a_row_has_medians_their_spread_and_ratios() {
        let text = for_people(&figures(), &[Peer::Direct, Peer::Nginx, Peer::Weir]);
        for part in ["17.0 (12.0 to 22.0)", "1.15 (1.10 to 1.20)", "50000", "| direct", "us/chunk"]
        {
            assert!(text.contains(part), "{part}:\n{text}");
        }
        assert_eq!(text.matches("direct").count(), 1, "nothing is added by nothing:\n{text}");
    }

    #[test]
    fn columns_that_need_somebody_who_was_not_measured_say_so() {
        let told = |peers: &[Peer]| missing(peers).join("\n");
        assert!(told(&[Peer::Nginx, Peer::Weir]).starts_with("no added TTFT"));
        assert!(told(&[Peer::Direct, Peer::Weir]).starts_with("no ratios"));
        assert_eq!(told(&Peer::ALL), "");
    }

    #[test]
    fn programs_get_a_row_per_peer_by_the_columns_names() {
        let out = [(Peer::Envoy, "not installed".to_owned())];
        let rows = for_programs(&figures(), &[Peer::Nginx, Peer::Weir], &out);
        let weir = &rows["peers"][1];
        assert_eq!(
            (&weir["peer"], &weir["cpu_us_per_request"]["max"]),
            (&json!("weir"), &json!(22.0))
        );
        assert_eq!(weir["cpu_us_per_request_over_nginx"]["min"], json!(1.1));
        assert_eq!(rows["left_out"]["envoy"], "not installed");
    }
}
