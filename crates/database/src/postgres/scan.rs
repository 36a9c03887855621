//! All rows of a table as of one moment: one transaction with one snapshot, a binary COPY out of it, on a
//! separate thread and connection.

use super::codec::Codec;
use super::rewritten::not_rewritten;
use super::session::{Connector, Role, Session};
use super::sql::quoted;
use super::table::{codecs, columns, row_from_bytes};
use super::{Postgres, apart, errors, positions};
use crate::limits::{FOLLOW_LOCK_WAIT_MS, SCAN_MESSAGES, SCAN_ROWS, WHOLE_TABLE_MS};
use crate::{Error, Kind, Scan, ScannedRows, UnfitRow};
use bytes::Bytes;
use forebay_value::{Row, Schema};
use futures_util::TryStreamExt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc, oneshot};

type Message = Result<ScannedRows, Error>;

/// The parameters of a scan.
struct ScanRequest {
    connector: Arc<Connector>,
    scans: Arc<Semaphore>,
    schema: Schema,
    filter: Option<String>,
    log: Option<u128>,
}

impl Postgres {
    pub(crate) fn scan(&self, schema: &Schema, filter: Option<&str>) -> mpsc::Receiver<Message> {
        self.start_scan(schema, filter, None).1
    }

    pub(crate) async fn scan_at(
        &self,
        schema: &Schema,
        filter: Option<&str>,
        log: u128,
    ) -> Result<Scan, Error> {
        let (position, rows) = self.start_scan(schema, filter, Some(log));
        match position.await {
            Ok(at) => at.map(|(position, note)| Scan { position, note, rows }),
            Err(_) => Err(Error::new(Kind::Unavailable, "the scan stopped before it began")),
        }
    }

    fn start_scan(
        &self,
        schema: &Schema,
        filter: Option<&str>,
        log: Option<u128>,
    ) -> (oneshot::Receiver<Result<At, Error>>, mpsc::Receiver<Message>) {
        let (position, position_read) = oneshot::channel();
        let (rows, rows_read) = mpsc::channel(SCAN_MESSAGES);
        let failed = rows.clone();
        let wanted = ScanRequest {
            connector: self.bulk.connector.clone(),
            scans: self.bulk.scans.clone(),
            schema: schema.clone(),
            filter: filter.map(str::to_owned),
            log,
        };
        let run = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let outcome = match runtime {
                Ok(runtime) => runtime.block_on(read_all(&wanted, position, &rows)),
                Err(source) => Err(no_thread(source)),
            };
            if let Err(error) = outcome {
                // A dropped receiver wants neither rows nor errors.
                let _ =
                    rows.blocking_send(Err(error.context(format!("reading table {}", wanted.schema.name))));
            }
        };
        if let Err(source) = std::thread::Builder::new().name("database-scan".into()).spawn(run) {
            failed.try_send(Err(no_thread(source))).expect("nothing was sent on this channel before");
        }
        (position_read, rows_read)
    }
}

fn no_thread(source: std::io::Error) -> Error {
    Error::new(Kind::Unavailable, "cannot start a thread").with_source(source)
}

/// How often a scan that had to wait for its table takes a new snapshot.
const SNAPSHOTS: usize = 5;

/// The position of the log, and its note.
type At = (Option<u64>, String);

async fn read_all(
    wanted: &ScanRequest,
    position: oneshot::Sender<Result<At, Error>>,
    rows: &mpsc::Sender<Message>,
) -> Result<(), Error> {
    // The semaphore is never closed.
    let _permit = wanted.scans.acquire().await;
    let (mut session, codecs) = match begin(wanted).await {
        Ok((session, codecs, at)) => {
            // `scan` asks for no position and has dropped the receiver.
            let _ = position.send(Ok(at));
            (session, codecs)
        }
        Err(error) => {
            let _ = position.send(Err(error.clone()));
            return Err(error);
        }
    };
    let mut from = format!("FROM {}", quoted(&wanted.schema.name));
    if let Some(filter) = &wanted.filter {
        // On a separate line, so that a comment in the filter ends. The statement is prepared first, which
        // refuses a filter that is not an expression.
        from.push_str(&format!(" WHERE (\n{filter}\n)"));
    }
    let sql = format!("SELECT {} {from}", columns(&wanted.schema));
    if wanted.filter.is_some() {
        session.prepared(&sql.as_str().into(), &[]).await?;
    }
    if session.converts {
        session.execute("SAVEPOINT whole").await?;
    }
    match copy(wanted, &mut session, &codecs, &sql, rows).await {
        Err(error) if session.converts && errors::is_unconvertible(&error) => {
            session.execute("ROLLBACK TO whole").await?;
            apart::scan(&wanted.schema, &mut session, &from, rows).await?;
        }
        copied => copied?,
    }
    if rows.is_closed() {
        // Nobody reads on; the connection ends with the session, and the COPY with it.
        return Ok(());
    }
    // Partitions are locked when they are read.
    not_rewritten(&mut session, &wanted.schema).await
}

