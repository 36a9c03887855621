//! Connections for jobs with more than one statement: schemas, keys, drain, seed. Each job leases one.

use super::session::{Connector, Role, Session};
use crate::limits::SESSION_WARM_MS;
use crate::{Error, Kind};
use parking_lot::Mutex;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Unused connections, and since when they are unused.
type Idle = Arc<Mutex<Vec<(Session, Instant)>>>;

/// The pool.
pub(super) struct Sessions {
    connector: Arc<Connector>,
    idle: Idle,
    free: Arc<Semaphore>,
    wait: Duration,
}

/// A connection, returned to the pool when this is dropped; closed instead when a transaction was left open.
pub(super) struct Lease {
    session: Option<Session>,
    idle: Idle,
    _permit: OwnedSemaphorePermit,
}

impl Sessions {
    pub(super) fn new(connector: Arc<Connector>, most: usize, wait: Duration) -> Sessions {
        Sessions { connector, idle: Arc::default(), free: Arc::new(Semaphore::new(most)), wait }
    }

    /// A connection; waits for one at most as long as a statement may run.
    pub(super) async fn lease(&self) -> Result<Lease, Error> {
        self.lease_idle(Duration::ZERO).await
    }

    /// A connection for statements that may take longer than those of a request.
    pub(super) async fn lease_for(&self, patience_ms: u64) -> Result<Lease, Error> {
        let mut lease = self.lease().await?;
        lease.patience = Duration::from_millis(patience_ms);
        Ok(lease)
    }

    /// The same for a job that is retried when the server has closed the connection meanwhile: a connection
    /// that was used a moment ago is not checked first.
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
            // A check by one round trip, so that no job starts on a connection that the server has closed
            // meanwhile.
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
