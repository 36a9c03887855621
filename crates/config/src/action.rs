//! Actions: what an endpoint does, from the keys that say so.

use super::constant::json;
use super::errors::{did_you_mean, list};
use super::fields::{Fields, choice, integer, name, unknown};
use super::keys::{ACTIONS, ActionKeys, ENDPOINT, Key};
use super::model::{Action, Dialect, Expr, Literal, Pick, Rows, TableConfig};
use super::proxy::proxy;
use super::read::{At, Data, Entry, Mistakes, Node};
use super::sql;
use super::values::{self, check_complete, complete, literal_fits, value};
use forebay_value::Type;

/// How often a drawn value is drawn again when nothing else is said.
const RETRY: u32 = 8;
/// The most actions of an `any_of`.
const ANY_OF_MAX: usize = 64;
/// What may stand in `any_of`.
const IN_ANY_OF: &[&str] =
    &["sql", "get", "insert", "upsert", "update", "increment", "delete", "random", "count"];

/// What an action can refer to.
pub(super) struct Scope<'a> {
    pub tables: &'a [TableConfig],
    /// Parameters of the route.
    pub path: Vec<String>,
    /// Declared parameters, and those from headers.
    pub declared: Vec<String>,
    pub mistakes: &'a Mistakes<'a>,
}

/// The one action of an endpoint (or of an item of `any_of`); also checks the keys beside it. `None`: noted why not.
pub(super) fn action(fields: &Fields<'_>, in_any_of: bool, scope: &Scope<'_>) -> Option<Action> {
    let common: &'static [Key] = if in_any_of { &[] } else { ENDPOINT.keys };
    let is = |entry: &&Entry| ACTIONS.iter().any(|known| known.action.name == entry.key);
    let found = fields.entries().iter().filter(is).collect::<Vec<_>>();
    let &[entry] = found.as_slice() else {
        check_keys(fields, common, None, scope);
        let all = list(ACTIONS.iter().map(|known| known.action.name));
        if !found.is_empty() {
            let both = list(found.iter().map(|entry| entry.key.as_str()));
            scope
                .mistakes
                .add(found[1].at, format!("one action only, not {both} (several endpoints, or any_of)"));
        } else {
            scope.mistakes.add(fields.at, format!("an endpoint needs an action; add one of {all}"));
        }
        return None;
    };
    let known = ACTIONS.iter().find(|known| known.action.name == entry.key).expect("found above");
    check_keys(fields, common, Some(known), scope);
    if in_any_of && !IN_ANY_OF.contains(&known.action.name) {
        let permitted = list(IN_ANY_OF.iter().copied());
        scope.mistakes.add(entry.at, format!("{} cannot stand in any_of; what can: {permitted}", entry.key));
        return None;
    }
    if entry.node.data == Data::Broken {
        return None;
    }
    Builder { fields, entry, scope }.build()
}

/// Notes every key that goes neither with every endpoint nor with this action.
fn check_keys(fields: &Fields<'_>, common: &'static [Key], action: Option<&ActionKeys>, scope: &Scope<'_>) {
    for entry in fields.entries() {
        let has = |keys: &[Key]| keys.iter().any(|key| key.name == entry.key);
        let is_action = ACTIONS.iter().any(|known| known.action.name == entry.key);
        if is_action || has(common) || action.is_some_and(|action| has(action.with)) {
            continue;
        }
        let owners = ACTIONS.iter().filter(|known| has(known.with)).map(|known| known.action.name);
        let owners = owners.collect::<Vec<_>>();
        match action {
            _ if owners.is_empty() => {
                let with = action.map_or(&[][..], |action| action.with);
                let names = with.iter().chain(common).map(|key| key.name);
                let actions = ACTIONS.iter().map(|known| known.action.name).filter(|_| action.is_none());
                let place = if common.is_empty() { "an item of any_of" } else { "an endpoint" };
                unknown(entry, place, names.chain(actions), scope.mistakes);
            }
            Some(action) => scope.mistakes.add(
                entry.at,
                format!(
                    "`{}` does not go with {}, but with {}",
                    entry.key,
                    action.action.name,
                    owners.join(", ")
                ),
            ),
            None => {}
        }
    }
}

struct Builder<'a> {
    fields: &'a Fields<'a>,
    /// The action's own key.
    entry: &'a Entry,
    scope: &'a Scope<'a>,
}

