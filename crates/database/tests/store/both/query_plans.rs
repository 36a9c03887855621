//! The parts of a statement's plan whose cost grows with its table, and the index that would remove it.

use super::{Scratch, on_both};
use forebay_database::{Planning, TableWork};
use std::time::Instant;

on_both!(plans_that_grow, the_index_mends_it, work_takes_what_is_estimated);

const TABLES: &str = "CREATE TABLE account (id bigint PRIMARY KEY, name text NOT NULL, email text, created_at timestamp); \
     CREATE TABLE purchase (id bigint PRIMARY KEY, account_id bigint, state text, placed_at timestamp); \
     CREATE INDEX purchase_state ON purchase (state);";

/// Table, work and columns of the missing index.
type Expected = (&'static str, TableWork, Option<&'static str>);

const PLANS: &[(&str, &[Expected])] = &[
    ("SELECT * FROM account WHERE id = $id", &[]),
    ("SELECT * FROM account LIMIT 10", &[]),
    ("SELECT * FROM account ORDER BY id LIMIT 10", &[]),
    ("SELECT max(id) AS newest FROM account", &[]),
    ("SELECT * FROM purchase WHERE state = $state", &[]),
    ("INSERT INTO account (id, name) VALUES ($id, $name)", &[]),
    ("UPDATE account SET name = $name WHERE id = $id", &[]),
    ("SELECT 1 AS one", &[]),
    ("SELECT a.name FROM purchase AS p JOIN account AS a ON a.id = p.account_id WHERE p.id = $id", &[]),
    ("SELECT id FROM account WHERE id NOT IN (1, 2) ORDER BY id LIMIT 1", &[]),
    ("SELECT * FROM purchase WHERE state = $state ORDER BY id DESC LIMIT 20", &[]),
    ("SELECT * FROM purchase WHERE state = $state ORDER BY id", &[]),
    (
        "DELETE FROM account WHERE id = coalesce((SELECT id FROM account WHERE id >= $id AND id NOT IN (1, 2) ORDER BY id LIMIT 1), \
         (SELECT id FROM account WHERE id NOT IN (1, 2) ORDER BY id LIMIT 1))",
        &[],
    ),
    ("SELECT count(*) AS count FROM account", &[("account", TableWork::Scan, None)]),
    ("SELECT * FROM account WHERE name = $name", &[("account", TableWork::Scan, Some("name"))]),
    (
        "SELECT a.id FROM account AS a WHERE a.email = $e AND a.name = $n",
        &[("account", TableWork::Scan, Some("name, email"))],
    ),
    ("DELETE FROM account WHERE created_at < $before", &[("account", TableWork::Scan, Some("created_at"))]),
    ("UPDATE account SET email = $email WHERE name = $name", &[("account", TableWork::Scan, Some("name"))]),
    (
        "SELECT * FROM account ORDER BY created_at LIMIT 10",
        &[("account", TableWork::Sort, Some("created_at"))],
    ),
    (
        "SELECT * FROM purchase WHERE account_id = $a ORDER BY placed_at",
        &[("purchase", TableWork::Sort, Some("account_id, placed_at"))],
    ),
    ("SELECT * FROM account ORDER BY random() LIMIT 1", &[("account", TableWork::Shuffle, None)]),
    ("SELECT * FROM account WHERE name LIKE $part", &[("account", TableWork::Scan, None)]),
];

/// The columns of an index, in any order of the equalities.
fn columns(index: &str) -> Vec<String> {
    let inside = index.split_once('(').expect("columns").1.trim_end_matches(')');
    let mut columns: Vec<_> = inside.split(", ").map(str::to_owned).collect();
    columns.sort();
    columns
}

async fn plans_that_grow(scratch: &Scratch) {
    scratch.execute(TABLES).await;
    for (sql, expected) in PLANS {
        let found = scratch.store().growing(sql, Planning::WithEveryIndex).await.unwrap();
        let found: Vec<_> = found
            .iter()
            .map(|growing| (growing.table.as_str(), growing.work, growing.index.as_deref().map(columns)))
            .collect();
        let expected: Vec<_> = expected
            .iter()
            .map(|(table, work, index)| (*table, *work, index.map(|index| columns(&format!("({index})")))))
            .collect();
        assert_eq!(found, expected, "{sql}");
    }
    let store = scratch.store();
    store.growing("SELECT nothing FROM account", Planning::WithEveryIndex).await.unwrap_err();
    // Neither a failed nor a successful call leaves anything behind.
    for _ in 0..20 {
        store.growing("SELECT id FROM account WHERE name = $n", Planning::AsItIs).await.unwrap();
    }
    assert_eq!(scratch.number("SELECT count(*) FROM account").await, 0);
}

async fn the_index_mends_it(scratch: &Scratch) {
    scratch.execute(TABLES).await;
    let mut mended = 0;
    for (sql, _) in PLANS {
        let before = scratch.store().growing(sql, Planning::WithEveryIndex).await.unwrap();
        // The index of an earlier statement may be sufficient.
        let Some(index) = before.first().and_then(|growing| growing.index.clone()) else { continue };
        scratch.execute(&index).await;
        let after = scratch.store().growing(sql, Planning::WithEveryIndex).await.unwrap();
        assert_eq!(after, [], "{sql}: {index}");
        mended += 1;
    }
    assert_eq!(mended, 3, "the others are served by the same indexes");
}

/// Prints the measurements behind [`TableWork::estimated_ms`]; only asserts that the statements do the
/// expected work.
async fn work_takes_what_is_estimated(scratch: &Scratch) {
    const ROWS: u64 = 100_000;
    scratch.execute("CREATE TABLE many (id bigint PRIMARY KEY, name text, place bigint)").await;
    let rows = format!(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS}) \
         INSERT INTO many SELECT i, 'a name of some length ' || i, (i * 7919) % 1000003 FROM n"
    );
    scratch.execute(&rows).await;
    for (sql, work) in [
        ("SELECT * FROM many WHERE name = 'nobody'", TableWork::Scan),
        ("SELECT * FROM many ORDER BY place LIMIT 1 OFFSET 99999", TableWork::Sort),
        ("SELECT * FROM many ORDER BY random() LIMIT 1", TableWork::Shuffle),
    ] {
        let found = scratch.store().growing(sql, Planning::AsItIs).await.unwrap();
        assert_eq!(found.iter().map(|growing| growing.work).collect::<Vec<_>>(), [work], "{sql}");
        scratch.run(sql, vec![]).await.unwrap();
        let started = Instant::now();
        scratch.run(sql, vec![]).await.unwrap();
        println!("{work:?}: {} ns a row", started.elapsed().as_nanos() / u128::from(ROWS));
    }
}
