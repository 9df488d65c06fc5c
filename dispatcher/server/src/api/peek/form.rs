//! The fields of a form (`multipart/form-data`), as calls with a file are sent.
//!
//! A form is split where its own delimiter says, as the engine splits it: what a file has inside passes for no field. What
//! parsers of forms are known to read in different ways is refused, for a request is not to go to the pods of one model and to be
//! read there as one for another.

use memchr::{
    memchr, memchr_iter,
    memmem::{self, Finder},
};

use super::Unreadable;

/// Longest head of a part: a name, and that of a file in two ways of writing.
const LONGEST_HEAD: usize = 8 << 10;
/// Longest value of a field that is looked for: a name or a word.
const LONGEST_VALUE: usize = 1024;

/// What these fields of a form are, each `None` if it is not there.
///
/// # Errors
/// When it is no form, has one of them at a length that nothing has, or has a part whose name is none to some; or, where that is all
/// that is wrong, when it has one of them twice.
pub(super) fn fields<'a, const N: usize>(
    body: &'a [u8],
    names: [&'static str; N],
) -> Result<[Option<&'a str>; N], Unreadable> {
    let (mut fields, mut twice) = ([None; N], None);
    let take = |name: &[u8], value: &'a [u8]| {
        let place = names.iter().zip(&mut fields).find(|(wanted, _)| wanted.as_bytes() == name);
        let Some((name, field)) = place else { return Some(()) };
        let value = std::str::from_utf8(value).ok().filter(|_| value.len() <= LONGEST_VALUE)?;
        if field.replace(value).is_some() {
            twice = twice.or(Some(*name));
        }
        Some(())
    };
    walk(body, take).ok_or(Unreadable::Form)?;
    twice.map_or(Ok(fields), |name| Err(Unreadable::Twice(name)))
}

/// Takes the parts of a form one by one, each by its name and its value; `None` when it is none, or when that is what is said of a part.
fn walk<'a>(body: &'a [u8], mut take: impl FnMut(&'a [u8], &'a [u8]) -> Option<()>) -> Option<()> {
    let body = body.trim_ascii_start();
    let delimiter = body.get(..memmem::find(body, b"\r\n")?)?;
    if delimiter.len() <= 2 || !delimiter.starts_with(b"--") {
        return None;
    }
    let delimiter = [b"\r\n", delimiter].concat();
    let finder = Finder::new(&delimiter);
    // Where a part begins: behind the delimiter, with the end of its line.
    let mut rest = body.get(delimiter.len() - 2..)?;
    while let Some(part) = rest.strip_prefix(b"\r\n") {
        let end = finder.find(part)?;
        let (content, after) = part.split_at_checked(end)?;
        rest = after.get(delimiter.len()..)?;
        let (name, value) = named(content)?;
        take(name, value)?;
    }
    // The last delimiter says so.
    rest.starts_with(b"--").then_some(())
}

/// The name and the value of a part.
fn named(part: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = memmem::find(part.get(..LONGEST_HEAD).unwrap_or(part), b"\r\n\r\n")?;
    let (mut disposition, mut rest) = (None, part.get(..end + 2)?);
    while let Some(end) = memmem::find(rest, b"\r\n") {
        let line = rest.get(..end)?;
        rest = rest.get(end + 2..)?;
        // One that goes on with the line before it, or that ends in the middle for some.
        if line.first().is_none_or(u8::is_ascii_whitespace) || line.iter().any(ends_a_line) {
            return None;
        }
        let (name, value) = line.split_at_checked(memchr(b':', line)?)?;
        if name.eq_ignore_ascii_case(b"content-disposition") && disposition.replace(value).is_some()
        {
            return None;
        }
    }
    Some((name_in(disposition?)?, part.get(end + 4..)?))
}

const fn ends_a_line(byte: &u8) -> bool {
    matches!(byte, b'\r' | b'\n' | 0)
}

/// The `name` among the parameters of a disposition (RFC 9110, section 5.6.6).
fn name_in(disposition: &[u8]) -> Option<&[u8]> {
    let (kind, mut rest) = disposition.split_at_checked(memchr(b';', disposition)?)?;
    let mut name = None;
    while let Some(parameter) = rest.strip_prefix(b";").map(<[u8]>::trim_ascii_start) {
        if parameter.is_empty() {
            rest = parameter;
            break;
        }
        let at = parameter.iter().position(|byte| b"=;\"".contains(byte))?;
        let (key, value) = parameter.split_at_checked(at)?;
        let value = value.strip_prefix(b"=")?.trim_ascii_start();
        let (value, after) = match value.strip_prefix(b"\"") {
            Some(inside) => quoted(inside)?,
            None => bare(value)?,
        };
        rest = after.trim_ascii_start();
        let key = key.trim_ascii_end().to_ascii_lowercase();
        // Written as RFC 2231 has it, which some do not know.
        let is_coded = key.starts_with(b"name*");
        if is_coded || (key == b"name" && name.replace(value).is_some()) {
            return None;
        }
    }
    // Some take these off a name.
    let is_odd = |byte: &u8| b"\"\\<>".contains(byte);
    let sound = rest.is_empty() && !kind.contains(&b'"');
    name.filter(|name: &&[u8]| sound && !name.iter().any(is_odd))
}

