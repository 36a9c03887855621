//! One page of changes and their present rows, in one read transaction.

use super::shape::{Shape, TABLES};
use crate::limits::{FOLLOW_COUNT_MS, FOLLOW_PAGE};
use crate::sqlite::errors::map;
use crate::sqlite::positions::{has_table, log_text, note, position};
use crate::sqlite::scan::row_of;
use crate::sqlite::schema::quoted;
use crate::sqlite::types;
use crate::{Error, Follow, Followed, FollowedRow, Kind, TableTrouble};
use forebay_value::{Need, Value};
use rusqlite::{Connection, OptionalExtension};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The progress of a follower. A poll returns a new cursor, which applies once its caller has what was found.
#[derive(Debug, Clone, Default)]
pub(super) struct Cursor {
    /// The last change read.
    pub(super) seq: i64,
    /// The file's schema version when the tables were last compared with their shapes.
    pub(super) schema_version: i64,
    /// The tables as they were looked at last.
    pub(super) tables: Vec<Tracked>,
    /// Tables whose rows are to be counted: some have changed, or memory may be that of a checkpoint.
    pub(super) uncounted: BTreeSet<usize>,
    /// When rows were last counted.
    pub(super) counted_at: Option<Instant>,
    /// The connection's `data_version` before the last poll that found nothing more; `None`: the next poll
    /// reads.
    pub(super) data_version: Option<i64>,
    /// The log's position in the last snapshot.
    pub(super) position: Option<u64>,
    /// The drain's note beside the position.
    pub(super) note: String,
}

/// Why a table cannot be followed.
#[derive(Debug, Clone)]
pub(super) struct Trouble {
    pub(super) why: Arc<str>,
    /// What needed each column then.
    pub(super) needs: Vec<Need>,
}

/// A table that is to be followed, as far as it is.
#[derive(Debug, Clone)]
pub(super) struct Tracked {
    pub(super) shape: Shape,
    /// Why it cannot be followed at present.
    pub(super) trouble: Option<Trouble>,
    /// Whether rows may be removed without a report, so that they are counted after a change.
    pub(super) is_counted: bool,
}

pub(super) fn troubles(tables: &[Tracked]) -> Vec<TableTrouble> {
    let troubles = tables.iter().enumerate().filter_map(|(table, tracked)| {
        Some(TableTrouble { table, why: tracked.trouble.as_ref()?.why.clone(), is_followed: false })
    });
    troubles.collect()
}

/// Whether a table that could not be followed is to be looked at again, because other columns are needed now.
fn is_retried(follow: &Follow, tracked: &Tracked) -> bool {
    tracked.trouble.as_ref().is_some_and(|trouble| trouble.needs != follow.schema.presence.needs())
}

/// The result of reading a page.
pub(super) enum Read {
    /// The page, and the follower's progress once it is taken.
    Page(Box<(Followed, Cursor)>),
    /// Unread changes may be lost.
    Lost,
    /// These tables have other shapes than before.
    Altered(Vec<usize>),
}

/// The integer result of a statement without parameters.
pub(super) fn number(connection: &Connection, sql: &str) -> Result<i64, Error> {
    connection
        .prepare_cached(sql)
        .and_then(|mut statement| statement.query_row([], |row| row.get(0)))
        .map_err(map)
}

