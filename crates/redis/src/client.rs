//! A [`Client`]: where everything is, kept up to date, and the way for commands that are for one node.

use std::sync::Arc;

use redis::{Cmd, Value};

use crate::error::Error;
use crate::facts::Facts;
use crate::link::Link;
use crate::nodes::Address;
use crate::options::{Options, Topology};

/// A primary, the slots that it has and its replicas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Where it is.
    pub address: Address,
    /// Its slots, as ranges with both ends included. All of them outside a cluster.
    pub slots: Vec<(u16, u16)>,
    /// Its replicas.
    pub replicas: Vec<Address>,
}

/// Servers that stand for one key space. Cheap to clone, shared by all threads.
#[derive(Clone, Debug)]
pub struct Client {
    inner: Arc<Options>,
}

impl Client {
    /// Connects, finds out what is there, and checks it against the options.
    ///
    /// # Errors
    /// [`crate::Kind::Url`], `Connect`, `Auth`, or `Unsupported` when the servers cannot give the durability asked for.
    pub async fn connect(_url: &str, options: Options) -> Result<Client, Error> {
        let _ = Client { inner: Arc::new(options) };
        Err(Error::connect("not built yet"))
    }

    /// How the servers stand to each other.
    pub fn topology(&self) -> Topology {
        Topology::Single
    }

    /// The options, with what the URL said.
    pub fn options(&self) -> &Options {
        &self.inner
    }

    /// The primaries as they are known now.
    pub fn primaries(&self) -> Vec<Node> {
        Vec::new()
    }

    /// What every node, primaries first, says of itself.
    ///
    /// # Errors
    /// When a primary cannot be asked. A replica that cannot is left out.
    pub async fn facts(&self) -> Result<Vec<Facts>, Error> {
        Ok(Vec::new())
    }

    /// A way to send, for one thread and its runtime. Connections are made when they are needed.
    pub fn link(&self) -> Link {
        Link::new(self.clone())
    }

    /// A connection of its own to one node, for a few commands.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub async fn session(&self, _node: &Address) -> Result<Session, Error> {
        Err(Error::connect("not built yet"))
    }

    /// Runs one command on one node.
    ///
    /// # Errors
    /// The connection's, or the server's own.
    pub async fn on_node(&self, node: &Address, command: &Cmd) -> Result<Value, Error> {
        self.session(node).await?.call(command).await
    }

    /// Runs one command on each primary, one after the other.
    ///
    /// # Errors
    /// The first one's.
    pub async fn on_each_primary(&self, command: &Cmd) -> Result<Vec<(Address, Value)>, Error> {
        let mut answers = Vec::new();
        for node in self.primaries() {
            let value = self.on_node(&node.address, command).await?;
            answers.push((node.address, value));
        }
        Ok(answers)
    }

    /// All keys of one node that match a pattern, in steps. A key may come twice.
    ///
    /// # Errors
    /// As [`Client::session`].
    pub async fn scan(&self, node: &Address, pattern: &[u8]) -> Result<Scan, Error> {
        Ok(Scan { session: self.session(node).await?, pattern: pattern.to_vec(), cursor: Some(0) })
    }
}

/// A connection of its own to one node.
#[derive(Debug)]
pub struct Session {}

impl Session {
    /// Runs one command.
    ///
    /// # Errors
    /// `NotSent` or `UnknownOutcome` when the connection fails, or the server's own error.
    pub async fn call(&mut self, _command: &Cmd) -> Result<Value, Error> {
        Err(Error::not_sent("not built yet"))
    }
}

/// A scan of one node's keys.
#[derive(Debug)]
pub struct Scan {
    session: Session,
    pattern: Vec<u8>,
    cursor: Option<u64>,
}

impl Scan {
    /// The next keys, possibly none of them; `None` at the end.
    ///
    /// # Errors
    /// As [`Session::call`].
    pub async fn next(&mut self) -> Result<Option<Vec<Vec<u8>>>, Error> {
        let _ = (&self.session, &self.pattern, self.cursor);
        Ok(None)
    }
}
