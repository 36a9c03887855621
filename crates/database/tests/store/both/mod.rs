//! What each engine must do: every test here runs on both.

pub(crate) mod applying;
mod cascades;
mod concurrency;
mod dead_letters;
mod fencing;
mod held;
mod keys;
mod query_plans;
mod skipped;
mod statements;
pub(crate) mod tables;

use crate::{postgres, sqlite};
use forebay_database::{Error, Rows, Store};
use forebay_value::Value;

/// A database of either engine, with direct access to it.
pub(crate) enum Scratch {
    Sqlite(sqlite::Scratch),
    Postgres(postgres::Scratch),
}

impl Scratch {
    pub(crate) fn sqlite() -> Scratch {
        Scratch::Sqlite(sqlite::Scratch::new())
    }

    pub(crate) async fn postgres() -> Scratch {
        Scratch::Postgres(postgres::Scratch::new().await)
    }

    pub(crate) fn store(&self) -> &Store {
        match self {
            Scratch::Sqlite(scratch) => &scratch.store,
            Scratch::Postgres(scratch) => &scratch.store,
        }
    }

    pub(crate) async fn execute(&self, sql: &str) {
        match self {
            Scratch::Sqlite(scratch) => scratch.execute(sql),
            Scratch::Postgres(scratch) => scratch.execute(sql).await,
        }
    }

    pub(crate) async fn text(&self, sql: &str) -> String {
        match self {
            Scratch::Sqlite(scratch) => scratch.text(&format!("SELECT CAST(({sql}) AS TEXT)")),
            Scratch::Postgres(scratch) => scratch.text(sql).await,
        }
    }

    pub(crate) async fn number(&self, sql: &str) -> i64 {
        self.text(sql).await.parse().expect("a number")
    }

    pub(crate) async fn run(&self, sql: &str, params: Vec<Value>) -> Result<Rows, Error> {
        let statement = self.store().prepare(sql).await?;
        self.store().run(&statement, params).await
    }
}

/// Turns these functions into tests on each engine.
macro_rules! on_both {
    ($($name:ident),* $(,)?) => {
        mod on_sqlite {
            $(#[tokio::test]
            async fn $name() {
                super::$name(&$crate::both::Scratch::sqlite()).await;
            })*
        }
        mod on_postgres {
            $(#[tokio::test]
            async fn $name() {
                super::$name(&$crate::both::Scratch::postgres().await).await;
            })*
        }
    };
}
pub(crate) use on_both;
