//! One page of a pass: what has changed and how it is now, in one snapshot.

use super::cursor::{Cursor, Link, Pass};
use super::snapshot::Snapshot;
use crate::limits::FOLLOW_PAGE;
use crate::postgres::bulk::array;
use crate::postgres::errors::is_missing_table;
use crate::postgres::positions::{integer, log_text};
use crate::postgres::session::Session;
use crate::postgres::sql::{literal, quoted};
use crate::postgres::table::{columns, key_array, row_from_values, text};
use crate::{Error, Followed, FollowedRow, Kind, Rows};
use forebay_value::{Row, Schema, Value, ValueRef, from_text};
use std::collections::HashMap;

/// What reading a page came to.
pub(super) enum Read {
    /// The page, and how far the follower is when it is taken.
    Page(Box<(Followed, Cursor)>),
    /// What was not yet read may be gone.
    Lost,
    /// This table's triggers are not there, or it is another table.
    Untold(usize),
}

/// What is read first in each snapshot.
pub(super) struct Head {
    pub(super) snapshot: Snapshot,
    pub(super) server: String,
    pub(super) shapes: Vec<String>,
    position: Option<u64>,
    note: String,
    is_known: bool,
}

/// Everything is found by an index: the table of changes grows and shrinks faster than its statistics.
const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL statement_timeout = 0; \
     SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL max_parallel_workers_per_gather = 0";

/// Reads the head, in the transaction that is open.
pub(super) async fn head(session: &mut Session, home: &str, link: &Link) -> Result<Head, Error> {
    let sql = format!(
        "SELECT pg_current_snapshot()::text, p.position, coalesce(p.note, ''), \
         EXISTS (SELECT FROM {home}.forebay_follower WHERE log = $1 AND updated_at > clock_timestamp() - interval '30 minutes'), \
         (SELECT system_identifier::text FROM pg_control_system()) || ' ' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8), \
         ARRAY(SELECT concat_ws(' ', coalesce(c.oid, 0), (SELECT count(*) FROM pg_trigger t WHERE t.tgrelid = c.oid \
           AND t.tgname IN ('forebay_insert', 'forebay_update', 'forebay_delete', 'forebay_truncate') AND t.tgenabled IN ('O', 'A')), c.relfilenode) \
           FROM jsonb_array_elements_text($2::text::jsonb) WITH ORDINALITY AS f(name, n) \
           LEFT JOIN pg_class c ON c.oid = to_regclass(f.name) ORDER BY f.n) \
         FROM (SELECT) one LEFT JOIN forebay_position p ON p.log = $1"
    );
    let names: Vec<String> = link.follows.iter().map(|follow| quoted(&follow.schema.name)).collect();
    let names = serde_json::to_string(&names).expect("texts are JSON");
    let found = session.run(&sql, &[log_text(link.log), Value::Text(names.into())]).await?;
    let [snapshot, position, note, is_known, server, shapes] = &found.values[..] else {
        return Err(Error::new(Kind::Corrupt, "PostgreSQL gave no snapshot"));
    };
    Ok(Head {
        snapshot: Snapshot::parse(text(snapshot))?,
        position: (!position.is_null()).then(|| integer(position).unsigned_abs()),
        note: text(note).into(),
        is_known: *is_known == Value::Bool(true),
        server: text(server).into(),
        shapes: serde_json::from_str(text(shapes)).map_err(|error| {
            Error::new(Kind::Corrupt, "PostgreSQL's array of texts cannot be read").with_source(error)
        })?,
    })
}

/// Reads one page after `cursor`.
pub(super) async fn read(
    session: &mut Session,
    link: &Link,
    cursor: &Cursor,
    wanted: &[(usize, Value)],
) -> Result<Read, Error> {
    session.begin(BEGIN).await?;
    let read = match head(session, &cursor.home, link).await {
        Ok(head) => within(session, link, cursor, wanted, head).await,
        Err(error) if is_missing_table(&error) => {
            session.rollback().await;
            session.forget_all();
            return Ok(Read::Lost);
        }
        Err(error) => Err(error),
    };
    let read = session.end(read).await;
    #[cfg(feature = "planted")]
    let read = match read {
        Ok(Read::Page(mut page)) if crate::planted_bugs::is("position-from-the-commit") => {
            // The window is held open, as a busy server does.
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            let now = head(session, &cursor.home, link).await?;
            (page.0.position, page.0.note) = (now.position, now.note);
            Ok(Read::Page(page))
        }
        read => read,
    };
    read
}

