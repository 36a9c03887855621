//! The constraints that the database enforces on the hot tables: read at the start and every few seconds,
//! used to validate requests, and listed as far as only the database can check them.

use super::known::DatabaseKnowledge;
use crate::start_error::StartError;
use forebay_config::{Config, model};
use forebay_database::{Enforced, Means, Store};
use forebay_table::{HotTables, LiveRules, Others, TableSpec};
use forebay_terminal::{say, warn};
use forebay_value::{Fill, Schema};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// How often the catalogue is read; each time takes a few statements a table.
const POLL: Duration = Duration::from_secs(5);

/// The most lines that a start prints about one table.
const LINES_MAX: usize = 5;

/// The constraints that were read last, by hot table.
#[derive(Clone)]
pub struct Watched {
    tables: Vec<WatchedTable>,
    /// Notified when a follower has seen that the definition of a table changed.
    redefined: Arc<Notify>,
}

#[derive(Clone)]
struct WatchedTable {
    schema: Schema,
    /// Whether a follower looks at its columns.
    is_followed: bool,
    rules: Arc<LiveRules>,
    /// The defaults that the config gives.
    own_fills: Vec<Option<Fill>>,
    enforced: Enforced,
    /// The columns that the next start knows to be gone.
    gone: Vec<usize>,
}

impl Watched {
    /// Reads the constraints of the tables, and lets the tables validate by them.
    pub(super) async fn begin(
        config: &Config,
        store: &Store,
        known: &DatabaseKnowledge,
        specs: &mut [TableSpec],
    ) -> Result<Watched, StartError> {
        let is_embedded = matches!(config.memory.tier, model::Tier::Embedded);
        let mut tables = Vec::with_capacity(specs.len());
        for spec in specs {
            let of_config = config.tables.iter().find(|table| table.name == spec.schema.name);
            let is_declared = of_config.is_some_and(|table| table.columns.is_some());
            if !is_declared {
                // The bounds of its columns come from the database, where they may change while the table is
                // served.
                spec.schema.columns.iter_mut().for_each(|column| column.ty = column.ty.unbounded());
            }
            let enforced = known.enforced(store, &spec.schema).await?;
            let own_fills = match of_config.and_then(|table| table.columns.as_ref()) {
                Some(declared) => declared.columns.iter().map(|column| column.fill.clone()).collect(),
                None => vec![None; spec.schema.columns.len()],
            };
            let fills = fills(&own_fills, &enforced, &spec.schema);
            spec.schema.columns.iter_mut().zip(fills).for_each(|(column, fill)| column.fill = fill);
            // A table on Redis or Valkey was created for the columns that were unique at that time.
            if is_embedded {
                spec.schema.unique_sets = Vec::new();
                for columns in &enforced.unique {
                    match columns.as_slice() {
                        [column] => spec.schema.columns[*column].unique = true,
                        _ => spec.schema.unique_sets.push(columns.clone()),
                    }
                }
            }
            spec.rules.set(enforced.rules.clone());
            let (schema, rules) = (spec.schema.clone(), spec.rules.clone());
            let is_followed = spec.others == Others::Followed;
            let gone = schema.presence.gone().collect();
            tables.push(WatchedTable { schema, is_followed, rules, own_fills, enforced, gone });
        }
        Ok(Watched { tables, redefined: Arc::default() })
    }

    /// Records how the tables are served: a tier may not check everything that is unique in the database.
    pub(super) fn note_served(&mut self, tables: &HotTables) {
        for table in &mut self.tables {
            if let Some(served) = tables.get(&table.schema.name) {
                table.schema = Schema::clone(served.schema());
            }
        }
    }

    /// The columns of a table that no client may set in an existing row.
    pub fn fixed(&self, table: &str) -> &[usize] {
        let found = self.tables.iter().find(|watched| watched.schema.name == table);
        found.map_or(&[], |watched| &watched.enforced.fixed)
    }

