//! Results for people.

use comfy_table::{CellAlignment, Table, presets};

use super::{Row, Setting, seek::told};

/// What the rows have in common.
pub(super) fn head(setting: &Setting) -> String {
    let (pool, means) = (&setting.pool, setting.source.means());
    format!(
        "{}, objectives {}: {:.0} tokens in, {:.0} out, {:.0} % of the prompts shared; {} pods of {}{}; load 1 is {:.2} requests/s",
        setting.source.name(),
        setting.mix,
        means.input_tokens,
        means.output_tokens,
        means.hit * 100.0,
        pool.pods.len(),
        setting.gpu,
        before(setting.dispatchers),
        setting.capacity_rps(),
    )
}

/// Who stands before the pods, where it is more than one dispatcher.
fn before(dispatchers: usize) -> String {
    if dispatchers > 1 { format!(" behind {dispatchers} dispatchers") } else { String::new() }
}

/// The rows as a table. With one class, its row would say what that of all classes says.
pub(super) fn of(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    let sought = rows.iter().any(|row| row.max_load.is_some());
    table.set_header([
        "policy",
        if sought { "max load" } else { "load" },
        "class",
        "attained %",
        "goodput rps",
        "tokens/s",
        "TTFT p50/p95/p99 ms",
        "TPOT p50/p95/p99 ms",
        "wait p95 ms",
        "refused",
        "preempted",
        "hit %",
    ]);
    let classes = rows.iter().filter(|row| row.class != "all").map(|row| &row.class);
    let several = classes.collect::<std::collections::HashSet<_>>().len() > 1;
    for row in rows.iter().filter(|row| several || row.class == "all") {
        table.add_row(cells(row));
    }
    let numbers =
        table.column_iter_mut().enumerate().filter(|(column, _)| ![0, 2].contains(column));
    numbers.for_each(|(_, column)| column.set_cell_alignment(CellAlignment::Right));
    table
}

fn cells(row: &Row) -> [String; 12] {
    let number = |value: Option<f64>, digits| {
        let value = value.filter(|value| value.is_finite());
        value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
    };
    let three =
        |values: [Option<f64>; 3], digits| values.map(|value| number(value, digits)).join(" / ");
    let spread = row.attainment_ci.map_or_else(String::new, |ci| format!(" ± {:.1}", ci * 100.0));
    [
        row.policy.clone(),
        row.max_load.map_or_else(|| number(row.load, 2), |load| told(load, row.bounded)),
        row.class.clone(),
        format!("{:.1}{spread}", row.attainment * 100.0),
        number(Some(row.goodput_rps), 2),
        number(Some(row.goodput_tokens_per_s), 0),
        three([row.ttft_ms_p50, row.ttft_ms_p95, row.ttft_ms_p99], 0),
        three([row.tpot_ms_p50, row.tpot_ms_p95, row.tpot_ms_p99], 1),
        number(row.wait_ms_p95, 0),
        (row.refused + row.rejected).to_string(),
        row.preemptions.to_string(),
        format!("{:.0}", row.prefix_hit * 100.0),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(class: &str) -> Row {
        Row {
            policy: "weir".to_owned(),
            class: class.to_owned(),
            load: Some(0.8),
            attainment: 0.987,
            attainment_ci: Some(0.004),
            ttft_ms_p50: Some(81.4),
            ..Row::default()
        }
    }

    #[test]
    fn the_spread_over_the_seeds_stands_beside_the_share() {
        let text = of(&[row("all")]).to_string();
        assert!(text.contains("98.7 ± 0.4") && text.contains("81 / - / -"), "{text}");
    }

    #[test]
    fn the_end_of_the_search_and_a_rate_in_no_time_are_not_told_as_numbers() {
        let found = Row { max_load: Some(15.99), bounded: false, ..row("all") };
        assert!(of(&[found]).to_string().contains("at least 16"));
        let moment = Row { goodput_rps: f64::NAN, ..row("all") };
        let text = of(std::slice::from_ref(&moment)).to_string();
        assert!(!text.contains("NaN"), "{text}");
        let json = serde_json::to_string(&moment).unwrap();
        assert!(json.contains("\"goodput_rps\":null"), "{json}");
        let read: Row = serde_json::from_str(&json).unwrap();
        assert!(read.goodput_rps.is_nan() && read.throughput_rps == 0.0);
        let older = json.replace("\"bounded\":false,", "");
        assert!(serde_json::from_str::<Row>(&older).unwrap().bounded, "{older}");
    }

    #[test]
    fn only_more_dispatchers_than_one_are_told() {
        assert_eq!(before(1), "");
        assert_eq!(before(3), " behind 3 dispatchers");
    }

    #[test]
    fn a_single_class_is_not_said_twice() {
        assert_eq!(of(&[row("all"), row("interactive")]).row_iter().count(), 1);
        let two = [row("all"), row("interactive"), row("batch")];
        assert_eq!(of(&two).row_iter().count(), 3);
    }
}
