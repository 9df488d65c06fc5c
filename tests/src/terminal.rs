//! A program in a terminal of its own: what stands on its screen, and keys for it.
//!
//! `script` (util-linux) holds the other end of the terminal, and the screen is made of what comes
//! through, as a terminal would. Where there is no `script`, [`Terminal::start`] says so and returns
//! `None`. A picture of the screen is an SVG: text, so that it stays sharp and small.

use std::{
    fmt::Write as _,
    io::{Read as _, Write as _},
    process::{Child, ChildStdin, Command, Stdio},
    sync::Arc,
};

use parking_lot::Mutex;
use vt100::{Cell, Color, Parser, Screen};

use crate::{browser::pictures, eventually};

/// Width of a column and height of a line in a picture, in pixels, for letters of 13 pixels.
const CELL: (f64, f64) = (7.8, 17.0);
/// Room around the screen, in pixels.
const MARGIN: f64 = 12.0;
/// Letters and paper.
const INK: &str = "#d4d4d4";
const PAPER: &str = "#1e1e1e";

/// A terminal and the program in it, which ends with it.
pub struct Terminal {
    child: Child,
    keys: ChildStdin,
    screen: Arc<Mutex<Parser>>,
}

impl Terminal {
    /// Starts a shell's command line in a terminal of so many columns and rows.
    ///
    /// # Panics
    /// When the system refuses.
    pub fn start(command: &str, columns: u16, rows: u16) -> Option<Self> {
        let sized = format!("stty cols {columns} rows {rows}; exec {command}");
        let mut script = Command::new("script");
        script.args(["--quiet", "--flush", "--return", "--command", &sized, "/dev/null"]);
        script.env("TERM", "xterm-256color").env("SHELL", "/bin/sh").env_remove("NO_COLOR");
        script.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let Ok(mut child) = script.spawn() else {
            eprintln!("skipped: there is no script(1) in PATH");
            return None;
        };
        let keys = child.stdin.take().expect("the input is a pipe");
        let mut out = child.stdout.take().expect("the output is a pipe");
        let screen = Arc::new(Mutex::new(Parser::new(rows, columns, 0)));
        let seen = screen.clone();
        std::thread::spawn(move || {
            let mut bytes = [0; 8192];
            while let Ok(read @ 1..) = out.read(&mut bytes) {
                seen.lock().process(&bytes[..read]);
            }
        });
        Some(Self { child, keys, screen })
    }

    fn look<T>(&self, at: impl FnOnce(&Screen) -> T) -> T {
        at(self.screen.lock().screen())
    }

    /// What stands on the screen.
    pub fn text(&self) -> String {
        self.look(Screen::contents)
    }

    /// Waits until the screen shows some words, and returns all of it.
    pub async fn shows(&self, words: &str) -> String {
        eventually(&format!("the screen shows {words:?}"), async || {
            let text = self.text();
            if text.contains(words) { Ok(text) } else { Err(text) }
        })
        .await
    }

    /// Types.
    ///
    /// # Panics
    /// When the program has ended.
    pub fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("the program listens");
        self.keys.flush().expect("the program listens");
    }

    /// Whether the program ended by itself, with success.
    pub async fn ends(&mut self) -> bool {
        let child = &mut self.child;
        eventually("the program ends", async || child.try_wait().ok().flatten().ok_or(()))
            .await
            .success()
    }

    /// Writes a picture of the screen, if pictures are wanted.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn picture(&self, name: &str) {
        let Some(folder) = pictures() else { return };
        std::fs::create_dir_all(&folder).expect("the folder can be made");
        let file = folder.join(format!("{name}.svg"));
        std::fs::write(file, self.look(svg)).expect("a picture can be written");
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("---- the screen\n{}", self.text());
        }
    }
}

/// How a cell looks.
#[derive(Clone, Copy, PartialEq)]
struct Look {
    ink: &'static str,
    paper: &'static str,
    bold: bool,
    faint: bool,
}

impl Look {
    fn of(cell: &Cell) -> Self {
        let (ink, paper) = (colour(cell.fgcolor(), INK), colour(cell.bgcolor(), PAPER));
        let (ink, paper) = if cell.inverse() { (paper, ink) } else { (ink, paper) };
        Self { ink, paper, bold: cell.bold(), faint: cell.dim() }
    }
}

