//! A random shape of the tables: SQL that creates them, the config of the server, and values for their
//! columns, good and bad.
//!
//! `things` has a key of one kind, always `note` (the token of the last write), `views` and `stock`
//! (counters), and some of the columns of [`POOL`]. `parents` is a second hot table that a column may refer
//! to. A value is *bad* when the database refuses it whatever other rows contain; a column is *relational*
//! when other rows decide.

use crate::model::Fields;
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use serde_json::{Value, json};
use std::fmt::Write;

/// The kind of key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    Serial,
    Uuid,
    Text,
}

/// The type of a column, and the database's rule for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `varchar(8)`.
    Label,
    /// `smallint` with a CHECK that memory checks, unless a trigger runs before it.
    Smallint,
    /// `integer` with a CHECK that only the database checks.
    Positive,
    /// `numeric(6,2)` with a CHECK that only the database checks.
    Price,
    /// An enum type.
    Status,
    /// `boolean`.
    Flag,
    /// `text` UNIQUE, of few values.
    Code,
    /// One of two integers that are UNIQUE together, of few values.
    Pair,
    /// A reference to `parents`.
    Parent,
    /// `jsonb`, which normalises a value.
    Document,
}

/// A column besides those that always exist.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    pub name: &'static str,
    pub kind: Kind,
    pub is_nullable: bool,
}

/// The tables of one round.
#[derive(Debug, Clone)]
pub struct Shape {
    pub is_postgres: bool,
    pub key: Key,
    pub columns: Vec<Column>,
    /// The SQLSTATE that a trigger raises for a note that ends with `!`.
    pub raises: Option<&'static str>,
    /// A trigger writes `label` in upper case.
    pub changes: bool,
    /// Others write to the tables.
    pub is_shared: bool,
    /// Whether memory follows the changes of others.
    pub follows: bool,
    /// The method of following, as in the URL: logical decoding, triggers, or whichever is
    /// available.
    pub follow: &'static str,
    /// Counts by `views` are cached, and dropped by the tags of rows as they were and as they are.
    pub is_tagged: bool,
}

const FOLLOW: [&str; 5] = ["&follow=logical", "&follow=logical", "&follow=triggers", "&follow=triggers", ""];

const POOL: [(&str, Kind); 10] = [
    ("label", Kind::Label),
    ("small", Kind::Smallint),
    ("quantity", Kind::Positive),
    ("price", Kind::Price),
    ("status", Kind::Status),
    ("flag", Kind::Flag),
    ("code", Kind::Code),
    ("pair", Kind::Pair),
    ("parent", Kind::Parent),
    ("doc", Kind::Document),
];

/// PL/pgSQL's default, an application's, and two that suggest another kind of error.
const SQLSTATES: [&str; 4] = ["P0001", "SH001", "P0002", "42501"];

/// The kinds that SQLite, or a hot table on it, supports.
const OF_SQLITE: [Kind; 3] = [Kind::Positive, Kind::Code, Kind::Label];

/// Number of parents that exist from the start and stay.
pub const PARENTS: usize = 4;
/// Number of things that exist from the start, stay, and are incremented by all clients.
pub const PINNED: usize = 3;
/// Values of `views` for which clients read the number of rows.
pub const VIEWS: i64 = 20;
const CODES: u32 = 40;
const PAIRS: u32 = 60;

