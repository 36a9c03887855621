//! Inserts that share a transaction.

use super::{Scratch, on_both};
use crate::{codes, text};
use forebay_database::Kind;

on_both!(of_64_inserts_only_the_one_that_violates_fails);

async fn of_64_inserts_only_the_one_that_violates_fails(scratch: &Scratch) {
    let store = scratch.store();
    store.create_table(&codes()).await.unwrap();
    let insert = store.prepare("INSERT INTO codes (code) VALUES ($code)").await.unwrap();
    for round in 0..20 {
        // One of them has the code of another, which is the first or comes before it.
        let (first, second) = if round == 0 { (0, 63) } else { (0, round * 3) };
        let code = |i: i64| if i == second { format!("{round}-{first}") } else { format!("{round}-{i}") };
        let running: Vec<_> =
            (0..64).map(|i| tokio::spawn(store.run(&insert, vec![text(&code(i))]))).collect();
        let mut failed = Vec::new();
        for task in running {
            match task.await.unwrap() {
                Ok(rows) => assert_eq!(rows.changed, 1),
                Err(error) => failed.push(error.kind().clone()),
            }
        }
        assert_eq!(failed, [Kind::Conflict { column: Some("code".into()) }], "round {round}");
        assert_eq!(scratch.number("SELECT count(*) FROM codes").await, (round + 1) * 63);
    }
    if let Scratch::Postgres(scratch) = scratch {
        // They did share transactions.
        let transactions: i64 =
            scratch.text("SELECT count(DISTINCT xmin::text) FROM codes").await.parse().unwrap();
        assert!(transactions < 20 * 63, "{transactions}");
    }
}
