//! Changes in the form that their table has now: without the columns that the database lacks, and with the
//! present names of the others.
//!
//! A column may be dropped or renamed while changes wait in the queue that have it. A change means the column
//! with the number that it had when the change was written ([`forebay_value::Numbers`]): it is written under
//! its present name, or left out when it is gone, as the database would have dropped the value afterwards.
//! Where no numbers are known, names count, and a value that a client may have set waits while the column may
//! have been renamed ([`forebay_value::Presence::is_lost`]). When a column is back, a row that was written
//! without it gets the default that the database has for it.

use crate::Error;
use crate::form::{Form, Place, left_out, moved, place_without, reduce};
use crate::queue::{RowKey, Schemas};
use forebay_database::{Acting, Change, Store};
use forebay_terminal::say;
use forebay_value::Value;
use std::sync::Arc;

impl Schemas {
    /// Gives changes the form of their table. A change that sets nothing else than what is left out goes.
    pub fn fit(&mut self, changes: &mut Vec<Change>) {
        let now = |table: usize| self.acting.as_ref().and_then(|acting| acting.columns_now(table));
        let places = self.list.iter().enumerate().map(|(table, schema)| moved(schema, now(table)?));
        let places: Vec<Option<Vec<Place>>> = places.collect();
        changes.retain_mut(|change| {
            let base = &self.list[change.table];
            let of_table = &places[change.table];
            let left_out = left_out(base, &change.op, of_table.as_deref());
            if left_out.is_empty() && of_table.is_none() {
                return true;
            }
            let renamed = of_table.iter().flatten().enumerate().filter_map(|(column, place)| match place {
                Place::Renamed(name) if !left_out.contains(&column) => Some((column, name.clone())),
                _ => None,
            });
            let form = Form { renamed: renamed.collect(), left_out };
            if form == Form::default() {
                return true;
            }
            let place = self.place_of(change.table, form);
            let (base, form) = (&self.list[change.table], &self.forms[&place].1);
            let is_set = reduce(&mut change.op, base, &self.list[place], &form.left_out);
            change.table = place;
            is_set
        });
    }

    /// The rows of these changes that were written without columns: the tables' places, the keys.
    pub fn shortened(&self, changes: &[Change]) -> Vec<(usize, Value)> {
        if self.forms.is_empty() {
            return Vec::new();
        }
        let reduced = changes.iter().filter(|change| self.forms.contains_key(&change.table));
        reduced.map(|change| (change.table, change.op.key(&self.list[change.table]).to_owned())).collect()
    }

    /// Those of the rows of which the database has such a column now, or a value in a renamed one: memory
    /// lacks it.
    pub fn back(&self, rows: Vec<(usize, Value)>) -> Vec<RowKey> {
        let is_back = |(place, _): &(usize, Value)| {
            self.forms.get(place).is_some_and(|(base, form)| {
                let presence = &self.list[*base].presence;
                !form.renamed.is_empty() || form.left_out.iter().any(|column| !presence.is_gone(*column))
            })
        };
        let back = rows.into_iter().filter(is_back);
        back.map(|(place, key)| (self.list[place].clone(), key)).collect()
    }

    /// Reads the tables' columns again, after the database refused changes of these tables: whether they are
    /// others than the changes were prepared for.
    pub async fn have_moved(
        &mut self,
        tables: &[usize],
        before: &Acting,
        database: &Store,
    ) -> Result<bool, Error> {
        self.acting = None;
        let now = self.acting(database).await?;
        Ok(tables.iter().any(|table| before.columns_now(*table) != now.columns_now(*table)))
    }

    /// Finds columns that these tables lack, after the database refused changes of them: whether the changes
    /// named any.
    pub async fn find_lacking(&self, tables: &[usize], database: &Store) -> Result<bool, Error> {
        let mut is_new = false;
        for table in tables {
            let schema = &self.list[self.forms.get(table).map_or(*table, |(base, _)| *base)];
            for column in database.find_lacking(schema).await? {
                is_new = true;
                if schema.position(&column).is_some_and(|column| schema.presence.is_lost(column)) {
                    say!("table {}: changes are written without column {column}, which is gone", schema.name);
                }
            }
        }
        Ok(is_new || tables.iter().any(|table| self.names_lacking(*table)))
    }