impl Kind {
    fn declaration(self, is_postgres: bool) -> &'static str {
        match (self, is_postgres) {
            (Kind::Label, true) => "varchar(8)",
            (Kind::Label, false) => "text CHECK (length(label) <= 8)",
            (Kind::Smallint, _) => "smallint CHECK (small >= -32000)",
            (Kind::Positive, _) => "integer CHECK (quantity * 1 > 0)",
            (Kind::Price, _) => "numeric(6,2) CHECK (price * 1 >= 0)",
            (Kind::Status, _) => "status",
            (Kind::Flag, _) => "boolean",
            (Kind::Code, _) => "text UNIQUE",
            (Kind::Pair, _) => "integer",
            (Kind::Parent, _) => "text REFERENCES parents (id)",
            (Kind::Document, _) => "jsonb",
        }
    }

    /// Whether other rows decide if a value is accepted, in a way that memory cannot check.
    fn is_relational(self) -> bool {
        matches!(self, Kind::Pair | Kind::Parent)
    }

    fn good(self, random: &mut StdRng) -> Value {
        match self {
            Kind::Label => json!(format!("l{}", random.random_range(0..1000))),
            Kind::Smallint => json!(random.random_range(-32_000..=32_767)),
            Kind::Positive => json!(random.random_range(1..1000)),
            Kind::Price => json!(f64::from(random.random_range(0..100_000u32)) / 100.0),
            Kind::Status => json!(["pending", "paid", "shipped"][random.random_range(0..3)]),
            Kind::Flag => json!(random.random_bool(0.5)),
            Kind::Code => json!(format!("code{}", random.random_range(0..CODES))),
            Kind::Pair => json!(random.random_range(0..PAIRS)),
            // Rarely a parent that does not always exist.
            Kind::Parent => json!(format!(
                "p{}",
                random.random_range(0..PARENTS) + 2 * usize::from(random.random_bool(0.1))
            )),
            Kind::Document => json!({"b": random.random_range(0..9), "a": [1, null]}),
        }
    }

    fn bad(self, random: &mut StdRng) -> Option<Value> {
        match self {
            Kind::Label => Some(json!("longer than eight")),
            Kind::Smallint => {
                Some(json!([-32_500, random.random_range(32_768..100_000)][random.random_range(0..2)]))
            }
            Kind::Positive => Some(json!(-random.random_range(0..9))),
            Kind::Price => Some([json!(-1), json!(123_456.5)][random.random_range(0..2)].clone()),
            Kind::Status => Some(json!("lost")),
            _ => None,
        }
    }
}

/// A row's values as a client sends them.
pub struct Drawn {
    pub fields: Fields,
    /// Whether the database refuses the values.
    pub is_bad: bool,
    /// Other rows decide whether the database takes it.
    pub is_relational: bool,
}

impl Shape {
    pub fn draw(random: &mut StdRng) -> Shape {
        let is_postgres = random.random_bool(0.85);
        let is_shared = is_postgres && random.random_bool(0.5);
        let mut columns = Vec::new();
        for (name, kind) in POOL {
            if !random.random_bool(0.5) || (!is_postgres && !OF_SQLITE.contains(&kind)) {
                continue;
            }
            let is_nullable = matches!(kind, Kind::Code | Kind::Parent) || random.random_bool(0.7);
            if kind == Kind::Pair {
                columns.push(Column { name: "one", kind, is_nullable });
                columns.push(Column { name: "two", kind, is_nullable });
            } else {
                columns.push(Column { name, kind, is_nullable });
            }
        }
        let raises = (is_postgres && random.random_bool(0.4)).then(|| *one_of(random, &SQLSTATES));
        let has_label = columns.iter().any(|column| column.kind == Kind::Label);
        let key = match random.random_range(0..if is_postgres { 3 } else { 2 }) {
            0 => Key::Serial,
            1 => Key::Text,
            _ => Key::Uuid,
        };
        let changes = is_postgres && has_label && random.random_bool(0.3);
        let follows = !is_shared || random.random_bool(0.6);
        let mut follow = *one_of(random, &FOLLOW);
        if let Ok(way) = std::env::var("FOREBAY_TEST_FOLLOW") {
            follow = FOLLOW.into_iter().find(|of| of.ends_with(&way)).unwrap_or_default();
        }
        let is_tagged = follows && random.random_bool(0.6);
        Shape { is_postgres, key, columns, raises, changes, is_shared, follows, follow, is_tagged }
    }

    /// Values for all columns (`whole`) or for some.
    pub fn values(&self, random: &mut StdRng, token: &str, whole: bool, may_be_bad: bool) -> Drawn {
        let mut drawn = Drawn { fields: Fields::new(), is_bad: false, is_relational: false };
        let mut token = token.to_owned();
        if may_be_bad && self.raises.is_some() && random.random_bool(0.05) {
            token.push('!');
            drawn.is_bad = true;
        }
        drawn.fields.insert("note".into(), json!(token));
        for column in &self.columns {
            if !whole && random.random_bool(0.6) {
                continue;
            }
            let mut value = if column.is_nullable
                && (column.kind == Kind::Code || random.random_bool(0.3))
                && random.random_bool(0.5)
            {
                Value::Null
            } else {
                column.kind.good(random)
            };
            if may_be_bad
                && random.random_bool(0.03)
                && let Some(bad) = column.kind.bad(random)
            {
                value = bad;
                drawn.is_bad = true;
            }
            drawn.is_relational |= column.kind.is_relational() && !value.is_null();
            drawn.is_relational |=
                column.kind == Kind::Code && self.codes_may_be_refused() && !value.is_null();
            drawn.fields.insert(column.name.into(), value);
        }
        drawn
    }

