//! `guard = …`, of an endpoint or of the server: who may call.

use super::auth::{self, Auth};
use crate::syntax::fields::{Cursor, Field, Fields, check_header_name, choice, integer, name, text};
use crate::syntax::keys::{Section, keys};
use crate::syntax::tree::{Data, Node};

/// The maximum nesting depth of guards.
const DEPTH_MAX: usize = 4;

pub(crate) const GUARD: Section = Section {
    name: "guard",
    keys: keys! {
        "auth" | "name" | "" |
            "admits clients that authenticate by this `[auth.NAME]`; `guard = \"NAME\"` is short for it"
        "require" | "table: claim = text, or array of texts" | "{}" |
            "with `auth`: claims, and the text (or one of the texts) that each must equal or contain; else \
            403"
        "any" | "array of guards" | "" | "admits requests that satisfy at least one of these guards"
        "all" | "array of guards" | "" | "admits requests that satisfy all of these guards"
        "query" | "name" | "" | "the query parameter that contains the secret"
        "header" | "name" | "" | "instead of `query`, the header field that contains the secret"
        "secret" | "text" | "" |
            "the secret, usually \"${VARIABLE:-}\"; an empty one rejects every request that the guard \
            applies to"
        "from" | "\"anywhere\" or \"outside\"" | "\"anywhere\"" |
            "the requests that the guard applies to: all, or all except those of programs on this machine \
            that arrive without a proxy"
        "status" | "404, 401 or 403" | "404" | "the status for requests without the right secret"
    },
};

/// Who may call an endpoint. A guard admits a request that satisfies it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Guard {
    /// The request contains a secret.
    Secret(Secret),
    /// The client authenticates.
    Auth(Identified),
    /// One of these guards is satisfied; at least one in the list.
    Any(Vec<Guard>),
    /// All of these guards are satisfied; at least one in the list.
    All(Vec<Guard>),
}

impl Guard {
    /// The authentications that it may require, in order.
    pub fn identified(&self) -> Vec<&Identified> {
        match self {
            Guard::Secret(_) => Vec::new(),
            Guard::Auth(identified) => vec![identified],
            Guard::Any(guards) | Guard::All(guards) => guards.iter().flat_map(Guard::identified).collect(),
        }
    }

    /// The secrets that it may require, in order.
    pub(crate) fn secrets(&self) -> Vec<&Secret> {
        match self {
            Guard::Secret(secret) => vec![secret],
            Guard::Auth(_) => Vec::new(),
            Guard::Any(guards) | Guard::All(guards) => guards.iter().flat_map(Guard::secrets).collect(),
        }
    }
}

/// Authentication by one `[auth.NAME]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identified {
    /// The name of the section.
    pub auth: String,
    /// Claims, and the values of which each must equal or contain one.
    pub require: Vec<(String, Vec<String>)>,
}

/// A secret in the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Secret {
    /// Where the request contains the secret.
    pub place: SecretPlace,
    /// The secret; empty: the guard rejects every request that it applies to.
    pub secret: String,
    /// The requests to which the guard applies.
    pub from: GuardFrom,
    /// The status of a rejection: 404, 401 or 403.
    pub status: u16,
    /// The line of the guard's table.
    pub line: usize,
}

/// Where a request contains a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretPlace {
    /// `query = "name"`: a query parameter.
    Query(String),
    /// `header = "Name"`: a header field.
    Header(String),
}

/// The requests to which a guard applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuardFrom {
    /// `from = "anywhere"`: all requests.
    Anywhere,
    /// `from = "outside"`: all except those of local programs that arrive without a proxy.
    Outside,
}

/// Reads a guard.
pub(crate) fn read(cursor: Cursor<'_>, auths: &[Auth]) -> Option<Guard> {
    read_within(cursor, auths, 0)
}

