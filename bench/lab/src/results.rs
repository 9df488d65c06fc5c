//! Where a command's results go: files that are whole or not there, and lines for people.
//!
//! Every command asks for its files before it measures anything, so that a path that cannot be written is not found out at
//! the end, and writes them before it prints. A file is written beside its place and renamed into it: whatever ends a command
//! early, what an earlier one wrote is still there, and nobody reads half a file. Who reads the lines may stop at any time
//! (`| head`): that is no failure.

use std::{
    fmt::Arguments,
    fs::{self, OpenOptions, Permissions},
    io::{self, BufWriter, ErrorKind, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use serde::Serialize;

/// Like `println!`, for results: see [`print_line`].
macro_rules! say {
    ($($words:tt)*) => { $crate::results::print_line(format_args!($($words)*)) };
}
pub(crate) use say;

/// What was typed.
pub(crate) fn command() -> String {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    format!("weir-bench {}", arguments.join(" "))
}

/// Endings of files of traces, pools and objectives, and of the development slices of public traces.
const ENDINGS: [&str; 8] = [".csv", ".tsv", ".txt", ".json", ".jsonl", ".yaml", ".yml", ".dev"];

/// What a file is called in results: its name without the endings that say what it is. Whatever else is behind a dot tells it
/// from others.
pub(crate) fn name_of_file(path: &Path) -> String {
    let file =
        path.file_name().map_or_else(|| path.to_string_lossy(), |name| name.to_string_lossy());
    let mut name = &*file;
    while let Some(rest) = ENDINGS.iter().find_map(|ending| name.strip_suffix(ending)) {
        if rest.is_empty() {
            break;
        }
        name = rest;
    }
    name.to_owned()
}

/// Prints lines, of which the last need not be ended. That nobody reads any more is fine.
///
/// # Errors
/// When it cannot be written for another reason, as on a full disk.
pub(crate) fn print_line(words: Arguments<'_>) -> Result<()> {
    line_to(&mut io::stdout().lock(), words)
}

fn line_to(to: &mut impl Write, words: Arguments<'_>) -> Result<()> {
    let mut lines = words.to_string();
    if !lines.ends_with('\n') {
        lines.push('\n');
    }
    match to.write_all(lines.as_bytes()).and_then(|()| to.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(()),
    }
}

/// A file for results, if one is asked for.
#[derive(Debug)]
pub(crate) struct ResultFile(Option<Place>);

/// Where it will be.
#[derive(Debug)]
struct Place {
    /// As it was given, for messages.
    given: PathBuf,
    /// Without links, so that two names of one file are one, and a link stays a link.
    real: PathBuf,
    /// Whether it is a device or a pipe, which is written to and not replaced.
    is_stream: bool,
}

impl ResultFile {
    /// The file of a path, which can be written; its folder is made. Nothing that is there is touched.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn asked(path: Option<&Path>) -> Result<Self> {
        let place = path.map(|path| Place::of(path).with_context(|| cannot_write(path)));
        place.transpose().map(Self)
    }

    /// Refuses that two arguments name one file: the one would take the place of the other.
    ///
    /// # Errors
    /// When they do.
    pub(crate) fn differs(&self, other: &Self, named: &str) -> Result<()> {
        let (Some(one), Some(other)) = (&self.0, &other.0) else { return Ok(()) };
        let same = !one.is_stream && one.real == other.real;
        ensure!(!same, "{named} are one file, {}: give two", one.given.display());
        Ok(())
    }

    /// The same file, which is none of those that the command reads, each with the argument that names it.
    ///
    /// # Errors
    /// When it is one: the results would take its place.
    pub(crate) fn sparing<'a>(
        self,
        read: impl IntoIterator<Item = (&'a str, Option<&'a Path>)>,
    ) -> Result<Self> {
        let Some(place) = self.0.as_ref().filter(|place| !place.is_stream) else { return Ok(self) };
        for (named, path) in read {
            let real = path.and_then(|path| path.canonicalize().ok());
            ensure!(
                real.as_ref() != Some(&place.real),
                "{} is what {named} reads: the results would take its place",
                place.given.display()
            );
        }
        Ok(self)
    }

    /// Writes a value as JSON with line breaks, if the file is asked for.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn json(self, value: &impl Serialize) -> Result<()> {
        self.write(|to| Ok(serde_json::to_writer_pretty(to, value)?))
    }

    /// Writes what `fill` writes, if the file is asked for.
    ///
    /// # Errors
    /// When it cannot be written, and those of `fill`.
    pub(crate) fn write(self, fill: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
        let Some(place) = self.0 else { return Ok(()) };
        place.write(fill).with_context(|| cannot_write(&place.given))
    }
}

impl Place {
    fn of(given: &Path) -> Result<Self> {
        let there = fs::metadata(given).ok();
        ensure!(!there.as_ref().is_some_and(fs::Metadata::is_dir), "it is a folder");
        let there_is_one = there.is_some();
        let is_stream = there.as_ref().is_some_and(|there| !there.is_file());
        let real = match there {
            Some(_) => given.canonicalize()?,
            None => {
                let name = given.file_name().context("it has no name")?;
                let folder = folder_of(given);
                fs::create_dir_all(folder)?;
                folder.canonicalize()?.join(name)
            }
        };
        let place = Self { given: given.to_owned(), real, is_stream };
        if there_is_one && !is_stream {
            OpenOptions::new().append(true).open(&place.real)?;
        }
        if !is_stream {
            // Gone again at once: an interrupted command would leave it behind.
            drop(place.draft()?);
        }
        Ok(place)
    }