/// Reads one page after `cursor`.
pub(super) fn read(
    connection: &Connection,
    log: u128,
    follows: &[Follow],
    cursor: &Cursor,
    wanted: &[(usize, Value)],
) -> Result<Read, Error> {
    // Before the snapshot: a commit in between is found by the next poll.
    let data_version = number(connection, "PRAGMA data_version")?;
    let is_counting = !cursor.uncounted.is_empty() && cursor.may_count();
    let retried = follows.iter().zip(&cursor.tables).map(|(follow, tracked)| is_retried(follow, tracked));
    let retried: Vec<usize> =
        retried.enumerate().filter_map(|(index, is_retried)| is_retried.then_some(index)).collect();
    if !retried.is_empty() {
        return Ok(Read::Altered(retried));
    }
    if cursor.data_version == Some(data_version) && wanted.is_empty() && !is_counting {
        let troubles = troubles(&cursor.tables);
        let (position, note) = (cursor.position, cursor.note.clone());
        let found = Followed { position, note, troubles, ..Followed::default() };
        return Ok(Read::Page(Box::new((found, cursor.clone()))));
    }
    connection.execute_batch("BEGIN").map_err(map)?;
    let read = within(connection, log, follows, cursor, wanted);
    // The transaction only read; when this fails the connection is closed.
    connection.execute_batch("COMMIT").map_err(map)?;
    let mut read = read?;
    if let Read::Page(page) = &mut read {
        page.1.data_version = (!page.0.more).then_some(data_version);
    }
    Ok(read)
}

fn within(
    connection: &Connection,
    log: u128,
    follows: &[Follow],
    cursor: &Cursor,
    wanted: &[(usize, Value)],
) -> Result<Read, Error> {
    if !is_known(connection, log)? || last_seq(connection)? < cursor.seq {
        return Ok(Read::Lost);
    }
    let schema_version = number(connection, "PRAGMA schema_version")?;
    if schema_version != cursor.schema_version {
        let mut altered = Vec::new();
        for (index, follow) in follows.iter().enumerate() {
            if Shape::of(connection, &follow.schema.name)? != cursor.tables[index].shape {
                altered.push(index);
            }
        }
        if !altered.is_empty() {
            return Ok(Read::Altered(altered));
        }
    }
    let mut page = Page {
        follows,
        tables: &cursor.tables,
        found: Followed::default(),
        places: HashMap::new(),
        changed: BTreeSet::new(),
    };
    for (table, key) in wanted.iter().filter(|(table, _)| cursor.tables[*table].trouble.is_none()) {
        let place = page.place(*table, key.clone());
        page.found.rows[place].wanted = true;
    }
    let seq = page.changes(connection, cursor.seq)?;
    for row in &mut page.found.rows {
        let schema = &follows[row.table].schema;
        match row_of(connection, schema, row.key.as_ref()) {
            Ok(found) => row.row = found,
            Err(error) if *error.kind() == Kind::Unfit => row.unfit = Some(error.to_string().into()),
            Err(error) => return Err(error.context(format!("reading table {}", schema.name))),
        }
    }
    let (position, note) = (position(connection, log)?, note(connection, log)?);
    (page.found.position, page.found.note) = (position, note.clone());
    page.found.troubles = troubles(&cursor.tables);
    let (mut found, changed) = (page.found, page.changed);
    let mut next = Cursor { seq, schema_version, data_version: None, position, note, ..cursor.clone() };
    next.uncounted.extend(changed.into_iter().filter(|table| cursor.tables[*table].is_counted));
    if !found.more && next.may_count() {
        next.count(connection, follows, &mut found)?;
    }
    Ok(Read::Page(Box::new((found, next))))
}

impl Cursor {
    fn may_count(&self) -> bool {
        self.counted_at.is_none_or(|at| at.elapsed() > Duration::from_millis(FOLLOW_COUNT_MS))
    }

    /// Counts the rows that are to be counted. A table that is gone is read again when it is back.
    fn count(
        &mut self,
        connection: &Connection,
        follows: &[Follow],
        found: &mut Followed,
    ) -> Result<(), Error> {
        let uncounted = std::mem::take(&mut self.uncounted).into_iter();
        for table in uncounted.filter(|table| self.tables[*table].is_counted) {
            let sql = format!("SELECT count(*) FROM {}", quoted(&follows[table].schema.name));
            found.counts.push((table, number(connection, &sql)?.unsigned_abs()));
            self.counted_at = Some(Instant::now());
        }
        Ok(())
    }
}

