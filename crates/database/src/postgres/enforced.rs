//! What PostgreSQL enforces on a table, from its catalogue: column types and domains down to their base, NOT
//! NULL, identity, every unique index, constraints, triggers, row-level security.

use super::codec::Codec;
use super::session::Session;
use super::sql::quoted;
use super::table::{columns, number, text};
use super::{Postgres, defaults, errors, forms};
use crate::checks::{self, Compares};
use crate::enforced::{ColumnFacts, Means, TableFindings};
use crate::{Enforced, Error};
use forebay_value::{Bound, Elements, KeyKind, Rule, Schema, StoredFill, Type, Value, Zone};
use std::collections::HashMap;

/// For each column: its base type, with domains resolved, the outermost modifier, and whether the column or
/// any of its domains is NOT NULL. Of an array, base type and modifier are those of its elements. Last, its
/// type as declared.
const COLUMNS: &str = "WITH RECURSIVE down AS ( \
     SELECT a.attnum, a.attname, a.attnotnull AS refuses_null, a.attidentity, a.atttypid AS type, a.atttypmod AS modifier, \
       false AS is_array, false AS has_domain, a.attcollation \
     FROM pg_attribute a WHERE a.attrelid = $1::int8::oid AND a.attnum > 0 AND NOT a.attisdropped \
     UNION ALL \
     SELECT d.attnum, d.attname, d.refuses_null OR t.typnotnull AND NOT d.is_array, d.attidentity, \
       CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.typelem END, \
       CASE WHEN d.modifier >= 0 THEN d.modifier ELSE t.typtypmod END, \
       d.is_array OR t.typtype <> 'd', d.has_domain OR d.is_array AND t.typtype = 'd', d.attcollation \
     FROM down d JOIN pg_type t ON t.oid = d.type AND (t.typtype = 'd' OR t.typinput = 'pg_catalog.array_in'::regproc)) \
     SELECT d.attname::text, d.refuses_null, d.attidentity::text, \
       CASE WHEN t.typtype = 'e' THEN 'enum' WHEN t.typnamespace = 'pg_catalog'::regnamespace THEN t.typname::text ELSE '' END, \
       d.modifier::int8, ARRAY(SELECT e.enumlabel::text FROM pg_enum e WHERE e.enumtypid = t.oid ORDER BY e.enumsortorder), \
       format_type(t.oid, d.modifier), coalesce(l.collisdeterministic, true), d.is_array, d.has_domain, \
       format_type(o.atttypid, o.atttypmod) \
     FROM down d JOIN pg_type t ON t.oid = d.type AND t.typtype <> 'd' AND t.typinput <> 'pg_catalog.array_in'::regproc \
     JOIN pg_attribute o ON o.attrelid = $1::int8::oid AND o.attnum = d.attnum \
     LEFT JOIN pg_collation l ON l.oid = d.attcollation ORDER BY d.attnum";

/// Unique indexes besides the primary key: whether they are over columns alone, their columns, and whether
/// they compare in their own way (by another collation, by the operators of an extension).
const UNIQUE: &str = "SELECT c.relname::text, pg_get_indexdef(i.indexrelid), i.indpred IS NULL AND i.indexprs IS NULL, \
       ARRAY(SELECT a.attname::text FROM unnest(i.indkey) WITH ORDINALITY k(attnum, n) \
         JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum WHERE n <= i.indnkeyatts ORDER BY n), \
       EXISTS (SELECT FROM unnest(i.indcollation) used JOIN pg_collation l ON l.oid = used WHERE NOT l.collisdeterministic) \
         OR EXISTS (SELECT FROM unnest(i.indclass) used JOIN pg_opclass o ON o.oid = used WHERE NOT o.opcdefault AND o.opcname !~ '_pattern_ops$') \
     FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE i.indrelid = $1::int8::oid AND i.indisunique AND NOT (i.indisprimary AND i.indnkeyatts = 1) AND i.indislive ORDER BY c.relname";

