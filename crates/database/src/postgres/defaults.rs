//! The defaults of a table's columns: a column's own, its domain's, or its identity's sequence.
//!
//! A default that is constant is evaluated once, by the server; `now()` and random UUIDs are made here; every
//! other one is evaluated by the server for each row ([`Fill::Asked`]). The stored expression says which it
//! is: it is constant when it consists of constants and immutable functions.

use super::session::Session;
use super::table::{as_read, text};
use crate::{Error, Kind};
use forebay_value::{Fill, Type, Value};
use std::collections::HashMap;

/// For each column: name, expression, the expression as a value of the column's type without its modifier
/// (the rules of the column apply that), and whether it is constant.
const DEFAULTS: &str = "WITH found AS ( \
     SELECT a.attnum, a.attname, a.attidentity <> '' AS is_identity, coalesce(d.adbin, t.typdefaultbin)::text AS tree, format_type(a.atttypid, -1) AS type, \
       CASE WHEN a.attidentity <> '' THEN format('nextval(%L::regclass)', pg_get_serial_sequence(a.attrelid::regclass::text, a.attname)) \
         WHEN d.adbin IS NOT NULL THEN pg_get_expr(d.adbin, d.adrelid) ELSE pg_get_expr(t.typdefaultbin, 0) END AS expression \
     FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum \
     WHERE a.attrelid = $1::int8::oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '') \
     SELECT attname::text, expression, format('(%s)::%s', expression, type), NOT is_identity \
       AND NOT EXISTS (SELECT FROM regexp_matches(tree, '\\{([A-Z]+) ', 'g') node WHERE node[1] <> ALL ( \
         '{CONST,FUNCEXPR,OPEXPR,RELABELTYPE,COERCETODOMAIN,ARRAY,ARRAYEXPR,ARRAYCOERCEEXPR,CASETESTEXPR,COLLATEEXPR}')) \
       AND NOT EXISTS (SELECT FROM regexp_matches(tree, ':(?:funcid|opfuncid) (\\d+)', 'g') called \
         LEFT JOIN pg_proc f ON f.oid = called[1]::oid WHERE f.provolatile IS DISTINCT FROM 'i') \
     FROM found WHERE expression IS NOT NULL ORDER BY attnum";

/// A column's default.
pub(super) struct ColumnDefault {
    /// As the server writes it.
    pub(super) expression: String,
    pub(super) fill: Fill,
}

/// The defaults of a table's columns, by name. `types`: the columns in question.
pub(super) async fn read(
    session: &mut Session,
    oid: &Value,
    types: &HashMap<&str, Type>,
) -> Result<HashMap<String, ColumnDefault>, Error> {
    let rows = session.run(DEFAULTS, std::slice::from_ref(oid)).await?;
    let known = rows.iter().filter_map(|row| Some((row, *types.get(text(&row[0]))?)));
    let known: Vec<(&[Value], Type)> = known.collect();
    let is_constant = |row: &[Value]| row[3] == Value::Bool(true);
    let value = |row: &[Value], ty: Type| match ty {
        Type::AsText => format!("(SELECT {} FROM (SELECT {}) made(v))", as_read(ty, "v"), text(&row[2])),
        _ => text(&row[2]).to_owned(),
    };
    let constant = known.iter().filter(|(row, _)| is_constant(row)).map(|(row, ty)| value(row, *ty));
    let mut constants = constants(session, constant.collect()).await?.into_iter();
    let mut defaults = HashMap::new();
    for (row, ty) in known {
        let asked = || Fill::Asked(value(row, ty).into());
        let fill = match is_constant(row).then(|| constants.next()).flatten() {
            Some(Value::Null) => continue,
            Some(value) if value.as_ref().fits(ty) => Fill::Value(value),
            _ => made_here(ty, text(&row[1])).unwrap_or_else(asked),
        };
        defaults.insert(text(&row[0]).to_owned(), ColumnDefault { expression: text(&row[1]).into(), fill });
    }
    Ok(defaults)
}

/// The values of constant expressions; none when the server refuses one of them: then each row asks for its
/// own, and gets that refusal.
async fn constants(session: &mut Session, expressions: Vec<String>) -> Result<Vec<Value>, Error> {
    if expressions.is_empty() {
        return Ok(Vec::new());
    }
    let sql = format!("SELECT {}", expressions.join(", "));
    let evaluated = session.run(&sql, &[]).await;
    // A type in it may be altered.
    session.forget(&sql);
    match evaluated {
        Ok(rows) => Ok(rows.iter().next().map(<[Value]>::to_vec).unwrap_or_default()),
        Err(error) if error.is_data() || matches!(error.kind(), Kind::Schema | Kind::Syntax) => {
            Ok(Vec::new())
        }
        Err(error) => Err(error),
    }
}

/// A default that needs no database.
fn made_here(ty: Type, expression: &str) -> Option<Fill> {
    let lower = expression.trim().to_ascii_lowercase();
    match ty {
        Type::Timestamp | Type::LocalTimestamp => {
            let clocks = [
                "now()",
                "current_timestamp",
                "clock_timestamp()",
                "transaction_timestamp()",
                "statement_timestamp()",
                "localtimestamp",
            ];
            let is_in_utc =
                matches!(&*lower, "timezone('utc'::text, now())" | "(now() at time zone 'utc'::text)");
            match is_in_utc {
                true if ty == Type::LocalTimestamp => Some(Fill::UtcClock),
                is_in_utc => (is_in_utc || clocks.contains(&&*lower)).then_some(Fill::Now),
            }
        }
        Type::Uuid => match &*lower {
            "gen_random_uuid()" | "uuid_generate_v4()" => Some(Fill::Uuid4),
            "uuidv7()" | "uuid_generate_v7()" => Some(Fill::Uuid7),
            own if own.contains("uuid_send(gen_random_uuid())")
                && own.contains("int8send(")
                && own.contains("clock_timestamp()") =>
            {
                Some(Fill::Uuid7)
            }
            _ => None,
        },
        _ => None,
    }
}
