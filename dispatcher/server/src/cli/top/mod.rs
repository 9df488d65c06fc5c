//! `weir top`: lanes, pods and decisions on a live board in the terminal, with the same reasons as
//! everywhere, and the changes an operator makes in a hurry: pause, drain, cancel.
//!
//! One thread hears the admin side's boards, one a second ([`feed`]); this one draws and listens to keys. The
//! board's state ([`seat`]) knows neither terminal nor network: keys and news go in, orders come out,
//! and [`draw`] paints it. A dispatcher that goes away leaves its last picture on the board, marked as
//! old, until it is back.
//!
//! # Layout
//! - [`feed`]: hears the admin side and carries out changes
//! - [`change`]: a change, as a call and in words
//! - [`seat`], [`keys`]: what is shown, what is picked, what a key does
//! - [`draw`]: the picture

mod change;
mod draw;
mod feed;
mod keys;
mod seat;

use std::{io::IsTerminal as _, time::Duration};

use clap::Args;
use ratatui::{
    Terminal,
    backend::TestBackend,
    crossterm::{
        event::{self, Event, KeyEventKind},
        terminal::size,
    },
};

use self::{
    draw::Paint,
    feed::{Board, Feed},
    keys::Order,
    seat::Seat,
};
use super::{
    failure::Failure,
    output::print,
    remote::{Admin, RemoteArgs},
};

/// Pause between two looks at the keyboard: short enough not to be felt.
const TICK: Duration = Duration::from_millis(100);
/// Decisions of a plain frame.
const PLAIN_DECISIONS: usize = 10;
/// Width of a plain frame where no terminal has one.
const PLAIN_WIDTH: u16 = 132;

/// A live board.
#[derive(Clone, Debug, Args)]
pub(super) struct TopArgs {
    /// Print one frame without colours, and end
    #[arg(long)]
    once: bool,
    /// Columns of that frame; as wide as the terminal when left out
    #[arg(long, value_name = "COLUMNS", requires = "once",
          value_parser = clap::value_parser!(u16).range(60..=400))]
    width: Option<u16>,
    /// Model whose pool is shown; all of them when left out
    #[arg(long, value_name = "MODEL")]
    pool: Option<String>,
    #[command(flatten)]
    remote: RemoteArgs,
}

pub(super) fn run(args: &TopArgs) -> Result<(), Failure> {
    let admin = Admin::new(&args.remote)?.for_a_board();
    if !args.once && !std::io::stdout().is_terminal() {
        return Err(Failure::Usage(
            "weir top needs a terminal; --once prints one frame".to_owned(),
        ));
    }
    // An address with a slip in it is said at once, and not by a board that waits.
    let board = Board::read(&admin, args.pool.as_deref())?;
    let mut seat = Seat::new(admin.address());
    seat.hear(feed::News::Board(Box::new(board)));
    if args.once {
        let width = args.width.or_else(|| size().ok().map(|(width, _)| width.max(60)));
        return print(&plain_frame(&mut seat, width.unwrap_or(PLAIN_WIDTH)));
    }
    let feed = Feed::start(admin, args.pool.clone())
        .map_err(|error| Failure::Failed(format!("cannot start a thread: {error}")))?;
    let broken = |error: std::io::Error| Failure::Failed(format!("the terminal: {error}"));
    let mut terminal = ratatui::try_init().map_err(broken)?;
    let watched = watch(&mut terminal, &mut seat, &feed);
    // Of a terminal that is gone nothing is left to restore, and nobody to tell.
    let _ = ratatui::try_restore();
    feed.end();
    watched.map_err(broken)
}

/// Draws and listens until somebody has seen enough.
fn watch(
    terminal: &mut ratatui::DefaultTerminal,
    seat: &mut Seat,
    feed: &Feed,
) -> std::io::Result<()> {
    let paint = Paint::of_environment();
    loop {
        while let Some(news) = feed.news() {
            seat.hear(news);
        }
        terminal.draw(|frame| draw::frame(frame, seat, paint))?;
        if !event::poll(TICK)? {
            continue;
        }
        let Event::Key(key) = event::read()? else { continue };
        if key.kind != KeyEventKind::Press {
            continue;
        }
        match seat.press(key) {
            Order::Nothing => {}
            Order::Quit => return Ok(()),
            Order::Ask(ask) => {
                if !feed.ask(ask) {
                    seat.say_busy();
                }
            }
        }
    }
}

/// One frame as text, high enough for everything but the older decisions.
fn plain_frame(seat: &mut Seat, width: u16) -> String {
    seat.board.decisions.truncate(PLAIN_DECISIONS);
    let height = draw::full_height(seat);
    let Ok(mut terminal) = Terminal::new(TestBackend::new(width, height));
    let Ok(_) = terminal.draw(|frame| draw::frame(frame, seat, Paint::plain()));
    text_of(terminal.backend())
}

/// The text of a picture, without spaces at the ends of lines.
fn text_of(backend: &TestBackend) -> String {
    let buffer = backend.buffer();
    let rows = buffer.content().chunks(usize::from(buffer.area.width.max(1)));
    let line = |cells: &[ratatui::buffer::Cell]| {
        let line: String = cells.iter().map(ratatui::buffer::Cell::symbol).collect();
        line.trim_end().to_owned() + "\n"
    };
    rows.map(line).collect()
}

#[cfg(test)]
mod tests;