    /// Memory knows which row has a code, but not that others took it, or that the change that freed
    /// it was refused.
    fn codes_may_be_refused(&self) -> bool {
        let has_bad = |column: &Column| column.kind.bad(&mut StdRng::seed_from_u64(0)).is_some();
        self.is_shared || self.raises.is_some() || self.columns.iter().any(has_bad)
    }

    /// Whether rows can conflict in ways that only the database can check.
    pub fn is_relational(&self) -> bool {
        let is = |column: &Column| {
            column.kind.is_relational() || column.kind == Kind::Code && self.codes_may_be_refused()
        };
        self.columns.iter().any(is)
    }

    /// A key that a client chooses; `None` for a serial key, which is generated.
    pub fn new_key(&self, random: &mut StdRng, name: &str) -> Option<Value> {
        match self.key {
            Key::Serial => None,
            Key::Uuid => Some(json!(uuid::Uuid::from_u128(random.random()).hyphenated().to_string())),
            Key::Text => Some(json!(name)),
        }
    }

    /// The keys of the things that exist from the start.
    pub fn pinned(&self) -> Vec<String> {
        (1..=PINNED)
            .map(|number| match self.key {
                Key::Serial => number.to_string(),
                Key::Uuid => format!("00000000-0000-4000-8000-00000000000{number}"),
                Key::Text => format!("pinned{number}"),
            })
            .collect()
    }

    fn tables(&self) -> String {
        let key = match (self.key, self.is_postgres) {
            (Key::Serial, true) => "bigserial PRIMARY KEY",
            (Key::Serial, false) => "INTEGER PRIMARY KEY AUTOINCREMENT",
            (Key::Uuid, _) => "uuid PRIMARY KEY",
            (Key::Text, _) => "text PRIMARY KEY NOT NULL",
        };
        let mut sql = String::new();
        if self.is_postgres {
            sql += "CREATE TYPE status AS ENUM ('pending', 'paid', 'shipped');\n";
        }
        sql += "CREATE TABLE parents (id text PRIMARY KEY NOT NULL, note text);\n";
        let _ = write!(
            sql,
            "CREATE TABLE things (id {key}, note text, views bigint NOT NULL DEFAULT 0, stock integer NOT NULL DEFAULT 0"
        );
        for column in &self.columns {
            let not_null = if column.is_nullable { "" } else { " NOT NULL" };
            let _ = write!(sql, ", {} {}{not_null}", column.name, column.kind.declaration(self.is_postgres));
        }
        if self.columns.iter().any(|column| column.kind == Kind::Pair) {
            sql += ", UNIQUE (one, two)";
        }
        sql += ");\n";
        if self.is_tagged && self.is_postgres {
            // So that logical decoding reports the previous values.
            sql += "ALTER TABLE things REPLICA IDENTITY FULL;\n";
        }
        sql
    }

    fn triggers(&self) -> String {
        let mut sql = String::new();
        if let Some(code) = self.raises {
            let _ = write!(
                sql,
                "CREATE FUNCTION judge() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.note LIKE '%!' THEN \
                 RAISE EXCEPTION 'not this one' USING ERRCODE = '{code}'; END IF; RETURN NEW; END $$;\n\
                 CREATE TRIGGER judge BEFORE INSERT OR UPDATE ON things FOR EACH ROW EXECUTE FUNCTION judge();\n"
            );
        }
        if self.changes {
            sql += "CREATE FUNCTION louder() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.label := upper(NEW.label); RETURN NEW; END $$;\n\
                    CREATE TRIGGER louder BEFORE INSERT OR UPDATE ON things FOR EACH ROW EXECUTE FUNCTION louder();\n";
        }
        sql
    }

    /// The tables with their initial rows.
    pub fn sql(&self, random: &mut StdRng) -> String {
        let mut sql = self.tables() + &self.triggers();
        for parent in 0..PARENTS {
            let _ = writeln!(sql, "INSERT INTO parents VALUES ('p{parent}', 'start');");
        }
        for (number, key) in self.pinned().into_iter().enumerate() {
            let row = self.values(random, "start", true, false).fields;
            // No value that another row could want.
            let values =
                row.iter().filter(|(name, _)| !["code", "one", "two", "parent"].contains(&name.as_str()));
            let (mut names, mut texts) = ("id".to_owned(), literal(&json!(key)));
            for (name, value) in values {
                names += &format!(", {name}");
                texts += &format!(", {}", literal(value));
            }
            for column in self.columns.iter().filter(|column| column.kind == Kind::Pair) {
                // Outside the range of drawn values.
                let (value, name) = (1000 + number, column.name);
                names += &format!(", {name}");
                texts += &format!(", {value}");
            }
            let _ = writeln!(sql, "INSERT INTO things ({names}) VALUES ({texts});");
        }
        if self.key == Key::Serial && self.is_postgres {
            let _ = writeln!(sql, "SELECT setval('things_id_seq', {PINNED});");
        }
        sql
    }

