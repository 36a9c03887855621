//! Errors for clients: RFC 9457 problem details that name the parameter at fault.

use forebay_http::{BodyBroken, Reject};
use forebay_value::{Invalid, json};

/// An error answer to one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The HTTP status.
    pub status: u16,
    /// One sentence for the client.
    pub detail: String,
    /// The parameter at fault.
    pub parameter: Option<String>,
    /// The constraint of the database that refused the request.
    pub constraint: Option<String>,
    /// Header fields of this answer only (Retry-After, Allow).
    pub headers: Vec<(&'static str, String)>,
    /// The log position that this answer depends on (a 404 that a delete not yet durable caused); 0 for none.
    pub mark: u64,
}

impl From<BodyBroken> for Problem {
    fn from(broken: BodyBroken) -> Problem {
        let Reject { status, detail } = broken.reject();
        match status {
            503 => Problem::unavailable(detail),
            status => Problem::new(status, detail),
        }
    }
}

impl Problem {
    /// A problem with this status and sentence.
    pub fn new(status: u16, detail: impl Into<String>) -> Problem {
        Problem {
            status,
            detail: detail.into(),
            parameter: None,
            constraint: None,
            headers: Vec::new(),
            mark: 0,
        }
    }

    /// 400: this parameter is wrong; `what` continues "`name` …".
    pub fn parameter(name: &str, what: impl std::fmt::Display) -> Problem {
        Problem { parameter: Some(name.into()), ..Problem::new(400, format!("`{name}` {what}")) }
    }

    /// 400 when this value has not the parameter's type, 422 when it has but is not allowed.
    pub fn invalid(name: &str, invalid: &Invalid) -> Problem {
        let status = if invalid.is_beyond { 422 } else { 400 };
        Problem { status, ..Problem::parameter(name, invalid) }
    }

    /// 404 with the sentence of the endpoint.
    pub fn not_found(detail: &str) -> Problem {
        Problem::new(404, detail)
    }

    /// 503: try again after a second.
    pub fn unavailable(detail: impl Into<String>) -> Problem {
        Problem { headers: vec![("Retry-After", "1".into())], ..Problem::new(503, detail) }
    }

    /// 413.
    pub fn body_too_large() -> Problem {
        Problem::new(413, "the request body is too large")
    }

    /// 503 for a write that may have been done, or will be: without Retry-After, because a repeated write may
    /// be done twice.
    pub fn outcome_unknown(detail: impl std::fmt::Display) -> Problem {
        Problem::new(503, format!("outcome unknown: {detail}"))
    }

    /// 405 with the methods of the route.
    pub fn method_not_allowed(allow: &str) -> Problem {
        let detail = format!("this route answers {allow}");
        Problem { headers: vec![("Allow", allow.into())], ..Problem::new(405, detail) }
    }

    /// The same problem, held until the log is durable up to `mark`.
    pub fn held_until(mut self, mark: u64) -> Problem {
        self.mark = mark;
        self
    }

    /// Appends the JSON body.
    pub fn write(&self, out: &mut Vec<u8>) {
        let members = [("parameter", &self.parameter), ("constraint", &self.constraint)];
        let given = members.iter().filter_map(|(name, value)| Some((*name, value.as_deref()?)));
        write_problem(self.status, &self.detail, given, out);
    }
}

/// Appends a problem document; `members` are extension members.
pub fn write_problem<'a>(
    status: u16,
    detail: &str,
    members: impl IntoIterator<Item = (&'a str, &'a str)>,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(b"{\"type\":\"about:blank\",\"title\":");
    json::write_string(forebay_http::reason(status), out);
    out.extend_from_slice(b",\"status\":");
    json::write_integer(status.into(), out);
    out.extend_from_slice(b",\"detail\":");
    json::write_string(detail, out);
    for (name, value) in members {
        out.push(b',');
        json::write_string(name, out);
        out.push(b':');
        json::write_string(value, out);
    }
    out.push(b'}');
}