/// Constraints of the table, of its columns' domains (with the columns), and of other tables that refer to
/// it.
const CONSTRAINTS: &str = "WITH RECURSIVE down(type, of) AS ( \
     SELECT a.atttypid, a.attname FROM pg_attribute a WHERE a.attrelid = $1::int8::oid AND a.attnum > 0 AND NOT a.attisdropped \
     UNION SELECT t.typbasetype, down.of FROM down JOIN pg_type t ON t.oid = down.type AND t.typtype = 'd') \
     SELECT c.contype::text, c.conname::text, pg_get_constraintdef(c.oid), c.conrelid = $1::int8::oid OR c.contypid <> 0, \
       coalesce(c.contypid::regtype::text, ''), coalesce(c.conrelid::regclass::text, ''), \
       pg_get_expr(c.conbin, c.conrelid), c.convalidated, ARRAY(SELECT of::text FROM down WHERE type = c.contypid ORDER BY of) \
     FROM pg_constraint c WHERE c.contype IN ('c', 'f', 'x') AND c.conparentid = 0 \
       AND (c.conrelid = $1::int8::oid OR c.confrelid = $1::int8::oid OR c.contypid IN (SELECT type FROM down)) ORDER BY c.conname";

/// Triggers of others, and whether they may change a row before it is checked; Forebay's own change nothing.
const TRIGGERS: &str = "SELECT tgname::text, pg_get_triggerdef(oid), tgtype & 2 <> 0 AND tgtype & 20 <> 0 FROM pg_trigger \
     WHERE tgrelid = $1::int8::oid AND NOT tgisinternal AND tgname !~ '^forebay_' AND tgenabled IN ('O', 'A') ORDER BY tgname";

const TABLE: &str = "SELECT c.oid::int8, row_security_active(c.oid), c.relkind = 'p', getdatabaseencoding()::text \
     FROM pg_class c WHERE c.oid = to_regclass($1)";

/// The zone of a new session's clock (the catalogue comes before what this session began with), and the year.
const ZONE: &str = "SELECT coalesce( \
       (SELECT split_part(c, '=', 2) FROM pg_db_role_setting s CROSS JOIN LATERAL unnest(s.setconfig) c \
         WHERE lower(split_part(c, '=', 1)) = 'timezone' \
         AND s.setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database())) \
         AND s.setrole IN (0, (SELECT oid FROM pg_roles WHERE rolname = session_user)) \
         ORDER BY s.setrole <> 0 DESC, s.setdatabase <> 0 DESC LIMIT 1), \
       (SELECT reset_val FROM pg_settings WHERE name = 'TimeZone')), extract(year FROM now())::int8";

/// The offsets of a zone in seconds, each with the second from which on it holds, for last year to next
/// year. A day whose ends differ is looked at in steps of 15 minutes.
const OFFSETS: &str = "WITH day AS (SELECT t, t AT TIME ZONE $zone::text - t AT TIME ZONE 'UTC' AS behind, \
         (t + interval '24 hours') AT TIME ZONE $zone::text - (t + interval '24 hours') AT TIME ZONE 'UTC' AS after \
       FROM generate_series(date_trunc('year', now(), 'UTC') - interval '8784 hours', \
         date_trunc('year', now(), 'UTC') + interval '17568 hours', '24 hours') t), \
     quarter AS (SELECT u, u AT TIME ZONE $zone::text - u AT TIME ZONE 'UTC' AS behind, \
         (u - interval '15 minutes') AT TIME ZONE $zone::text - (u - interval '15 minutes') AT TIME ZONE 'UTC' AS before \
       FROM day, generate_series(t, t + interval '24 hours', '15 minutes') u WHERE day.behind <> day.after) \
     SELECT 0::int8, extract(epoch FROM behind)::int8 FROM (SELECT * FROM day ORDER BY t LIMIT 1) first \
     UNION SELECT extract(epoch FROM u)::int8, extract(epoch FROM behind)::int8 FROM quarter WHERE behind <> before ORDER BY 1";

impl Postgres {
    pub(crate) async fn enforced(&self, schema: &Schema) -> Result<Option<Enforced>, Error> {
        let zone = match schema.columns.iter().any(|column| column.ty == Type::LocalTimestamp) {
            true => self.zone().await?,
            false => Zone::default(),
        };
        let schema = schema.clone();
        self.job(|bulk| async move { read(&mut *bulk.sessions.lease().await?, &schema, &zone).await }).await
    }

    /// The zone in which the database's clock shows `now()` to a new session of this user. Asked on a lane,
    /// whose session has no zone of ours; its offsets are asked for when it or the year has changed.
    async fn zone(&self) -> Result<Zone, Error> {
        let named = self.submit(ZONE, Vec::new(), false).await?.values;
        if let Some((known, zone)) = &*self.zone.lock()
            && *known == named
        {
            return Ok(zone.clone());
        }
        let found = self.submit(OFFSETS, named[..1].to_vec(), false).await?;
        let offset = |row: &[Value]| match row {
            [Value::Bigint(from), Value::Bigint(offset)] => Some((*from, i32::try_from(*offset).ok()?)),
            _ => None,
        };
        let mut offsets: Vec<(i64, i32)> = found.iter().filter_map(offset).collect();
        // The first holds from the beginning.
        offsets.iter_mut().take(1).for_each(|(from, _)| *from = i64::MIN);
        let zone = Zone::new(offsets);
        *self.zone.lock() = Some((named, zone.clone()));
        Ok(zone)
    }
}

