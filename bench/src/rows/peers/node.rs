//! The peers written for Node: started from `peers/`, killed when dropped.

use super::stores::{free_address, wait_until};
use forebay_tests::root;
use std::error::Error;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// One process that serves the codes routes.
pub struct Node {
    child: Child,
    /// Where it serves.
    pub address: SocketAddr,
}

fn folder() -> Result<PathBuf, Box<dyn Error>> {
    let folder = root().join("peers");
    if folder.join("node_modules").is_dir() {
        Ok(folder)
    } else {
        Err("the Node peers are not installed: npm ci --prefix peers".into())
    }
}

impl Node {
    /// Starts `peers/FRAMEWORK` on a database and a memory tier.
    pub fn start(framework: &str, postgres: &str, redis: &str) -> Result<Node, Box<dyn Error>> {
        Node::start_with(framework, postgres, ("REDIS_URL", redis))
    }

    /// The same on a cluster with these nodes: `host:port,host:port`.
    pub fn start_on_cluster(framework: &str, postgres: &str, nodes: &str) -> Result<Node, Box<dyn Error>> {
        Node::start_with(framework, postgres, ("REDIS_CLUSTER", nodes))
    }

    fn start_with(framework: &str, postgres: &str, memory: (&str, &str)) -> Result<Node, Box<dyn Error>> {
        let address = free_address()?;
        let child = Command::new("node")
            .arg(folder()?.join(framework).join("server.js"))
            .env("HOST", address.ip().to_string())
            .env("PORT", address.port().to_string())
            .env("DATABASE_URL", postgres)
            .env(memory.0, memory.1)
            .env("NODE_ENV", "production")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| format!("node: {error}; Node 20 or newer runs the peers"))?;
        let mut node = Node { child, address };
        wait_until(framework, &mut node.child, || TcpStream::connect(address).is_ok())?;
        Ok(node)
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // One that has ended by itself cannot be killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Fills a Redis with so many codes in the layout of the peers.
pub fn seed(redis: &str, rows: u64) -> Result<(), Box<dyn Error>> {
    let output = Command::new("node")
        .arg(folder()?.join("common/seed.js"))
        .arg(rows.to_string())
        .env("REDIS_URL", redis)
        .stdin(Stdio::null())
        .output()?;
    crate::process::succeeded(&output)
}
