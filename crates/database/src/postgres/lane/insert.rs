//! Plain inserts that share a transaction: BEGIN, all of them and COMMIT in one flight.

use super::{Lane, Send, is_fatal, lost_before, send, unanswered};
use crate::limits::*;
use crate::postgres::deadline::within;
use crate::postgres::errors;
use crate::postgres::session::{Failure, Prepared};
use crate::postgres::statement_queue::WaitingCall;
use crate::postgres::url::Pooler;
use crate::{Error, Kind, Rows};
use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use std::sync::Arc;

/// Why a flight of inserts was not committed.
enum Broken {
    /// This insert was refused, or delayed the others.
    By(usize),
    /// The commit was refused because of one of them; which one is unknown.
    AtCommit,
    /// The connection was lost before the commit was sent, or the commit may have succeeded: the same error
    /// for all.
    Lost(Error),
}

impl Lane {
    /// Runs plain inserts in one transaction; inserts that fail are taken out, and the rest is retried.
    pub(super) async fn insert(&mut self, calls: Vec<WaitingCall>) {
        let (mut calls, mut prepared) = self.prepare(calls).await;
        let mut attempts = 0;
        let mut apart = Vec::new();
        while calls.len() > 1 {
            attempts += 1;
            match self.fly_inserts(&calls, &prepared).await {
                Ok(results) => {
                    for (waiting, result) in calls.drain(..).zip(results) {
                        waiting.answer(result);
                    }
                }
                Err(Broken::By(index)) if attempts < GROUP_ATTEMPTS => {
                    apart.push(calls.remove(index));
                    prepared.remove(index);
                }
                Err(Broken::By(_) | Broken::AtCommit) => apart.append(&mut calls),
                Err(Broken::Lost(error)) => {
                    for waiting in calls.drain(..) {
                        waiting.answer(Err(error.clone()));
                    }
                }
            }
        }
        self.queue.apart(self.role, apart);
        if let Some(waiting) = calls.pop() {
            self.alone(waiting).await;
        }
    }

    /// Sends BEGIN, the inserts and COMMIT in one flight. Returns the results once it is committed.
    async fn fly_inserts(
        &mut self,
        calls: &[WaitingCall],
        prepared: &[Arc<Prepared>],
    ) -> Result<Vec<Result<Rows, Error>>, Broken> {
        let Some(session) = &self.session else {
            return Err(Broken::Lost(lost_before()));
        };
        let client = &session.client;
        let mut begin = format!("BEGIN; SET LOCAL lock_timeout = {SHARED_LOCK_WAIT_MS}");
        if session.pooler == Pooler::Transaction {
            begin += &format!("; SET LOCAL statement_timeout = {}", self.connector.statement_timeout_ms);
        }
        let mut flight = FuturesOrdered::new();
        flight.push_back(send(client, Send::Text(&begin)));
        for (waiting, prepared) in calls.iter().zip(prepared) {
            flight.push_back(send(client, Send::Call(prepared.clone(), waiting)));
        }
        flight.push_back(send(client, Send::Text("COMMIT")));
        let all = async {
            let mut results = Vec::with_capacity(calls.len() + 2);
            while let Some(result) = flight.next().await {
                results.push(result);
            }
            results
        };
        match within(self.give_up_after(), all).await {
            Some(results) => settled(results),
            None => {
                drop(flight);
                self.drop_session();
                Err(Broken::Lost(errors::uncertain(&unanswered())))
            }
        }
    }
}

/// The outcome of a flight of inserts, from the answers to BEGIN, to each insert, and to COMMIT.
fn settled(mut results: Vec<Result<Option<Rows>, Failure>>) -> Result<Vec<Result<Rows, Error>>, Broken> {
    let commit = results.pop();
    let mut answers = Vec::with_capacity(results.len());
    // BEGIN comes first, so the insert with index i is at place i + 1.
    for (place, result) in results.into_iter().enumerate() {
        match result {
            Ok(Some(rows)) => answers.push(Ok(rows)),
            Ok(None) => {}
            Err(Failure::Ours(error)) => answers.push(Err(error)),
            Err(Failure::Server(error)) => {
                return Err(match error.as_db_error() {
                    None if errors::refused(&error).is_some() => {
                        answers.push(Err(errors::map(error)));
                        continue;
                    }
                    // The connection was lost: the COMMIT sent behind it may have been executed.
                    None => Broken::Lost(errors::unknown(error)),
                    Some(db) if place == 0 || is_fatal(db) => Broken::Lost(errors::map(error)),
                    Some(_) => Broken::By(place - 1),
                });
            }
        }
    }
    match commit {
        Some(Ok(_)) => Ok(answers),
        Some(Err(Failure::Server(error))) => {
            let error = errors::at_commit(error);
            Err(if error.kind() == &Kind::UnknownOutcome { Broken::Lost(error) } else { Broken::AtCommit })
        }
        Some(Err(Failure::Ours(error))) => Err(Broken::Lost(error)),
        None => Err(Broken::Lost(lost_before())),
    }
}
