//! A request in flight: the command, the caller, and the meaning of an answer.
//!
//! The only module that decides from an answer whether a request was executed.

use crate::addresses::Address;
use crate::connection::checked;
use crate::error::{Error, Kind};
use crate::script::Script;
use crate::slot::Slot;
use crate::wire;
use redis::{Cmd, Value};
use tokio::sync::oneshot;
use tokio::time::Instant;

/// The command or script to run.
#[derive(Debug)]
pub(crate) enum Body {
    Command(Cmd),
    Script { script: &'static Script, keys: Vec<Vec<u8>>, args: Vec<Vec<u8>> },
}

/// A command or script, and how it was redirected.
#[derive(Debug)]
pub(crate) struct RedisJob {
    pub(crate) body: Body,
    /// Whether ASKING precedes it, after an ASK redirection.
    pub(crate) asking: bool,
}

/// A job in a lane's queue.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) job: RedisJob,
    pub(crate) reply: oneshot::Sender<Outcome>,
    pub(crate) deadline: Instant,
}

/// The outcome of a request.
#[derive(Debug)]
pub(crate) enum Outcome {
    Done(Value),
    Failed(Error),
    /// The request may be sent again: it was not executed, or it only reads.
    Again(RedisJob, RetryReason),
}

/// Why a request is sent again, and what must happen first. The error is returned when the deadline has
/// passed.
#[derive(Debug)]
pub(crate) enum RetryReason {
    /// The slot has moved to another node.
    Moved(Slot, Address, Error),
    /// Only this request must go to another node.
    Ask(Address, Error),
    /// The queue is full: the error is returned at once, so that the caller can shed load.
    Full(Error),
    /// The server is loading or busy.
    Wait(Error),
    /// The node is unreachable, or its role has changed: refresh the topology.
    Stale(Error),
}

impl RetryReason {
    pub(crate) fn error(self) -> Error {
        match self {
            RetryReason::Moved(_, _, error)
            | RetryReason::Ask(_, error)
            | RetryReason::Full(error)
            | RetryReason::Wait(error)
            | RetryReason::Stale(error) => error,
        }
    }
}

/// The meaning of a server's answer.
pub(crate) enum Meaning {
    Done(Value),
    Failed(Error),
    NoScript,
    /// The request was not executed.
    Nothing(RetryReason),
}

impl Body {
    /// Packs the job for a connection with this epoch.
    pub(crate) fn pack(&self, epoch: &[u8], verb: &'static [u8], out: &mut Vec<u8>) {
        match self {
            Body::Command(command) => command.write_packed_command(out),
            Body::Script { script, keys, args } => {
                let count = keys.len().to_string();
                let head: [&[u8]; 3] = [verb, script.sha().as_bytes(), count.as_bytes()];
                let parts = head
                    .into_iter()
                    .chain(keys.iter().map(Vec::as_slice))
                    .chain([epoch])
                    .chain(args.iter().map(Vec::as_slice));
                wire::pack(out, head.len() + keys.len() + 1 + args.len(), parts);
            }
        }
    }

    pub(crate) fn script(&self) -> Option<&'static Script> {
        match self {
            Body::Command(_) => None,
            Body::Script { script, .. } => Some(script),
        }
    }
}

/// Interprets an answer. The codes for "not executed" are those by which servers refuse to start a command.
pub(crate) fn meaning(value: Value, from: &Address) -> Meaning {
    let error = match checked(value) {
        Ok(value) => return Meaning::Done(value),
        Err(error) => error,
    };
    let nothing = |error: Error| error.into_kind(Kind::NotSent).context(format_args!("Redis at {from}"));
    match error.code().unwrap_or_default() {
        "NOSCRIPT" => Meaning::NoScript,
        code @ ("MOVED" | "ASK") => {
            let moved = code == "MOVED";
            match redirection(error.message(), from) {
                Some((slot, address)) if moved => {
                    Meaning::Nothing(RetryReason::Moved(slot, address, nothing(error)))
                }
                Some((_, address)) => Meaning::Nothing(RetryReason::Ask(address, nothing(error))),
                None => Meaning::Nothing(RetryReason::Stale(nothing(error))),
            }
        }
        "TRYAGAIN" | "LOADING" | "MASTERDOWN" | "BUSY" => Meaning::Nothing(RetryReason::Wait(nothing(error))),
        "READONLY" | "CLUSTERDOWN" => Meaning::Nothing(RetryReason::Stale(nothing(error))),
        "NOAUTH" | "NOPERM" | "WRONGPASS" => Meaning::Failed(error.into_kind(Kind::Auth)),
        _ => Meaning::Failed(error),
    }
}

/// Parses `MOVED 3999 127.0.0.1:6381`; an empty host means the node that answered.
fn redirection(message: &str, from: &Address) -> Option<(Slot, Address)> {
    let mut words = message.split_ascii_whitespace().skip(1);
    let slot = Slot(words.next()?.parse().ok()?);
    let address = Address::parse(words.next()?)?;
    match (&address, from) {
        (Address::Tcp(host, port), Address::Tcp(same, _)) if host.is_empty() || &**host == "?" => {
            Some((slot, Address::Tcp(same.clone(), *port)))
        }
        _ => Some((slot, address)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_get_the_epoch_as_their_first_argument() {
        static ECHO: Script = Script::new("echo", "return ARGV[1]");
        let body = Body::Script {
            script: &ECHO,
            keys: vec![b"k".to_vec()],
            args: vec![b"a".to_vec(), b"".to_vec()],
        };
        let mut ours = Vec::new();
        body.pack(b"run:repl", b"EVALSHA", &mut ours);
        let mut command = redis::cmd("EVALSHA");
        command.arg(ECHO.sha()).arg(1).arg("k").arg("run:repl").arg("a").arg("");
        assert_eq!(ours, command.get_packed_command());
    }

    #[test]
    fn redirections_name_their_node() {
        let from = Address::tcp("10.0.0.1", 7_000);
        let cases = [
            ("MOVED 3999 127.0.0.1:6381", Some((Slot(3_999), Address::tcp("127.0.0.1", 6_381)))),
            ("ASK 1 ::1:6381", Some((Slot(1), Address::tcp("::1", 6_381)))),
            ("MOVED 2 :6381", Some((Slot(2), Address::tcp("10.0.0.1", 6_381)))),
            ("MOVED 2 ?:6381", Some((Slot(2), Address::tcp("10.0.0.1", 6_381)))),
            ("MOVED nonsense", None),
        ];
        for (message, expected) in cases {
            assert_eq!(redirection(message, &from), expected, "{message}");
        }
    }
}