async fn within(
    session: &mut Session,
    link: &Link,
    cursor: &Cursor,
    wanted: &[(usize, Value)],
    head: Head,
) -> Result<Read, Error> {
    if !head.is_known || head.server != cursor.server || head.snapshot.xmax < cursor.seen.xmax {
        return Ok(Read::Lost);
    }
    let is_told = |index: usize| head.shapes[index].starts_with(&format!("{} 4 ", cursor.tables[index].oid));
    if let Some(index) = (0..link.follows.len()).find(|&index| !is_told(index)) {
        return Ok(Read::Untold(index));
    }
    let mut page = Page::new(link, wanted);
    let changed = |index: &usize| head.shapes[*index] != cursor.shapes[*index];
    page.found.reload.extend((0..link.follows.len()).filter(changed));
    let first = cursor.pass.as_ref().map_or(&head.snapshot, |pass| &pass.snapshot);
    let changes = changes(session, cursor, first.xmax).await?;
    for change in changes.iter() {
        page.told(cursor, change)?;
    }
    page.previous(session, link, cursor).await?;
    page.rows(session, link).await?;
    let mut next = cursor.clone();
    (page.found.position, page.found.note) = (head.position, head.note);
    page.found.more = changes.len() == FOLLOW_PAGE;
    match changes.iter().last() {
        Some([Value::Bigint(xid), Value::Bigint(id), ..]) if page.found.more => {
            next.pass = Some(Pass { snapshot: first.clone(), after: (*xid, *id) });
        }
        _ => (next.seen, next.pass) = (first.clone(), None),
    }
    next.shapes = head.shapes;
    Ok(Read::Page(Box::new((page.found, next))))
}

/// The next changes that are visible now and were not in `seen`, of transactions below `xmax`.
async fn changes(session: &mut Session, cursor: &Cursor, xmax: i64) -> Result<Rows, Error> {
    let table = format!("{}.forebay_change", cursor.home);
    let columns = "c.xid, c.id, c.relation, c.key, c.old";
    let sql = format!(
        "SELECT xid, id, relation, key, old::text FROM ( \
           SELECT {columns} FROM unnest($1::int8[], $2::int8[]) AS r (xid, after) CROSS JOIN LATERAL \
             (SELECT * FROM {table} c WHERE c.xid = r.xid AND c.id > r.after ORDER BY c.id LIMIT {FOLLOW_PAGE}) c \
           UNION ALL (SELECT {columns} FROM {table} c WHERE (c.xid, c.id) > ($3::int8, $4::int8) AND c.xid < $5::int8 \
             ORDER BY c.xid, c.id LIMIT {FOLLOW_PAGE}) \
         ) c ORDER BY xid, id LIMIT {FOLLOW_PAGE}"
    );
    let after = cursor.pass.as_ref().map_or((0, 0), |pass| pass.after);
    let ran: Vec<i64> = cursor.seen.running.iter().copied().filter(|&xid| xid >= after.0).collect();
    let from = ran.iter().map(|&xid| ValueRef::Bigint(if xid == after.0 { after.1 } else { 0 }));
    let start = after.max((cursor.seen.xmax, 0));
    let params = [
        array(ran.iter().map(|&xid| ValueRef::Bigint(xid))),
        array(from),
        Value::Bigint(start.0),
        Value::Bigint(start.1),
        Value::Bigint(xmax),
    ];
    session.run(&sql, &params).await
}

/// What is being put together: each key once.
struct Page {
    found: Followed,
    /// Where each key is in `found.rows`, by table.
    places: Vec<HashMap<String, usize>>,
    /// Previous values as the triggers wrote them: the row's place, and the text.
    previous: Vec<(usize, Value)>,
}

impl Page {
    fn new(link: &Link, wanted: &[(usize, Value)]) -> Page {
        let places = link.follows.iter().map(|_| HashMap::new()).collect();
        let mut page = Page { found: Followed::default(), places, previous: Vec::new() };
        for (table, key) in wanted {
            let place = page.place(*table, key_text(key), || Ok(key.clone()));
            let place = place.expect("a key that is given is a key");
            page.found.rows[place].wanted = true;
        }
        page
    }

    fn place(
        &mut self,
        table: usize,
        text: String,
        key: impl FnOnce() -> Result<Value, Error>,
    ) -> Result<usize, Error> {
        if let Some(place) = self.places[table].get(&text) {
            return Ok(*place);
        }
        let (key, place) = (key()?, self.found.rows.len());
        self.places[table].insert(text, place);
        self.found.rows.push(FollowedRow {
            table,
            key,
            row: None,
            unfit: None,
            old: Vec::new(),
            wanted: false,
        });
        Ok(place)
    }

