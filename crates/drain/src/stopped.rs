//! Stopped sets: tables whose changes the database does not take now, with all tables that refer to them.
//! Their changes wait in the queue, and the other tables continue.
//!
//! **Why a table stops.** The database would refuse every row of it: when the database refuses a change for
//! another reason than being unreachable or busy, the tables of the batch are compared with the schemas that
//! the records were written for (`misfit`). Or a batch made no progress at the table although the database
//! answers ([`forebay_database::Stuck`]): a lock that somebody forgot, a trigger that fails or is slow. None
//! of its changes becomes a dead letter.
//!
//! **The set.** The tables that refer to a stopped table, also through others, stop with it: the database
//! would refuse their rows because of it, or their triggers would not find its rows. When a table to which a
//! stopped table refers has a row deleted or a referenced column changed (any change, if a trigger refers to
//! it), it stops too, because what waits may need the row as it was, or must change first. The references are
//! those of the catalogue, read when a table stops and before each retry.
//!
//! **Catching up.** At growing intervals a set is tried again: the records of all its tables, from where they
//! were stopped, in the order of the queue, beginning with one record, in turns with the others' batches and
//! in small parts, until the set has caught up with the others. A table that fails meanwhile keeps those that
//! refer to it, and the rest goes on. What may end by itself (a lock, slowness) is announced only when it has
//! lasted for [`ANNOUNCED_AFTER`].
//!
//! **In the database** `forebay_position.position` stays where the first stopped table was stopped:
//! everything before it is in the database, of all tables, so that the queue is released only below it; what
//! the stopped tables hold back of a log is set aside (`embedded::aside`). `forebay_position.note` contains
//! how far the others are, and where each stopped table was stopped:
//! ```text
//! {"reached":5120,"stopped":{"orders":4096}}
//! ```
//! It is empty when no table is stopped. Position and note are compared and set together, in the batch's
//! transaction. Which of the tables had the trouble is not stored: after a restart tables that are connected
//! by references are one set.

use crate::limits::{ANNOUNCED_AFTER, CATCH_UP_MS, SLOW_ROW_MS};
use crate::pace::BackOff;
use crate::reached::Reached;
use crate::uncoalesced::Uncoalesced;
use forebay_database::{Change, Op, Reference, References};
use forebay_log::Position;
use forebay_value::{Schema, Timestamp};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A table that is stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoppedTable {
    /// Its name.
    pub table: String,
    /// What is wrong with the table, or with the one for which it waits, as a sentence.
    pub reason: String,
    /// When it was stopped.
    pub since: Timestamp,
}

/// The stopped tables of a queue.
#[derive(Debug, Default)]
pub(crate) struct StoppedTables {
    /// Each stopped table, with the one whose trouble it is: itself, or another for which it waits.
    tables: BTreeMap<String, String>,
    troubles: BTreeMap<String, Trouble>,
    /// `None`: not read yet.
    references: Option<References>,
    catching_up: Option<CatchingUp>,
    /// Tables whose rows took long when they last caught up: how many milliseconds a row.
    slow: BTreeMap<String, f64>,
    /// Whether the last batch was of the tables that catch up: then the others have their turn.
    had_turn: bool,
}

/// Whether a trouble can end without anybody correcting something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ends {
    ByItself,
    WhenCorrected,
}

/// Why a table is stopped.
#[derive(Debug)]
struct Trouble {
    /// The rest of a sentence that begins with the table's name.
    what: String,
    since: Timestamp,
    announced_at: Instant,
    /// Whether the table was stopped by an earlier drain: it may only have waited for another.
    is_inherited: bool,
    /// Whether the others have passed the change that stopped it, also in the database. Before that the table
    /// has nothing to catch up with, and would start only to be stopped again.
    is_passed: bool,
    /// When the table is tried again.
    retry_at: Instant,
    back_off: BackOff,
}

impl Trouble {
    fn new(what: String, now: Instant) -> Trouble {
        Trouble {
            what,
            since: Timestamp::now(),
            announced_at: now,
            is_inherited: false,
            is_passed: false,
            retry_at: now,
            back_off: BackOff::default(),
        }
    }

    fn is_due(&self, now: Instant) -> bool {
        self.is_passed && self.retry_at <= now
    }
}

