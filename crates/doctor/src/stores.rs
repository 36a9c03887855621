//! The settings of the database and of the memory tier that a config names, queried from the servers.

use crate::finding::{Finding, Fix};
use forebay_database::{Options, Store};
use forebay_redis::{Client, Facts, Need, Role, require};
use forebay_value::Value;
use std::collections::BTreeMap;

/// The query for the examined rows of `pg_settings`.
const SETTINGS: &str = "SELECT name::text, setting::text FROM pg_settings WHERE name IN ('fsync', \
     'full_page_writes', 'synchronous_commit', 'shared_buffers', 'max_wal_size', 'max_connections', \
     'wal_level', 'max_slot_wal_keep_size')";
/// PostgreSQL's own default: 128 MiB, in blocks of 8 KiB.
const SHARED_BUFFERS_DEFAULT: u64 = 16_384;
/// MiB of WAL between two checkpoints; with less, a steady drain causes checkpoints.
const WAL_MIB: u64 = 4_096;
/// Connections that several servers and their drains use.
const CONNECTIONS: u64 = 50;

/// Examines the settings of PostgreSQL, and replication slots that servers have left behind. Empty for
/// SQLite, which Forebay opens with the settings that it needs.
pub async fn database(url: &str) -> Vec<Finding> {
    if url.starts_with("sqlite:") {
        return Vec::new();
    }
    match asked(url).await {
        Ok((settings, idle_slots)) => {
            let slots = idle_slots.iter().map(|slot| idle(slot));
            postgres(&settings).into_iter().chain([kept_wal(&settings)]).chain(slots).collect()
        }
        Err(error) => vec![away("PostgreSQL", &error)],
    }
}

/// Examines the settings of every Redis or Valkey server of a URL.
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
    Finding::wrong(subject, error.to_string(), "the server waits for it", Fix::Nothing)
}

/// Queries the settings, and a description of each replication slot that no server uses.
async fn asked(url: &str) -> Result<(BTreeMap<String, String>, Vec<String>), forebay_database::Error> {
    let store = Store::open(url, Options::default())?;
    let statement = store.prepare(SETTINGS).await?;
    let rows = store.run(&statement, Vec::new()).await?;
    let text = |value: &Value| match value {
        Value::Text(text) => text.to_string(),
        _ => String::new(),
    };
    let settings = rows.iter().map(|row| (text(&row[0]), text(&row[1]))).collect();
    Ok((settings, store.idle_slots().await?))
}

/// Whether the WAL retained for logical decoding has a bound.
fn kept_wal(settings: &BTreeMap<String, String>) -> Finding {
    let text = |name: &str| settings.get(name).map_or("", String::as_str);
    match (text("wal_level"), text("max_slot_wal_keep_size")) {
        ("logical", "-1") => Finding::slow(
            "PostgreSQL",
            "max_slot_wal_keep_size is not set",
            "a permanent slot could fill the disk with WAL, so slots are temporary and each start reads followed tables again",
            Fix::command("ALTER SYSTEM SET max_slot_wal_keep_size = '16GB'; SELECT pg_reload_conf()"),
        ),
        ("logical", mib) => Finding::well("PostgreSQL", format!("max_slot_wal_keep_size is {mib} MiB")),
        (level, _) => Finding::well(
            "PostgreSQL",
            format!("wal_level is {level}: triggers report other writers' changes to followed tables"),
        ),
    }
}

/// A finding for an unused replication slot; `slot` is a description that begins with its name.
fn idle(slot: &str) -> Finding {
    let name = slot.split(',').next().unwrap_or_default();
    Finding::slow(
        "PostgreSQL",
        format!("no server uses replication slot {slot}"),
        "PostgreSQL keeps WAL for it; the server that comes back reads what was changed meanwhile",
        Fix::command(format!("if that server will not return: SELECT pg_drop_replication_slot('{name}')")),
    )
}

fn postgres(settings: &BTreeMap<String, String>) -> Vec<Finding> {
    let text = |name: &str| settings.get(name).map_or("", String::as_str);
    let number = |name: &str| text(name).parse::<u64>().unwrap_or(0);
    let on = |name: &'static str, cost: &str| match text(name) {
        "off" => {
            let fix = Fix::command(format!("ALTER SYSTEM SET {name} = on; SELECT pg_reload_conf()"));
            Finding::wrong("PostgreSQL", format!("{name} is off"), cost, fix)
        }
        value => Finding::well("PostgreSQL", format!("{name} is {value}")),
    };
    let at_least = |name: &'static str, is_enough: bool, found: String, cost: &str, wanted: &str| {
        if is_enough {
            return Finding::well("PostgreSQL", found);
        }
        let fix = Fix::command(format!("ALTER SYSTEM SET {name} = '{wanted}', then restart PostgreSQL"));
        Finding::slow("PostgreSQL", found, cost, fix)
    };
    let buffers = number("shared_buffers");
    let (wal_mib, connections) = (number("max_wal_size"), number("max_connections"));
    vec![
        on("fsync", "a crash of its machine destroys the database"),
        on("full_page_writes", "a crash of its machine may leave torn pages"),
        on(
            "synchronous_commit",
            "a crash loses the last commits of other programs; Forebay turns it on for its own transactions",
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
            Fix::command("CONFIG SET maxmemory-policy noeviction"),
        ),
    }];
    findings.push(match facts.maxmemory_bytes {
        0 => Finding::slow(
            SUBJECT,
            format!("{at}: maxmemory is not set"),
            "it grows until the kernel ends it; with a limit Forebay evicts drained rows",
            Fix::command("CONFIG SET maxmemory to three quarters of its memory"),
        ),
        bytes => Finding::well(SUBJECT, format!("{at}: maxmemory is {} MiB", bytes >> 20)),
    });
    if is_durable {
        findings.push(match require(facts, Need::Sync) {
            Ok(()) => Finding::well(SUBJECT, format!("{at}: a write can be on disk when it is answered")),
            Err(error) => {
                let cost = "the server refuses to start with durability = \"sync\"";
                Finding::wrong(SUBJECT, error.to_string(), cost, Fix::Nothing)
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

    #[test]
    fn a_slot_without_a_bound_is_slow() {
        for (level, keeps, state, found) in [
            ("logical", "-1", State::Slow, "max_slot_wal_keep_size is not set"),
            ("logical", "16384", State::Well, "max_slot_wal_keep_size is 16384 MiB"),
            ("replica", "-1", State::Well, "triggers report"),
        ] {
            let settings = [("wal_level", level), ("max_slot_wal_keep_size", keeps)];
            let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
            let finding = kept_wal(&settings);
            assert!(finding.state == state && finding.found.contains(found), "{finding:?}");
        }
    }

    #[test]
    fn an_idle_slot_is_named_with_what_removes_it() {
        let finding = idle("forebay_1_5, which holds back 3 MB of WAL");
        assert!(finding.found.contains("forebay_1_5, which holds back 3 MB"), "{finding:?}");
        let Fix::Command(fix) = finding.fix else { panic!("{finding:?}") };
        assert!(fix.contains("pg_drop_replication_slot('forebay_1_5')"), "{fix}");
    }
}
