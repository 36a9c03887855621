//! One connection: how it is opened, its settings, and its prepared statements.

use super::codec::{Codec, Decoded};
use super::deadline::within;
use super::errors::{self, Refused};
use super::url::{Pooler, Settings};
use super::{own_schema, sql, tls};
use crate::limits::{
    HANDSHAKE_MS, KEEPALIVE_IDLE_S, KEEPALIVE_INTERVAL_S, KEEPALIVE_PROBES, RESULT_BYTES, SERVER_GRACE_MS,
    STATEMENTS_CACHED, TCP_USER_TIMEOUT_MS,
};
use crate::spent_times::SpentTimes;
use crate::{Error, Kind, ResultColumn, Rows};
use bytes::{Bytes, BytesMut};
use forebay_value::Value;
use futures_util::TryStreamExt;
use parking_lot::Mutex;
use std::borrow::Cow;
use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::Notify;
use tokio_postgres::config::TargetSessionAttrs;
use tokio_postgres::types::{Format, FromSql, IsNull, ToSql, Type as PgType};
use tokio_postgres::{Client, CopyInSink, RowStream};
use tokio_postgres_rustls::MakeRustlsConnect;

/// The use of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Statements that look like reads: the server refuses all others.
    Reader,
    /// Statements that change something.
    Writer,
    /// Drain, seed, scans, schemas: without the server's statement timeout.
    Bulk,
}

/// Opens connections.
#[derive(Clone)]
pub(super) struct Connector {
    pub(super) settings: Settings,
    pub(super) statement_timeout_ms: u64,
    /// Whether the server's own setting would answer before a commit is durable.
    pub(super) needs_synchronous_commit: bool,
    pub(super) tls: MakeRustlsConnect,
    /// The schema of our tables ([`own_schema`]), once a connection has asked for it.
    pub(super) own: Arc<OnceLock<Arc<str>>>,
}

impl Connector {
    pub(super) fn new(settings: Settings, statement_timeout_ms: u64) -> Result<Connector, Error> {
        let tls = tls::connector(&settings)?;
        let own = settings.own_schema.as_deref().map(|own| OnceLock::from(Arc::from(own)));
        let own = Arc::new(own.unwrap_or_default());
        Ok(Connector { settings, statement_timeout_ms, needs_synchronous_commit: false, tls, own })
    }

    /// A connector for the server behind the pooler, if the URL names it.
    pub(super) fn direct(&self) -> Result<Option<Connector>, Error> {
        let Some(settings) = self.settings.direct.as_deref() else { return Ok(None) };
        let direct = Connector::new(settings.clone(), self.statement_timeout_ms)?;
        let (needs_synchronous_commit, own) = (self.needs_synchronous_commit, self.own.clone());
        Ok(Some(Connector { needs_synchronous_commit, own, ..direct }))
    }

    /// Opens a connection; its driver runs on the current runtime.
    pub(super) async fn connect(&self, role: Role) -> Result<Session, Error> {
        let mut config = self.settings.config.clone();
        if self.settings.pooler == Pooler::None {
            config.options(self.server_settings(role));
        }
        let hosts = config.get_hosts().len().max(1) as u32;
        let patience = config.get_connect_timeout().copied().unwrap_or_default() * hosts
            + Duration::from_millis(HANDSHAKE_MS);
        let Some(connected) = within(patience, config.connect(self.tls.clone())).await else {
            let message = format!("cannot connect to {}: it does not answer", self.settings.shown());
            return Err(Error::new(Kind::Unavailable, message));
        };
        let (client, connection) = connected.map_err(|error| self.settings.explained(error))?;
        let encoding = connection.parameter("server_encoding");
        let checks_nothing = encoding == Some("SQL_ASCII");
        let converts = !checks_nothing && encoding != Some("UTF8");
        let ended = Arc::new(Notify::new());
        let ending = ended.clone();
        tokio::spawn(async move {
            // The request that waits on the connection gets its error.
            connection.await.ok();
            ending.notify_one();
        });
        if role == Role::Reader && self.must_take_writes() && self.settings.pooler == Pooler::None {
            self.set(&client, "SET default_transaction_read_only = on").await?;
        }
        if checks_nothing && self.settings.pooler == Pooler::None {
            // Otherwise the server refuses a whole result because of one text that is not UTF-8.
            self.set(&client, "SET client_encoding = 'SQL_ASCII'").await?;
        }
        let own = self.own_schema(&client).await?;
        Ok(Session {
            client,
            own,
            converts,
            ended,
            pooler: self.settings.pooler,
            statements: HashMap::new(),
            in_transaction: false,
            patience: self.patience(),
            is_deaf: AtomicBool::new(false),
            spent: Mutex::new(SpentTimes::new(0)),
        })
    }

