//! A statement's plan on PostgreSQL, by EXPLAIN of a prepared statement with its generic plan, which works in
//! every version. Everything runs in a transaction that is rolled back.

use super::Postgres;
use super::errors;
use super::session::Session;
use super::sql::{self, quoted};
use crate::query_plan::{Growing, Planning, TableWork};
use crate::{Error, Kind};
use serde_json::Value as Json;
use tokio_postgres::SimpleQueryMessage;

/// The statements that SQL can prepare; others have no plan.
const PLANNED: &[&str] = &["SELECT", "INSERT", "UPDATE", "DELETE", "VALUES", "WITH", "MERGE", "TABLE"];

/// The prepared statement's name on its connection.
const NAME: &str = "forebay_query_plan";

impl Postgres {
    pub(crate) async fn growing(&self, sql: &str, planning: Planning) -> Result<Vec<Growing>, Error> {
        let parsed = sql::parse(sql)?;
        if !PLANNED.contains(&parsed.verb.as_str()) {
            return Ok(Vec::new());
        }
        let plan = self.job(move |bulk| async move {
            let mut session = bulk.sessions.lease().await?;
            session.begin(&beginning(planning)).await?;
            let explained = explain(&session, &parsed).await;
            session.rollback().await;
            explained
        });
        let plan = plan.await?;
        let mut found = Vec::new();
        for top in plan.as_array().into_iter().flatten() {
            walk(&top["Plan"], &Above::default(), &mut found);
        }
        found.dedup_by(|a, b| a.table == b.table);
        Ok(found)
    }
}

fn beginning(planning: Planning) -> String {
    let without = match planning {
        Planning::AsItIs => "",
        // Not forbidden: a sequential scan remains where no index can be used.
        Planning::WithEveryIndex => "SET LOCAL enable_seqscan = off;",
    };
    format!(
        "BEGIN READ ONLY; SET LOCAL lock_timeout = '1s'; SET LOCAL statement_timeout = '5s'; \
         SET LOCAL plan_cache_mode = force_generic_plan; {without}"
    )
}

async fn explain(session: &Session, parsed: &sql::Parsed) -> Result<Json, Error> {
    let nulls = vec!["NULL"; parsed.params.len()].join(", ");
    let values = if nulls.is_empty() { nulls } else { format!("({nulls})") };
    session.execute(&format!("PREPARE {NAME} AS {}", parsed.sql)).await?;
    session.execute("SAVEPOINT prepared").await?;
    let explain = format!("EXPLAIN (FORMAT JSON) EXECUTE {NAME}{values}");
    let explained = session.answer(session.client.simple_query(&explain)).await?.map_err(errors::map);
    // A prepared statement outlives its transaction.
    session.execute(&format!("ROLLBACK TO SAVEPOINT prepared; DEALLOCATE {NAME}")).await?;
    let messages = explained?;
    let rows = messages.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    let text: String = rows.collect();
    serde_json::from_str(&text)
        .map_err(|error| Error::new(Kind::Corrupt, format!("the plan cannot be read: {error}")))
}

/// What the nodes above need from a part of a plan.
#[derive(Default, Clone)]
struct Above {
    /// Whether only some of its rows are taken.
    is_limited: bool,
    /// The order in which they are sorted.
    sort: Vec<String>,
    /// The conditions on which they are joined.
    joins: Vec<String>,
}

fn walk(node: &Json, above: &Above, found: &mut Vec<Growing>) {
    let kind = node["Node Type"].as_str().unwrap_or_default();
    let mut below = above.clone();
    match kind {
        "Limit" => below.is_limited = true,
        "Sort" | "Incremental Sort" => {
            below.is_limited = false;
            below.sort = texts(&node["Sort Key"]);
        }
        "Nested Loop" | "Hash Join" | "Merge Join" => {
            below.is_limited &= kind == "Nested Loop";
            let conditions = ["Hash Cond", "Merge Cond", "Join Filter"].map(|key| node[key].as_str());
            below.joins.extend(conditions.into_iter().flatten().map(str::to_owned));
        }
        "Seq Scan" | "Index Scan" | "Index Only Scan" | "Bitmap Heap Scan" => {
            found.extend(whole_table(node, above));
        }
        "Append" | "Merge Append" | "Gather" | "Gather Merge" | "LockRows" | "Result" | "Subquery Scan"
        | "ModifyTable" | "Memoize" | "Materialize" => {}
        // Groups, sets and hashes read all rows, and return others.
        "Hash" => below.is_limited = false,
        _ => below = Above::default(),
    }
    for inner in node["Plans"].as_array().into_iter().flatten() {
        walk(inner, &below, found);
    }
}

