//! Weir with a part taken away or exchanged: what each part is worth.

use anyhow::Result;

use super::{Part, Section, with_interval};
use crate::{
    report::{
        cast::{Cast, SUBJECT_NAME, is_variant},
        group::{Group, variants},
        html::Table,
        input::Runs,
        palette::{RIVALS, SUBJECT},
        plot::{Bar, Bars, Look, Unit},
        words::{self, number, percent},
    },
    study::Row,
};

pub(super) fn section(runs: &Runs, _cast: &Cast) -> Result<Option<Section>> {
    let groups = variants(runs);
    let mut parts = Vec::new();
    for group in &groups {
        parts.extend(part(group, runs)?);
    }
    if parts.is_empty() {
        return Ok(None);
    }
    Ok(Some(Section {
        id: "variants",
        title: "What each part of the policy is worth",
        lead: worst(&groups),
        how: "Each bar is Weir with one part taken away or exchanged, against Weir itself on the same arrivals: to the left it is worse. Points are hundredths of the requests.",
        parts,
    }))
}

/// A question that Weir and its variants answered, as rows of the class that is spoken of.
struct Asked<'a> {
    weir: &'a Row,
    variants: Vec<&'a Row>,
}

impl Asked<'_> {
    /// Change against Weir: of the highest load as a ratio less one, or of attainment in points.
    fn change(&self, row: &Row) -> f64 {
        match (row.max_load, self.weir.max_load) {
            (Some(load), Some(weir)) => (load / weir.max(1e-9) - 1.0) * 100.0,
            _ => (row.attainment - self.weir.attainment) * 100.0,
        }
    }

    /// Which variant loses most; the rows are sorted, the best first.
    fn shows(&self, rows: &[&Row]) -> String {
        let (question, unit) = match (self.weir.at, self.weir.load) {
            (Some(at), _) => (format!("The highest load at {}", words::asked(at)), "%"),
            (None, load) => (format!("Attainment at {}", words::load(load)), "points"),
        };
        match rows.last().map(|row| (row, self.change(row))).filter(|(_, change)| *change < -0.05) {
            Some((row, change)) => {
                format!(" {question} falls most with `{}`: {change:+.1} {unit}.", row.policy)
            }
            None => format!(" {question} falls with none of the variants."),
        }
    }

    fn is_about(&self) -> String {
        match (self.weir.at, self.weir.load) {
            (Some(at), _) => format!("highest load at {}, change in percent", words::asked(at)),
            (None, load) => format!("attainment at {}, change in points", words::load(load)),
        }
    }
}

fn questions<'a>(group: &Group<'a>) -> Vec<Asked<'a>> {
    let weirs = group.of_class().filter(|row| row.policy == SUBJECT_NAME);
    let asked = weirs.map(|weir| {
        let same =
            |row: &&Row| (row.load, row.at) == (weir.load, weir.at) && is_variant(&row.policy);
        Asked { weir, variants: group.of_class().filter(same).collect() }
    });
    let mut asked: Vec<Asked<'_>> = asked.filter(|asked| !asked.variants.is_empty()).collect();
    // Of several loads the one nearest to 1: where parts matter.
    let off = |asked: &Asked<'_>| asked.weir.load.map(|load| (load - 1.0).abs());
    let nearest = asked.iter().filter_map(off).min_by(f64::total_cmp);
    asked.retain(|asked| off(asked).is_none_or(|off| Some(off) <= nearest));
    asked
}

/// The part that is missed most, over all questions.
fn worst(groups: &[Group<'_>]) -> String {
    let mut sums: Vec<(&str, f64, f64)> = Vec::new();
    for group in groups {
        for asked in questions(group) {
            for row in &asked.variants {
                let change = asked.change(row);
                match sums.iter_mut().find(|(name, ..)| *name == row.policy) {
                    Some((_, sum, count)) => (*sum, *count) = (*sum + change, *count + 1.0),
                    None => sums.push((&row.policy, change, 1.0)),
                }
            }
        }
    }
    let mean = |(name, sum, count): &(&str, f64, f64)| (name.to_string(), sum / count);
    let worst = sums.iter().map(mean).min_by(|a, b| a.1.total_cmp(&b.1));
    worst.map_or_else(String::new, |(name, change)| {
        format!(
            "{}; the dearest is `{name}`, {change:+.1} in the mean over what was asked.",
            words::counted(sums.len(), "variant", "variants")
        )
    })
}

fn part(group: &Group<'_>, runs: &Runs) -> Result<Option<Part>> {
    let mut part =
        Part { heading: group.heading.clone(), run: group.what_was_run(runs), ..Part::default() };
    part.table = Table::new(["variant", "question", "change", "attained", "highest load"]);
    for asked in questions(group) {
        let mut rows = asked.variants.clone();
        rows.sort_by(|a, b| asked.change(b).total_cmp(&asked.change(a)));
        part.pictures.push(bars(group, &asked, &rows).draw()?);
        for row in &rows {
            part.table.row([
                format!("`{}`", row.policy),
                asked.is_about(),
                format!("{:+.1}", asked.change(row)),
                with_interval(percent(row.attainment), row.attainment_ci.map(percent)),
                row.max_load.map_or_else(|| "-".to_owned(), number),
            ]);
        }
        part.lead += &asked.shows(&rows);
    }
    Ok((!part.pictures.is_empty()).then_some(part))
}

fn bars(group: &Group<'_>, asked: &Asked<'_>, rows: &[&Row]) -> Bars {
    let [worse, ..] = RIVALS;
    let bar = |row: &&Row| {
        let value = asked.change(row);
        let colour = if value < 0.0 { worse } else { SUBJECT };
        let name = row.policy.strip_prefix(SUBJECT_NAME).unwrap_or(&row.policy);
        let name = name.trim_start_matches(['-', ':', ' ', '+', '/']).to_owned();
        Bar { name, look: Look { colour, marker: 0, named: true }, value, interval: None }
    };
    let about = asked.is_about();
    Bars {
        name: format!("variants-{}-{}", group.slug(), words::slug(&about)),
        title: format!("Weir's parts: {about}"),
        about: format!("Change against Weir per variant, {}, {about}", group.heading),
        unit: Unit::Number,
        signed: true,
        bars: rows.iter().map(bar).collect(),
    }
}
