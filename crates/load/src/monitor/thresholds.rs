//! When something counts as used up: every threshold of the verdict, and where it comes from.

use std::time::Duration;

/// Between two samples: the seconds of the results.
pub(super) const INTERVAL: Duration = Duration::from_secs(1);

/// How long a server may take to give a sample: one that is overloaded answers late on its admin
/// listener too, and an answer later than three seconds says nothing about the second in question.
pub(super) const ANSWER_MS: u64 = 3_000;

/// Part of the rate asked for that must be answered in time for "met": what the engine and `--find-max` say.
pub(super) const RATE_MET: f64 = crate::RATE_REACHED;

/// A machine whose cores are busy to this part has none left: the kernel's accounting is in ticks
/// of 10 ms (1 % of a second), and balancing between cores leaves some per cent idle even when
/// all processes want to run.
pub(super) const MACHINE_BUSY: f64 = 0.92;

/// A thread that runs for this part of a second is always runnable: interrupts and ticks take the
/// rest.
pub(super) const THREAD_BUSY: f64 = 0.93;

/// When the hypervisor takes this part of the CPU, latencies depend on the load of other guests: 5
/// % is a pause of 50 ms a second, far above the 1 % that the accounting can be wrong by.
pub(super) const STOLEN: f64 = 0.05;

/// Stolen time can only be distinguished from idle time when a task wanted it: busy and stolen time
/// together reach this part.
pub(super) const STOLEN_WANTED: f64 = 0.70;

/// Part of its nominal speed at which an interface is full: with headers and gaps of 38 bytes,
/// frames of 1500 bytes carry 94 to 95 % of payload, and `/proc/net/dev` counts without the gaps.
pub(super) const INTERFACE_FULL: f64 = 0.90;

/// Part of the seconds in which packets waited in an interface's queue or its shaper held packets
/// back; by chance this happens in a few per cent of them.
pub(super) const QUEUE_WAITED: f64 = 0.5;

/// A shaper that holds back this many packets a second has reached its rate; bursts below it cause a
/// handful.
pub(super) const HELD_BACK_PER_S: f64 = 20.0;

/// Part of the segments of a run that were lost, from which loss slows TCP: its rate falls with the
/// square root of the loss, and wired networks lose less than one segment in ten thousand.
pub(super) const LOST: f64 = 0.01;

/// Segments of a run below which a few that are lost by chance would look like a full network.
pub(super) const SEGMENTS_MIN: f64 = 1_000.0;

/// Part of the busy CPU time of a machine below which the tester's process is not what uses the machine up.
pub(super) const TESTER_SHARE: f64 = 0.25;

/// Part of the probe's rate before the run, from which the path to the server is full: the load shares
/// the path with headers and acknowledgements, which the probe does not count either.
pub(super) const PATH_FULL: f64 = 0.90;

/// Part of the requests under way that wait for the database, from which the verdict names the
/// database.
pub(super) const WAITING: f64 = 0.5;

/// Share of the time with a task waiting for the disk above which the verdict names the disk.
pub(super) const DISK_STALLED: f64 = 0.5;

/// Part of what connections can carry (connections × pipelining / latency) from which there are too
/// few of them.
pub(super) const CONNECTIONS_FULL: f64 = 0.90;

/// Part of the answers that may have failed while the rate still counts as met. Above it, errors are named
/// first.
pub(super) const FAILED: f64 = 0.01;

/// Fewer seconds than this say nothing: the first and the last one are cut by the beginning and the end.
pub(super) const SECONDS_MIN: usize = 2;

const _: () = assert!(STOLEN < STOLEN_WANTED && RATE_MET < 1.0);
const _: () = assert!(ANSWER_MS >= INTERVAL.as_millis() as u64);
