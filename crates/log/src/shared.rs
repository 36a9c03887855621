//! The state that the handles, the log thread, the reserve thread and the readers share: the marks, the hooks
//! and the poison.

use crate::aside::{ASIDE_FILE, Aside};
use crate::disk::Disk;
use crate::error::{AppendError, Error};
use crate::format::Identity;
use crate::lane::Lane;
use crate::position::Position;
use crate::segment::{ReleasedSegment, Segments};
use crate::segment_request::ReserveRequest;
use parking_lot::{Condvar, Mutex};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

pub(crate) type DurableHook = Box<dyn Fn(Position) + Send + Sync>;
pub(crate) type PoisonHook = Box<dyn Fn(&Error) + Send + Sync>;

/// What was set aside, if there is anything.
#[derive(Default)]
pub(crate) struct SetAside(Mutex<Option<Arc<Aside>>>);

impl SetAside {
    pub fn get(&self) -> Option<Arc<Aside>> {
        self.0.lock().clone()
    }

    pub fn set(&self, aside: Option<Arc<Aside>>) {
        *self.0.lock() = aside;
    }
}

pub(crate) struct LogShared {
    pub disk: Arc<dyn Disk>,
    pub folder: PathBuf,
    pub identity: Identity,
    pub lane: Lane,
    pub segments: Segments,
    pub aside: SetAside,
    pub reserve_request: ReserveRequest,
    /// Bytes for groups in a segment of ordinary length.
    pub capacity_bytes: u64,
    durable: AtomicU64,
    /// Locked to advance the mark or to poison, so that nothing is published after poison; reading either
    /// needs no lock.
    turn: Mutex<()>,
    moved: Condvar,
    poison: OnceLock<Arc<Error>>,
    on_durable: OnceLock<DurableHook>,
    on_poisoned: Mutex<Option<PoisonHook>>,
}

impl LogShared {
    pub fn new(
        disk: Arc<dyn Disk>,
        folder: PathBuf,
        identity: Identity,
        lane: Lane,
        segments: Segments,
        capacity_bytes: u64,
        durable: Position,
    ) -> LogShared {
        LogShared {
            disk,
            folder,
            identity,
            lane,
            segments,
            aside: SetAside::default(),
            reserve_request: ReserveRequest::default(),
            capacity_bytes,
            durable: AtomicU64::new(durable.0),
            turn: Mutex::new(()),
            moved: Condvar::new(),
            poison: OnceLock::new(),
            on_durable: OnceLock::new(),
            on_poisoned: Mutex::new(None),
        }
    }

    /// The oldest position from which records can be read.
    pub fn first(&self) -> Position {
        let first = self.segments.first();
        let aside = self.aside.get().filter(|aside| aside.upto >= first);
        aside.map_or(first, |aside| first.min(aside.start))
    }

    /// Deletes what was set aside. After a crash it may be there again: what it contains stays true.
    pub fn remove_aside(&self) -> Result<(), Error> {
        let path = self.folder.join(ASIDE_FILE);
        match self.disk.remove(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::io("delete", &path, error)),
            _ => {
                self.aside.set(None);
                Ok(())
            }
        }
    }

    pub fn durable(&self) -> Position {
        Position(self.durable.load(Ordering::Acquire))
    }

    pub fn poisoned(&self) -> Option<Arc<Error>> {
        self.poison.get().cloned()
    }

    /// Publishes that everything before `durable` has been synced. Does nothing once the log is poisoned.
    pub fn publish(&self, durable: Position) {
        let turn = self.turn.lock();
        if self.poison.get().is_some() {
            return;
        }
        self.durable.store(durable.0, Ordering::Release);
        drop(turn);
        self.moved.notify_all();
        if let Some(hook) = self.on_durable.get() {
            hook(durable);
        }
    }

    /// Poisons the log: nothing more is acknowledged. The first error is retained and reported once.
    pub fn poison(&self, error: Error) {
        let turn = self.turn.lock();
        if self.poison.set(Arc::new(error)).is_err() {
            return;
        }
        drop(turn);
        self.lane.stop(AppendError::Poisoned);
        self.wake_waiters();
        let hook = self.on_poisoned.lock().take();
        if let (Some(hook), Some(error)) = (hook, self.poison.get()) {
            hook(error);
        }
    }

    /// Deletes released segments, oldest first, while `may_go` returns true.
    pub fn delete_kept(&self, may_go: impl Fn(ReleasedSegment) -> bool) -> Result<(), Error> {
        while let Some(segment) = self.segments.take_kept(&may_go) {
            self.disk.remove(&segment.path).map_err(|error| Error::io("delete", &segment.path, error))?;
        }
        Ok(())
    }

    /// Deletes the oldest released segment to free its space; returns whether one was deleted.
    pub fn delete_oldest_kept(&self) -> bool {
        let oldest = self.segments.take_kept(|_| true);
        oldest.is_some_and(|segment| self.disk.remove(&segment.path).is_ok())
    }

    pub fn wake_waiters(&self) {
        drop(self.turn.lock());
        self.moved.notify_all();
    }

    /// Waits until `done` holds, the log is poisoned or the deadline has passed.
    pub fn wait_until(&self, done: impl Fn() -> bool, deadline: Option<Instant>) {
        let mut turn = self.turn.lock();
        while !done() && self.poison.get().is_none() {
            match deadline {
                None => self.moved.wait(&mut turn),
                Some(deadline) => {
                    if self.moved.wait_until(&mut turn, deadline).timed_out() {
                        return;
                    }
                }
            }
        }
    }

    /// Only the first hook counts.
    pub fn set_on_durable(&self, hook: DurableHook) {
        let first = self.on_durable.set(hook).is_ok();
        debug_assert!(first, "on_durable is set once");
    }

    /// The hook is called at once when the log is poisoned already.
    pub fn set_on_poisoned(&self, hook: PoisonHook) {
        let mut slot = self.on_poisoned.lock();
        match self.poison.get() {
            Some(error) => {
                drop(slot);
                hook(error);
            }
            None => *slot = Some(hook),
        }
    }
}
