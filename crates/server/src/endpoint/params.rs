//! Parameters of a request: where each comes from, its type, and its value when it is missing.
//!
//! A parameter that is not part of the route is looked for in the JSON body, then in the query. All
//! parameters of an endpoint are read once into slots, in the order of their plans, so that a default or a
//! computed parameter can refer to the ones before it.

use super::eval::{Eval, Scope, Slots, coerce};
use super::matched_request::Matched;
use super::pages::has_json_type;
use crate::body;
use crate::handler::{find_queries, find_query};
use crate::problem::Problem;
use fluent_uri::Uri;
use forebay_http::{Method, Request, percent_decode};
use forebay_value::json::write_value;
use forebay_value::{Invalid, Type, Value, from_json, from_text, jsonb};
use serde_json::value::RawValue;
use smallvec::SmallVec;

/// One parameter, compiled.
#[derive(Debug, Clone)]
pub struct ParamPlan {
    /// The name that clients write.
    pub name: String,
    /// Where it comes from.
    pub source: ParamSource,
    /// The type of the value, or of its elements.
    pub ty: Type,
    /// Whether the value is a JSON array.
    pub is_array: bool,
    /// A check besides the type.
    pub check: Check,
    /// What happens when the parameter is missing.
    pub missing: Missing,
}

/// Where a parameter comes from.
#[derive(Debug, Clone)]
pub enum ParamSource {
    /// The n-th parameter of the route.
    Path(usize),
    /// The n-th of the names looked for in the body, then in the query.
    Field(usize),
    /// A header field.
    Header(String),
    /// A claim of the client's identity.
    Claim(String),
    /// An expression.
    Computed(Eval),
    /// The base URL: the configured one, else the client's scheme and the Host of the request.
    BaseUrl(Option<String>),
}

/// What a value must satisfy besides its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// Nothing.
    None,
    /// An absolute http or https URL.
    Url,
    /// At least one character, all of `[A-Za-z0-9_-]`.
    Slug,
    /// A whole number between two bounds, both included.
    Range(i64, i64),
}

/// What happens when a parameter is missing.
#[derive(Debug, Clone)]
pub enum Missing {
    /// 400.
    Refuse,
    /// 400 when missing; 422 when given as null, for a column that does not accept null.
    NotNull,
    Null,
    /// The value of this expression.
    Default(Eval),
}

/// All parameters of an endpoint.
#[derive(Debug, Clone, Default)]
pub struct Params {
    /// The plans in slot order.
    pub plans: Vec<ParamPlan>,
    /// The names looked for in the body and the query.
    pub fields: Vec<String>,
    /// Whether parameters are read from the query only, never from the body.
    pub skips_body: bool,
    /// Whether a body may have no other members.
    pub is_strict: bool,
    /// Whether a body must have a type of JSON: a page of another origin can send any other one.
    pub needs_json_type: bool,
}

/// The longest URL that is accepted, in bytes: a length that browsers and servers support.
const URL_BYTES_MAX: usize = 2048;

impl Params {
    /// Reads every parameter.
    pub fn read(&self, request: &Request<'_>, matched: Matched<'_>) -> Result<Slots, Problem> {
        let mut slots = Slots::default();
        self.read_into(request, matched, &mut slots)?;
        Ok(slots)
    }

    /// Like [`Params::read`], into empty slots.
    pub fn read_into(
        &self,
        request: &Request<'_>,
        matched: Matched<'_>,
        slots: &mut Slots,
    ) -> Result<(), Problem> {
        if self.plans.is_empty() && !self.is_strict {
            return Ok(());
        }
        let mut in_body: SmallVec<[Option<&str>; 16]> = SmallVec::from_elem(None, self.fields.len());
        if (!self.fields.is_empty() || self.is_strict)
            && !self.skips_body
            && !request.body().is_empty()
            && takes_body(request.method())
        {
            if self.needs_json_type && !has_json_type(request) {
                return Err(Problem::new(415, "the body must have the type application/json"));
            }
            match self.is_strict {
                true => body::extract_all(request.body(), &self.fields, &mut in_body)?,
                false => body::extract(request.body(), &self.fields, &mut in_body)?,
            }
        }
        for plan in &self.plans {
            let found = plan.find(request, matched, &in_body, slots)?;
            let given = found.is_some();
            let value = plan.settle(found, slots)?;
            slots.push(value, given);
        }
        Ok(())
    }
}