/// The scan of a whole table, if this node is one.
fn whole_table(node: &Json, above: &Above) -> Option<Growing> {
    let table = node["Relation Name"].as_str()?;
    let filter = node["Filter"].as_str();
    let is_found = ["Index Cond", "Recheck Cond", "Order By"].iter().any(|key| node.get(key).is_some());
    let is_first_rows = above.is_limited && filter.is_none() && above.sort.is_empty();
    if is_found || is_first_rows || table.starts_with("pg_") {
        return None;
    }
    let work = match above.sort.first() {
        Some(key) if key.contains("random()") => TableWork::Shuffle,
        Some(_) => TableWork::Sort,
        None => TableWork::Scan,
    };
    let alias = node["Alias"].as_str().unwrap_or(table);
    let index = (work != TableWork::Shuffle).then(|| index_for(table, alias, filter, above)).flatten();
    if above.is_limited && work == TableWork::Scan && index.is_none() {
        // It ends at the first rows that pass: most rows do, where no value was searched for.
        return None;
    }
    Some(Growing { table: table.to_owned(), work, index })
}

/// The index that would find the rows, or sort them: equalities, then one range or the order.
fn index_for(table: &str, alias: &str, filter: Option<&str>, above: &Above) -> Option<String> {
    let (mut equal, mut range) = (Vec::new(), Vec::new());
    let filters = filter.into_iter().map(|filter| (filter, false));
    let joins = above.joins.iter().map(|join| (join.as_str(), true));
    for (condition, is_join) in filters.chain(joins) {
        for conjunct in conjuncts(condition) {
            for (key, is_equal) in keys(conjunct, alias, is_join) {
                let keys = if is_equal { &mut equal } else { &mut range };
                if !keys.contains(&key) {
                    keys.push(key);
                }
            }
        }
    }
    let order = above.sort.iter().map(|key| {
        let plain = own_name(key, alias);
        let words = plain.split(' ').next().filter(|name| is_name(name));
        words.map(|_| plain.to_owned())
    });
    let order = order.collect::<Option<Vec<String>>>().unwrap_or_default();
    let has_order = !order.is_empty();
    equal.extend(order.into_iter().filter(|key| !equal.contains(key)).collect::<Vec<_>>());
    if !has_order {
        equal.extend(range.into_iter().take(1));
    }
    let columns = equal.join(", ");
    let table = if is_name(table) { table.to_owned() } else { quoted(table) };
    (!equal.is_empty()).then(|| format!("CREATE INDEX CONCURRENTLY ON {table} ({columns})"))
}

/// The parts of a condition that an index could use, each with whether it is an equality.
fn keys(condition: &str, alias: &str, is_join: bool) -> Vec<(String, bool)> {
    let operators = [(" = ", true), (" >= ", false), (" <= ", false), (" > ", false), (" < ", false)];
    let Some((at, operator, is_equal)) = operators
        .into_iter()
        .find_map(|(operator, is_equal)| Some((outside(condition, operator)?, operator, is_equal)))
    else {
        return Vec::new();
    };
    let sides = [&condition[..at], &condition[at + operator.len()..]];
    // In a join both sides are columns: the side that names this table is taken.
    let own = sides
        .into_iter()
        .filter(|side| !is_join || inner(side).trim_start_matches('(').starts_with(&format!("{alias}.")));
    own.filter_map(|side| key(side, alias)).take(1).map(|key| (key, is_equal)).collect()
}