    /// Whether changes of this form name a column that is gone: it may have been found, by whoever looks at
    /// the catalogue, after they were prepared.
    fn names_lacking(&self, table: usize) -> bool {
        let whole = (table, Form::default());
        let (base, form) = self.forms.get(&table).unwrap_or(&whole);
        let presence = &self.list[*base].presence;
        let is_named = |column: &usize| !form.left_out.contains(column) && !form.renamed.contains_key(column);
        presence.gone().any(|column| presence.is_lost(column) && is_named(&column))
    }

    /// The place of a table in another form.
    fn place_of(&mut self, base: usize, form: Form) -> usize {
        let known = self.forms.iter().find(|(_, (of, known))| *of == base && *known == form);
        if let Some((place, _)) = known {
            return *place;
        }
        let whole = &self.list[base];
        let mut schema = whole.without(&form.left_out);
        for (column, name) in &form.renamed {
            let before = &whole.columns[*column].name;
            say!("table {}: what was written to {before} goes to {name}, its name now", whole.name);
            schema.columns[place_without(*column, &form.left_out)].name.clone_from(name);
        }
        if let Some(acting) = &mut self.acting {
            Arc::make_mut(acting).push_form(base, &schema);
        }
        self.list.push(Arc::new(schema));
        self.is_shared.push(self.is_shared[base]);
        let place = self.list.len() - 1;
        self.forms.insert(place, (base, form));
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::form::tests::{row, schema};
    use forebay_database::Op;

    fn fitted(schemas: &mut Schemas, op: Op) -> Option<(Vec<String>, Op)> {
        let mut changes = vec![Change { table: 0, position: 9, is_intent: false, op }];
        schemas.fit(&mut changes);
        let change = changes.pop()?;
        let names = schemas.list[change.table].columns.iter().map(|column| column.name.clone());
        Some((names.collect(), change.op))
    }

    #[test]
    fn changes_are_written_without_what_the_database_lacks() {
        let mut schemas = Schemas::new(Arc::default());
        let base = Arc::new(schema());
        schemas.list.push(base.clone());
        schemas.is_shared.push(true);
        let whole = || Op::Insert(row([Some(1), Some(2), Some(3), None]));
        let (names, op) = fitted(&mut schemas, whole()).unwrap();
        assert_eq!((names.len(), op), (4, whole()));
        assert!(!schemas.names_lacking(0));
        // It was written while `a` was gone.
        let (names, _) = fitted(&mut schemas, Op::Insert(row([None, Some(2), Some(3), None]))).unwrap();
        assert_eq!(names, ["id", "b", "c"]);
        base.presence.see(&[false, false, true, false], false);
        let (names, op) = fitted(&mut schemas, whole()).unwrap();
        assert_eq!(names, ["a", "id", "c"]);
        // Changes in the old form are outdated, whoever has found that the column is gone.
        let place = schemas.list.len() - 1;
        assert!(schemas.names_lacking(0) && !schemas.names_lacking(place));
        let Op::Insert(short) = op else { panic!("{op:?}") };
        let values = short.as_ref().to_values(&schemas.list.last().unwrap().clone());
        assert_eq!(values, [Value::Bigint(1), Value::Bigint(2), Value::Null]);
        let key = Value::Bigint(2);
        let update = |columns| Op::Update { key: key.clone(), columns };
        let one = |column| (column, Value::Bigint(7));
        let (_, op) = fitted(&mut schemas, update(vec![one(2), one(3)])).unwrap();
        assert_eq!(op, update(vec![one(2)]));
        assert!(fitted(&mut schemas, update(vec![one(2)])).is_none());
        assert!(schemas.list.len() == 3 && schemas.is_shared.len() == 3);
        // `b` is back, and has a default.
        base.presence.see(&[false; 4], false);
        assert_eq!(fitted(&mut schemas, whole()).unwrap().0.len(), 4);
        let (names, _) = fitted(&mut schemas, Op::Put(row([Some(1), Some(2), None, None]))).unwrap();
        assert_eq!(names, ["a", "id", "c"]);
        // Of the two forms, one lacks nothing that the database has.
        let keys = |place: usize| vec![(place, Value::Bigint(2))];
        base.presence.see(&[false, false, true, false], false);
        assert!(schemas.back(keys(2)).is_empty() && schemas.back(keys(0)).is_empty());
        assert_eq!(schemas.back(keys(1)), [(schemas.list[1].clone(), Value::Bigint(2))]);
    }
}
