//! "Did you mean": makes the message for an unknown key useful.

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

fn nearest_in(message: &str) -> Option<String> {
    let unknown = unknown_word(message)?;
    let (before, expected) = message.split_once(", expected ")?;
    // Every second piece stands between backticks.
    let known = expected.split('`').skip(1).step_by(2);
    let (slips, near) = known.map(|known| (slips(unknown, known), known)).min()?;
    let letters = unknown.chars().count().max(near.chars().count());
    let (_, place) = expected.rsplit_once('`')?;
    let is_near = slips as f64 <= WORST * letters as f64;
    is_near.then(|| format!("{before}{place}; did you mean `{near}`?"))
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
}
