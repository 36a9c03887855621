//! Actions: what an endpoint does. Each action is named by its key.

pub(crate) mod constant;
pub(crate) mod facts;
pub(crate) mod files;
pub(crate) mod generate;
pub(crate) mod proxy;
pub(crate) mod read;
pub(crate) mod scope;
pub(crate) mod sql;
pub(crate) mod write;

use crate::syntax::expr::Expr;
use crate::syntax::fields::{Cursor, Fields, flag, name};
use crate::syntax::keys::{ActionKeys, Key, action};
use crate::syntax::mistakes::Mistake;
use crate::syntax::tree::Node;
use crate::syntax::words::list;
use facts::{Access, ActionFacts};
use scope::{Scope, Typed};

/// Every action.
pub(crate) const ACTIONS: &[&ActionKeys] = &[
    &sql::SQL,
    &read::GET,
    &read::GET_MANY,
    &write::INSERT,
    &write::UPSERT,
    &write::UPDATE,
    &write::INCREMENT,
    &write::DELETE,
    &read::RANDOM,
    &read::COUNT,
    &read::LIST,
    &read::REDIRECT,
    &ANY_OF,
    &generate::GENERATE,
    &HANDLER,
    &constant::CONSTANT,
    &proxy::PROXY,
    &files::FILES,
    &OPENAPI,
];

pub(crate) const ANY_OF: ActionKeys = action! {
    "any_of" | "array of actions" | "runs one of several actions, each with the same probability" => {}
};

pub(crate) const OPENAPI: ActionKeys = action! {
    "openapi" | "true" | "returns the description of all routes, as OpenAPI 3.1" => {}
};

pub(crate) const HANDLER: ActionKeys =
    action! { "handler" | "name" | "calls a compiled Rust function" => {} };

/// The most actions of an `any_of`.
const ANY_OF_MAX: usize = 64;
/// The actions that `any_of` permits.
const IN_ANY_OF: &[&str] =
    &["sql", "get", "insert", "upsert", "update", "increment", "delete", "random", "count"];

/// What an endpoint does.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// SQL on the database.
    Sql(sql::Sql),
    /// A new row.
    Insert(write::Insert),
    /// One row by its key.
    Get(read::Get),
    /// Several rows by their keys.
    GetMany(read::GetMany),
    /// A new row, or new values for an existing row.
    Upsert(write::Upsert),
    /// New values for a row that must exist.
    Update(write::Update),
    /// Adds to a column.
    Increment(write::Increment),
    /// Removes a row.
    Delete(write::Delete),
    /// A random row.
    Random(read::Random),
    /// The number of rows.
    Count(read::Count),
    /// Rows in the order of their keys.
    List(read::List),
    /// Redirects the client to a target stored in a row.
    Redirect(read::Redirect),
    /// One of several actions, each with the same probability; never nested. At least one.
    AnyOf(Vec<Action>),
    /// A background job that fills a table.
    Generate(generate::Generate),
    /// A compiled Rust function, by name.
    Handler(String),
    /// Always the same JSON text.
    Constant(String),
    /// The answer of an upstream.
    Proxy(proxy::Proxy),
    /// A file from a folder.
    Files(files::Files),
    /// The description of all routes.
    OpenApi,
}

