//! From text to the raw configuration, with every mistake in keys and kinds at once.
//!
//! The reader stops at the first mistake. So what it stumbled on is taken out and the rest is read
//! again, until nothing is left to stumble on: what is returned is every mistake, and nothing is made of
//! a text that has one. A key that is repeated in its mapping is a mistake too, and of what it holds the last
//! is read on.

use serde_yaml_ng::Value;

use super::{
    Problems, RawConfig,
    locate::{Lines, Repeated},
    problems::Problem,
    suggest::{plain_words, with_suggestion},
};

/// Most mistakes that are looked for; a file of another program has nothing but mistakes.
const MOST: usize = 20;

/// Reads YAML.
///
/// # Errors
/// Every key that is repeated or not known and every value of a wrong kind, with its line; or the first
/// place that is no YAML.
pub fn parse(text: &str) -> Result<RawConfig, Problems> {
    let lines = Lines::of(text);
    let repeated = lines.repeated().iter().take(MOST);
    let mut problems: Vec<Problem> = repeated.map(Problem::from).collect();
    let first = match serde_yaml_ng::from_str(text) {
        Ok(raw) if problems.is_empty() => return Ok(raw),
        read => read.err(),
    };
    let unread = tree(text).map(|rest| read_on(rest, &lines, &mut problems)).err();
    let last = if problems.is_empty() { first } else { unread };
    problems.extend(last.map(|error| Mistake::of(&error).problem(&lines)));
    problems.sort_by_key(|problem| problem.line);
    Err(problems.into_iter().collect())
}

impl From<&Repeated> for Problem {
    fn from(Repeated { key, line, before }: &Repeated) -> Self {
        let message = format!("is in line {before} already; write it once");
        Self { key: key.clone(), line: Some(*line), message }
    }
}

/// The text with keys and values of any kind; of a repeated key the last, as JSON's tree has it.
fn tree(text: &str) -> Result<Value, serde_yaml_ng::Error> {
    let last = || serde_yaml_ng::to_value(serde_yaml_ng::from_str::<serde_json::Value>(text)?);
    serde_yaml_ng::from_str(text).or_else(|_| last())
}

/// Adds every mistake in a tree.
fn read_on(mut rest: Value, lines: &Lines, problems: &mut Vec<Problem>) {
    let mut taken: Vec<String> = Vec::new();
    while problems.len() < MOST {
        let again = serde_yaml_ng::to_string(&rest).unwrap_or_default();
        let Err(error) = serde_yaml_ng::from_str::<RawConfig>(&again) else { return };
        let mistake = Mistake { line: None, ..Mistake::of(&error) };
        if !mistake.misses_one_of(&taken) {
            problems.push(mistake.problem(lines));
        }
        if !take_out(&mut rest, &mistake.key) {
            return;
        }
        taken.push(mistake.key);
    }
}

/// What the reader stumbled on.
struct Mistake {
    key: String,
    line: Option<usize>,
    message: String,
}

impl Mistake {
    /// The reader says "pools[0]: unknown field `modle`, expected ... at line 2 column 5".
    fn of(error: &serde_yaml_ng::Error) -> Self {
        let text = error.to_string();
        let line = error.location().map(|at| at.line());
        let text = text.rfind(" at line ").and_then(|end| text.get(..end)).unwrap_or(&text);
        let (path, said) = match text.split_once(": ") {
            Some((path, said)) if is_path(path) => (path, said),
            _ => ("", text),
        };
        let unknown = said.strip_prefix("unknown field `").and_then(|rest| rest.split_once('`'));
        let key = match unknown {
            Some((word, _)) if path.is_empty() => word.to_owned(),
            Some((word, _)) => format!("{path}.{word}"),
            None => path.to_owned(),
        };
        Self { key, line, message: plain_words(&with_suggestion(said)) }
    }

    /// Whether all that is wrong is that one of these keys is not there: the file has it, and it was taken out.
    fn misses_one_of(&self, taken: &[String]) -> bool {
        let missing = self.message.strip_prefix("missing field `");
        let key = missing.and_then(|rest| rest.strip_suffix('`'));
        key.is_some_and(|key| taken.contains(&format!("{}.{key}", self.key)))
    }

    fn problem(&self, lines: &Lines) -> Problem {
        let line = self.line.or_else(|| lines.nearest(&self.key));
        Problem { key: self.key.clone(), line, message: self.message.clone() }
    }
}

/// Whether this is a path of keys and not the beginning of a sentence.
fn is_path(text: &str) -> bool {
    !text.is_empty() && !text.contains([' ', '`'])
}

/// Takes the value of a key out; whether there was one.
fn take_out(value: &mut Value, key: &str) -> bool {
    let (parent, last) = match key.rfind(['.', '[']) {
        Some(at) => key.split_at(at),
        None => ("", key),
    };
    let Some(parent) = find(value, parent) else { return false };
    match (parent, last.strip_prefix('[').and_then(|index| index.strip_suffix(']'))) {
        (Value::Sequence(all), Some(index)) => match index.parse() {
            // With those that follow, whose numbers would no longer be those of the file.
            Ok(index) if index < all.len() => {
                all.truncate(index);
                true
            }
            _ => false,
        },
        (Value::Mapping(all), None) => all.remove(last.trim_start_matches('.')).is_some(),
        _ => false,
    }
}

fn find<'a>(value: &'a mut Value, path: &str) -> Option<&'a mut Value> {
    let steps = path.split(['.', '[']).filter(|step| !step.is_empty());
    steps.into_iter().try_fold(value, |value, step| match step.strip_suffix(']') {
        Some(index) => value.get_mut(index.parse::<usize>().ok()?),
        None => value.get_mut(step),
    })
}