/// Tables that catch up with the others.
#[derive(Debug)]
pub(crate) struct CatchingUp {
    pub tables: BTreeSet<String>,
    /// Changes in the next batch at most.
    pub rows: usize,
    pub uncoalesced: Option<Uncoalesced>,
    /// The last batch alters tables itself, and is to be tried again.
    pub alters: bool,
}

impl CatchingUp {
    /// Sizes the next batch, after one of `rows` changes that took this long.
    pub(crate) fn sized(&mut self, rows: usize, took: Duration) {
        let fit = rows as f64 * (CATCH_UP_MS as f64 / 1e3) / took.as_secs_f64().max(1e-6);
        self.rows = (fit as usize).clamp(1, self.rows.max(rows).saturating_mul(2));
    }
}

impl StoppedTables {
    pub(crate) fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    /// The stopped tables, except where the trouble has not lasted long and may end by itself.
    pub(crate) fn announced(&self) -> Vec<StoppedTable> {
        let now = Instant::now();
        let one = |(table, of): (&String, &String)| {
            let trouble = self.troubles.get(of).filter(|trouble| trouble.announced_at <= now)?;
            let what = &trouble.what;
            let reason = match table == of {
                true => format!("table {table} {what}: its changes wait, other tables are drained"),
                false => format!("table {table} waits for table {of}, which {what}"),
            };
            Some(StoppedTable { table: table.clone(), reason, since: trouble.since })
        };
        self.tables.iter().filter_map(one).collect()
    }

    /// Whether a stopped table is not announced.
    pub(crate) fn has_unannounced(&self) -> bool {
        let now = Instant::now();
        self.troubles.values().any(|trouble| trouble.announced_at > now)
    }

    pub(crate) fn is_due(&self) -> bool {
        self.catching_up.is_some() || self.due().is_some()
    }

    pub(crate) fn catching_up(&self) -> Option<&CatchingUp> {
        self.catching_up.as_ref()
    }

    pub(crate) fn catching_up_mut(&mut self) -> Option<&mut CatchingUp> {
        self.catching_up.as_mut()
    }

    /// Whether the next batch is of the tables that catch up: every other one is.
    pub(crate) fn take_turn(&mut self) -> bool {
        self.had_turn = self.catching_up.is_some() && !self.had_turn;
        self.had_turn
    }

    /// Whether the references are known.
    pub(crate) fn knows_references(&self) -> bool {
        self.references.is_some()
    }

    /// Takes over the references that were just read.
    pub(crate) fn learn(&mut self, references: References) {
        self.references.get_or_insert_default().learn(references);
    }

    /// The stopped tables that are connected with this one by references: all are tried again together.
    fn set_of(&self, table: &str) -> BTreeSet<String> {
        match &self.references {
            Some(references) => references.connected(table, |other| self.tables.contains_key(other)),
            None => BTreeSet::from([table.to_owned()]),
        }
    }

    /// A set, all of whose troubles are to be tried again now.
    fn due(&self) -> Option<BTreeSet<String>> {
        let now = Instant::now();
        let due = self.troubles.iter().filter(|(_, trouble)| trouble.is_due(now));
        let mut sets = due.map(|(table, _)| self.set_of(table));
        sets.find(|set| set.iter().filter_map(|table| self.troubles.get(table)).all(|of| of.is_due(now)))
    }

    /// Whether a set is to be tried again, and none catches up.
    pub(crate) fn must_begin(&self) -> bool {
        self.catching_up.is_none() && self.due().is_some()
    }

    /// Lets a set that is due catch up.
    pub(crate) fn begin(&mut self) {
        if self.catching_up.is_none() {
            let catch_up = |tables| CatchingUp { tables, rows: 1, uncoalesced: None, alters: false };
            self.catching_up = self.due().map(catch_up);
        }
    }

    /// Sizes the next batch of the tables that catch up, after one of `rows` changes that took this long, and
    /// notes whether their rows take long.
    pub(crate) fn measured(&mut self, rows: usize, took: Duration) {
        let Some(own) = &mut self.catching_up else { return };
        own.sized(rows, took);
        let took_ms = took.as_secs_f64() * 1e3;
        let mut troubled = own.tables.iter().filter(|table| self.troubles.contains_key(*table));
        if let (Some(table), None) = (troubled.next(), troubled.next())
            && took_ms * 2.0 >= CATCH_UP_MS as f64
        {
            match took_ms / rows.max(1) as f64 {
                row_ms if row_ms >= SLOW_ROW_MS => drop(self.slow.insert(table.clone(), row_ms)),
                _ => drop(self.slow.remove(table)),
            }
        }
    }

