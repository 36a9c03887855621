//! One page of a pass: the changes and their present rows, in one snapshot.

use super::cursor::{Cursor, Link, Pass, altered, troubles};
use super::gathered::Page;
use super::shape::{self, Shape, TOLD_BY_TRIGGERS};
use super::snapshot::{Snapshot, begin};
use crate::limits::FOLLOW_PAGE;
use crate::postgres::bulk::array;
use crate::postgres::errors::is_missing_table;
use crate::postgres::positions::{integer, log_text};
use crate::postgres::session::Session;
use crate::postgres::table::text;
use crate::{Error, Followed, Kind, Rows};
use forebay_value::{Value, ValueRef};

/// The result of reading a page.
pub(super) enum Read {
    /// The page, and the follower's progress once it is taken.
    Page(Box<(Followed, Cursor)>),
    /// Unread changes may be lost.
    Lost,
    /// These tables are to be looked at again; with their shapes.
    Altered(Vec<(usize, Shape)>),
}

/// The values that are read first in each snapshot.
pub(super) struct TriggerSnapshot {
    pub(super) snapshot: Snapshot,
    pub(super) server: String,
    /// `None`: those of the cursor.
    pub(super) shapes: Option<Vec<Shape>>,
    position: Option<u64>,
    note: String,
    is_known: bool,
}

/// Reads the head, in the open transaction; without the shapes when the snapshot is `checked`.
pub(super) async fn head(
    session: &mut Session,
    link: &Link,
    checked: &str,
) -> Result<TriggerSnapshot, Error> {
    let sql = format!(
        "SELECT pg_current_snapshot()::text, p.position, coalesce(p.note, ''), \
         EXISTS (SELECT FROM _forebay.forebay_follower WHERE log = $1 AND updated_at > clock_timestamp() - interval '30 minutes'), \
         (SELECT system_identifier::text FROM pg_control_system()) || ' ' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8), \
         {} \
         FROM (SELECT) one LEFT JOIN _forebay.forebay_position p ON p.log = $1",
        shape::sql_unless(TOLD_BY_TRIGGERS, "$2::text::jsonb", "$3")
    );
    let params = [log_text(link.log), shape::names(&link.follows), Value::Text(checked.into())];
    let found = session.run(&sql, &params).await?;
    let [snapshot, position, note, is_known, server, shapes] = &found.values[..] else {
        return Err(Error::new(Kind::Corrupt, "PostgreSQL gave no snapshot"));
    };
    Ok(TriggerSnapshot {
        snapshot: Snapshot::parse(text(snapshot))?,
        position: (!position.is_null()).then(|| integer(position).unsigned_abs()),
        note: text(note).into(),
        is_known: *is_known == Value::Bool(true),
        server: text(server).into(),
        shapes: (!shapes.is_null()).then(|| Shape::parse_all(text(shapes))).transpose()?,
    })
}

/// Reads one page after `cursor`. `fault` is the table whose rows were being read when this fails.
pub(super) async fn read(
    session: &mut Session,
    link: &Link,
    cursor: &Cursor,
    wanted: &[(usize, Value)],
    fault: &mut Option<usize>,
) -> Result<Read, Error> {
    session.begin(&begin()).await?;
    let read = match head(session, link, &cursor.checked).await {
        Ok(head) => within(session, link, cursor, wanted, head, fault).await,
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
            let now = head(session, link, &cursor.checked).await?;
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
    fault: &mut Option<usize>,
) -> Result<Read, Error> {
    if !head.is_known || head.server != cursor.server || head.snapshot.xmax < cursor.seen.xmax {
        return Ok(Read::Lost);
    }
    let altered = altered(&cursor.tables, head.shapes.as_deref());
    if !altered.is_empty() {
        return Ok(Read::Altered(altered));
    }
    let mut page = Page::new(&link.follows, wanted);
    let first = cursor.pass.as_ref().map_or(&head.snapshot, |pass| &pass.snapshot);
    let Next { changes, is_full, old_unknown } = next(session, cursor, first.xmax).await?;
    for change in changes.iter() {
        page.told(&cursor.tables, integer(&change[2]), optional(&change[3]), optional(&change[4]))?;
    }
    page.found.old_unknown = old_unknown && !page.found.rows.is_empty();
    page.read(session, &link.follows, &cursor.tables, fault).await?;
    page.found.troubles = troubles(&cursor.tables);
    let mut next = cursor.clone();
    next.checked = head.snapshot.to_string();
    (page.found.position, page.found.note) = (head.position, head.note);
    page.found.more = is_full;
    match changes.iter().last() {
        Some([Value::Bigint(xid), Value::Bigint(id), ..]) if page.found.more => {
            next.pass = Some(Pass { snapshot: first.clone(), after: (*xid, *id) });
        }
        _ => (next.seen, next.pass) = (first.clone(), None),
    }
    Ok(Read::Page(Box::new((page.found, next))))
}

fn optional(value: &Value) -> Option<&str> {
    (!value.is_null()).then(|| text(value))
}

/// What is read of a change: the more, the less of it is a text that the server cannot convert to UTF-8.
const TEXTS: [&str; 3] = ["c.key, c.old::text", "c.key, NULL::text", "NULL::text, NULL::text"];

/// The next changes.
struct Next {
    changes: Rows,
    /// As many as could have been read.
    is_full: bool,
    old_unknown: bool,
}

/// Reads the next changes. One with a text that the server cannot convert to UTF-8 is read alone: without its
/// previous values, or even without its key, so that any row of its table may be the one.
async fn next(session: &mut Session, cursor: &Cursor, xmax: i64) -> Result<Next, Error> {
    let (mut limit, mut texts) = (FOLLOW_PAGE, 0);
    loop {
        match changes(session, cursor, xmax, limit, TEXTS[texts]).await {
            Err(error) if *error.kind() == Kind::Unfit && limit > 1 => limit /= 2,
            Err(error) if *error.kind() == Kind::Unfit && texts + 1 < TEXTS.len() => texts += 1,
            read => {
                let changes = read?;
                return Ok(Next { is_full: changes.len() == limit, changes, old_unknown: texts > 0 });
            }
        }
    }
}

/// The next changes that are visible now and were not in `seen`, of transactions below `xmax`, with the
/// `texts` of each: its key and the previous values.
async fn changes(
    session: &mut Session,
    cursor: &Cursor,
    xmax: i64,
    limit: usize,
    texts: &str,
) -> Result<Rows, Error> {
    let columns = "c.xid, c.id, c.relation, c.key, c.old";
    let sql = format!(
        "SELECT c.xid, c.id, c.relation, {texts} FROM ( \
           SELECT {columns} FROM unnest($1::int8[], $2::int8[]) AS r (xid, after) CROSS JOIN LATERAL \
             (SELECT * FROM _forebay.forebay_change c WHERE c.xid = r.xid AND c.id > r.after ORDER BY c.id LIMIT {limit}) c \
           UNION ALL (SELECT {columns} FROM _forebay.forebay_change c WHERE (c.xid, c.id) > ($3::int8, $4::int8) AND c.xid < $5::int8 \
             ORDER BY c.xid, c.id LIMIT {limit}) \
         ) c ORDER BY c.xid, c.id LIMIT {limit}"
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
    session.run_apart(&sql, &params).await
}
