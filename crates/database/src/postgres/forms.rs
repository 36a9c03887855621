//! Texts of types that only PostgreSQL knows: it is asked in which form it stores them.

use super::Postgres;
use super::table::as_read;
use crate::Error;
use forebay_value::{Form, Type, Value};

impl Postgres {
    /// See [`Store::form`](crate::Store::form).
    pub(crate) async fn form(&self, form: &Form, text: Option<Box<str>>) -> Result<Value, Error> {
        let text = text.map_or(Value::Null, Value::Text);
        let rows = match form.is_styled {
            // As in `read_key`. The drain and claims need sessions, too.
            true => {
                let plan = self.plan(&form.sql)?;
                let place = self.bulk.forms.clone().acquire_owned().await;
                self.job(|bulk| async move {
                    let _place = place;
                    bulk.sessions.lease().await?.run(&plan.sql, &[text]).await
                })
                .await?
            }
            false => self.submit(&form.sql, vec![text], false).await?,
        };
        Ok(rows.iter().next().and_then(|row| row.first().cloned()).unwrap_or(Value::Null))
    }
}

/// How the database is asked for the form of a text. A function that reads records reads each column by its
/// type's input function, with the length, which a cast would cut to size. The form is read again: the drain
/// must not send one that the type refuses.
pub(super) fn form(base: &str, is_array: bool, ty: Type, declared: &str) -> Option<Form> {
    /// Types that are written in one way, or as the database's default says.
    const PLAIN: [&str; 14] = [
        "inet",
        "cidr",
        "macaddr",
        "macaddr8",
        "interval",
        "bit",
        "varbit",
        "money",
        "tsvector",
        "tsquery",
        "pg_lsn",
        "int4range",
        "int8range",
        "numrange",
    ];
    let reads = |value: &str, name: &str| {
        format!("jsonb_to_record(jsonb_build_object('v', {value})) AS {name}(v {declared})")
    };
    let given = reads("$given::text", "given");
    let sql = match ty {
        // The name of a function or an operator is not unique.
        Type::AsText if base.starts_with("reg") => return None,
        Type::AsText => {
            let (written, stored) = (as_read(ty, "given.v"), as_read(ty, "stored.v"));
            format!("SELECT {stored} AS form FROM {given}, {}", reads(&written, "stored"))
        }
        // It stays as it is: the type writes less than it was given.
        _ if base == "xml" && !is_array => {
            format!("SELECT CASE WHEN v IS DISTINCT FROM NULL THEN $given::text END AS form FROM {given}")
        }
        _ => return None,
    };
    Some(Form { sql: sql.into(), is_styled: is_array || !PLAIN.contains(&base) })
}