    /// The same tables, empty, to replay the acknowledged steps: in PostgreSQL in a separate schema.
    pub fn scratch_sql(&self) -> String {
        let own = if self.is_postgres { "CREATE SCHEMA scratch; SET search_path = scratch; " } else { "" };
        format!("{own}{}{}", self.tables(), self.triggers())
    }

    /// The config for these tables.
    pub fn config(&self) -> String {
        let mut all: Vec<&str> = vec!["note"];
        all.extend(self.columns.iter().map(|column| column.name));
        let list =
            |form: fn(&str) -> String| all.iter().map(|name| form(name)).collect::<Vec<_>>().join(", ");
        let values = list(|name| format!("{name} = \"${name}\""));
        let optional = list(|name| format!("{name} = \"?\""));
        let id = if self.key == Key::Serial { "" } else { "id = \"$id\", " };
        let follow = if self.follows { "" } else { "follow = false" };
        let tags = if self.is_tagged { "invalidates = [\"views:{$views}\"]" } else { "" };
        let mut config = format!(
            "[table.things]\n{follow}\n{tags}\n[table.parents]\n{follow}\n\
             [[endpoint]]\nroute = \"POST /things\"\ninsert = \"things\"\nvalues = {{ {id}views = \"$views\", {values} }}\n\
             [[endpoint]]\nroute = \"PATCH /things/{{id}}\"\nupdate = \"things\"\nparams = {{ {optional} }}\nvalues = {{ {values} }}\n\
             [[endpoint]]\nroute = \"POST /things/{{id}}/views\"\nincrement = \"things\"\ncolumn = \"views\"\nby = \"$by\"\n\
             [[endpoint]]\nroute = \"DELETE /things/{{id}}\"\ndelete = \"things\"\n\
             [[endpoint]]\nroute = \"GET /things/{{id}}\"\nget = \"things\"\n\
             [[endpoint]]\nroute = \"POST /parents\"\ninsert = \"parents\"\nvalues = {{ id = \"$id\", note = \"$note\" }}\n\
             [[endpoint]]\nroute = \"DELETE /parents/{{id}}\"\ndelete = \"parents\"\n\
             [[endpoint]]\nroute = \"GET /parents/{{id}}\"\nget = \"parents\"\n"
        );
        if self.key != Key::Serial {
            let _ = write!(
                config,
                "[[endpoint]]\nroute = \"PUT /things/{{id}}\"\nupsert = \"things\"\nvalues = {{ views = \"$views\", {values} }}\n"
            );
        }
        if self.is_shared {
            config += "[[endpoint]]\nroute = \"POST /sql/things/{id}/stock\"\nsql = \"UPDATE things SET stock = stock + 1 WHERE id = $id\"\n";
        }
        if self.is_tagged {
            config += "[[endpoint]]\nroute = \"GET /with/{n}\"\nsql = \"SELECT count(*) AS count FROM things WHERE views = $n\"\n\
                       cache = { local = \"1h\", tags = [\"views:{$n}\"] }\n";
        }
        with_strict(&config)
    }
}

/// A value as SQL.
pub fn literal(value: &Value) -> String {
    match value {
        Value::Null => "NULL".into(),
        Value::String(text) => format!("'{}'", text.replace('\'', "''")),
        Value::Number(_) | Value::Bool(_) => value.to_string(),
        other => format!("'{other}'"),
    }
}

/// One of these.
pub fn one_of<'a, T>(random: &mut impl Rng, all: &'a [T]) -> &'a T {
    &all[random.random_range(0..all.len())]
}

/// The config with each write of a thing a second time, answered when it is committed. The timeout is short,
/// so that a write without an answer soon counts as of unknown outcome.
fn with_strict(config: &str) -> String {
    let mut all = config.replace("[[endpoint]]\n", "[[endpoint]]\ntimeout = \"2s\"\n");
    let writes = |block: &&str| {
        block.contains("/things") && ["\nget = ", "\nsql = "].iter().all(|other| !block.contains(other))
    };
    for block in config.split("[[endpoint]]\n").skip(1).filter(writes) {
        let block = block.replacen("/things", "/strict/things", 1);
        let _ = write!(all, "[[endpoint]]\ntimeout = \"1s\"\ndurability = \"database\"\n{block}");
    }
    all
}
