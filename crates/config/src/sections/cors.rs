//! `cors = { … }`: which web pages may read answers. Also the other headers for browsers: `answer_headers`,
//! `security_headers`.

use crate::syntax::fields::{
    Cursor, Fields, check_header_name, flag, header_names, milliseconds_or_none, text,
};
use crate::syntax::keys::{Section, keys};
use crate::syntax::mistakes::Mistake;
use crate::syntax::tree::{Data, Node};

/// Default for `max_age`.
const MAX_AGE_MS: u64 = 600_000;

pub(crate) const CORS: Section = Section {
    name: "cors",
    keys: keys! {
        "origins" | "array of origins, or \"*\"" | "" |
            "the origins whose web pages may read answers: `[\"https://app.example\"]`; `*`: all"
        "headers" | "array of header names" | "[]" |
            "request headers that these pages may send, besides Content-Type and those that guard and \
            `headers` of the endpoint read"
        "expose" | "array of header names" | "[]" |
            "answer headers that these pages may read, besides those that browsers always expose"
        "credentials" | "true or false" | "false" |
            "whether these pages may send the browser's cookies and passwords"
        "max_age" | "time" | "\"10m\"" | "how long browsers may cache the answer to a preflight request"
    },
};

/// `cors`: which web pages may read answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cors {
    /// The origins of the pages, as `Origin` names them; `None`: all.
    pub origins: Option<Vec<String>>,
    /// Headers that they may send, besides those that the endpoint is known to read.
    pub headers: Vec<String>,
    /// Headers of answers that they may read.
    pub expose: Vec<String>,
    /// Whether they may send credentials (cookies and similar).
    pub credentials: bool,
    /// How long browsers may cache the permission, in milliseconds.
    pub max_age_ms: u64,
}

/// The header fields of answers that address browsers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AnswerHeaders {
    /// Which web pages may read the answers.
    pub cors: Option<Cors>,
    /// Header fields of every answer.
    pub headers: Vec<(String, String)>,
    /// Whether the answers have the usual security headers.
    pub security: bool,
}

/// Reads `cors`, `answer_headers` and `security_headers`; a missing key has its value in `outer`.
pub(crate) fn read(fields: Fields<'_>, outer: &AnswerHeaders) -> AnswerHeaders {
    let cors = match fields.get("cors") {
        Some(cursor) if cursor.node.data == Data::Bool(false) => None,
        Some(cursor) => read_cors(cursor),
        None => outer.cors.clone(),
    };
    let mut headers = fields.get("answer_headers").map_or_else(Vec::new, read_headers);
    let is_new = |name: &str, headers: &[(String, String)]| {
        !headers.iter().any(|(own, _)| own.eq_ignore_ascii_case(name))
    };
    for (name, value) in &outer.headers {
        if is_new(name, &headers) {
            headers.push((name.clone(), value.clone()));
        }
    }
    AnswerHeaders { cors, headers, security: fields.read("security_headers", flag).unwrap_or(outer.security) }
}

fn read_cors(cursor: Cursor<'_>) -> Option<Cors> {
    let fields = cursor.section(&CORS);
    let origins =
        fields.required("cors", "origins").and_then(|cursor| cursor.read("cors: origins", origins))?;
    let credentials = fields.read("credentials", flag).unwrap_or(false);
    if credentials && origins.is_none() {
        fields.wrong_at(
            "credentials",
            "cors: credentials need named origins: with \"*\" every page could act for its visitors",
        );
    }
    let names = |key: &str| fields.read(key, header_names).unwrap_or_default();
    Some(Cors {
        origins,
        headers: names("headers"),
        expose: names("expose"),
        credentials,
        max_age_ms: fields.read("max_age", milliseconds_or_none).unwrap_or(MAX_AGE_MS),
    })
}

/// `None`: all.
fn origins(node: &Node) -> Result<Option<Vec<String>>, Mistake> {
    let texts = match &node.data {
        Data::Array(items) => items.iter().map(text).collect::<Result<Vec<_>, _>>()?,
        _ => vec![text(node)?],
    };
    if texts == ["*"] {
        return Ok(None);
    }
    if texts.is_empty() {
        return Err("must name at least one origin, or be \"*\"".into());
    }
    texts.iter().map(|text| origin(text)).collect::<Result<_, _>>().map(Some)
}

/// Scheme, host and an optional port, as browsers write them (RFC 6454 section 6.2).
fn origin(text: &str) -> Result<String, Mistake> {
    let host = text.split_once("://").filter(|(scheme, _)| !scheme.is_empty()).map(|(_, host)| host);
    let is_host = |host: &str| {
        !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_graphic() && !b"/?#@*,\"".contains(&byte))
    };
    match host {
        Some(host) if is_host(host) => Ok(text.to_ascii_lowercase()),
        _ => {
            Err(format!("`{text}` must be a scheme and a host, such as https://app.example, without a path")
                .into())
        }
    }
}

/// Fields that the server itself writes where they apply.
const WRITTEN: [&str; 18] = [
    "Age",
    "Allow",
    "Connection",
    "Content-Encoding",
    "Content-Length",
    "Content-Range",
    "Content-Type",
    "Date",
    "ETag",
    "Location",
    "RateLimit",
    "RateLimit-Policy",
    "Retry-After",
    "Trailer",
    "Transfer-Encoding",
    "Upgrade",
    "Vary",
    "WWW-Authenticate",
];

fn read_headers(cursor: Cursor<'_>) -> Vec<(String, String)> {
    let mut headers: Vec<(String, String)> = Vec::new();
    for field in cursor.table("answer_headers").iter().filter(|field| !field.value.is_broken()) {
        let is_written = WRITTEN.iter().any(|name| name.eq_ignore_ascii_case(field.key))
            || field.key.to_ascii_lowercase().starts_with("access-control-");
        let value =
            check_header_name(field.key).and_then(|()| text(field.value.node)).and_then(|value| match value
                .bytes()
                .all(|byte| byte == b' ' || byte.is_ascii_graphic())
            {
                _ if is_written => Err(format!("{} is written by the server", field.key).into()),
                true => Ok(value),
                false => Err(format!("{}: must be ASCII without control characters", field.key).into()),
            });
        match value {
            Ok(_) if headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(field.key)) => {
                field.wrong(format!("answer_headers: {} occurs twice", field.key));
            }
            Ok(value) => headers.push((field.key.to_owned(), value)),
            Err(what) => field.wrong(format!("answer_headers: {what}")),
        }
    }
    headers
}