/// Whether the follower has reported within half an hour: then the triggers have reported everything to it
/// since.
pub(super) fn is_known(connection: &Connection, log: u128) -> Result<bool, Error> {
    for table in TABLES {
        if !has_table(connection, table).map_err(map)? {
            return Ok(false);
        }
    }
    let sql = "SELECT 1 FROM forebay_follower WHERE log = ?1 AND updated_at > strftime('%s', 'now') - 1800";
    connection.prepare_cached(sql).and_then(|mut statement| statement.exists([log_text(log)])).map_err(map)
}

/// The last change that was reported.
pub(super) fn last_seq(connection: &Connection) -> Result<i64, Error> {
    let sql = "SELECT seq FROM sqlite_sequence WHERE name = 'forebay_change'";
    let last: Option<i64> = connection
        .prepare_cached(sql)
        .and_then(|mut statement| statement.query_row([], |row| row.get(0)).optional())
        .map_err(map)?;
    Ok(last.unwrap_or(0))
}

/// A page that is being built: each key once.
struct Page<'a> {
    follows: &'a [Follow],
    tables: &'a [Tracked],
    found: Followed,
    /// The index of each key in `found.rows`.
    places: HashMap<(usize, String), usize>,
    /// The tables of reported changes.
    changed: BTreeSet<usize>,
}

impl Page<'_> {
    fn place(&mut self, table: usize, key: Value) -> usize {
        let rows = &mut self.found.rows;
        *self.places.entry((table, format!("{key:?}"))).or_insert_with(|| {
            rows.push(FollowedRow { table, key, row: None, unfit: None, old: Vec::new(), wanted: false });
            rows.len() - 1
        })
    }

    /// Reads the changes after `seq`, a page at most; returns the last one that was taken.
    fn changes(&mut self, connection: &Connection, seq: i64) -> Result<i64, Error> {
        let sql = "SELECT seq, tbl, key, part, old FROM forebay_change WHERE seq > ?1 ORDER BY seq LIMIT ?2";
        let mut statement = connection.prepare_cached(sql).map_err(map)?;
        let mut changes = statement.query((seq, FOLLOW_PAGE as i64)).map_err(map)?;
        let (mut count, mut taken, mut last) = (0, seq, seq);
        // The previous values of the change that is being read; they may continue after the page.
        let mut parts: Vec<Value> = Vec::new();
        while let Some(change) = changes.next().map_err(map)? {
            (count, last) = (count + 1, change.get(0).map_err(map)?);
            let name: String = change.get(1).map_err(map)?;
            let place = self.follows.iter().position(|follow| follow.schema.name == name);
            let Some(table) = place.filter(|table| self.tables[*table].trouble.is_none()) else {
                // A table that another server follows, or one that cannot be followed now.
                taken = last;
                continue;
            };
            self.changed.insert(table);
            let schema = &self.follows[table].schema;
            let Some(key) = types::typed(schema.key_column().ty, change.get_ref(2).map_err(map)?)
                .filter(|key| !key.is_null())
            else {
                // A key of another type is not in memory.
                taken = last;
                continue;
            };
            if let Some(part) = change.get::<_, Option<i64>>(3).map_err(map)? {
                let part = part.unsigned_abs() as usize;
                let columns = &self.follows[table].old;
                parts.truncate(part);
                let ty = columns.get(part).map(|&column| schema.columns[column].ty);
                let old = change.get_ref(4).map_err(map)?;
                parts.push(ty.and_then(|ty| types::typed(ty, old)).unwrap_or(Value::Null));
                if parts.len() < columns.len() {
                    continue;
                }
                let place = self.place(table, key);
                self.found.rows[place].old.push(std::mem::take(&mut parts));
            } else {
                self.place(table, key);
            }
            taken = last;
        }
        self.found.more = count == FOLLOW_PAGE;
        Ok(if self.found.more { taken } else { last })
    }
}