fn read_within(cursor: Cursor<'_>, auths: &[Auth], depth: usize) -> Option<Guard> {
    let named = |node: &Node| {
        let name = name(node)?;
        auth::find(auths, &name).map(|found| found.name.clone())
    };
    if matches!(cursor.node.data, Data::Text(_)) {
        let auth = cursor.read("guard", named)?;
        return Some(Guard::Auth(Identified { auth, require: Vec::new() }));
    }
    let fields = cursor.section(&GUARD);
    let (goes_with, guard): (&[&str], _) = if fields.has("auth") {
        let auth = fields.read("auth", named);
        let require = require(fields);
        (&["auth", "require"], auth.map(|auth| Guard::Auth(Identified { auth, require })))
    } else if let Some((key, items)) = ["any", "all"].iter().find_map(|key| Some((*key, fields.get(key)?))) {
        let guards = several(key, items, auths, depth);
        (if key == "any" { &["any"] } else { &["all"] }, guards)
    } else {
        (&["query", "header", "secret", "from", "status"], secret(cursor, fields))
    };
    for field in fields.iter().filter(|field| !goes_with.contains(&field.key)) {
        if GUARD.keys.iter().any(|known| known.name == field.key) {
            field.wrong(format!("guard: {} does not go with {}", field.key, goes_with[0]));
        }
    }
    guard
}

/// Reads the guards of `any` or `all`.
fn several(key: &str, cursor: Cursor<'_>, auths: &[Auth], depth: usize) -> Option<Guard> {
    let items = cursor.items(&format!("guard: {key} must be an array of guards, not {}", cursor.node.kind()));
    if !matches!(cursor.node.data, Data::Array(_)) {
        return None;
    }
    if items.is_empty() || depth == DEPTH_MAX {
        cursor.wrong(match items.is_empty() {
            true => format!("guard: {key} needs at least one guard"),
            false => format!("guard: guards may stand {DEPTH_MAX} deep at most"),
        });
        return None;
    }
    let guards: Option<Vec<_>> = items.into_iter().map(|item| read_within(item, auths, depth + 1)).collect();
    Some(if key == "any" { Guard::Any(guards?) } else { Guard::All(guards?) })
}

/// `require = { role = "admin", plan = ["pro", "team"] }`
fn require(fields: Fields<'_>) -> Vec<(String, Vec<String>)> {
    let Some(cursor) = fields.get("require") else { return Vec::new() };
    let texts = |node: &Node| match &node.data {
        Data::Array(items) if !items.is_empty() => items.iter().map(text).collect(),
        _ => text(node).map(|text| vec![text]),
    };
    let read = |field: Field<'_>| Some((field.key.to_owned(), field.value.read("require", texts)?));
    cursor.table("require").iter().filter_map(read).collect()
}

fn secret(cursor: Cursor<'_>, fields: Fields<'_>) -> Option<Guard> {
    let query = fields.read("query", name).map(SecretPlace::Query);
    let header = fields.read("header", |node| {
        let name = name(node)?;
        check_header_name(&name).map(|()| SecretPlace::Header(name))
    });
    let secret = fields.read("secret", text);
    let from =
        fields.read("from", choice(&[("anywhere", GuardFrom::Anywhere), ("outside", GuardFrom::Outside)]));
    let status = fields.read("status", |node| match integer(400, 499)(node) {
        Ok(status @ (401 | 403 | 404)) => Ok(status as u16),
        _ => Err("must be 404, 401 or 403".into()),
    });
    if fields.has("query") == fields.has("header") {
        cursor.wrong("guard: where is the secret? one of query = \"name\" and header = \"Name\"");
    }
    if !fields.has("secret") {
        cursor.wrong(
            "guard needs `secret`, such as secret = \"${SECRET:-}\" (empty: no request from there is admitted)",
        );
    }
    Some(Guard::Secret(Secret {
        place: query.or(header)?,
        secret: secret?,
        from: from.unwrap_or(GuardFrom::Anywhere),
        status: status.unwrap_or(404),
        line: cursor.line(),
    }))
}
