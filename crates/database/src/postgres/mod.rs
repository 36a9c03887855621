//! PostgreSQL: a few connections, statements pipelined over them.
//!
//! ```text
//! run, fetch, count ──▶ queue ──▶ lanes, one connection each    threads that serve_here, database-pg
//! apply, seed, keys, schemas ──▶ sessions, leased for one job    thread database-bulk
//! scan ──▶ a connection of its own                               thread database-scan
//! ```
//! What must stay true: readers' connections refuse writes; a write is never sent twice unless the server has
//! reported that the first had no effect; a commit is durable when it is answered (`synchronous_commit`); no
//! connection is used again while a transaction of another caller may be open on it. With a pooler in
//! transaction mode nothing relies on earlier settings of a connection.

mod acting;
mod already_applied;
mod apart;
mod apply;
mod array;
mod batch_outcome;
mod blocking;
mod bulk;
mod cascades;
mod change;
mod claims;
mod codec;
mod dead_letters;
mod deadline;
mod defaults;
mod drain_tables;
mod encoded;
mod enforced;
mod errors;
pub(crate) mod follow;
mod forms;
mod guarded;
mod held_changes;
mod identity;
mod insert_each;
mod lane;
mod making;
mod numeric;
mod one_by_one;
mod one_flight;
mod own_schema;
mod positions;
mod query_plan;
mod rewritten;
mod scan;
mod schema;
mod serial_keys;
mod session;
mod sessions;
mod skipped;
mod sql;
mod statement_queue;
mod table;
mod tls;
mod transaction;
mod url;

use crate::limits::*;
use crate::{Error, Kind, Options, Rows, ServerFacts, Statement};
use forebay_value::{Row, Schema, Type, Value, Zone};
use lane::Lane;
use making::making;
use parking_lot::{Mutex, RwLock};
use session::{Connector, Role, Session};
use sessions::Sessions;
use statement_queue::{Call, Plan, StatementQueues, WaitingCall};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};
use url::Settings;

/// An open PostgreSQL database.
pub(crate) struct Postgres {
    shown: String,
    pub(crate) facts: ServerFacts,
    /// Whether the server was unreachable when this was opened.
    pub(crate) was_away: bool,
    queue: Arc<StatementQueues>,
    connector: Arc<Connector>,
    plans: RwLock<HashMap<Arc<str>, Arc<Plan>>>,
    bulk: Arc<Bulk>,
    /// The zone of the database's clock, and what it was found by.
    zone: Mutex<Option<(Vec<Value>, Zone)>>,
    threads: Mutex<Vec<Thread>>,
}

impl std::fmt::Debug for Postgres {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Postgres").field("url", &self.shown).finish_non_exhaustive()
    }
}

/// The shared state of jobs with more than one statement.
struct Bulk {
    connector: Arc<Connector>,
    /// Connects to the server itself, where `connector` may connect to a pooler.
    direct: Arc<Connector>,
    sessions: Sessions,
    scans: Arc<Semaphore>,
    /// The forms that are asked of sessions for drain and schemas at a time.
    forms: Arc<Semaphore>,
    /// Whether `forebay_position` and `forebay_dead_letter` exist.
    has_drain_tables: AtomicBool,
    runtime: Handle,
}

/// A thread with its own runtime. When it is told to stop, it ends once its tasks have ended, or after
/// [`CLOSE_MS`].
struct Thread {
    stop: Option<oneshot::Sender<()>>,
    tasks: Arc<Mutex<Vec<tokio::task::JoinHandle<()>>>>,
    thread: JoinHandle<()>,
}

