//! Results for people.

use comfy_table::{CellAlignment, Table, presets};

use super::{row::ScaleRow, run::Plan};

/// What the rows have in common.
pub(super) fn head(plan: &Plan) -> String {
    let setting = &plan.setting;
    let (pods, means) = (setting.pool.pods.len(), setting.source.means());
    let capacity_rps = setting.capacity_rps();
    format!(
        "{}, objectives {}: {:.0} tokens in, {:.0} out, {:.0} % of the prompts shared; {:.2} requests/s in the mean, load {} of {pods} \
         pods of {}, {:.2} of one; {} requests of a seed; a pod is ready after {:.0} s",
        setting.source.name(),
        setting.mix,
        means.input_tokens,
        means.output_tokens,
        means.hit * 100.0,
        capacity_rps * plan.load,
        plan.load,
        setting.gpu,
        capacity_rps * plan.load / pods.max(1) as f64,
        setting.requests,
        plan.start.as_secs_f64(),
    )
}

/// The rows as a table.
pub(super) fn of(rows: &[ScaleRow]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    table.set_header([
        "rule",
        "pod-hours",
        "mean pods",
        "most pods",
        "in time of the highest band %",
        "in time of all %",
        "refused %",
        "TTFT p95 ms",
    ]);
    rows.iter().for_each(|row| {
        table.add_row(cells(row));
    });
    table.column_iter_mut().skip(1).for_each(|one| one.set_cell_alignment(CellAlignment::Right));
    table
}

fn cells(row: &ScaleRow) -> [String; 8] {
    let spread = |value: f64, ci: Option<f64>, digits: usize| {
        let ci = ci.map_or_else(String::new, |ci| format!(" ± {ci:.digits$}"));
        format!("{value:.digits$}{ci}")
    };
    let percent = |share: f64, ci: Option<f64>| spread(share * 100.0, ci.map(|ci| ci * 100.0), 2);
    [
        row.rule.clone(),
        spread(row.pod_hours, row.pod_hours_ci, 2),
        format!("{:.2}", row.mean_pods),
        row.most_pods.to_string(),
        percent(row.in_time_top, row.in_time_top_ci),
        percent(row.in_time, row.in_time_ci),
        percent(row.refused, None),
        row.ttft_ms_p95.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.0}")),
    ]
}