    /// The schema of our tables: for all connections the one that the first found, whatever becomes of the
    /// search path meanwhile.
    async fn own_schema(&self, client: &Client) -> Result<Arc<str>, Error> {
        if let Some(own) = self.own.get() {
            return Ok(own.clone());
        }
        let asked = within(Duration::from_millis(HANDSHAKE_MS), own_schema::ask(client)).await;
        let unanswered = || Error::new(Kind::Unavailable, "a new connection does not answer");
        let own = asked.ok_or_else(unanswered)?.map_err(|error| self.settings.explained(error))?;
        Ok(self.own.get_or_init(|| own).clone())
    }

    async fn set(&self, client: &Client, sql: &str) -> Result<(), Error> {
        let set = within(Duration::from_millis(HANDSHAKE_MS), client.batch_execute(sql)).await;
        let unanswered = || Error::new(Kind::Unavailable, "a new connection does not answer");
        set.ok_or_else(unanswered)?.map_err(|error| self.settings.explained(error))
    }

    /// Whether connecting checks that each host accepts writes. A session that is read-only by its own
    /// settings would look like a standby: it applies these settings afterwards.
    fn must_take_writes(&self) -> bool {
        self.settings.config.get_target_session_attrs() == TargetSessionAttrs::ReadWrite
    }

    /// How long a statement with a timeout on the server may stay unanswered.
    pub(super) fn patience(&self) -> Duration {
        Duration::from_millis(self.statement_timeout_ms + SERVER_GRACE_MS)
    }

    fn server_settings(&self, role: Role) -> String {
        // So that a server whose client has vanished releases its locks; for TCP only.
        let mut options = format!(
            "-c tcp_user_timeout={TCP_USER_TIMEOUT_MS} -c tcp_keepalives_idle={KEEPALIVE_IDLE_S} \
             -c tcp_keepalives_interval={KEEPALIVE_INTERVAL_S} -c tcp_keepalives_count={KEEPALIVE_PROBES} "
        );
        if let Some(own) = self.settings.config.get_options() {
            options += &format!("{own} ");
        }
        let timeout = self.statement_timeout_ms;
        options += &match role {
            Role::Reader if !self.must_take_writes() => {
                format!("-c statement_timeout={timeout} -c default_transaction_read_only=on")
            }
            Role::Reader | Role::Writer => format!("-c statement_timeout={timeout}"),
            // Defaults and times are read as text from catalogues: in UTC. Statements about the catalogue
            // look dear to the planner: to compile one took 25 ms of a batch.
            Role::Bulk => "-c statement_timeout=0 -c TimeZone=UTC -c extra_float_digits=1 -c jit=off".into(),
        };
        if self.needs_synchronous_commit && role != Role::Reader {
            options += " -c synchronous_commit=on";
        }
        options
    }

    /// Asks the server to cancel what a session is running.
    pub(super) async fn cancel(&self, token: tokio_postgres::CancelToken) {
        // When the server cannot be reached, its statement timeout ends the statement.
        within(Duration::from_millis(HANDSHAKE_MS), token.cancel_query(self.tls.clone())).await;
    }
}

