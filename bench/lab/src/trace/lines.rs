//! A file of rows, line by line: what a CSV reader is given, and on which line of the file a row of it stands.
//!
//! Blank lines are left out and every line ends in `\n`, for a CSV reader counts other ends otherwise than people and editors do: a
//! record's line would be that of the blank lines before it, or one too low. Which were left out is kept, so that a line that the
//! reader counts is again one of the file.

use std::io::{self, BufRead, Read};

/// The lines of a file that are not blank.
#[derive(Debug)]
pub(super) struct Lines<R> {
    file: R,
    /// The line that is handed out, and how much of it was.
    line: Vec<u8>,
    given: usize,
    /// The line that the file begins at.
    first: u64,
    /// Lines that were read of it.
    read: u64,
    /// For each blank one, how many that are not blank are before it.
    blank: Vec<u64>,
}

impl<R: BufRead> Lines<R> {
    /// Of a file that begins at this line, counted from 1: what is before it was read already.
    pub(super) fn from(first: u64, file: R) -> Self {
        Self { file, line: Vec::new(), given: 0, first, read: 0, blank: Vec::new() }
    }

    /// The line of the file that is this one of those handed out, both counted from 1.
    pub(super) fn in_file(&self, line: u64) -> u64 {
        let blank = self.blank.partition_point(|after| *after < line);
        line + blank as u64 + self.first - 1
    }

    /// Makes the next line that is not blank the one to hand out; it is empty at the end.
    fn next_line(&mut self) -> io::Result<()> {
        loop {
            self.line.clear();
            self.given = 0;
            if self.file.read_until(b'\n', &mut self.line)? == 0 {
                return Ok(());
            }
            if self.line.trim_ascii().is_empty() {
                self.blank.push(self.read - self.blank.len() as u64);
                self.read += 1;
                continue;
            }
            self.read += 1;
            if self.line.ends_with(b"\r\n") {
                self.line.truncate(self.line.len() - 2);
                self.line.push(b'\n');
            }
            // The line ends of systems that have no other.
            self.line.iter_mut().filter(|byte| **byte == b'\r').for_each(|byte| *byte = b'\n');
            return Ok(());
        }
    }
}

impl<R: BufRead> Read for Lines<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.given == self.line.len() {
            self.next_line()?;
        }
        let left = self.line.get(self.given..).unwrap_or_default();
        let count = left.len().min(to.len());
        for (to, from) in to.iter_mut().zip(left) {
            *to = *from;
        }
        self.given += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_handed_out_has_no_blank_line_and_is_found_in_the_file() {
        let mut lines = Lines::from(1, "one\r\n\r\n \t\ntwo\n\nthree".as_bytes());
        let mut text = String::new();
        lines.read_to_string(&mut text).unwrap();
        assert_eq!(text, "one\ntwo\nthree");
        assert_eq!([1, 2, 3].map(|line| lines.in_file(line)), [1, 4, 6]);
        let mut later = Lines::from(7, "one\rtwo\r".as_bytes());
        text.clear();
        later.read_to_string(&mut text).unwrap();
        assert_eq!((&*text, later.in_file(2)), ("one\ntwo\n", 8));
    }
}