    /// Prints the constraints that only the database can check, a few lines a table.
    pub fn announce(&self) {
        for table in &self.tables {
            let lines = table.lines(&table.enforced);
            let shown = if lines.len() > LINES_MAX { LINES_MAX - 1 } else { lines.len() };
            lines[..shown].iter().for_each(|line| say!("{line}"));
            if lines.len() > shown {
                let rest = lines.len() - shown;
                say!(
                    "{}: {rest} more rules that the database alone judges; `forebay check` lists them",
                    table.schema.name
                );
            }
        }
    }

    /// To be notified when the definition of a table has changed: its rules are read at once then.
    pub(crate) fn redefined(&self) -> Arc<Notify> {
        self.redefined.clone()
    }

    /// Reads the catalogue periodically, and when a definition has changed; validates by it, and stores it
    /// for the next start. Never returns.
    pub async fn watch(mut self, store: Store, known: Arc<DatabaseKnowledge>) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(POLL) => {}
                () = self.redefined.notified() => {}
            }
            for table in &mut self.tables {
                table.look_for_columns(&store).await;
                let back = table.schema.presence.open_present();
                // An unreachable database, or a table that is gone, is reported by the requests that need it;
                // the constraints stay in use.
                let Ok(Some(enforced)) = store.enforced(&table.schema).await else { continue };
                let gone: Vec<usize> = table.schema.presence.gone().collect();
                if enforced != table.enforced || gone != table.gone {
                    if let Err(error) = known.learn(&table.schema, &enforced) {
                        let name = &table.schema.name;
                        warn!("{name}: the next start may not know what the database enforces: {error}");
                    }
                    table.gone = gone;
                }
                if enforced != table.enforced {
                    table.change(enforced);
                }
                table.schema.presence.close(&back);
            }
        }
    }

    /// All lines about all tables.
    pub fn lines(&self) -> Vec<String> {
        self.tables.iter().flat_map(|table| table.lines(&table.enforced)).collect()
    }
}

/// The defaults of a table's columns: that of the config, else that of the database.
fn fills(own: &[Option<Fill>], enforced: &Enforced, schema: &Schema) -> Vec<Option<Fill>> {
    own.iter().cloned().zip(enforced.fills(schema)).map(|(own, fill)| own.or(fill)).collect()
}

impl WatchedTable {
    /// Finds out whether a table that is not followed lacks a column that nothing needs.
    async fn look_for_columns(&self, store: &Store) {
        if self.is_followed {
            return;
        }
        // An unreachable database is asked again.
        for column in store.find_lacking(&self.schema).await.unwrap_or_default() {
            warn!(
                "table {} has no column {column} any more, or one of another type: it is served without that \
                 column until the server is started again",
                self.schema.name
            );
        }
    }

    fn change(&mut self, enforced: Enforced) {
        self.rules.set(enforced.rules.clone());
        if enforced.fills != self.enforced.fills {
            self.rules.set_fills(fills(&self.own_fills, &enforced, &self.schema));
        }
        let known = self.lines(&self.enforced);
        say!("{}: the database enforces other rules now; writes are judged by them", self.schema.name);
        let added = self.lines(&enforced).into_iter().filter(|line| !known.contains(line));
        added.take(LINES_MAX).for_each(|line| say!("{line}"));
        self.enforced = enforced;
    }

    /// One line for each constraint that only the database can check.
    fn lines(&self, enforced: &Enforced) -> Vec<String> {
        let listed = enforced.listed.iter().map(|listed| format!("{}: {listed}", self.schema.name));
        let is_judged = |columns: &[usize]| match columns {
            [column] => self.schema.columns[*column].unique,
            _ => self.schema.unique_sets.iter().any(|set| set == columns),
        };
        let unjudged = enforced.unique.iter().filter(|columns| !is_judged(columns));
        let unique = unjudged.map(|columns| {
            let names: Vec<&str> =
                columns.iter().map(|column| self.schema.columns[*column].name.as_str()).collect();
            format!("{}: UNIQUE ({}) {}", self.schema.name, names.join(", "), Means::Unique)
        });
        listed.chain(unique).collect()
    }
}
