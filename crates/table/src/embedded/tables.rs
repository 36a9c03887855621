//! All hot tables of a data folder: opening them, finding them, and what concerns them together.

use super::checkpoint::{CheckpointFile as Checkpoint, CheckpointHead, UnusableCheckpoint};
use super::core::Core;
use super::follow::Following;
use super::table::Table;
use super::undo::RereadRow;
use crate::catalogue::Catalogue;
use crate::error::{Error, Kind};
use crate::hash::Hasher;
use crate::source::Source;
use crate::spec::{Others, TableSpec};
use forebay_log::{Log, Position};
use forebay_value::Numbers;
use parking_lot::{Mutex, RwLock};
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

/// The hot tables. Clones share the same tables.
#[derive(Clone)]
pub struct Tables {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub core: Arc<Core>,
    pub tables: Vec<Arc<Table>>,
    /// Shared with the follower, which adds ids.
    pub catalogue: Arc<RwLock<Arc<Catalogue>>>,
    /// The data folder.
    pub dir: PathBuf,
    /// The checkpoint that was found, until it is loaded; or why the one in the folder cannot be used.
    pub found: Mutex<Option<Result<Checkpoint, UnusableCheckpoint>>>,
    /// Whether the start asked the database for the outcomes of all changes before the replay.
    pub is_asked: AtomicBool,
    /// Rows that a start dropped, and that are to be read again.
    pub again: Mutex<Vec<RereadRow>>,
    /// The head of the checkpoint that was loaded.
    pub checkpoint: OnceLock<CheckpointHead>,
}

impl Tables {
    /// Opens the tables of a data folder: gives each an id in the catalogue file in `dir`. Memory is empty
    /// then. Next come [`Tables::load_checkpoint`], [`Table::load`] for the database's rows of the other
    /// tables, [`Tables::replay`], then [`Table::set_loaded`].
    ///
    /// `limit_bytes` is what rows, keys and indexes may take in memory, of all tables together.
    ///
    /// # Errors
    /// [`Kind::Catalogue`] also when two tables have the same name or a table has too many columns, or when
    /// the catalogue file is missing and the log is not empty; [`Kind::Io`].
    pub fn open(
        log: Log,
        dir: &Path,
        limit_bytes: u64,
        mut specs: Vec<TableSpec>,
        source: Arc<dyn Source>,
    ) -> Result<Tables, Error> {
        fs::create_dir_all(dir)
            .map_err(|error| Error::caused(Kind::Io, format!("cannot create {}", dir.display()), error))?;
        let mut catalogue = match Catalogue::read(dir)? {
            Some(catalogue) => catalogue,
            None if log.end() > Position(0) => return Err(Catalogue::missing(dir)),
            None => Catalogue::default(),
        };
        let known = catalogue.meanings();
        let mut ids = Vec::with_capacity(specs.len());
        let mut names = HashSet::new();
        for spec in &mut specs {
            let name = &spec.schema.name;
            if !names.insert(name.clone()) {
                return Err(Error::new(Kind::Catalogue, format!("there are two tables named {name}")));
            }
            if spec.schema.columns.len() > usize::from(u16::MAX) {
                return Err(Error::new(
                    Kind::Catalogue,
                    format!("table {name} has more than 65,535 columns"),
                ));
            }
            // Nobody would see that a name is another column's now.
            if spec.others != Others::Followed {
                spec.schema.numbers = Numbers::default();
            }
            ids.push(catalogue.assign(&mut spec.schema, spec.others == Others::Followed)?);
        }
        if catalogue.meanings() != known {
            catalogue.write(dir)?;
        }
        let found = Checkpoint::find(dir, &log).transpose();
        let head = found.as_ref().and_then(|found| found.as_ref().ok()).map(|found| &found.head);
        if let Some(head) = head {
            let kept = log.keep_from(head.begin);
            kept.map_err(|error| Error::caused(Kind::Log, "cannot delete old segments of the log", error))?;
        }
        let hasher = head.map_or_else(Hasher::new, |head| head.hasher.clone());
        let core = Arc::new(Core::new(log, limit_bytes, source, hasher));
        let specs = ids.into_iter().zip(specs);
        let tables: Vec<_> = specs.map(|(id, spec)| Table::new(core.clone(), id, spec)).collect();
        for table in &tables {
            catalogue.set(table.id(), table.schema().clone());
        }
        // Set here and nowhere else.
        let _ = core.rows.set(tables.iter().map(|table| table.rows.clone()).collect());
        let (catalogue, found) = (Arc::new(RwLock::new(Arc::new(catalogue))), Mutex::new(found));
        let (dir, checkpoint) = (dir.to_owned(), OnceLock::new());
        let (again, is_asked) = (Mutex::default(), AtomicBool::new(false));
        Ok(Tables {
            inner: Arc::new(Inner { core, tables, catalogue, dir, found, is_asked, again, checkpoint }),
        })
    }

    /// The table with this name. For start-up; serving never looks a table up by name.
    pub fn get(&self, name: &str) -> Option<Arc<Table>> {
        self.all().iter().find(|table| table.schema().name == name).cloned()
    }

    /// All tables, in the order in which they were given.
    pub fn all(&self) -> &[Arc<Table>] {
        &self.inner.tables
    }

    /// The followed tables, if there are any.
    pub fn following(&self) -> Option<Following> {
        let tables: Vec<_> = self.all().iter().filter(|table| table.followed()).cloned().collect();
        let tables = (!tables.is_empty()).then_some(tables)?;
        let (catalogue, dir) = (self.inner.catalogue.clone(), self.inner.dir.clone());
        Some(Following { core: self.inner.core.clone(), tables, catalogue, dir })
    }

    /// The catalogue: which table each id in the log means.
    pub fn catalogue(&self) -> Arc<Catalogue> {
        self.inner.catalogue.read().clone()
    }

    /// Says that the database has made everything up to `position` durable: rows with no later change may be
    /// evicted, and the tombstones of drained deletes forgotten.
    pub fn drained(&self, position: Position) {
        self.drained_of(|_| position);
    }

    /// [`Tables::drained`] when the tables are at different positions: `position` returns that of a table, by
    /// its name.
    pub fn drained_of(&self, position: impl Fn(&str) -> Position) {
        for table in self.all() {
            table.rows.set_drained(position(&table.schema().name));
            table.forget_tombstones();
        }
    }

    /// Takes memory from the operating system now, and blocks until that is done, so that rows, keys and
    /// indexes need no new memory until they take `until_bytes` in total.
    pub fn reserve_memory(&self, until_bytes: u64) {
        self.inner.core.budget.reserve.fill(until_bytes.min(self.limit_bytes()), self.used_bytes());
    }

    /// Bytes of the reserved memory that are not used yet.
    pub fn reserved_bytes(&self) -> u64 {
        self.inner.core.budget.reserve.bytes()
    }

    /// Bytes that rows, keys and indexes take in memory.
    pub fn used_bytes(&self) -> u64 {
        self.inner.core.budget.used_bytes()
    }

    /// Bytes that rows, keys and indexes may take in memory.
    pub fn limit_bytes(&self) -> u64 {
        self.inner.core.budget.limit_bytes()
    }
}