/// A column, or an expression of columns, in the form that an index accepts. `None`: a value.
fn key(side: &str, alias: &str) -> Option<String> {
    let uncast = match outside(side, "::") {
        Some(at) => &side[..at],
        None => side,
    };
    let plain = own_name(inner(uncast), alias);
    if is_name(plain) {
        return Some(plain.to_owned());
    }
    let is_expression = plain.starts_with(|c: char| c.is_alphabetic()) && plain.contains('(');
    let is_of_values = plain.contains('$') || plain.starts_with("ANY ") || plain.starts_with("ALL ");
    (is_expression && !is_of_values).then(|| format!("({})", plain.replace(&format!("{alias}."), "")))
}

fn own_name<'a>(text: &'a str, alias: &str) -> &'a str {
    text.strip_prefix(alias).and_then(|rest| rest.strip_prefix('.')).unwrap_or(text)
}

fn is_name(text: &str) -> bool {
    let is_quoted = text.len() > 2 && text.starts_with('"') && text.ends_with('"');
    let mut chars = text.chars();
    is_quoted
        || chars.next().is_some_and(|c| c == '_' || c.is_alphabetic())
            && chars.all(|c| c == '_' || c.is_alphanumeric())
            && !["true", "false", "NULL"].contains(&text)
}

/// The parts of a condition that must all be true; none for an OR.
fn conjuncts(condition: &str) -> Vec<&str> {
    let condition = inner(condition);
    match outside(condition, " AND ") {
        Some(at) => {
            let mut all = conjuncts(&condition[..at]);
            all.extend(conjuncts(&condition[at + " AND ".len()..]));
            all
        }
        None if outside(condition, " OR ").is_some() => Vec::new(),
        None => vec![condition],
    }
}

/// Removes the parentheses around the whole text.
fn inner(text: &str) -> &str {
    let text = text.trim();
    let stripped = text.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
    match stripped {
        Some(within) if depths(within).all(|(_, _, depth)| depth >= 0) => inner(within),
        _ => text,
    }
}

/// The first place of a text outside parentheses and quotes.
fn outside(text: &str, wanted: &str) -> Option<usize> {
    depths(text).find(|(at, _, depth)| *depth == 0 && text[*at..].starts_with(wanted)).map(|(at, _, _)| at)
}

/// The characters outside quotes, each with its place and the number of open parentheses after it.
fn depths(text: &str) -> impl Iterator<Item = (usize, char, i32)> {
    let (mut depth, mut quote) = (0, None);
    text.char_indices().filter_map(move |(at, c)| {
        match (quote, c) {
            (Some(open), c) => {
                if c == open {
                    quote = None;
                }
                return None;
            }
            (None, '\'' | '"') => quote = Some(c),
            (None, '(') => depth += 1,
            (None, ')') => depth -= 1,
            _ => {}
        }
        Some((at, c, depth))
    })
}

fn texts(of: &Json) -> Vec<String> {
    of.as_array().into_iter().flatten().filter_map(Json::as_str).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_that_a_condition_needs() {
        for (filter, sort, expected) in [
            ("(name = $1)", &[][..], Some("name")),
            ("((name)::text = $1)", &[], Some("name")),
            ("((t.a = $1) AND (t.b > $2))", &[], Some("a, b")),
            ("((b > $2) AND (a = $1) AND (c < 3))", &[], Some("a, b")),
            ("((a = $1) AND (b > $2))", &["t.at DESC", "id"], Some("a, at DESC, id")),
            ("(lower(email) = $1)", &[], Some("(lower(email))")),
            ("(lower((email)::text) = $1)", &[], Some("(lower((email)::text))")),
            ("($1 = a)", &[], Some("a")),
            ("(a = ANY ($1))", &[], Some("a")),
            ("(\"Name\" = ') AND ('::text)", &[], Some("\"Name\"")),
            ("((a = $1) OR (b = $1))", &[], None),
            ("(name ~~ $1)", &[], None),
            ("done", &[], None),
        ] {
            let sort = sort.iter().map(|key| (*key).to_owned()).collect();
            let above = Above { sort, ..Above::default() };
            let index = index_for("t", "t", Some(filter), &above);
            let expected = expected.map(|columns| format!("CREATE INDEX CONCURRENTLY ON t ({columns})"));
            assert_eq!(index, expected, "{filter}");
        }
    }
}