/// An open connection.
pub(super) struct Session {
    pub(super) client: Client,
    /// The schema of our tables.
    pub(super) own: Arc<str>,
    /// Whether the server converts texts to UTF-8, and fails when it cannot.
    pub(super) converts: bool,
    /// Notified when the connection is closed.
    pub(super) ended: Arc<Notify>,
    pub(super) pooler: Pooler,
    statements: HashMap<Arc<str>, Arc<Prepared>>,
    pub(super) in_transaction: bool,
    /// How long the server may take to answer.
    pub(super) patience: Duration,
    /// The server took longer: the state of the connection is no longer known.
    is_deaf: AtomicBool,
    /// How long the changes of the batch in hand take.
    pub(super) spent: Mutex<SpentTimes>,
}

/// A statement, prepared on one connection.
pub(super) struct Prepared {
    /// None behind a pooler, where nothing may outlive a transaction: the statement is sent in full each
    /// time, with the types that were determined once.
    statement: Option<tokio_postgres::Statement>,
    sql: Arc<str>,
    pub(super) params: Vec<Codec>,
    /// The types of its parameters.
    types: Vec<PgType>,
    pub(super) columns: Arc<[ResultColumn]>,
    pub(super) readers: Vec<Codec>,
}

/// How a statement failed.
pub(super) enum Failure {
    /// The server reported an error, or the connection was lost.
    Server(tokio_postgres::Error),
    /// The result cannot be read.
    Ours(Error),
}

impl Failure {
    /// Whether the server has answered with an error.
    pub(super) fn is_of_server(&self) -> bool {
        matches!(self, Failure::Server(error) if error.as_db_error().is_some())
    }

    pub(super) fn into_error(self) -> Error {
        match self {
            Failure::Server(error) => errors::map(error),
            Failure::Ours(error) => error,
        }
    }
}

impl Session {
    pub(super) fn is_alive(&self) -> bool {
        !self.client.is_closed() && !self.is_deaf.load(Ordering::Relaxed)
    }

    /// The answer to a message that was sent; [`Kind::Timeout`] when it does not arrive, and the connection
    /// is not used again.
    pub(super) async fn answer<T>(&self, work: impl Future<Output = T>) -> Result<T, Error> {
        if !self.is_deaf.load(Ordering::Relaxed)
            && let Some(answered) = within(self.patience, work).await
        {
            return Ok(answered);
        }
        self.is_deaf.store(true, Ordering::Relaxed);
        Err(Error::new(Kind::Timeout, "PostgreSQL did not answer in time; its connection was given up"))
    }

    /// Prepares a statement, or returns the prepared one.
    pub(super) async fn prepared(
        &mut self,
        sql: &Arc<str>,
        params: &[String],
    ) -> Result<Arc<Prepared>, Error> {
        if let Some(prepared) = self.statements.get(sql) {
            return Ok(prepared.clone());
        }
        let prepared = Arc::new(self.prepare(sql, params).await?);
        if self.statements.len() >= STATEMENTS_CACHED {
            self.statements.clear();
        }
        self.statements.insert(sql.clone(), prepared.clone());
        Ok(prepared)
    }

    /// Has the server prepare a statement, and returns the result of `take`. Behind a pooler, `take` must not
    /// retain it: it is removed from the server's connection in the same transaction, because the next client
    /// of that connection may have a statement of the same name.
    pub(super) async fn look_at<T>(
        &self,
        sql: &str,
        take: impl FnOnce(tokio_postgres::Statement) -> T,
    ) -> Result<T, tokio_postgres::Error> {
        let in_own_transaction = self.pooler == Pooler::Transaction && !self.in_transaction;
        if in_own_transaction {
            self.client.batch_execute("BEGIN").await?;
        }
        let taken = self.client.prepare(sql).await.map(take);
        if in_own_transaction {
            self.client.batch_execute("ROLLBACK").await?;
        }
        taken
    }

