//! Reads PromQL far enough to say whether a query can be answered: brackets close, functions are known, and every series
//! has the labels that are asked of it. Grammar beyond that is Prometheus' to judge.

use std::collections::{BTreeMap, BTreeSet};

/// Series with their labels, and whether they are histograms.
pub type Known = BTreeMap<String, Series>;

/// What is known of a series.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its labels.
    pub labels: BTreeSet<String>,
    /// Whether it is asked for by its `_bucket`, `_sum` and `_count`.
    pub histogram: bool,
}

/// Labels that the scrape adds.
const OF_THE_SCRAPE: [&str; 5] =
    ["app_kubernetes_io_instance", "instance", "job", "le", "namespace"];

/// The functions and operators in use.
const WORDS: [&str; 12] = [
    "and",
    "by",
    "count",
    "count_values",
    "histogram_quantile",
    "increase",
    "max",
    "min",
    "or",
    "rate",
    "sum",
    "time",
];

/// Says why a query cannot be answered.
///
/// # Errors
/// The first thing that is wrong with it.
pub fn check(query: &str, known: &Known) -> Result<(), String> {
    let tokens = tokens(query)?;
    let mut open = Vec::new();
    let mut asked = 0;
    for (at, token) in tokens.iter().enumerate() {
        match token.as_str() {
            "(" | "{" | "[" => open.push(token.as_str()),
            ")" | "}" | "]" => {
                let pair = [open.pop().unwrap_or(""), token].concat();
                if !["()", "{}", "[]"].contains(&pair.as_str()) {
                    return Err(format!("{token} closes nothing"));
                }
            }
            "by" => grouping(&tokens, at, known)?,
            word if WORDS.contains(&word) || !is_name(word) => {}
            // Inside braces and lists of labels, and the unit of a range.
            _ if open.last().is_some_and(|open| *open != "(") => {}
            _ if in_grouping(&tokens, at) => {}
            series => {
                let labels = matched(&tokens, at + 1);
                has(series, &labels, known)?;
                asked += 1;
            }
        }
    }
    if let Some(open) = open.pop() {
        return Err(format!("{open} is not closed"));
    }
    if asked == 0 { Err("it asks for nothing".to_owned()) } else { Ok(()) }
}

/// Names, numbers with their units, strings and single signs.
fn tokens(query: &str) -> Result<Vec<String>, String> {
    let mut tokens = Vec::new();
    let mut rest = query.trim_start();
    while let Some(first) = rest.chars().next() {
        let end = if first == '"' {
            let close = rest.char_indices().skip(1).find(|(_, sign)| *sign == '"');
            close.map(|(at, _)| at + 1).ok_or("a text is not closed")?
        } else if is_word(first) {
            rest.find(|sign| !is_word(sign)).unwrap_or(rest.len())
        } else {
            first.len_utf8()
        };
        let (token, after) = rest.split_at(end);
        tokens.push(token.to_owned());
        rest = after.trim_start();
    }
    Ok(tokens)
}

fn is_word(sign: char) -> bool {
    sign.is_ascii_alphanumeric() || sign == '_' || sign == '.'
}

fn is_name(token: &str) -> bool {
    token.starts_with(|sign: char| sign.is_ascii_alphabetic() || sign == '_')
}

/// The names between the bracket at `from`, if it is one, and the one that closes it.
fn inside<'a>(tokens: &'a [String], from: usize, open: &str, close: &str) -> &'a [String] {
    let rest = tokens.get(from..).unwrap_or_default();
    if rest.first().is_none_or(|first| first != open) {
        return &[];
    }
    let mut depth = 0;
    let end = rest.iter().position(|token| {
        depth += i32::from(token == open) - i32::from(token == close);
        depth == 0
    });
    rest.get(1..end.unwrap_or(rest.len())).unwrap_or_default()
}

/// Labels in the braces behind a series.
fn matched(tokens: &[String], from: usize) -> Vec<&str> {
    inside(tokens, from, "{", "}").iter().map(String::as_str).filter(|word| is_name(word)).collect()
}

fn in_grouping(tokens: &[String], at: usize) -> bool {
    let before = tokens.get(..at).unwrap_or_default();
    let by = before.iter().rposition(|token| token == "by");
    by.is_some_and(|by| at < by + 2 + inside(tokens, by + 1, "(", ")").len())
}

/// `sum by (labels) (query)`: every series of the query has the labels.
fn grouping(tokens: &[String], by: usize, known: &Known) -> Result<(), String> {
    let labels = inside(tokens, by + 1, "(", ")");
    let names: Vec<&str> = labels.iter().map(String::as_str).filter(|word| is_name(word)).collect();
    let body = inside(tokens, by + labels.len() + 3, "(", ")");
    let series = body.iter().filter(|word| known.contains_key(whole(word, known)));
    let series: Vec<&String> = series.collect();
    if names.is_empty() || series.is_empty() {
        return Err("by groups nothing".to_owned());
    }
    let bucket = series.iter().any(|name| name.ends_with("_bucket"));
    if bucket && !names.contains(&"le") {
        return Err("buckets are added up without le".to_owned());
    }
    series.into_iter().try_for_each(|name| has(name, &names, known))
}

/// The histogram that a part belongs to; the name itself otherwise.
fn whole<'a>(name: &'a str, known: &Known) -> &'a str {
    let part = ["_bucket", "_sum", "_count"].iter().find_map(|part| name.strip_suffix(part));
    part.filter(|whole| known.get(*whole).is_some_and(|series| series.histogram)).unwrap_or(name)
}

fn has(name: &str, labels: &[&str], known: &Known) -> Result<(), String> {
    if name == "up" {
        return Ok(());
    }
    let whole = whole(name, known);
    let series = known.get(whole).filter(|series| series.histogram == (whole != name));
    let series = series.ok_or(format!("there is no series {name}"))?;
    let missing = labels
        .iter()
        .find(|label| !series.labels.contains(**label) && !OF_THE_SCRAPE.contains(label));
    missing.map_or(Ok(()), |label| Err(format!("{name} has no label {label}")))
}