impl Thread {
    fn start(name: &str) -> Result<(Thread, Handle), Error> {
        let failed = |source: std::io::Error| {
            Error::new(Kind::Unavailable, "cannot start a thread for PostgreSQL").with_source(source)
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let tasks: Arc<Mutex<Vec<tokio::task::JoinHandle<()>>>> = Arc::default();
        let waited_for = tasks.clone();
        let run = move || {
            runtime.block_on(async {
                // A dropped sender means stop too.
                let _ = stopped.await;
                let tasks = std::mem::take(&mut *waited_for.lock());
                let ended = async {
                    for task in tasks {
                        // A task that panicked has reported that.
                        let _ = task.await;
                    }
                };
                deadline::within(Duration::from_millis(CLOSE_MS), ended).await;
            });
            // The work that still runs waits for a server that does not answer.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name(name.into()).spawn(run).map_err(failed)?;
        Ok((Thread { stop: Some(stop), tasks, thread }, handle))
    }
}

impl Postgres {
    /// Connects, reads the server's limits, and starts the lanes. Blocks until the server has answered.
    pub(crate) fn open(url: &str, options: &Options) -> Result<Postgres, Error> {
        let settings = Settings::parse(url)?;
        let timeout_ms = settings.statement_timeout_ms.unwrap_or(options.statement_timeout_ms);
        let mut connector = Connector::new(settings, timeout_ms)?;
        let (lanes_thread, lanes_runtime) = Thread::start("database-pg")?;
        let (bulk_thread, bulk_runtime) = Thread::start("database-bulk")?;
        let asking = connector.clone();
        let (facts, answered) = std::sync::mpsc::channel();
        bulk_runtime.spawn(async move { facts.send(ask(&asking).await) });
        let asked = answered.recv().map_err(|_| statement_queue::stopped())?;
        let (facts, was_away) = match (asked, options.known) {
            (Ok(facts), _) => (facts, false),
            (Err(error), Some(known)) if error.may_retry() => (known, true),
            (Err(error), _) => return Err(error),
        };
        connector.needs_synchronous_commit = facts.is_asynchronous;
        let pool = pool_size(&connector.settings, &facts)?;
        let bulk_most = (pool / 4).clamp(1, BULK_CONNECTIONS_MAX);
        let readers = (pool - bulk_most).div_ceil(2);
        let writers = pool - bulk_most - readers;
        let timeout = Duration::from_millis(timeout_ms);
        let queue = Arc::new(StatementQueues::new(readers, writers, options.queue, timeout));
        let direct = connector.direct()?.map(Arc::new);
        let connector = Arc::new(connector);
        for (role, count) in [(Role::Reader, readers), (Role::Writer, writers)] {
            let bell = |index| queue.bell(role, index);
            let lane = |index| Lane::new(role, index, bell(index), queue.clone(), connector.clone());
            let started = (0..count).map(lane).map(|lane| lanes_runtime.spawn(lane.run()));
            lanes_thread.tasks.lock().extend(started);
        }
        lanes_runtime.spawn(sweep(queue.clone()));
        let bulk = Arc::new(Bulk {
            direct: direct.unwrap_or_else(|| connector.clone()),
            connector: connector.clone(),
            sessions: Sessions::new(connector.clone(), bulk_most, timeout),
            scans: Arc::new(Semaphore::new(SCANS_MAX)),
            forms: Arc::new(Semaphore::new(FORMS_MAX)),
            has_drain_tables: AtomicBool::new(false),
            runtime: bulk_runtime,
        });
        let shown = connector.settings.shown();
        let threads = Mutex::new(vec![lanes_thread, bulk_thread]);
        let (plans, zone) = (RwLock::default(), Mutex::default());
        Ok(Postgres { shown, facts, was_away, queue, connector, plans, bulk, zone, threads })
    }

    /// See [`Store::serve_here`](crate::Store::serve_here). The first lane of each kind stays on the engine's
    /// own thread, for requests made before the server's threads start and after they end.
    pub(crate) fn serve_here(&self, thread: usize, threads: usize) {
        for role in [Role::Reader, Role::Writer] {
            for index in (1..self.queue.lanes(role)).filter(|index| index % threads == thread) {
                let bell = self.queue.replace(role, index);
                let lane = Lane::new(role, index, bell, self.queue.clone(), self.connector.clone());
                tokio::spawn(lane.run());
            }
        }
    }

    /// The schema of our tables, as far as the server was asked.
    pub(crate) fn own_schema(&self) -> Option<&str> {
        Some(self.connector.own.get().map_or(own_schema::OWN, |own| own))
    }

    /// The URL without secrets.
    pub(crate) fn shown(&self) -> &str {
        &self.shown
    }

    /// The server ends a statement at its timeout; one that it does not end is abandoned with its connection.
    pub(crate) fn statement_limit(&self) -> Duration {
        self.connector.patience()
    }

    /// Why requests cannot reach the server, if so.
    pub(crate) fn availability(&self) -> Result<(), Error> {
        self.queue.availability()
    }

    /// Runs a job on the bulk thread, to its end, whether or not the caller waits for it.
    fn job<T, F, J>(&self, job: J) -> impl Future<Output = Result<T, Error>> + use<T, F, J>
    where
        J: FnOnce(Arc<Bulk>) -> F,
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let running = self.bulk.runtime.spawn(job(self.bulk.clone()));
        async move {
            running.await.unwrap_or_else(|_| {
                Err(Error::new(Kind::UnknownOutcome, "the database stopped before it answered"))
            })
        }
    }

    pub(crate) async fn describe(&self, table: &str) -> Result<Option<Schema>, Error> {
        let table = table.to_owned();
        self.job(|bulk| async move { schema::describe(&mut *bulk.sessions.lease().await?, &table).await })
            .await
    }

    pub(crate) async fn tables(&self) -> Result<Vec<String>, Error> {
        self.job(|bulk| async move { schema::tables(&mut *bulk.sessions.lease().await?).await }).await
    }

    pub(crate) async fn create_table(&self, schema: &Schema) -> Result<(), Error> {
        let sql = schema::create_sql(schema)?;
        let name = schema.name.clone();
        let created = self.job(|bulk| async move {
            let session = &mut *bulk.sessions.lease().await?;
            making!(session, schema::create(session, &name, &sql).await)
        });
        created.await.map_err(|error| error.context(format!("cannot create table {}", schema.name)))
    }

    pub(crate) async fn prepare(&self, sql: &str) -> Result<Statement, Error> {
        let plan = self.plan(sql)?;
        let (sql, asked) = (sql.to_owned(), plan.clone());
        self.job(|bulk| async move {
            let mut session = bulk.sessions.lease().await?;
            let prepared = session.prepared(&asked.sql, &asked.names).await?;
            session.forget(&asked.sql);
            if !asked.writes() && calls_volatile(&mut session, &asked.sql).await? {
                asked.set_writes();
            }
            Ok(Statement {
                sql: sql.into(),
                params: asked.names.clone(),
                param_types: prepared.params.iter().map(|codec| Some(codec.value_type())).collect(),
                alone: false,
                writes: asked.writes(),
                columns: prepared.columns.clone(),
            })
        })
        .await
    }

    /// The values of defaults for one row.
    pub(crate) async fn defaults(&self, asked: Vec<(Type, Box<str>)>) -> Result<Vec<Value>, Error> {
        let expressions: Vec<&str> = asked.iter().map(|(_, expression)| &**expression).collect();
        let sql = format!("SELECT {}", expressions.join(", "));
        let rows = self.submit(&sql, Vec::new(), false).await?;
        Ok(rows.iter().next().map(<[Value]>::to_vec).unwrap_or_default())
    }

    /// The cached plan for a statement's text.
    fn plan(&self, sql: &str) -> Result<Arc<Plan>, Error> {
        if let Some(plan) = self.plans.read().get(sql) {
            return Ok(plan.clone());
        }
        let plan = Arc::new(Plan::new(sql::parse(sql)?));
        let mut plans = self.plans.write();
        if plans.len() >= STATEMENTS_CACHED * 4 {
            plans.clear();
        }
        plans.insert(sql.into(), plan.clone());
        Ok(plan)
    }

    pub(crate) fn run(
        &self,
        statement: &Statement,
        params: Vec<Value>,
    ) -> impl Future<Output = Result<Rows, Error>> + Send + use<> {
        self.submit_known(&statement.sql, params, statement.alone, statement.writes)
    }

    /// See [`Store::writes`](crate::Store::writes).
    pub(crate) fn writes(&self, statement: &Statement) -> bool {
        statement.writes || self.plan(&statement.sql).is_ok_and(|plan| plan.writes())
    }

    fn submit(
        &self,
        sql: &str,
        params: Vec<Value>,
        alone: bool,
    ) -> impl Future<Output = Result<Rows, Error>> + Send + use<> {
        self.submit_known(sql, params, alone, false)
    }

    /// `writes`: the statement is known to write, whatever its text looks like.
    fn submit_known(
        &self,
        sql: &str,
        params: Vec<Value>,
        alone: bool,
        writes: bool,
    ) -> impl Future<Output = Result<Rows, Error>> + Send + use<> {
        let (answer, answered) = oneshot::channel();
        let queued = self.plan(sql).map(|plan| {
            if writes && !plan.writes() {
                plan.set_writes();
            }
            let call = Arc::new(Call { plan, params, arrived: Instant::now(), alone });
            self.queue.submit(WaitingCall { call, answer, tries: 0 });
        });
        async move {
            queued?;
            let lost = || Error::new(Kind::UnknownOutcome, "the database stopped before it answered");
            answered.await.unwrap_or_else(|_| Err(lost()))
        }
    }

    pub(crate) async fn fetch(&self, schema: &Schema, key: Value) -> Result<Option<Row>, Error> {
        let sql = table::fetch_sql(schema);
        let found = self.read(schema, &sql, &key).await;
        match found.map_err(|error| table::of_row(schema, &key, error))?.iter().next() {
            Some(values) => table::row_from_values(schema, values).map(Some),
            None => Ok(None),
        }
    }

    /// The position of a log, its note, and a row as of the same moment.
    pub(crate) async fn fetch_at(
        &self,
        schema: &Schema,
        key: Value,
        log: u128,
    ) -> Result<(u64, String, Option<Row>), Error> {
        let found = self.read(schema, &table::fetch_at_sql(schema, log), &key).await;
        let found = found.map_err(|error| table::of_row(schema, &key, error))?;
        let position = table::number(&found, 0, 0).unsigned_abs();
        let (own, values) = found.iter().next().map_or((&[][..], &[][..]), |values| values.split_at(2));
        let note = own.get(1).map_or("", table::text).to_owned();
        let is_there = values.get(schema.key).is_some_and(|key| !key.is_null());
        let row = is_there.then(|| table::row_from_values(schema, values)).transpose()?;
        Ok((position, note, row))
    }

    /// Runs a statement that reads one row. No row has a key that the database cannot represent.
    async fn read(&self, schema: &Schema, sql: &str, key: &Value) -> Result<Rows, Error> {
        match self.read_key(schema, sql, key).await {
            Err(error) if errors::is_foreign_text(&error) => {
                let alone = self.submit("SELECT $key::text", vec![key.clone()], false).await;
                match alone.is_err_and(|alone| errors::is_foreign_text(&alone)) {
                    true => self.read_key(schema, sql, &Value::Null).await,
                    false => Err(error),
                }
            }
            read => read,
        }
    }

    /// The text of some types depends on the settings of the session: a table with such columns is read by
    /// sessions of one kind.
    async fn read_key(&self, schema: &Schema, sql: &str, key: &Value) -> Result<Rows, Error> {
        if schema.columns.iter().all(|column| column.ty != Type::AsText) {
            return self.submit(sql, vec![key.clone()], false).await;
        }
        let (plan, key) = (self.plan(sql)?, key.clone());
        self.job(|bulk| async move { bulk.sessions.lease().await?.run(&plan.sql, &[key]).await }).await
    }

    pub(crate) async fn count(&self, schema: &Schema) -> Result<u64, Error> {
        let sql = format!("SELECT count(*) FROM {}", sql::quoted(&schema.name));
        let rows = self.submit(&sql, Vec::new(), false).await?;
        Ok(table::number(&rows, 0, 0).unsigned_abs())
    }

    /// The count stored by the last ANALYZE, VACUUM or CREATE INDEX. A table that none of them has processed
    /// has -1, up to PostgreSQL 13 also 0.
    pub(crate) async fn rows_estimated(&self, schema: &Schema) -> Result<Option<u64>, Error> {
        let sql = "SELECT coalesce(max(reltuples), -1)::int8 FROM pg_class WHERE oid = to_regclass($name)";
        let name = Value::Text(sql::quoted(&schema.name).into());
        let rows = self.submit(sql, vec![name], false).await?;
        Ok(u64::try_from(table::number(&rows, 0, 0)).ok().filter(|rows| *rows > 0))
    }
}

/// Whether a statement calls, by name, a VOLATILE function that somebody has made in SQL or in a language of
/// functions. Such a statement is not tried as a read first: a function that catches every error would catch
/// the server's refusal to write, and seem to have succeeded. Functions in C are tried.
async fn calls_volatile(session: &mut Session, sql: &str) -> Result<bool, Error> {
    let calls = r#"SELECT EXISTS (SELECT FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
         WHERE p.provolatile = 'v' AND p.oid >= 16384 AND l.lanname NOT IN ('internal', 'c') AND lower(p.proname) = ANY
         (SELECT lower(called[1]) FROM regexp_matches($1, '([[:alnum:]_$]+)"?\s*\(', 'g') AS called))"#;
    let found = session.run(calls, &[Value::Text(sql.into())]).await?;
    Ok(found.values == [Value::Bool(true)])
}

