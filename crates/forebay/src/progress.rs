//! Progress on the terminal: a bar with rate and time left, or, when the output is no terminal, a line
//! at an interval.

use crate::failure::Failure;
use forebay_terminal::say;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::error::Error;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// How often a line is printed when there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// How often a bar moves.
const TICK: Duration = Duration::from_millis(200);

/// The progress of one piece of work, in rows.
pub struct Progress {
    bar: ProgressBar,
    label: String,
    started: Instant,
    next_line: Instant,
    has_terminal: bool,
}

impl Progress {
    /// Begins; `rows` is the total, if it is known.
    pub fn new(label: &str, rows: Option<u64>) -> Progress {
        let template = match rows {
            Some(_) => "{msg} {wide_bar} {human_pos}/{human_len} rows, {per_sec}, {eta} left",
            None => "{msg} {spinner} {human_pos} rows, {per_sec}",
        };
        let bar = rows.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
        bar.set_style(ProgressStyle::with_template(template).expect("the template is a constant"));
        bar.set_message(label.to_owned());
        let has_terminal = std::io::stderr().is_terminal();
        if !has_terminal {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        let started = Instant::now();
        Progress { bar, label: label.to_owned(), started, next_line: started + LINE_EVERY, has_terminal }
    }

    /// `rows` rows are done so far.
    pub fn set(&mut self, rows: u64) {
        self.bar.set_position(rows);
        if !self.has_terminal && Instant::now() >= self.next_line {
            self.next_line += LINE_EVERY;
            say!("{}: {rows} rows", self.label);
        }
    }

    /// Runs `work` and shows `progress` meanwhile; ends with one line when it went well.
    pub async fn watch<E: Into<Box<dyn Error + Send + Sync>>>(
        mut self,
        progress: &forebay_drain::Progress,
        work: impl Future<Output = Result<(), E>>,
    ) -> Result<(), Failure> {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                ended = &mut work => {
                    ended.map_err(Failure::from)?;
                    self.finish(progress.done());
                    return Ok(());
                }
                () = tokio::time::sleep(TICK) => self.set(progress.done()),
            }
        }
    }

    /// Ends with one line: rows, time, rate.
    pub fn finish(self, rows: u64) {
        self.bar.finish_and_clear();
        let seconds = self.started.elapsed().as_secs_f64();
        let rate = rows as f64 / seconds.max(0.001);
        say!("{}: {rows} rows in {seconds:.1} s ({rate:.0} rows/s)", self.label);
    }
}
