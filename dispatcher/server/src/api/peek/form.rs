//! The fields of a form (`multipart/form-data`), as calls with a file are sent.
//!
//! A form is split where its own delimiter says, as the engine splits it: what a file has inside passes for no field.

use memchr::memmem::{self, Finder};

/// Longest head of a part, and longest value, that are looked at: a name and a word.
const SHORT: usize = 1024;

/// What these fields of a form are, each `None` if it is not there. The whole is `None` when it is no form, or gives one of them twice.
pub(super) fn fields<'a, const N: usize>(
    body: &'a [u8],
    names: [&str; N],
) -> Option<[Option<&'a str>; N]> {
    let body = body.trim_ascii_start();
    let delimiter = body.get(..memmem::find(body, b"\r\n")?)?;
    if delimiter.len() <= 2 || !delimiter.starts_with(b"--") {
        return None;
    }
    let delimiter = [b"\r\n", delimiter].concat();
    let finder = Finder::new(&delimiter);
    let mut fields = [None; N];
    // Where a part begins: behind the delimiter, with the end of its line.
    let mut rest = body.get(delimiter.len() - 2..)?;
    while let Some(part) = rest.strip_prefix(b"\r\n") {
        let end = finder.find(part)?;
        let (content, after) = part.split_at_checked(end)?;
        rest = after.get(delimiter.len()..)?;
        let Some((name, value)) = named(content) else { continue };
        let place = names.iter().zip(&mut fields).find(|(wanted, _)| **wanted == name);
        if let Some((_, field)) = place
            && field.replace(value).is_some()
        {
            return None;
        }
    }
    // The last delimiter says so.
    rest.starts_with(b"--").then_some(fields)
}

/// The name and the value of a part, if it is a field with a short text.
fn named(part: &[u8]) -> Option<(&str, &str)> {
    let end = memmem::find(part.get(..SHORT).unwrap_or(part), b"\r\n\r\n")?;
    let head = std::str::from_utf8(part.get(..end)?).ok()?;
    let value = part.get(end + 4..)?;
    let is_disposition = |line: &&str| {
        line.get(.."content-disposition:".len())
            .is_some_and(|name| name.eq_ignore_ascii_case("content-disposition:"))
    };
    let line = head.split("\r\n").find(is_disposition)?;
    let name = line.split(';').find_map(|part| part.trim().strip_prefix("name="))?;
    let value = std::str::from_utf8(value).ok().filter(|_| value.len() <= SHORT)?;
    Some((name.trim_matches('"'), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(parts: &[(&str, &str)]) -> String {
        let part = |(head, value): &(&str, &str)| {
            format!("--x\r\nContent-Disposition: form-data; {head}\r\n\r\n{value}\r\n")
        };
        parts.iter().map(part).collect::<String>() + "--x--\r\n"
    }

    fn read(form: &str) -> Option<[Option<&str>; 2]> {
        fields(form.as_bytes(), ["model", "stream"])
    }

    #[test]
    fn fields_are_found_wherever_the_file_stands() {
        let file =
            ("name=\"file\"; filename=\"a.wav\"\r\nContent-Type: audio/wav", "RIFF\r\n--y\r\n");
        let (model, stream) = (("name=\"model\"", "whisper"), ("name=stream", "true"));
        for parts in [[file, model, stream], [model, stream, file], [stream, file, model]] {
            assert_eq!(read(&form(&parts)), Some([Some("whisper"), Some("true")]));
        }
        assert_eq!(read(&form(&[file])), Some([None, None]));
    }

    #[test]
    fn what_a_file_says_is_no_field_and_what_is_said_twice_is_no_form() {
        let spoof = "--y\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nother\r\n--y";
        let (file, model) = (("name=\"file\"", spoof), ("name=\"model\"", "whisper"));
        assert_eq!(read(&form(&[file, model])), Some([Some("whisper"), None]));
        assert_eq!(read(&form(&[model, model])), None);
        let long = "m".repeat(SHORT + 1);
        assert_eq!(read(&form(&[("name=\"model\"", &long)])), Some([None; 2]));
    }

    #[test]
    fn what_is_no_form_is_told_apart() {
        let whole = form(&[("name=\"model\"", "whisper")]);
        for cut in 0..whole.len() - 4 {
            assert_eq!(read(&whole[..cut]), None, "{cut}");
        }
        for text in ["", "{}", "--\r\n\r\n--", "a\r\nb", "--x\n\n--x--"] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