    /// The slow tables among these changes whose rows would take too long in one batch with the others, and
    /// what is to be said of each.
    pub(crate) fn too_slow(&self, changes: &[Change], schemas: &[Arc<Schema>]) -> Vec<(String, String)> {
        let mut found = Vec::new();
        for (table, row_ms) in &self.slow {
            let rows = changes.iter().filter(|change| schemas[change.table].name == *table).count();
            if rows as f64 * row_ms > CATCH_UP_MS as f64 {
                found.push((table.clone(), format!("takes about {row_ms:.1} ms for a row")));
            }
        }
        found
    }

    /// Merges the stopped tables of this process with those of the database, after its position was read.
    pub(crate) fn agree(&mut self, reached: &mut Reached) {
        for table in self.tables.keys() {
            // Stopped since the last commit: nothing behind that commit was applied.
            reached.stopped.entry(table.clone()).or_insert(reached.others);
        }
        for table in reached.stopped.keys() {
            if self.tables.contains_key(table) {
                continue;
            }
            let trouble = Trouble::new("was stopped before this drain began".into(), Instant::now());
            // The change that stopped the table lies before the position of the others, or no such change
            // exists.
            let trouble = Trouble { is_passed: true, is_inherited: true, ..trouble };
            self.troubles.insert(table.clone(), trouble);
            self.tables.insert(table.clone(), table.clone());
        }
    }

    /// Records that the others were committed without the changes of stopped tables.
    pub(crate) fn passed(&mut self) {
        self.troubles.values_mut().for_each(|trouble| trouble.is_passed = true);
    }

    /// After a commit: tables that have caught up are no longer stopped.
    pub(crate) fn agreed(&mut self, reached: &Reached) {
        self.tables.retain(|table, _| reached.stopped.contains_key(table));
        self.troubles.retain(|table, _| self.tables.contains_key(table));
        let is_behind =
            |catching_up: &CatchingUp| catching_up.tables.iter().any(|table| self.tables.contains_key(table));
        self.catching_up = self.catching_up.take().filter(is_behind);
        // A table is never left waiting for one that has recovered.
        let left = self.tables.iter().filter(|(_, of)| !self.troubles.contains_key(*of));
        for table in left.map(|(table, _)| table.clone()).collect::<Vec<_>>() {
            let trouble = Trouble::new("has not caught up yet".into(), Instant::now());
            self.troubles.insert(table.clone(), Trouble { is_passed: true, ..trouble });
            self.tables.insert(table.clone(), table);
        }
    }

    /// Retains only the changes of `of`, behind where each of its tables is, or of all tables that are not
    /// stopped.
    pub(crate) fn retain(
        &self,
        of: Option<&BTreeSet<String>>,
        reached: &Reached,
        changes: &mut Vec<Change>,
        schemas: &[Arc<Schema>],
    ) {
        if self.tables.is_empty() {
            return;
        }
        let begin = |schema: &Arc<Schema>| match of {
            Some(set) => set.contains(&schema.name).then(|| reached.of(&schema.name)),
            None => (!self.tables.contains_key(&schema.name)).then_some(Position(0)),
        };
        let begins: Vec<Option<Position>> = schemas.iter().map(begin).collect();
        changes.retain(|change| begins[change.table].is_some_and(|begin| change.position > begin.0));
    }

    /// The tables whose rows these changes delete, or change in a column to which a stopped table outside
    /// `of` refers: each with that table.
    pub(crate) fn needed(
        &self,
        of: Option<&BTreeSet<String>>,
        changes: &[Change],
        schemas: &[Arc<Schema>],
    ) -> Vec<(String, String)> {
        if self.tables.is_empty() {
            return Vec::new();
        }
        let waits =
            |table: &str| self.tables.contains_key(table) && !of.is_some_and(|set| set.contains(table));
        let mut keys: HashMap<&str, Vec<&Reference>> = HashMap::new();
        for key in self.references.iter().flat_map(|references| &references.keys) {
            if waits(&key.child) && !waits(&key.parent) {
                keys.entry(&key.parent).or_default().push(key);
            }
        }
        if keys.is_empty() {
            return Vec::new();
        }
        let keys: Vec<Option<&Vec<_>>> = schemas.iter().map(|schema| keys.get(&*schema.name)).collect();
        let mut found = BTreeMap::new();
        for change in changes {
            let schema = &schemas[change.table];
            let touched = keys[change.table]
                .into_iter()
                .flatten()
                .find(|key| touches(&change.op, schema, key.columns.as_deref()));
            if let Some(key) = touched {
                found.entry(schema.name.clone()).or_insert_with(|| self.tables[&key.child].clone());
            }
        }
        found.into_iter().collect()
    }

