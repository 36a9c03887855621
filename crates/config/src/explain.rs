//! A config in words: one line a route and a job, with the way that its data takes.

use super::model::{Action, Config, Endpoint, Job, Pick, Rows, Tier};
use super::sql::writes;
use std::fmt::Write;

/// One line a route: method, path, action, the way its data takes. For `check-config`, and for `serve` at start.
pub fn explain(config: &Config) -> String {
    let routes = config.endpoints.iter().map(|endpoint| endpoint.route.chars().count());
    let width = routes.chain(config.jobs.iter().map(|job| job.name.len())).max().unwrap_or(0);
    let mut out = String::new();
    for endpoint in &config.endpoints {
        let (method, way) = (endpoint.method.name(), way(endpoint, config));
        writeln!(out, "{method:<6} {:<width$}  {way}", endpoint.route)
            .expect("writing to a string cannot fail");
    }
    for job in &config.jobs {
        let jobs_way = if job_writes(job, config) { "→" } else { "←" };
        let (every, database) = (every(job.every_ms), config.database.describe());
        writeln!(out, "job    {:<width$}  every {every}: sql {jobs_way} {database}", job.name)
            .expect("writing to a string cannot fail");
    }
    out
}

fn job_writes(job: &Job, config: &Config) -> bool {
    writes(job.statements.in_dialect(config.database.dialect()).unwrap_or_default())
}

/// A time as a config would have it.
fn every(time_ms: u64) -> String {
    match time_ms {
        time_ms if time_ms % 1000 == 0 => format!("{}s", time_ms / 1000),
        time_ms => format!("{time_ms}ms"),
    }
}

fn way(endpoint: &Endpoint, config: &Config) -> String {
    let guarded = if endpoint.guard.is_some() { "  (guarded)" } else { "" };
    format!("{}{guarded}", action(&endpoint.action, config))
}

fn action(action: &Action, config: &Config) -> String {
    let database = config.database.describe();
    let queue = match config.memory.tier {
        Tier::Embedded => "log",
        Tier::Remote(_) => "queue",
    };
    let written = |what: String| format!("{what} → {queue} → {database}");
    // Whom a table belongs to decides where a row is looked for that is not in memory.
    let read = |what: String, table: &str| match config.table(table) {
        Some(table) if table.shared => format!("{what} ← memory, else {database}"),
        _ => format!("{what} ← memory"),
    };
    match action {
        Action::Sql { rows: Rows::None, .. } => format!("sql → {database}"),
        Action::Sql { statements, .. }
            if writes(statements.in_dialect(config.database.dialect()).unwrap_or_default()) =>
        {
            format!("sql → {database}")
        }
        Action::Sql { .. } => format!("sql ← {database}"),
        Action::Insert { table, .. } => written(format!("insert {table}")),
        Action::Upsert { table, .. } => written(format!("upsert {table}")),
        Action::Update { table, .. } => written(format!("update {table}")),
        Action::Increment { table, column, .. } => written(format!("increment {table}.{column}")),
        Action::Delete { table, pick: Pick::Key(_) } => written(format!("delete {table}")),
        Action::Delete { table, pick: Pick::Random { .. } } => {
            written(format!("delete a random row of {table}"))
        }
        Action::Get { table, .. } => read(format!("get {table}"), table),
        Action::Random { table } => format!("random {table} ← memory"),
        Action::Count { table, by: None } => format!("count {table} ← memory"),
        Action::Count { table, by: Some((column, _)) } => format!("count {table} by {column} ← memory"),
        Action::List { table, .. } => format!("list {table} ← memory"),
        Action::Redirect { table, increment: None, .. } => read(format!("redirect {table}"), table),
        Action::Redirect { table, increment: Some(column), .. } => {
            format!(
                "{}; increment {table}.{column} → {queue} → {database}",
                read(format!("redirect {table}"), table)
            )
        }
        Action::AnyOf(actions) => {
            let actions = actions.iter().map(|one| self::action(one, config)).collect::<Vec<_>>();
            format!("any of: {}", actions.join(" | "))
        }
        Action::Generate { table, .. } => format!("generate {table} → {database}, in the background"),
        Action::Handler(name) => format!("handler {name}"),
        Action::Constant(_) => "constant".into(),
        Action::Proxy(proxy) => {
            let upstreams: Vec<_> = proxy.upstreams.iter().map(|to| format!("http://{to}")).collect();
            format!("proxy ↔ {}", upstreams.join(" | "))
        }
    }
}
