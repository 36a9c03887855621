//! How long the changes of each table take, so that a batch that takes too long says whose fault that is.

use crate::{Error, Kind};
use forebay_value::Schema;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the changes of each table of a batch have taken, and how long all may take.
pub(crate) struct SpentTimes {
    spent: Vec<Duration>,
    began: Instant,
    since: Instant,
    limit: Duration,
}

impl SpentTimes {
    pub(crate) fn new(limit_ms: u64) -> SpentTimes {
        let now = Instant::now();
        SpentTimes { spent: Vec::new(), began: now, since: now, limit: Duration::from_millis(limit_ms) }
    }

    /// Counts the time since the last change as that of this table.
    pub(crate) fn count(&mut self, table: usize) {
        if self.spent.len() <= table {
            self.spent.resize(table + 1, Duration::ZERO);
        }
        let now = Instant::now();
        self.spent[table] += now - self.since;
        self.since = now;
    }

    /// The table whose changes took longest.
    fn slowest(&self) -> usize {
        (0..self.spent.len()).max_by_key(|table| self.spent[*table]).unwrap_or_default()
    }

    /// Fails once the changes have taken longer than they may.
    pub(crate) fn check(&self, schemas: &[Arc<Schema>]) -> Result<(), Error> {
        if self.began.elapsed() <= self.limit {
            return Ok(());
        }
        Err(self.named(Error::new(Kind::Timeout, "a batch took longer than it may"), schemas))
    }

    /// The error with the table that took longest.
    pub(crate) fn named(&self, error: Error, schemas: &[Arc<Schema>]) -> Error {
        error.stuck_at(Some(&schemas[self.slowest()].name), "takes longer than it may".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_value::{Column, KeyKind, Type};

    #[test]
    fn the_slowest_table_is_named() {
        let schema = |name: &str| {
            let column = Column {
                name: "id".into(),
                ty: Type::Bigint,
                nullable: false,
                unique: false,
                indexed: false,
                fill: None,
            };
            Arc::new(Schema::new(name, vec![column], 0, KeyKind::Bigint).expect("a schema"))
        };
        let schemas = [schema("quick"), schema("slow"), schema("idle")];
        let mut spent = SpentTimes::new(0);
        spent.count(0);
        std::thread::sleep(Duration::from_millis(2));
        spent.count(1);
        spent.count(0);
        let stuck = spent.check(&schemas).unwrap_err();
        assert_eq!(stuck.stuck().unwrap().table.as_deref(), Some("slow"));
        assert!(SpentTimes::new(60_000).check(&schemas).is_ok());
    }
}
