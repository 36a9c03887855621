//! Client tracking: a listener on every primary for writes to keys with a prefix.
//!
//! BCAST works for each node separately, so there is one RESP3 connection for each primary. Promises
//! that no write is missed silently: [`Invalidation::Everything`] is sent when a connection begins,
//! when one is lost, and after FLUSHALL.

use crate::addresses::Address;
use crate::capability::tracking;
use crate::client::Client;
use crate::connection::{checked, request};
use crate::error::Error;
use crate::limits;
use crate::wire::Wire;
use redis::{PushKind, Value};
use std::collections::HashMap;
use std::io;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// A change on the servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Invalidation {
    /// These keys were written, were deleted or have expired.
    Keys(Vec<Vec<u8>>),
    /// Any key may have changed.
    Everything,
}

/// The stream of changes on the servers. Dropping it ends the listeners.
pub struct Invalidations {
    messages: mpsc::Receiver<Invalidation>,
    _listeners: JoinSet<()>,
}

impl std::fmt::Debug for Invalidations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Invalidations").finish_non_exhaustive()
    }
}

impl Invalidations {
    /// Waits for the next change; `None` when the runtime ends.
    pub async fn next(&mut self) -> Option<Invalidation> {
        self.messages.recv().await
    }
}

impl Client {
    /// Starts listening for writes to keys with this prefix. Must be called on a runtime.
    pub fn invalidations(&self, prefix: &[u8]) -> Invalidations {
        let (sender, messages) = mpsc::channel(limits::INVALIDATIONS_WAITING);
        let mut listeners = JoinSet::new();
        listeners.spawn(listen_to_primaries(self.clone(), prefix.to_vec(), sender));
        Invalidations { messages, _listeners: listeners }
    }
}

/// Runs one listener for each primary.
async fn listen_to_primaries(client: Client, prefix: Vec<u8>, sender: mpsc::Sender<Invalidation>) {
    let mut listeners: HashMap<Address, JoinSet<()>> = HashMap::new();
    loop {
        let primaries: Vec<Address> = client.primaries().into_iter().map(|node| node.address).collect();
        // Dropping the set ends the listener of a node that is no longer a primary.
        let count = listeners.len();
        listeners.retain(|address, _| primaries.contains(address));
        if listeners.len() < count && sender.send(Invalidation::Everything).await.is_err() {
            return;
        }
        for address in primaries {
            listeners.entry(address.clone()).or_insert_with(|| {
                let mut listener = JoinSet::new();
                listener.spawn(listen(client.clone(), address, prefix.clone(), sender.clone()));
                listener
            });
        }
        sleep(Duration::from_millis(limits::REFRESH_MS)).await;
        // A failed refresh is repeated in the next round.
        drop(client.refresh().await);
    }
}

/// Listens to one node, and reconnects when the connection is lost.
async fn listen(client: Client, address: Address, prefix: Vec<u8>, sender: mpsc::Sender<Invalidation>) {
    while !sender.is_closed() {
        if let Ok(mut wire) = connect(&client, &address, &prefix).await {
            // Whatever the reason, writes may be missed from now on.
            drop(forward(&mut wire, &sender).await);
            drop(sender.send(Invalidation::Everything).await);
        }
        sleep(Duration::from_millis(limits::RETRY_MS_MAX)).await;
    }
}

async fn connect(client: &Client, address: &Address, prefix: &[u8]) -> Result<Wire, Error> {
    let mut wire = client.dial(address).await?;
    for answer in request(&mut wire, &tracking(prefix)).await? {
        answer?;
    }
    Ok(wire)
}

/// Forwards messages until the connection is lost or a PING gets no answer.
async fn forward(wire: &mut Wire, sender: &mpsc::Sender<Invalidation>) -> io::Result<()> {
    let ended = || io::Error::from(io::ErrorKind::BrokenPipe);
    // Writes before this connection were not seen.
    sender.send(Invalidation::Everything).await.map_err(|_| ended())?;
    let ping = redis::cmd("PING").get_packed_command();
    let mut is_asked = false;
    loop {
        match timeout(Duration::from_millis(limits::INVALIDATIONS_PING_MS), wire.answer()).await {
            Ok(value) => {
                is_asked = false;
                if let Some(invalidation) = meaning(value?)? {
                    sender.send(invalidation).await.map_err(|_| ended())?;
                }
            }
            Err(_) if is_asked => return Err(io::ErrorKind::TimedOut.into()),
            Err(_) => {
                is_asked = true;
                wire.send(&ping).await?;
            }
        }
    }
}

/// The change that a message reports, if any.
fn meaning(value: Value) -> io::Result<Option<Invalidation>> {
    match value {
        Value::Push { kind: PushKind::Invalidate, data } => Ok(Some(match data.into_iter().next() {
            Some(Value::Array(keys)) => Invalidation::Keys(
                keys.into_iter()
                    .filter_map(|key| match key {
                        Value::BulkString(bytes) => Some(bytes),
                        _ => None,
                    })
                    .collect(),
            ),
            _ => Invalidation::Everything,
        })),
        other => checked(other).map(|_| None).map_err(io::Error::other),
    }
}
