//! One page of a pass: the changes and their present rows, in one snapshot.

use super::cursor::{Cursor, Link, Pass};
use super::gathered::Page;
use super::look::RULES;
use super::snapshot::{Snapshot, begin};
use crate::limits::FOLLOW_PAGE;
use crate::postgres::bulk::array;
use crate::postgres::errors::is_missing_table;
use crate::postgres::positions::{integer, log_text};
use crate::postgres::session::Session;
use crate::postgres::sql::quoted;
use crate::postgres::table::text;
use crate::{Error, Followed, Kind, Rows};
use forebay_value::{Value, ValueRef};

/// The result of reading a page.
pub(super) enum Read {
    /// The page, and the follower's progress once it is taken.
    Page(Box<(Followed, Cursor)>),
    /// Unread changes may be lost.
    Lost,
    /// This table's triggers are missing, it is another table, or other rules apply to what the drain writes;
    /// and its shape.
    Untold(usize, String),
}

/// The values that are read first in each snapshot.
pub(super) struct TriggerSnapshot {
    pub(super) snapshot: Snapshot,
    pub(super) server: String,
    pub(super) shapes: Vec<String>,
    position: Option<u64>,
    note: String,
    is_known: bool,
}

/// Reads the head, in the open transaction.
pub(super) async fn head(session: &mut Session, home: &str, link: &Link) -> Result<TriggerSnapshot, Error> {
    let sql = format!(
        "SELECT pg_current_snapshot()::text, p.position, coalesce(p.note, ''), \
         EXISTS (SELECT FROM {home}.forebay_follower WHERE log = $1 AND updated_at > clock_timestamp() - interval '30 minutes'), \
         (SELECT system_identifier::text FROM pg_control_system()) || ' ' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8), \
         ARRAY(SELECT concat_ws(' ', coalesce(c.oid, 0), (SELECT count(*) FROM pg_trigger t WHERE t.tgrelid = c.oid \
           AND t.tgname IN ('forebay_insert', 'forebay_update', 'forebay_delete', 'forebay_truncate') AND t.tgenabled IN ('O', 'A')), c.relfilenode, {RULES}) \
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
    Ok(TriggerSnapshot {
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
    session.begin(&begin()).await?;
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
            // The window is held open, as on a busy server.
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
    head: TriggerSnapshot,
) -> Result<Read, Error> {
    if !head.is_known || head.server != cursor.server || head.snapshot.xmax < cursor.seen.xmax {
        return Ok(Read::Lost);
    }
    let rules = |shapes: &[String], index: usize| shapes[index].rsplit(' ').next().map(str::to_owned);
    let is_told = |index: usize| {
        head.shapes[index].starts_with(&format!("{} 4 ", cursor.tables[index].oid))
            && rules(&head.shapes, index) == rules(&cursor.shapes, index)
    };
    if let Some(index) = (0..link.follows.len()).find(|&index| !is_told(index)) {
        return Ok(Read::Untold(index, head.shapes[index].clone()));
    }
    let mut page = Page::new(&link.follows, wanted);
    let changed = |index: &usize| head.shapes[*index] != cursor.shapes[*index];
    page.found.reload.extend((0..link.follows.len()).filter(changed));
    let first = cursor.pass.as_ref().map_or(&head.snapshot, |pass| &pass.snapshot);
    let changes = changes(session, cursor, first.xmax).await?;
    for change in changes.iter() {
        page.told(&cursor.tables, integer(&change[2]), optional(&change[3]), optional(&change[4]))?;
    }
    page.previous(session, &link.follows, &cursor.tables).await?;
    page.rows(session, &link.follows).await?;
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

fn optional(value: &Value) -> Option<&str> {
    (!value.is_null()).then(|| text(value))
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
