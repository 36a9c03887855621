//! A snapshot as `pg_current_snapshot()` tells it: which transactions it shows.

use crate::{Error, Kind};

/// Shows every transaction below `xmax` that is not in `running`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Snapshot {
    /// All transactions below it had ended.
    pub(super) xmin: i64,
    /// None from it on had ended.
    pub(super) xmax: i64,
    /// Those in between that were still running, in order.
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
    fn snapshots_come_back() {
        for text in ["10:10:", "10:20:10,14,15"] {
            assert_eq!(Snapshot::parse(text).unwrap().to_string(), text);
        }
        for text in ["", "10", "10:20", "a:b:c", "10:20:x"] {
            assert!(Snapshot::parse(text).is_err(), "{text}");
        }
    }
}
