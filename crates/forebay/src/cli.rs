//! The definition of the command line.

pub mod agent;
pub mod load;
pub mod plan;
pub mod redis;
pub mod runs;

use crate::failure::Failure;
use clap::{Args, Parser, Subcommand, ValueEnum};
use forebay_config::Overrides;
use std::path::PathBuf;

/// Serves hot HTTP endpoints from memory, and writes behind into a database.
#[derive(Debug, Parser)]
#[command(version, about, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve the endpoints of a config.
    #[command(after_help = "Examples:
  forebay serve
  forebay serve --example codes
  forebay serve links.toml --memory redis://10.0.0.1 --without drain,jobs
  forebay serve links.toml --listen 0.0.0.0:8080 --database sqlite:/var/lib/links.db --data /var/lib/forebay")]
    Serve(Serve),
    /// Explain a config, or every mistake in it. If its database answers, list also what only the database
    /// can check, and the statements whose cost grows with a table.
    #[command(after_help = "Examples:
  forebay check
  forebay check examples/links.toml")]
    Check(Check),
    /// Write a commented config for the tables that a database has.
    #[command(after_help = "Examples:
  forebay init postgres://me@localhost/shop
  forebay init sqlite:shop.db -o -")]
    Init(Init),
    /// Print the routes of a config as OpenAPI 3.1. Asks the database only for columns that the config leaves
    /// to it.
    #[command(after_help = "Example:
  forebay openapi examples/links.toml > openapi.json")]
    Openapi(Openapi),
    /// Serve in a scratch folder, load every route, crash once on purpose, drain, and count what was lost.
    #[command(after_help = "Example:
  forebay demo --seconds 2")]
    Demo(Demo),
    /// Clear a table in the database and fill it with generated rows.
    #[command(after_help = "Example:
  forebay seed codes -r 1000000 -c examples/codes.toml")]
    Seed(Seed),
    /// Read rows of the database into the memory of a running server.
    #[command(after_help = "Examples:
  forebay warm
  forebay warm codes -c examples/codes.toml --where \"created_at > '2026-01-01'\"")]
    Warm(Warm),
    /// Have a running server read its config again, without dropping a request.
    #[command(after_help = "Examples:
  forebay reload
  forebay reload examples/codes.toml --data data")]
    Reload(Reload),
    /// Write everything that is in the log, or in the queues of Redis or Valkey, into the database.
    #[command(after_help = "Examples:
  forebay drain examples/codes.toml --data data
  forebay drain links.toml --memory redis://10.0.0.1 --data worker --forever")]
    Drain(Drain),
    /// Compare memory and database row by row; exit code 1 when they differ.
    #[command(after_help = "Example:
  forebay verify examples/codes.toml --data data")]
    Verify(Verify),
    /// Remove what following has made in the database; with --all, everything that is Forebay's.
    #[command(after_help = "Example:
  forebay unfollow examples/shop.toml --database postgres://me@localhost/shop")]
    Unfollow(Unfollow),
    /// Load an HTTP server and report what it did: closed model, or open (-R) with latency from the time due.
    #[command(after_help = "Examples:
  forebay load -c 64 -d 20s http://localhost:3000/simple
  forebay load -R 10k --warmup 5s --threshold 'p99<10ms' http://localhost:3000/simple
  forebay load --plan examples/accounts.load.toml --html report.html http://localhost:3000")]
    Load(Box<load::Load>),
    /// Show runs of forebay load side by side: a list against one of them, or tables by two labels.
    #[command(after_help = "Examples:
  forebay runs history
  forebay runs history --against 3
  forebay runs history --rows size --columns profile")]
    Runs(runs::Runs),
    /// Send load from this machine for `forebay load --agents`.
    #[command(after_help = "Example:
  FOREBAY_AGENT_TOKEN=… forebay agent --listen :7070")]
    Agent(agent::Agent),
    /// Find settings of this machine, and of the stores that a config names, that cost speed or break
    /// promises; exit code 1 when there are any.
    #[command(after_help = "Examples:
  forebay doctor
  forebay doctor /etc/forebay/forebay.toml --fix")]
    Doctor(Doctor),
    /// Say how many machines a rate takes, which part runs out first, and what that costs a month.
    #[command(after_help = "Examples:
  forebay plan -R 1m --body 32499 --cpu 134
  forebay plan --users 10k --every 15 --body 800 --cpu 40 --spare 1
  forebay plan report.json -R 200k --growth 5 --months 12
  forebay plan --point 1=52k --point 2=98k --point 4=170k --workers 16")]
    Plan(Box<plan::Plan>),
    /// Read the access log of an application, or what its database counts of statements: a config fragment,
    /// and what that would save.
    #[command(after_help = "Examples:
  forebay advise /var/log/nginx/access.log
  forebay advise access.log.1 access.log --database postgres://me@localhost/shop")]
    Advise(Advise),
    /// Ask the running server of a config for its health; exit code 1 when it is not healthy.
    #[command(after_help = "Examples:
  forebay probe health
  forebay probe ready /etc/forebay/forebay.toml")]
    Probe(Probe),
    /// Print a shell's completions, or write the man pages.
    #[command(after_help = "Examples:
  forebay pages completions bash
  forebay pages man target/man")]
    #[command(subcommand)]
    Pages(Pages),
    /// Local Redis or Valkey servers: one, with replicas, with Sentinel, a cluster.
    #[command(after_help = "Example:
  forebay redis up --topology cluster
  forebay redis status
  forebay redis halt
  forebay redis resume
  forebay redis down")]
    #[command(subcommand)]
    Redis(redis::Redis),
}

