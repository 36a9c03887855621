//! One page of a pass: the keys from the stream, and their present rows, in one snapshot.
//!
//! The snapshot is taken first, the stream is read after it: once the stream has reached the end that WAL had
//! when the snapshot existed, everything that the snapshot shows was reported. Decoding may also be ahead of
//! the snapshot; a transaction that the snapshot does not show yet waits for the next page.

use super::link::{Cursor, Link};
use super::stream::{Change, Stream};
use super::wire::Fault;
use crate::limits::{FOLLOW_PAGE, FOLLOW_STREAM_WAIT_MS};
use crate::postgres::errors::is_missing_table;
use crate::postgres::follow::cursor::{altered, troubles};
use crate::postgres::follow::gathered::Page;
use crate::postgres::follow::shape::{self, Shape, TOLD_BY_SLOT};
use crate::postgres::follow::snapshot::{Snapshot, begin};
use crate::postgres::positions::{integer, log_text};
use crate::postgres::session::Session;
use crate::postgres::table::text;
use crate::{Error, Followed, Kind};
use forebay_value::Value;
use std::time::Duration;

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
pub(super) struct SlotSnapshot {
    pub(super) snapshot: Snapshot,
    pub(super) server: String,
    /// The shapes of the followed tables; `None`: those of the cursor.
    pub(super) shapes: Option<Vec<Shape>>,
    /// Identifies the table of the drain's positions.
    pub(super) positions: String,
    /// The end of WAL, once the snapshot existed.
    pub(super) end: u64,
    /// Up to here the server can stream; the rest of a transaction that waits for a lock is not written yet.
    flushed: u64,
    position: Option<u64>,
    note: String,
    pub(super) has_triggers: bool,
}

/// Reads the head, in the open transaction; without the shapes when the snapshot is `checked`.
pub(super) async fn head(session: &mut Session, link: &Link, checked: &str) -> Result<SlotSnapshot, Error> {
    let sql = format!(
        "SELECT pg_current_snapshot()::text, p.position, coalesce(p.note, ''), \
         (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::int8, (pg_current_wal_flush_lsn() - '0/0'::pg_lsn)::int8, \
         EXISTS (SELECT FROM pg_trigger WHERE NOT tgisinternal AND tgname NOT LIKE 'forebay\\_%' AND tgenabled <> 'D'), \
         (SELECT system_identifier::text FROM pg_control_system()) || ' ' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8), \
         (SELECT concat_ws(' ', c.oid, c.xmin) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
           WHERE n.nspname = '{}' AND c.relname = 'forebay_position'), \
         {} \
         FROM (SELECT) one LEFT JOIN _forebay.forebay_position p ON p.log = $1",
        session.own,
        shape::sql_unless(TOLD_BY_SLOT, "$2::text::jsonb", "$3")
    );
    let names = shape::names(&link.follows);
    let found = session.run(&sql, &[log_text(link.log), names, Value::Text(checked.into())]).await?;
    let [snapshot, position, note, end, flushed, has_triggers, server, positions, shapes] = &found.values[..]
    else {
        return Err(Error::new(Kind::Corrupt, "PostgreSQL gave no snapshot"));
    };
    let shapes = (!shapes.is_null()).then(|| Shape::parse_all(text(shapes))).transpose()?;
    Ok(SlotSnapshot {
        snapshot: Snapshot::parse(text(snapshot))?,
        server: text(server).into(),
        shapes,
        positions: text(positions).into(),
        end: integer(end).unsigned_abs(),
        flushed: integer(flushed).unsigned_abs(),
        position: (!position.is_null()).then(|| integer(position).unsigned_abs()),
        note: text(note).into(),
        has_triggers: *has_triggers == Value::Bool(true),
    })
}

/// What the snapshot gives while it is open.
enum Within {
    Page(Box<OpenPage>),
    Lost,
    Altered(Vec<(usize, Shape)>),
}

/// A page whose snapshot is still open.
struct OpenPage {
    page: Followed,
    next: Cursor,
    /// The indexes of the stream's changes in this page.
    handed_over: Vec<usize>,
    target: u64,
}