fn takes_body(method: Method) -> bool {
    !matches!(method, Method::Get | Method::Head)
}

impl ParamPlan {
    /// The value as given (including JSON null); `None` when it is missing.
    fn find(
        &self,
        request: &Request<'_>,
        matched: Matched<'_>,
        in_body: &[Option<&str>],
        slots: &Slots,
    ) -> Result<Option<Value>, Problem> {
        match &self.source {
            ParamSource::Path(index) => {
                let text = percent_decode(matched.path[*index].1)
                    .map_err(|error| Problem::parameter(&self.name, format!("has {error}")))?;
                self.parse_text(&text).map(Some)
            }
            ParamSource::Field(index) if self.is_array => match in_body[*index] {
                Some(raw) => self.array_of_json(raw).map(Some),
                None => self.array_of_query(request.query()),
            },
            ParamSource::Field(index) => match in_body[*index] {
                Some(raw) => from_json(self.ty, raw)
                    .map(Some)
                    .map_err(|invalid| Problem::invalid(&self.name, &invalid)),
                None => match find_query(request.query(), &self.name)? {
                    Some(text) => self.parse_text(&text).map(Some),
                    None => Ok(None),
                },
            },
            ParamSource::Header(header) => match request.header(header).map(std::str::from_utf8) {
                Some(Ok(text)) => self.parse_text(text).map(Some),
                Some(Err(_)) => {
                    Err(Problem::parameter(&self.name, format!("(header {header}) is not UTF-8")))
                }
                None => Ok(None),
            },
            ParamSource::Claim(name) => from_text(self.ty, matched.claim(name)?).map(Some).map_err(|_| {
                Problem::new(403, format!("the client's claim `{name}` is not of type {}", self.ty))
            }),
            ParamSource::Computed(eval) => eval.evaluate(&Scope::new(slots)).map(Some),
            ParamSource::BaseUrl(Some(url)) => Ok(Some(Value::Text(url.as_str().into()))),
            ParamSource::BaseUrl(None) => {
                let scheme = if request.client().is_secure { "https://" } else { "http://" };
                let host = request.host().and_then(|host| std::str::from_utf8(host).ok());
                Ok(Some(Value::Text([scheme, host.unwrap_or_default()].concat().into())))
            }
        }
    }

    fn parse_text(&self, text: &str) -> Result<Value, Problem> {
        from_text(self.ty, text).map_err(|invalid| Problem::invalid(&self.name, &invalid))
    }

    /// The array in a JSON body, or null.
    fn array_of_json(&self, raw: &str) -> Result<Value, Problem> {
        if raw == "null" {
            return Ok(Value::Null);
        }
        let elements: Vec<&RawValue> = serde_json::from_str(raw)
            .map_err(|_| Problem::invalid(&self.name, &Invalid::form("an array")))?;
        let values = elements.into_iter().map(|element| match from_json(self.ty, element.get()) {
            Ok(Value::Null) => Err(Problem::parameter(&self.name, "must not have null in it")),
            read => read.map_err(|invalid| Problem::invalid(&self.name, &invalid)),
        });
        self.array(values)
    }

    /// The array of all values that the query gives under this name; `None` when there are none.
    fn array_of_query(&self, query: Option<&str>) -> Result<Option<Value>, Problem> {
        let mut texts = find_queries(query, &self.name).peekable();
        match texts.peek() {
            None => Ok(None),
            Some(_) => self.array(texts.map(|text| self.parse_text(&text?))).map(Some),
        }
    }

