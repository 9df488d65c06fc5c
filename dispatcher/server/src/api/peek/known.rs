//! Definitions of tools that a thread has walked over: an application sends the same ones with each of its requests, and to compare
//! them takes a small part of what it takes to walk over them.

use xxhash_rust::xxh3::xxh3_64;

use crate::walk::Walk;

/// Bytes by which one is looked up, and of the shortest that is kept.
const HEAD_BYTES: usize = 1 << 10;
/// Most that are kept.
const MOST: usize = 64;
/// Most that are compared with one value: who sends many that differ at their ends makes nobody compare them all.
const MOST_COMPARED: usize = 4;
/// Most bytes of all that are kept.
const MOST_BYTES: usize = 4 << 20;

/// Values in brackets that are well formed, the last that were met first.
#[derive(Debug, Default)]
pub(super) struct Known {
    kept: Vec<Kept>,
    bytes: usize,
}

#[derive(Debug)]
struct Kept {
    head: u64,
    value: Box<str>,
}

impl Known {
    /// The next value of the walk.
    pub(super) fn value<'a>(&mut self, walk: &mut Walk<'a>) -> Option<&'a str> {
        let Some(head) = walk.ahead().get(..HEAD_BYTES).map(xxh3_64) else {
            return walk.value();
        };
        let alike = self.kept.iter().enumerate().filter(|(_, kept)| kept.head == head);
        let mut alike = alike.take(MOST_COMPARED);
        let met = alike.find_map(|(place, kept)| Some((place, walk.value_like(&kept.value)?)));
        if let Some((place, value)) = met {
            self.kept.get_mut(..=place)?.rotate_right(1);
            return Some(value);
        }
        let value = walk.value()?;
        if value.starts_with(['[', '{']) && (HEAD_BYTES..=MOST_BYTES).contains(&value.len()) {
            self.keep(head, value);
        }
        Some(value)
    }

    fn keep(&mut self, head: u64, value: &str) {
        self.bytes += value.len();
        self.kept.insert(0, Kept { head, value: value.into() });
        while self.kept.len() > MOST || self.bytes > MOST_BYTES {
            let Some(oldest) = self.kept.pop() else { break };
            self.bytes -= oldest.value.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools(name: &str, bytes: usize) -> String {
        format!(r#"[{{"name":"{name}","description":"{}"}}]"#, "x".repeat(bytes))
    }

    /// What of this text is the value, and what is left of it.
    fn value_of(known: &mut Known, text: &str) -> Option<(String, String)> {
        let mut walk = Walk::of(text);
        let value = known.value(&mut walk)?.to_owned();
        Some((value, text.get(walk.at()..)?.to_owned()))
    }

    #[test]
    fn one_that_is_known_ends_where_it_ended() {
        let mut known = Known::default();
        let tools = tools("a", 2000);
        for rest in [r#","model":"m"}"#, "}", ""] {
            let found = value_of(&mut known, &format!("  {tools}{rest}"));
            assert_eq!(found, Some((tools.clone(), rest.to_owned())));
            assert_eq!(known.kept.len(), 1);
        }
    }

    #[test]
    fn one_that_begins_like_another_is_its_own() {
        let mut known = Known::default();
        let whole = tools("a", 2000);
        let longer = format!("{},7]", whole.strip_suffix(']').unwrap());
        let broken = whole.strip_suffix("}]").unwrap().to_owned() + "]}";
        for _ in 0..2 {
            assert_eq!(value_of(&mut known, &whole), Some((whole.clone(), String::new())));
            assert_eq!(value_of(&mut known, &longer), Some((longer.clone(), String::new())));
            assert_eq!(value_of(&mut known, &broken), None);
        }
        assert_eq!(known.kept.len(), 2);
    }

    #[test]
    fn of_many_that_begin_alike_the_last_few_are_compared() {
        let mut known = Known::default();
        let of = |end: usize| tools("a", 2000).replace('}', &format!(",\"end\":{end}}}"));
        for end in (0..=MOST_COMPARED).chain([1, 1, 0]) {
            assert_eq!(value_of(&mut known, &of(end)), Some((of(end), String::new())));
        }
        assert_eq!(known.kept.len(), MOST_COMPARED + 2, "the first was kept twice");
    }

    #[test]
    fn what_something_could_follow_and_what_is_short_is_not_kept() {
        let mut known = Known::default();
        let [text, digits] = [format!("\"{}\"", "x".repeat(2000)), "1".repeat(2000)];
        let short = format!("{}{}", tools("a", 10), " ".repeat(2000));
        for value in [&text, &digits, &short] {
            assert!(value_of(&mut known, value).is_some());
        }
        assert_eq!(known.kept.len(), 0);
        assert_eq!(value_of(&mut known, &format!("{digits}1")).unwrap().0.len(), 2001);
    }

    #[test]
    fn the_oldest_make_room() {
        let mut known = Known::default();
        let of = |number: usize| tools(&number.to_string(), 2000);
        for number in 0..=MOST {
            value_of(&mut known, &of(number)).unwrap();
            value_of(&mut known, &of(0)).unwrap();
        }
        let kept =
            |known: &Known, value: String| known.kept.iter().any(|kept| *kept.value == *value);
        assert_eq!(known.kept.len(), MOST);
        assert!(kept(&known, of(0)) && kept(&known, of(MOST)) && !kept(&known, of(1)));
        value_of(&mut known, &tools("long", MOST_BYTES - 3000)).unwrap();
        assert!(known.bytes <= MOST_BYTES && known.kept.len() == 2, "{}", known.kept.len());
        assert_eq!(known.bytes, known.kept.iter().map(|kept| kept.value.len()).sum::<usize>());
        value_of(&mut known, &tools("too long", MOST_BYTES)).unwrap();
        assert_eq!(known.kept.len(), 2);
    }
}