async fn read(session: &mut Session, schema: &Schema, zone: &Zone) -> Result<Option<Enforced>, Error> {
    let mut found = TableFindings::default();
    let table = session.run(TABLE, &[Value::Text(quoted(&schema.name).into())]).await?;
    let Some(facts) = table.iter().next() else { return Ok(None) };
    if facts[1] == Value::Bool(true) {
        found.list("row-level security".into(), Means::Policies);
    }
    if facts[2] == Value::Bool(true) {
        found.list("which partition takes a row".into(), Means::Refused);
    }
    if text(&facts[3]) != "UTF8" {
        let what = format!("what the encoding {} lacks", text(&facts[3]));
        found.list(what, Means::Refused);
    }
    let oid = [Value::Bigint(number(&table, 0, 0))];
    let columns = session.run(COLUMNS, &oid).await?;
    let has_arrays = columns.iter().any(|row| row[8] == Value::Bool(true));
    let codecs = if has_arrays { array_codecs(session, schema).await? } else { HashMap::new() };
    for row in columns.iter() {
        column(row, schema, (zone, &codecs), &mut found);
    }
    let types = schema.columns.iter().map(|column| (&*column.name, column.ty)).collect();
    let defaults = defaults::read(session, &oid[0], &types).await?;
    for (index, column) in schema.columns.iter().enumerate() {
        let is_handed_out = index == schema.key && schema.key_kind == KeyKind::Serial;
        let Some(default) = defaults.get(&column.name).filter(|_| !is_handed_out) else { continue };
        found.list_default(column, &default.expression, &default.fill);
        found.columns.entry(column.name.clone()).or_default().fill = Some(StoredFill::of(&default.fill));
    }
    for row in session.run(UNIQUE, &oid).await?.iter() {
        unique(row, &mut found);
    }
    let mut rewrites_rows = false;
    for row in session.run(TRIGGERS, &oid).await?.iter() {
        // Its events are between its name and the table's.
        let events = text(&row[1]).split_once(text(&row[0])).map_or("", |(_, rest)| rest);
        let events = events.trim_start_matches('"').split(" ON ").next().unwrap_or_default();
        found.list(format!("TRIGGER {} {events}", text(&row[0])), Means::Acts);
        rewrites_rows |= row[2] == Value::Bool(true);
    }
    for row in session.run(CONSTRAINTS, &oid).await?.iter() {
        if text(&row[2]).ends_with(" NOT ENFORCED") {
            continue;
        }
        // The row that a trigger produces is unknown here.
        if rewrites_rows || !judge(row, schema, &mut found) {
            constraint(row, &mut found);
        }
    }
    Ok(Some(found.of(schema)))
}

/// The types of the elements of arrays, by column.
async fn array_codecs(session: &Session, schema: &Schema) -> Result<HashMap<String, Type>, Error> {
    let sql = format!("SELECT {} FROM {}", columns(schema), quoted(&schema.name));
    let elements = |statement: tokio_postgres::Statement| {
        let element = |column: &tokio_postgres::Column| match Codec::of(column.type_())? {
            Codec::Array { element, .. } => Some((column.name().to_owned(), element.value_type())),
            _ => None,
        };
        statement.columns().iter().filter_map(element).collect()
    };
    session.answer(session.look_at(&sql, elements)).await?.map_err(errors::map)
}

