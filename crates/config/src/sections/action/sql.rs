//! `sql`: a statement on the database, and what its words reveal about it. The database reports at start
//! what the statement really does.

use crate::sections::database::Dialect;
use crate::syntax::fields::{Cursor, Fields, choice, text};
use crate::syntax::keys::{ActionKeys, action};
use crate::syntax::mistakes::Mistake;
use crate::syntax::tree::Data;

pub(crate) const SQL: ActionKeys = action! {
    "sql" | "text, or { postgres = …, sqlite = … }" |
        "runs a statement on the database; `$name` binds a parameter" => {
        "returns" | "\"one\", \"many\" or \"none\"" | "(one for what gives rows, else none)" |
            "which rows the answer contains; with \"one\", no row gives 404"
    }
};

/// Runs a statement on the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sql {
    /// The statements, by dialect.
    pub statements: Statements,
    /// Which rows are answered.
    pub returns: Returns,
}

/// Which rows of a statement are answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Returns {
    /// The first, as an object; without a row the answer is 404.
    One,
    /// All, as an array.
    Many,
    /// None: `{"changed":n}`, the number of rows written.
    None,
}

/// A statement, in one dialect or two. At least one exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Statements {
    /// For every database.
    Any(String),
    /// One for each dialect.
    Each {
        /// The statement for PostgreSQL, if there is one.
        postgres: Option<String>,
        /// The statement for SQLite, if there is one.
        sqlite: Option<String>,
    },
}

impl Statements {
    /// The statement for a database.
    pub fn in_dialect(&self, dialect: Dialect) -> Option<&str> {
        match (self, dialect) {
            (Statements::Any(sql), _) => Some(sql),
            (Statements::Each { postgres, .. }, Dialect::Postgres) => postgres.as_deref(),
            (Statements::Each { sqlite, .. }, Dialect::Sqlite) => sqlite.as_deref(),
        }
    }

    /// Returns an error when the configured database has no statement.
    pub(crate) fn check_dialect(&self, dialect: Dialect) -> Result<(), Mistake> {
        match self.in_dialect(dialect) {
            Some(_) => Ok(()),
            None => Err(Mistake::from(format!(
                "sql: there is no statement for {}, the database that [database] names",
                dialect.key()
            ))),
        }
    }

    /// The existing statements.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        Dialect::ALL.into_iter().filter_map(|dialect| self.in_dialect(dialect))
    }
}

/// Reads the action of an endpoint that has `sql`.
pub(crate) fn read(fields: Fields<'_>, own: Cursor<'_>) -> Option<Sql> {
    let statements = statements(own)?;
    let returns = choice(&[("one", Returns::One), ("many", Returns::Many), ("none", Returns::None)]);
    let implied = if statements.iter().any(gives_rows) { Returns::One } else { Returns::None };
    Some(Sql { returns: fields.read("returns", returns).unwrap_or(implied), statements })
}

/// Reads one statement for all databases, or one for each. `None`: the mistakes were recorded.
pub(crate) fn statements(cursor: Cursor<'_>) -> Option<Statements> {
    let statement = |cursor: Cursor<'_>, name_of: &str| {
        let sql = cursor.read(name_of, text)?;
        let sql = sql.trim();
        if sql.is_empty() {
            cursor.wrong(format!("{name_of}: the statement is empty"));
        }
        (!sql.is_empty()).then(|| sql.to_owned())
    };
    match &cursor.node.data {
        Data::Text(_) | Data::Broken => statement(cursor, "sql").map(Statements::Any),
        Data::Table(_) => {
            let fields = cursor.table("sql");
            let names = || Dialect::ALL.into_iter().map(Dialect::key);
            for field in fields.iter().filter(|field| names().all(|name| name != field.key)) {
                field.unknown("sql", names());
            }
            let [postgres, sqlite] = Dialect::ALL.map(|dialect| {
                fields
                    .get(dialect.key())
                    .and_then(|cursor| statement(cursor, &format!("sql.{}", dialect.key())))
            });
            Some(Statements::Each { postgres, sqlite })
        }
        _ => {
            cursor.wrong("sql: must be a text, or { postgres = \"…\", sqlite = \"…\" }");
            None
        }
    }
}

/// Whether a statement returns rows.
pub(crate) fn gives_rows(sql: &str) -> bool {
    let first = words(sql).next().unwrap_or_default();
    ["select", "values", "pragma", "explain"].iter().any(|word| first.eq_ignore_ascii_case(word))
        || words(sql).any(|word| word.eq_ignore_ascii_case("returning"))
        || first.eq_ignore_ascii_case("with") && !writes(sql)
}

/// Whether the first word of a statement shows that it writes.
pub(crate) fn begins_writing(sql: &str) -> bool {
    let first = words(sql).next().unwrap_or_default();
    ["insert", "update", "delete", "replace"].iter().any(|verb| first.eq_ignore_ascii_case(verb))
}

/// Whether a statement writes.
pub(crate) fn writes(sql: &str) -> bool {
    words(sql).any(|word| {
        ["insert", "update", "delete", "replace"].iter().any(|verb| word.eq_ignore_ascii_case(verb))
    })
}

/// Whether a statement has the parameter `$name`.
pub(crate) fn has_param(sql: &str, name: &str) -> bool {
    let begins = |next: char| next.is_ascii_alphanumeric() || next == '_';
    sql.split('$').skip(1).any(|rest| rest.strip_prefix(name).is_some_and(|rest| !rest.starts_with(begins)))
}

fn words(sql: &str) -> impl Iterator<Item = &str> {
    sql.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}