/// Reads the one action of an endpoint; also checks the keys beside it. `common` are the keys that every
/// action permits. `None`: the mistakes were recorded.
pub(crate) fn read(fields: Fields<'_>, common: &'static [Key], scope: &Scope<'_>) -> Option<Action> {
    let is_endpoint = !common.is_empty();
    // `count` is an action, and also a key of `generate`.
    let is_beside = |name: &str| {
        let owns = |other: &&&ActionKeys| other.with.iter().any(|key| key.name == name);
        ACTIONS.iter().filter(owns).any(|other| fields.has(other.action.name))
    };
    let mut found = fields.iter().filter(|field| !is_beside(field.key)).filter_map(|field| {
        let known = ACTIONS.iter().find(|known| known.action.name == field.key)?;
        Some((field, *known))
    });
    let (first, second) = (found.next(), found.next());
    let (Some((own, known)), None) = (first, second) else {
        check_keys(fields, common, None);
        match (first, second) {
            (Some((first, _)), Some((second, _))) => second.wrong(format!(
                "one action only, not {} (several endpoints, or any_of)",
                list([first.key, second.key].into_iter().chain(found.map(|(field, _)| field.key)))
            )),
            _ => fields.wrong(format!(
                "an endpoint needs an action; add one of {}",
                list(ACTIONS.iter().map(|known| known.action.name))
            )),
        }
        return None;
    };
    check_keys(fields, common, Some(known));
    if !is_endpoint && !IN_ANY_OF.contains(&own.key) {
        let permitted = list(IN_ANY_OF.iter().copied());
        own.wrong(format!("{} cannot stand in any_of; what can: {permitted}", own.key));
        return None;
    }
    if own.value.is_broken() {
        return None;
    }
    let typed = Typed { fields, own, scope };
    Some(match own.key {
        "sql" => Action::Sql(sql::read(fields, own.value)?),
        "get" => Action::Get(read::get(typed)?),
        "get_many" => Action::GetMany(read::get_many(typed)?),
        "insert" => Action::Insert(write::insert(typed)?),
        "upsert" => Action::Upsert(write::upsert(typed)?),
        "update" => Action::Update(write::update(typed)?),
        "increment" => Action::Increment(write::increment(typed)?),
        "delete" => Action::Delete(write::delete(typed)?),
        "random" => Action::Random(read::random(typed)?),
        "count" => Action::Count(read::count(typed)?),
        "list" => Action::List(read::list(typed)?),
        "redirect" => Action::Redirect(read::redirect(typed)?),
        "any_of" => any_of(own.value, scope),
        "generate" => Action::Generate(generate::generate(typed)?),
        "handler" => Action::Handler(own.value.read("handler", name)?),
        "constant" => Action::Constant(own.value.read("constant", constant::json)?),
        "proxy" => Action::Proxy(proxy::read(fields, own.value)?),
        "files" => Action::Files(files::files(typed)?),
        "openapi" => own.value.read("openapi", wanted).map(|()| Action::OpenApi)?,
        other => unreachable!("{other} is in the list of actions but is not read"),
    })
}

/// An action without settings: `openapi = true`.
fn wanted(node: &Node) -> Result<(), Mistake> {
    if flag(node)? { Ok(()) } else { Err("must be true; without it nothing is described".into()) }
}

fn any_of(own: Cursor<'_>, scope: &Scope<'_>) -> Action {
    let items =
        own.items("any_of: must be an array of actions, such as [{ sql = \"…\" }, { insert = \"…\" }]");
    if items.is_empty() || items.len() > ANY_OF_MAX {
        own.wrong(format!("any_of: must hold 1 to {ANY_OF_MAX} actions"));
    }
    let item = |item: Cursor<'_>| read(item.table("an item of any_of"), &[], scope);
    Action::AnyOf(items.into_iter().filter_map(item).collect())
}

/// Records every key that neither every endpoint nor this action permits.
fn check_keys(fields: Fields<'_>, common: &'static [Key], action: Option<&ActionKeys>) {
    let has = |keys: &[Key], name: &str| keys.iter().any(|key| key.name == name);
    for field in fields.iter() {
        let is_action = ACTIONS.iter().any(|known| known.action.name == field.key);
        if is_action || has(common, field.key) || action.is_some_and(|action| has(action.with, field.key)) {
            continue;
        }
        let owners = ACTIONS.iter().filter(|known| has(known.with, field.key));
        let owners = list(owners.map(|known| known.action.name));
        match action {
            _ if owners.is_empty() => {
                let with = action.map_or(&[][..], |action| action.with);
                let actions = ACTIONS.iter().map(|known| known.action.name).filter(|_| action.is_none());
                let place = if common.is_empty() { "an item of any_of" } else { "an endpoint" };
                field.unknown(place, with.iter().chain(common).map(|key| key.name).chain(actions));
            }
            Some(action) => field
                .wrong(format!("`{}` does not go with {}, but with {owners}", field.key, action.action.name)),
            None => {}
        }
    }
}

