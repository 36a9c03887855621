//! The settings of running servers. PostgreSQL is started by `scripts/services`; Redis is started here.

use forebay_doctor::{Finding, State, stores};
use forebay_topology::{Local, Persistence, Spec, Topology};

fn ask(future: impl Future<Output = Vec<Finding>>) -> Vec<Finding> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(future)
}

fn of<'a>(findings: &'a [Finding], what: &str) -> &'a Finding {
    findings
        .iter()
        .find(|finding| finding.found.contains(what))
        .unwrap_or_else(|| panic!("{what}: {findings:?}"))
}

#[test]
fn postgresql_is_asked_for_its_settings() {
    let url = std::env::var("FOREBAY_TEST_POSTGRES").expect(
        "FOREBAY_TEST_POSTGRES: run these tests by `make test`, or start a server with scripts/services",
    );
    let findings = ask(stores::database(&url));
    for name in ["fsync", "full_page_writes", "synchronous_commit", "shared_buffers", "max_wal_size"] {
        of(&findings, name);
    }
    // fsync is off where tests spare the disk.
    assert_eq!(of(&findings, "full_page_writes").state, State::Well);
    assert!(!of(&findings, "shared_buffers is").found.contains("is 0 MiB"), "{findings:?}");
}

#[test]
fn a_database_that_is_away_is_wrong_and_sqlite_is_not_asked() {
    let away = ask(stores::database("postgres://nobody@127.0.0.1:1/none"));
    assert_eq!(away.iter().map(|finding| finding.state).collect::<Vec<_>>(), [State::Wrong]);
    assert_eq!(ask(stores::database("sqlite:data/x.db")), []);
    let away = ask(stores::tier("redis://127.0.0.1:1", true));
    assert_eq!(away.iter().map(|finding| finding.state).collect::<Vec<_>>(), [State::Wrong]);
}

#[test]
fn a_redis_that_keeps_nothing_cannot_promise_a_sync() {
    let local = Local::up(Spec::new(Topology::Single).keep(Persistence::None)).expect("a server");
    let findings = ask(stores::tier(&local.url(), true));
    assert_eq!(of(&findings, "append-only").state, State::Wrong);
    assert_eq!(of(&findings, "maxmemory-policy noeviction").state, State::Well);
    let without = ask(stores::tier(&local.url(), false));
    assert!(without.iter().all(|finding| finding.state < State::Wrong), "{without:?}");
}
