//! The request for a reserve: how the log thread wakes the reserve thread, and how the reserve thread is
//! stopped.

use crate::limits::FULL_RETRY_MS;
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// A request to the reserve thread: to allocate a reserve, or to stop.
#[derive(Default)]
pub(crate) struct ReserveRequest {
    state: Mutex<State>,
    changed: Condvar,
    /// The number of blanks created, for their names.
    pub blanks: AtomicU64,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum State {
    #[default]
    Nothing,
    Reserve,
    Stop,
}

impl ReserveRequest {
    pub fn ask(&self) {
        self.set(State::Reserve);
    }

    pub fn stop(&self) {
        self.set(State::Stop);
    }

    fn set(&self, wish: State) {
        let mut state = self.state.lock();
        if *state != State::Stop {
            *state = wish;
        }
        drop(state);
        self.changed.notify_all();
    }

    pub fn is_stopped(&self) -> bool {
        *self.state.lock() == State::Stop
    }

    /// Waits for a request; `false` means stop.
    pub fn wait(&self) -> bool {
        let mut state = self.state.lock();
        while *state == State::Nothing {
            self.changed.wait(&mut state);
        }
        if *state == State::Stop {
            return false;
        }
        *state = State::Nothing;
        true
    }

    /// Pauses after a full disk; `false` means stop.
    pub fn pause(&self) -> bool {
        let mut state = self.state.lock();
        if *state != State::Stop {
            self.changed.wait_for(&mut state, Duration::from_millis(FULL_RETRY_MS));
        }
        *state != State::Stop
    }
}
