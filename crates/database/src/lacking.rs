//! Columns of a schema that its table lacks at present, for tables that are not followed and for changes that
//! the database refused.

use crate::{Error, Store};
use forebay_value::{Need, Row, Schema, Value};

impl Store {
    /// Looks which columns are gone: those that the config can do without and that the table lacks, and those
    /// that nothing needs and that have another type. Returns the names of those that were not known to be.
    /// None is looked for when the table itself is missing, or has a feature that no hot table may have.
    ///
    /// # Errors
    /// When the database cannot be asked.
    pub async fn find_lacking(&self, schema: &Schema) -> Result<Vec<String>, Error> {
        let presence = &schema.presence;
        if !(0..schema.columns.len()).any(|column| presence.need(column) != Need::Table) {
            return Ok(Vec::new());
        }
        let found = match self.describe(&schema.name).await {
            Ok(Some(found)) => found,
            Err(error) if error.may_retry() => return Err(error),
            Ok(None) | Err(_) => return Ok(Vec::new()),
        };
        let is_gone = schema.columns.iter().enumerate().map(|(index, column)| {
            let other = |there: usize| found.columns[there].ty.unbounded() != column.ty.unbounded();
            match found.position(&column.name) {
                Some(there) => presence.need(index) == Need::Nothing && other(there),
                None => true,
            }
        });
        let is_gone: Vec<bool> = is_gone.collect();
        let has_others = found.columns.iter().any(|column| schema.position(&column.name).is_none());
        let new = presence.find(&is_gone, has_others);
        Ok(new.into_iter().map(|index| schema.columns[index].name.clone()).collect())
    }

    /// The form in which the table stores these rows and returns them: its columns may pad, round, or sort
    /// their values. A row that the table would refuse stays as it is. Changes nothing.
    ///
    /// # Errors
    /// When the database cannot be asked.
    pub async fn as_stored(&self, schema: &Schema, rows: Vec<Row>) -> Result<Vec<Row>, Error> {
        let Some((short, gone, rows)) = shortened(schema, &rows) else {
            return self.whole_as_stored(schema, rows).await;
        };
        let stored = self.whole_as_stored(&short, rows).await?;
        Ok(stored.iter().map(|row| lengthened(schema, (&short, &gone), row)).collect())
    }
}

/// Rows without the columns that the table lacks, and the schema of these rows; `None`: it lacks none.
fn shortened(schema: &Schema, rows: &[Row]) -> Option<(Schema, Vec<usize>, Vec<Row>)> {
    let gone: Vec<usize> = schema.presence.gone().collect();
    if gone.is_empty() {
        return None;
    }
    let short = schema.without(&gone);
    let rows = rows.iter().map(|row| {
        let values = row.as_ref().to_values(schema).into_iter().enumerate();
        let kept: Vec<Value> = values.filter(|(at, _)| !gone.contains(at)).map(|(_, value)| value).collect();
        Row::from_values(&short, &kept)
    });
    let rows = rows.collect();
    Some((short, gone, rows))
}

/// A row of [`shortened`] with NULL in the columns that the table lacks.
fn lengthened(schema: &Schema, (short, gone): (&Schema, &[usize]), row: &Row) -> Row {
    let mut values = row.as_ref().to_values(short);
    gone.iter().for_each(|at| values.insert(*at, Value::Null));
    Row::from_values(schema, &values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_value::{Column, KeyKind, Type};

    #[test]
    fn rows_are_shortened_and_lengthened() {
        let column = |name: &str| Column {
            name: name.into(),
            ty: Type::Bigint,
            nullable: false,
            unique: false,
            indexed: false,
            fill: None,
        };
        let columns = ["a", "id", "b", "c"].map(column).to_vec();
        let schema = Schema::new("t", columns, 1, KeyKind::Bigint).unwrap();
        let row = |values: [Value; 4]| Row::from_values(&schema, &values);
        let [one, two, three, four] = [1, 2, 3, 4].map(Value::Bigint);
        let rows = [row([one, two.clone(), three.clone(), four])];
        assert!(shortened(&schema, &rows).is_none());
        for at in [0, 3] {
            schema.presence.set_need(at, Need::Nothing);
            schema.presence.set_gone(at);
        }
        let (short, gone, short_rows) = shortened(&schema, &rows).unwrap();
        assert_eq!(short_rows[0].as_ref().to_values(&short), [two.clone(), three.clone()]);
        let long = lengthened(&schema, (&short, &gone), &short_rows[0]);
        assert_eq!(long.as_ref().to_values(&schema), [Value::Null, two, three, Value::Null]);
    }
}
