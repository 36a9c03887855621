//! `generate`: answers 202 at once, and in the background empties a table and fills it with generated rows.

use super::row_plan::{ColumnSource, Defaults, RowPlan};
use super::{Answering, Step};
use crate::endpoint::answer_sink::Out;
use crate::endpoint::eval::{Eval, Scope, Slots};
use crate::jobs::{Job, JobError, Jobs};
use crate::problem::Problem;
use forebay_database::Store;
use forebay_table::{Cursor, HotError, HotKind, HotResult, HotTable, completed};
use forebay_value::{Row, RowRef, Schema, Type, Value, ValueRef};
use futures_util::{Stream, StreamExt};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// Rows written to a database in one call.
const BATCH_ROWS: u64 = 5_000;
/// How long a job pauses before it retries a write that the table refused for now.
const FULL_PAUSE: Duration = Duration::from_millis(20);
/// Writes in flight at a time: on Redis or Valkey, enough to fill the link's batches.
const AT_ONCE: usize = 256;

/// Where the rows go.
pub enum GenerateInto {
    /// Into a hot table.
    Hot(HotTable),
    /// Straight into the database.
    Database(Store, Arc<Schema>),
}

/// The action.
pub struct Generate {
    /// Where the rows go.
    pub target: GenerateInto,
    /// How many rows, the largest number allowed, and the name that errors use.
    pub rows: (Eval, i64, String),
    /// How a row is built.
    pub row: RowPlan,
    /// Rows with fixed values that the filled table always contains.
    pub first: Vec<RowPlan>,
    /// The server's jobs.
    pub jobs: Jobs,
    /// The runtime for futures of the table and the database.
    pub runtime: Handle,
    /// The answer; its rows have two columns: the job's number and the number of rows.
    pub answering: Answering,
}

impl Generate {
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
            GenerateInto::Hot(table) => table.schema(),
            GenerateInto::Database(_, schema) => schema,
        }
    }

    fn work(&self, rows: u64, slots: &Slots, job: &Job) -> Result<(), JobError> {
        match &self.target {
            GenerateInto::Hot(table) => self.runtime.block_on(self.fill_table(table, rows, slots, job)),
            GenerateInto::Database(store, schema) => self.fill_database(store, schema, rows, slots, job),
        }
    }

    async fn fill_table(
        &self,
        table: &HotTable,
        rows: u64,
        slots: &Slots,
        job: &Job,
    ) -> Result<(), JobError> {
        table.wait_loaded().await?;
        empty_table(table, job).await?;
        for (index, plan) in self.first.iter().enumerate() {
            let row = self.hot_row(table, plan, slots).await?;
            retried(job, || table.upsert(row.as_ref())).await.map_err(|error| failed(job, &error))?;
            if (index as u64) < rows {
                job.advance(1);
            }
        }
        let missing = rows.saturating_sub(self.first.len() as u64);
        let adding = futures_util::stream::iter(0..missing).map(|_| self.add(table, slots, job));
        all(adding, || job.advance(1)).await
    }

    /// Adds one more row. When a generated value is taken already, a new row with new values is built.
    async fn add(&self, table: &HotTable, slots: &Slots, job: &Job) -> Result<(), JobError> {
        loop {
            if job.is_stopped() {
                return Err("the server stopped".into());
            }
            let row = self.hot_row(table, &self.row, slots).await?;
            match retried(job, || table.insert(row.as_ref())).await {
                Ok(()) => return Ok(()),
                Err(error) if matches!(error.kind(), HotKind::Conflict { .. }) => {}
                Err(error) => return Err(failed(job, &error)),
            }
        }
    }

    /// A new row, with the next serial key if the table assigns keys.
    async fn hot_row(&self, table: &HotTable, plan: &RowPlan, slots: &Slots) -> Result<Row, JobError> {
        let is_serial = plan.sources.iter().any(|source| matches!(source, ColumnSource::Serial));
        let mut key = None;
        while is_serial && key.is_none() {
            key = table.next_key();
            if key.is_none() {
                table.wait_keys().await?;
            }
        }
        self.new_row(plan, slots, &mut || key)
    }

    fn new_row(
        &self,
        plan: &RowPlan,
        slots: &Slots,
        next_key: &mut dyn FnMut() -> Option<i64>,
    ) -> Result<Row, JobError> {
        let defaults = match &self.target {
            GenerateInto::Hot(table) => Defaults::new(table.rules(), None),
            GenerateInto::Database(..) => Defaults::OF_PLAN,
        };
        let mut values = plan
            .values(self.schema(), &Scope::new(slots), &defaults, next_key)
            .map_err(|problem| problem.detail)?
            .ok_or("the database gave no keys")?;
        drop(defaults);
        if let GenerateInto::Hot(table) = &self.target {
            let judged = table.rules().judge_row(&mut values);
            judged.map_err(|(column, invalid)| plan.problem(self.schema(), column, &invalid).detail)?;
        }
        Ok(Row::from_values(self.schema(), &values))
    }

    fn fill_database(
        &self,
        store: &Store,
        schema: &Arc<Schema>,
        rows: u64,
        slots: &Slots,
        job: &Job,
    ) -> Result<(), JobError> {
        self.runtime.block_on(store.clear(schema))?;
        let mut written = 0;
        for plan in &self.first {
            let row = self.new_row(plan, slots, &mut || None)?;
            self.runtime.block_on(store.insert_many(schema, vec![row]))?;
            written += 1;
            job.advance(1);
        }
        while written < rows {
            if job.is_stopped() {
                return Err("the server stopped".into());
            }
            let mut count = BATCH_ROWS.min(rows - written);
            let mut keys = Vec::new();
            if self.row.sources.iter().any(|source| matches!(source, ColumnSource::Serial)) {
                keys.extend(self.runtime.block_on(store.next_keys(schema, count))?.into_iter().flatten());
                count = count.min(keys.len() as u64);
            }
            let mut keys = keys.into_iter();
            let batch: Result<Vec<Row>, JobError> =
                (0..count).map(|_| self.new_row(&self.row, slots, &mut || keys.next())).collect();
            self.runtime.block_on(store.insert_many(schema, batch?))?;
            written += count;
            job.advance(count);
        }
        Ok(self.runtime.block_on(store.settle(schema))?)
    }
}

