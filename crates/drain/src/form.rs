//! The form that a change has for its table's present columns: which are left out, and which have other
//! names.

use forebay_database::{ColumnsNow, Op};
use forebay_value::{Need, Row, Schema, ValueRef};
use std::collections::BTreeMap;

/// How a table's present columns differ from those that a change was written with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Form {
    pub left_out: Vec<usize>,
    pub renamed: BTreeMap<usize, String>,
}

/// What the database has of a column that a change was written with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// Whatever has its name.
    Name,
    /// The column, under this name.
    Renamed(String),
    Dropped,
}

/// Where a table's columns are now; `None`: where their names say. A name that belonged to a column that is
/// gone means whatever has it now: the change may have come after the migration.
pub(crate) fn moved(schema: &Schema, now: &ColumnsNow) -> Option<Vec<Place>> {
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
pub(crate) fn left_out(schema: &Schema, op: &Op, places: Option<&[Place]>) -> Vec<usize> {
    let presence = &schema.presence;
    let place = |column: usize| places.map_or(&Place::Name, |places| &places[column]);
    let is_lost = |column: usize| match place(column) {
        Place::Name => presence.is_lost(column),
        Place::Renamed(_) => false,
        Place::Dropped => true,
    };
    let all = 0..schema.columns.len();
    let is_set = |column: usize| match op {
        Op::Insert(_) | Op::Put(_) => true,
        Op::Update { columns, .. } => columns.iter().any(|(set, _)| *set == column),
        Op::Increment { column: set, .. } => *set == column,
        Op::Delete(_) => false,
    };
    let is_left_out = |column: &usize| {
        let (Op::Insert(row) | Op::Put(row)) = op else {
            // All changes that set nothing of a renamed column have one form.
            return is_lost(*column) || matches!(place(*column), Place::Renamed(_)) && !is_set(*column);
        };
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
    let named = |name: &String| {
        all.clone().find(|column| *place(*column) == Place::Name && schema.columns[*column].name == *name)
    };
    for column in all.clone() {
        let Place::Renamed(name) = place(column) else { continue };
        if left_out.contains(&column) {
            continue;
        }
        let other = named(name).filter(|other| *other != schema.key && !left_out.contains(other));
        left_out.extend(other);
    }
    left_out.sort_unstable();
    left_out
}

/// The place of a column among those that are not left out.
pub(crate) fn place_without(column: usize, left_out: &[usize]) -> usize {
    column - left_out.iter().filter(|other| **other < column).count()
}

/// Makes a change one of the reduced schema; false: it sets nothing.
pub(crate) fn reduce(op: &mut Op, base: &Schema, reduced: &Schema, left_out: &[usize]) -> bool {
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
pub(crate) mod tests {
    use super::*;
    use forebay_value::{Column, KeyKind, Numbering, Numbers, Type, Value};

    pub(crate) fn schema() -> Schema {
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

    pub(crate) fn row(values: [Option<i64>; 4]) -> Row {
        let values = values.map(|value| value.map_or(Value::Null, Value::Bigint));
        Row::from_values(&schema(), &values)
    }

    #[test]
    fn what_a_client_may_have_set_waits_for_a_renamed_column() {
        let base = schema();
        base.presence.set_need(0, Need::Endpoints);
        base.presence.set_need(2, Need::Endpoints);
        let insert = |a, b| Op::Insert(row([a, Some(2), b, None]));
        assert!(left_out(&base, &insert(Some(1), None), None).is_empty());
        let is_gone = [true, false, true, false];
        assert_eq!(base.presence.see(&is_gone, false), [0, 2]);
        assert_eq!(left_out(&base, &insert(Some(1), Some(3)), None), [0, 2]);
        // One may have been renamed.
        base.presence.see(&is_gone, true);
        assert!(left_out(&base, &insert(Some(1), Some(3)), None).is_empty());
        assert_eq!(left_out(&base, &insert(None, Some(3)), None), [0]);
        let update = Op::Update { key: Value::Bigint(2), columns: vec![(2, Value::Bigint(7))] };
        assert!(left_out(&base, &update, None).is_empty());
        // Both are back: no client can have set NULL where that is not permitted.
        base.presence.see(&[false; 4], false);
        assert_eq!(left_out(&base, &insert(None, None), None), [0]);
    }

    #[test]
    fn a_change_means_the_columns_that_it_was_written_with() {
        let mut base = schema();
        [0, 2, 3].into_iter().for_each(|column| base.presence.set_need(column, Need::Endpoints));
        base.numbers = Numbers::new(Some(Numbering { table: 9, columns: vec![1, 2, 3, 4] }));
        let now = |names: &[(i32, &str)]| ColumnsNow {
            table: 9,
            names: names.iter().map(|(number, name)| (*number, (*name).to_owned())).collect(),
        };
        let all = Op::Insert(row([Some(1), Some(2), Some(3), Some(4)]));
        let only = |column| Op::Update { key: Value::Bigint(2), columns: vec![(column, Value::Bigint(7))] };
        let same = [(1, "a"), (2, "id"), (3, "b"), (4, "c")];
        assert_eq!(moved(&base, &now(&same)), None);
        assert_eq!(moved(&base, &ColumnsNow { table: 8, ..now(&[]) }), None, "it was made again");
        // `a` is dropped, and `b` is renamed to it.
        let places = moved(&base, &now(&[(2, "id"), (3, "a"), (4, "c")])).unwrap();
        assert_eq!(places[..3], [Place::Name, Place::Name, Place::Renamed("a".into())]);
        assert_eq!(left_out(&base, &all, Some(&places)), [0], "one of two with one name");
        assert_eq!(left_out(&base, &only(0), Some(&places)), [2]);
        assert_eq!(left_out(&base, &only(2), Some(&places)), [0]);
        // `b` and `c` are exchanged, and `a` is gone.
        let places = moved(&base, &now(&[(2, "id"), (3, "c"), (4, "b")])).unwrap();
        assert_eq!(left_out(&base, &all, Some(&places)), [0]);
        assert_eq!(places[2..], [Place::Renamed("c".into()), Place::Renamed("b".into())]);
        // The key's column is gone, and `b` is the key: no change sets it.
        let places = moved(&base, &now(&[(1, "a"), (3, "id"), (4, "c")])).unwrap();
        assert_eq!(places[1..3], [Place::Name, Place::Dropped]);
        // A column that nothing needs is left out rather than renamed.
        base.presence.set_need(3, Need::Nothing);
        let places = moved(&base, &now(&[(1, "a"), (2, "id"), (3, "b"), (4, "d")])).unwrap();
        assert_eq!(left_out(&base, &all, Some(&places)), [3]);
        assert_eq!(left_out(&base, &only(3), Some(&places)), [3]);
    }
}
