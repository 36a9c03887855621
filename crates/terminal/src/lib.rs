//! Lines on standard error and standard output that cannot end the thread that writes them.
//!
//! What it is: [`say!`], [`warn!`] and [`error!`] write one event to standard error, [`answer!`] one line to
//! standard output; [`enqueue`] leaves an event to a thread that writes it.
//!
//! What it promises: neither panics. The macros of the standard library panic when the reader of
//! the stream is gone (a log collector that ended, `forebay check | head -1`), and the thread that
//! panics may be the one that drains or that handles SIGTERM.
//!
//! What it leaves to others: what is said, and when.

mod event;
mod queue;

pub use event::{Event, Format, Level, Value, configure};
pub use queue::{enqueue, flush};

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};
use std::process::exit;

/// Exit code of a program whose reader is gone (128 + SIGPIPE), as the shell tells it.
const READER_GONE: i32 = 141;

/// Tells what happened on standard error; takes what `format!` takes.
#[macro_export]
macro_rules! say {
    ($($line:tt)*) => { $crate::to_stderr($crate::Level::Info, format_args!($($line)*)) };
}

/// [`say!`] of what is not as it should be, while the program goes on.
#[macro_export]
macro_rules! warn {
    ($($line:tt)*) => { $crate::to_stderr($crate::Level::Warn, format_args!($($line)*)) };
}

/// [`say!`] of what failed for good.
#[macro_export]
macro_rules! error {
    ($($line:tt)*) => { $crate::to_stderr($crate::Level::Error, format_args!($($line)*)) };
}

/// Writes a line of a command's answer to standard output; takes what `format!` takes. When the
/// line cannot be written the process ends: with code 141 and without a word when the reader is
/// gone, else with code 1 and the reason on standard error. For commands that answer and end, not
/// for a server.
#[macro_export]
macro_rules! answer {
    ($($line:tt)*) => { $crate::to_stdout(format_args!($($line)*)) };
}

/// See [`say!`].
pub fn to_stderr(level: Level, message: Arguments<'_>) {
    if event::is_written(level) {
        let line = event::line(&Event { level, message, fields: &[] });
        // An error has no other place to be told at.
        let _ = io::stderr().write_all(line.as_bytes());
    }
}

/// See [`answer!`].
pub fn to_stdout(line: Arguments<'_>) {
    match io::stdout().write_all(format!("{line}\n").as_bytes()) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::BrokenPipe => exit(READER_GONE),
        Err(error) => {
            error!("forebay: standard output: {error}");
            exit(1)
        }
    }
}
