//! How a batch goes on that the database did not apply, or would not: without the table at fault, smaller, or
//! one by one.

use super::outcome::{Outcome, Tried};
use super::{Batcher, Prepared};
use crate::Error;
use crate::limits::BATCH_ROWS_MIN;
use crate::misfit::misfit_among;
use crate::queue::{Queue, QueuePlace};
use crate::reached::Reached;
use crate::stopped::Ends;
use crate::uncoalesced::Uncoalesced;
use forebay_database::{Error as DatabaseError, Kind as DatabaseKind, OnError, Stuck};
use forebay_log::Position;
use forebay_value::Schema;
use std::mem::{Discriminant, discriminant};
use std::sync::Arc;

impl<Q: Queue> Batcher<Q> {
    pub(super) async fn refused(
        &mut self,
        before: &QueuePlace,
        tried: &Tried,
        error: DatabaseError,
    ) -> Result<Outcome, Error> {
        self.forget_place();
        // Whatever else happens, the tables are looked at again before a refusal makes a dead letter.
        let judged = self.judged(tried);
        match error.kind() {
            DatabaseKind::Fenced => return self.fenced(before, error).await,
            DatabaseKind::Altered => {
                self.schemas.acting = None;
                if !self.stopped.is_empty() {
                    self.learn_references().await?;
                }
                // What is in the database is as it was: the batch's own triggers alter it.
                let alters = self.schemas.acting(&self.database).await? == tried.acting;
                *self.alters(tried.is_of_stopped) = alters;
                if alters {
                    self.judge(tried, judged);
                }
                return Ok(Outcome::Again);
            }
            DatabaseKind::Yielded { done } => {
                self.shrink(tried, (*done).min(tried.rows / 2).max(BATCH_ROWS_MIN));
                self.judge(tried, judged);
                return Ok(Outcome::Again);
            }
            DatabaseKind::DeadLetter { table, .. } => {
                return self.stop(tried, table, error.message().to_owned(), Ends::WhenCorrected).await;
            }
            _ => {}
        }
        if let Some(stuck) = error.stuck().filter(|_| !tried.tables.is_empty()) {
            return self.stuck(tried, stuck).await;
        }
        if error.may_retry() || matches!(error.kind(), DatabaseKind::Corrupt | DatabaseKind::Url) {
            return Err(error.into());
        }
        if before.stored.is_some() && self.database.settled_position(self.queue.id()).await?.is_none() {
            // The refused statement may be the one that moves the position: its table is gone.
            return self.fenced(before, error).await;
        }
        if self.schemas.have_moved(&tried.tables, &tried.acting, &self.database).await?
            || self.schemas.find_lacking(&tried.tables, &self.database).await?
        {
            return Ok(Outcome::Again);
        }
        let schemas: Vec<_> = tried.tables.iter().map(|&table| &self.schemas.list[table]).collect();
        if let Some((table, what)) = misfit_among(&self.database, &schemas, &error).await? {
            return self.stop(tried, &table, what, Ends::WhenCorrected).await;
        }
        if !self.stopped.is_empty() && self.waits_for_stopped(tried, &error).await? {
            return Ok(Outcome::Again);
        }
        let Some(uncoalesced) = self.uncoalesced(tried.is_of_stopped) else {
            return Ok(self.one_by_one(tried.to, tried.is_of_stopped));
        };
        uncoalesced.judged = judged;
        let refusal = tried.refusal(&error).filter(|_| Q::ON_REFUSAL == OnError::DeadLetter);
        match refusal.map(|(table, reason)| (table, discriminant(&reason))) {
            Some(refusal) if !uncoalesced.judged.contains(&refusal) => uncoalesced.judged.push(refusal),
            // Refused at the commit (a deferred foreign key), which names no change: split until the
            // violating record is the only one.
            _ if tried.rows > 1 => self.shrink(tried, tried.rows / 2),
            _ => return Err(error.into()),
        }
        Ok(Outcome::Again)
    }

    /// Whether tables of a refused batch wait for stopped tables from now on: a foreign key that was made
    /// since, or the new name of a stopped table, may be why a change was refused.
    async fn waits_for_stopped(&mut self, tried: &Tried, error: &DatabaseError) -> Result<bool, Error> {
        self.learn_references().await?;
        let queue = &self.queue;
        if self.stopped.grow(|table| queue.knows(table)) {
            return Ok(true);
        }
        let Some((table, DatabaseKind::Check)) = tried.refusal(error) else { return Ok(false) };
        let (table, catalogue) = (&self.schemas.list[table].name, queue.catalogue());
        for (parent, away) in self.stopped.may_be_renamed(table, |table| queue.knows(table)) {
            let found = match self.database.describe(&parent).await {
                Err(error) if error.may_retry() => return Err(error.into()),
                found => found.ok().flatten(),
            };
            let has_columns = |schema: &Schema| {
                let mut columns = schema.columns.iter();
                found
                    .as_ref()
                    .is_some_and(|found| columns.all(|column| found.position(&column.name).is_some()))
            };
            if catalogue.tables().any(|(_, schema)| schema.name == away && has_columns(schema)) {
                return Ok(self.stopped.leave_to(table, &away, |table| queue.knows(table)));
            }
        }
        Ok(false)
    }

    /// Takes what was judged of a batch.
    fn judged(&mut self, tried: &Tried) -> Vec<(usize, Discriminant<DatabaseKind>)> {
        let uncoalesced = self.uncoalesced(tried.is_of_stopped).as_mut();
        uncoalesced.map_or_else(Vec::new, |uncoalesced| std::mem::take(&mut uncoalesced.judged))
    }

    fn judge(&mut self, tried: &Tried, judged: Vec<(usize, Discriminant<DatabaseKind>)>) {
        if let Some(uncoalesced) = self.uncoalesced(tried.is_of_stopped) {
            uncoalesced.judged = judged;
        }
    }

