//! The log thread: a loop that takes a group, finds its place, writes it, syncs it and publishes the durable
//! mark.
//!
//! Only this thread writes groups to segments. An error in writing or syncing poisons the log: after a failed
//! sync it is not known what is on the disk, and a second sync could succeed without having written the data.

use crate::error::{Error, Kind, is_full};
use crate::format;
use crate::lane::{GroupTarget, Taken};
use crate::limits::{GATHER_FROM_RECORDS, GATHER_PAUSE, GATHER_RECORDS_MAX, GATHER_TIME_MAX, align_up};
use crate::position::Position;
use crate::segment::{self, Active, Blank};
use crate::segment_reserve;
use crate::shared::LogShared;
use std::sync::Arc;
use std::time::Instant;

/// Poisons the log when the thread panics (in a hook, for example), because callers would otherwise wait
/// forever.
struct PoisonOnPanic<'a>(&'a LogShared);

impl Drop for PoisonOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.poison(Error::new(Kind::Poisoned, "the log thread panicked"));
        }
    }
}

/// Runs until the lane is stopped and empty, or the log is poisoned.
pub(crate) fn run(shared: &Arc<LogShared>, mut active: Active, buffer_bytes: usize) {
    let _guard = PoisonOnPanic(shared);
    let mut buffer = Vec::with_capacity(buffer_bytes);
    // Records to expect at once: one from each writer whose record was just made durable, and those that
    // arrived meanwhile.
    let mut expected = 0;
    loop {
        gather(shared, expected);
        if !shared.lane.wait() {
            return;
        }
        let taken = shared.lane.take(buffer, active.remaining_bytes(), shared.capacity_bytes);
        let Some(mut taken) = taken else {
            return;
        };
        if shared.poisoned().is_some() {
            return;
        }
        match commit(shared, &mut active, &mut taken) {
            Ok(durable) => {
                // Counted before the callers are woken, so that a caller that appends again is not counted
                // twice.
                expected = taken.records + shared.lane.records();
                shared.publish(durable);
            }
            Err(error) => {
                shared.poison(error);
                return;
            }
        }
        buffer = taken.group;
    }
}

/// Lets a group grow while more records arrive. A group costs the same CPU time whatever its size, and when
/// many callers write at once, those whose answers the last group released are about to write again: without
/// a pause, the first of them would get a small group and the others would wait for it. With few writers, no
/// caller waits for another.
///
/// The thread is woken once, when all expected records have arrived. To wake it at the first record and then
/// check every 100 µs made the server switch threads almost twice as often.
fn gather(shared: &LogShared, expected: u32) {
    if expected >= GATHER_FROM_RECORDS {
        shared.lane.gather(expected.min(GATHER_RECORDS_MAX), GATHER_PAUSE, Instant::now() + GATHER_TIME_MAX);
    }
}

/// Makes one group durable; returns the position behind it.
fn commit(shared: &LogShared, active: &mut Active, taken: &mut Taken) -> Result<Position, Error> {
    let group = &mut taken.group;
    format::seal_group(group, shared.identity, taken.start, taken.records);
    match std::mem::replace(&mut taken.place, GroupTarget::Active) {
        GroupTarget::Active => {}
        GroupTarget::Reserve(blank) => change_segment(shared, active, blank, taken.start)?,
        GroupTarget::New => {
            let blank = wait_for_space(shared, group.len() as u64)?;
            change_segment(shared, active, blank, taken.start)?;
        }
    }
    if taken.needs_reserve {
        reserve_now(shared)?;
    }
    active.write(group).map_err(|error| Error::io("write a group to", &active.segment.path, error))?;
    Ok(Position(taken.start.0 + group.len() as u64))
}

fn change_segment(
    shared: &LogShared,
    active: &mut Active,
    blank: Blank,
    start: Position,
) -> Result<(), Error> {
    *active = segment::activate(&*shared.disk, &shared.folder, blank, shared.identity, start)
        .map_err(|error| Error::io("begin a segment in", &shared.folder, error))?;
    shared.segments.push(active.segment.clone());
    shared.reserve_request.ask();
    Ok(())
}

/// Allocates a segment without zeroing it, because the reserve thread is behind. On a full disk appends are
/// refused; the log is not poisoned.
fn reserve_now(shared: &LogShared) -> Result<(), Error> {
    if shared.lane.has_reserve() {
        return Ok(());
    }
    match segment_reserve::allocate(shared, shared.capacity_bytes) {
        Ok(blank) => segment_reserve::offer(shared, blank),
        Err(error) if is_full(&error) => {
            shared.lane.refuse_full();
            shared.reserve_request.ask();
        }
        Err(error) => return Err(Error::io("reserve a segment in", &shared.folder, error)),
    }
    Ok(())
}

/// Allocates space for a group when there is no reserve, or the group is larger than a segment. On a full
/// disk the group waits, unacknowledged, until there is space or the log is closed.
fn wait_for_space(shared: &LogShared, group_bytes: u64) -> Result<Blank, Error> {
    let capacity_bytes = shared.capacity_bytes.max(align_up(group_bytes));
    loop {
        match segment_reserve::allocate(shared, capacity_bytes) {
            Ok(blank) => return Ok(blank),
            Err(error) if is_full(&error) => {
                shared.lane.refuse_full();
                if !shared.reserve_request.pause() {
                    return Err(Error::io("begin a segment in", &shared.folder, error));
                }
            }
            Err(error) => return Err(Error::io("begin a segment in", &shared.folder, error)),
        }
    }
}