    fn array(&self, values: impl Iterator<Item = Result<Value, Problem>>) -> Result<Value, Problem> {
        let mut text = vec![b'['];
        for value in values {
            if text.len() > 1 {
                text.push(b',');
            }
            write_value(self.checked(value?)?.as_ref(), &mut text);
        }
        text.push(b']');
        Ok(Value::Json(String::from_utf8(text).expect("JSON is UTF-8").into()))
    }

    /// Fills in a missing value and checks a given one.
    fn settle(&self, found: Option<Value>, slots: &Slots) -> Result<Value, Problem> {
        let is_given = found.is_some();
        let value = match (found.unwrap_or(Value::Null), &self.missing) {
            (Value::Null, Missing::NotNull) if is_given => {
                return Err(Problem::invalid(&self.name, &Invalid::null()));
            }
            (Value::Null, Missing::Refuse | Missing::NotNull) => return Err(self.required()),
            (Value::Null, Missing::Null) => return Ok(Value::Null),
            (Value::Null, Missing::Default(eval)) => {
                let value = eval.evaluate(&Scope::new(slots))?;
                coerce(value, self.ty).map_err(|invalid| Problem::invalid(&self.name, &invalid))?
            }
            (value, _) => value,
        };
        self.checked(value)
    }

    #[cold]
    fn required(&self) -> Problem {
        match &self.source {
            ParamSource::Header(header) => {
                Problem::parameter(&self.name, format_args!("is required: send the header {header}"))
            }
            _ => Problem::parameter(&self.name, "is required"),
        }
    }

    /// Checks a value beyond its type; the elements of an array were checked one by one.
    fn checked(&self, value: Value) -> Result<Value, Problem> {
        match (self.check, &value) {
            (Check::Url, Value::Text(text)) if !is_web_url(text) => Err(Problem::parameter(
                &self.name,
                format!(
                    "must be an absolute http or https URL of at most {URL_BYTES_MAX} bytes, other characters percent-encoded"
                ),
            )),
            (Check::Slug, Value::Text(text)) if !is_slug(text) => {
                Err(Problem::parameter(&self.name, "must be letters, digits, - and _, at least one"))
            }
            (Check::Range(low, high), Value::Bigint(number)) if !(low..=high).contains(number) => {
                Err(Problem::parameter(&self.name, format!("must be between {low} and {high}")))
            }
            (_, Value::Json(text)) => {
                jsonb::check_depth(text).map_err(|invalid| Problem::invalid(&self.name, &invalid))?;
                Ok(value)
            }
            _ => Ok(value),
        }
    }
}

fn is_slug(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}

/// Whether this is an absolute http or https URL with a host (RFC 3986; therefore ASCII, and safe in a
/// Location field).
fn is_web_url(text: &str) -> bool {
    text.len() <= URL_BYTES_MAX
        && Uri::parse(text).is_ok_and(|uri| {
            matches!(uri.scheme().as_str().to_ascii_lowercase().as_str(), "http" | "https")
                && uri.authority().is_some_and(|authority| !authority.host().is_empty())
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn web_urls() {
        for (url, expected) in [
            ("https://example.com", true),
            ("HTTP://example.com:8080/a?b=c#d", true),
            ("http://[::1]/", true),
            ("https://example.com/%C3%A9", true),
            ("ftp://example.com", false),
            ("javascript:alert(1)", false),
            ("http:///path", false),
            ("//example.com", false),
            ("/path", false),
            ("example.com", false),
            ("https://exa mple.com", false),
            ("https://example.com/é", false),
            ("https://example.com/\r\nSet-Cookie: a", false),
            ("", false),
        ] {
            assert_eq!(is_web_url(url), expected, "{url:?}");
        }
        assert!(!is_web_url(&format!("https://example.com/{}", "a".repeat(2048))));
    }
}