impl<'a> Builder<'a> {
    fn build(&self) -> Option<Action> {
        match self.entry.key.as_str() {
            "sql" => self.sql(),
            "get" => self
                .hot_table()
                .and_then(|table| Some(Action::Get { key: self.key(table)?, table: table.name.clone() })),
            "insert" => self.insert(),
            "upsert" => self.upsert(),
            "update" => self.update(),
            "increment" => self.increment(),
            "delete" => self.delete(),
            "random" => self.hot_table().map(|table| Action::Random { table: table.name.clone() }),
            "count" => self.count(),
            "list" => self.hot_table().map(|table| Action::List {
                table: table.name.clone(),
                after: self.value("after").unwrap_or(Expr::Param("after".into())),
                limit: self.value("limit").unwrap_or(Expr::Param("limit".into())),
            }),
            "redirect" => self.redirect(),
            "any_of" => self.any_of(),
            "generate" => self.generate(),
            "handler" => self.read_own(name).map(Action::Handler),
            "constant" => self.read_own(json).map(Action::Constant),
            "proxy" => proxy(self.fields, self.entry, self.scope.mistakes).map(Action::Proxy),
            other => unreachable!("{other} is in the list of actions but is not built"),
        }
    }

    fn mistake(&self, at: At, what: impl Into<String>) {
        self.scope.mistakes.add(at, what);
    }

    fn read_own<T>(&self, read: impl FnOnce(&Node) -> Result<T, String>) -> Option<T> {
        self.fields.read(&self.entry.key, self.scope.mistakes, read)
    }

    fn value(&self, key: &str) -> Option<Expr> {
        self.fields.read(key, self.scope.mistakes, value)
    }

