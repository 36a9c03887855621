//! The tables of a history, and random writes to them: each as a request to the server, and as the
//! statement that means the same.

use crate::site::Way;
use rand::RngExt;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// What a column takes.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// The key of a parent, which may not exist.
    Parent,
    /// The key of a parent that stays, or of one that never is: whether a deferred key holds depends on
    /// what else is in its transaction, which the shadow does not know.
    Apart,
    /// The code of a parent.
    Code,
    /// A whole number, which `increment` may change.
    Count,
    /// A whole number of few values.
    Few,
    /// A text.
    Note,
    /// The key of a row of `stock` or `victim`.
    Other,
}

pub struct Table {
    pub name: &'static str,
    pub columns: &'static [(&'static str, Kind)],
    /// Whether whole rows are written: not where a trigger sees an insert and an update as different.
    has_put: bool,
    /// The column that only triggers write, or "*": the table is theirs. Rows of a table that is not
    /// followed show it when they are read again.
    of_triggers: &'static str,
}

const fn table(name: &'static str, columns: &'static [(&'static str, Kind)], has_put: bool) -> Table {
    Table { name, columns, has_put, of_triggers: "" }
}

const fn written(table: Table, of_triggers: &'static str) -> Table {
    Table { of_triggers, ..table }
}

const CHILD: &[(&str, Kind)] = &[("parent_id", Kind::Parent), ("qty", Kind::Count), ("note", Kind::Note)];

/// All tables; clients write to all but the last.
pub const TABLES: [Table; 17] = [
    table("parent", &[("code", Kind::Code), ("n", Kind::Count), ("note", Kind::Note)], true),
    table("c_cascade", CHILD, true),
    table("c_null", CHILD, true),
    table("c_default", CHILD, true),
    table("c_restrict", CHILD, true),
    table("c_deferred", &[("parent_id", Kind::Apart), ("qty", Kind::Count)], true),
    table("c_code", &[("code", Kind::Code), ("qty", Kind::Count)], true),
    written(table("stock", &[("qty", Kind::Count), ("note", Kind::Note)], true), "*"),
    table("sale", &[("stock_id", Kind::Other), ("qty", Kind::Few)], false),
    written(table("stamped", &[("name", Kind::Note), ("slug", Kind::Note)], false), "slug"),
    table("skipping", &[("n", Kind::Few)], false),
    table("raising", &[("n", Kind::Few)], false),
    table("killer", &[("victim", Kind::Other)], false),
    written(table("victim", &[("note", Kind::Note), ("n", Kind::Count)], true), "*"),
    table("pair", &[("a", Kind::Few), ("b", Kind::Few)], true),
    table("bounded", &[("low", Kind::Few), ("high", Kind::Few)], true),
    written(table("added", &[("n", Kind::Few)], false), "*"),
];

/// The tables of both databases; `{bigint}` is the type of a key.
const COMMON: &str = "
CREATE TABLE parent (id {bigint} PRIMARY KEY, code text NOT NULL UNIQUE, n bigint NOT NULL, note text);
INSERT INTO parent VALUES (0, 'c0', 0, 'stays');
CREATE TABLE c_cascade (id {bigint} PRIMARY KEY, parent_id bigint REFERENCES parent ON DELETE CASCADE ON UPDATE CASCADE, qty bigint NOT NULL, note text);
CREATE TABLE c_null (id {bigint} PRIMARY KEY, parent_id bigint REFERENCES parent ON DELETE SET NULL, qty bigint NOT NULL, note text);
CREATE TABLE c_default (id {bigint} PRIMARY KEY, parent_id bigint DEFAULT 0 REFERENCES parent ON DELETE SET DEFAULT, qty bigint NOT NULL, note text);
CREATE TABLE c_restrict (id {bigint} PRIMARY KEY, parent_id bigint REFERENCES parent ON DELETE RESTRICT, qty bigint NOT NULL, note text);
CREATE TABLE c_deferred (id {bigint} PRIMARY KEY, parent_id bigint REFERENCES parent DEFERRABLE INITIALLY DEFERRED, qty bigint NOT NULL);
CREATE TABLE c_code (id {bigint} PRIMARY KEY, code text REFERENCES parent (code) ON DELETE CASCADE ON UPDATE CASCADE, qty bigint NOT NULL);
CREATE TABLE stock (id {bigint} PRIMARY KEY, qty bigint NOT NULL, note text);
CREATE TABLE sale (id {bigint} PRIMARY KEY, stock_id bigint, qty integer NOT NULL);
CREATE TABLE stamped (id {bigint} PRIMARY KEY, name text, slug text);
CREATE TABLE skipping (id {bigint} PRIMARY KEY, n integer NOT NULL);
CREATE TABLE raising (id {bigint} PRIMARY KEY, n integer NOT NULL);
CREATE TABLE killer (id {bigint} PRIMARY KEY, victim bigint);
CREATE TABLE victim (id {bigint} PRIMARY KEY, note text, n bigint NOT NULL);
CREATE TABLE pair (id {bigint} PRIMARY KEY, a integer, b integer, UNIQUE (a, b));
CREATE TABLE bounded (id {bigint} PRIMARY KEY, low integer NOT NULL, high integer NOT NULL, CHECK (low <= high));
CREATE TABLE added (id {bigint} PRIMARY KEY, n integer NOT NULL);
";

const TRIGGERS_OF_POSTGRES: &str = "
CREATE FUNCTION sold() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF TG_OP <> 'INSERT' THEN UPDATE stock SET qty = qty + OLD.qty WHERE id = OLD.stock_id; END IF;
  IF TG_OP <> 'DELETE' THEN UPDATE stock SET qty = qty - NEW.qty WHERE id = NEW.stock_id; END IF;
  RETURN NULL; END $$;
CREATE TRIGGER sold AFTER INSERT OR UPDATE OR DELETE ON sale FOR EACH ROW EXECUTE FUNCTION sold();
CREATE FUNCTION stamps() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.slug = upper(NEW.name); RETURN NEW; END $$;
CREATE TRIGGER stamps BEFORE INSERT OR UPDATE ON stamped FOR EACH ROW EXECUTE FUNCTION stamps();
CREATE FUNCTION skips() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF TG_OP = 'DELETE' THEN IF OLD.n = 3 THEN RETURN NULL; END IF; RETURN OLD; END IF;
  IF NEW.n = 5 THEN RETURN NULL; END IF; RETURN NEW; END $$;
CREATE TRIGGER skips BEFORE INSERT OR UPDATE OR DELETE ON skipping FOR EACH ROW EXECUTE FUNCTION skips();
CREATE FUNCTION raises() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF NEW.n = 5 THEN RAISE EXCEPTION 'not five'; END IF; RETURN NEW; END $$;
CREATE TRIGGER raises BEFORE INSERT OR UPDATE ON raising FOR EACH ROW EXECUTE FUNCTION raises();
CREATE FUNCTION kills() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN DELETE FROM victim WHERE id = NEW.victim; RETURN NULL; END $$;
CREATE TRIGGER kills AFTER INSERT OR UPDATE ON killer FOR EACH ROW EXECUTE FUNCTION kills();
CREATE FUNCTION adds() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO added VALUES (NEW.id, 1) ON CONFLICT (id) DO UPDATE SET n = added.n + 1; RETURN NULL; END $$;
CREATE TRIGGER adds AFTER INSERT ON raising FOR EACH ROW EXECUTE FUNCTION adds();
CREATE FUNCTION orders() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.high = greatest(NEW.low, NEW.high); RETURN NEW; END $$;
";

const TRIGGERS_OF_SQLITE: &str = "
CREATE TRIGGER sold AFTER INSERT ON sale BEGIN UPDATE stock SET qty = qty - NEW.qty WHERE id = NEW.stock_id; END;
CREATE TRIGGER returned AFTER DELETE ON sale BEGIN UPDATE stock SET qty = qty + OLD.qty WHERE id = OLD.stock_id; END;
CREATE TRIGGER resold AFTER UPDATE ON sale BEGIN
  UPDATE stock SET qty = qty + OLD.qty WHERE id = OLD.stock_id; UPDATE stock SET qty = qty - NEW.qty WHERE id = NEW.stock_id; END;
CREATE TRIGGER stamps AFTER INSERT ON stamped BEGIN UPDATE stamped SET slug = upper(NEW.name) WHERE id = NEW.id; END;
CREATE TRIGGER skips BEFORE INSERT ON skipping WHEN NEW.n = 5 BEGIN SELECT RAISE(IGNORE); END;
CREATE TRIGGER skips_update BEFORE UPDATE ON skipping WHEN NEW.n = 5 BEGIN SELECT RAISE(IGNORE); END;
CREATE TRIGGER skips_delete BEFORE DELETE ON skipping WHEN OLD.n = 3 BEGIN SELECT RAISE(IGNORE); END;
CREATE TRIGGER raises BEFORE INSERT ON raising WHEN NEW.n = 5 BEGIN SELECT RAISE(ABORT, 'not five'); END;
CREATE TRIGGER raises_update BEFORE UPDATE ON raising WHEN NEW.n = 5 BEGIN SELECT RAISE(ABORT, 'not five'); END;
CREATE TRIGGER kills AFTER INSERT ON killer BEGIN DELETE FROM victim WHERE id = NEW.victim; END;
CREATE TRIGGER adds AFTER INSERT ON raising BEGIN INSERT INTO added VALUES (NEW.id, 1) ON CONFLICT (id) DO UPDATE SET n = n + 1; END;
";

/// What others change of the schema between two writes, and how it is taken back.
const DDL_OF_POSTGRES: [(&str, &str); 9] = [
    ("CREATE INDEX another ON c_cascade (qty)", "DROP INDEX another"),
    ("ALTER TABLE victim ADD extra integer DEFAULT 7", "ALTER TABLE victim DROP extra"),
    (
        "CREATE TRIGGER orders BEFORE INSERT OR UPDATE ON bounded FOR EACH ROW EXECUTE FUNCTION orders()",
        "DROP TRIGGER orders ON bounded",
    ),
    ("ALTER TABLE sale DISABLE TRIGGER USER", "ALTER TABLE sale ENABLE TRIGGER USER"),
    (
        "ALTER TABLE c_null ADD CONSTRAINT few CHECK (qty < 50) NOT VALID",
        "ALTER TABLE c_null DROP CONSTRAINT few",
    ),
    (
        "ALTER TABLE c_cascade DROP CONSTRAINT c_cascade_parent_id_fkey, ADD CONSTRAINT c_cascade_parent_id_fkey FOREIGN KEY (parent_id) REFERENCES parent ON DELETE SET NULL",
        "ALTER TABLE c_cascade DROP CONSTRAINT c_cascade_parent_id_fkey, ADD CONSTRAINT c_cascade_parent_id_fkey FOREIGN KEY (parent_id) REFERENCES parent ON DELETE CASCADE ON UPDATE CASCADE",
    ),
    ("ALTER TABLE pair ALTER a TYPE bigint", "ALTER TABLE pair ALTER a TYPE integer"),
    ("ALTER TABLE stock ALTER note SET DEFAULT 'none'", "ALTER TABLE stock ALTER note DROP DEFAULT"),
    ("CREATE RULE kept AS ON DELETE TO pair DO INSTEAD NOTHING", "DROP RULE kept ON pair"),
];

/// The same for SQLite.
const DDL_OF_SQLITE: [(&str, &str); 4] = [
    ("CREATE INDEX another ON c_cascade (qty)", "DROP INDEX another"),
    ("ALTER TABLE victim ADD extra integer DEFAULT 7", "ALTER TABLE victim DROP extra"),
    (
        "CREATE TRIGGER orders AFTER INSERT ON pair BEGIN UPDATE victim SET n = n + 1 WHERE id = NEW.id; END",
        "DROP TRIGGER orders",
    ),
    (
        "CREATE TRIGGER unpaired AFTER DELETE ON pair BEGIN DELETE FROM victim WHERE id = OLD.id; END",
        "DROP TRIGGER unpaired",
    ),
];

/// DDL, and how it is taken back. A trigger that changes a column which clients read is none for Redis: there
/// memory does not see what triggers write.
pub fn ddl_of_others(way: Way, random: &mut StdRng) -> (&'static str, &'static str) {
    let all: &[(&str, &str)] = if way.is_postgres() { &DDL_OF_POSTGRES } else { &DDL_OF_SQLITE };
    let drawn = all[random.random_range(0..all.len())];
    if way == Way::Redis && drawn.0.contains("ON bounded") { all[0] } else { drawn }
}

/// SQL that makes the tables.
pub fn schema(way: Way) -> String {
    let is_postgres = way.is_postgres();
    let key = if is_postgres { "bigint" } else { "INTEGER" };
    let triggers = if is_postgres { TRIGGERS_OF_POSTGRES } else { TRIGGERS_OF_SQLITE };
    let sql = format!("{}{triggers}", COMMON.replace("{bigint}", key));
    // The start refuses a key that is changed with what it refers to.
    if way == Way::Redis {
        sql.replace("(code) ON DELETE CASCADE ON UPDATE CASCADE", "(code) ON DELETE CASCADE")
    } else {
        sql
    }
}

/// The config that serves them, with each write also answered when it is committed, and that with little
/// time.
pub fn config(way: Way) -> String {
    let mut config = String::new();
    for Table { name, columns, .. } in TABLES.iter().filter(|table| table.is_hot(way)) {
        let list = |form: &dyn Fn(&str) -> String| {
            columns.iter().map(|(column, _)| form(column)).collect::<Vec<_>>().join(", ")
        };
        let (values, optional) = (list(&|c| format!("{c} = \"${c}\"")), list(&|c| format!("{c} = \"?\"")));
        let follow = if way == Way::Redis { "follow = false\n" } else { "" };
        let _ = write!(
            config,
            "[table.{name}]\n{follow}[[endpoint]]\nroute = \"GET /{name}/{{id}}\"\nget = \"{name}\"\n"
        );
        let all: &[(&str, &str)] = &[("", ""), ("/strict", STRICT), ("/brief", BRIEF)];
        const STRICT: &str = "durability = \"database\"\n";
        const BRIEF: &str = "durability = \"database\"\ntimeout = \"60ms\"\n";
        for (path, durability) in if way == Way::Redis { &all[..1] } else { all } {
            let mut put = |method: &str, rest: &str, action: &str, body: &str| {
                let _ = write!(
                    config,
                    "[[endpoint]]\nroute = \"{method} {path}/{name}{rest}\"\n{action} = \"{name}\"\n{durability}{body}\n"
                );
            };
            put(
                "POST",
                "",
                "insert",
                &format!("params = {{ {optional} }}\nvalues = {{ id = \"$id\", {values} }}"),
            );
            put("PATCH", "/{id}", "update", &format!("params = {{ {optional} }}\nvalues = {{ {values} }}"));
            put("PUT", "/{id}", "upsert", &format!("params = {{ {optional} }}\nvalues = {{ {values} }}"));
            put("DELETE", "/{id}", "delete", "");
            for (column, _) in columns.iter().filter(|(_, kind)| matches!(kind, Kind::Count)) {
                put(
                    "POST",
                    &format!("/{{id}}/{column}"),
                    "increment",
                    &format!("column = \"{column}\"\nby = \"$by\""),
                );
            }
        }
    }
    config
}

/// A write of a client.
#[derive(Debug)]
pub struct Write {
    pub table: usize,
    pub id: i64,
    pub method: &'static str,
    pub target: String,
    pub body: Option<String>,
    pub sql: String,
}

impl Table {
    /// Whether clients write to it. On Redis memory does not see what triggers write.
    pub fn is_hot(&self, way: Way) -> bool {
        way != Way::Redis || self.of_triggers != "*"
    }

    /// Whether memory shows a column as triggers have written it.
    pub fn shows(&self, way: Way, column: &str) -> bool {
        way != Way::Redis || self.of_triggers != column
    }
}

impl Kind {
    fn value(self, base: i64, random: &mut StdRng) -> Value {
        match self {
            Kind::Parent => {
                json!(if random.random_bool(0.1) { 0 } else { base + random.random_range(1..=5) })
            }
            Kind::Apart => json!(if random.random_bool(0.8) { 0 } else { base + 9 }),
            Kind::Code => json!(format!("c{}", base + random.random_range(1..=6))),
            Kind::Count => json!(random.random_range(0..100)),
            Kind::Few => json!(random.random_range(0..7)),
            Kind::Note => json!(["Aa", "b", "", "ü'x\"\\"][random.random_range(0..4)]),
            Kind::Other => json!(base + random.random_range(1..=3)),
        }
    }
}

fn literal(value: &Value) -> String {
    match value {
        Value::Null => "NULL".into(),
        Value::String(text) => format!("'{}'", text.replace('\'', "''")),
        other => other.to_string(),
    }
}

impl Write {
    /// A write to one of the rows `base + 1` to `base + 6`.
    pub fn draw(way: Way, base: i64, is_strict: bool, random: &mut StdRng) -> Write {
        loop {
            let write = Write::draw_any(base, is_strict, random);
            if TABLES[write.table].is_hot(way) {
                return write;
            }
        }
    }

    fn draw_any(base: i64, is_strict: bool, random: &mut StdRng) -> Write {
        // The parents and what refers to them take half of all writes.
        let table = if random.random_bool(0.5) {
            random.random_range(0..7)
        } else {
            random.random_range(0..TABLES.len() - 1)
        };
        let id = base + random.random_range(1..=if table == 0 { 5 } else { 6 });
        Write::to(table, id, random.random_range(0..10), base, is_strict, random)
    }

    /// Inserts with which a history begins: parents, and some rows of the other tables.
    pub fn first(way: Way, base: i64, random: &mut StdRng) -> Vec<Write> {
        let rows = (0..TABLES.len() - 1).flat_map(|table| [1, 2, 3].map(|id| (table, base + id)));
        let chosen: Vec<_> = rows.filter(|(table, _)| *table == 0 || random.random_bool(0.3)).collect();
        let all = chosen.into_iter().map(|(table, id)| Write::to(table, id, 0, base, false, random));
        all.filter(|write| TABLES[write.table].is_hot(way)).collect()
    }

    /// A write to a row; `choice` says of which kind.
    fn to(table: usize, id: i64, choice: u32, base: i64, is_strict: bool, random: &mut StdRng) -> Write {
        let Table { name, columns, has_put, .. } = &TABLES[table];
        let prefix = if is_strict { "/strict" } else { "" };
        let row: Vec<(&str, Value)> =
            columns.iter().map(|(column, kind)| (*column, kind.value(base, random))).collect();
        let object = |row: &[(&str, Value)]| {
            let members: Vec<String> =
                row.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
            members.join(",")
        };
        let names: Vec<&str> = row.iter().map(|(name, _)| *name).collect();
        let literals: Vec<String> = row.iter().map(|(_, value)| literal(value)).collect();
        let insert =
            format!("INSERT INTO {name} (id, {}) VALUES ({id}, {})", names.join(", "), literals.join(", "));
        let one = format!("{prefix}/{name}/{id}");
        let (method, target, body, sql) = match choice {
            0..4 => (
                "POST",
                format!("{prefix}/{name}"),
                Some(format!("{{\"id\":{id},{}}}", object(&row))),
                insert,
            ),
            4..6 => {
                let at = random.random_range(0..row.len());
                let some = &row[at..=at];
                (
                    "PATCH",
                    one,
                    Some(format!("{{{}}}", object(some))),
                    format!("UPDATE {name} SET {} = {} WHERE id = {id}", some[0].0, literals[at]),
                )
            }
            6 if *has_put => {
                let sets: Vec<String> =
                    names.iter().map(|name| format!("{name} = excluded.{name}")).collect();
                let sql = format!("{insert} ON CONFLICT (id) DO UPDATE SET {}", sets.join(", "));
                ("PUT", one, Some(format!("{{{}}}", object(&row))), sql)
            }
            7 => match columns.iter().find(|(_, kind)| matches!(kind, Kind::Count)) {
                Some((column, _)) => {
                    let by = random.random_range(-3..=9);
                    let sql = format!("UPDATE {name} SET {column} = {column} + {by} WHERE id = {id}");
                    ("POST", format!("{one}/{column}"), Some(format!("{{\"by\":{by}}}")), sql)
                }
                None => ("DELETE", one, None, format!("DELETE FROM {name} WHERE id = {id}")),
            },
            _ => ("DELETE", one, None, format!("DELETE FROM {name} WHERE id = {id}")),
        };
        Write { table, id, method, target, body, sql }
    }

    /// Whether rows that refer to a parent may be accepted because of it.
    pub fn makes_a_parent(&self) -> bool {
        self.table == 0 && self.body.as_deref().is_some_and(|body| body.contains("code"))
    }

    /// Whether the database may change other rows with it, or refuse it, after the answer: of a parent.
    pub fn acts(&self) -> bool {
        self.table == 0 && self.method == "DELETE"
    }

    /// Whether the database judges it together with a write of another row: by the unique `(a, b)`, or by the
    /// code that a child refers to. Of two such writes in different shards either may be refused.
    pub fn may_exclude_another(&self) -> bool {
        TABLES[self.table].name == "pair" || self.makes_a_parent() && self.method != "POST"
    }

    /// Whether it is answered when the database has committed it.
    pub fn is_strict(&self) -> bool {
        self.target.starts_with("/strict/") || self.target.starts_with("/brief/")
    }

    /// Whether it makes a row, whatever was there.
    pub fn is_insert(&self) -> bool {
        self.sql.starts_with("INSERT")
    }
}

/// Statements of others between two writes: to any row, on Redis to those that no client writes.
pub fn of_others(way: Way, base: i64, random: &mut StdRng) -> String {
    loop {
        let write = Write::draw_any(base, false, random);
        if way != Way::Redis || !TABLES[write.table].is_hot(way) {
            return write.sql;
        }
    }
}

/// Statements of others at any moment: they touch rows that no client touches, and refer to a parent
/// that stays.
pub fn of_others_apart(base: i64, random: &mut StdRng) -> String {
    let (id, n) = (base + random.random_range(50..55), random.random_range(0..9));
    match random.random_range(0..5) {
        0 => format!(
            "INSERT INTO c_cascade VALUES ({id}, 0, {n}, 'others') ON CONFLICT (id) DO UPDATE SET qty = excluded.qty"
        ),
        1 => format!(
            "INSERT INTO victim (id, note, n) VALUES ({id}, 'others', {n}) ON CONFLICT (id) DO UPDATE SET n = excluded.n"
        ),
        2 => format!("DELETE FROM c_cascade WHERE id = {id}"),
        3 => {
            format!("INSERT INTO stamped (id, name) VALUES ({id}, 'Others {n}') ON CONFLICT (id) DO NOTHING")
        }
        _ => format!("DELETE FROM stamped WHERE id = {id}"),
    }
}
