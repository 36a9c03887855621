//! The follower's loop.

use super::reload::Reloads;
use super::state::{FollowShared, OnFollowed};
use crate::error::Error;
use crate::limits::{
    ADOPT_RETRY_PAUSE, ADOPT_SHARE, FOLLOW_KEYS, FOLLOW_PAUSE, GHOST_PATIENCE, IDLE_SLOTS_PAUSE,
};
use crate::pace::BackOff;
use crate::reached::Reached;
use forebay_database::{Follow, Followed, Follower, Store, TableTrouble};
use forebay_table::{Following, Image, Poll};
use forebay_terminal::{say, warn};
use forebay_value::{Need, Schema};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Why a table is not served whose columns' names are those of others.
const EXCHANGED: &str = "its columns have other names: it is served when what was written before is drained";

/// How a follower starts.
pub enum FollowStart {
    /// The database has been reporting changes since before the tables were loaded.
    Following(Box<Follower>),
    /// The tables came from a checkpoint, and the database was unreachable.
    Unreachable {
        /// The log id of the follower.
        log: u128,
        /// The followed tables, in index order.
        tables: Vec<Follow>,
        /// The place from which the follower continues.
        place: String,
    },
}

/// The follower's task.
pub(super) struct FollowLoop {
    tables: Following,
    beginning: FollowStart,
    /// Tables whose changes since the beginning's place the database cannot report.
    untold: Vec<usize>,
    store: Store,
    told: OnFollowed,
    shared: Arc<FollowShared>,
    reloads: Reloads,
    /// Tables that the last poll could not follow or read, with the reasons.
    troubles: BTreeMap<usize, Arc<str>>,
    /// Tables that cannot be served before they were read again.
    unserved: BTreeSet<usize>,
    /// Tables whose columns were exchanged, as this poll has seen first.
    newly_exchanged: Vec<usize>,
    /// When tables are next looked at whose columns have other names.
    adopt_at: Option<Instant>,
    /// Tables whose rows were counted and could not be compared yet.
    uncompared: BTreeMap<usize, Uncompared>,
    /// By table, the columns without which it is served.
    gone: BTreeMap<usize, Vec<String>>,
    back_off: BackOff,
    /// Whether the database was at an earlier position than memory has seen.
    went_back: bool,
    /// When the follower last looked for slots that no server uses.
    looked_at: Option<Instant>,
}

/// Rows were counted while memory had writes that the database lacked.
struct Uncompared {
    since: Instant,
    patience: Duration,
}

impl Uncompared {
    fn begin() -> Uncompared {
        Uncompared { since: Instant::now(), patience: GHOST_PATIENCE }
    }

    fn is_over(&self) -> bool {
        self.since.elapsed() >= self.patience
    }

    /// The table is read again. Writes may wait for days, so the next time is later.
    fn extend(&mut self) {
        *self = Uncompared { since: Instant::now(), patience: self.patience * 2 };
    }
}

impl FollowLoop {
    pub fn new(
        tables: Following,
        beginning: FollowStart,
        store: Store,
        told: OnFollowed,
        shared: Arc<FollowShared>,
    ) -> FollowLoop {
        // Those that a start knows to be gone may be back before the first poll.
        let gone = tables.tables().iter().map(|table| table.schema().gone()).enumerate();
        FollowLoop {
            gone: gone.filter(|(_, gone)| !gone.is_empty()).collect(),
            tables,
            beginning,
            untold: Vec::new(),
            store,
            told,
            shared,
            reloads: Reloads::default(),
            troubles: BTreeMap::new(),
            unserved: BTreeSet::new(),
            newly_exchanged: Vec::new(),
            adopt_at: None,
            uncompared: BTreeMap::new(),
            back_off: BackOff::default(),
            went_back: false,
            looked_at: None,
        }
    }

    /// Runs until the follower is stopped.
    pub async fn run(mut self) {
        self.tell_by_whom();
        while !self.shared.is_stopping() {
            let pause = match self.round().await {
                // More changes are ready to be read.
                Ok(true) => continue,
                Ok(false) => FOLLOW_PAUSE,
                Err(why) => {
                    self.shared.failed(why);
                    self.back_off.failed()
                }
            };
            let is_failing = self.back_off.is_failing();
            let pause = async {
                // While the database is unreachable, a waiting request gets its answer at the next try.
                if is_failing { tokio::time::sleep(pause).await } else { self.tables.pause(pause).await }
            };
            tokio::select! {
                () = self.shared.stopping() => {}
                () = pause => {}
            }
        }
        // Fails waiting requests: no further poll will run.
        self.tables.begin(0).fail("the server is stopping");
    }

