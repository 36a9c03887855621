//! The kind of each failure, and the effects of damaged or missing files.

use super::Scratch;
use crate::codes;
use forebay_database::{Kind, Options, Store};
use forebay_value::Value;

#[tokio::test]
async fn failures_of_sqlite_and_their_kinds() {
    let scratch = Scratch::new();
    scratch.store.create_table(&codes()).await.unwrap();
    scratch.execute("CREATE TABLE strict (n INTEGER) STRICT;");
    for (sql, expected) in [
        ("INSERT INTO codes (code) VALUES (printf('%501s', ''))", Kind::Check),
        ("INSERT INTO strict VALUES ('x')", Kind::Type),
        ("SELECT abs(-9223372036854775808)", Kind::Type),
        ("SELECT json('{')", Kind::Type),
        ("SELECT ?", Kind::Syntax),
        ("SELECT :name", Kind::Syntax),
        ("PRAGMA query_only = off", Kind::Syntax),
        ("ATTACH '/tmp/x' AS x", Kind::Syntax),
    ] {
        let error = scratch.run(sql, vec![]).await.map(|rows| panic!("{sql}: {rows:?}")).unwrap_err();
        assert_eq!(error.kind(), &expected, "{sql}: {error}");
        assert!(!error.message().is_empty());
    }
    let too_few = scratch.run("SELECT $a, $b", vec![Value::Null]).await.unwrap_err();
    assert_eq!(too_few.kind(), &Kind::Type);
    let unlimited =
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT randomblob(1000000) FROM n";
    assert_eq!(scratch.run(unlimited, vec![]).await.unwrap_err().kind(), &Kind::TooLarge);
}

#[test]
fn urls() {
    for (url, part) in [
        ("postgres://user:secret@host/db?poolsize=3", "the parameter poolsize is not known"),
        ("mysql://user:secret@host/db", "mysql"),
        ("user:secret@host", "unknown"),
        ("records.db", "no scheme"),
        ("sqlite:", "names no file"),
        ("sqlite::memory:", "names no file"),
    ] {
        let error = Store::open(url, Options::default()).unwrap_err();
        assert_eq!(error.kind(), &Kind::Url, "{url}");
        assert!(error.message().contains(part), "{url}: {error}");
        assert!(!error.message().contains("secret"), "{url}: {error}");
    }
}

#[test]
fn files_that_cannot_be_opened() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("text.db"), "this is no database, and long enough to be looked at".repeat(100))
        .unwrap();
    std::fs::create_dir(at("folder.db")).unwrap();
    std::fs::write(at("file"), "").unwrap();
    for (path, kind) in [
        (at("text.db"), Kind::Corrupt),
        (at("folder.db"), Kind::Unavailable),
        (at("file/records.db"), Kind::Unavailable),
    ] {
        let error = Store::open(&format!("sqlite:{}", path.display()), Options::default()).unwrap_err();
        assert_eq!(error.kind(), &kind, "{error}");
        assert!(error.message().contains(&folder.path().display().to_string()), "{error}");
    }
}

#[tokio::test]
async fn a_damaged_page_is_reported_as_damage() {
    let scratch = Scratch::new();
    scratch.execute(
        "CREATE TABLE t (x); INSERT INTO t SELECT randomblob(3000) FROM generate_series(1, 3);"
            .replace("generate_series(1, 3)", "(VALUES (1), (2), (3))")
            .as_str(),
    );
    scratch.execute("PRAGMA wal_checkpoint(TRUNCATE)");
    let (path, folder) = (scratch.path.clone(), tempfile::tempdir().unwrap());
    let damaged = folder.path().join("damaged.db");
    let mut bytes = std::fs::read(&path).unwrap();
    let second_page = 4096;
    bytes[second_page..second_page + 8].fill(0xff);
    std::fs::write(&damaged, bytes).unwrap();
    let store = Store::open(&format!("sqlite:{}", damaged.display()), Options::default()).unwrap();
    let statement = store.prepare("SELECT sum(length(x)) FROM t").await.unwrap();
    let error = store.run(&statement, vec![]).await.unwrap_err();
    assert_eq!(error.kind(), &Kind::Corrupt, "{error}");
    assert!(!error.may_retry());
}

#[tokio::test]
async fn a_database_that_disappears_takes_no_writes() {
    let scratch = Scratch::new();
    scratch.store.create_table(&codes()).await.unwrap();
    let insert = "INSERT INTO codes (code) VALUES (hex(randomblob(8)))";
    scratch.run(insert, vec![]).await.unwrap();
    let aside = scratch.path.with_extension("aside");
    std::fs::rename(&scratch.path, &aside).unwrap();
    let error = scratch.run(insert, vec![]).await.unwrap_err();
    assert_eq!(error.kind(), &Kind::Unavailable, "{error}");
    assert!(error.may_retry() && error.message().contains("records.db"), "{error}");
    std::fs::write(&scratch.path, "").unwrap();
    let error = scratch.run(insert, vec![]).await.unwrap_err();
    assert!(error.message().contains("another file"), "{error}");
    std::fs::rename(&aside, &scratch.path).unwrap();
    scratch.run(insert, vec![]).await.unwrap();
    assert_eq!(scratch.number("SELECT count(*) FROM codes"), 2);
}

#[tokio::test]
async fn a_value_that_is_too_large_is_refused_as_a_value() {
    let scratch = Scratch::new();
    scratch.execute("CREATE TABLE t (x)");
    let error = scratch.run("INSERT INTO t VALUES (zeroblob(2000000000))", vec![]).await.unwrap_err();
    assert_eq!(error.kind(), &Kind::Type, "{error}");
    assert_eq!(scratch.number("SELECT count(*) FROM t"), 0);
}
