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
use crate::queue::{RowKey, Schemas};
use forebay_database::{Acting, Change, ColumnsNow, Op, Store};
use forebay_terminal::say;
use forebay_value::{Need, Row, Schema, Value, ValueRef};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How a table's present columns differ from those that a change was written with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Form {
    left_out: Vec<usize>,
    renamed: BTreeMap<usize, String>,
}

/// What the database has of a column that a change was written with.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    /// Whatever has its name.
    Name,
    /// The column, under this name.
    Renamed(String),
    Dropped,
}

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

    /// Those of the rows of which the database has such a column now, or a value in a renamed one: memory lacks
    /// it.
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

/// Where a table's columns are now; `None`: where their names say. A name that belonged to a column that is
/// gone means whatever has it now: the change may have come after the migration.
fn moved(schema: &Schema, now: &ColumnsNow) -> Option<Vec<Place>> {
    let numbers = schema.numbers.logged().filter(|numbers| numbers.table == now.table)?;
    let is_there = |name: &String| now.names.values().any(|other| other == name);
    let key = now.names.get(&numbers.columns[schema.key]).unwrap_or(&schema.key_column().name);
    let place = |(column, number): (usize, &i32)| {
        let name = &schema.columns[column].name;
        match now.names.get(number) {
            Some(now) if now == name => Place::Name,
            // Nothing has set it but its default; and the key stays the key.
            Some(_) if column != schema.key && schema.presence.need(column) == Need::Nothing => {
                Place::Dropped
            }
            Some(now) if column != schema.key && now == key => Place::Dropped,
            Some(now) => Place::Renamed(now.clone()),
            // The table waits until it has a column of this name.
            None if column == schema.key || schema.presence.need(column) == Need::Table => Place::Name,
            None if *number == 0 || is_there(name) => Place::Name,
            None => Place::Dropped,
        }
    };
    let places: Vec<Place> = numbers.columns.iter().enumerate().map(place).collect();
    places.iter().any(|place| *place != Place::Name).then_some(places)
}

/// The columns that a change must not name: those that the database lacks, and those that it lacked when the
/// row was written. `places`: where the columns are now.
fn left_out(schema: &Schema, op: &Op, places: Option<&[Place]>) -> Vec<usize> {
    let presence = &schema.presence;
    let place = |column: usize| places.map_or(&Place::Name, |places| &places[column]);
    let is_lost = |column: usize| match place(column) {
        Place::Name => presence.is_lost(column),
        Place::Renamed(_) => false,
        Place::Dropped => true,
    };
    let all = 0..schema.columns.len();
    let is_left_out = |column: &usize| {
        let (Op::Insert(row) | Op::Put(row)) = op else { return is_lost(*column) };
        let is_null = row.as_ref().is_null(*column);
        match presence.need(*column) {
            _ if *place(*column) == Place::Dropped => true,
            Need::Table => false,
            _ if presence.is_gone(*column) => is_null || is_lost(*column),
            Need::Endpoints => is_null && !schema.columns[*column].nullable,
            Need::Nothing => is_null && (!schema.columns[*column].nullable || presence.was_gone(*column)),
        }
    };
    if places.is_none() && !matches!(op, Op::Insert(_) | Op::Put(_)) {
        return presence.gone().filter(is_left_out).collect();
    }
    let mut left_out: Vec<usize> = all.clone().filter(is_left_out).collect();
    // Of two columns with one name now, the one that was renamed to it is what the database would have kept.
    let is_set = |column: usize| match op {
        Op::Update { columns, .. } => columns.iter().any(|(set, _)| *set == column),
        _ => matches!(op, Op::Insert(_) | Op::Put(_)),
    };
    let renamed = all.clone().filter(|column| is_set(*column) && !left_out.contains(column));
    let taken: Vec<&String> = renamed
        .filter_map(|column| match place(column) {
            Place::Renamed(name) => Some(name),
            _ => None,
        })
        .collect();
    if !taken.is_empty() {
        let is_taken = |column: &usize| {
            *column != schema.key
                && *place(*column) == Place::Name
                && taken.contains(&&schema.columns[*column].name)
                && !left_out.contains(column)
        };
        let more: Vec<usize> = all.filter(is_taken).collect();
        left_out.extend(more);
        left_out.sort_unstable();
    }
    left_out
}

