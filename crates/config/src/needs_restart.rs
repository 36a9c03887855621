//! The settings that a running server cannot change.

use crate::model::{Config, TableConfig};

/// The differences between `new` and `running` that take effect only at a start: a sentence each, with the
/// key.
pub fn fixed(running: &Config, new: &Config) -> Vec<String> {
    let mut found = Vec::new();
    let mut key = |name: &str, is_same: bool| {
        if !is_same {
            found.push(format!("{name} cannot change while the server runs: it needs a restart"));
        }
    };
    let (old, now) = (&running.server, &new.server);
    key("server.listen", old.listen == now.listen);
    key("server.workers", old.workers == now.workers);
    key("database.url", running.database.url == new.database.url);
    let (old, now) = (&running.memory, &new.memory);
    key("memory.url", old.tier == now.tier && old.data_dir == now.data_dir);
    key("memory.name", old.name == now.name);
    key("memory.durability", old.durability == now.durability);
    key("memory.limit", old.limit_bytes == now.limit_bytes);
    key("memory.reserve", old.reserve_bytes == now.reserve_bytes);
    key("memory.huge_pages", old.huge_pages == now.huge_pages);
    key("memory.log_limit", old.log_limit_bytes == now.log_limit_bytes);
    key("memory.segment", old.segment_bytes == now.segment_bytes);
    key("cache.limit", running.cache.limit_bytes == new.cache.limit_bytes);
    key("cache.shared", running.cache.shared == new.cache.shared);
    let (old, now) = (&running.drain, &new.drain);
    key("drain.pace", old.pace_rows_per_s == now.pace_rows_per_s);
    key("drain.paused", old.paused == now.paused);
    key("drain.window", old.window == now.window);
    key("drain.keep", old.keep_ms == now.keep_ms);
    key("admin.listen", running.admin.listen == new.admin.listen);
    key("admin.status", running.admin.status == new.admin.status);
    for table in running.tables.iter().chain(&new.tables) {
        let is_same = same_table(running.table(&table.name), new.table(&table.name));
        let is_second =
            new.tables.iter().any(|other| std::ptr::eq(other, table)) && running.table(&table.name).is_some();
        key(&format!("table.{}", table.name), is_same || is_second);
    }
    key("job", same_jobs(running, new));
    found
}

/// Compares two tables, ignoring their lines in the file.
fn same_table(running: Option<&TableConfig>, new: Option<&TableConfig>) -> bool {
    match (running, new) {
        (Some(running), Some(new)) => TableConfig { line: running.line, ..new.clone() } == *running,
        _ => false,
    }
}

fn same_jobs(running: &Config, new: &Config) -> bool {
    let unplaced = |config: &Config| {
        let mut jobs = config.jobs.clone();
        jobs.iter_mut().for_each(|job| job.line = 0);
        jobs
    };
    unplaced(running) == unplaced(new)
}