/// The config and its overrides: the same for every command that needs a config.
#[derive(Debug, Clone, Args)]
pub struct ConfigArgs {
    /// The config; without it, ./forebay.toml.
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// The config, by name.
    #[arg(short, long, value_name = "FILE", conflicts_with = "file")]
    pub config: Option<PathBuf>,
    /// A bundled example instead: codes, accounts, accounts-hot, usages, items, positions, links or in-front.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["file", "config"])]
    pub example: Option<String>,
    #[command(flatten)]
    pub overrides: OverrideArgs,
}

/// Settings that win over the environment and the file.
#[derive(Debug, Clone, Args)]
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
    /// The overrides in the form that the config reader takes.
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
    /// Duties to leave to other processes on the same Redis or Valkey. Writes stay in its queues until some
    /// process drains them.
    #[arg(long, value_name = "DUTIES", value_delimiter = ',')]
    pub without: Vec<Duty>,
    /// The database was replaced on purpose: write into it what the log still holds.
    #[arg(long)]
    pub new_database: bool,
}

/// A task of a server besides serving clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Duty {
    /// Writing the queued changes to the database.
    Drain,
    /// Running the config's `[[job]]`s.
    Jobs,
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
    /// The hot table to clear and fill, by its name in the configuration.
    pub table: String,
    /// How many rows.
    #[arg(short, long, value_parser = parse_count)]
    pub rows: u64,
    #[command(flatten)]
    pub config: ConfigArgs,
}

#[derive(Debug, Args)]
pub struct Warm {
    /// The table; without it, all. Without a table, name the config by -c.
    pub table: Option<String>,
    /// Only rows for which this SQL expression is true.
    #[arg(long, value_name = "SQL")]
    pub r#where: Option<String>,
    #[command(flatten)]
    pub config: ConfigArgs,
}

#[derive(Debug, Args)]
pub struct Openapi {
    #[command(flatten)]
    pub config: ConfigArgs,
}

#[derive(Debug, Args)]
pub struct Reload {
    #[command(flatten)]
    pub config: ConfigArgs,
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
    /// Run until SIGTERM or Ctrl-C: a worker beside servers on Redis or Valkey, which also runs the jobs of
    /// the config.
    #[arg(long, conflicts_with = "replay")]
    pub forever: bool,
}

#[derive(Debug, Args)]
pub struct Verify {
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Unfollow {
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Drain what is not in the database yet, then remove the drain's tables too, and their schema.
    #[arg(long)]
    pub all: bool,
}

#[derive(Debug, Args)]
pub struct Check {
    #[command(flatten)]
    pub config: ConfigArgs,
}

#[derive(Debug, Args)]
pub struct Advise {
    /// Access logs in the combined format or Forebay's JSON, the oldest first; - is standard input.
    #[arg(value_name = "FILE", required_unless_present = "database")]
    pub files: Vec<PathBuf>,
    /// A PostgreSQL that counts statements (pg_stat_statements).
    #[arg(long, value_name = "URL")]
    pub database: Option<String>,
    /// The application, as the fragment names it.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080")]
    pub app: String,
}

#[derive(Debug, Args)]
pub struct Init {
    /// The database: sqlite:PATH or postgres://USER@HOST/NAME.
    pub url: String,
    /// The file to write; it must not exist yet. - prints the config.
    #[arg(short, long, value_name = "FILE", default_value = "forebay.toml")]
    pub output: PathBuf,
}

#[derive(Debug, Args)]
pub struct Doctor {
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Write the kernel settings that need a change to /etc/sysctl.d/60-forebay.conf.
    #[arg(long)]
    pub fix: bool,
}

#[derive(Debug, Args)]
pub struct Probe {
    /// health: the process answers. ready: hot requests are served.
    pub question: Question,
    #[command(flatten)]
    pub config: ConfigArgs,
}

/// What a probe asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Question {
    Health,
    Ready,
}

/// What is written about the commands for shells and readers.
#[derive(Debug, Subcommand)]
pub enum Pages {
    /// Print the completions of a shell.
    #[command(after_help = "Example:
  forebay pages completions bash > /etc/bash_completion.d/forebay")]
    Completions {
        /// Which shell will read them.
        shell: clap_complete::Shell,
    },
    /// Write a man page for each command.
    #[command(after_help = "Example:
  forebay pages man target/man")]
    Man {
        /// The folder for the pages; created when it is missing.
        folder: PathBuf,
    },
}

/// A number of rows: `1000`, `10k`, `2m`.
fn parse_count(text: &str) -> Result<u64, Failure> {
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
    fn every_command_has_an_example_that_it_understands() {
        fn look(command: &clap::Command, path: &str) -> usize {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let examples: Vec<_> =
                help.lines().filter(|line| line.contains(&format!("forebay{path} "))).collect();
            let bare = help.lines().any(|line| line.trim() == format!("forebay{path}"));
            assert!(path.is_empty() || bare || !examples.is_empty(), "no example of `forebay{path}`: {help}");
            for example in examples.iter().filter(|line| !line.contains(['\'', '"', '='])) {
                // A redirection of the output is not part of the command.
                let words = example.split_whitespace().take_while(|word| *word != ">");
                Cli::try_parse_from(words).unwrap_or_else(|error| panic!("{example}: {error}"));
            }
            let inner = command.get_subcommands().filter(|inner| inner.get_name() != "help");
            1 + inner.map(|inner| look(inner, &format!("{path} {}", inner.get_name()))).sum::<usize>()
        }
        assert!(look(&Cli::command(), "") > 15);
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
