//! The drain's writes are reported where the database has changed them, even by rules that were created or
//! dropped while following: a trigger, a foreign key's action.

use super::follow::{LOGICAL, TRIGGERS, both_ways, followed};
use crate::following::{batch, items, row, told};
use forebay_database::{Follower, Op, Store};
use forebay_value::{Schema, Value};
use std::sync::Arc;

/// The drain of one log.
struct Drain<'a> {
    store: &'a Store,
    schema: Arc<Schema>,
    position: Option<u64>,
}

impl Drain<'_> {
    async fn write(&mut self, op: Op) {
        let batch = batch(&self.schema, self.position, vec![op]);
        self.position = Some(batch.to);
        self.store.apply(batch).await.unwrap();
    }

    async fn insert(&mut self, id: i64) {
        self.write(Op::Insert(row(&self.schema, id, "own", id))).await;
    }
}

/// The result of a pass: the rows, or that the table is read again, which includes them.
async fn is_told(follower: &mut Follower, schema: &Arc<Schema>, expected: &str) {
    let told = told(follower, schema).await;
    assert!(told.contains(expected) || told.contains("reload"), "{told:?} instead of {expected:?}");
}

const FUNCTION: &str = "CREATE FUNCTION up() RETURNS trigger LANGUAGE plpgsql AS \
     $$ BEGIN NEW.name := upper(NEW.name); RETURN NEW; END $$";
const TRIGGER: &str = "CREATE TRIGGER up BEFORE INSERT ON items FOR EACH ROW EXECUTE FUNCTION up()";

async fn a_trigger_comes_and_goes(way: &str) {
    let schema = items();
    let (scratch, mut follower) = followed(&schema, way).await;
    let mut drain = Drain { store: &scratch.store, schema: schema.clone(), position: None };
    scratch.execute(FUNCTION).await;
    drain.insert(1).await;
    assert_eq!(told(&mut follower, &schema).await, "");
    scratch.execute(TRIGGER).await;
    drain.insert(2).await;
    is_told(&mut follower, &schema, "0/2: OWN 2").await;
    drain.insert(3).await;
    is_told(&mut follower, &schema, "0/3: OWN 3").await;
    drain.insert(4).await;
    scratch.execute("DROP TRIGGER up ON items").await;
    is_told(&mut follower, &schema, "0/4: OWN 4").await;
    scratch.execute(TRIGGER).await;
    scratch.execute("ALTER TABLE items DISABLE TRIGGER up").await;
    told(&mut follower, &schema).await;
    drain.insert(5).await;
    assert_eq!(told(&mut follower, &schema).await, "");
    scratch.execute("ALTER TABLE items ENABLE TRIGGER up").await;
    drain.insert(6).await;
    is_told(&mut follower, &schema, "0/6: OWN 6").await;
}

async fn rows_that_a_trigger_adds_are_told_while_it_is_there(way: &str) {
    let schema = items();
    let (scratch, mut follower) = followed(&schema, way).await;
    let mut drain = Drain { store: &scratch.store, schema: schema.clone(), position: None };
    scratch
        .execute(
            "CREATE FUNCTION other() RETURNS trigger LANGUAGE plpgsql AS \
             $$ BEGIN INSERT INTO items VALUES (NEW.id + 100, 'theirs', 0); RETURN NULL; END $$",
        )
        .await;
    drain.insert(1).await;
    assert_eq!(told(&mut follower, &schema).await, "");
    scratch
        .execute(
            "CREATE TRIGGER other AFTER INSERT ON items FOR EACH ROW WHEN (NEW.id < 100) EXECUTE FUNCTION other()",
        )
        .await;
    // A trigger that is created and dropped between two passes is not detected.
    told(&mut follower, &schema).await;
    drain.insert(2).await;
    scratch.execute("DROP TRIGGER other ON items").await;
    is_told(&mut follower, &schema, "0/102: theirs 0").await;
    drain.insert(3).await;
    told(&mut follower, &schema).await;
    drain.insert(4).await;
    assert_eq!(told(&mut follower, &schema).await, "");
}

async fn a_foreign_key_with_an_action_comes_later(way: &str) {
    let schema = items();
    let (scratch, mut follower) = followed(&schema, way).await;
    let mut drain = Drain { store: &scratch.store, schema: schema.clone(), position: None };
    drain.insert(1).await;
    scratch.execute("INSERT INTO items VALUES (2, 'child', 1)").await;
    assert_eq!(told(&mut follower, &schema).await, "0/2: child 1");
    scratch.execute("ALTER TABLE items ADD FOREIGN KEY (n) REFERENCES items ON DELETE CASCADE").await;
    drain.write(Op::Delete(Value::Bigint(1))).await;
    is_told(&mut follower, &schema, "0/2: -").await;
}

both_ways! {
    a_trigger_comes_and_goes
    rows_that_a_trigger_adds_are_told_while_it_is_there
    a_foreign_key_with_an_action_comes_later
}