    /// One poll; returns whether the next poll should follow at once.
    async fn round(&mut self) -> Result<bool, String> {
        let is_readable = |table: usize| !self.troubles.contains_key(&table);
        self.reloads.want_some(self.tables.tables(), &self.store, is_readable);
        let poll = self.tables.begin(FOLLOW_KEYS);
        let began = Instant::now();
        let found = tokio::select! {
            () = self.shared.stopping() => Err("the server is stopping".to_owned()),
            found = ask(&mut self.beginning, &mut self.untold, &self.store, &poll) => found,
        };
        let mut found = match found {
            Ok(found) => found,
            Err(why) => return Err(failed(poll, why)),
        };
        for table in self.untold.drain(..) {
            let name = &self.tables.tables()[table].schema().name;
            say!(
                "table {name} is read again: the database can no longer report the changes since the checkpoint"
            );
            found.reload.push(table);
        }
        if found.anew {
            // An older checkpoint cannot continue from here either.
            self.tables.void();
        }
        let reached = match reached(&found) {
            Ok(reached) => reached,
            Err(error) => {
                // The database will not report these changes again.
                self.went_back = true;
                return Err(failed(poll, error.to_string()));
            }
        };
        if self.is_behind(&reached) {
            self.went_back = true;
            let why = "the database is at an earlier position than before; memory stays as it is until it has caught up";
            return Err(failed(poll, why.into()));
        }
        if std::mem::take(&mut self.went_back) {
            self.tables.void();
            (0..self.tables.tables().len()).for_each(|table| self.reloads.begin(table));
        }
        self.take_news(&found);
        #[cfg(feature = "planted")]
        if forebay_database::planted_bugs::is("place-before-the-rows") {
            self.passed(0);
            // The window is held open, as on a busy server.
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        if let Err((table, why)) = self.apply(&poll, &found, &reached) {
            // The database will not report this poll's changes again.
            self.reloads.begin(table);
            self.count_again(&found);
            self.passed(0);
            return Err(failed(poll, why));
        }
        self.find_ghosts(&mut found);
        (self.told)(&found);
        self.serve_again();
        // A table that waits for a lock does not delay those who wait for the others.
        let is_last = !found.more && !self.reloads.is_progressing(|table| self.is_readable(table));
        poll.end(is_last);
        self.passed(found.rows.len() as u64);
        self.back_off.succeeded();
        self.shared.applied(found.rows.len() as u64, is_last.then_some(began), !self.reloads.is_empty());
        self.adopt_columns();
        if is_last && self.looked_at.is_none_or(|at| at.elapsed() > IDLE_SLOTS_PAUSE) {
            self.look_for_idle_slots().await?;
        }
        Ok(found.more || self.has_full_poll())
    }

    fn is_readable(&self, table: usize) -> bool {
        !self.troubles.contains_key(&table)
    }

    /// Whether some table has enough rows to read for another poll.
    fn has_full_poll(&self) -> bool {
        let mut tables = self.tables.tables().iter().enumerate();
        tables.any(|(place, table)| self.is_readable(place) && table.wanted() >= FOLLOW_KEYS)
            || self.reloads.is_listing(|table| self.is_readable(table))
    }

    /// Says which columns are left out of a table's rows, when that has changed.
    fn tell_gone(&mut self, table: usize) {
        let schema = self.tables.tables()[table].schema();
        let (gone, name) = (schema.gone(), &schema.name);
        let before = self.gone.insert(table, gone.clone()).unwrap_or_default();
        for column in gone.iter().filter(|column| !before.contains(column)) {
            warn!(
                "table {name} has no column {column} any more, or one of another type: it is served without that \
                 column, and endpoints that name it answer 503, until it is as it was or the server is started again"
            );
        }
        for column in before.iter().filter(|column| !gone.contains(column)) {
            say!("table {name} has column {column} again: it is served with it");
        }
    }

    /// Begins to read tables again, and records what became of their definitions.
    fn take_news(&mut self, found: &Followed) {
        found.redefined.iter().for_each(|table| self.tell_gone(*table));
        let exchanged = self.find_exchanged();
        let tables = self.tables.tables();
        let name = |table: usize| &tables[table].schema().name;
        for table in &found.reload {
            if found.redefined.contains(table) && !self.reloads.has(*table) {
                say!("table {} was altered or emptied in the database: it is read again", name(*table));
            }
            // Perhaps it was emptied, and its sequence begins again.
            self.tables.tables()[*table].give_up_keys();
            self.reloads.begin(*table);
        }
        for row in &found.later {
            tables[row.table].want_again([row.key.clone()]);
        }
        self.troubles = found.troubles.iter().map(|trouble| (trouble.table, trouble.why.clone())).collect();
        for TableTrouble { table, why, .. } in found.troubles.iter().filter(|trouble| !trouble.is_followed) {
            self.unserved.insert(*table);
            tables[*table].set_misfit(Some(why.clone()));
        }
        let failed = self.reloads.failed().filter(|(table, _)| !self.troubles.contains_key(table));
        let troubles = self.troubles.iter().map(|(table, why)| (*table, why)).chain(failed);
        let troubles = troubles.map(|(table, why)| (name(table).clone(), why.clone()));
        let lacking = tables.iter().filter_map(|table| lacking(table.schema()));
        let exchanged = exchanged.iter().map(|place| (name(*place).clone(), EXCHANGED.into()));
        self.shared.troubles(troubles.chain(lacking).chain(exchanged).collect());
    }

    /// Reads tables again that have more rows in memory than in the database, where it removes some without a
    /// report. Memory has everything that the counted snapshot shows.
    fn find_ghosts(&mut self, found: &mut Followed) {
        let FollowStart::Following(follower) = &mut self.beginning else { return };
        let tables = self.tables.tables();
        for (place, rows) in &found.counts {
            let table = &tables[*place];
            if self.reloads.has(*place) || table.wanted() > 0 {
                // What was read of it may have been replaced since.
                follower.count_again(*place);
                continue;
            }
            let (count, changed_at) = table.count();
            let is_comparable = changed_at <= table.followed_position();
            let waiting = self.uncompared.entry(*place).or_insert_with(Uncompared::begin);
            if !is_comparable && !waiting.is_over() {
                follower.count_again(*place);
                continue;
            }
            match is_comparable {
                true => drop(self.uncompared.remove(place)),
                false => waiting.extend(),
            }
            if !is_comparable || count > *rows {
                say!("rows of table {} may be gone without a report: it is read again", table.schema().name);
                self.reloads.begin(*place);
                found.reload.push(*place);
            }
        }
    }

    /// What was found is not in memory: counts are compared by a later poll.
    fn count_again(&mut self, found: &Followed) {
        if let FollowStart::Following(follower) = &mut self.beginning {
            found.counts.iter().for_each(|(place, _)| follower.count_again(*place));
        }
    }

    /// Takes the names of columns as the database has them now: of a table whose columns were exchanged, once
    /// everything that was written before is drained.
    fn adopt_columns(&mut self) {
        let newly_exchanged = std::mem::take(&mut self.newly_exchanged);
        if self.adopt_at.is_some_and(|at| at > Instant::now()) {
            return;
        }
        let began = Instant::now();
        for place in 0..self.tables.tables().len() {
            let table = &self.tables.tables()[place];
            let is_exchanged = self.means_another(place);
            let may_adopt = !is_exchanged || !newly_exchanged.contains(&place) && table.is_settled();
            if self.tables.numbers(place).other().is_none() || !may_adopt {
                continue;
            }
            match self.tables.adopt_columns(place) {
                Ok(()) if is_exchanged => self.reloads.begin(place),
                Ok(()) => {}
                Err(error) => {
                    warn!("table {}: its columns' new names cannot be noted: {error}", table.schema().name);
                    self.adopt_at = Some(Instant::now() + ADOPT_RETRY_PAUSE);
                    return;
                }
            }
        }
        // Large tables are looked through for a small share of the time.
        self.adopt_at = Some(Instant::now() + began.elapsed() * ADOPT_SHARE);
    }

    /// Whether a name that the config needs is another column's now, while the column that had it is there.
    /// What clients cannot name, a change in the log has only with its default.
    fn means_another(&self, table: usize) -> bool {
        let needs = &self.tables.tables()[table].schema().presence;
        let exchanged = self.tables.numbers(table).exchanged();
        exchanged.into_iter().any(|column| needs.need(column) != Need::Nothing)
    }

    /// Refuses requests of tables whose columns were exchanged: what was written before is not drained, and
    /// means other columns.
    fn find_exchanged(&mut self) -> Vec<usize> {
        let places = 0..self.tables.tables().len();
        let exchanged: Vec<usize> = places.filter(|place| self.means_another(*place)).collect();
        for place in &exchanged {
            if self.unserved.insert(*place) {
                let table = &self.tables.tables()[*place];
                warn!("table {}: {EXCHANGED}", table.schema().name);
                table.set_misfit(Some(EXCHANGED.into()));
                // Requests that were let in before are logged before the next poll.
                self.newly_exchanged.push(*place);
            }
        }
        exchanged
    }

    /// Serves tables that can be followed again, and columns that are back, once the rows are those of the
    /// database.
    fn serve_again(&mut self) {
        let tables = self.tables.tables();
        let (troubles, reloads) = (&self.troubles, &self.reloads);
        let is_current = |place: &usize| {
            !troubles.contains_key(place) && !reloads.has(*place) && tables[*place].wanted() == 0
        };
        self.gone.keys().filter(|place| is_current(place)).for_each(|place| {
            tables[*place].schema().presence.show_present();
        });
        let exchanged: BTreeSet<usize> =
            self.unserved.iter().copied().filter(|place| self.means_another(*place)).collect();
        self.unserved.retain(|place| {
            let is_current = is_current(place) && !exchanged.contains(place);
            if is_current {
                tables[*place].set_misfit(None);
            }
            !is_current
        });
    }

    /// Warns about servers that have left a slot for which the database retains WAL.
    async fn look_for_idle_slots(&mut self) -> Result<(), String> {
        let FollowStart::Following(follower) = &self.beginning else { return Ok(()) };
        let idle = follower.idle_slots().await.map_err(|error| error.to_string())?;
        self.looked_at = Some(Instant::now());
        for slot in self.shared.idle_slots(idle) {
            warn!(
                "no server uses replication slot {slot}; if that server will not return: SELECT pg_drop_replication_slot('{}')",
                slot.split(',').next().unwrap_or_default()
            );
        }
        Ok(())
    }

    /// Memory contains the poll's changes: a checkpoint may now be taken, and the database is told to retain
    /// what follows the last one.
    fn passed(&mut self, rows: u64) {
        self.tell_by_whom();
        let FollowStart::Following(follower) = &mut self.beginning else { return };
        let place = self.reloads.is_empty().then(|| follower.place());
        let held = self.tables.reached(place, rows);
        if let Err(error) = follower.hold(held.as_deref()) {
            self.shared.failed(error.to_string());
        }
    }

    /// Logs how changes are reported, when that has changed.
    fn tell_by_whom(&self) {
        if let FollowStart::Following(follower) = &self.beginning
            && self.shared.reporting_by(follower.reporting_by())
        {
            say!("other writers' changes are reported by {}", follower.reporting_by());
        }
    }

    fn is_behind(&self, reached: &Reached) -> bool {
        self.tables.tables().iter().any(|table| reached.of(&table.schema().name) < table.followed_position())
    }

    /// Applies the changes found to memory, table by table.
    fn apply(&self, poll: &Poll, found: &Followed, reached: &Reached) -> Result<(), (usize, String)> {
        let tables = self.tables.tables();
        let mut images: Vec<Vec<Image>> = vec![Vec::new(); tables.len()];
        for row in &found.rows {
            images[row.table].push(Image {
                key: row.key.clone(),
                row: row.row.clone(),
                unfit: row.unfit.clone(),
            });
        }
        for (place, (table, images)) in tables.iter().zip(&images).enumerate() {
            let at = reached.of(&table.schema().name);
            poll.apply(place, images, at).map_err(|error| (place, error.to_string()))?;
        }
        Ok(())
    }
}

/// Polls; starts to follow first, if that is still to be done.
async fn ask(
    beginning: &mut FollowStart,
    untold: &mut Vec<usize>,
    store: &Store,
    poll: &Poll,
) -> Result<Followed, String> {
    let follower = match beginning {
        FollowStart::Following(follower) => follower,
        FollowStart::Unreachable { log, tables, place } => {
            let begun = store.follow_from(*log, tables.clone(), Some(place)).await;
            let (follower, goes_on) = begun.map_err(|error| error.to_string())?;
            untold.extend((0..tables.len()).filter(|table| !goes_on[*table]));
            *beginning = FollowStart::Following(Box::new(follower));
            let FollowStart::Following(follower) = beginning else { unreachable!("it was just set") };
            follower
        }
    };
    follower.poll(&poll.wanted).await.map_err(|error| error.to_string())
}

/// Ends a poll that failed.
fn failed(poll: Poll, why: String) -> String {
    poll.fail(&why);
    why
}

/// How far each table was drained, according to the poll.
fn reached(found: &Followed) -> Result<Reached, Error> {
    Reached::noted(found.position.unwrap_or_default(), &found.note)
}

/// What `/ready` says of a table that lacks columns that endpoints name.
fn lacking(schema: &Schema) -> Option<(String, Arc<str>)> {
    let named = schema.presence.gone().filter(|column| schema.presence.need(*column) == Need::Endpoints);
    let named: Vec<&str> = named.map(|column| schema.columns[column].name.as_str()).collect();
    let why = || format!("it has no column {} any more: endpoints that name it answer 503", named.join(", "));
    (!named.is_empty()).then(|| (schema.name.clone(), why().into()))
}
