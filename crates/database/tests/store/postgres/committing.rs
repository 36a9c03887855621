//! A COMMIT whose answer does not arrive, and a server that stops answering.

use super::relay::{Harm, Relay};
use super::{Scratch, server};
use crate::{codes, text};
use forebay_database::{Batch, Change, Holding, Kind, OnError, Op, Options, Patience, Priority, Store};
use forebay_value::{Row, Timestamp, Value};
use std::time::Duration;

fn batch(from: Option<u64>, to: u64) -> Batch {
    let row = |id: u64| {
        let values = [Value::Bigint(id as i64), text(&id.to_string()), Value::Timestamp(Timestamp(0))];
        Row::from_values(&codes(), &values)
    };
    let changes = (to * 10..to * 10 + 5).map(|id| Change {
        table: 0,
        position: to,
        is_intent: false,
        op: Op::Insert(row(id)),
    });
    let (schemas, changes) = (vec![codes()], changes.collect());
    Batch {
        log: 1,
        from,
        to,
        note: Default::default(),
        opening: String::new(),
        schemas,
        changes,
        basis: None,
        on_error: OnError::Fail,
        priority: Priority::Holds,
        patience: Patience::default(),
        held: Holding::default(),
    }
}

/// A store that reaches the scratch database through a relay.
async fn behind(scratch: &Scratch, params: &str, options: Options) -> (Relay, Store) {
    let server = server();
    let (_, rest) = server.split_once("://").unwrap();
    let (user, rest) = rest.split_once('@').unwrap();
    let relay = Relay::before(rest.split(['/', '?']).next().unwrap().to_owned());
    let url = format!(
        "postgres://{user}@127.0.0.1:{}/{}?sslmode=disable&pool_size=4{params}",
        relay.port, scratch.database
    );
    let store = tokio::task::spawn_blocking(move || Store::open(&url, options)).await.unwrap().unwrap();
    (relay, store)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_without_an_answer_is_settled_by_the_position() {
    let scratch = Scratch::new().await;
    let (relay, store) = behind(&scratch, "", Options::default()).await;
    store.create_table(&codes()).await.unwrap();
    let mut at = None;
    // Without a position and with one: the position's row is inserted, and updated.
    for round in 0..2 {
        for (harm, is_committed) in [
            (Harm::Answer, true),
            // The COMMIT is still running when the new connection reads the position.
            (Harm::Late(Duration::from_millis(1_500)), true),
            (Harm::Commit, false),
        ] {
            let to = at.unwrap_or(0) + 1;
            relay.harm(harm);
            let applied = store.apply(batch(at, to)).await;
            assert!(relay.is_harmless());
            match applied {
                Ok(_) => assert!(is_committed, "{round} {harm:?}"),
                Err(error) => {
                    assert!(!is_committed && *error.kind() == Kind::Unavailable, "{round} {harm:?}: {error}");
                    store.apply(batch(at, to)).await.unwrap();
                }
            }
            assert_eq!(store.settled_position(1).await.unwrap(), Some(to));
            assert_eq!(store.count(&codes()).await.unwrap(), to * 5);
            if round == 0 {
                // The next round starts without a position again.
                scratch.execute("TRUNCATE codes, forebay_position").await;
            } else {
                at = Some(to);
            }
        }
        if round == 0 {
            store.apply(batch(None, 1)).await.unwrap();
            at = Some(1);
        }
    }
}

/// Regression: when a BEGIN failed, the statements sent behind it in one flight were committed by themselves:
/// the position was moved past rows that were never written.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_sent_behind_a_begin_that_fails() {
    let scratch = Scratch::new().await;
    let (relay, store) = behind(&scratch, "", Options::default()).await;
    store.create_table(&codes()).await.unwrap();
    store.apply(batch(None, 1)).await.unwrap();
    // The small batch, and one that is not sent in one flight.
    for on_error in [OnError::Fail, OnError::DeadLetter] {
        relay.harm(Harm::Begin);
        let refused = store.apply(Batch { on_error, ..batch(Some(1), 2) }).await;
        assert!(relay.is_harmless() && refused.is_err());
        assert_eq!(store.settled_position(1).await.unwrap(), Some(1));
        assert_eq!(store.count(&codes()).await.unwrap(), 5);
    }
    store.apply(batch(Some(1), 2)).await.unwrap();
    assert_eq!(store.count(&codes()).await.unwrap(), 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_position_that_is_being_moved_is_waited_for() {
    let scratch = Scratch::new().await;
    scratch.store.create_table(&codes()).await.unwrap();
    scratch.store.apply(batch(None, 1)).await.unwrap();
    scratch.execute("BEGIN; UPDATE forebay_position SET position = 2").await;
    assert_eq!(scratch.store.position(1).await.unwrap(), Some(1));
    let error = scratch.store.settled_position(1).await.unwrap_err();
    assert_eq!((error.kind(), error.may_retry()), (&Kind::Busy, true));
    scratch.execute("COMMIT").await;
    assert_eq!(scratch.store.settled_position(1).await.unwrap(), Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn before_a_server_that_says_nothing_everything_ends() {
    let scratch = Scratch::new().await;
    let options = Options { statement_timeout_ms: 300, ..Options::default() };
    let (relay, store) = behind(&scratch, "&connect_timeout=1", options).await;
    store.create_table(&codes()).await.unwrap();
    let insert = store.prepare("INSERT INTO codes (code) VALUES ($code)").await.unwrap();
    store.run(&insert, vec![text("a")]).await.unwrap();
    relay.silence();
    let error = store.run(&insert, vec![text("b")]).await.unwrap_err();
    assert!(error.may_retry(), "{error:?}");
    let error = store.next_keys(&codes(), 1).await.unwrap_err();
    assert!(error.may_retry(), "{error:?}");
    // With statements, a batch and new connections running.
    let left = [store.run(&insert, vec![text("c")]), store.run(&insert, vec![text("d")])];
    let applying = tokio::spawn({
        let store = store.clone();
        async move { store.apply(batch(None, 1)).await }
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    applying.abort();
    let closing = tokio::task::spawn_blocking(move || drop(store));
    closing.await.unwrap();
    for statement in left {
        assert!(statement.await.is_err());
    }
}