    fn write(&self, fill: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
        if self.is_stream {
            return filled(OpenOptions::new().write(true).open(&self.real)?, fill);
        }
        let draft = self.draft()?;
        filled(draft.as_file(), fill)?;
        draft.persist(&self.real)?;
        Ok(())
    }

    /// An empty file beside its place. It does not end in `.json`: `weir-bench report` would read it.
    fn draft(&self) -> Result<tempfile::NamedTempFile> {
        let permissions = fs::metadata(&self.real).map(|there| there.permissions());
        let draft = tempfile::Builder::new()
            .prefix(".weir-bench-")
            .suffix(".tmp")
            .permissions(permissions.unwrap_or_else(|_| Permissions::from_mode(0o666)))
            .tempfile_in(folder_of(&self.real))?;
        Ok(draft)
    }
}

fn folder_of(path: &Path) -> &Path {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

fn filled(to: impl Write, fill: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let mut to = BufWriter::new(to);
    fill(&mut to)?;
    to.flush()?;
    Ok(())
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write {}", path.display())
}

#[cfg(test)]
mod tests {
    use anyhow::bail;
    use tempfile::tempdir;

    use super::*;

    fn asked(path: &Path) -> Result<ResultFile> {
        ResultFile::asked(Some(path))
    }

    #[test]
    fn a_name_keeps_every_dot_but_those_of_endings_that_are_known() {
        let files = [
            "a/prod.2025-01.csv",
            "b/prod.2025-02.csv",
            "x.dev.jsonl",
            "pool.yaml",
            ".csv",
            "v1.2",
        ];
        let names = files.map(|file| name_of_file(Path::new(file)));
        assert_eq!(names, ["prod.2025-01", "prod.2025-02", "x", "pool", ".csv", "v1.2"]);
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn what_is_there_stays_until_the_new_results_are_whole() {
        let folder = tempdir().unwrap();
        let path = folder.path().join("rows.json");
        fs::write(&path, "old").unwrap();
        let file = asked(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old", "asking changes nothing");
        let failed = file.write(|to| {
            to.write_all(b"half")?;
            bail!("something went wrong")
        });
        assert!(failed.is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        asked(&path).unwrap().json(&[1]).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "[\n  1\n]");
        assert_eq!(names(folder.path()), ["rows.json"], "nothing is left beside it");
    }

    #[test]
    fn a_path_that_cannot_be_written_is_found_before_the_results_are() {
        let folder = tempdir().unwrap();
        let error = |path: &Path| format!("{:#}", asked(path).unwrap_err());
        fs::write(folder.path().join("file"), "").unwrap();
        let within = folder.path().join("file/rows.json");
        assert!(error(&within).contains(&format!("cannot write {}", within.display())));
        assert!(error(folder.path()).contains("it is a folder"));
        assert!(ResultFile::asked(None).unwrap().json(&1).is_ok());
    }

    #[test]
    fn a_folder_that_is_missing_is_made() {
        let folder = tempdir().unwrap();
        let path = folder.path().join("of/today/rows.json");
        asked(&path).unwrap().json(&1).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "1");
    }

    #[test]
    fn two_names_of_one_file_are_refused() {
        let folder = tempdir().unwrap();
        let (path, other) = (folder.path().join("x"), folder.path().join("./x"));
        let differ = |one: &Path, two: &Path| {
            asked(one).unwrap().differs(&asked(two).unwrap(), "--json and --series")
        };
        assert!(format!("{:#}", differ(&path, &other).unwrap_err()).contains("--series are one"));
        assert!(differ(&path, &folder.path().join("y")).is_ok());
        fs::write(&path, "").unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(differ(&path, &link).is_err(), "a link to it is the file");
        assert!(differ(Path::new("/dev/null"), Path::new("/dev/null")).is_ok());
    }

    #[test]
    fn a_file_that_is_read_is_never_replaced() {
        let folder = tempdir().unwrap();
        let (trace, link) = (folder.path().join("my.csv"), folder.path().join("link"));
        fs::write(&trace, "rows").unwrap();
        std::os::unix::fs::symlink(&trace, &link).unwrap();
        for path in [&trace, &link] {
            let error = asked(path).unwrap().sparing([("--trace", Some(&*trace))]).unwrap_err();
            assert!(error.to_string().contains("is what --trace reads"), "{error}");
        }
        let other = asked(&folder.path().join("rows.json")).unwrap();
        assert!(other.sparing([("--slo", Some(Path::new("two"))), ("--pool", None)]).is_ok());
        let device = Path::new("/dev/null");
        assert!(asked(device).unwrap().sparing([("--trace", Some(device))]).is_ok());
    }

    #[test]
    fn a_link_stays_and_so_do_devices() {
        let folder = tempdir().unwrap();
        let (path, link) = (folder.path().join("x"), folder.path().join("link"));
        fs::write(&path, "old").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        asked(&link).unwrap().json(&1).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "1");
        assert!(link.is_symlink());
        asked(Path::new("/dev/null")).unwrap().json(&1).unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }

    /// Standard output that fails.
    struct Failing(ErrorKind);

    impl Write for Failing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_has_gone_is_no_failure_and_a_full_disk_is_one() {
        assert!(line_to(&mut Failing(ErrorKind::BrokenPipe), format_args!("x")).is_ok());
        assert!(line_to(&mut Failing(ErrorKind::StorageFull), format_args!("x")).is_err());
        let mut lines = Vec::new();
        line_to(&mut lines, format_args!("{} rows", 2)).unwrap();
        line_to(&mut lines, format_args!("ended\n")).unwrap();
        assert_eq!(lines, b"2 rows\nended\n");
    }
}