/// The place of a column among those that are not left out.
fn place_without(column: usize, left_out: &[usize]) -> usize {
    column - left_out.iter().filter(|other| **other < column).count()
}

/// Makes a change one of the reduced schema; false: it sets nothing.
fn reduce(op: &mut Op, base: &Schema, reduced: &Schema, left_out: &[usize]) -> bool {
    let place = |column: usize| place_without(column, left_out);
    match op {
        Op::Insert(row) | Op::Put(row) => {
            let values = row.as_ref().values(base).enumerate();
            let kept = values.filter(|(column, _)| !left_out.contains(column));
            let kept: Vec<ValueRef<'_>> = kept.map(|(_, value)| value).collect();
            let mut bytes = Vec::with_capacity(row.0.len());
            forebay_value::encode_row(reduced, kept, &mut bytes);
            *row = Row(bytes.into());
            true
        }
        Op::Update { columns, .. } => {
            columns.retain(|(column, _)| !left_out.contains(column));
            columns.iter_mut().for_each(|(column, _)| *column = place(*column));
            !columns.is_empty()
        }
        Op::Increment { column, .. } if left_out.contains(column) => false,
        Op::Increment { column, .. } => {
            *column = place(*column);
            true
        }
        Op::Delete(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_value::{Column, KeyKind, Type};

    fn schema() -> Schema {
        let column = |name: &str, nullable| Column {
            name: name.into(),
            ty: Type::Bigint,
            nullable,
            unique: false,
            indexed: false,
            fill: None,
        };
        let columns = vec![column("a", false), column("id", false), column("b", true), column("c", true)];
        let schema = Schema::new("t", columns, 1, KeyKind::Bigint).unwrap();
        [0, 2, 3].into_iter().for_each(|column| schema.presence.set_need(column, Need::Nothing));
        schema
    }

    fn row(values: [Option<i64>; 4]) -> Row {
        let values = values.map(|value| value.map_or(Value::Null, Value::Bigint));
        Row::from_values(&schema(), &values)
    }

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
        base.presence.set_gone(2, true);
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
        base.presence.set_gone(2, false);
        assert_eq!(fitted(&mut schemas, whole()).unwrap().0.len(), 4);
        let (names, _) = fitted(&mut schemas, Op::Put(row([Some(1), Some(2), None, None]))).unwrap();
        assert_eq!(names, ["a", "id", "c"]);
        // Of the two forms, one lacks nothing that the database has.
        let keys = |place: usize| vec![(place, Value::Bigint(2))];
        base.presence.set_gone(2, true);
        assert!(schemas.back(keys(2)).is_empty() && schemas.back(keys(0)).is_empty());
        assert_eq!(schemas.back(keys(1)), [(schemas.list[1].clone(), Value::Bigint(2))]);
    }

    #[test]
    fn what_a_client_may_have_set_waits_for_a_renamed_column() {
        let base = schema();
        base.presence.set_need(0, Need::Endpoints);
        base.presence.set_need(2, Need::Endpoints);
        let insert = |a, b| Op::Insert(row([a, Some(2), b, None]));
        assert!(left_out(&base, &insert(Some(1), None), None).is_empty());
        [0, 2].into_iter().for_each(|column| assert!(base.presence.set_gone(column, true)));
        assert_eq!(left_out(&base, &insert(Some(1), Some(3)), None), [0, 2]);
        // One may have been renamed.
        base.presence.set_has_others(true);
        assert!(left_out(&base, &insert(Some(1), Some(3)), None).is_empty());
        assert_eq!(left_out(&base, &insert(None, Some(3)), None), [0]);
        let update = Op::Update { key: Value::Bigint(2), columns: vec![(2, Value::Bigint(7))] };
        assert!(left_out(&base, &update, None).is_empty());
        // Both are back: no client can have set NULL where that is not permitted.
        [0, 2].into_iter().for_each(|column| assert!(base.presence.set_gone(column, false)));
        assert_eq!(left_out(&base, &insert(None, None), None), [0]);
    }
}
