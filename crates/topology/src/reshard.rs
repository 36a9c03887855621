//! Moves slots from one primary to another while both serve: the procedure of the cluster specification,
//! which every version supports.
//!
//! 1. target: `CLUSTER SETSLOT s IMPORTING source`; source: `CLUSTER SETSLOT s MIGRATING target`.
//!    From now on the source redirects clients to the target (ASK) for keys that it does not have, so
//!    that no new key can appear on the source unnoticed.
//! 2. source: `MIGRATE` the slot's keys, batch by batch, each batch atomic.
//! 3. target, source, then every other primary: `CLUSTER SETSLOT s NODE target`. The target first:
//!    if the mover dies between the two, both know an owner, and the source still redirects to the
//!    target.
//!
//! A repeated call completes an interrupted one: slots that are half-way between the two nodes are moved
//! before others.

use crate::control::{self, Peer};
use crate::error::{Error, Kind, Result};
use crate::limits::{MIGRATE_KEYS, MIGRATE_TIMEOUT};
use crate::local::Local;
use crate::state::Node;
use redis::{Connection, Value, cmd};

/// What a reshard moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Hash slots that now have another primary.
    pub slots: u16,
    /// Keys in these slots.
    pub keys: u64,
}

/// A connection, and the node at its other end.
struct End<'a> {
    node: &'a Node,
    connection: Connection,
}

impl End<'_> {
    fn set_slot(&mut self, slot: u16, state: &str, id: &str) -> Result<()> {
        cmd("CLUSTER")
            .arg("SETSLOT")
            .arg(slot)
            .arg(state)
            .arg(id)
            .query::<()>(&mut self.connection)
            .map_err(|error| Error::command(&self.node.name, &format!("set slot {slot} to {state}"), error))
    }

    fn myself(&mut self) -> Result<Peer> {
        let peers = control::peers(&mut self.connection)
            .map_err(|error| Error::command(&self.node.name, "list its peers", error))?;
        peers
            .into_iter()
            .find(|peer| peer.has("myself"))
            .ok_or_else(|| Error::new(Kind::Command, format!("{} does not list itself", self.node.name)))
    }
}

impl Local {
    /// Moves slots with their keys from one primary to another, and waits until all nodes agree. After each
    /// slot, `progress` is called with the totals so far.
    pub fn reshard(
        &self,
        from: &str,
        to: &str,
        slots: u16,
        mut progress: impl FnMut(Moved),
    ) -> Result<Moved> {
        let chosen = self.choose(from, to, slots)?;
        let mut moved = Moved::default();
        for slot in chosen {
            self.begin_slot(slot, from, to)?;
            loop {
                let keys = self.move_keys(slot, from, to, MIGRATE_KEYS)?;
                moved.keys += keys;
                if keys == 0 {
                    break;
                }
            }
            self.finish_slot(slot, from, to)?;
            moved.slots += 1;
            progress(moved);
        }
        self.wait_ready()?;
        Ok(moved)
    }

    /// First step of one slot's move: the target imports, the source migrates. From now on clients are
    /// redirected from one to the other.
    pub fn begin_slot(&self, slot: u16, from: &str, to: &str) -> Result<()> {
        let (mut from, mut to) = (self.end(from)?, self.end(to)?);
        let (from_id, to_id) = (from.node.id.clone(), to.node.id.clone());
        to.set_slot(slot, "IMPORTING", &from_id)?;
        from.set_slot(slot, "MIGRATING", &to_id)
    }

    /// Second step: moves at most `count_max` keys. Returns the number moved; 0 when no key is left.
    pub fn move_keys(&self, slot: u16, from: &str, to: &str, count_max: usize) -> Result<u64> {
        let (mut from, to) = (self.end(from)?, self.layout.find(to)?);
        let keys: Vec<Vec<u8>> = cmd("CLUSTER")
            .arg("GETKEYSINSLOT")
            .arg(slot)
            .arg(count_max)
            .query(&mut from.connection)
            .map_err(|error| {
                Error::command(&from.node.name, &format!("list the keys of slot {slot}"), error)
            })?;
        if keys.is_empty() {
            return Ok(0);
        }
        let mut migrate = cmd("MIGRATE");
        migrate.arg("127.0.0.1").arg(to.port).arg("").arg(0).arg(MIGRATE_TIMEOUT.as_millis() as u64);
        if let Some(password) = self.password() {
            migrate.arg("AUTH").arg(password);
        }
        // OK, or NOKEY when all of the keys have expired since they were listed.
        let answer: redis::RedisResult<Value> = migrate.arg("KEYS").arg(&keys).query(&mut from.connection);
        answer.map_err(|error| {
            Error::command(&from.node.name, &format!("move keys of slot {slot} to {}", to.name), error)
        })?;
        Ok(keys.len() as u64)
    }

    /// Last step: the target owns the slot, and every running primary is told.
    pub fn finish_slot(&self, slot: u16, from: &str, to: &str) -> Result<()> {
        let owner = self.layout.find(to)?.id.clone();
        let (mut source, mut target) = (self.end(from)?, self.end(to)?);
        target.set_slot(slot, "NODE", &owner)?;
        source.set_slot(slot, "NODE", &owner)?;
        for node in self.primaries()?.iter().filter(|node| **node != *source.node && **node != *target.node) {
            self.end(&node.name)?.set_slot(slot, "NODE", &owner)?;
        }
        Ok(())
    }

    fn end(&self, name: &str) -> Result<End<'_>> {
        let node = self.layout.find(name)?;
        let connection = control::connect(node, self.password_of(node))
            .and_then(|connection| {
                connection.set_read_timeout(Some(MIGRATE_TIMEOUT))?;
                Ok(connection)
            })
            .map_err(|error| Error::command(&node.name, "answer", error))?;
        Ok(End { node, connection })
    }

    /// The slots to move: those half-way, then the lowest.
    fn choose(&self, from: &str, to: &str, slots: u16) -> Result<Vec<u16>> {
        let refuse = |text: String| Err(Error::new(Kind::Node, text));
        if !self.layout.topology.is_cluster() {
            return refuse(format!("slots are of a cluster; this is a {}", self.layout.topology));
        }
        let (mut source, mut target) = (self.end(from)?, self.end(to)?);
        if source.node == target.node {
            return refuse(format!("{} cannot give slots to itself", source.node.name));
        }
        let giving = source.myself()?;
        for (end, peer) in [(source.node, &giving), (target.node, &target.myself()?)] {
            if let Some(primary) = &peer.primary {
                let primary = self.layout.nodes.iter().find(|node| node.id == *primary);
                let name = primary.map_or("another node", |node| &node.name);
                return refuse(format!("{} is a replica: slots are its primary's, {name}", end.name));
            }
        }
        if usize::from(slots) > giving.slot_count() || slots == 0 {
            let count = giving.slot_count();
            return refuse(format!(
                "{} has {count} slots: between 1 and {count} can be moved",
                source.node.name
            ));
        }
        let mut chosen: Vec<u16> =
            giving.migrating.iter().filter(|(_, id)| *id == target.node.id).map(|(slot, _)| *slot).collect();
        for slot in giving.slots.iter().flat_map(|(first, last)| *first..=*last) {
            if chosen.len() < usize::from(slots) && !chosen.contains(&slot) {
                chosen.push(slot);
            }
        }
        chosen.truncate(usize::from(slots));
        Ok(chosen)
    }
}
