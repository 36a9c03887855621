//! Compiles the headers that answers carry for browsers.

use crate::endpoint::answer_headers::{AnswerHeaders, Cors};
use crate::endpoint::guard::Guard;
use forebay_config::model;
use forebay_http::HeaderLines;
use http::header::HeaderName;

/// The headers that `security_headers = true` sets.
const SECURITY: [(&str, &str); 3] = [
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "SAMEORIGIN"),
    ("Referrer-Policy", "strict-origin-when-cross-origin"),
];
/// The headers that it sets on answers over https (RFC 6797 section 7.2).
const SECURE: [(&str, &str); 1] = [("Strict-Transport-Security", "max-age=31536000")];
/// The headers that only `cors` sets.
const CORS: [&str; 6] = [
    "access-control-allow-origin",
    "access-control-allow-credentials",
    "access-control-allow-headers",
    "access-control-allow-methods",
    "access-control-expose-headers",
    "access-control-max-age",
];

/// The browser headers of an endpoint's answers; `None`: there are none.
pub fn compile(endpoint: &model::Endpoint, guard: Option<&Guard>) -> Option<AnswerHeaders> {
    let mut readable = vec!["Content-Type"];
    readable.extend(guard.map(Guard::identifying).unwrap_or_default());
    readable.extend(endpoint.headers.iter().map(|(header, _)| header.as_str()));
    answer_headers(&endpoint.answer_headers, readable)
}

/// The browser headers of answers outside every endpoint, such as 404.
pub fn of_server(model: &model::AnswerHeaders) -> Option<AnswerHeaders> {
    answer_headers(model, Vec::new())
}

/// The names of the fields that these headers set; the same fields of an upstream's answer are replaced.
pub fn names(model: &model::AnswerHeaders) -> Vec<HeaderName> {
    let mut names: Vec<_> = model.headers.iter().map(|(name, _)| name.as_str()).collect();
    if model.security {
        names.extend(SECURITY.iter().chain(&SECURE).map(|(name, _)| name));
    }
    if model.cors.is_some() {
        names.extend(CORS);
    }
    names
        .into_iter()
        .map(|name| HeaderName::from_bytes(name.as_bytes()).expect("names were checked"))
        .collect()
}

fn answer_headers<'a>(model: &'a model::AnswerHeaders, readable: Vec<&'a str>) -> Option<AnswerHeaders> {
    if *model == model::AnswerHeaders::default() {
        return None;
    }
    let own = model.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let is_own = |name: &str| model.headers.iter().any(|(own, _)| own.eq_ignore_ascii_case(name));
    let usual = |usual: &[(&'static str, &'static str)]| -> Vec<_> {
        usual.iter().copied().filter(|(name, _)| model.security && !is_own(name)).collect()
    };
    Some(AnswerHeaders {
        lines: lines(usual(&SECURITY).into_iter().chain(own)),
        secure_lines: lines(usual(&SECURE)),
        cors: model.cors.as_ref().map(|model| cors(model, readable)),
    })
}

fn cors<'a>(model: &'a model::Cors, mut readable: Vec<&'a str>) -> Cors {
    readable.extend(model.headers.iter().map(String::as_str));
    readable.sort_unstable_by_key(|name| name.to_ascii_lowercase());
    readable.dedup_by(|a, b| a.eq_ignore_ascii_case(b));
    let (readable, expose) = (readable.join(", "), model.expose.join(", "));
    let max_age_s = (model.max_age_ms / 1000).to_string();
    let mut answer = Vec::new();
    answer.extend(model.credentials.then_some(("Access-Control-Allow-Credentials", "true")));
    answer.extend((!expose.is_empty()).then_some(("Access-Control-Expose-Headers", expose.as_str())));
    let preflight =
        [("Access-Control-Allow-Headers", readable.as_str()), ("Access-Control-Max-Age", max_age_s.as_str())];
    Cors { origins: model.origins.clone(), lines: lines(answer), preflight_lines: lines(preflight) }
}

fn lines<'a>(fields: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in fields {
        HeaderLines::new(&mut out).add(name, value).expect("fields were checked");
    }
    out
}
