//! SQL as text: converts `$name` parameters to PostgreSQL's `$1`, and classifies a statement without asking
//! the server.
//!
//! PostgreSQL determines what a statement does only while it runs it. So the text decides, on the safe side,
//! which way a statement takes, and the server's refusal corrects that: a statement that looks like a read
//! runs where writes are refused, and is run again as a write when it is refused there. Only an INSERT of
//! literal rows is assumed to be able to share a transaction.

use crate::{Error, Kind};

/// The class of a statement, by its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Looks {
    Read,
    /// An INSERT of given values that touches no existing row.
    PlainInsert,
    /// Anything else.
    Write,
}

/// A statement's text, parsed as far as needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Parsed {
    /// With `$1`, `$2`, ….
    pub(super) sql: String,
    /// The names of the parameters, in that order.
    pub(super) params: Vec<String>,
    pub(super) looks: Looks,
    /// Whether the number of rows in its result counts as changed rows.
    pub(super) counts: bool,
    /// Its first word, in upper case.
    pub(super) verb: String,
}

/// Statements that would end a shared transaction, change a connection's settings, or take the connection
/// over.
const REFUSED: &[&str] = &[
    "BEGIN",
    "START",
    "COMMIT",
    "END",
    "ABORT",
    "ROLLBACK",
    "SAVEPOINT",
    "RELEASE",
    "PREPARE",
    "EXECUTE",
    "DEALLOCATE",
    "SET",
    "RESET",
    "DISCARD",
    "COPY",
    "DECLARE",
    "FETCH",
    "MOVE",
    "CLOSE",
    "LISTEN",
    "UNLISTEN",
    "LOCK",
    "LOAD",
    "VACUUM",
];

/// Parses a statement.
pub(super) fn parse(sql: &str) -> Result<Parsed, Error> {
    let mut out = String::with_capacity(sql.len());
    let mut params: Vec<String> = Vec::new();
    let mut words: Vec<String> = Vec::new();
    let mut rest = sql;
    while let Some(c) = rest.chars().next() {
        let token = match c {
            '\'' => {
                &rest[..quoted_end(
                    rest,
                    '\'',
                    words.last().is_some_and(|word| word == "E") && out.ends_with(['e', 'E']),
                )]
            }
            '"' => &rest[..quoted_end(rest, '"', false)],
            '-' if rest.starts_with("--") => &rest[..rest.find('\n').unwrap_or(rest.len())],
            '/' if rest.starts_with("/*") => &rest[..comment_end(rest)],
            '$' => {
                if let Some(end) = dollar_quote_end(rest) {
                    &rest[..end]
                } else {
                    let name = name_of(&rest[1..]);
                    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
                        let message = format!("the parameter ${name} must be written $name");
                        return Err(Error::new(Kind::Syntax, message));
                    }
                    let index = params.iter().position(|known| known == name).unwrap_or_else(|| {
                        params.push(name.to_owned());
                        params.len() - 1
                    });
                    out.push_str(&format!("${}", index + 1));
                    rest = &rest[1 + name.len()..];
                    continue;
                }
            }
            c if c == '_' || c.is_alphabetic() => {
                // A `$` inside a word belongs to it.
                let end =
                    rest.find(|c: char| c != '_' && c != '$' && !c.is_alphanumeric()).unwrap_or(rest.len());
                words.push(rest[..end].to_ascii_uppercase());
                &rest[..end]
            }
            c if c.is_ascii_digit() => {
                let end = rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(rest.len());
                &rest[..end]
            }
            c => &rest[..c.len_utf8()],
        };
        out.push_str(token);
        rest = &rest[token.len()..];
    }
    let Some(first) = words.first() else {
        return Err(Error::new(Kind::Syntax, "the SQL is empty"));
    };
    if REFUSED.contains(&first.as_str()) {
        let message = format!("{first} cannot be used here: connections and transactions are shared");
        return Err(Error::new(Kind::Syntax, message));
    }
    if out.contains('\0') {
        return Err(Error::new(Kind::Syntax, "the SQL holds a NUL character"));
    }
    let looks = looks(&words);
    let verb = first.clone();
    let counts = matches!(verb.as_str(), "INSERT" | "UPDATE" | "DELETE" | "MERGE" | "WITH");
    Ok(Parsed { sql: out, params, looks, counts: counts && looks != Looks::Read, verb })
}

fn looks(words: &[String]) -> Looks {
    let has = |any: &[&str]| words.iter().any(|word| any.contains(&word.as_str()));
    match words[0].as_str() {
        "SELECT" | "VALUES" | "TABLE" | "SHOW" | "WITH"
            if !has(&["INSERT", "UPDATE", "DELETE", "MERGE", "INTO"]) =>
        {
            Looks::Read
        }
        // DO UPDATE waits for rows that others have locked, SELECT may be slow: such a statement runs alone.
        "INSERT" if has(&["VALUES"]) && !has(&["SELECT", "WITH", "UPDATE", "TABLE"]) => Looks::PlainInsert,
        _ => Looks::Write,
    }
}

