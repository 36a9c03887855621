//! The lane: the one mutex under which records get their order and their positions.
//!
//! It protects the group that is being filled, and the space that is sure for the next group. It is held for
//! a copy, never over I/O. A record is refused here, before it has a position, when no space on disk is sure
//! for it.

use crate::error::AppendError;
use crate::limits::{GROUP_HEADER_BYTES, LATER_TIME_MAX, RECORD_HEADER_BYTES, align_up};
use crate::position::Position;
use crate::segment::Blank;
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub(crate) struct Lane {
    state: Mutex<State>,
    /// The log thread waits on this for the condition in `State::waiting`.
    work: Condvar,
    /// End of the last record; written under the mutex, read without it.
    end: AtomicU64,
    /// Records up to here take no room of the segments. Written by release, read by append.
    floor: AtomicU64,
    buffer_bytes: u64,
    limit_bytes: u64,
}

struct State {
    group: Vec<u8>,
    start: u64,
    records: u32,
    /// The most bytes that this group may have: the space on disk that is sure for it.
    room_bytes: u64,
    /// The error when the room is used up.
    refusal: AppendError,
    /// Why appends are refused, once the lane is stopped.
    stopped: Option<AppendError>,
    waiting: WakeOn,
    /// Whether a caller waits for a record of the group.
    is_urgent: bool,
    /// When the group is written although no caller waits for it.
    due: Option<Instant>,
    /// The next segment's space, when it is ready.
    reserve: Option<Blank>,
}

/// How soon a record must be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Urgency {
    /// A caller waits for it.
    Now,
    /// No caller waits for it: it is written with the next urgent record, or after [`LATER_TIME_MAX`].
    Later,
}

/// The condition on which the log thread is woken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WakeOn {
    /// None: the thread is awake, or was woken.
    No,
    ForAny,
    ForUrgent,
    /// For a group of this many records.
    ForRecords(u32),
}

/// Where a group is written.
pub(crate) enum GroupTarget {
    /// Into the active segment.
    Active,
    /// Into a new segment made from the reserve.
    Reserve(Blank),
    /// Into a new segment that has yet to be allocated.
    New,
}

/// A group that was taken from the lane to be written.
pub(crate) struct Taken {
    pub group: Vec<u8>,
    pub start: Position,
    pub records: u32,
    pub place: GroupTarget,
    /// Whether the group that is now being filled, or one soon after it, can grow to its full size only when
    /// there is a reserve.
    pub needs_reserve: bool,
}

impl Lane {
    /// A lane whose next group starts at `start`; `remaining_bytes` are left in the active segment.
    pub fn new(
        start: Position,
        floor: Position,
        remaining_bytes: u64,
        buffer_bytes: u64,
        limit_bytes: u64,
    ) -> Lane {
        let mut group = Vec::with_capacity(buffer_bytes as usize);
        group.resize(GROUP_HEADER_BYTES, 0);
        Lane {
            state: Mutex::new(State {
                group,
                start: start.0,
                records: 0,
                room_bytes: remaining_bytes.min(buffer_bytes),
                refusal: AppendError::Busy,
                stopped: None,
                waiting: WakeOn::No,
                is_urgent: false,
                due: None,
                reserve: None,
            }),
            work: Condvar::new(),
            end: AtomicU64::new(start.0),
            floor: AtomicU64::new(floor.0),
            buffer_bytes,
            limit_bytes,
        }
    }

    /// Copies the record into the group; returns the position behind it.
    pub fn append(&self, record: &[u8], urgency: Urgency) -> Result<Position, AppendError> {
        let mut state = self.state.lock();
        if let Some(stopped) = state.stopped {
            return Err(stopped);
        }
        let length = state.group.len() + RECORD_HEADER_BYTES + record.len();
        if length as u64 > state.room_bytes {
            let alone = (GROUP_HEADER_BYTES + RECORD_HEADER_BYTES + record.len()) as u64;
            return Err(if alone > self.buffer_bytes { AppendError::TooLarge } else { state.refusal });
        }
        let end = state.start + length as u64;
        if end - self.floor.load(Ordering::Relaxed) > self.limit_bytes {
            return Err(AppendError::Full);
        }
        // Fits: the length is below `buffer_bytes`, which fits in 32 bits.
        state.group.extend_from_slice(&(record.len() as u32).to_le_bytes());
        state.group.extend_from_slice(record);
        state.records += 1;
        self.end.store(end, Ordering::Release);
        state.is_urgent |= urgency == Urgency::Now;
        let wakes = match state.waiting {
            WakeOn::No => false,
            WakeOn::ForAny => true,
            WakeOn::ForUrgent => state.is_urgent,
            WakeOn::ForRecords(records) => state.records >= records,
        };
        if wakes {
            state.waiting = WakeOn::No;
        }
        drop(state);
        if wakes {
            self.work.notify_one();
        }
        Ok(Position(end))
    }

    /// Waits for a group to write. `false`: the lane was stopped and has no records left.
    pub fn wait(&self) -> bool {
        let mut state = self.state.lock();
        loop {
            if state.stopped.is_some() {
                return state.records > 0;
            }
            if state.records == 0 {
                state.waiting = WakeOn::ForAny;
                self.work.wait(&mut state);
            } else if state.is_urgent {
                break;
            } else {
                let due = *state.due.get_or_insert_with(|| Instant::now() + LATER_TIME_MAX);
                state.waiting = WakeOn::ForUrgent;
                if self.work.wait_until(&mut state, due).timed_out() {
                    break;
                }
            }
        }
        state.waiting = WakeOn::No;
        true
    }