    async fn prepare(&self, sql: &Arc<str>, params: &[String]) -> Result<Prepared, Error> {
        let sql = &match own_schema::named(&self.own, sql) {
            Cow::Borrowed(_) => sql.clone(),
            Cow::Owned(sql) => sql.into(),
        };
        let looking = self.look_at(sql, |statement| self.understand(statement, sql, params));
        self.answer(looking).await?.map_err(|error| {
            let position = errors::position(&error);
            errors::with_place(errors::map(error), sql, position)
        })?
    }

    fn understand(
        &self,
        statement: tokio_postgres::Statement,
        sql: &Arc<str>,
        params: &[String],
    ) -> Result<Prepared, Error> {
        let understood = |codec: Option<Codec>, ty: &PgType, what: &dyn Fn() -> String| {
            codec.ok_or_else(|| {
                let message = format!(
                    "{} has the type {}, which is not understood; cast it, as in x::text",
                    what(),
                    ty.name()
                );
                Error::new(Kind::Schema, message)
            })
        };
        let params = statement.params().iter().enumerate().map(|(index, ty)| {
            let name = params.get(index).map_or("", String::as_str);
            understood(Codec::of_parameter(ty), ty, &|| format!("the parameter ${name}"))
        });
        let params = params.collect::<Result<Vec<_>, _>>()?;
        let columns = statement.columns();
        let readers = columns.iter().map(|column| {
            let ty = column.type_();
            understood(Codec::of(ty), ty, &|| format!("the column {}", column.name()))
        });
        let readers = readers.collect::<Result<Vec<_>, _>>()?;
        let columns = columns.iter().zip(&readers).map(|(column, reader)| ResultColumn {
            name: column.name().to_owned(),
            ty: Some(reader.value_type()),
        });
        let columns = columns.collect();
        let types = statement.params().to_vec();
        let statement = (self.pooler == Pooler::None).then_some(statement);
        Ok(Prepared { statement, types, sql: sql.clone(), params, columns, readers })
    }

    /// Forgets a statement that the server has forgotten, or whose tables have changed.
    pub(super) fn forget(&mut self, sql: &str) {
        self.statements.remove(sql);
    }

    /// Forgets all prepared statements.
    pub(super) fn forget_all(&mut self) {
        self.statements.clear();
    }

    /// Starts a COPY into a table. For a table that stays, the statement is prepared, which saves a round
    /// trip the next time.
    pub(super) async fn copy_in(&mut self, sql: &str, stays: bool) -> Result<CopyInSink<Bytes>, Error> {
        let kept = if stays { self.prepared(&sql.into(), &[]).await?.statement.clone() } else { None };
        let begun = async {
            match kept {
                Some(statement) => self.client.copy_in(&statement).await,
                None => self.client.copy_in(sql).await,
            }
        };
        self.answer(begun).await?.map_err(errors::map)
    }

    /// Runs SQL that has no parameters and no rows.
    pub(super) async fn execute(&self, sql: &str) -> Result<(), Error> {
        let sql = own_schema::named(&self.own, sql);
        self.answer(self.client.batch_execute(&sql)).await?.map_err(errors::map)
    }

    /// The same; returns how many rows it changed.
    pub(super) async fn execute_counted(&self, sql: &str) -> Result<u64, Error> {
        let messages = self.answer(self.client.simple_query(sql)).await?.map_err(errors::map)?;
        let changed = messages.iter().map(|message| match message {
            tokio_postgres::SimpleQueryMessage::CommandComplete(changed) => *changed,
            _ => 0,
        });
        Ok(changed.sum())
    }

    /// Runs one statement with `$1` parameters.
    pub(super) async fn run(&mut self, sql: &str, params: &[Value]) -> Result<Rows, Error> {
        let prepared = self.prepared(&sql.into(), &[]).await?;
        self.answer(fly(&self.client, &prepared, params, &[])).await?.map_err(Failure::into_error)
    }
}