    /// Takes a change: (xid, id, relation, key, old).
    fn told(&mut self, cursor: &Cursor, change: &[Value]) -> Result<(), Error> {
        let Some(table) = cursor.tables.iter().position(|table| change[2] == Value::Bigint(table.oid)) else {
            // Another server's, that follows other tables; or of a table that is gone.
            return Ok(());
        };
        let Value::Text(key) = &change[3] else {
            if !self.found.reload.contains(&table) {
                self.found.reload.push(table);
            }
            return Ok(());
        };
        let place = self.place(table, key.to_string(), || {
            let ty = cursor.tables[table].key_type;
            from_text(ty, key)
                .map_err(|why| Error::new(Kind::Type, format!("the changed key {key:?}: {why}")))
        })?;
        if !change[4].is_null() {
            self.previous.push((place, change[4].clone()));
        }
        Ok(())
    }

    /// Reads the previous values, each as the type of its column.
    async fn previous(&mut self, session: &mut Session, link: &Link, cursor: &Cursor) -> Result<(), Error> {
        for (table, follow) in link.follows.iter().enumerate().filter(|(_, follow)| !follow.old.is_empty()) {
            let mine: Vec<&(usize, Value)> =
                self.previous.iter().filter(|(place, _)| self.found.rows[*place].table == table).collect();
            if mine.is_empty() {
                continue;
            }
            let typed = follow.old.iter().zip(&cursor.tables[table].old_types).map(|(&column, ty)| {
                format!("(o.old::jsonb ->> {})::{ty}", literal(&follow.schema.columns[column].name))
            });
            let sql = format!(
                "SELECT {} FROM unnest($1::text[]) WITH ORDINALITY AS o (old, n) ORDER BY o.n",
                typed.collect::<Vec<_>>().join(", ")
            );
            let texts = array(mine.iter().map(|(_, old)| ValueRef::Text(text(old))));
            let values = session.run(&sql, &[texts]).await?;
            let places: Vec<usize> = mine.iter().map(|(place, _)| *place).collect();
            for (place, values) in places.into_iter().zip(values.iter()) {
                self.found.rows[place].old.push(values.to_vec());
            }
        }
        Ok(())
    }

    /// Reads the rows as they are now.
    async fn rows(&mut self, session: &mut Session, link: &Link) -> Result<(), Error> {
        for (table, follow) in link.follows.iter().enumerate() {
            let keys: Vec<Value> =
                self.found.rows.iter().filter(|row| row.table == table).map(|row| row.key.clone()).collect();
            let mut left = vec![&keys[..]];
            while let Some(keys) = left.pop().filter(|keys| !keys.is_empty()) {
                match read_rows(session, &follow.schema, keys).await {
                    Err(error) if *error.kind() == Kind::TooLarge && keys.len() > 1 => {
                        let (one, other) = keys.split_at(keys.len() / 2);
                        left.extend([one, other]);
                    }
                    Err(error) => return Err(error.context(format!("reading table {}", follow.schema.name))),
                    Ok(rows) => {
                        for (key, row) in rows {
                            let place = self.place(table, key_text(&key), || Ok(key))?;
                            let found = &mut self.found.rows[place];
                            match row {
                                Ok(row) => found.row = Some(row),
                                Err(error) => found.unfit = Some(error.to_string().into()),
                            }
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

/// The rows that are there, each with its key; an error is of one row, which a hot table cannot hold.
async fn read_rows(
    session: &mut Session,
    schema: &Schema,
    keys: &[Value],
) -> Result<Vec<(Value, Result<Row, Error>)>, Error> {
    let key = quoted(&schema.key_column().name);
    let sql = format!(
        "SELECT {} FROM {} WHERE {key} = ANY ($1::{})",
        columns(schema),
        quoted(&schema.name),
        key_array(schema)
    );
    let found = session.run(&sql, &[array(keys.iter().map(Value::as_ref))]).await?;
    let row = |values: &[Value]| (values[schema.key].clone(), row_from_values(schema, values));
    Ok(found.iter().map(row).collect())
}

/// A key as the triggers write it.
fn key_text(key: &Value) -> String {
    match key {
        Value::Bigint(key) => key.to_string(),
        Value::Uuid(key) => key.to_string(),
        Value::Text(key) => key.to_string(),
        // No table has such a key.
        _ => String::new(),
    }
}
