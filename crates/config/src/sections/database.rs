//! `[database]`: the database.

use crate::syntax::fields::{Cursor, text};
use crate::syntax::keys::{Section, keys};
use crate::syntax::mistakes::Mistake;
use crate::syntax::tree::Node;
use crate::syntax::words::without_password;

/// The default database of a file.
pub(crate) const DATABASE_URL: &str = "sqlite:data/forebay.db";

pub(crate) const DATABASE: Section = Section {
    name: "[database]",
    keys: keys! {
        "url" | "URL" | "\"sqlite:data/forebay.db\"" |
            "the database: `sqlite:` and a path, relative to the current folder, or \
            `postgres://user:password@host/database`"
    },
};

/// `[database]`: the URL of the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Database {
    /// `sqlite:PATH`, relative to the current folder, or `postgres://…`, which may hold a password.
    pub url: String,
    /// The line of `url`; 0 when it does not come from the file.
    pub line: usize,
}

impl Database {
    /// The SQL dialect of the database.
    pub fn dialect(&self) -> Dialect {
        if self.url.starts_with("sqlite:") { Dialect::Sqlite } else { Dialect::Postgres }
    }

    /// The URL without secrets, for people.
    pub fn describe(&self) -> String {
        without_password(&self.url)
    }
}

/// The SQL dialect of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// The dialect of PostgreSQL.
    Postgres,
    /// The dialect of SQLite.
    Sqlite,
}

impl Dialect {
    /// Every dialect.
    pub(crate) const ALL: [Dialect; 2] = [Dialect::Postgres, Dialect::Sqlite];

    /// Its key in `sql = { … }`.
    pub fn key(self) -> &'static str {
        match self {
            Dialect::Postgres => "postgres",
            Dialect::Sqlite => "sqlite",
        }
    }
}

/// `[database]`
pub(crate) fn read(cursor: Option<Cursor<'_>>) -> Database {
    let mut database = Database { url: DATABASE_URL.into(), line: 0 };
    if let Some(cursor) = cursor {
        let fields = cursor.section(&DATABASE);
        fields.set("url", &mut database.url, url);
        database.line = fields.get("url").map_or(0, Cursor::line);
    }
    database
}

fn url(node: &Node) -> Result<String, Mistake> {
    let url = text(node)?;
    match url.split_once(':') {
        Some(("sqlite", path)) if !path.is_empty() => Ok(url),
        Some(("postgres" | "postgresql", rest)) if rest.starts_with("//") => Ok(url),
        // The message does not quote the value: it may contain a password.
        _ => Err("must be sqlite: and a path, such as \"sqlite:data/codes.db\", or postgres://user:password@host/database"
            .into()),
    }
}
