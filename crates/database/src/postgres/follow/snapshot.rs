//! A snapshot as `pg_current_snapshot()` returns it: which transactions it shows.

use crate::limits::FOLLOW_POLL_LOCK_MS;
use crate::{Error, Kind};

/// Shows every transaction below `xmax` that is not in `running`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Snapshot {
    /// All transactions below it had ended.
    pub(super) xmin: i64,
    /// None from it on had ended.
    pub(super) xmax: i64,
    /// The transactions in between that were still running, in order.
    pub(super) running: Vec<i64>,
}

impl Snapshot {
    /// Reads `xmin:xmax:xip,xip,…`.
    pub(super) fn parse(text: &str) -> Result<Snapshot, Error> {
        let parse = || {
            let mut parts = text.split(':');
            let xmin = parts.next()?.parse().ok()?;
            let xmax = parts.next()?.parse().ok()?;
            let running = parts.next()?.split(',').filter(|xid| !xid.is_empty());
            let mut running = running.map(|xid| xid.parse().ok()).collect::<Option<Vec<i64>>>()?;
            running.sort_unstable();
            Some(Snapshot { xmin, xmax, running })
        };
        parse().ok_or_else(|| Error::new(Kind::Corrupt, format!("{text:?} is no snapshot")))
    }

    /// Whether it shows a committed transaction, given the lower half of its id, as in WAL.
    pub(super) fn shows(&self, xid: u32) -> bool {
        // Transactions that are in WAL now are less than half of all ids behind the newest.
        let newest = u32::try_from(self.xmax & 0xffff_ffff).expect("32 bits");
        let xid = self.xmax - i64::from(newest.wrapping_sub(xid).cast_signed());
        xid < self.xmax && self.running.binary_search(&xid).is_err()
    }

    /// Whether `other` shows every transaction that this snapshot shows.
    pub(super) fn is_within(&self, other: &Snapshot) -> bool {
        let is_hidden = |xid: &i64| *xid >= self.xmax || self.running.contains(xid);
        self.xmax <= other.xmax && other.running.iter().all(is_hidden)
    }
}

/// Changes and rows are found by an index: the table of changes grows and shrinks faster than its statistics.
/// The planner adds so much to the cost of a disabled plan that the server would compile even the catalogue
/// query, for 0.2 to 1 s each time: so `jit` is off too. To plan the statements anew in each poll took most
/// of its time, and no value of a parameter makes another plan better.
const SETTINGS: &str = "SET LOCAL statement_timeout = 0; SET LOCAL plan_cache_mode = force_generic_plan; \
     SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL max_parallel_workers_per_gather = 0; SET LOCAL jit = off";

/// Begins the transaction with one snapshot in which a page is read.
pub(super) fn begin() -> String {
    #[cfg(feature = "planted")]
    if crate::planted_bugs::is("fetch-without-snapshot") {
        return format!("BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY; {SETTINGS}");
    }
    format!(
        "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL lock_timeout = {FOLLOW_POLL_LOCK_MS}; {SETTINGS}"
    )
}

impl std::fmt::Display for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}:", self.xmin, self.xmax)?;
        for (index, xid) in self.running.iter().enumerate() {
            write!(f, "{}{xid}", if index == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_within_another_that_shows_as_much() {
        for (one, other, expected) in [
            ("10:10:", "10:10:", true),
            ("10:10:", "10:20:10,14", true),
            ("10:20:10,14", "10:20:14", true),
            ("10:20:10,14", "20:20:", true),
            ("10:20:14", "10:20:10,14", false),
            ("10:21:14", "10:20:14", false),
            ("10:20:14", "14:30:14,25", true),
            ("14:30:14,25", "14:40:14", true),
            ("20:30:25", "10:40:14", false),
        ] {
            let [one, other] = [one, other].map(|text| Snapshot::parse(text).unwrap());
            assert_eq!(one.is_within(&other), expected, "{one} {other}");
        }
    }

    #[test]
    fn it_shows_what_had_ended() {
        for (snapshot, xid, expected) in [
            ("10:20:10,14", 9, true),
            ("10:20:10,14", 10, false),
            ("10:20:10,14", 13, true),
            ("10:20:10,14", 20, false),
            ("10:20:10,14", 21, false),
            ("4294967290:4294967300:4294967290,4294967299", u32::MAX, true),
            ("4294967290:4294967300:4294967290,4294967299", 4_294_967_290, false),
            ("4294967290:4294967300:4294967290,4294967299", 2, true),
            ("4294967290:4294967300:4294967290,4294967299", 3, false),
            ("4294967290:4294967300:4294967290,4294967299", 4, false),
        ] {
            assert_eq!(Snapshot::parse(snapshot).unwrap().shows(xid), expected, "{snapshot} {xid}");
        }
    }

    #[test]
    fn snapshots_come_back() {
        for text in ["10:10:", "10:20:10,14,15"] {
            assert_eq!(Snapshot::parse(text).unwrap().to_string(), text);
        }
        for text in ["", "10", "10:20", "a:b:c", "10:20:x"] {
            assert!(Snapshot::parse(text).is_err(), "{text}");
        }
    }
}