impl Action {
    /// This action alone, or the actions of an `any_of`.
    pub fn each(&self) -> &[Action] {
        match self {
            Action::AnyOf(actions) => actions,
            action => std::slice::from_ref(action),
        }
    }

    /// The facts of an action on a hot table; `None` for other actions.
    pub fn facts(&self) -> Option<ActionFacts<'_>> {
        Some(match self {
            Action::Get(action) => action.facts(),
            Action::GetMany(action) => action.facts(),
            Action::Insert(action) => action.facts(),
            Action::Upsert(action) => action.facts(),
            Action::Update(action) => action.facts(),
            Action::Increment(action) => action.facts(),
            Action::Delete(action) => action.facts(),
            Action::Random(action) => action.facts(),
            Action::Count(action) => action.facts(),
            Action::List(action) => action.facts(),
            Action::Sql(_)
            | Action::Redirect(_)
            | Action::AnyOf(_)
            | Action::Generate(_)
            | Action::Handler(_)
            | Action::Constant(_)
            | Action::Proxy(_)
            | Action::Files(_)
            | Action::OpenApi => return None,
        })
    }

    /// The hot table whose write the client waits for.
    pub fn written_table(&self) -> Option<&str> {
        self.facts().filter(|facts| facts.access == Access::Write).map(|facts| facts.table)
    }

    /// Whether it changes rows for a client. A redirect that counts is not meant.
    pub fn writes(&self) -> bool {
        self.each().iter().any(|action| match action {
            Action::Sql(sql) => sql.statements.iter().any(sql::writes),
            Action::Generate(_) => true,
            action => action.written_table().is_some(),
        })
    }

    /// Why answers of this action cannot be cached; `None`: they can.
    pub(crate) fn why_not_kept(&self) -> Option<&'static str> {
        const NOT_KEPT: &str = "answers of this action cannot be cached, only those of sql, get, get_many, random, count, list, redirect, constant, proxy";
        match self {
            Action::Sql(sql) if sql.statements.iter().any(sql::begins_writing) => {
                Some("the statement writes, and would not run when the answer is cached")
            }
            Action::Redirect(redirect) if redirect.increment.is_some() => {
                Some("a redirect that counts would not count what is answered from the cache")
            }
            Action::Sql(_)
            | Action::Redirect(_)
            | Action::Proxy(_)
            | Action::OpenApi
            | Action::Constant(_) => None,
            action => action.facts().is_none_or(|facts| facts.access == Access::Write).then_some(NOT_KEPT),
        }
    }

    /// Every parameter that the action refers to.
    pub(crate) fn params(&self) -> Vec<&str> {
        let mut names = Vec::new();
        self.each_expr(&mut |expr| expr.each_param(&mut |name| names.push(name)));
        names
    }

    fn each_expr<'a>(&'a self, f: &mut dyn FnMut(&'a Expr)) {
        match self {
            Action::Generate(generate) => {
                let rows = std::iter::once(&generate.values).chain(&generate.first);
                rows.flatten().for_each(|(_, value)| f(value));
                f(&generate.count);
            }
            Action::Redirect(redirect) => f(&redirect.key),
            Action::Proxy(proxy) => proxy.request_headers.iter().for_each(|(_, value)| f(value)),
            Action::AnyOf(actions) => actions.iter().for_each(|action| action.each_expr(f)),
            action => {
                let values = action.facts().map(|facts| facts.values).unwrap_or_default();
                values.into_iter().for_each(|(_, value)| f(value));
            }
        }
    }
}