/// Runs a prepared statement. The first poll sends it; so futures that are polled in turn form one flight.
pub(super) async fn fly(
    client: &Client,
    prepared: &Prepared,
    params: &[Value],
    names: &[String],
) -> Result<Rows, Failure> {
    if params.len() != prepared.params.len() {
        let message = format!("{} values for {} parameters", params.len(), prepared.params.len());
        return Err(Failure::Ours(Error::new(Kind::Type, message)));
    }
    let bound = params.iter().enumerate().map(|(index, value)| Param {
        codec: &prepared.params[index],
        value,
        name: names.get(index).map(String::as_str),
    });
    let rows = match &prepared.statement {
        Some(statement) => client.query_raw(statement, bound).await,
        None => {
            let typed: Vec<_> = bound.zip(prepared.types.iter().cloned()).collect();
            client.query_typed_raw(&prepared.sql, typed).await
        }
    };
    collect(prepared, rows.map_err(Failure::Server)?).await
}

async fn collect(prepared: &Prepared, rows: RowStream) -> Result<Rows, Failure> {
    let mut rows = pin!(rows);
    let mut result = Rows { columns: prepared.columns.clone(), values: Vec::new(), changed: 0 };
    let mut bytes = 0;
    while let Some(row) = rows.try_next().await.map_err(Failure::Server)? {
        for (index, reader) in prepared.readers.iter().enumerate() {
            let Raw(raw) = row.try_get(index).map_err(Failure::Server)?;
            bytes += size_of::<Value>() + raw.map_or(0, <[u8]>::len);
            let value = match raw {
                None => Value::Null,
                Some(raw) => reader.decode(raw).map(Decoded::into_owned).ok_or_else(|| {
                    let name = &prepared.columns[index].name;
                    let message = format!("column {name} holds a value that cannot be shown");
                    Failure::Ours(Error::new(Kind::Unfit, message).with_column(Some(name.clone())))
                })?,
            };
            result.values.push(value);
        }
        if bytes > RESULT_BYTES {
            let message = format!("the result is larger than {} MiB; add a LIMIT", RESULT_BYTES >> 20);
            return Err(Failure::Ours(Error::new(Kind::TooLarge, message)));
        }
    }
    result.changed = rows.rows_affected().unwrap_or(0);
    Ok(result)
}

/// A column's bytes as received.
struct Raw<'a>(Option<&'a [u8]>);

impl<'a> FromSql<'a> for Raw<'a> {
    fn from_sql(_: &PgType, raw: &'a [u8]) -> Result<Raw<'a>, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Raw(Some(raw)))
    }

    fn from_sql_null(_: &PgType) -> Result<Raw<'a>, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Raw(None))
    }

    fn accepts(_: &PgType) -> bool {
        true
    }
}

/// A value with the codec of its parameter.
#[derive(Debug)]
struct Param<'a> {
    codec: &'a Codec,
    value: &'a Value,
    name: Option<&'a str>,
}

impl ToSql for Param<'_> {
    fn to_sql(
        &self,
        _: &PgType,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        if self.value.is_null() {
            return Ok(IsNull::Yes);
        }
        self.codec.encode(self.value.as_ref(), out).map_err(|what| Refused {
            message: format!(
                "{} {what}",
                self.name.map_or_else(|| "a value".into(), |name| format!("`{name}`"))
            ),
            column: self.name.map(str::to_owned),
        })?;
        Ok(IsNull::No)
    }

    fn accepts(_: &PgType) -> bool {
        true
    }

    fn encode_format(&self, _: &PgType) -> Format {
        if *self.codec == Codec::AsText { Format::Text } else { Format::Binary }
    }

    tokio_postgres::types::to_sql_checked!();
}

/// The columns of a table, or those named, as an SQL list.
pub(super) fn column_list<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    names.into_iter().map(sql::quoted).collect::<Vec<_>>().join(", ")
}