/// `types`: the zone of the database's clock, and the types of the elements of arrays.
fn column(row: &[Value], schema: &Schema, types: (&Zone, &HashMap<String, Type>), found: &mut TableFindings) {
    let name = text(&row[0]);
    let Some(index) = schema.position(name) else { return };
    let is = |place: usize| row[place] == Value::Bool(true);
    let (base, is_array) = (text(&row[3]), is(8));
    let modifier = if let Value::Bigint(modifier) = row[4] { modifier } else { -1 };
    let labels = if let Value::Json(labels) = &row[5] { labels } else { "[]" };
    let element = types.1.get(name).filter(|_| is_array);
    let column_type = schema.columns[index].ty;
    let bound = match *element.unwrap_or(&column_type) {
        Type::LocalTimestamp => {
            Some(Bound::Local { digits: u32::try_from(modifier).unwrap_or(6), zone: types.0.clone() })
        }
        Type::AsText => None,
        _ if is_array && element.is_none() => None,
        _ => bound(base, modifier, labels),
    };
    let bound = match element {
        Some(ty) => Some(Bound::Array(Elements::new(*ty, bound))),
        None => bound,
    };
    let form = forms::form(base, is_array, column_type, text(&row[10]));
    if column_type == Type::AsText || is(9) || base == "xml" {
        let array = if is_array { "[]" } else { "" };
        let means = if form.is_some() { Means::Form } else { Means::Refused };
        found.list(format!("the form of {name} ({}{array})", text(&row[6])), means);
    }
    let rule = Rule { not_null: is(1), bound, form, ..Rule::default() };
    let compares = match base {
        _ if is_array => None,
        "int2" | "int4" | "int8" => Some(Compares::Whole),
        "numeric" => Some(Compares::Decimal),
        "float4" | "float8" => Some(Compares::Double),
        "text" | "varchar" if is(7) => Some(Compares::Text),
        _ => None,
    };
    let is_fixed = text(&row[2]) == "a";
    let is_equal_by_bytes = !is_array && is(7) && is_equal_by_bytes(base, modifier);
    found
        .columns
        .insert(name.into(), ColumnFacts { rule, compares, is_fixed, fill: None, is_equal_by_bytes });
}

/// Whether values of a base type that the database calls equal are the same here.
fn is_equal_by_bytes(base: &str, modifier: i64) -> bool {
    let types = [
        "bool",
        "int2",
        "int4",
        "int8",
        "oid",
        "float4",
        "float8",
        "numeric",
        "text",
        "varchar",
        "name",
        "uuid",
        "timestamp",
        "timestamptz",
        "date",
        "time",
        "bytea",
        "enum",
    ];
    // Spaces at the end of a char(n) do not count; all its values have the same length here.
    types.contains(&base) || base == "bpchar" && modifier >= 0
}

/// The longest `name`, which has room for one more byte (NAMEDATALEN).
const NAME_BYTES_MAX: u32 = 63;

/// The bound of a base type.
fn bound(base: &str, modifier: i64, labels: &str) -> Option<Bound> {
    /// A length modifier includes the four bytes of a length word.
    const LENGTH_WORD: i64 = 4;
    let length = u32::try_from(modifier - LENGTH_WORD).ok();
    Some(match (base, length) {
        ("int2", _) => Bound::Range { min: i16::MIN.into(), max: i16::MAX.into() },
        ("int4", _) => Bound::Range { min: i32::MIN.into(), max: i32::MAX.into() },
        ("oid", _) => Bound::Range { min: 0, max: u32::MAX.into() },
        ("numeric", None) => Bound::Plain,
        ("numeric", Some(modifier)) => {
            let (precision, scale) = digits(modifier);
            Bound::Decimal { precision, scale }
        }
        ("varchar", Some(chars)) => Bound::Chars(chars),
        ("name", _) => Bound::Octets(NAME_BYTES_MAX),
        ("bpchar", Some(chars)) => Bound::Padded(chars),
        ("float4", _) => Bound::Real,
        ("jsonb", _) => Bound::Jsonb,
        ("date", _) => Bound::Date,
        ("time", _) if modifier < 0 => Bound::Time,
        ("time", _) => Bound::RoundedTime(u32::try_from(modifier).ok()?),
        ("timestamp" | "timestamptz", _) => Bound::Instant(u32::try_from(modifier).ok()?),
        ("enum", _) => Bound::Labels(serde_json::from_str(labels).ok()?),
        _ => return None,
    })
}

/// Precision and scale from a numeric's modifier; the scale has eleven bits and a sign.
fn digits(modifier: u32) -> (u16, i16) {
    let scale = ((modifier & 0x7ff) ^ 1024) as i16 - 1024;
    ((modifier >> 16) as u16, scale)
}

fn unique(row: &[Value], found: &mut TableFindings) {
    let (name, definition) = (text(&row[0]), text(&row[1]));
    let is_simple = row[2] == Value::Bool(true);
    let mut is_loose = row[4] == Value::Bool(true) || definition.contains(" NULLS NOT DISTINCT");
    if is_simple {
        let columns = if let Value::Json(columns) = &row[3] { columns } else { "[]" };
        let columns: Vec<String> = serde_json::from_str(columns).unwrap_or_default();
        let is_loose_column =
            |name: &String| found.columns.get(name).is_some_and(|facts| !facts.is_equal_by_bytes);
        is_loose |= columns.iter().any(is_loose_column);
        found.unique.push(columns);
    }
    if !is_simple || is_loose {
        // The columns follow the index type: `… USING btree (a, b) WHERE (c)`.
        let over = definition.split_once(" USING ").and_then(|(_, rest)| rest.split_once(' '));
        found.list(format!("UNIQUE {name} {}", over.map_or("", |(_, over)| over)), Means::Unique);
    }
}

