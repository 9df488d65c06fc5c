//! "Did you mean": makes the message for an unknown key useful.

use std::fmt::Display;

/// Largest share of a word's letters that may be wrong in a suggestion.
const WORST: f64 = 0.4;

/// The message of a refused key with the nearest known key in place of all known ones, if one is near.
///
/// The parser says "unknown field `lisen`, expected one of `listen`, `threads` at line 1"; a message
/// of another form is left as it is.
pub fn with_suggestion(message: &str) -> String {
    nearest_in(message).unwrap_or_else(|| message.to_owned())
}

/// The word in a message about an unknown one.
fn unknown_word(message: &str) -> Option<&str> {
    let kinds = ["unknown field `", "unknown variant `"];
    let (_, rest) = kinds.iter().find_map(|kind| message.split_once(kind))?;
    rest.split_once('`').map(|(word, _)| word)
}

/// A message of the reader in the words of the file: no names of types of this program.
pub fn plain_words(message: &str) -> String {
    let mut words = message.to_owned();
    let is_number = ["integer `", "floating point `"].iter().any(|kind| message.contains(kind));
    let most: [(&str, &dyn Display); 5] = [
        ("u8", &u8::MAX),
        ("u16", &u16::MAX),
        ("u32", &u32::MAX),
        ("u64", &u64::MAX),
        ("usize", &usize::MAX),
    ];
    for (kind, most) in most {
        // A number of which this is said may be a whole one, outside of the range.
        let range = if is_number { format!(" from 0 to {most}") } else { String::new() };
        let ours = format!("write a whole number{range}");
        words = words.replace(&format!("expected {kind}"), &ours);
    }
    for (theirs, ours) in [
        ("unknown field `", "unknown key `"),
        ("unknown variant `", "unknown value `"),
        ("invalid type: unit value", "is nothing"),
        ("invalid type: map", "is a mapping"),
        ("invalid type: sequence", "is a list"),
        ("invalid type: floating point", "is number"),
        ("invalid type: ", "is "),
        ("invalid value: ", "is "),
        ("` as u128", "`"),
        ("` as i128", "`"),
        ("expected i8", "write a whole number from -128 to 127"),
        ("expected f32", "write a number"),
        ("expected f64", "write a number"),
        ("expected a boolean", "write true or false"),
        ("expected a sequence", "write a list"),
        ("expected a string", "write a text"),
        ("expected path string", "write a text"),
        ("expected a YAML tag starting with '!'", "write a word"),
        ("expected a map", "write a mapping"),
    ] {
        words = words.replace(theirs, ours);
    }
    // "expected struct RawPool": a mapping with that part's keys.
    match words.find("expected struct ") {
        Some(at) => words.get(..at).unwrap_or_default().to_owned() + "write a mapping of keys",
        None => words,
    }
}

/// What to write instead of a name that is not among the known ones.
pub fn one_of<'a>(unknown: &str, known: impl Iterator<Item = &'a str>) -> String {
    let mut known: Vec<&str> = known.collect();
    known.sort_unstable();
    let near = known.iter().map(|known| (slips(unknown, known), known)).min();
    match near.filter(|(slips, near)| is_near(*slips, unknown, near)) {
        Some((_, near)) => format!("did you mean {near:?}?"),
        None if known.is_empty() => "there are none".to_owned(),
        None => format!("write one of {}", known.join(", ")),
    }
}

fn is_near(slips: usize, unknown: &str, known: &str) -> bool {
    let letters = unknown.chars().count().max(known.chars().count());
    slips as f64 <= WORST * letters as f64
}

fn nearest_in(message: &str) -> Option<String> {
    let unknown = unknown_word(message)?;
    let (before, expected) = message.split_once(", expected ")?;
    // Every second piece stands between backticks.
    let known = expected.split('`').skip(1).step_by(2);
    let (slips, near) = known.map(|known| (slips(unknown, known), known)).min()?;
    let (_, place) = expected.rsplit_once('`')?;
    is_near(slips, unknown, near).then(|| format!("{before}{place}; did you mean `{near}`?"))
}

