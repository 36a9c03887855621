//! `forebay plan`: its arguments.

use crate::failure::Failure;
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct Plan {
    /// What `forebay load --json` wrote of a run with --monitor: answer bytes and CPU a request are taken
    /// from it.
    #[arg(value_name = "REPORT")]
    pub report: Option<PathBuf>,
    /// Requests a second, such as 20k or 1m; without it those of the report.
    #[arg(short = 'R', long, value_name = "RATE", value_parser = number)]
    pub rate: Option<f64>,
    /// Users instead of a rate; each asks every --every seconds.
    #[arg(long, value_name = "COUNT", value_parser = number, conflicts_with = "rate")]
    pub users: Option<f64>,
    /// Seconds between two requests of a user.
    #[arg(long, value_name = "SECONDS", value_parser = number, default_value = "15")]
    pub every: f64,
    /// Bytes of an answer, head included.
    #[arg(long, value_name = "BYTES", value_parser = number)]
    pub body: Option<f64>,
    /// Microseconds of a core that a request takes.
    #[arg(long, value_name = "MICROSECONDS", value_parser = number)]
    pub cpu: Option<f64>,
    /// The per cent of a machine that may be busy.
    #[arg(long, value_name = "PERCENT", value_parser = percent, default_value = "70")]
    pub utilisation: f64,
    /// Growth of the rate a month, in per cent.
    #[arg(long, value_name = "PERCENT", value_parser = number, default_value = "0", requires = "months")]
    pub growth: f64,
    /// How many months the plan must last.
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    pub months: u32,
    /// The per cent of requests that add a row.
    #[arg(long, value_name = "PERCENT", value_parser = number, default_value = "0")]
    pub writes: f64,
    /// Bytes of memory that a row takes (memory by rows of /tables).
    #[arg(long, value_name = "BYTES", value_parser = number, default_value = "500")]
    pub row: f64,
    /// Days that a row stays in memory.
    #[arg(long, value_name = "DAYS", value_parser = number, default_value = "30")]
    pub retention: f64,
    /// Copies of a row: 1, and one for each replica.
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub copies: u32,
    /// Machines that may fail without loss of speed.
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    pub spare: u32,
    /// Watts of a busy core, for a report without power (RAPL is not readable on most virtual machines): a
    /// processor of 350 W with 64 to 96 cores takes about 5 W for each.
    #[arg(long, value_name = "WATTS", value_parser = number, default_value = "5")]
    pub watts: f64,
    /// Microseconds that the memory tier takes for a request.
    #[arg(long, value_name = "MICROSECONDS", value_parser = number)]
    pub tier_cpu: Option<f64>,
    /// Rows a second that the database takes.
    #[arg(long, value_name = "RATE", value_parser = positive)]
    pub database_rows: Option<f64>,
    /// Bytes that a row takes on the database's disk.
    #[arg(long, value_name = "BYTES", value_parser = number)]
    pub disk_row: Option<f64>,
    /// Compare with another program, by what it takes for a request: microseconds of a core, or the report of
    /// a run. May be repeated.
    #[arg(long, value_name = "NAME=MICROSECONDS|REPORT")]
    pub beside: Vec<String>,
    /// A point of a sweep over workers: their number and the rate, or the report of that run. May be
    /// repeated.
    #[arg(long, value_name = "WORKERS=RATE|REPORT")]
    pub point: Vec<String>,
    /// Predict the rate of this many workers from the sweep. May be repeated.
    #[arg(long, value_name = "COUNT", value_parser = number, requires = "point")]
    pub workers: Vec<f64>,
    /// A file of prices, instead of those that are built in.
    #[arg(long, value_name = "FILE")]
    pub prices: Option<PathBuf>,
}

/// `1000`, `7.5`, `20k`, `1m`.
pub fn number(text: &str) -> Result<f64, Failure> {
    let (digits, factor) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 1e3),
        Some((at, 'm' | 'M')) => (&text[..at], 1e6),
        _ => (text, 1.0),
    };
    let number: f64 =
        digits.replace('_', "").parse().map_err(|_| "must be a number such as 1000, 20k or 1m")?;
    if number.is_finite() && number >= 0.0 { Ok(number * factor) } else { Err("must not be negative".into()) }
}

/// A number above 0.
fn positive(text: &str) -> Result<f64, Failure> {
    match number(text)? {
        number if number > 0.0 => Ok(number),
        _ => Err("must be above 0".into()),
    }
}

/// A percentage above 0 and at most 100.
fn percent(text: &str) -> Result<f64, Failure> {
    match number(text)? {
        share if share > 0.0 && share <= 100.0 => Ok(share),
        _ => Err("must be above 0 and at most 100".into()),
    }
}