    /// Stops a table that has the trouble `what` (the rest of a sentence that begins with its name), with all
    /// that refer to it. `is_passed`: the others are past the change that has it.
    pub(crate) fn stop(
        &mut self,
        table: &str,
        what: String,
        ends: Ends,
        is_passed: bool,
        knows: impl Fn(&str) -> bool,
    ) {
        let now = Instant::now();
        let trouble = self.troubles.entry(table.to_owned()).or_insert_with(|| {
            let announced_at = now + ANNOUNCED_AFTER;
            Trouble { announced_at, ..Trouble::new(String::new(), now) }
        });
        if ends == Ends::WhenCorrected || trouble.is_inherited {
            trouble.announced_at = trouble.announced_at.min(now);
        }
        trouble.what = what;
        trouble.is_inherited = false;
        trouble.is_passed |= is_passed;
        trouble.retry_at = now + trouble.back_off.failed();
        self.wait_for(table, table, knows);
    }

    /// Stops the tables that refer to stopped tables which do not catch up, by references that were made or
    /// found since; returns whether there are any.
    pub(crate) fn grow(&mut self, knows: impl Fn(&str) -> bool) -> bool {
        let own = self.catching_up.as_ref().map(|own| own.tables.clone()).unwrap_or_default();
        let mut has_grown = false;
        for table in self.tables.keys().filter(|table| !own.contains(*table)).cloned().collect::<Vec<_>>() {
            let children = self.references.get_or_insert_default().children(&table);
            for child in children.into_iter().filter(|child| knows(child)) {
                let is_free = own.contains(&child) || !self.tables.contains_key(&child);
                has_grown |= is_free && self.leave_to(&child, &table, &knows);
            }
        }
        has_grown
    }

    /// To which tables this one refers that may be stopped ones under other names: each with the name that
    /// it may have had. Where tables have numbers their names in the queue are known.
    pub(crate) fn may_be_renamed(&self, table: &str, knows: impl Fn(&str) -> bool) -> Vec<(String, String)> {
        let Some(references) = &self.references else { return Vec::new() };
        let is_unknown = |parent: &String| references.tables.get(parent) == Some(&None) && !knows(parent);
        let parents = references.keys.iter().filter(|key| key.child == table && is_unknown(&key.parent));
        let is_away = |(name, of): &(&String, &String)| {
            !references.tables.contains_key(*name) && *name != table && *of != table
        };
        let away: Vec<&String> = self.tables.iter().filter(is_away).map(|(name, _)| name).collect();
        let pairs = parents.flat_map(|key| away.iter().map(|name| (key.parent.clone(), (*name).clone())));
        pairs.collect()
    }

    /// Has a table wait for a stopped one, which is why its changes are refused now; false: it does, or that
    /// one waits for it.
    pub(crate) fn leave_to(&mut self, table: &str, stopped: &str, knows: impl Fn(&str) -> bool) -> bool {
        let of = self.tables[stopped].clone();
        if of == table || self.tables.get(table) == Some(&of) && !self.is_catching_up(table) {
            return false;
        }
        self.troubles.remove(table);
        for waits_for in self.tables.values_mut().filter(|waits_for| *waits_for == table) {
            waits_for.clone_from(&of);
        }
        self.wait_for(table, &of, knows);
        true
    }

    fn is_catching_up(&self, table: &str) -> bool {
        self.catching_up.as_ref().is_some_and(|own| own.tables.contains(table))
    }

