//! `generate`: answers 202 at once, and in the background empties a table and fills it with generated rows.

use super::write::{ColumnSource, RowPlan};
use super::{Answering, Step};
use crate::endpoint::eval::{Eval, Scope, Slots};
use crate::endpoint::out::Out;
use crate::hot::RemoteHot;
use crate::jobs::{Job, Jobs};
use crate::problem::Problem;
use forebay_database::Store;
use forebay_table::{Table, WriteError};
use forebay_value::{Row, Schema, Type, Value, ValueRef};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// Rows written to a database in one call.
const BATCH_ROWS: u64 = 5_000;
/// How long a job waits when the table takes no more for now.
pub(super) const FULL_PAUSE: Duration = Duration::from_millis(20);

/// Where the rows go.
pub enum Target {
    /// Into a hot table.
    Hot(Arc<Table>),
    /// Into a hot table on Redis or Valkey.
    Remote(RemoteHot),
    /// Straight into the database.
    Database(Store, Arc<Schema>),
}

/// The action.
pub struct Generate {
    /// Where the rows go.
    pub target: Target,
    /// How many, the most that are taken, and the name that errors use.
    pub rows: (Eval, i64, String),
    /// How a row is made.
    pub row: RowPlan,
    /// Rows with fixed values that exist afterwards in any case.
    pub first: Vec<RowPlan>,
    /// The server's jobs.
    pub jobs: Jobs,
    /// Where futures of the database run.
    pub runtime: Handle,
    /// The answer; its rows have two columns: the job's number and the number of rows.
    pub answering: Answering,
}

impl Generate {
    /// Runs it.
    pub fn run(self: &Arc<Self>, slots: &Arc<Slots>, out: &mut impl Out) -> Result<Step, Problem> {
        let scope = Scope::new(slots);
        let (rows, rows_max, name) = &self.rows;
        let rows = match rows.evaluate_as(Type::Bigint, name, &scope)? {
            Value::Bigint(rows) if (1..=*rows_max).contains(&rows) => rows,
            _ => return Err(Problem::parameter(name, format!("must be between 1 and {rows_max}"))),
        };
        let (me, own_slots) = (self.clone(), slots.clone());
        let job_name = format!("generate {}", self.schema().name);
        let id = self.jobs.start(job_name, rows as u64, move |job| me.work(rows as u64, &own_slots, job))?;
        let columns = [ValueRef::Bigint(id as i64), ValueRef::Bigint(rows)];
        let write = |body: &mut Vec<u8>| {
            if let Some(shape) = &self.answering.shape {
                shape.write_values(&columns, &scope, body);
            }
        };
        out.respond(&self.answering.head, |_| {}, 64, write);
        Ok(Step::Done)
    }

    fn schema(&self) -> &Schema {
        match &self.target {
            Target::Hot(table) => table.schema(),
            Target::Remote(hot) => hot.table.schema(),
            Target::Database(_, schema) => schema,
        }
    }

    fn work(&self, rows: u64, slots: &Slots, job: &Job) -> Result<(), String> {
        match &self.target {
            Target::Hot(table) => self.fill_table(table, rows, slots, job),
            Target::Remote(hot) => self.runtime.block_on(self.fill_remote(hot, rows, slots, job)),
            Target::Database(store, schema) => self.fill_database(store, schema, rows, slots, job),
        }
    }

    fn fill_table(&self, table: &Arc<Table>, rows: u64, slots: &Slots, job: &Job) -> Result<(), String> {
        self.runtime.block_on(table.wait_loaded());
        self.empty_table(table, job)?;
        let extra = self.first.len() as u64;
        for (index, plan) in self.first.iter().enumerate() {
            let row = self.new_row(plan, slots, &mut || self.next_key(table))?;
            self.write(job, || table.upsert(row.as_ref()).map(drop))?;
            if (index as u64) < rows {
                job.advance(1);
            }
        }
        let mut written = extra.min(rows);
        while written < rows {
            let row = self.new_row(&self.row, slots, &mut || self.next_key(table))?;
            match self.write(job, || match table.insert(row.as_ref()) {
                // A drawn value that is taken: the next row draws others.
                Err(WriteError::Conflict { .. }) => Ok(false),
                other => other.map(|_| true),
            })? {
                true => {
                    written += 1;
                    job.advance(1);
                }
                false => continue,
            }
        }
        Ok(())
    }

    /// Deletes every row, one by one: each deletion is in the log like any other.
    fn empty_table(&self, table: &Arc<Table>, job: &Job) -> Result<(), String> {
        let mut keys = Vec::new();
        table.for_each(|entry| keys.push(entry.key.to_owned()));
        for key in keys {
            let delete = || match table.delete(key.as_ref(), |_| ()) {
                Ok(_) | Err(WriteError::Missing { .. }) => Ok(None),
                Err(WriteError::Fetch(key)) => Ok(Some(key)),
                Err(error) => Err(error),
            };
            while let Some(evicted) = self.write(job, delete)? {
                self.runtime.block_on(table.fetch(evicted)).map_err(|error| error.message)?;
            }
        }
        Ok(())
    }

    /// Writes until the table takes it.
    fn write<T>(&self, job: &Job, mut write: impl FnMut() -> Result<T, WriteError>) -> Result<T, String> {
        loop {
            match write() {
                Ok(written) => return Ok(written),
                Err(WriteError::MemoryFull | WriteError::LogFull | WriteError::Busy) if !job.is_stopped() => {
                    std::thread::sleep(FULL_PAUSE);
                }
                Err(error) if job.is_stopped() => return Err(format!("the server stopped ({error:?})")),
                Err(error) => return Err(format!("a row could not be written: {error:?}")),
            }
        }
    }

    fn next_key(&self, table: &Table) -> Option<i64> {
        loop {
            match table.next_key() {
                Some(key) => return Some(key),
                None => self.runtime.block_on(table.wait_keys()).ok()?,
            }
        }
    }

    pub(super) fn new_row(
        &self,
        plan: &RowPlan,
        slots: &Slots,
        next_key: &mut dyn FnMut() -> Option<i64>,
    ) -> Result<Row, String> {
        let values = plan
            .values(self.schema(), &Scope::new(slots), next_key)
            .map_err(|problem| problem.detail)?
            .ok_or("the database gave no keys")?;
        Ok(Row::from_values(self.schema(), &values))
    }

    fn fill_database(
        &self,
        store: &Store,
        schema: &Arc<Schema>,
        rows: u64,
        slots: &Slots,
        job: &Job,
    ) -> Result<(), String> {
        self.runtime.block_on(store.clear(schema)).map_err(|error| error.to_string())?;
        let mut written = 0;
        for plan in &self.first {
            let row = self.new_row(plan, slots, &mut || None)?;
            self.runtime.block_on(store.insert_many(schema, vec![row])).map_err(|error| error.to_string())?;
            written += 1;
            job.advance(1);
        }
        while written < rows {
            if job.is_stopped() {
                return Err("the server stopped".into());
            }
            let count = BATCH_ROWS.min(rows - written);
            let mut keys = 0..0;
            if self.row.sources.iter().any(|source| matches!(source, ColumnSource::Serial)) {
                let block =
                    self.runtime.block_on(store.next_keys(schema, count)).map_err(|e| e.to_string())?;
                keys = *block.start()..*block.end() + 1;
            }
            let batch: Result<Vec<Row>, String> =
                (0..count).map(|_| self.new_row(&self.row, slots, &mut || keys.next())).collect();
            self.runtime.block_on(store.insert_many(schema, batch?)).map_err(|error| error.to_string())?;
            written += count;
            job.advance(count);
        }
        Ok(())
    }
}