    /// The number of records in the group that is being filled.
    pub fn records(&self) -> u32 {
        self.state.lock().records
    }

    /// Waits until the group has `records` records, no record has arrived for `pause`, or the deadline has
    /// passed. Does not wait when the lane is stopped, or when no caller waits for the records of the group,
    /// because they have waited already.
    pub fn gather(&self, records: u32, pause: Duration, deadline: Instant) {
        let mut state = self.state.lock();
        let mut before = None;
        while state.stopped.is_none()
            && (state.is_urgent || state.records == 0)
            && state.records < records
            && before != Some(state.records)
        {
            before = Some(state.records);
            state.waiting = WakeOn::ForRecords(records);
            let until = deadline.min(Instant::now() + pause);
            if self.work.wait_until(&mut state, until).timed_out() && until == deadline {
                break;
            }
        }
        state.waiting = WakeOn::No;
    }

    /// Takes the current group and leaves `empty` to be filled. `None` when the group has no records.
    pub fn take(&self, mut empty: Vec<u8>, remaining_bytes: u64, capacity_bytes: u64) -> Option<Taken> {
        empty.clear();
        empty.resize(GROUP_HEADER_BYTES, 0);
        let mut state = self.state.lock();
        if state.records == 0 {
            return None;
        }
        let bytes = align_up(state.group.len() as u64);
        let place = if bytes <= remaining_bytes {
            GroupTarget::Active
        } else if bytes <= capacity_bytes {
            state.reserve.take().map_or(GroupTarget::New, GroupTarget::Reserve)
        } else {
            GroupTarget::New
        };
        let after = match &place {
            GroupTarget::Active => remaining_bytes - bytes,
            GroupTarget::Reserve(_) | GroupTarget::New => capacity_bytes.saturating_sub(bytes),
        };
        // The reserve is requested while the group that is being filled can still grow to its full size, so
        // that no record is refused meanwhile.
        let needs_reserve = state.reserve.is_none() && after < self.buffer_bytes + capacity_bytes / 4;
        state.room_bytes = if needs_reserve { after.min(self.buffer_bytes) } else { self.buffer_bytes };
        state.refusal = AppendError::Busy;
        let start = Position(state.start);
        state.start += bytes;
        let records = std::mem::take(&mut state.records);
        (state.is_urgent, state.due) = (false, None);
        let group = std::mem::replace(&mut state.group, empty);
        Some(Taken { group, start, records, place, needs_reserve })
    }

    /// Stores the space for the next segment; returns the one that it replaces.
    pub fn offer_reserve(&self, blank: Blank) -> Option<Blank> {
        let mut state = self.state.lock();
        state.room_bytes = self.buffer_bytes;
        state.refusal = AppendError::Busy;
        state.reserve.replace(blank)
    }

    /// Notes that the disk has no space for the next segment: records that do not fit the present one are
    /// refused as full.
    pub fn refuse_full(&self) {
        self.state.lock().refusal = AppendError::Full;
    }

    pub fn has_reserve(&self) -> bool {
        self.state.lock().reserve.is_some()
    }

    pub fn take_reserve(&self) -> Option<Blank> {
        self.state.lock().reserve.take()
    }

    /// From now on every append fails with `why`. The first reason is retained, except that poison replaces
    /// closing.
    pub fn stop(&self, why: AppendError) {
        let mut state = self.state.lock();
        if state.stopped.is_none() || why == AppendError::Poisoned {
            state.stopped = Some(why);
        }
        drop(state);
        self.work.notify_one();
    }

    pub fn end(&self) -> Position {
        Position(self.end.load(Ordering::Acquire))
    }

    pub fn set_floor(&self, floor: Position) {
        self.floor.store(floor.0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::mpsc;
    use std::thread;

    const NEVER: Duration = Duration::from_secs(3600);

    fn lane() -> Arc<Lane> {
        Arc::new(Lane::new(Position(0), Position(0), 1 << 20, 1 << 20, 1 << 30))
    }

    /// Gathers on another thread; the receiver gets a message at the end.
    fn gathering(lane: &Arc<Lane>, records: u32, pause: Duration) -> mpsc::Receiver<()> {
        let (ended, end) = mpsc::channel();
        let lane = lane.clone();
        thread::spawn(move || {
            lane.gather(records, pause, Instant::now() + NEVER);
            ended.send(()).expect("the test waits");
        });
        end
    }

    fn ends(end: &mpsc::Receiver<()>) {
        end.recv_timeout(Duration::from_secs(60)).expect("it ends");
    }

    #[test]
    fn a_group_is_complete_when_all_have_come() {
        let lane = lane();
        lane.append(b"one", Urgency::Now).expect("room");
        let end = gathering(&lane, 3, NEVER);
        lane.append(b"two", Urgency::Now).expect("room");
        assert_eq!(end.try_recv(), Err(mpsc::TryRecvError::Empty));
        lane.append(b"three", Urgency::Later).expect("room");
        ends(&end);
        assert_eq!(lane.records(), 3);
    }

    #[test]
    fn a_group_does_not_wait_for_those_who_do_not_come() {
        let lane = lane();
        ends(&gathering(&lane, 3, Duration::from_millis(1)));
        // No caller waits for this one.
        lane.append(b"one", Urgency::Later).expect("room");
        ends(&gathering(&lane, 3, NEVER));
        lane.append(b"two", Urgency::Now).expect("room");
        ends(&gathering(&lane, 3, Duration::from_millis(1)));
        let end = gathering(&lane, 3, NEVER);
        lane.stop(AppendError::Closed);
        ends(&end);
    }
}
