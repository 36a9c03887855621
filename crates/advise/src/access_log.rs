//! Lines of an access log: the combined and the common format of Apache and nginx, and Forebay's own JSON.

use jiff::Timestamp;
use jiff::fmt::strtime;
use serde_json::Value;

/// One request that was logged.
#[derive(Debug, Clone, PartialEq)]
pub struct Logged {
    /// The time, in milliseconds since the epoch.
    pub at_ms: i64,
    /// The method, as in the request line.
    pub method: String,
    /// Path and query. If the log replaces the query by a number, that number stands for it.
    pub target: String,
    /// The status of the answer.
    pub status: u16,
    /// The bytes of its body.
    pub bytes: u64,
    /// The duration, if it is logged.
    pub duration_ms: Option<f64>,
    /// Whether the log names the user.
    pub is_identified: bool,
}

/// Reads a line; `None` if the line is not a request: another event, or another format.
pub fn read(line: &str) -> Option<Logged> {
    if line.starts_with('{') { json(line) } else { combined(line) }
}

fn json(line: &str) -> Option<Logged> {
    let event: Value = serde_json::from_str(line).ok()?;
    let text = |name: &str| event.get(name).and_then(Value::as_str);
    let time: Timestamp = text("time")?.parse().ok()?;
    let (path, query) = (text("path")?, text("query"));
    Some(Logged {
        at_ms: time.as_millisecond(),
        method: text("method")?.to_owned(),
        target: query.map_or_else(|| path.to_owned(), |query| format!("{path}?{query}")),
        status: event.get("status")?.as_u64()?.try_into().ok()?,
        bytes: event.get("bytes").and_then(Value::as_u64).unwrap_or_default(),
        duration_ms: event.get("duration_ms").and_then(Value::as_f64),
        is_identified: text("identity").is_some(),
    })
}

/// `host ident user [10/Oct/2000:13:55:36 -0700] "GET /a HTTP/1.1" 200 2326 "referer" "agent"`, and any
/// fields behind it; nginx's `$request_time` (seconds) is read there if it is the only number with a decimal
/// point.
fn combined(line: &str) -> Option<Logged> {
    let (before, rest) = line.split_once(" [")?;
    let (time, rest) = rest.split_once("] \"")?;
    let time = strtime::parse("%d/%b/%Y:%H:%M:%S %z", time).ok()?.to_timestamp().ok()?;
    let (request, rest) = rest.split_once("\" ")?;
    let mut request = request.split(' ');
    let (method, target) = (request.next()?, request.next()?);
    let mut words = rest.split(' ');
    let status = words.next()?.parse().ok()?;
    let bytes = words.next().and_then(|bytes| bytes.parse().ok()).unwrap_or_default();
    // Quoted fields may contain anything.
    let unquoted = rest.split('"').step_by(2).skip(1).flat_map(str::split_whitespace);
    let mut seconds = unquoted.filter(|word| word.contains('.')).filter_map(|word| word.parse::<f64>().ok());
    let duration_ms = seconds.next().filter(|_| seconds.next().is_none()).map(|seconds| seconds * 1e3);
    let user = before.split(' ').nth(2).unwrap_or("-");
    let is_request = method.bytes().all(|byte| byte.is_ascii_uppercase()) && target.starts_with('/');
    is_request.then(|| Logged {
        at_ms: time.as_millisecond(),
        method: method.to_owned(),
        target: target.to_owned(),
        status,
        bytes,
        duration_ms,
        is_identified: user != "-",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logged(duration_ms: Option<f64>, is_identified: bool) -> Logged {
        Logged {
            at_ms: 971_211_336_000,
            method: "GET".into(),
            target: "/items/7?a=b".into(),
            status: 200,
            bytes: 2326,
            duration_ms,
            is_identified,
        }
    }

    #[test]
    fn lines_of_every_format() {
        let request = "[10/Oct/2000:13:55:36 -0700] \"GET /items/7?a=b HTTP/1.0\" 200 2326";
        for (line, expected) in [
            (format!("127.0.0.1 - - {request}"), Some(logged(None, false))),
            (format!("127.0.0.1 - ann {request} \"http://x/ 1.5\" \"curl/8 (x)\""), Some(logged(None, true))),
            (format!("127.0.0.1 - - {request} \"-\" \"curl/8\" 0.012"), Some(logged(Some(12.0), false))),
            (format!("127.0.0.1 - - {request} \"-\" \"curl/8\" 0.012 0.011"), Some(logged(None, false))),
            (
                r#"{"time":"2000-10-10T20:55:36Z","level":"info","message":"request","method":"GET","route":"GET /items/{id}","path":"/items/7?a=b","status":200,"bytes":2326,"duration_ms":1.5,"client":"::1"}"#.into(),
                Some(logged(Some(1.5), false)),
            ),
            (
                r#"{"time":"2000-10-10T20:55:36Z","level":"info","message":"request","method":"GET","path":"/items/7","status":200,"bytes":2326,"duration_ms":1.5,"client":"::1","query":"a=b"}"#.into(),
                Some(logged(Some(1.5), false)),
            ),
            (r#"{"time":"2000-10-10T20:55:36Z","level":"warn","message":"other"}"#.into(), None),
            ("127.0.0.1 - - [10/Oct/2000:13:55:36 -0700] \"\\x16\\x03\" 400 0".into(), None),
            ("anything else".into(), None),
            (String::new(), None),
            ("{".into(), None),
        ] {
            assert_eq!(read(&line), expected, "{line}");
        }
    }
}