/// The sixteen colours of a terminal; others are not used.
fn colour(colour: Color, default: &'static str) -> &'static str {
    const COLOURS: [&str; 16] = [
        "#000000", "#f14c4c", "#23d18b", "#e5c07b", "#3b8eea", "#d670d6", "#29b8db", "#e5e5e5",
        "#4a4a4a", "#ff6b6b", "#4ae3a7", "#f5d08b", "#61a8f5", "#e08be0", "#5cd0ea", "#ffffff",
    ];
    match colour {
        Color::Idx(number) => COLOURS.get(usize::from(number)).copied().unwrap_or(default),
        Color::Default | Color::Rgb(..) => default,
    }
}

/// The screen as a picture.
fn svg(screen: &Screen) -> String {
    let (rows, columns) = screen.size();
    let (width, height) =
        (2.0 * MARGIN + CELL.0 * f64::from(columns), 2.0 * MARGIN + CELL.1 * f64::from(rows));
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" \
         font-family=\"ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace\" \
         font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"{PAPER}\"/>\n"
    );
    for row in 0..rows {
        for (column, text, look) in runs(screen, row) {
            run(&mut out, (row, column), &text, look);
        }
    }
    out + "</svg>\n"
}

/// Neighbours of a row that look alike, with the column where they begin.
fn runs(screen: &Screen, row: u16) -> Vec<(u16, String, Look)> {
    let mut runs: Vec<(u16, String, Look)> = Vec::new();
    for column in 0..screen.size().1 {
        let Some(cell) = screen.cell(row, column) else { continue };
        let text = if cell.has_contents() { cell.contents() } else { " " };
        let look = Look::of(cell);
        match runs.last_mut() {
            Some((_, run, last)) if *last == look => run.push_str(text),
            _ => runs.push((column, text.to_owned(), look)),
        }
    }
    runs
}

fn run(out: &mut String, (row, column): (u16, u16), text: &str, look: Look) {
    let y = MARGIN + CELL.1 * f64::from(row);
    let at = |column: usize| MARGIN + CELL.0 * column as f64;
    let column = usize::from(column);
    if look.paper != PAPER {
        let (x, width) = (at(column), CELL.0 * text.chars().count() as f64);
        let (paper, height) = (look.paper, CELL.1);
        // Writing to a text cannot fail.
        let _ = writeln!(
            out,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height}\" fill=\"{paper}\"/>"
        );
    }
    let ink = look.ink;
    let weight = if look.bold { " font-weight=\"bold\"" } else { "" };
    let faint = if look.faint { " opacity=\"0.6\"" } else { "" };
    for (offset, words) in pieces(text) {
        let (x, width) = (at(column + offset), CELL.0 * words.chars().count() as f64);
        let words = words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let _ = writeln!(
            out,
            "<text x=\"{x:.1}\" y=\"{:.1}\" textLength=\"{width:.1}\" fill=\"{ink}\"{weight}{faint}>{words}</text>",
            y + 0.75 * CELL.1
        );
    }
}

/// The parts of a text between two spaces or more, of which a picture would make one, with their places.
fn pieces(text: &str) -> Vec<(usize, &str)> {
    let mut pieces = Vec::new();
    let mut place = 0;
    for piece in text.split("  ") {
        let words = piece.trim();
        if !words.is_empty() {
            let before = piece.chars().take_while(|letter| letter.is_whitespace()).count();
            pieces.push((place + before, words));
        }
        place += piece.chars().count() + 2;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_keep_their_columns_in_a_picture() {
        assert_eq!(pieces(" a b   c    d "), [(1, "a b"), (7, "c"), (12, "d")]);
        assert!(pieces("     ").is_empty());
    }

    #[test]
    fn a_picture_has_words_colours_and_what_would_be_markup() {
        let mut parser = Parser::new(2, 20, 0);
        parser.process(b"\x1b[31mlate\x1b[0m  <ok>");
        let picture = svg(parser.screen());
        assert!(picture.contains("fill=\"#f14c4c\">late</text>"), "{picture}");
        assert!(picture.contains(">&lt;ok&gt;</text>"), "{picture}");
    }
}
