//! What can be typed.

pub mod agent;
pub mod load;
pub mod redis;

use clap::{Args, Parser, Subcommand};
use forebay_config::Overrides;

/// Serves hot HTTP endpoints from memory, and writes behind into a database.
#[derive(Debug, Parser)]
#[command(version, about, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

/// A command.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve what a config file says; without one, the bundled codes example.
    #[command(after_help = "Examples:
  forebay serve
  forebay serve examples/links.toml --listen 0.0.0.0:8080 --database sqlite:/var/lib/links.db --data /var/lib/forebay")]
    Serve(Serve),
    /// Serve in a scratch folder, load every route, crash once on purpose, drain, and check that nothing was lost.
    #[command(after_help = "Example:
  forebay demo --seconds 2")]
    Demo(Demo),
    /// Clear a table in the database and fill it with generated rows.
    #[command(after_help = "Example:
  forebay seed codes -r 1000000")]
    Seed(Seed),
    /// Read rows of the database into the memory of a running server.
    #[command(after_help = "Example:
  forebay warm codes --where \"created_at > '2026-01-01'\"")]
    Warm(Warm),
    /// Write everything that is in the log into the database.
    #[command(after_help = "Example:
  forebay drain examples/codes.toml --data data")]
    Drain(Drain),
    /// Compare memory and database row by row; exit code 1 when they differ.
    #[command(after_help = "Example:
  forebay check examples/codes.toml --data data")]
    Check(Check),
    /// Explain a config file, or every mistake in it.
    #[command(after_help = "Example:
  forebay check-config examples/links.toml")]
    CheckConfig(CheckConfig),
    /// Load an HTTP server and say what it did: closed model, or open (-R) with latency from the time due.
    #[command(after_help = "Examples:
  forebay load -c 64 -d 20s http://localhost:3000/simple
  forebay load -R 10k --warmup 5s --threshold 'p99<10ms' http://localhost:3000/simple
  forebay load --plan examples/accounts.load.toml --html report.html http://localhost:3000")]
    Load(Box<load::Load>),
    /// Send load from this machine for `forebay load --agents`.
    #[command(after_help = "Example:
  FOREBAY_AGENT_TOKEN=… forebay agent --listen :7070")]
    Agent(agent::Agent),
    /// Local Redis or Valkey servers: one, with replicas, with Sentinel, a cluster.
    #[command(subcommand)]
    Redis(redis::Redis),
}

/// Which config, and what stands above it.
#[derive(Debug, Args)]
pub struct ConfigArgs {
    /// The config file; without it, the bundled codes example.
    pub file: Option<String>,
    #[command(flatten)]
    pub overrides: OverrideArgs,
}

/// Settings that win over the environment and the file.
#[derive(Debug, Args)]
pub struct OverrideArgs {
    /// Address to serve clients on (server.listen); port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// The database (database.url), such as sqlite:data/codes.db.
    #[arg(long, value_name = "URL")]
    database: Option<String>,
    /// The memory tier (memory.url), such as embedded:data.
    #[arg(long, value_name = "URL")]
    memory: Option<String>,
    /// The folder for everything embedded: the log, and a SQLite file with a relative path.
    #[arg(long, value_name = "DIR")]
    data: Option<String>,
    /// Any other key, such as drain.paused=true. May be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

impl OverrideArgs {
    /// As the config reader takes them.
    pub fn to_overrides(&self) -> Overrides {
        Overrides {
            listen: self.listen.clone(),
            database: self.database.clone(),
            memory: self.memory.clone(),
            data: self.data.clone(),
            set: self.set.clone(),
        }
    }
}

#[derive(Debug, Args)]
pub struct Serve {
    #[command(flatten)]
    pub config: ConfigArgs,
    /// The database was replaced on purpose: write into it what the log still holds.
    #[arg(long)]
    pub new_database: bool,
}

#[derive(Debug, Args)]
pub struct Demo {
    /// How long each route is driven.
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
    pub seconds: f64,
    /// How many connections drive it.
    #[arg(short, long, default_value_t = 64)]
    pub connections: usize,
}

#[derive(Debug, Args)]
pub struct Seed {
    /// The table.
    pub table: String,
    /// How many rows.
    #[arg(short, long, value_parser = parse_count)]
    pub rows: u64,
    /// The config file; without it, the bundled codes example.
    #[arg(long, value_name = "FILE")]
    pub config: Option<String>,
    #[command(flatten)]
    pub overrides: OverrideArgs,
}

#[derive(Debug, Args)]
pub struct Warm {
    /// The table; without it, all.
    pub table: Option<String>,
    /// Only rows for which this SQL expression is true.
    #[arg(long, value_name = "SQL")]
    pub r#where: Option<String>,
    /// The config file; without it, the bundled codes example.
    #[arg(long, value_name = "FILE")]
    pub config: Option<String>,
    #[command(flatten)]
    pub overrides: OverrideArgs,
}

#[derive(Debug, Args)]
pub struct Drain {
    #[command(flatten)]
    pub config: ConfigArgs,
    /// The database was replaced on purpose: write into it what the log still holds.
    #[arg(long)]
    pub new_database: bool,
    /// Apply again what the database had refused (the table forebay_dead_letter), after the drain.
    #[arg(long)]
    pub replay: bool,
}

#[derive(Debug, Args)]
pub struct Check {
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct CheckConfig {
    #[command(flatten)]
    pub config: ConfigArgs,
}

/// A number of rows: `1000`, `10k`, `2m`.
fn parse_count(text: &str) -> Result<u64, String> {
    let (digits, factor) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 1_000),
        Some((at, 'm' | 'M')) => (&text[..at], 1_000_000),
        _ => (text, 1),
    };
    let number: u64 =
        digits.replace('_', "").parse().map_err(|_| "must be a number such as 1000, 10k or 2m")?;
    match number.checked_mul(factor) {
        Some(0) | None => Err("must be at least 1 and fit in 64 bits".into()),
        Some(count) => Ok(count),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn counts() {
        for (text, expected) in
            [("7", Some(7)), ("10k", Some(10_000)), ("2m", Some(2_000_000)), ("1_000", Some(1000))]
        {
            assert_eq!(parse_count(text).ok(), expected, "{text}");
        }
        for text in ["", "k", "-1", "1.5", "0", "99999999999999999999", "18446744073709551615m"] {
            assert!(parse_count(text).is_err(), "{text}");
        }
    }
}