    /// Stops a table, with all that refer to it, until the trouble of `of` is over.
    pub(crate) fn wait_for(&mut self, table: &str, of: &str, knows: impl Fn(&str) -> bool) {
        let children = self.references.get_or_insert_default().children(table);
        for child in children.into_iter().filter(|child| child == table || knows(child)) {
            if let Some(catching_up) = &mut self.catching_up {
                catching_up.tables.remove(&child);
            }
            match self.troubles.get(&child) {
                Some(own) if child != of && own.is_inherited => drop(self.troubles.remove(&child)),
                Some(_) if child != of => continue,
                _ => {}
            }
            self.tables.insert(child, of.to_owned());
        }
        self.catching_up = self.catching_up.take().filter(|catching_up| !catching_up.tables.is_empty());
    }
}

/// Whether a change deletes a row, or may change one of these columns of it; `None`: any change does.
fn touches(op: &Op, schema: &Schema, columns: Option<&[String]>) -> bool {
    let Some(columns) = columns else { return true };
    let is_one = |column: usize| columns.contains(&schema.columns[column].name);
    match op {
        Op::Insert(_) => false,
        Op::Delete(_) => true,
        // The key of a row never changes.
        Op::Put(_) => columns.iter().any(|column| *column != schema.key_column().name),
        Op::Update { columns, .. } => columns.iter().any(|(column, _)| is_one(*column)),
        Op::Increment { column, .. } => is_one(*column),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `ord` refers to `cust` and `prod`, `part` to `prod`.
    fn world() -> StoppedTables {
        let key = |child: &str, parent: &str| Reference {
            child: child.into(),
            parent: parent.into(),
            columns: Some(vec!["id".into()]),
        };
        let mut stopped = StoppedTables::default();
        let keys = vec![key("ord", "cust"), key("ord", "prod"), key("part", "prod")];
        stopped.learn(References { keys, tables: numbered(&["cust", "ord", "prod", "part"]) });
        stopped
    }

    fn numbered(tables: &[&str]) -> BTreeMap<String, Option<i64>> {
        (1..).zip(tables).map(|(number, table)| ((*table).to_owned(), Some(number))).collect()
    }

    fn names(tables: &[&str]) -> BTreeSet<String> {
        tables.iter().map(|table| (*table).to_owned()).collect()
    }

    fn listed(stopped: &StoppedTables) -> Vec<String> {
        stopped.announced().into_iter().map(|stopped| stopped.reason).collect()
    }

    fn reached(others: u64, stopped: &[(&str, u64)]) -> Reached {
        let stopped = stopped.iter().map(|(table, at)| ((*table).to_owned(), Position(*at)));
        Reached { others: Position(others), stopped: stopped.collect() }
    }

    fn due_now(stopped: &mut StoppedTables) {
        stopped.troubles.values_mut().for_each(|trouble| trouble.retry_at = Instant::now());
    }

    #[test]
    fn a_table_stops_with_its_children_and_they_catch_up_together() {
        let mut stopped = world();
        stopped.stop("cust", "has no column n any more".into(), Ends::WhenCorrected, false, |_| true);
        assert_eq!(
            listed(&stopped),
            [
                "table cust has no column n any more: its changes wait, other tables are drained",
                "table ord waits for table cust, which has no column n any more"
            ]
        );
        let mut place = reached(50, &[]);
        stopped.agree(&mut place);
        assert_eq!(place, reached(50, &[("cust", 50), ("ord", 50)]));
        due_now(&mut stopped);
        assert!(!stopped.is_due(), "the others have not passed the change");
        stopped.passed();
        stopped.begin();
        assert_eq!(stopped.catching_up().unwrap().tables, names(&["cust", "ord"]));
        assert!(stopped.take_turn());
        assert!(!stopped.take_turn(), "the others have their turn");
        stopped.agreed(&reached(80, &[]));
        assert!(stopped.is_empty() && stopped.catching_up().is_none());
    }

    #[test]
    fn a_table_that_is_needed_waits_with_its_other_children() {
        let mut stopped = world();
        stopped.stop("cust", "is locked".into(), Ends::WhenCorrected, false, |_| true);
        stopped.wait_for("prod", "cust", |_| true);
        let mut place = reached(50, &[("cust", 20), ("ord", 20)]);
        stopped.agree(&mut place);
        assert_eq!(place, reached(50, &[("cust", 20), ("ord", 20), ("part", 50), ("prod", 50)]));
        stopped.passed();
        due_now(&mut stopped);
        stopped.begin();
        let tables = stopped.catching_up().unwrap().tables.clone();
        assert_eq!(tables, names(&["cust", "ord", "part", "prod"]));
        place.advance(&tables, Some(Position(30)));
        assert_eq!(place, reached(50, &[("cust", 30), ("ord", 30), ("part", 50), ("prod", 50)]));
    }

    #[test]
    fn a_table_that_fails_again_keeps_its_children_and_no_others() {
        let mut stopped = world();
        // After a restart it is unknown which of them had the trouble.
        let mut place = reached(50, &[("cust", 20), ("ord", 20), ("part", 20), ("prod", 20)]);
        stopped.agree(&mut place);
        stopped.begin();
        stopped.stop("cust", "refuses every change".into(), Ends::WhenCorrected, true, |_| true);
        assert_eq!(stopped.catching_up().unwrap().tables, names(&["part", "prod"]));
        assert!(listed(&stopped)[1].contains("ord waits for table cust"));
        stopped.agreed(&reached(50, &[("cust", 20), ("ord", 20)]));
        assert!(stopped.catching_up().is_none());
        assert_eq!(listed(&stopped).len(), 2);
        due_now(&mut stopped);
        assert!(stopped.is_due());
    }

    #[test]
    fn a_table_that_catches_up_waits_for_a_stopped_one_that_it_refers_to() {
        let mut stopped = world();
        let known = stopped.references.take().unwrap();
        // The database has `cust` under another name.
        let mut now = known.clone();
        now.keys.retain(|key| key.parent != "cust");
        stopped.learn(now);
        stopped.agree(&mut reached(50, &[("cust", 20), ("ord", 20)]));
        stopped.stop("cust", "is not in the database any more".into(), Ends::WhenCorrected, true, |_| true);
        stopped.begin();
        assert_eq!(stopped.catching_up().unwrap().tables, names(&["ord"]));
        assert!(!stopped.grow(|_| true));
        stopped.learn(known);
        assert!(stopped.grow(|_| true) && stopped.catching_up().is_none() && !stopped.is_due());
        assert_eq!(
            listed(&stopped)[1],
            "table ord waits for table cust, which is not in the database any more"
        );
    }

    #[test]
    fn a_table_that_may_refer_to_a_renamed_one_waits_for_it() {
        let mut stopped = world();
        stopped.stop("cust", "is not in the database any more".into(), Ends::WhenCorrected, true, |_| true);
        let columns = Some(vec!["id".into()]);
        let key = |child: &str, parent: &str| Reference {
            child: child.into(),
            parent: parent.into(),
            columns: columns.clone(),
        };
        let tables = ["aside", "late", "part", "prod"].map(|table| (table.to_owned(), None));
        let keys = vec![key("late", "aside"), key("part", "prod")];
        stopped.learn(References { keys, tables: tables.into() });
        let knows = |table: &str| table != "aside";
        assert!(stopped.may_be_renamed("part", knows).is_empty());
        let pairs =
            [("aside", "cust"), ("aside", "ord")].map(|(now, then)| (now.to_owned(), then.to_owned()));
        assert_eq!(stopped.may_be_renamed("late", knows), pairs);
        stopped.leave_to("late", "ord", |_| true);
        assert_eq!(stopped.tables["late"], "cust");
    }

    #[test]
    fn a_foreign_key_that_is_made_meanwhile_stops_its_table_too() {
        let mut stopped = world();
        stopped.stop("part", "is locked".into(), Ends::WhenCorrected, false, |_| true);
        assert!(!stopped.grow(|_| true));
        let columns = Some(vec!["id".into()]);
        let key = Reference { child: "late".into(), parent: "part".into(), columns };
        stopped.learn(References { keys: vec![key], tables: numbered(&["late", "part"]) });
        assert!(stopped.grow(|_| true) && !stopped.grow(|_| true));
        assert_eq!(listed(&stopped)[0], "table late waits for table part, which is locked");
    }

    #[test]
    fn what_may_end_by_itself_is_announced_later() {
        let mut stopped = world();
        stopped.stop("part", "makes no progress".into(), Ends::ByItself, false, |_| true);
        assert!(listed(&stopped).is_empty() && stopped.has_unannounced());
        stopped.stop("part", "is not in the database any more".into(), Ends::WhenCorrected, false, |_| true);
        assert!(listed(&stopped).len() == 1 && !stopped.has_unannounced());
    }
}
