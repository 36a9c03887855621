//! `forebay advise`: what an existing application could gain.

use crate::cli::Advise;
use crate::failure::Failure;
use crate::start::runtime;
use forebay_advise::report::advise;
use forebay_advise::statements::{Counted, QUERY};
use forebay_advise::traffic::Traffic;
use forebay_database::{Error, Options, Store};
use forebay_terminal::answer;
use forebay_value::Value;
use std::fs::File;
use std::io::{BufRead, BufReader, stdin};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub fn run(args: &Advise) -> Result<ExitCode, Failure> {
    let traffic = (!args.files.is_empty()).then(|| read(&args.files)).transpose()?;
    if traffic.as_ref().is_some_and(|traffic| traffic.requests == 0) {
        let formats = "no line is a request: the combined format of nginx and Apache, and Forebay's JSON, are understood";
        return Err(formats.into());
    }
    let statements = match &args.database {
        Some(url) => runtime()?.block_on(statements(url)).map_err(Failure::from)?,
        None => Vec::new(),
    };
    if traffic.is_none() && statements.is_empty() {
        return Err("pg_stat_statements has counted nothing yet".into());
    }
    answer!("{}", advise(traffic, &statements, &args.app).trim_end());
    Ok(ExitCode::SUCCESS)
}

/// All lines of these files, the oldest file first.
fn read(files: &[PathBuf]) -> Result<Traffic, Failure> {
    let mut traffic = Traffic::default();
    for path in files {
        let failed = |error: std::io::Error| format!("cannot read {}: {error}", path.display());
        let mut lines: Box<dyn BufRead> = match path == Path::new("-") {
            true => Box::new(stdin().lock()),
            false => Box::new(BufReader::new(File::open(path).map_err(failed)?)),
        };
        let mut line = Vec::new();
        while lines.read_until(b'\n', &mut line).map_err(failed)? > 0 {
            traffic.add(String::from_utf8_lossy(&line).trim_end());
            line.clear();
        }
    }
    Ok(traffic)
}

async fn statements(url: &str) -> Result<Vec<Counted>, Error> {
    let store = Store::open(url, Options::default())?;
    let needs = "needs PostgreSQL 13, pg_stat_statements in shared_preload_libraries, and CREATE EXTENSION pg_stat_statements";
    let statement = store.prepare(QUERY).await.map_err(|error| error.context(needs))?;
    let rows = store.run(&statement, Vec::new()).await?;
    let counted = |row: &[Value]| match row {
        [Value::Text(query), Value::Bigint(calls), Value::Double(total_ms), Value::Bigint(rows)] => {
            Some(Counted {
                query: query.to_string(),
                calls: calls.unsigned_abs(),
                total_ms: *total_ms,
                rows: rows.unsigned_abs(),
            })
        }
        // The text of a statement that this user may not see is NULL.
        _ => None,
    };
    Ok(rows.iter().filter_map(counted).collect())
}
