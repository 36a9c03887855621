//! Every limit of this crate, and its source.

use std::time::Duration;

/// Nodes of one topology: 100 primaries with one replica each. A gossip section carries a tenth of the
/// nodes, and one machine does not need more.
pub const NODES_MAX: usize = 200;

/// Slots of a cluster (cluster specification).
pub(crate) const SLOTS: u16 = 16_384;

/// The offset from a node's port to the port of its cluster bus, unless configured (cluster specification).
pub(crate) const BUS_OFFSET: u16 = 10_000;

/// The ports used when the caller names none. Their cluster bus ports end at 32,000, below 32,768, where
/// Linux begins to assign ports to outgoing connections: a restarted node finds its port free.
pub(crate) const FREE_PORTS: std::ops::Range<u16> = 10_000..22_000;
const _: () = assert!(FREE_PORTS.end + BUS_OFFSET < 32_768);
const _: () = assert!(FREE_PORTS.end - FREE_PORTS.start > 2 * NODES_MAX as u16);

/// How many blocks of ports are tried before an error reports that none is free.
pub(crate) const PORT_TRIES: usize = 50;

/// How often a start is repeated when another process took a port between the check and the bind.
pub(crate) const START_TRIES: usize = 5;

/// How long a cluster node may be silent before its peers consider it dead. The shortest time that works on
/// a loaded machine of two cores with 30 nodes; with a replica, writes resume about twice as long after a
/// kill.
pub(crate) const NODE_TIMEOUT_MS: u32 = 2_000;

/// The same for Sentinel, which asks every second.
pub(crate) const SENTINEL_DOWN_AFTER_MS: u32 = 1_500;

/// The time that Sentinel allows for each step of a failover.
pub(crate) const SENTINEL_FAILOVER_MS: u32 = 5_000;

/// Sentinels beside a primary and its replicas: the fewest that survive the loss of one and still
/// agree by majority.
pub(crate) const SENTINELS: usize = 3;

/// The name under which Sentinel knows the primary.
pub(crate) const SENTINEL_NAME: &str = "forebay";

/// Addresses of a cluster in its URL: a client discovers the other nodes from any of them.
pub(crate) const URL_SEEDS: usize = 3;

/// How long nodes may take until all of them serve and agree. 30 nodes need 5 s on two cores.
pub(crate) const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// The interval between two checks of nodes that are not ready.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// How long it may take to connect to a local server: a stopped server accepts (the kernel does) and never
/// answers.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a node may take to answer a query about its state.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a step of a slot's migration may take: a batch of keys is sent, restored and deleted within it.
pub(crate) const MIGRATE_TIMEOUT: Duration = Duration::from_secs(30);

/// Keys of one MIGRATE. The source serves no client meanwhile.
pub(crate) const MIGRATE_KEYS: usize = 100;

/// How long a killed process may take to disappear.
pub(crate) const EXIT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the servers of a halted topology may take to save their data and end: a snapshot takes about a
/// second per gigabyte.
pub(crate) const HALT_TIMEOUT: Duration = Duration::from_secs(60);

/// Lines of a server's log in the error when the server does not start.
pub(crate) const LOG_TAIL_LINES: usize = 5;
