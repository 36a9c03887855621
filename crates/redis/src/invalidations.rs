//! Client tracking: hearing which keys with a prefix were written, on every primary.
//!
//! BCAST is a node's own affair, so there is one connection for each primary, in RESP3. Promises
//! that whoever hears misses nothing unknowingly: [`Invalidation::Everything`] comes when a
//! connection begins and when one is lost, and for what FLUSHALL says.

use crate::client::Client;
use crate::connection::{ask, checked};
use crate::error::Error;
use crate::limits;
use crate::nodes::Address;
use crate::wire::Wire;
use redis::{PushKind, Value};
use std::collections::HashMap;
use std::io;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// What happened on the servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Invalidation {
    /// These keys were written, deleted or have expired.
    Keys(Vec<Vec<u8>>),
    /// Any key may have been.
    Everything,
}

/// What happens on the servers, as it is heard. Hearing ends when this is dropped.
pub struct Invalidations {
    heard: mpsc::Receiver<Invalidation>,
    _listeners: JoinSet<()>,
}

impl std::fmt::Debug for Invalidations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Invalidations").finish_non_exhaustive()
    }
}

impl Invalidations {
    /// The next of them; `None` when the runtime ends.
    pub async fn next(&mut self) -> Option<Invalidation> {
        self.heard.recv().await
    }
}

impl Client {
    /// Hears which keys that begin with this prefix are written. Must be called on a runtime.
    pub fn invalidations(&self, prefix: &[u8]) -> Invalidations {
        let (sender, heard) = mpsc::channel(limits::INVALIDATIONS_WAITING);
        let mut listeners = JoinSet::new();
        listeners.spawn(follow(self.clone(), prefix.to_vec(), sender));
        Invalidations { heard, _listeners: listeners }
    }
}

/// Keeps one listener for each primary that there is.
async fn follow(client: Client, prefix: Vec<u8>, sender: mpsc::Sender<Invalidation>) {
    let mut listeners: HashMap<Address, JoinSet<()>> = HashMap::new();
    loop {
        let primaries: Vec<Address> = client.primaries().into_iter().map(|node| node.address).collect();
        // A node that is no primary any more has nothing to say; dropping the set ends its listener.
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
        // A look that failed is tried again at the next turn.
        drop(client.refresh().await);
    }
}

/// Hears one node, and connects again whenever that ends.
async fn listen(client: Client, address: Address, prefix: Vec<u8>, sender: mpsc::Sender<Invalidation>) {
    while !sender.is_closed() {
        if let Ok(mut wire) = connect(&client, &address, &prefix).await {
            // How it ended does not matter: what was written since then is not known.
            drop(hear(&mut wire, &sender).await);
            drop(sender.send(Invalidation::Everything).await);
        }
        sleep(Duration::from_millis(limits::RETRY_MS_MAX)).await;
    }
}

async fn connect(client: &Client, address: &Address, prefix: &[u8]) -> Result<Wire, Error> {
    let mut wire = client.dial(address).await?;
    let mut hello = redis::cmd("HELLO");
    hello.arg(3);
    let mut tracking = redis::cmd("CLIENT");
    tracking.arg("TRACKING").arg("ON").arg("BCAST").arg("PREFIX").arg(prefix);
    for answer in ask(&mut wire, &[hello, tracking]).await? {
        answer?;
    }
    Ok(wire)
}

/// Hears until the connection is lost, or says nothing even when asked.
async fn hear(wire: &mut Wire, sender: &mpsc::Sender<Invalidation>) -> io::Result<()> {
    let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
    // What was written before this connection was there is not known.
    sender.send(Invalidation::Everything).await.map_err(|_| gone())?;
    let ping = redis::cmd("PING").get_packed_command();
    let mut is_asked = false;
    loop {
        match timeout(Duration::from_millis(limits::INVALIDATIONS_PING_MS), wire.answer()).await {
            Ok(value) => {
                is_asked = false;
                if let Some(invalidation) = meaning(value?)? {
                    sender.send(invalidation).await.map_err(|_| gone())?;
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

/// What a message says, if it says anything.
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
