//! The settings of the database and of the memory tier that a config names, asked of the servers themselves.

use crate::finding::{Finding, Mend};
use forebay_database::{Options, Store};
use forebay_redis::{Client, Facts, Need, Role, require};
use forebay_value::Value;
use std::collections::BTreeMap;

/// What of `pg_settings` is looked at.
const SETTINGS: &str = "SELECT name::text, setting::text FROM pg_settings WHERE name IN ('fsync', \
     'full_page_writes', 'synchronous_commit', 'shared_buffers', 'max_wal_size', 'max_connections')";
/// PostgreSQL's own default: 128 MiB, in blocks of 8 KiB.
const SHARED_BUFFERS_DEFAULT: u64 = 16_384;
/// MiB of WAL between two checkpoints that a steady drain needs not to cause them.
const WAL_MIB: u64 = 4_096;
/// Connections that several servers and their drains use.
const CONNECTIONS: u64 = 50;

/// The settings of PostgreSQL; nothing for SQLite, which is opened as Forebay wants it.
pub async fn database(url: &str) -> Vec<Finding> {
    if url.starts_with("sqlite:") {
        return Vec::new();
    }
    match settings(url).await {
        Ok(settings) => postgres(&settings),
        Err(error) => vec![away("PostgreSQL", &error)],
    }
}

/// The settings of every Redis or Valkey server of a URL.
pub async fn tier(url: &str, is_durable: bool) -> Vec<Finding> {
    let facts = match Client::connect(url, forebay_redis::Options::default()).await {
        Ok(client) => client.facts().await,
        Err(error) => Err(error),
    };
    match facts {
        Ok(facts) => facts.iter().flat_map(|facts| redis(facts, is_durable)).collect(),
        Err(error) => vec![away("Redis", &error)],
    }
}

fn away(subject: &'static str, error: &dyn std::fmt::Display) -> Finding {
    Finding::wrong(subject, error.to_string(), "the server waits for it", Mend::Nothing)
}

async fn settings(url: &str) -> Result<BTreeMap<String, String>, forebay_database::Error> {
    let store = Store::open(url, Options::default())?;
    let statement = store.prepare(SETTINGS).await?;
    let rows = store.run(&statement, Vec::new()).await?;
    let text = |value: &Value| match value {
        Value::Text(text) => text.to_string(),
        _ => String::new(),
    };
    Ok(rows.iter().map(|row| (text(&row[0]), text(&row[1]))).collect())
}

fn postgres(settings: &BTreeMap<String, String>) -> Vec<Finding> {
    let text = |name: &str| settings.get(name).map_or("", String::as_str);
    let number = |name: &str| text(name).parse::<u64>().unwrap_or(0);
    let on = |name: &'static str, cost: &str| match text(name) {
        "off" => {
            let mend = Mend::command(format!("ALTER SYSTEM SET {name} = on; SELECT pg_reload_conf()"));
            Finding::wrong("PostgreSQL", format!("{name} is off"), cost, mend)
        }
        value => Finding::well("PostgreSQL", format!("{name} is {value}")),
    };
    let at_least = |name: &'static str, is_enough: bool, found: String, cost: &str, wanted: &str| {
        if is_enough {
            return Finding::well("PostgreSQL", found);
        }
        let mend = Mend::command(format!("ALTER SYSTEM SET {name} = '{wanted}', then restart PostgreSQL"));
        Finding::slow("PostgreSQL", found, cost, mend)
    };
    let buffers = number("shared_buffers");
    let (wal_mib, connections) = (number("max_wal_size"), number("max_connections"));
    vec![
        on("fsync", "a crash of its machine destroys the database"),
        on("full_page_writes", "a crash of its machine may leave torn pages"),
        on(
            "synchronous_commit",
            "what others commit is lost in a crash; Forebay's own transactions turn it on for themselves",
        ),
        at_least(
            "shared_buffers",
            buffers > SHARED_BUFFERS_DEFAULT,
            format!("shared_buffers is {} MiB", buffers / 128),
            "indexes that do not fit are read again for each batch of the drain",
            "a quarter of its memory",
        ),
        at_least(
            "max_wal_size",
            wal_mib >= WAL_MIB,
            format!("max_wal_size is {wal_mib} MiB"),
            "the drain causes checkpoints, after which every page is written whole",
            "4GB",
        ),
        at_least(
            "max_connections",
            connections >= CONNECTIONS,
            format!("max_connections is {connections}"),
            "a second server finds no connection",
            "100",
        ),
    ]
}

fn redis(facts: &Facts, is_durable: bool) -> Vec<Finding> {
    const SUBJECT: &str = "Redis";
    if facts.role == Role::Sentinel {
        return Vec::new();
    }
    let at = &facts.address;
    let mut findings = vec![match facts.maxmemory_policy.as_str() {
        "noeviction" | "" => Finding::well(SUBJECT, format!("{at}: maxmemory-policy noeviction")),
        policy => Finding::wrong(
            SUBJECT,
            format!("{at}: maxmemory-policy {policy}"),
            "it may evict writes that are not in the database: Forebay refuses it",
            Mend::command("CONFIG SET maxmemory-policy noeviction"),
        ),
    }];
    findings.push(match facts.maxmemory_bytes {
        0 => Finding::slow(
            SUBJECT,
            format!("{at}: maxmemory is not set"),
            "it grows until the kernel ends it; with a limit Forebay evicts drained rows",
            Mend::command("CONFIG SET maxmemory to three quarters of its memory"),
        ),
        bytes => Finding::well(SUBJECT, format!("{at}: maxmemory is {} MiB", bytes >> 20)),
    });
    if is_durable {
        findings.push(match require(facts, Need::Sync) {
            Ok(()) => Finding::well(SUBJECT, format!("{at}: a write can be on disk when it is answered")),
            Err(error) => {
                let cost = "the server refuses to start with durability = \"sync\"";
                Finding::wrong(SUBJECT, error.to_string(), cost, Mend::Nothing)
            }
        });
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::State;

    #[test]
    fn settings_of_postgresql() {
        let settings = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let sound = [
            ("fsync", "on"),
            ("full_page_writes", "on"),
            ("synchronous_commit", "on"),
            ("shared_buffers", "524288"),
            ("max_wal_size", "8192"),
            ("max_connections", "100"),
        ];
        assert!(postgres(&settings(&sound)).iter().all(|finding| finding.state == State::Well));
        for (name, value, state) in [
            ("fsync", "off", State::Wrong),
            ("full_page_writes", "off", State::Wrong),
            ("synchronous_commit", "off", State::Wrong),
            ("shared_buffers", "16384", State::Slow),
            ("max_wal_size", "1024", State::Slow),
            ("max_connections", "20", State::Slow),
        ] {
            let mut changed: BTreeMap<String, String> = settings(&sound);
            changed.insert(name.into(), value.into());
            let bad: Vec<_> =
                postgres(&changed).into_iter().filter(|finding| finding.state != State::Well).collect();
            assert_eq!(bad.len(), 1, "{name}: {bad:?}");
            assert!(bad[0].state == state && bad[0].found.contains(name), "{bad:?}");
        }
    }
}
