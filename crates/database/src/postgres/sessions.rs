//! Connections for what is more than one statement: schemas, keys, drain, seed. Taken for as long as one job
//! needs.

use super::session::{Connector, Role, Session};
use crate::limits::SESSION_WARM_MS;
use crate::{Error, Kind};
use parking_lot::Mutex;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Connections that are not in use, and since when.
type Idle = Arc<Mutex<Vec<(Session, Instant)>>>;

/// The pool.
pub(super) struct Sessions {
    connector: Arc<Connector>,
    idle: Idle,
    free: Arc<Semaphore>,
    wait: Duration,
}

/// A connection, given back when this is dropped; closed instead when a transaction was left open.
pub(super) struct Lease {
    session: Option<Session>,
    idle: Idle,
    _permit: OwnedSemaphorePermit,
}

impl Sessions {
    pub(super) fn new(connector: Arc<Connector>, most: usize, wait: Duration) -> Sessions {
        Sessions { connector, idle: Arc::default(), free: Arc::new(Semaphore::new(most)), wait }
    }

    /// A connection, waited for at most so long as a statement may run.
    pub(super) async fn lease(&self) -> Result<Lease, Error> {
        self.lease_idle(Duration::ZERO).await
    }

    /// A connection for what may take longer than a statement of a request.
    pub(super) async fn lease_for(&self, patience_ms: u64) -> Result<Lease, Error> {
        let mut lease = self.lease().await?;
        lease.patience = Duration::from_millis(patience_ms);
        Ok(lease)
    }

    /// The same for a job that is tried again when the server has closed the connection meanwhile: one that
    /// was in use a moment ago is not asked first.
    pub(super) async fn lease_warm(&self, patience_ms: u64) -> Result<Lease, Error> {
        let mut lease = self.lease_idle(Duration::from_millis(SESSION_WARM_MS)).await?;
        lease.patience = Duration::from_millis(patience_ms);
        Ok(lease)
    }

    async fn lease_idle(&self, unasked: Duration) -> Result<Lease, Error> {
        let permit = tokio::time::timeout(self.wait, self.free.clone().acquire_owned()).await;
        let Ok(Ok(permit)) = permit else {
            return Err(Error::new(
                Kind::Busy,
                "every connection to PostgreSQL for drain and schemas is taken",
            ));
        };
        let mut found = None;
        while let Some((session, since)) = self.take_idle() {
            // One round trip, so that no job begins on a connection that the server has closed meanwhile.
            if session.is_alive() && since.elapsed() < unasked || is_well(&session).await {
                found = Some(session);
                break;
            }
        }
        let mut session = match found {
            Some(session) => session,
            None => self.connector.connect(Role::Bulk).await?,
        };
        session.patience = self.connector.patience();
        Ok(Lease { session: Some(session), idle: self.idle.clone(), _permit: permit })
    }

    fn take_idle(&self) -> Option<(Session, Instant)> {
        self.idle.lock().pop()
    }

    /// Closes idle sessions.
    pub(super) fn close(&self) {
        self.idle.lock().clear();
    }
}

async fn is_well(session: &Session) -> bool {
    session.is_alive() && matches!(session.answer(session.client.check_connection()).await, Ok(Ok(())))
}

impl Deref for Lease {
    type Target = Session;

    fn deref(&self) -> &Session {
        self.session.as_ref().expect("it is taken out in drop only")
    }
}

impl DerefMut for Lease {
    fn deref_mut(&mut self) -> &mut Session {
        self.session.as_mut().expect("it is taken out in drop only")
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(session) =
            self.session.take().filter(|session| session.is_alive() && !session.in_transaction)
        {
            self.idle.lock().push((session, Instant::now()));
        }
    }
}