    /// A key that must be there.
    fn required(&self, key: &str) -> Option<&'a Node> {
        let node = self.fields.get(key);
        if node.is_none() {
            self.mistake(self.fields.at, format!("{} needs `{key}`", self.entry.key));
        }
        node
    }

    /// The table that the action names.
    fn table(&self) -> Option<&'a TableConfig> {
        let wanted = self.read_own(name)?;
        let tables = self.scope.tables;
        let found = tables.iter().find(|table| table.name == wanted);
        if found.is_none() {
            let names = || tables.iter().map(|table| table.name.as_str());
            let what = match tables {
                [] => format!("there is no table `{wanted}`; declare it as [table.{wanted}]"),
                _ => format!(
                    "there is no table `{wanted}`{} (declared: {})",
                    did_you_mean(&wanted, names()),
                    list(names())
                ),
            };
            self.mistake(self.entry.node.at, what);
        }
        found
    }

    /// The table that the action names, which must be kept in memory.
    fn hot_table(&self) -> Option<&'a TableConfig> {
        let table = self.table()?;
        if !table.hot {
            self.mistake(
                self.entry.node.at,
                format!(
                    "table {} is not kept in memory (hot = false), so {} cannot use it; write sql",
                    table.name, self.entry.key
                ),
            );
        }
        Some(table)
    }

    /// `key`, or the parameter of the route that must be meant.
    fn key(&self, table: &TableConfig) -> Option<Expr> {
        let key_column = table.columns.as_ref().map(|schema| schema.key_column());
        if let Some(node) = self.fields.get("key") {
            let read = self.value("key");
            if let (Some(Expr::Literal(literal)), Some(column)) = (&read, key_column)
                && let Err(what) = literal_fits(literal, column.ty)
            {
                self.mistake(
                    node.at,
                    format!("key: {what} (the key {} of table {})", column.name, table.name),
                );
            }
            return read;
        }
        let path = &self.scope.path;
        let by_name = key_column.filter(|column| path.contains(&column.name)).map(|column| &column.name);
        let implied = match path.as_slice() {
            [only] => by_name.or(Some(only)),
            [] => by_name.or(key_column.map(|column| &column.name)),
            _ => by_name,
        };
        if implied.is_none() {
            self.mistake(
                self.fields.at,
                format!(
                    "{} needs `key`: the route does not show which parameter is the key, e.g. key = \"$id\"",
                    self.entry.key
                ),
            );
        }
        implied.map(|name| Expr::Param(name.clone()))
    }

    fn values(&self, key: &str, node: &Node, table: &TableConfig) -> Vec<(String, Expr)> {
        let is_param = |name: &str| {
            let mut known = self.scope.path.iter().chain(&self.scope.declared);
            known.any(|known| known == name)
        };
        values::values(node, key, table, &is_param, self.scope.mistakes)
    }

    /// `values`, with the place to blame for what is missing.
    fn given_values(&self, table: &TableConfig) -> (Vec<(String, Expr)>, At) {
        match self.fields.entry("values") {
            Some(entry) => (self.values("values", &entry.node, table), entry.at),
            None => (Vec::new(), self.entry.at),
        }
    }

    /// A column with one of these types.
    fn column(
        &self,
        key: &str,
        node: &Node,
        table: &TableConfig,
        fits: impl Fn(Type) -> bool,
        what: &str,
    ) -> Option<String> {
        let column = self.fields.read(key, self.scope.mistakes, name)?;
        match values::column(table, &column) {
            Err(what) => self.mistake(node.at, format!("{key}: {what}")),
            Ok(Some(found)) if !fits(found.ty) => {
                self.mistake(node.at, format!("{key}: column {column} must be a {what}, not {}", found.ty));
            }
            Ok(_) => {}
        }
        Some(column)
    }

    fn sql(&self) -> Option<Action> {
        let statements = sql::statements(&self.entry.node, self.scope.mistakes)?;
        let rows = choice(&[("one", Rows::One), ("all", Rows::All), ("none", Rows::None)]);
        let rows = self.fields.read("rows", self.scope.mistakes, rows);
        let gives_rows = [Dialect::Sqlite, Dialect::Postgres]
            .into_iter()
            .find_map(|dialect| statements.in_dialect(dialect))
            .is_some_and(sql::gives_rows);
        Some(Action::Sql {
            rows: rows.unwrap_or(if gives_rows { Rows::One } else { Rows::None }),
            statements,
        })
    }

    fn insert(&self) -> Option<Action> {
        let table = self.hot_table()?;
        let (values, at) = self.given_values(table);
        check_complete(
            table,
            &|name| values.iter().any(|(column, _)| column == name),
            at,
            self.scope.mistakes,
        );
        let retry = self.fields.read("retry", self.scope.mistakes, integer(0, 1000));
        let retry = retry.map_or(RETRY, |retry| retry as u32);
        Some(Action::Insert { table: table.name.clone(), values, retry })
    }

    fn upsert(&self) -> Option<Action> {
        let table = self.hot_table()?;
        let (mut values, at) = self.given_values(table);
        let key_column = table.columns.as_ref().map(|schema| schema.key_column().name.as_str());
        let in_values = values.iter().position(|(column, _)| Some(column.as_str()) == key_column);
        let key = match in_values {
            Some(_) if self.fields.get("key").is_some() => {
                self.mistake(at, "the key is given twice, by `key` and in `values`");
                return None;
            }
            Some(index) => values.remove(index).1,
            None => self.key(table)?,
        };
        if let Some(schema) = &table.columns {
            let given = |name: &str| {
                schema.key_column().name == name && schema.key_kind != forebay_value::KeyKind::Serial
                    || values.iter().any(|(column, _)| column == name)
            };
            check_complete(table, &given, at, self.scope.mistakes);
        }
        Some(Action::Upsert { table: table.name.clone(), key, values })
    }

    fn update(&self) -> Option<Action> {
        let table = self.hot_table()?;
        let key = self.key(table);
        let node = self.required("values")?;
        let values = self.values("values", node, table);
        if values.is_empty() && matches!(&node.data, Data::Table(entries) if entries.is_empty()) {
            self.mistake(node.at, "update needs at least one value");
        }
        if let Some(schema) = &table.columns
            && values.iter().any(|(column, _)| *column == schema.key_column().name)
        {
            self.mistake(
                node.at,
                format!("values: the key `{}` of a row cannot be changed", schema.key_column().name),
            );
        }
        Some(Action::Update { table: table.name.clone(), key: key?, values })
    }

    fn increment(&self) -> Option<Action> {
        let table = self.hot_table()?;
        let key = self.key(table);
        let node = self.required("column")?;
        let column = self.column("column", node, table, |ty| ty == Type::Bigint, "bigint")?;
        self.refuse_key(node, table, &column);
        let by = self.value("by").unwrap_or(Expr::Literal(Literal::Int(1)));
        if let (Expr::Literal(literal), Some(node)) = (&by, self.fields.get("by"))
            && !matches!(literal, Literal::Int(_))
        {
            self.mistake(node.at, "by: must be a whole number");
        }
        Some(Action::Increment { table: table.name.clone(), key: key?, column, by })
    }

    fn refuse_key(&self, node: &Node, table: &TableConfig, column: &str) {
        if table.columns.as_ref().is_some_and(|schema| schema.key_column().name == column) {
            self.mistake(
                node.at,
                format!("column {column} is the key of table {}, which never changes", table.name),
            );
        }
    }

    fn delete(&self) -> Option<Action> {
        let table = self.hot_table()?;
        let random = self.fields.read("row", self.scope.mistakes, choice(&[("random", ())])).is_some();
        if !random {
            if let Some(node) = self.fields.get("except") {
                self.mistake(node.at, "except goes with row = \"random\"");
            }
            if self.fields.get("row").is_some() {
                return None;
            }
            return Some(Action::Delete { table: table.name.clone(), pick: Pick::Key(self.key(table)?) });
        }
        if let Some(node) = self.fields.get("key") {
            self.mistake(node.at, "either key or row = \"random\", not both");
        }
        let except = match self.fields.get("except") {
            Some(Node { data: Data::Array(items), .. }) => {
                items.iter().filter_map(|item| self.spared(item, table)).collect()
            }
            Some(node) => {
                self.mistake(node.at, format!("except: must be an array of keys, not {}", node.kind()));
                Vec::new()
            }
            None => Vec::new(),
        };
        Some(Action::Delete { table: table.name.clone(), pick: Pick::Random { except } })
    }

    fn spared(&self, item: &Node, table: &TableConfig) -> Option<Literal> {
        let read = values::literal(item).and_then(|literal| {
            let ty = table.columns.as_ref().map(|schema| schema.key_column().ty);
            ty.map_or(Ok(()), |ty| literal_fits(&literal, ty)).map(|()| literal)
        });
        read.map_err(|what| self.mistake(item.at, format!("except: {what}"))).ok()
    }

    fn count(&self) -> Option<Action> {
        let table = self.hot_table()?;
        let by = match self.fields.get("by") {
            None => None,
            Some(node @ Node { data: Data::Table(entries), .. }) if entries.len() == 1 => {
                let found = self.values("by", node, table).pop()?;
                let indexed =
                    values::column(table, &found.0).ok().flatten().is_none_or(|column| column.indexed);
                if !indexed {
                    self.mistake(
                        entries[0].at,
                        format!(
                            "by: column {} is not counted; write \"… indexed\" in the columns of {}",
                            found.0, table.name
                        ),
                    );
                }
                Some(found)
            }
            Some(node) => {
                self.mistake(node.at, "by: must be one column and its value, such as { name = \"$name\" }");
                None
            }
        };
        Some(Action::Count { table: table.name.clone(), by })
    }

    fn redirect(&self) -> Option<Action> {
        let table = self.hot_table()?;
        let key = self.key(table);
        let node = self.required("location")?;
        let location = self.column("location", node, table, |ty| matches!(ty, Type::Text { .. }), "text")?;
        let optional = |name: &str, ty: Type, what: &str| {
            let node = self.fields.get(name)?;
            self.column(name, node, table, |found| found == ty, what).map(|column| (column, node))
        };
        let counter = optional("counter", Type::Bigint, "bigint");
        if let Some((column, node)) = &counter {
            self.refuse_key(node, table, column);
        }
        let expires = optional("expires", Type::Timestamp, "timestamp").map(|(column, _)| column);
        let increment = counter.map(|(column, _)| column);
        // The status is that of the reply; see `endpoint`.
        Some(Action::Redirect {
            table: table.name.clone(),
            key: key?,
            location,
            status: 302,
            increment,
            expires,
        })
    }

    fn any_of(&self) -> Option<Action> {
        let Data::Array(items) = &self.entry.node.data else {
            self.mistake(
                self.entry.node.at,
                "any_of: must be an array of actions, such as [{ sql = \"…\" }, { insert = \"…\" }]",
            );
            return None;
        };
        if items.is_empty() || items.len() > ANY_OF_MAX {
            self.mistake(self.entry.node.at, format!("any_of: must hold 1 to {ANY_OF_MAX} actions"));
        }
        let item = |item: &Node| {
            action(&Fields::of(item, "an item of any_of", self.scope.mistakes), true, self.scope)
        };
        Some(Action::AnyOf(items.iter().filter_map(item).collect()))
    }

    fn generate(&self) -> Option<Action> {
        let table = self.table()?;
        let rows_node = self.required("rows");
        let rows = rows_node.and_then(|node| {
            let rows = self.value("rows")?;
            if matches!(&rows, Expr::Literal(literal) if !matches!(literal, Literal::Int(0..))) {
                self.mistake(node.at, "rows: must be a whole number, or a parameter such as \"$size\"");
            }
            Some(rows)
        });
        let (values, at) = self.given_values(table);
        check_complete(
            table,
            &|name| values.iter().any(|(column, _)| column == name),
            at,
            self.scope.mistakes,
        );
        let first = match self.fields.get("first") {
            Some(Node { data: Data::Array(items), .. }) => {
                items.iter().map(|item| complete(self.values("first", item, table), &values)).collect()
            }
            Some(node) => {
                self.mistake(node.at, format!("first: must be an array of tables, not {}", node.kind()));
                Vec::new()
            }
            None => Vec::new(),
        };
        Some(Action::Generate { table: table.name.clone(), rows: rows?, values, first })
    }
}