/// Makes a CHECK a rule of its column, or of each column of its domain; returns whether memory then evaluates
/// all of it.
fn judge(row: &[Value], schema: &Schema, found: &mut TableFindings) -> bool {
    let is_own = row[3] == Value::Bool(true);
    if text(&row[0]) != "c" || !is_own {
        return false;
    }
    let of = if let Value::Json(columns) = &row[8] { columns } else { "[]" };
    let of: Vec<String> = serde_json::from_str(of).unwrap_or_default();
    let text_of_check = check_text(row);
    // Rows older than a CHECK that is not validated may violate it, and be changed in other columns.
    let is_validated = row[7] == Value::Bool(true);
    match of.is_empty() {
        true => found.judge(checks::of_postgres, text(&row[6]), &text_of_check, schema, None) && is_validated,
        // A column that the schema does not contain is not written by Forebay.
        false => {
            let columns = of.iter().filter_map(|name| schema.position(name)).collect::<Vec<usize>>();
            let judged = columns.iter().map(|column| {
                found.judge(checks::of_postgres, text(&row[6]), &text_of_check, schema, Some(*column))
            });
            judged.fold(is_validated, |all, is_judged| all & is_judged)
        }
    }
}

/// A CHECK's name and condition.
fn check_text(row: &[Value]) -> String {
    let (name, definition, domain) = (text(&row[1]), text(&row[2]), text(&row[4]));
    let condition = definition.strip_prefix("CHECK ").unwrap_or(definition);
    let inner = condition.strip_prefix("((").and_then(|rest| rest.strip_suffix("))"));
    let condition = inner.map_or_else(|| condition.to_owned(), |inner| format!("({inner})"));
    let of = if matches!(domain, "" | "-") { String::new() } else { format!(" of domain {domain}") };
    format!("CHECK {name}{of} {condition}")
}

fn constraint(row: &[Value], found: &mut TableFindings) {
    let (kind, name, definition) = (text(&row[0]), text(&row[1]), text(&row[2]));
    let (is_own, table) = (row[3] == Value::Bool(true), text(&row[5]));
    match kind {
        _ if !is_own => found.list(format!("FOREIGN KEY {name} of {table}"), Means::DeletesRefused),
        "c" => found.list(check_text(row), Means::Refused),
        "f" => {
            let of = definition.strip_prefix("FOREIGN KEY ").unwrap_or(definition);
            found.list(format!("FOREIGN KEY {name} {of}"), Means::Refused);
        }
        _ => found
            .list(format!("EXCLUDE {name} {}", definition.trim_start_matches("EXCLUDE ")), Means::Refused),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modifiers_say_length_precision_and_scale() {
        let numeric = |precision: i64, scale: i64| (precision << 16 | (scale & 0x7ff)) + 4;
        for (base, modifier, expected) in [
            ("int2", -1, Some(Bound::Range { min: -32_768, max: 32_767 })),
            ("int8", -1, None),
            ("varchar", 44, Some(Bound::Chars(40))),
            ("varchar", -1, None),
            ("bpchar", 7, Some(Bound::Padded(3))),
            ("numeric", -1, Some(Bound::Plain)),
            ("numeric", numeric(8, 2), Some(Bound::Decimal { precision: 8, scale: 2 })),
            ("numeric", numeric(2, -3), Some(Bound::Decimal { precision: 2, scale: -3 })),
            ("numeric", numeric(3, 5), Some(Bound::Decimal { precision: 3, scale: 5 })),
            ("jsonb", -1, Some(Bound::Jsonb)),
            ("timestamptz", 0, Some(Bound::Instant(0))),
            ("timestamp", -1, None),
            ("time", 3, Some(Bound::RoundedTime(3))),
        ] {
            assert_eq!(bound(base, modifier, "[]"), expected, "{base} {modifier}");
        }
        let labels = Bound::Labels(Box::new(["pending".into(), "paid".into()]));
        assert_eq!(bound("enum", -1, r#"["pending","paid"]"#), Some(labels));
    }
}
