//! Commands that a setting needs and that no script can try; each is tried once at start on every primary: a
//! server is judged by its behaviour, not by its name and version.
//!
//! A refusal is one sentence: the server, the command, the setting that needs it, the server's own message.
//! A temporary error (the server is loading or busy) is no refusal.

use crate::client::{Client, Session};
use crate::error::{Error, Kind};
use crate::options::Durability;
use redis::{Cmd, cmd};

impl Client {
    /// Tries the command by which this client confirms its writes. The facts of the session's node are
    /// checked first: a server whose version has no WAITAOF, or that does not need it, is not asked.
    pub(crate) async fn check_confirmation(&self, session: &mut Session) -> Result<(), Error> {
        let (command, setting) = match self.options().durability {
            Durability::Async => return Ok(()),
            Durability::Sync if session.facts().syncs_always() => return Ok(()),
            Durability::Sync => {
                (numbers("WAITAOF", 3), "durability = \"sync\" needs without appendfsync always")
            }
            Durability::Replicated(_) => (numbers("WAIT", 2), "durability = \"replicated\" needs"),
        };
        session.attempt(&command, setting).await
    }

    /// Checks that every primary can report changes to keys ([`Client::invalidations`]), which `setting`
    /// needs.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] with what a server lacks; or an error when a server does not answer.
    pub async fn require_invalidations(&self, prefix: &[u8], setting: &str) -> Result<(), Error> {
        for node in self.primaries() {
            let mut session = self.session(&node.address).await?;
            for command in tracking(prefix) {
                session.attempt(&command, setting).await?;
            }
        }
        Ok(())
    }
}

/// A command with arguments that make it return without waiting.
fn numbers(name: &str, count: usize) -> Cmd {
    let mut command = cmd(name);
    for _ in 0..count {
        command.arg(0);
    }
    command
}

/// The commands that subscribe a connection to changes to keys with this prefix.
pub(crate) fn tracking(prefix: &[u8]) -> [Cmd; 2] {
    let (mut hello, mut tracking) = (cmd("HELLO"), cmd("CLIENT"));
    hello.arg(3);
    tracking.arg("TRACKING").arg("ON").arg("BCAST").arg("PREFIX").arg(prefix);
    [hello, tracking]
}

impl Session {
    async fn attempt(&mut self, command: &Cmd, setting: &str) -> Result<(), Error> {
        let Err(error) = self.call(command).await else { return Ok(()) };
        match error.code() {
            Some("ERR" | "NOPERM" | "NOPROTO") => {}
            Some(_) => return Ok(()),
            None => return Err(error),
        }
        let words = command.args_iter().filter_map(|word| match word {
            redis::Arg::Simple(word) => std::str::from_utf8(word).ok(),
            _ => None,
        });
        let name: Vec<&str> = words.take_while(|word| *word != "ON" && *word != "0").collect();
        let facts = self.facts();
        let what = format!(
            "{} at {} does not run {}, or not for this user, and {setting} it: {error}",
            facts.name(),
            facts.address,
            name.join(" ")
        );
        Err(Error::new(Kind::Unsupported, what))
    }
}
