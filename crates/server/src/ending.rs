//! The end of serving: the server is told to stop, cannot load its tables, or another process takes over.
//!
//! Promises that the listeners stay open for a process that takes over, so that connections wait in the
//! kernel for it, and that they are closed at once in any other case.

use crate::start_error::StartError;
use crate::supervisor;
use parking_lot::Mutex;
use std::net::TcpListener;
use std::pin::Pin;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Resolves when another process is to take over.
pub type Replaced = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The end of serving, once it is reached.
pub(crate) struct Ending {
    at: OnceLock<Instant>,
    /// Every listener; emptied when it is known that no process takes over.
    listeners: Mutex<Vec<TcpListener>>,
    failed_with: Mutex<Option<StartError>>,
}

impl Ending {
    /// An end that is not reached yet.
    pub fn new(listeners: Vec<TcpListener>) -> Ending {
        Ending { at: OnceLock::new(), listeners: Mutex::new(listeners), failed_with: Mutex::default() }
    }

    /// Resolves when the end is reached.
    pub async fn reached(
        &self,
        stop: impl Future<Output = ()>,
        replaced: Option<Replaced>,
        failure: oneshot::Receiver<StartError>,
    ) {
        let replaced = replaced.unwrap_or_else(|| Box::pin(std::future::pending()));
        let is_replaced = tokio::select! {
            () = stop => false,
            () = replaced => true,
            // The sender is dropped when everything is loaded: then only the other two can end serving.
            Ok(error) = failure => {
                *self.failed_with.lock() = Some(error);
                false
            }
        };
        self.at.get_or_init(Instant::now);
        // A service manager that is told of a stop would not accept the next process as the service.
        if !is_replaced {
            self.listeners.lock().clear();
            supervisor::tell(supervisor::State::Stopping);
        }
    }

    /// The time since the end was reached.
    pub fn elapsed(&self) -> Duration {
        self.at.get().map_or(Duration::ZERO, Instant::elapsed)
    }

    /// Whether another process takes over.
    pub fn is_replaced(&self) -> bool {
        self.at.get().is_some() && !self.listeners.lock().is_empty()
    }

    /// The listeners for the process that takes over; empty when there is none.
    ///
    /// # Errors
    /// Why the tables could not be loaded.
    pub fn result(self) -> Result<Vec<TcpListener>, StartError> {
        let listeners = self.listeners.into_inner();
        self.failed_with.into_inner().map_or(Ok(listeners), Err)
    }
}