/// The end of a quoted text that begins here; doubled quotes are part of it, and backslashes escape in an
/// `E''` text.
fn quoted_end(text: &str, quote: char, escapes: bool) -> usize {
    let mut chars = text.char_indices().skip(1).peekable();
    while let Some((at, c)) = chars.next() {
        if escapes && c == '\\' {
            chars.next();
        } else if c == quote {
            match chars.peek() {
                Some((_, next)) if *next == quote => {
                    chars.next();
                }
                _ => return at + 1,
            }
        }
    }
    text.len()
}

/// The end of a comment that begins here; comments nest.
fn comment_end(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    let bytes = text.as_bytes();
    while at < bytes.len() {
        match bytes[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

/// The end of a text quoted by `$$` or `$tag$` that begins here; `None` when none begins here.
fn dollar_quote_end(text: &str) -> Option<usize> {
    let tag = name_of(&text[1..]);
    if tag.starts_with(|c: char| c.is_ascii_digit()) || !text[1 + tag.len()..].starts_with('$') {
        return None;
    }
    let mark = &text[..tag.len() + 2];
    Some(text[mark.len()..].find(mark).map_or(text.len(), |at| at + 2 * mark.len()))
}

fn name_of(text: &str) -> &str {
    &text[..text.find(|c: char| c != '_' && !c.is_alphanumeric()).unwrap_or(text.len())]
}

/// A name as an SQL identifier, whatever characters it has.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A text as an SQL literal.
pub(super) fn literal(text: &str) -> String {
    let quoted = format!("'{}'", text.replace('\'', "''"));
    if text.contains('\\') { format!("E{}", quoted.replace('\\', "\\\\")) } else { quoted }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_and_what_statements_look_like() {
        for (sql, expected, params, looks) in [
            ("SELECT $b, $a, $b", "SELECT $1, $2, $1", &["b", "a"][..], Looks::Read),
            (
                "SELECT '$a', \"$a\", a$b -- $a\n, $a::text",
                "SELECT '$a', \"$a\", a$b -- $a\n, $1::text",
                &["a"],
                Looks::Read,
            ),
            ("SELECT /* $a /* */ $b */ $c", "SELECT /* $a /* */ $b */ $1", &["c"], Looks::Read),
            ("SELECT $$ $a $$, $t$ $a $$ $t$, $z", "SELECT $$ $a $$, $t$ $a $$ $t$, $1", &["z"], Looks::Read),
            ("SELECT E'\\'$a', 'it''s $a', $b", "SELECT E'\\'$a', 'it''s $a', $1", &["b"], Looks::Read),
            ("SELECT 'a\\', $b", "SELECT 'a\\', $1", &["b"], Looks::Read),
            (
                "insert into t (a) values ($a) returning id",
                "insert into t (a) values ($1) returning id",
                &["a"],
                Looks::PlainInsert,
            ),
            (
                "INSERT INTO t VALUES ($a) ON CONFLICT DO NOTHING",
                "INSERT INTO t VALUES ($1) ON CONFLICT DO NOTHING",
                &["a"],
                Looks::PlainInsert,
            ),
            (
                "INSERT INTO t VALUES (1) ON CONFLICT (a) DO UPDATE SET b = 1",
                "INSERT INTO t VALUES (1) ON CONFLICT (a) DO UPDATE SET b = 1",
                &[],
                Looks::Write,
            ),
            ("INSERT INTO t VALUES ((SELECT 1))", "INSERT INTO t VALUES ((SELECT 1))", &[], Looks::Write),
            (
                "WITH x AS (DELETE FROM t RETURNING a) SELECT a FROM x",
                "WITH x AS (DELETE FROM t RETURNING a) SELECT a FROM x",
                &[],
                Looks::Write,
            ),
            (
                "WITH x AS (SELECT 1) SELECT * FROM x",
                "WITH x AS (SELECT 1) SELECT * FROM x",
                &[],
                Looks::Read,
            ),
            ("CREATE TABLE x (a int)", "CREATE TABLE x (a int)", &[], Looks::Write),
        ] {
            let parsed = parse(sql).unwrap();
            assert_eq!((parsed.sql.as_str(), parsed.looks), (expected, looks), "{sql}");
            assert_eq!(parsed.params, params, "{sql}");
        }
        for sql in ["", "-- only", "SELECT $1", "SELECT $", " /* x */ commit", "SET a = 1", "/* never closed"]
        {
            assert_eq!(parse(sql).unwrap_err().kind(), &Kind::Syntax, "{sql}");
        }
    }

    #[test]
    fn literals() {
        assert_eq!(literal("it's"), "'it''s'");
        assert_eq!(literal("a\\b'"), "E'a\\\\b'''");
    }
}
