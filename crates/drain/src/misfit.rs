//! Tables of which the database would refuse every row, because they are not as the records were written for.
//!
//! A table that was dropped, lost a column, or got a column that must have a value and has no default, does
//! not fit: a refusal is not the fault of a row then.

use crate::Error;
use forebay_database::{Kind as DatabaseKind, Store};
use forebay_value::{Schema, Type};
use std::sync::Arc;

/// The table among these at which the database would refuse every row, after it refused a change, and why, as
/// the rest of a sentence that begins with the table's name.
pub(crate) async fn misfit_among(
    database: &Store,
    schemas: &[&Arc<Schema>],
    refused: &forebay_database::Error,
) -> Result<Option<(String, String)>, Error> {
    Ok(match (first_misfit(database, schemas, refused.kind()).await?, refused.kind()) {
        (Some(misfit), _) => Some(misfit),
        // A cause that the columns do not show: a permission that was revoked.
        (None, DatabaseKind::Table { table, .. }) => {
            let message = refused.message();
            let what = message.strip_prefix(&format!("table {table}: ")).unwrap_or(message);
            Some((table.clone(), format!("refuses every change ({what})")))
        }
        (None, _) => None,
    })
}

async fn first_misfit(
    database: &Store,
    schemas: &[&Arc<Schema>],
    refused: &DatabaseKind,
) -> Result<Option<(String, String)>, Error> {
    for schema in schemas {
        let found = match database.describe(&schema.name).await {
            Ok(found) => found,
            Err(error) if error.may_retry() => return Err(error.into()),
            // The table has a feature that no hot table may have: that says nothing about its rows.
            Err(_) => continue,
        };
        if let Some(reason) = misfit(schema, found.as_ref(), Some(refused)) {
            return Ok(Some((schema.name.clone(), reason)));
        }
    }
    Ok(None)
}

/// Why the database would refuse every row of a table, as the rest of a sentence that begins with the table's
/// name; `None`: the table fits, and the refusal is the fault of a row. `refused` is the database's last
/// refusal; `None` when nothing was tried.
pub(crate) fn misfit(
    schema: &Schema,
    found: Option<&Schema>,
    refused: Option<&DatabaseKind>,
) -> Option<String> {
    let refused = match refused {
        Some(DatabaseKind::Row { reason, .. } | DatabaseKind::Table { reason, .. }) => Some(&**reason),
        refused => refused,
    };
    let may_be_type = matches!(refused, None | Some(DatabaseKind::Type | DatabaseKind::Syntax));
    let Some(found) = found else {
        return Some("is not in the database any more".into());
    };
    for column in &schema.columns {
        let Some(other) = found.columns.iter().find(|other| other.name == column.name) else {
            return Some(format!("has no column {} any more", column.name));
        };
        if may_be_type && is_other_type(column.ty, other.ty) {
            return Some(format!(
                "has a column {} of type {} now; it was {}",
                column.name, other.ty, column.ty
            ));
        }
    }
    match refused {
        // Its default may be an expression that the schema does not show: the refusal shows that it has none.
        Some(DatabaseKind::NotNull { column: Some(column) }) if schema.position(column).is_none() => {
            Some(format!("has a new column {column} that must not be null and has no default"))
        }
        _ => None,
    }
}

/// Whether a column takes another kind of value than the records contain. The maximum length of a text is
/// checked for each row. Earlier versions wrote instants for a column without a time zone.
fn is_other_type(wanted: Type, found: Type) -> bool {
    let is_text = |ty| matches!(ty, Type::Text { .. });
    let is_time = |ty| matches!(ty, Type::Timestamp | Type::LocalTimestamp);
    wanted != found && !(is_text(wanted) && is_text(found)) && !(is_time(wanted) && is_time(found))
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_value::{Column, KeyKind};

    #[test]
    fn a_table_that_refuses_every_row_does_not_fit() {
        let column = |name: &str, ty| Column {
            name: name.into(),
            ty,
            nullable: false,
            unique: false,
            indexed: false,
            fill: None,
        };
        let table = |columns: Vec<Column>| Schema::new("t", columns, 0, KeyKind::Bigint).unwrap();
        let (id, n) = (column("id", Type::Bigint), column("n", Type::TEXT));
        let both = vec![id.clone(), n.clone()];
        let schema = table(both.clone());
        let not_null = |column: &str| DatabaseKind::Row {
            index: 3,
            reason: Box::new(DatabaseKind::NotNull { column: Some(column.into()) }),
        };
        let short = column("n", Type::Text { max_chars: Some(3) });
        let more = vec![id.clone(), n.clone(), column("more", Type::Bool)];
        for (found, refused, says) in [
            (None, None, Some("not in the database")),
            (Some(both.clone()), None, None),
            (Some(both.clone()), Some(DatabaseKind::Check), None),
            (Some(both.clone()), Some(not_null("n")), None),
            (Some(vec![id.clone()]), Some(DatabaseKind::Check), Some("no column n")),
            (Some(vec![id.clone(), short]), None, None),
            (
                Some(vec![id.clone(), column("n", Type::Bytes)]),
                Some(DatabaseKind::Type),
                Some("column n of type"),
            ),
            (Some(vec![id.clone(), column("n", Type::Bytes)]), Some(DatabaseKind::Check), None),
            (Some(more.clone()), Some(not_null("more")), Some("new column more")),
            (Some(more), Some(DatabaseKind::Check), None),
        ] {
            let found = found.map(table);
            let misfit = misfit(&schema, found.as_ref(), refused.as_ref());
            assert_eq!(misfit.is_some(), says.is_some(), "{misfit:?}");
            assert!(misfit.unwrap_or_default().contains(says.unwrap_or_default()));
        }
    }
}