async fn sweep(queue: Arc<StatementQueues>) {
    loop {
        tokio::time::sleep(Duration::from_millis(SWEEP_MS)).await;
        queue.sweep();
    }
}

async fn ask(connector: &Connector) -> Result<ServerFacts, Error> {
    let session = connector.connect(Role::Bulk).await.map_err(errors::at_open)?;
    let sql = "SELECT current_setting('max_connections')::int, current_setting('superuser_reserved_connections')::int, \
         current_setting('synchronous_commit'), current_setting('server_version_num')::int, current_setting('server_version')";
    let row = session.answer(session.client.simple_query(sql)).await?.map_err(errors::map)?;
    let row = row.iter().find_map(|message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    let text = |index: usize| row.and_then(|row| row.get(index)).unwrap_or_default();
    let number = |index: usize| text(index).parse::<usize>().unwrap_or_default();
    if number(3) < OLDEST_SERVER {
        let message =
            format!("{} runs PostgreSQL {}; 12 or newer is needed", connector.settings.shown(), text(4));
        return Err(Error::new(Kind::Url, message));
    }
    let is_asynchronous = matches!(text(2), "off" | "local");
    Ok(ServerFacts { connections: number(0).saturating_sub(number(1)), is_asynchronous })
}

/// The oldest supported version that has the features used here (`server_version_num`).
const OLDEST_SERVER: usize = 120_000;

/// As many connections as requested, or as fit beside what must be left to other clients.
fn pool_size(settings: &Settings, facts: &ServerFacts) -> Result<usize, Error> {
    let wanted = settings.pool_wanted();
    let most = facts.connections.saturating_sub(CONNECTIONS_LEFT);
    if settings.pooler == url::Pooler::Transaction {
        // The pooler limits its own clients; the server behind it would report its own limit, not the
        // pooler's.
        return Ok(wanted);
    }
    if wanted <= most {
        return Ok(wanted);
    }
    if settings.pool_size.is_some() || most < POOL_MIN {
        let message = format!(
            "{} allows {} connections, {CONNECTIONS_LEFT} of which are left to others: pool_size={wanted} does not fit; raise \
             max_connections, or lower pool_size",
            settings.shown(),
            facts.connections
        );
        return Err(Error::new(Kind::Url, message));
    }
    Ok(most)
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.queue.close();
        self.bulk.sessions.close();
        for mut thread in self.threads.lock().drain(..) {
            drop(thread.stop.take());
            // A thread that panicked has reported that; nothing is left to close.
            let _ = thread.thread.join();
        }
    }
}
