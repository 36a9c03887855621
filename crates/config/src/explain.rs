//! Explains a config in words: one line for each route and each job, with the path of its data.

use crate::model::{Access, Action, ActionFacts, Config, Endpoint, Job, Others, Returns, Tier};
use crate::sections::action::sql::writes;
use std::fmt::Write;

/// One line for each route: method, path, action, the path of its data. For `check`, and for `serve` at
/// start.
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

/// A duration as a config would write it.
fn every(time_ms: u64) -> String {
    match time_ms {
        time_ms if time_ms % 1000 == 0 => format!("{}s", time_ms / 1000),
        time_ms => format!("{time_ms}ms"),
    }
}

fn way(endpoint: &Endpoint, config: &Config) -> String {
    let guarded = if endpoint.guard.is_some() { "  (guarded)" } else { "" };
    let waits = if config.has_strict_write(endpoint) { ", and waits for its commit" } else { "" };
    format!("{}{waits}{guarded}", action(&endpoint.action, config))
}

fn action(action: &Action, config: &Config) -> String {
    let database = config.database.describe();
    let queue = match config.memory.tier {
        Tier::Embedded => "log",
        Tier::Remote(_) => "queue",
    };
    let written = |what: String| format!("{what} → {queue} → {database}");
    // Which other writers a table has decides where a row is searched that is not in memory.
    let read = |what: String, table: &str| match config.table(table) {
        Some(table) if table.others == Others::Unseen => format!("{what} ← memory, else {database}"),
        _ => format!("{what} ← memory"),
    };
    match action {
        Action::Sql(sql) => {
            let statement = sql.statements.in_dialect(config.database.dialect()).unwrap_or_default();
            let arrow = if sql.returns == Returns::None || writes(statement) { "→" } else { "←" };
            format!("sql {arrow} {database}")
        }
        Action::Redirect(redirect) => {
            let table = &redirect.table;
            let shown = read(format!("redirect {table}"), table);
            match &redirect.increment {
                None => shown,
                Some(column) => format!("{shown}; {}", written(format!("increment {table}.{column}"))),
            }
        }
        Action::AnyOf(actions) => {
            let actions = actions.iter().map(|one| self::action(one, config)).collect::<Vec<_>>();
            format!("any of: {}", actions.join(" | "))
        }
        Action::Generate(generate) => {
            format!("generate {} → {database}, in the background", generate.table)
        }
        Action::Handler(name) => format!("handler {name}"),
        Action::Constant(_) => "constant".into(),
        Action::OpenApi => "openapi".into(),
        Action::Files(files) => format!("files ← {}", files.dir.display()),
        Action::Proxy(proxy) => {
            let prefix = proxy.strip_prefix.as_ref();
            let stripped = prefix.map_or_else(String::new, |prefix| format!(", without {prefix}"));
            format!("proxy ↔ {}{stripped}", proxy.upstreams.join(" | "))
        }
        action => {
            action.facts().map_or_else(String::new, |ActionFacts { does, access, table, .. }| match access {
                Access::Write => written(does),
                Access::Row => read(does, table),
                Access::Memory => format!("{does} ← memory"),
            })
        }
    }
}