/// Slips of the keyboard from one word to the other: its letters in another order are one.
fn slips(from: &str, to: &str) -> usize {
    let sorted = |word: &str| {
        let mut letters: Vec<char> = word.chars().collect();
        letters.sort_unstable();
        letters
    };
    let edits = distance(from, to);
    if sorted(from) == sorted(to) { edits.min(1) } else { edits }
}

/// Letters to insert, remove or replace to get from one word to the other (Levenshtein).
fn distance(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.chars().count()).collect();
    for (above, left) in from.chars().enumerate() {
        let mut diagonal = above;
        let mut before = above + 1;
        let mut letters = to.chars();
        for (index, cell) in row.iter_mut().enumerate() {
            if index == 0 {
                *cell = before;
                continue;
            }
            let same = letters.next() == Some(left);
            let best = (diagonal + usize::from(!same)).min(*cell + 1).min(before + 1);
            diagonal = std::mem::replace(cell, best);
            before = best;
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distance_counts_edits() {
        for (from, to, want) in
            [("", "abc", 3), ("abc", "abc", 0), ("kitten", "sitting", 3), ("lisen", "listen", 1)]
        {
            assert_eq!(distance(from, to), want, "{from} {to}");
            assert_eq!(distance(to, from), want, "{to} {from}");
        }
    }

    #[test]
    fn a_near_key_is_suggested_and_a_far_one_is_not() {
        let message = "unknown field `lisen`, expected one of `listen`, `threads` at line 7";
        let want = "unknown field `lisen` at line 7; did you mean `listen`?";
        assert_eq!(with_suggestion(message), want);
        let message = "unknown field `zzzzzz`, expected one of `listen`, `threads`";
        assert_eq!(with_suggestion(message), message);
        assert_eq!(with_suggestion("invalid type"), "invalid type");
        let message = "unknown variant `wier`, expected one of `weir`, `round-robin`";
        assert!(with_suggestion(message).ends_with("; did you mean `weir`?"));
    }

    #[test]
    fn a_name_is_answered_by_the_nearest_or_by_all() {
        let known = || ["standard", "batch"].into_iter();
        assert_eq!(one_of("bacth", known()), "did you mean \"batch\"?");
        assert_eq!(one_of("gold", known()), "write one of batch, standard");
        assert_eq!(one_of("gold", [].into_iter()), "there are none");
    }

    #[test]
    fn kinds_are_named_as_the_file_names_them() {
        let said = "invalid type: string \"many\", expected usize";
        assert_eq!(plain_words(said), "is string \"many\", write a whole number");
        let said = "invalid type: integer `3`, expected struct RawQueue";
        assert_eq!(plain_words(said), "is integer `3`, write a mapping of keys");
        for (said, want) in [
            ("unit value, expected usize", "is nothing, write a whole number"),
            ("map, expected a sequence", "is a mapping, write a list"),
            ("sequence, expected path string", "is a list, write a text"),
            ("map, expected a YAML tag starting with '!'", "is a mapping, write a word"),
        ] {
            assert_eq!(plain_words(&format!("invalid type: {said}")), want);
        }
    }

    #[test]
    fn a_number_outside_of_its_range_is_answered_with_the_range() {
        for (said, want) in [
            (
                "value: integer `-1`, expected u8",
                "is integer `-1`, write a whole number from 0 to 255",
            ),
            (
                "value: integer `70000`, expected u16",
                "is integer `70000`, write a whole number from 0 to 65535",
            ),
            (
                "value: integer `4294967296`, expected u32",
                "is integer `4294967296`, write a whole number from 0 to 4294967295",
            ),
            (
                "type: integer `1180591620717411303424` as u128, expected u64",
                "is integer `1180591620717411303424`, write a whole number from 0 to 18446744073709551615",
            ),
            (
                "type: floating point `1.5`, expected usize",
                "is number `1.5`, write a whole number from 0 to 18446744073709551615",
            ),
        ] {
            assert_eq!(plain_words(&format!("invalid {said}")), want);
        }
    }
}