/// Reads all rows in one stream.
async fn copy(
    wanted: &ScanRequest,
    session: &mut Session,
    codecs: &[Codec],
    sql: &str,
    rows: &mpsc::Sender<Message>,
) -> Result<(), Error> {
    let copy = format!("COPY ({sql}) TO STDOUT (FORMAT binary)");
    let stream = session.answer(session.client.copy_out(&copy)).await?.map_err(errors::map)?;
    let mut stream = pin!(stream);
    let empty = || ScannedRows { rows: Vec::with_capacity(SCAN_ROWS), unfit: Vec::new() };
    let mut batch = empty();
    let mut parts = Parts::default();
    let mut bytes = Vec::new();
    while let Some(data) = session.answer(stream.try_next()).await?.map_err(errors::map)? {
        parts.take(&data)?;
        while let Some(row) = parts.row(&wanted.schema, codecs, &mut bytes)? {
            match row {
                Ok(row) => batch.rows.push(row),
                Err(unfit) => batch.unfit.push(unfit),
            }
            if batch.len() == SCAN_ROWS {
                let full = std::mem::replace(&mut batch, empty());
                if rows.send(Ok(full)).await.is_err() {
                    return Ok(());
                }
            }
        }
    }
    if !batch.is_empty() {
        // As above: the receiver of the last rows is gone.
        let _ = rows.send(Ok(batch)).await;
    }
    Ok(())
}

async fn begin(wanted: &ScanRequest) -> Result<(Session, Vec<Codec>, At), Error> {
    let mut session = wanted.connector.connect(Role::Bulk).await?;
    let mut tries = 0;
    loop {
        tries += 1;
        let (codecs, position) = begin_in(&mut session, wanted).await?;
        match not_rewritten(&mut session, &wanted.schema).await {
            // The table was locked behind the snapshot: the next one shows what it has now.
            Err(_) if tries < SNAPSHOTS => {
                session.rollback().await;
                // To prepare a statement is what locks the table, and its types may be others.
                session.forget_all();
            }
            Err(error) => return Err(error),
            Ok(()) => {
                session.patience = Duration::from_millis(WHOLE_TABLE_MS);
                return Ok((session, codecs, position));
            }
        }
    }
}

async fn begin_in(session: &mut Session, wanted: &ScanRequest) -> Result<(Vec<Codec>, At), Error> {
    // A table that stays locked must not use up the scans of the others.
    let begin = format!(
        "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = {FOLLOW_LOCK_WAIT_MS}"
    );
    session.begin(&begin).await?;
    let position = match wanted.log {
        Some(log) => positions::noted(session, log).await?,
        None => (None, String::new()),
    };
    // Locks the table.
    let codecs = codecs(session, &wanted.schema).await?;
    Ok((codecs, position))
}

/// The bytes of a COPY, in whatever parts they arrive.
#[derive(Default)]
struct Parts {
    bytes: Vec<u8>,
    at: usize,
    has_header: bool,
}

/// Signature, flags and the length of an extension that has never been used.
const HEADER_BYTES: usize = 19;

impl Parts {
    fn take(&mut self, data: &Bytes) -> Result<(), Error> {
        self.bytes.drain(..self.at);
        self.at = 0;
        self.bytes.extend_from_slice(data);
        if !self.has_header && self.bytes.len() >= HEADER_BYTES {
            if !self.bytes.starts_with(b"PGCOPY\n\xff\r\n\0") {
                return Err(broken());
            }
            (self.has_header, self.at) = (true, HEADER_BYTES);
        }
        Ok(())
    }

    /// The next whole row, in the row format. `out` is scratch.
    fn row(
        &mut self,
        schema: &Schema,
        codecs: &[Codec],
        out: &mut Vec<u8>,
    ) -> Result<Option<Result<Row, UnfitRow>>, Error> {
        if !self.has_header {
            return Ok(None);
        }
        let mut rest = &self.bytes[self.at..];
        let Some(count) = take::<2>(&mut rest).map(i16::from_be_bytes) else {
            return Ok(None);
        };
        if count < 0 {
            // The end marker; nothing follows.
            return Ok(None);
        }
        if usize::try_from(count) != Ok(codecs.len()) {
            return Err(broken());
        }
        let mut values = Vec::with_capacity(codecs.len());
        for _ in codecs {
            let Some(length) = take::<4>(&mut rest).map(i32::from_be_bytes) else {
                return Ok(None);
            };
            values.push(match usize::try_from(length) {
                Err(_) => None,
                Ok(length) => {
                    let Some((bytes, after)) = rest.split_at_checked(length) else {
                        return Ok(None);
                    };
                    rest = after;
                    Some(bytes)
                }
            });
        }
        let row = row_from_bytes(schema, codecs, &values, out);
        self.at = self.bytes.len() - rest.len();
        Ok(Some(row))
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, after) = rest.split_first_chunk::<N>()?;
    *rest = after;
    Some(*taken)
}

fn broken() -> Error {
    Error::new(Kind::Corrupt, "PostgreSQL sent a COPY that cannot be read")
}
