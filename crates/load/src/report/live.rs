//! The live view of a run: a few lines that are redrawn in place, or, without a terminal, one plain
//! line a second.
//!
//! Everything goes to standard error, so that standard output holds results alone. An error of the
//! terminal ends the drawing, never the run.

use super::format::{bytes, count, figure, milliseconds, span};
use super::tables::role_word;
use crate::results::{HostSecond, Live, Role};
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

/// Between two drawings on a terminal: faster cannot be read.
const DRAW_EVERY: Duration = Duration::from_millis(200);
/// Between two plain lines.
const LINE_EVERY: Duration = Duration::from_secs(1);
/// Seconds of the rate that the sparkline shows.
const HISTORY: usize = 60;
/// Columns when the terminal does not report its width.
const COLUMNS: usize = 80;
/// Wider than this, lines are hard to follow.
const COLUMNS_MAX: usize = 120;

/// Where the live view is drawn.
pub struct Screen {
    out: Box<dyn Write + Send>,
    /// Columns of the terminal; `None` for plain lines.
    columns: Option<usize>,
    colours: bool,
    lines: usize,
    drawn: Option<Instant>,
    rates: VecDeque<f64>,
    second: u64,
    broken: bool,
}

impl Screen {
    /// Standard error: drawn in place on a terminal, else plain lines.
    pub fn stderr() -> Screen {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let columns = (stderr().is_terminal() && !dumb).then(|| {
            rustix::termios::tcgetwinsize(stderr())
                .ok()
                .map(|size| usize::from(size.ws_col))
                .filter(|columns| *columns > 0)
                .unwrap_or(COLUMNS)
        });
        let colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Screen::to(Box::new(stderr()), columns, colours)
    }

    /// Any writer: drawn in place in `columns` columns, or plain lines.
    pub fn to(out: Box<dyn Write + Send>, columns: Option<usize>, colours: bool) -> Screen {
        let columns = columns.map(|columns| columns.min(COLUMNS_MAX));
        Screen {
            out,
            columns,
            colours,
            lines: 0,
            drawn: None,
            rates: VecDeque::new(),
            second: u64::MAX,
            broken: false,
        }
    }

    /// Shows the live view if the last drawing is old enough. May be called at any rate.
    pub fn update(&mut self, live: &Live, hosts: &[(Role, HostSecond)]) {
        let second = live.elapsed_s as u64;
        if second != self.second && !live.warming_up {
            self.second = second;
            self.rates.push_back(live.rate_per_s);
            if self.rates.len() > HISTORY {
                self.rates.pop_front();
            }
        }
        let every = if self.columns.is_some() { DRAW_EVERY } else { LINE_EVERY };
        if self.broken || self.drawn.is_some_and(|drawn| drawn.elapsed() < every) {
            return;
        }
        self.drawn = Some(Instant::now());
        match self.columns {
            Some(columns) => {
                let block = self.block(live, hosts, columns);
                self.draw(&block);
            }
            None => {
                let line = plain(live, hosts);
                self.write(&format!("{line}\n"));
            }
        }
    }

    /// Erases the drawing, so that the tables begin in its place.
    pub fn end(&mut self) {
        self.draw(&[]);
    }

    fn draw(&mut self, block: &[String]) {
        let mut text = String::new();
        if self.lines > 0 {
            let _ = write!(text, "\x1b[{}A\x1b[J", self.lines);
        }
        for line in block {
            text.push_str(line);
            text.push('\n');
        }
        self.lines = block.len();
        self.write(&text);
    }

    fn write(&mut self, text: &str) {
        if self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush()).is_err() {
            self.broken = true;
        }
    }

    fn block(&self, live: &Live, hosts: &[(Role, HostSecond)], columns: usize) -> Vec<String> {
        let bar = match live.progress {
            Some(progress) => bar(progress, columns.saturating_sub(32).clamp(10, 60)),
            None => "until Ctrl-C".into(),
        };
        let state = if live.warming_up { "  warming up" } else { "" };
        let mut lines = vec![format!("{bar} {}{state}", span(live.elapsed_s))];
        let offered = live.offered_per_s.map(|rate| format!(" of {}", figure(rate))).unwrap_or_default();
        lines.push(format!(
            "rate     {}{offered} requests/s   {}/s",
            figure(live.rate_per_s),
            bytes(live.read_bytes_per_s)
        ));
        lines.push(format!(
            "latency  p50 {}   p99 {}   max {}",
            milliseconds(live.p50_ms),
            milliseconds(live.p99_ms),
            milliseconds(live.max_ms)
        ));
        let trouble = live.errors + live.timeouts > 0;
        let mut counts = format!(
            "answers  {}   errors {}   time-outs {}   in flight {}   connections {}",
            count(live.completed),
            count(live.errors),
            count(live.timeouts),
            count(live.in_flight),
            count(live.connections)
        );
        if live.overdue > 0 {
            let _ = write!(counts, "   overdue {}", count(live.overdue));
        }
        lines.push(counts);
        let machines: Vec<String> = hosts.iter().map(|(role, second)| machine(*role, second)).collect();
        if !machines.is_empty() {
            lines.push(format!("cpu      {}", machines.join("   ")));
        }
        if self.rates.len() > 1 {
            lines.push(format!("         {}", spark(&self.rates, columns.saturating_sub(10))));
        }
        let mut lines: Vec<String> =
            lines.iter().map(|line| line.chars().take(columns - 1).collect()).collect();
        if trouble && self.colours {
            lines[3] = format!("\x1b[31m{}\x1b[0m", lines[3]);
        }
        lines
    }
}

fn machine(role: Role, second: &HostSecond) -> String {
    let cores = second.core_percents.len().max(1);
    format!("{} {:.0} % of {cores}", role_word(role), second.cpu_percent / cores as f32)
}

fn plain(live: &Live, hosts: &[(Role, HostSecond)]) -> String {
    let mut line = span(live.elapsed_s);
    if let Some(progress) = live.progress {
        let _ = write!(line, " ({:.0} %)", progress * 100.0);
    }
    if live.warming_up {
        line.push_str(" warming up");
    }
    let _ = write!(line, ": {}/s", figure(live.rate_per_s));
    if let Some(offered) = live.offered_per_s {
        let _ = write!(line, " of {}", figure(offered));
    }
    let [p50, p99, max] = [live.p50_ms, live.p99_ms, live.max_ms].map(milliseconds);
    let _ = write!(line, ", p50 {p50}, p99 {p99}, max {max}, errors {}", count(live.errors + live.timeouts));
    for (role, second) in hosts {
        let _ = write!(line, ", {}", machine(*role, second));
    }
    line
}

fn bar(progress: f64, width: usize) -> String {
    let done = (progress.clamp(0.0, 1.0) * width as f64) as usize;
    format!("[{}{}] {:3.0} %", "█".repeat(done), "·".repeat(width - done), progress.clamp(0.0, 1.0) * 100.0)
}

/// A sparkline of the last seconds, scaled to the highest.
fn spark(rates: &VecDeque<f64>, width: usize) -> String {
    const STEPS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let shown = rates.iter().skip(rates.len().saturating_sub(width));
    let highest = rates.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    shown.map(|rate| STEPS[((rate / highest * 7.0).round() as usize).min(7)]).collect()
}
