//! `forebay redis`: its subcommands and arguments.

use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

/// The default folder of a topology.
const FOLDER: &str = "forebay-redis";

/// What to do with a local topology.
#[derive(Debug, Subcommand)]
pub enum Redis {
    /// Start servers, and print the URL for `memory.url` when all of them are ready.
    #[command(after_help = "Examples:
  forebay redis up
  forebay redis up --topology sentinel --replicas 2 --server redis
  forebay redis up --topology cluster --masters 15 --replicas 1")]
    Up(Up),
    /// Show the nodes, their roles and their replication; exit code 1 when a node is missing or behind.
    #[command(after_help = "Example:
  forebay redis status --json")]
    Status(Status),
    /// End a node as a crash would (kill -9).
    #[command(after_help = "Example:
  forebay redis kill node-2")]
    Kill(One),
    /// Start a node that was killed, on the data that it left.
    #[command(after_help = "Example:
  forebay redis start node-2")]
    Start(One),
    /// Stop a node's process (SIGSTOP): its connections stay open and get no answers.
    #[command(after_help = "Example:
  forebay redis stop node-2")]
    Stop(One),
    /// Let a stopped node continue (SIGCONT).
    #[command(after_help = "Example:
  forebay redis cont node-2")]
    Cont(One),
    /// Move slots with their keys from one primary of a cluster to another, while both serve.
    #[command(after_help = "Example:
  forebay redis reshard --from node-1 --to node-3 --slots 500")]
    Reshard(Reshard),
    /// End all servers in order; their folder keeps the data, also of servers without an append-only file.
    #[command(after_help = "Example:
  forebay redis halt")]
    Halt(Whole),
    /// Start what was halted, killed or ended with the machine, on the data that it left; print the URL when
    /// all are ready.
    #[command(after_help = "Example:
  forebay redis resume")]
    Resume(Resume),
    /// End all servers and remove their folder.
    #[command(after_help = "Example:
  forebay redis down")]
    Down(Whole),
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Shape {
    /// One instance.
    Single,
    /// A primary with replicas.
    Replicas,
    /// A primary with replicas, and three Sentinels.
    Sentinel,
    /// Primaries that share the hash slots, each with replicas.
    Cluster,
}

/// Which server.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Server {
    /// The program `valkey-server`.
    Valkey,
    /// The program `redis-server`.
    Redis,
}

/// `yes` or `no`, as in a server's own config.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum YesNo {
    /// Kept on disk.
    Yes,
    /// In memory only.
    No,
}

/// When an append-only file is synced, as in a server's own config.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum AppendFsync {
    /// Before a command is answered.
    Always,
    /// Once a second.
    Everysec,
    /// When the kernel decides.
    No,
}

#[derive(Debug, Args)]
pub struct Up {
    /// The shape.
    #[arg(long, value_enum, default_value = "single")]
    pub topology: Shape,
    /// Primaries of a cluster [default: 3].
    #[arg(long, value_name = "N")]
    pub masters: Option<usize>,
    /// Replicas of each primary [default: 1].
    #[arg(long, value_name = "N")]
    pub replicas: Option<usize>,
    /// Which server; without it, Valkey when it is installed, else Redis.
    #[arg(long, value_enum)]
    pub server: Option<Server>,
    #[command(flatten)]
    pub place: TopologyFolder,
    /// Port of the first node, the others follow; a cluster's bus is 10,000 above.
    #[arg(long, value_name = "BASE", default_value_t = 7000)]
    pub port: u16,
    /// Whether writes are kept on disk.
    #[arg(long, value_enum, default_value = "yes")]
    pub appendonly: YesNo,
    /// When they are synced.
    #[arg(long, value_enum, default_value = "everysec")]
    pub appendfsync: AppendFsync,
    /// Password of the servers' default user; without it, none is asked.
    #[arg(long, value_name = "PASSWORD")]
    pub password: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Which topology.
#[derive(Debug, Args)]
pub struct TopologyFolder {
    /// The topology's folder.
    #[arg(long, value_name = "DIR", default_value = FOLDER)]
    pub folder: PathBuf,
}

#[derive(Debug, Args)]
pub struct Status {
    #[command(flatten)]
    pub place: TopologyFolder,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct One {
    /// The node, by name or port.
    pub node: String,
    #[command(flatten)]
    pub place: TopologyFolder,
}

#[derive(Debug, Args)]
pub struct Reshard {
    /// The primary that gives up the slots, by name or port.
    #[arg(long, value_name = "NODE")]
    pub from: String,
    /// The primary that receives the slots.
    #[arg(long, value_name = "NODE")]
    pub to: String,
    /// How many slots.
    #[arg(long, value_name = "N")]
    pub slots: u16,
    #[command(flatten)]
    pub place: TopologyFolder,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Whole {
    #[command(flatten)]
    pub place: TopologyFolder,
}

#[derive(Debug, Args)]
pub struct Resume {
    #[command(flatten)]
    pub place: TopologyFolder,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}
