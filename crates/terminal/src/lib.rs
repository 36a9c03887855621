//! Lines on standard error and standard output that cannot end the thread that writes them.
//!
//! Contents: [`say!`], [`warn!`] and [`error!`] write one event to standard error, [`answer!`] one line to
//! standard output; [`enqueue`] passes an event to a thread that writes it.
//!
//! Promises: writing never panics. The macros of the standard library panic when the reader of the stream
//! has exited (a log collector that ended, `forebay check | head -1`), and the thread that panics may be the
//! one that drains or that handles SIGTERM.
//!
//! Leaves to others: the messages and their time.

mod event;
mod queue;

pub use event::{Event, Format, Level, Value, configure};
pub use queue::{enqueue, flush};

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};
use std::process::exit;

/// Exit code of a program whose reader has exited (128 + SIGPIPE), as the shell reports it.
const READER_GONE: i32 = 141;

/// Writes an event at level info to standard error; takes the arguments of `format!`.
#[macro_export]
macro_rules! say {
    ($($line:tt)*) => { $crate::to_stderr($crate::Level::Info, format_args!($($line)*)) };
}

/// [`say!`] at level warn: something is not as it should be, and the program continues.
#[macro_export]
macro_rules! warn {
    ($($line:tt)*) => { $crate::to_stderr($crate::Level::Warn, format_args!($($line)*)) };
}

/// [`say!`] at level error: something failed permanently.
#[macro_export]
macro_rules! error {
    ($($line:tt)*) => { $crate::to_stderr($crate::Level::Error, format_args!($($line)*)) };
}

/// Writes a line of a command's answer to standard output; takes the arguments of `format!`. When the line
/// cannot be written the process exits: silently with code 141 when the reader has exited, else with code 1
/// and the reason on standard error. For commands that answer and exit, not for a server.
#[macro_export]
macro_rules! answer {
    ($($line:tt)*) => { $crate::to_stdout(format_args!($($line)*)) };
}

/// See [`say!`].
pub fn to_stderr(level: Level, message: Arguments<'_>) {
    if event::is_written(level) {
        let line = event::line(&Event { level, message, fields: &[] });
        // An error cannot be reported anywhere else.
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