/// Deletes every row, one by one, in the same way as any other deletion.
async fn empty_table(table: &HotTable, job: &Job) -> Result<(), JobError> {
    let mut at = Some(Cursor::default());
    while let Some(from) = at {
        let page = retried(job, || table.keys(from)).await.map_err(|error| failed(job, &error))?;
        let deleting = futures_util::stream::iter(page.keys).map(|key| async move {
            let delete = || table.delete(key.as_ref(), |row: RowRef<'_>| Row(row.0.into()));
            match retried(job, delete).await {
                Err(error) if error.kind() != HotKind::Missing => Err(failed(job, &error)),
                _ => Ok(()),
            }
        });
        all(deleting, || ()).await?;
        at = page.next;
    }
    Ok(())
}

/// Runs all of these, many at a time, until the first failure.
async fn all(
    work: impl Stream<Item = impl Future<Output = Result<(), JobError>>>,
    each: impl Fn(),
) -> Result<(), JobError> {
    let mut work = std::pin::pin!(work.buffer_unordered(AT_ONCE));
    while let Some(done) = work.next().await {
        done?;
        each();
    }
    Ok(())
}

/// Repeats a call until the table accepts it, or the server stops.
async fn retried<T>(job: &Job, call: impl Fn() -> HotResult<T>) -> Result<T, HotError> {
    loop {
        match completed(&call).await {
            Err(error) if error.may_retry() && !job.is_stopped() => tokio::time::sleep(FULL_PAUSE).await,
            done => return done.map(|(done, _)| done),
        }
    }
}

/// The message of a failed job.
fn failed(job: &Job, error: &HotError) -> JobError {
    match job.is_stopped() {
        true => format!("the server stopped ({error})").into(),
        false => format!("a row could not be written: {error}").into(),
    }
}
