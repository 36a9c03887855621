//! Limits and checks for every read through the source, on either tier: how many run at a time, and which
//! rows are accepted.

use crate::key::KeyRef;
use crate::limits::{FETCH_QUEUE_MAX, FETCHES_MAX};
use crate::source::SourceError;
use forebay_value::{Row, Schema};
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::{Semaphore, SemaphorePermit};

/// Limits the reads: [`FETCHES_MAX`] at the same time, [`FETCH_QUEUE_MAX`] more that wait.
pub(crate) struct Reads {
    places: Semaphore,
    waiting: AtomicUsize,
}

impl Default for Reads {
    fn default() -> Reads {
        Reads { places: Semaphore::new(FETCHES_MAX), waiting: AtomicUsize::new(0) }
    }
}

impl Reads {
    /// Waits for a place; refuses when too many wait already.
    pub async fn enter(&self) -> Result<SemaphorePermit<'_>, SourceError> {
        if let Ok(permit) = self.places.try_acquire() {
            return Ok(permit);
        }
        let ahead = self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = WaitingRead(&self.waiting);
        if ahead >= FETCH_QUEUE_MAX {
            let message =
                format!("{FETCHES_MAX} rows are being read and {FETCH_QUEUE_MAX} more are waited for");
            return Err(SourceError::later(message));
        }
        self.places.acquire().await.map_err(|_| SourceError::later("the tables are being closed"))
    }
}

/// Counts one waiting read until it is dropped.
struct WaitingRead<'a>(&'a AtomicUsize);

impl Drop for WaitingRead<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Checks that a row from the source is valid for the table, and has the key that was asked for.
pub(crate) fn check_fetched(schema: &Schema, key: KeyRef<'_>, row: &Row) -> Result<(), SourceError> {
    let what = match row.as_ref().check(schema) {
        Err(error) => error.to_string(),
        Ok(()) if row.as_ref().key(schema) != key.value() => "it has another key".to_owned(),
        Ok(()) => return Ok(()),
    };
    let message = format!("the database gave a row of {} that cannot be used: {what}", schema.name);
    Err(SourceError { message, retry: false })
}
