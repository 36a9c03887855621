//! Tests of the database through its interface: [`Store`](forebay_database::Store), with plain SQL
//! connections beside it.
//!
//! - `both`: what each engine must do, run on both
//! - `following`: shared parts of the tests of following
//! - `sqlite`, `postgres`: what only one engine does, or does differently
//!
//! PostgreSQL needs a server: `scripts/services` starts one and sets `FOREBAY_TEST_POSTGRES`. Without it
//! these tests fail, and say so.

mod both;
mod following;
mod postgres;
mod sqlite;

use forebay_value::{Column, Fill, KeyKind, Schema, Type, Value};
use std::sync::Arc;

pub(crate) fn column(name: &str, ty: Type) -> Column {
    Column { name: name.into(), ty, nullable: true, unique: false, indexed: false, fill: None }
}

pub(crate) fn key(name: &str, ty: Type) -> Column {
    Column { nullable: false, ..column(name, ty) }
}

/// The codes table of the examples.
pub(crate) fn codes() -> Arc<Schema> {
    let code =
        Column { nullable: false, unique: true, ..column("code", Type::Text { max_chars: Some(500) }) };
    let created_at = Column { fill: Some(Fill::Now), ..column("created_at", Type::Timestamp) };
    let columns = vec![key("id", Type::Bigint), code, created_at];
    Arc::new(Schema::new("codes", columns, 0, KeyKind::Serial).unwrap())
}

pub(crate) fn text(text: &str) -> Value {
    Value::Text(text.into())
}