/// Reads one page after `cursor`. The stream retains what was not handed over, and everything when this
/// fails. `fault` is the table whose rows were being read then.
pub(super) async fn read(
    session: &mut Session,
    stream: &mut Stream,
    link: &Link,
    cursor: &Cursor,
    confirmed: u64,
    wanted: &[(usize, Value)],
    fault: &mut Option<usize>,
) -> Result<Result<Read, Fault>, Error> {
    session.begin(&begin()).await?;
    let found = match head(session, link, &cursor.checked).await {
        Ok(head) => within(session, stream, (link, cursor), confirmed, wanted, head, fault).await,
        Err(error) if is_missing_table(&error) => {
            session.rollback().await;
            session.forget_all();
            return Ok(Ok(Read::Lost));
        }
        Err(error) => Err(error),
    };
    let OpenPage { mut page, mut next, handed_over, target } = match session.end(found).await? {
        Ok(Within::Page(found)) => *found,
        Ok(Within::Lost) => return Ok(Ok(Read::Lost)),
        Ok(Within::Altered(tables)) => return Ok(Ok(Read::Altered(tables))),
        Err(fault) => return Ok(Err(fault)),
    };
    #[cfg(feature = "planted")]
    if crate::planted_bugs::is("position-from-the-commit") {
        // The window is held open, as on a busy server.
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = head(session, link, &cursor.checked).await?;
        (page.position, page.note) = (now.position, now.note);
    }
    page.more = !stream.has_read(target) || handed_over.len() == FOLLOW_PAGE;
    if page.more && handed_over.is_empty() && stream.kept.len() >= FOLLOW_PAGE {
        // They were decoded long before they are visible: their commits wait for a standby.
        tokio::time::sleep(Duration::from_millis(FOLLOW_STREAM_WAIT_MS)).await;
    }
    // From here on nothing fails: changes taken from the stream reach the caller.
    stream.hand_over(&handed_over);
    next.at = stream.place();
    next.target = page.more.then_some(target);
    Ok(Ok(Read::Page(Box::new((page, next)))))
}

async fn within(
    session: &mut Session,
    stream: &mut Stream,
    (link, cursor): (&Link, &Cursor),
    confirmed: u64,
    wanted: &[(usize, Value)],
    head: SlotSnapshot,
    fault: &mut Option<usize>,
) -> Result<Result<Within, Fault>, Error> {
    if head.server != cursor.server || head.snapshot.xmax < cursor.xmax || head.positions != cursor.positions
    {
        return Ok(Ok(Within::Lost));
    }
    let altered = altered(&cursor.tables, head.shapes.as_deref());
    if !altered.is_empty() {
        return Ok(Ok(Within::Altered(altered)));
    }
    if head.end.saturating_sub(cursor.at) > cursor.lag_bytes_max {
        return Ok(Ok(Within::Lost));
    }
    let target = cursor.target.unwrap_or(head.end);
    let triggers_to = if head.has_triggers { u64::MAX } else { cursor.triggers_to.min(head.end) };
    stream.triggers_to = triggers_to;
    if let Err(fault) = stream.read(target, head.flushed, &head.snapshot, confirmed).await {
        return Ok(Err(fault));
    }
    let mut page = Page::new(&link.follows, wanted);
    let handed_over = hand_over(&stream.kept, &head.snapshot);
    for change in handed_over.iter().map(|index| &stream.kept[*index]) {
        if !change.is_known {
            let (key, old) = (change.key.as_deref(), change.old.as_deref());
            page.told(&cursor.tables, i64::from(change.relation), key, old)?;
        } else if change.before < triggers_to {
            return Ok(Err(Fault::Lost("a trigger was made: own changes are streamed again".into())));
        }
    }
    page.read(session, &link.follows, &cursor.tables, fault).await?;
    page.found.troubles = troubles(&cursor.tables);
    (page.found.position, page.found.note) = (head.position, head.note);
    let mut next = cursor.clone();
    next.checked = head.snapshot.to_string();
    (next.xmax, next.triggers_to) = (head.snapshot.xmax, triggers_to);
    Ok(Ok(Within::Page(Box::new(OpenPage { page: page.found, next, handed_over, target }))))
}

/// The indexes of the changes that the snapshot shows, as many as fit a page.
fn hand_over(kept: &[Change], snapshot: &Snapshot) -> Vec<usize> {
    let is_shown = |(_, change): &(usize, &Change)| snapshot.shows(change.xid);
    kept.iter().enumerate().filter(is_shown).map(|(index, _)| index).take(FOLLOW_PAGE).collect()
}
