//! Every limit of this room, and where it comes from.

use std::time::Duration;

/// Nodes of one topology: 100 primaries with one replica each. A gossip section carries a tenth of
/// the nodes, and one machine has no use for more.
pub const NODES_MAX: usize = 200;

/// Slots of a cluster (cluster specification).
pub(crate) const SLOTS: u16 = 16_384;

/// From a node's port to that of its cluster bus, unless configured (cluster specification).
pub(crate) const BUS_OFFSET: u16 = 10_000;

/// Ports that are taken when none is named. Their cluster bus ports end at 32,000, below 32,768,
/// where Linux begins to hand out ports to outgoing connections: a restarted node finds its port
/// free.
pub(crate) const FREE_PORTS: std::ops::Range<u16> = 10_000..22_000;
const _: () = assert!(FREE_PORTS.end + BUS_OFFSET < 32_768);
const _: () = assert!(FREE_PORTS.end - FREE_PORTS.start > 2 * NODES_MAX as u16);

/// How many blocks of ports are tried before it is said that none is free.
pub(crate) const PORT_TRIES: usize = 50;

/// How often a start is repeated when another process took a port between the check and the bind.
pub(crate) const START_TRIES: usize = 5;

/// How long a cluster node is silent before its peers take it for dead. The shortest that a busy
/// machine of two cores bears with 30 nodes; with a replica, writes go on about twice as long after
/// a kill.
pub(crate) const NODE_TIMEOUT_MS: u32 = 2_000;

/// The same for Sentinel, which asks every second.
pub(crate) const SENTINEL_DOWN_AFTER_MS: u32 = 1_500;

/// How long Sentinel gives each step of a failover.
pub(crate) const SENTINEL_FAILOVER_MS: u32 = 5_000;

/// Sentinels beside a primary and its replicas: the fewest that survive the loss of one and still
/// agree by majority.
pub(crate) const SENTINELS: usize = 3;

/// The name under which Sentinel knows the primary.
pub(crate) const SENTINEL_NAME: &str = "forebay";

/// Addresses of a cluster that its URL names: a client learns the others from any of them.
pub(crate) const URL_SEEDS: usize = 3;

/// How long nodes may take until all of them serve and agree. 30 nodes need 5 s on two cores.
pub(crate) const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// Between two looks at nodes that are not ready.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// How long a connection to a local server may take: one that is stopped accepts (the kernel does)
/// and never answers.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a node may take to answer a question about its state.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a step of a slot's move may take: a batch of keys is sent, restored and deleted within it.
pub(crate) const MIGRATE_TIMEOUT: Duration = Duration::from_secs(30);

/// Keys of one MIGRATE. The source serves no client while it runs.
pub(crate) const MIGRATE_KEYS: usize = 100;

/// How long a process that was killed may take to be gone.
pub(crate) const EXIT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the servers of a topology that is halted may take to save their data and end: a snapshot takes
/// about a second a gigabyte.
pub(crate) const HALT_TIMEOUT: Duration = Duration::from_secs(60);

/// Lines of a server's log that go into the error when it does not start.
pub(crate) const LOG_TAIL_LINES: usize = 5;
