//! Transactions of a session: how they begin, and how they end.
//!
//! What must stay true: a session that has begun a transaction and not ended it is marked (`in_transaction`),
//! and is closed instead of being used again; a COMMIT whose answer did not come has an unknown outcome.

use super::errors;
use super::session::{Failure, Prepared, Session, fly};
use super::url::Pooler;
use crate::limits::BULK_LOCK_WAIT_MS;
use crate::{Error, Rows};
use forebay_value::Value;
use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use std::sync::Arc;

impl Session {
    pub(super) async fn begin(&mut self, sql: &str) -> Result<(), Error> {
        self.in_transaction = true;
        self.execute(sql).await
    }

    /// Begins the transaction of a job: whatever the server or a pooler is set to, it is durable when it is
    /// committed.
    pub(super) async fn begin_job(&mut self) -> Result<(), Error> {
        self.begin_job_with("").await
    }

    /// [`Session::begin_job`] with further statements, each behind a semicolon, in the same round trip.
    pub(super) async fn begin_job_with(&mut self, further: &str) -> Result<(), Error> {
        self.begin_flight(further, &[]).await.map(drop)
    }

    /// [`Session::begin_job_with`], and prepared statements in the same flight: what each of these gave.
    /// Those behind one that failed have failed with it. When BEGIN fails (it was cancelled, say) they are
    /// run all the same, each by itself: they must do nothing then.
    pub(super) async fn begin_flight(
        &mut self,
        further: &str,
        statements: &[(Arc<Prepared>, Vec<Value>)],
    ) -> Result<Vec<Result<Rows, Error>>, Error> {
        let mut sql = format!(
            "BEGIN; SET LOCAL lock_timeout = {BULK_LOCK_WAIT_MS}; SELECT set_config('synchronous_commit', 'on', true) \
             WHERE current_setting('synchronous_commit') IN ('off', 'local')"
        );
        if self.pooler == Pooler::Transaction {
            sql += "; SET LOCAL statement_timeout = 0";
        }
        sql += further;
        self.in_transaction = true;
        let flight: FuturesOrdered<_> =
            statements.iter().map(|(prepared, values)| fly(&self.client, prepared, values, &[])).collect();
        // Polled in this order, which is the one that they are sent in.
        let all = async { tokio::join!(biased; self.client.batch_execute(&sql), flight.collect::<Vec<_>>()) };
        let (begun, given) = self.answer(all).await?;
        begun.map_err(errors::map)?;
        Ok(given.into_iter().map(|given| given.map_err(Failure::into_error)).collect())
    }

    /// Commits what went well and rolls back what did not. After an error the statements are prepared anew:
    /// what they know of their tables may be what was wrong.
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

    /// Commits; when it is not known whether that worked, says so.
    pub(super) async fn commit(&mut self) -> Result<(), Error> {
        let committed = match self.answer(self.client.batch_execute("COMMIT")).await {
            Ok(committed) => committed.map_err(errors::at_commit),
            Err(deaf) => Err(errors::uncertain(&deaf)),
        };
        if self.is_alive() {
            self.in_transaction = false;
        }
        committed
    }

    pub(super) async fn rollback(&mut self) {
        // A connection on which this fails is closed, and with it the transaction ends.
        if self.execute("ROLLBACK").await.is_ok() {
            self.in_transaction = false;
        }
    }
}