/// A value up to its closing quote, and what follows that.
fn quoted(inside: &[u8]) -> Option<(&[u8], &[u8])> {
    let is_escaped = |at: &usize| inside.get(..*at).is_some_and(|before| before.ends_with(b"\\"));
    let end = memchr_iter(b'"', inside).find(|at| !is_escaped(at))?;
    let value = inside.get(..end)?;
    // A backslash that is escaped itself escapes a quote to some.
    memmem::find(value, br#"\\""#).is_none().then_some((value, inside.get(end + 1..)?))
}

/// A value without quotes, and what follows it.
fn bare(value: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = memchr(b';', value).unwrap_or(value.len());
    let (value, after) = value.split_at_checked(end)?;
    (!value.contains(&b'"')).then_some((value.trim_ascii_end(), after))
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

    fn whole(form: &str) -> Result<[Option<&str>; 2], Unreadable> {
        fields(form.as_bytes(), ["model", "stream"])
    }

    fn read(form: &str) -> Option<[Option<&str>; 2]> {
        whole(form).ok()
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
    fn what_a_file_says_is_no_field_and_a_field_that_is_there_twice_is_named() {
        let spoof = "--y\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nother\r\n--y";
        let (file, model) = (("name=\"file\"", spoof), ("name=\"model\"", "whisper"));
        assert_eq!(read(&form(&[file, model])), Some([Some("whisper"), None]));
        assert_eq!(whole(&form(&[model, file, model])), Err(Unreadable::Twice("model")));
        assert_eq!(whole(&form(&[file, file])), Ok([None; 2]), "no field that is looked for");
        let broken = form(&[model, model]).replace("--x--", "--x");
        assert_eq!(whole(&broken), Err(Unreadable::Form), "what is no form says nothing twice");
    }

    #[test]
    fn a_name_is_found_as_engines_find_it() {
        for head in [
            "name=\"model\"",
            "name=model",
            "NAME=\"model\"",
            "Name = \"model\" ; x=y;",
            "filename=\"x; name=stream\"; name=\"model\"",
            "filename=\"a\\\"; name=stream; b=\\\"\"; name=model",
            "filename*=utf-8''%22; name=model",
        ] {
            assert_eq!(read(&form(&[(head, "whisper")])), Some([Some("whisper"), None]), "{head}");
        }
        let file = ("name=\"file\"; filename=\"a; name=model\"", "RIFF");
        let model = ("name=\"model\"", "whisper");
        assert_eq!(read(&form(&[file, model])), Some([Some("whisper"), None]));
    }

    #[test]
    fn what_engines_may_read_in_another_way_is_refused() {
        let far = format!("name=\"model\"; x=\"{}\"", "y".repeat(LONGEST_HEAD));
        for head in [
            "x=y",
            "name=\"model",
            "name=\"model\"x",
            "name=mod\"el\"",
            "name=model; name=stream",
            "name*=utf-8''model",
            "name*0=mod; name*1=el",
            "name=<model>",
            "name=\"mod\\el\"",
            "filename=\"a\\\\\"; name=\"model\"",
            "name=model\r\nContent-Disposition: form-data; name=stream",
            "name=model;\r\n x=y",
            "name=model\nx: y",
            &far,
        ] {
            let other = ("name=\"other\"", "x");
            let form = form(&[other, (head, "whisper")]);
            assert_eq!(whole(&form), Err(Unreadable::Form), "{head}");
        }
        let (fits, long) = ("m".repeat(LONGEST_VALUE), "m".repeat(LONGEST_VALUE + 1));
        assert_eq!(read(&form(&[("name=model", &fits)])), Some([Some(&*fits), None]));
        assert_eq!(read(&form(&[("name=model", &long)])), None);
        assert_eq!(read(&form(&[("name=other", &long)])), Some([None; 2]));
    }

    #[test]
    fn what_is_no_form_is_told_apart() {
        let sound = form(&[("name=\"model\"", "whisper")]);
        for cut in 0..sound.len() - 4 {
            assert_eq!(read(&sound[..cut]), None, "{cut}");
        }
        for text in ["", "{}", "--\r\n\r\n--", "a\r\nb", "--x\n\n--x--"] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
