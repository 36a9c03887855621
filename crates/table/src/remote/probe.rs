//! The probe of the servers at start: it tries the commands that the tier needs, instead of judging a server
//! by name and version.
//!
//! A script in each shard tries each command of the tier once, on a key that only the probe uses. A command
//! that the server does not know, or that the user may not run, is reported with the server's own words. An
//! error that reports a passing state (full memory, no replicas) does not count.

use super::names::ShardNames;
use super::{scripts, wire};
use crate::error::HotError;
use forebay_redis::{Facts, Link};
use futures_util::future::try_join_all;

/// The codes of errors that report a passing state.
const STATES: [&str; 9] =
    ["OOM", "MISCONF", "READONLY", "NOREPLICAS", "MASTERDOWN", "LOADING", "BUSY", "CLUSTERDOWN", "TRYAGAIN"];

/// Fails when one of the servers that have these shards lacks something.
///
/// # Errors
/// The commands that it lacks, or that it does not answer.
pub(super) async fn check(link: &Link, shards: &[ShardNames], servers: &[&Facts]) -> Result<(), HotError> {
    let asked = shards.iter().map(|shard| async {
        let key = [&shard.meta[..], b"?"].concat();
        let answer = link.write(shard.slot, &scripts::PROBE, vec![key], Vec::new()).await?;
        wire::array("probe", answer)?.into_iter().map(|part| wire::text("probe", part)).collect()
    });
    for refused in try_join_all(asked).await? {
        let refused: Vec<String> = refused;
        let lacking: Vec<String> = refused
            .chunks_exact(2)
            .filter(|refusal| !STATES.iter().any(|state| refusal[1].starts_with(state)))
            .map(|refusal| format!("{} ({})", named(&refusal[0]), refusal[1].trim()))
            .collect();
        if !lacking.is_empty() {
            let servers = servers.iter().map(|facts| format!("{} at {}", facts.name(), facts.address));
            let what = format!(
                "{} does not do what the memory tier needs, or not for this user: {}. Redis 6.2 or newer and Valkey do",
                servers.collect::<Vec<_>>().join(" or "),
                lacking.join(", ")
            );
            return Err(HotError::foreign(what));
        }
    }
    Ok(())
}

/// The name of a command, without keys and values.
fn named(command: &str) -> &str {
    if command.contains(" MINID ") { "XTRIM … MINID" } else { command.split(' ').next().unwrap_or(command) }
}
