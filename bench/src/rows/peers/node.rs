//! The peers written for Node: started from `peers/`, ended with the [`Peer`].

use super::stores::free_address;
use crate::process::Peer;
use forebay_tests::root;
use std::error::Error;
use std::path::PathBuf;
use std::process::{Command, Stdio};

fn folder() -> Result<PathBuf, Box<dyn Error>> {
    let folder = root().join("peers");
    if folder.join("node_modules").is_dir() {
        Ok(folder)
    } else {
        Err("the Node peers are not installed: npm ci --prefix peers".into())
    }
}

/// Starts `peers/FRAMEWORK` on a database and a memory tier.
pub fn start(framework: &str, postgres: &str, redis: &str) -> Result<Peer, Box<dyn Error>> {
    start_with(framework, postgres, &[("REDIS_URL", redis)])
}

/// The same with several processes that share the port.
pub fn start_clustered(
    framework: &str,
    postgres: &str,
    redis: &str,
    workers: usize,
) -> Result<Peer, Box<dyn Error>> {
    start_with(framework, postgres, &[("REDIS_URL", redis), ("WORKERS", &workers.to_string())])
}

/// An item four ways, on the database that has the items.
pub fn start_items(postgres: &str, redis: &str) -> Result<Peer, Box<dyn Error>> {
    start_script("fastify/items.js", postgres, &[("REDIS_URL", redis)])
}

/// `peers/FRAMEWORK` on a cluster with these nodes: `host:port,host:port`.
pub fn start_on_cluster(
    framework: &str,
    postgres: &str,
    nodes: &str,
    workers: usize,
) -> Result<Peer, Box<dyn Error>> {
    start_with(framework, postgres, &[("REDIS_CLUSTER", nodes), ("WORKERS", &workers.to_string())])
}

fn start_with(framework: &str, postgres: &str, environment: &[(&str, &str)]) -> Result<Peer, Box<dyn Error>> {
    start_script(&format!("{framework}/server.js"), postgres, environment)
}

fn start_script(script: &str, postgres: &str, environment: &[(&str, &str)]) -> Result<Peer, Box<dyn Error>> {
    let address = free_address()?;
    let mut command = Command::new("node");
    command
        .arg(folder()?.join(script))
        .env("HOST", address.ip().to_string())
        .env("PORT", address.port().to_string())
        .env("DATABASE_URL", postgres)
        .env("NODE_ENV", "production")
        .envs(environment.iter().copied());
    Ok(Peer::serve(script, command, address)?)
}

/// Fills a Redis with `rows` codes in the layout of the peers.
pub fn seed(redis: &str, rows: u64) -> Result<(), Box<dyn Error>> {
    let output = Command::new("node")
        .arg(folder()?.join("common/seed.js"))
        .arg(rows.to_string())
        .env("REDIS_URL", redis)
        .stdin(Stdio::null())
        .output()?;
    crate::process::succeeded(&output)
}
