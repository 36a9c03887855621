//! Transactions of a session: how they begin, and how they end.
//!
//! What must stay true: a session with an open transaction is marked (`in_transaction`), and is closed
//! instead of being used again; a COMMIT whose answer did not arrive has an unknown outcome.

use super::errors;
use super::session::{Failure, Prepared, Session, fly};
use super::url::Pooler;
use crate::limits::BULK_LOCK_WAIT_MS;
use crate::{Error, Rows};
use forebay_value::Value;
use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use std::sync::Arc;

/// What comes before the COMMIT of a batch. What is deferred is judged while statements still end early. The
/// COMMIT itself must not: one that is broken off while it waits for a standby is done, and may be lost.
pub(super) const BEFORE_COMMIT: &str = "SET CONSTRAINTS ALL IMMEDIATE; SET LOCAL statement_timeout = 0";

impl Session {
    pub(super) async fn begin(&mut self, sql: &str) -> Result<(), Error> {
        self.in_transaction = true;
        self.execute(sql).await
    }

    /// Begins the transaction of a job: durable when it is committed, whatever the settings of the server or
    /// a pooler.
    pub(super) async fn begin_job(&mut self) -> Result<(), Error> {
        self.begin_job_with("").await
    }

    /// [`Session::begin_job`] with further statements, each after a semicolon, in the same round trip.
    pub(super) async fn begin_job_with(&mut self, further: &str) -> Result<(), Error> {
        self.begin_flight(further, &[]).await.map(drop)
    }

    /// [`Session::begin_job_with`], and prepared statements in the same flight; returns their results. The
    /// statements behind one that failed have failed with it. When BEGIN fails (when it was cancelled, for
    /// example), the server runs them all the same, each by itself: they must do nothing then.
    pub(super) async fn begin_flight(
        &mut self,
        further: &str,
        statements: &[(Arc<Prepared>, Vec<Value>)],
    ) -> Result<Vec<Result<Rows, Error>>, Error> {
        let mut sql = format!(
            "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = {BULK_LOCK_WAIT_MS}; SELECT set_config('synchronous_commit', 'on', true) \
             WHERE current_setting('synchronous_commit') IN ('off', 'local')"
        );
        if self.pooler == Pooler::Transaction {
            sql += "; SET LOCAL statement_timeout = 0";
        }
        sql += further;
        self.in_transaction = true;
        let flight: FuturesOrdered<_> =
            statements.iter().map(|(prepared, values)| fly(&self.client, prepared, values, &[])).collect();
        // Polled in this order, which is the order of sending.
        let all = async { tokio::join!(biased; self.client.batch_execute(&sql), flight.collect::<Vec<_>>()) };
        let (begun, given) = self.answer(all).await?;
        begun.map_err(errors::map)?;
        Ok(given.into_iter().map(|given| given.map_err(Failure::into_error)).collect())
    }

    /// Commits on success and rolls back on an error. After an error the statements are prepared again: their
    /// cached facts about tables may have caused it.
    pub(super) async fn end<T>(&mut self, outcome: Result<T, Error>) -> Result<T, Error> {
        match outcome {
            Ok(value) => self.commit().await.map(|()| value),
            Err(error) => {
                self.rollback().await;
                self.forget_all();
                Err(error)
            }
        }
    }

    /// Commits; reports when the outcome is unknown.
    pub(super) async fn commit(&mut self) -> Result<(), Error> {
        self.commit_behind("").await
    }

    /// [`Session::end`] for a batch, whose statements may run for a limited time.
    pub(super) async fn end_batch<T>(&mut self, outcome: Result<T, Error>) -> Result<T, Error> {
        match outcome {
            Ok(value) => self.commit_behind(BEFORE_COMMIT).await.map(|()| value),
            failed => self.end(failed).await,
        }
    }

    /// Commits in one flight with the statements before it.
    async fn commit_behind(&mut self, before: &str) -> Result<(), Error> {
        let client = &self.client;
        let first = async {
            match before {
                "" => Ok(()),
                before => client.batch_execute(before).await,
            }
        };
        let both = async { tokio::join!(biased; first, client.batch_execute("COMMIT")) };
        let committed = match self.answer(both).await {
            // When the first fails, COMMIT has ended the transaction without an error.
            Ok((before, committed)) => before.and(committed).map_err(errors::at_commit),
            Err(deaf) => Err(errors::uncertain(&deaf)),
        };
        if self.is_alive() {
            self.in_transaction = false;
        }
        committed
    }

    pub(super) async fn rollback(&mut self) {
        // If this fails, the connection is closed, which ends the transaction.
        if self.execute("ROLLBACK").await.is_ok() {
            self.in_transaction = false;
        }
    }
}
