//! A [`Link`]: what one worker thread sends with.

use std::future::Future;

use redis::{Cmd, Value};

use crate::client::Client;
use crate::error::Error;
use crate::script::Script;
use crate::slot::Slot;

/// Sends requests to the node that has their slot, batched with what arrives meanwhile. Cheap to clone; belongs to the
/// runtime that first uses it. Dropping a future gives up its answer, not the request, when that is on its way.
#[derive(Clone, Debug)]
pub struct Link {
    client: Client,
}

impl Link {
    pub(crate) fn new(client: Client) -> Link {
        Link { client }
    }

    /// The client that this link belongs to.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Runs a command that only reads. It is sent again inside the deadline when a connection is lost.
    ///
    /// # Errors
    /// `NotSent` when no answer could be had in time; the server's own.
    pub fn read(&self, slot: Slot, command: Cmd) -> impl Future<Output = Result<Value, Error>> + Send + use<> {
        let _ = (slot, command);
        async { Err(Error::not_sent("not built yet")) }
    }

    /// Runs a script that writes; answered when it is as durable as the options say.
    ///
    /// # Errors
    /// `NotSent`: it did not run. `UnknownOutcome`: it may have, or is not as durable as asked. The script's own.
    pub fn write(
        &self,
        slot: Slot,
        script: &'static Script,
        keys: Vec<Vec<u8>>,
        args: Vec<Vec<u8>>,
    ) -> impl Future<Output = Result<Value, Error>> + Send + use<> {
        let _ = (slot, script, keys, args);
        async { Err(Error::not_sent("not built yet")) }
    }

    /// Runs a script that only reads, as [`Link::read`].
    ///
    /// # Errors
    /// As [`Link::read`].
    pub fn eval_read(
        &self,
        slot: Slot,
        script: &'static Script,
        keys: Vec<Vec<u8>>,
        args: Vec<Vec<u8>>,
    ) -> impl Future<Output = Result<Value, Error>> + Send + use<> {
        let _ = (slot, script, keys, args);
        async { Err(Error::not_sent("not built yet")) }
    }
}