    /// Whether the next batch of stopped tables, or of all others, alters tables itself.
    pub(super) fn alters(&mut self, is_of_stopped: bool) -> &mut bool {
        match self.stopped.catching_up_mut().filter(|_| is_of_stopped) {
            Some(own) => &mut own.alters,
            None => &mut self.alters,
        }
    }

    /// The batch made no progress. One that catches up is tried again with one record, so that those before
    /// the guilty one are applied. A COMMIT names no table: the batch is halved until one record is left.
    async fn stuck(&mut self, tried: &Tried, stuck: &Stuck) -> Result<Outcome, Error> {
        let only = tried.tables.first().filter(|_| tried.rows == 1 || tried.tables.len() == 1);
        let table = match (&stuck.table, only) {
            _ if tried.is_of_stopped && tried.rows > 1 => None,
            (Some(table), _) => Some(table.clone()),
            (None, only) => only.map(|&table| self.schemas.list[table].name.clone()),
        };
        match table {
            Some(table) => {
                let what = format!("makes no progress ({})", stuck.why);
                self.stop(tried, &table, what, Ends::ByItself).await
            }
            None => {
                self.shrink(tried, if tried.is_of_stopped { 1 } else { tried.rows / 2 });
                Ok(Outcome::Again)
            }
        }
    }

    /// Stops the tables whose changes in this batch must wait for stopped tables that refer to them, or would
    /// take long. Then the batch is to be read again.
    pub(super) fn must_wait(&mut self, prepared: &Prepared) -> bool {
        let (Some(changes), schemas) = (&prepared.changes, &self.schemas.list) else { return false };
        let needed = self.stopped.needed(prepared.of.as_ref(), changes, schemas);
        for (table, of) in &needed {
            self.stopped.wait_for(table, of, |table| self.queue.knows(table));
        }
        let slow = match prepared.of {
            None => self.stopped.too_slow(changes, schemas),
            Some(_) => Vec::new(),
        };
        for (table, what) in &slow {
            self.stopped.stop(table, what.clone(), Ends::ByItself, false, |table| self.queue.knows(table));
        }
        let must_wait = !needed.is_empty() || !slow.is_empty();
        if must_wait {
            self.forget_place();
        }
        must_wait
    }

    /// Reads which tables refer to which, under the names that they have in the queue.
    pub(super) async fn learn_references(&mut self) -> Result<(), Error> {
        let (references, catalogue) = (self.database.references().await?, self.queue.catalogue());
        let named = references.named(|name, number| {
            let is_known = catalogue.tables().any(|(_, schema)| schema.name == name);
            let has_number =
                |schema: &Arc<Schema>| schema.numbers.logged().is_some_and(|logged| logged.table == number);
            let known = catalogue.tables().find(|(_, schema)| !is_known && has_number(schema));
            known.map(|(_, schema)| schema.name.clone())
        });
        self.stopped.learn(named);
        Ok(())
    }

    /// Stops a table with those that refer to it.
    async fn stop(&mut self, tried: &Tried, table: &str, what: String, ends: Ends) -> Result<Outcome, Error> {
        self.learn_references().await?;
        let queue = &self.queue;
        self.stopped.stop(table, what, ends, tried.is_of_stopped, |table| queue.knows(table));
        if !tried.is_of_stopped {
            self.uncoalesced = None;
        }
        Ok(Outcome::Again)
    }

    fn uncoalesced(&mut self, is_of_stopped: bool) -> &mut Option<Uncoalesced> {
        match self.stopped.catching_up_mut().filter(|_| is_of_stopped) {
            Some(own) => &mut own.uncoalesced,
            None => &mut self.uncoalesced,
        }
    }

    fn shrink(&mut self, tried: &Tried, rows: usize) {
        match self.stopped.catching_up_mut().filter(|_| tried.is_of_stopped) {
            Some(own) => own.rows = rows.max(1),
            None => self.rows_now = rows.max(1),
        }
    }

    /// Has everything up to `to` applied again, uncoalesced; refused changes become dead letters.
    pub(super) fn one_by_one(&mut self, to: Option<Position>, is_of_stopped: bool) -> Outcome {
        *self.uncoalesced(is_of_stopped) = to.map(Uncoalesced::new);
        self.forget_place();
        Outcome::Again
    }

    /// The position was not where this drain had left it.
    pub(super) async fn fenced(
        &mut self,
        before: &QueuePlace,
        error: DatabaseError,
    ) -> Result<Outcome, Error> {
        self.forget_place();
        let positions = self.database.positions().await?;
        let stored = positions.iter().find(|stored| stored.log == self.queue.id());
        let reached = stored.map(Reached::stored).transpose()?;
        if self.uncertain.iter().any(|(own, _)| Some(own) == reached.as_ref()) {
            // The position was moved by a batch of this drain whose outcome was unknown.
            return Ok(Outcome::Again);
        }
        let is_own = Q::IS_OWN && stored.is_none_or(|stored| stored.opening == self.queue.opening());
        let now = stored.map(|stored| Position(stored.position));
        if !Q::IS_OWN && stored.is_some_and(|stored| stored.opening != self.queue.opening()) {
            // The queue was repaired: another drain owns it only if that drain has the lease.
            return Ok(Outcome::Again);
        }
        if !Q::IS_OWN || is_own && now > before.stored {
            self.last = None;
            return Ok(Outcome::Fenced(error));
        }
        // Either the database has lost commits, or the queue no longer belongs to this drain: then `locate`
        // fails with the reason.
        let now = self.locate().await?.stored;
        if stored.is_none() || now < before.stored { Ok(Outcome::Again) } else { Err(error.into()) }
    }
}
