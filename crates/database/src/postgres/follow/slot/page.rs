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
use crate::postgres::follow::gathered::Page;
use crate::postgres::follow::look::RULES;
use crate::postgres::follow::snapshot::{Snapshot, begin};
use crate::postgres::positions::{integer, log_text};
use crate::postgres::session::Session;
use crate::postgres::sql::quoted;
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
}

/// The values that are read first in each snapshot.
pub(super) struct SlotSnapshot {
    pub(super) snapshot: Snapshot,
    pub(super) server: String,
    pub(super) shapes: Vec<String>,
    /// The end of WAL, once the snapshot existed.
    pub(super) end: u64,
    position: Option<u64>,
    note: String,
    pub(super) has_triggers: bool,
}

/// Reads the head, in the open transaction.
pub(super) async fn head(session: &mut Session, link: &Link) -> Result<SlotSnapshot, Error> {
    let sql = format!(
        "SELECT pg_current_snapshot()::text, p.position, coalesce(p.note, ''), \
         (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::int8, \
         EXISTS (SELECT FROM pg_trigger WHERE NOT tgisinternal AND tgname NOT LIKE 'forebay\\_%' AND tgenabled <> 'D'), \
         (SELECT system_identifier::text FROM pg_control_system()) || ' ' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8), \
         ARRAY(SELECT concat_ws(' ', coalesce(c.oid, 0), c.relreplident::text, coalesce(pg_get_replica_identity_index(c.oid)::oid::text, '-'), EXISTS (SELECT FROM pg_publication_rel r \
             JOIN pg_publication o ON o.oid = r.prpubid WHERE r.prrelid = c.oid AND o.pubname = 'forebay'), c.relfilenode || '/' || {RULES}) \
           FROM jsonb_array_elements_text($2::text::jsonb) WITH ORDINALITY AS f(name, n) \
           LEFT JOIN pg_class c ON c.oid = to_regclass(f.name) ORDER BY f.n) \
         FROM (SELECT) one LEFT JOIN forebay_position p ON p.log = $1"
    );
    let names = link.follows.iter().map(|follow| quoted(&follow.schema.name));
    let names: Vec<String> = names.chain(["forebay_position".into()]).collect();
    let names = serde_json::to_string(&names).expect("texts are JSON");
    let found = session.run(&sql, &[log_text(link.log), Value::Text(names.into())]).await?;
    let [snapshot, position, note, end, has_triggers, server, shapes] = &found.values[..] else {
        return Err(Error::new(Kind::Corrupt, "PostgreSQL gave no snapshot"));
    };
    Ok(SlotSnapshot {
        snapshot: Snapshot::parse(text(snapshot))?,
        server: text(server).into(),
        shapes: serde_json::from_str(text(shapes)).map_err(|error| {
            Error::new(Kind::Corrupt, "PostgreSQL's array of texts cannot be read").with_source(error)
        })?,
        end: integer(end).unsigned_abs(),
        position: (!position.is_null()).then(|| integer(position).unsigned_abs()),
        note: text(note).into(),
        has_triggers: *has_triggers == Value::Bool(true),
    })
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
/// fails.
pub(super) async fn read(
    session: &mut Session,
    stream: &mut Stream,
    link: &Link,
    cursor: &Cursor,
    confirmed: u64,
    wanted: &[(usize, Value)],
) -> Result<Result<Read, Fault>, Error> {
    session.begin(&begin()).await?;
    let found = match head(session, link).await {
        Ok(head) => within(session, stream, link, cursor, confirmed, wanted, head).await,
        Err(error) if is_missing_table(&error) => {
            session.rollback().await;
            session.forget_all();
            return Ok(Ok(Read::Lost));
        }
        Err(error) => Err(error),
    };
    let OpenPage { mut page, mut next, handed_over, target } = match session.end(found).await? {
        Ok(Some(found)) => found,
        Ok(None) => return Ok(Ok(Read::Lost)),
        Err(fault) => return Ok(Err(fault)),
    };
    #[cfg(feature = "planted")]
    if crate::planted_bugs::is("position-from-the-commit") {
        // The window is held open, as on a busy server.
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = head(session, link).await?;
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
    link: &Link,
    cursor: &Cursor,
    confirmed: u64,
    wanted: &[(usize, Value)],
    head: SlotSnapshot,
) -> Result<Result<Option<OpenPage>, Fault>, Error> {
    // For the stream, a table's identity is everything except its file and its rules.
    let told = |shape: &String| shape.rsplit_once(' ').map_or_else(String::new, |(told, _)| told.to_owned());
    let is_other = |(now, before): (&String, &String)| told(now) != told(before);
    if head.server != cursor.server
        || head.snapshot.xmax < cursor.xmax
        || head.shapes.iter().zip(&cursor.shapes).any(is_other)
    {
        return Ok(Ok(None));
    }
    if head.end.saturating_sub(cursor.at) > cursor.lag_bytes_max {
        return Ok(Ok(None));
    }
    let target = cursor.target.unwrap_or(head.end);
    let triggers_to = if head.has_triggers { u64::MAX } else { cursor.triggers_to.min(head.end) };
    stream.triggers_to = triggers_to;
    if let Err(fault) = stream.read(target, confirmed).await {
        return Ok(Err(fault));
    }
    let mut page = Page::new(&link.follows, wanted);
    let changed = |index: &usize| head.shapes[*index] != cursor.shapes[*index];
    page.found.reload.extend((0..link.follows.len()).filter(changed));
    let handed_over = hand_over(&stream.kept, &head.snapshot);
    for change in handed_over.iter().map(|index| &stream.kept[*index]) {
        if !change.is_known {
            let (key, old) = (change.key.as_deref(), change.old.as_deref());
            page.told(&cursor.tables, i64::from(change.relation), key, old)?;
        } else if change.before < triggers_to {
            return Ok(Err(Fault::Lost("a trigger was made: own changes are streamed again".into())));
        }
    }
    page.previous(session, &link.follows, &cursor.tables).await?;
    page.rows(session, &link.follows).await?;
    (page.found.position, page.found.note) = (head.position, head.note);
    let mut next = cursor.clone();
    (next.xmax, next.shapes, next.triggers_to) = (head.snapshot.xmax, head.shapes, triggers_to);
    Ok(Ok(Some(OpenPage { page: page.found, next, handed_over, target })))
}

/// The indexes of the changes that the snapshot shows, as many as fit a page.
fn hand_over(kept: &[Change], snapshot: &Snapshot) -> Vec<usize> {
    let is_shown = |(_, change): &(usize, &Change)| snapshot.shows(change.xid);
    kept.iter().enumerate().filter(is_shown).map(|(index, _)| index).take(FOLLOW_PAGE).collect()
}
