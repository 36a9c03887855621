//! The shape of a table: the statements that define it and everything on it, as one short text. A table whose
//! shape differs is looked at again, and read again.
//!
//! ```text
//! shape := told ' ' means ' ' rules
//! told  := hash of following's triggers           another: reports may be missing
//! means := hash of the table and others' triggers
//! rules := hash of the indexes                    another: only the rules are read again
//! ```

use crate::Error;
use crate::fingerprint::fnv;
use crate::sqlite::errors::map;
use rusqlite::Connection;

/// The tables that the triggers write to and read.
pub(super) const TABLES: [&str; 2] = ["forebay_change", "forebay_follower"];

/// The prefixes of the triggers' names; the table's name follows. Earlier versions made the last two.
pub(super) const PREFIXES: [&str; 5] =
    ["forebay_insert_", "forebay_update_", "forebay_delete_", "forebay_replace_", "forebay_displace_"];

/// Whether a trigger with this name is one of following.
pub(super) fn is_own(name: &str) -> bool {
    PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// The shape of one table; the hashes are those of nothing when it does not exist.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Shape {
    told: u64,
    means: u64,
    rules: u64,
}

impl Shape {
    /// The shape in the connection's present transaction.
    pub(super) fn of(connection: &Connection, table: &str) -> Result<Shape, Error> {
        let sql = "SELECT type, name, coalesce(sql, '') FROM sqlite_schema WHERE tbl_name = ?1 COLLATE NOCASE ORDER BY type, name";
        let mut statement = connection.prepare_cached(sql).map_err(map)?;
        let mut found = statement.query([table]).map_err(map)?;
        let (mut told, mut means, mut rules) = (String::new(), String::new(), String::new());
        while let Some(row) = found.next().map_err(map)? {
            let text = |index| row.get::<_, String>(index).map_err(map);
            let (kind, name, sql) = (text(0)?, text(1)?, text(2)?);
            let hashed = match kind.as_str() {
                "trigger" if is_own(&name) => &mut told,
                "index" => &mut rules,
                _ => &mut means,
            };
            *hashed += &format!("{kind}\0{name}\0{sql}\0");
        }
        Ok(Shape { told: fnv(&told), means: fnv(&means), rules: fnv(&rules) })
    }

    pub(super) fn parse(text: &str) -> Option<Shape> {
        let mut words = text.split(' ').map(|word| u64::from_str_radix(word, 16).ok());
        let mut word = || words.next().flatten();
        Some(Shape { told: word()?, means: word()?, rules: word()? })
    }

    /// Whether what is reported and stored has the same meaning.
    pub(super) fn means_the_same(&self, other: &Shape) -> bool {
        (self.told, self.means) == (other.told, other.means)
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:x} {:x} {:x}", self.told, self.means, self.rules)
    }
}
