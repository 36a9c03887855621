//! Cached answers that a row change in the database drops, whichever program wrote it: answers with the tags
//! of the old or the new row.
//!
//! The drop happens when the change is in memory. A fill that read the database before the drop is not served
//! afterwards, because the generations of the tags have advanced; a fill that begins later reads the
//! follower's state or a newer one.

use crate::compile::CachedRoutes;
use crate::endpoint::eval::{Eval, Scope, Slots, write_text};
use crate::problem::Problem;
use forebay_cache::Cache;
use forebay_database::Followed;
use forebay_value::{Schema, Value};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::runtime::Handle;

/// The tags for one table's rows.
pub struct TableTags {
    schema: Arc<Schema>,
    /// The columns that the tags use.
    columns: Vec<usize>,
    tags: Vec<Eval>,
}

impl TableTags {
    /// Tags that are built from columns of this table.
    pub fn new(schema: Arc<Schema>, tags: Vec<Eval>) -> TableTags {
        let uses = |column: &usize| tags.iter().any(|tag| tag.uses_column(*column));
        let columns = (0..schema.columns.len()).filter(uses).collect();
        TableTags { schema, columns, tags }
    }

    /// Adds the tags of a row.
    fn add(&self, row: &[Value], found: &mut HashSet<String>) {
        let slots = Slots::default();
        for tag in &self.tags {
            // Built from text and columns only, a tag has a value for every row.
            if let Ok(value) = tag.evaluate(&Scope::new(&slots).with_own(row)) {
                let mut text = Vec::new();
                write_text(value.as_ref(), &mut text);
                found.insert(String::from_utf8_lossy(&text).into_owned());
            }
        }
    }

    /// Adds the tags of an old row, of which only the tags' columns are known.
    fn add_old(&self, old: &[Value], found: &mut HashSet<String>) {
        let mut row = vec![Value::Null; self.schema.columns.len()];
        for (column, value) in self.columns.iter().zip(old) {
            row[*column] = value.clone();
        }
        self.add(&row, found);
    }
}

/// The tables whose changes drop cached answers.
pub struct Changes {
    cache: Cache<Problem>,
    tables: HashMap<String, TableTags>,
    /// The tags that stand for everything cached.
    everything: CachedRoutes,
    runtime: Handle,
    /// No change was received yet: the shared level may still have answers that changed while no server
    /// followed.
    is_first: AtomicBool,
}

impl Changes {
    /// For tables by name.
    pub fn new(
        cache: Cache<Problem>,
        tables: HashMap<String, TableTags>,
        everything: CachedRoutes,
        runtime: Handle,
    ) -> Changes {
        Changes { cache, tables, everything, runtime, is_first: AtomicBool::new(true) }
    }

    /// By table: the columns whose previous values must be reported.
    pub fn old_columns(&self) -> HashMap<String, Vec<usize>> {
        self.tables.iter().map(|(name, table)| (name.clone(), table.columns.clone())).collect()
    }

    /// Drops the answers that these changes concern; `names` are the names of the tables, in the order in
    /// which they are followed.
    pub fn drop_for(&self, found: &Followed, names: &[String]) {
        let mut tags = HashSet::new();
        let tables: Vec<_> = names.iter().map(|name| self.tables.get(name)).collect();
        let is_first = self.is_first.swap(false, Ordering::Relaxed) && !self.tables.is_empty();
        if is_first || found.old_unknown || found.reload.iter().any(|table| tables[*table].is_some()) {
            // Any row may have changed, and the old tags are unknown.
            tags.extend(self.everything.tags());
        }
        for row in found.rows.iter().chain(&found.later) {
            let Some(table) = tables[row.table] else { continue };
            row.old.iter().for_each(|old| table.add_old(old, &mut tags));
            if let Some(row) = &row.row {
                table.add(&row.as_ref().to_values(&table.schema), &mut tags);
            }
        }
        if tags.is_empty() {
            return;
        }
        let tags: Vec<String> = tags.into_iter().collect();
        self.cache.drop_here(&tags);
        if self.cache.has_shared() {
            let cache = self.cache.clone();
            self.runtime.spawn(async move {
                // A drop that the shared level does not accept now is sent again until it does; `/cache`
                // counts it.
                let _ = cache.drop_tags(&tags).await;
            });
        }
    }
}
