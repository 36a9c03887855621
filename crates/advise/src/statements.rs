//! The counts of `pg_stat_statements`, and the action that would answer each statement from memory.

/// The query for [`Counted`], the most expensive first. The column was `total_time` before PostgreSQL 13.
pub const QUERY: &str = "SELECT query, calls::bigint, total_exec_time::double precision, rows::bigint FROM pg_stat_statements \
     WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database()) \
     AND query ~* '^\\s*(select|insert|update|delete|with)\\y' ORDER BY total_exec_time DESC LIMIT 200";

/// A statement with its counts.
#[derive(Debug, Clone, PartialEq)]
pub struct Counted {
    /// Its text, with `$1` for values.
    pub query: String,
    /// How often it ran.
    pub calls: u64,
    /// How long all runs took, in milliseconds.
    pub total_ms: f64,
    /// The rows that all runs returned or changed.
    pub rows: u64,
}

/// What Forebay can do for a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gain {
    /// The rows are in memory: the statement is not run any more.
    Memory(&'static str),
    /// The write is acknowledged from the log, and written with many others.
    Behind(&'static str),
    /// It stays a statement, and its answer is cached.
    Cached,
}

impl Counted {
    /// The table and the gain; `None` if no gain is known for the statement.
    pub fn gain(&self) -> Option<(String, Gain)> {
        let words: Vec<&str> = self
            .query
            .split(|c: char| !(c.is_alphanumeric() || "_$.\"*+".contains(c)))
            .filter(|word| !word.is_empty())
            .collect();
        let is = |at: usize, word: &str| words.get(at).is_some_and(|found| found.eq_ignore_ascii_case(word));
        let has = |word: &str| words.iter().any(|found| found.eq_ignore_ascii_case(word));
        let after = |word: &str| {
            let at = words.iter().position(|found| found.eq_ignore_ascii_case(word))?;
            let table = words.get(at + 1)?.trim_matches('"');
            let table = table.strip_prefix("public.").unwrap_or(table);
            let is_own = !table.starts_with("pg_") && !table.starts_with("forebay_") && !table.contains('.');
            is_own.then(|| table.to_owned())
        };
        let is_many = ["join", "union", "group", "with", "over", "distinct"].into_iter().any(has)
            || words.iter().filter(|word| word.eq_ignore_ascii_case("select")).count() > 1;
        if is(0, "insert") {
            return (!has("select")).then(|| after("into").map(|table| (table, Gain::Behind("insert"))))?;
        }
        if is(0, "update") {
            let adds = words.iter().any(|word| word.contains('+'));
            return after("update")
                .map(|table| (table, Gain::Behind(if adds { "increment" } else { "update" })));
        }
        if is(0, "delete") {
            return after("from").map(|table| (table, Gain::Behind("delete")));
        }
        let table = after("from")?;
        let ends_at_one = !has("order") && !has("between") && !has("in") && has("where");
        let gain = match () {
            () if is_many => Gain::Cached,
            () if has("random") && has("order") => Gain::Memory("random"),
            () if has("count") => Gain::Memory("count"),
            // About one row a run: the statement looks up a key.
            () if ends_at_one && self.rows <= self.calls => Gain::Memory("get"),
            () => Gain::Cached,
        };
        Some((table, gain))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_each_statement_could_be() {
        for (query, rows, expected) in [
            ("SELECT * FROM items WHERE id = $1", 10, Some(("items", Gain::Memory("get")))),
            ("select \"a\" from \"Items\" where id=$1", 9, Some(("Items", Gain::Memory("get")))),
            ("SELECT * FROM items WHERE shop = $1", 500, Some(("items", Gain::Cached))),
            ("SELECT count(*) FROM public.items WHERE shop = $1", 10, Some(("items", Gain::Memory("count")))),
            ("SELECT * FROM items ORDER BY random() LIMIT $1", 10, Some(("items", Gain::Memory("random")))),
            ("SELECT a FROM items JOIN shops USING (shop) WHERE id = $1", 10, Some(("items", Gain::Cached))),
            ("INSERT INTO usages (n, at) VALUES ($1, now())", 10, Some(("usages", Gain::Behind("insert")))),
            ("INSERT INTO usages SELECT * FROM other", 10, None),
            (
                "UPDATE items SET views = views + $1 WHERE id = $2",
                10,
                Some(("items", Gain::Behind("increment"))),
            ),
            ("UPDATE items SET name = $1 WHERE id = $2", 10, Some(("items", Gain::Behind("update")))),
            ("DELETE FROM items WHERE id = $1", 10, Some(("items", Gain::Behind("delete")))),
            ("SELECT relname FROM pg_class WHERE oid = $1", 10, None),
            ("SELECT $1", 10, None),
        ] {
            let counted = Counted { query: query.into(), calls: 10, total_ms: 1.0, rows };
            let expected = expected.map(|(table, gain)| (table.to_owned(), gain));
            assert_eq!(counted.gain(), expected, "{query}");
        }
    }
}
