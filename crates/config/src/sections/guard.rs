//! `guard = { … }`, of an endpoint or of the server: who may call.

use crate::syntax::fields::{Cursor, choice, integer, name, text};
use crate::syntax::keys::{Section, keys};
use crate::syntax::words::check_header_name;

pub(crate) const GUARD: Section = Section {
    name: "guard",
    keys: keys! {
        "query" | "name" | "" | "the query parameter that holds the secret"
        "header" | "name" | "" | "the header field that holds the secret; one of the two"
        "secret" | "text" | "" |
            "the secret, usually \"${VARIABLE:-}\"; an empty one lets in nobody whom the guard stops"
        "from" | "\"anywhere\" or \"outside\"" | "\"anywhere\"" |
            "whom it stops: everybody, or all but programs on this machine that ask without a proxy"
        "status" | "404, 401 or 403" | "404" | "what those get who do not know the secret"
    },
};

/// Who may call an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guard {
    /// Where the secret is to be found.
    pub place: Place,
    /// The secret; empty: nobody whom the guard stops gets in.
    pub secret: String,
    /// Whom the guard stops.
    pub from: From,
    /// What those see: 404, 401 or 403.
    pub status: u16,
    /// The line of its table.
    pub line: usize,
}

/// Where a secret is to be found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// `query = "name"`: a query parameter.
    Query(String),
    /// `header = "Name"`: a header field.
    Header(String),
}

/// Whom a guard stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// `from = "anywhere"`: everybody.
    Anywhere,
    /// `from = "outside"`: everybody but programs on this machine that ask without a proxy.
    Outside,
}

/// A guard.
pub(crate) fn read(cursor: Cursor<'_>) -> Option<Guard> {
    let fields = cursor.section(&GUARD);
    let query = fields.read("query", name).map(Place::Query);
    let header = fields.read("header", |node| {
        let name = name(node)?;
        check_header_name(&name).map(|()| Place::Header(name))
    });
    let secret = fields.read("secret", text);
    let from = fields.read("from", choice(&[("anywhere", From::Anywhere), ("outside", From::Outside)]));
    let status = fields.read("status", |node| match integer(400, 499)(node) {
        Ok(status @ (401 | 403 | 404)) => Ok(status as u16),
        _ => Err("must be 404, 401 or 403".into()),
    });
    if fields.has("query") == fields.has("header") {
        cursor.wrong("guard: where is the secret? one of query = \"name\" and header = \"Name\"");
    }
    if !fields.has("secret") {
        cursor.wrong(
            "guard needs `secret`, such as secret = \"${SECRET:-}\" (empty: nobody from there gets in)",
        );
    }
    Some(Guard {
        place: query.or(header)?,
        secret: secret?,
        from: from.unwrap_or(From::Anywhere),
        status: status.unwrap_or(404),
        line: cursor.line(),
    })
}
