//! The requests of a plan, compiled: the fixed parts are built once, and the hot path fills the
//! placeholders.

use super::clients::Clients;
use super::file::{Plan, PlannedEndpoint};
use super::rows::Rows;
use super::template::{Template, below};
use crate::mistyped::Mistyped;
use crate::recorder::Kind;
use crate::response::Response;
use crate::target::Target;
use crate::traffic::Traffic;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::sync::Arc;

/// Longest cycle of endpoints: weights are reduced to it.
const CYCLE_MAX: u64 = 10_000;

/// One endpoint's request.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Request {
    kind: Kind,
    /// Whether a request without a body sends `Content-Length: 0` (RFC 9110, 8.6).
    expects_body: bool,
    /// Request line and fields, without the length of the body and the empty line.
    head: Template,
    body: Option<Template>,
    /// The whole request, when it has no placeholders.
    whole: Option<Vec<u8>>,
    /// Whether the client sends the validator that it has for the same URL.
    validates: bool,
}

/// What the workers of a run send. Self-contained, so that it can be sent to agents: all files have been
/// read.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Requests {
    requests: Vec<Request>,
    rows: Vec<Rows>,
    /// The order of the requests: in a cycle each occurs as often as its weight says, evenly spread.
    cycle: Vec<u16>,
    seed: u64,
}

impl Requests {
    /// The requests of a plan, sent to `target`, whose path is prefixed to those of the endpoints.
    pub fn of_plan(plan: &Plan, target: &Target) -> Result<Requests, Mistyped> {
        let seed = plan.seed.unwrap_or_else(rand::random);
        let mut requests = Requests { requests: Vec::new(), rows: Vec::new(), cycle: Vec::new(), seed };
        let before = target.path.trim_end_matches('/');
        for endpoint in &plan.endpoints {
            let path = format!("{before}{}", endpoint.path);
            requests.add(plan, endpoint, &path, target)?;
        }
        let weights: Vec<u64> = plan.endpoints.iter().map(|endpoint| endpoint.weight).collect();
        requests.cycle = cycle(&weights)?;
        Ok(requests)
    }

    /// One request over and over.
    pub fn single(
        target: &Target,
        method: &str,
        headers: &[(String, String)],
        body: Option<&[u8]>,
    ) -> Result<Requests, Mistyped> {
        let path = &target.path;
        let mut bytes = head(method, path, &[headers], target, body.is_some())?.into_bytes();
        end_head(&mut bytes, expects_body(method), body.map(<[u8]>::len));
        bytes.extend_from_slice(body.unwrap_or_default());
        let shown = path.split('?').next().unwrap_or(path);
        let kind = Kind::named(format!("{method} {shown}"));
        let expects_body = expects_body(method);
        let request = Request {
            kind,
            expects_body,
            head: Template::default(),
            body: None,
            whole: Some(bytes),
            validates: false,
        };
        Ok(Requests { requests: vec![request], rows: Vec::new(), cycle: vec![0], seed: 0 })
    }

    fn add(
        &mut self,
        plan: &Plan,
        endpoint: &PlannedEndpoint,
        path: &str,
        target: &Target,
    ) -> Result<(), Mistyped> {
        let method = &endpoint.method;
        let wrong =
            |why: Mistyped| why.at(format_args!("endpoint `{}` (line {})", endpoint.name, endpoint.line));
        if !path.starts_with('/') || path.contains(' ') {
            return Err(wrong(format!("the path `{path}` must begin with / and have no spaces").into()));
        }
        let lists = [plan.headers.as_slice(), endpoint.headers.as_slice()];
        let text = head(method, path, &lists, target, endpoint.body.is_some()).map_err(wrong)?;
        // The head has several lines, so each line is checked: a filled value must not contain a
        // line break.
        for line in text.split("\r\n") {
            let line = Template::parse(line, &plan.folder, &mut self.rows).map_err(wrong)?;
            if !line.is_one_line(&self.rows) {
                return Err(wrong("line breaks are not possible in a path or a header".into()));
            }
        }
        let head = Template::parse(&text, &plan.folder, &mut self.rows).map_err(wrong)?;
        let parse = |body: &String| Template::parse(body, &plan.folder, &mut self.rows).map_err(wrong);
        let body = endpoint.body.as_ref().map(parse).transpose()?;
        let kind = Kind { name: endpoint.name.clone(), expected: endpoint.expect.clone() };
        let validates = endpoint.validate;
        if validates && text.to_ascii_lowercase().contains("\r\nif-none-match:") {
            return Err(wrong("`validate` sends If-None-Match by itself; leave the header out".into()));
        }
        let expects_body = expects_body(method);
        let mut request = Request { kind, expects_body, head, body, whole: None, validates };
        let is_fixed = request.head.is_fixed() && request.body.as_ref().is_none_or(Template::is_fixed);
        if is_fixed && !validates {
            let mut bytes = Vec::new();
            let mut filling = Filling::new(0, &[]);
            request.write(&mut bytes, &mut filling, &[], |_| None);
            request.whole = Some(bytes);
        }
        self.requests.push(request);
        Ok(())
    }

    /// The same requests with different random values, for agent `index` of a run. The agent also
    /// begins at a different endpoint.
    pub(crate) fn for_agent(&self, index: u64) -> Requests {
        let mut own = self.clone();
        own.seed = own.seed.wrapping_add(index << 32);
        let by = index as usize % own.cycle.len();
        own.cycle.rotate_left(by);
        own
    }

    /// Whether every index is valid: the requests may have been received from a controller.
    pub(crate) fn is_sound(&self) -> bool {
        let templates = self.requests.iter().flat_map(|one| one.body.iter().chain([&one.head]));
        !self.cycle.is_empty()
            && self.cycle.iter().all(|place| usize::from(*place) < self.requests.len())
            && self.rows.iter().all(Rows::is_sound)
            && templates.into_iter().all(|template| template.is_sound(&self.rows))
    }

    /// For one worker.
    pub fn traffic(self: &Arc<Requests>, worker: usize) -> PlanTraffic {
        let filling = Filling::new(self.seed.wrapping_add(worker as u64), &self.rows);
        // Workers begin at different places, so that they do not all send the same kind at once.
        let next = worker * 7919 % self.cycle.len();
        let clients = self.requests.iter().any(|request| request.validates).then(Clients::default);
        PlanTraffic { requests: self.clone(), next, kind: 0, filling, clients }
    }
}

/// Random values, and room for a body.
struct Filling {
    random: SmallRng,
    /// Makes this sender's client numbers differ from those of other senders.
    sender: u64,
    client: u64,
    chosen: Vec<usize>,
    body: Vec<u8>,
}

impl Filling {
    fn new(seed: u64, rows: &[Rows]) -> Filling {
        Filling {
            random: SmallRng::seed_from_u64(seed),
            sender: seed,
            client: 0,
            chosen: vec![0; rows.len()],
            body: Vec::new(),
        }
    }
}

impl Request {
    /// Appends the request. `known` returns the validator that the client has for the URL of this request
    /// line.
    fn write<'a>(
        &self,
        out: &mut Vec<u8>,
        filling: &mut Filling,
        rows: &[Rows],
        known: impl FnOnce(&[u8]) -> Option<&'a [u8]>,
    ) {
        let from = out.len();
        for (place, file) in filling.chosen.iter_mut().zip(rows) {
            *place = below(&mut filling.random, file.count() as u64) as usize;
        }
        self.head.write(out, &mut filling.random, rows, &filling.chosen, filling.client);
        let line = out[from..].split(|byte| *byte == b'\r').next().unwrap_or_default();
        if let Some(validator) = known(line) {
            out.extend_from_slice(b"If-None-Match: ");
            out.extend_from_slice(validator);
            out.extend_from_slice(b"\r\n");
        }
        let length = self.body.as_ref().map(|body| {
            filling.body.clear();
            body.write(&mut filling.body, &mut filling.random, rows, &filling.chosen, filling.client);
            filling.body.len()
        });
        end_head(out, self.expects_body, length);
        if length.is_some() {
            out.extend_from_slice(&filling.body);
        }
    }
}

/// The requests of a plan at one worker.
pub struct PlanTraffic {
    requests: Arc<Requests>,
    next: usize,
    kind: usize,
    filling: Filling,
    /// The clients' validators, when some request validates.
    clients: Option<Clients>,
}

impl Traffic for PlanTraffic {
    fn request(&mut self, connection: usize, out: &mut Vec<u8>) {
        let requests = &*self.requests;
        self.kind = usize::from(requests.cycle[self.next]);
        self.next = if self.next + 1 == requests.cycle.len() { 0 } else { self.next + 1 };
        let request = &requests.requests[self.kind];
        if request.whole.is_none() {
            self.filling.client = mixed(self.filling.sender ^ mixed(connection as u64));
        }
        match (&request.whole, &mut self.clients) {
            (whole, Some(clients)) if !request.validates => {
                clients.record_plain(connection);
                match whole {
                    Some(bytes) => out.extend_from_slice(bytes),
                    None => request.write(out, &mut self.filling, &requests.rows, |_| None),
                }
            }
            (_, Some(clients)) => {
                request.write(out, &mut self.filling, &requests.rows, |line| {
                    clients.record_validated(connection, line)
                });
            }
            (Some(bytes), None) => out.extend_from_slice(bytes),
            (None, None) => request.write(out, &mut self.filling, &requests.rows, |_| None),
        }
    }

    fn kind(&self) -> usize {
        self.kind
    }

    fn kinds(&self) -> Vec<Kind> {
        self.requests.requests.iter().map(|request| request.kind.clone()).collect()
    }

    fn reads_answers(&self) -> bool {
        self.clients.is_some()
    }

    fn response(&mut self, connection: usize, response: &Response<'_>) {
        if let Some(clients) = &mut self.clients {
            clients.answered(connection, response);
        }
    }

    fn lost(&mut self, connection: usize, _unanswered: usize) {
        if let Some(clients) = &mut self.clients {
            clients.lost(connection);
        }
    }
}

/// A well-mixed hash of a number (SplitMix64's last step).
pub(super) fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

fn expects_body(method: &str) -> bool {
    !matches!(method, "GET" | "HEAD" | "DELETE" | "OPTIONS")
}

/// Request line and fields; later lists win over earlier ones, and both over the default fields.
fn head(
    method: &str,
    path: &str,
    lists: &[&[(String, String)]],
    target: &Target,
    has_body: bool,
) -> Result<String, Mistyped> {
    let token = |text: &str| {
        !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
    };
    if !token(method) {
        return Err(format!("`{method}` is no method").into());
    }
    let mut fields: Vec<(&str, &str)> = Vec::new();
    let authority = target.authority();
    fields.push(("Host", &authority));
    if has_body {
        fields.push(("Content-Type", "application/json"));
    }
    for (name, value) in lists.iter().copied().flatten() {
        if !token(name) || value.contains(['\r', '\n']) {
            return Err(format!("`{name}: {value}` is no header").into());
        }
        if name.eq_ignore_ascii_case("content-length") || name.eq_ignore_ascii_case("transfer-encoding") {
            return Err(format!("`{name}` follows from the body; leave it out").into());
        }
        fields.retain(|(before, _)| !before.eq_ignore_ascii_case(name));
        fields.push((name, value));
    }
    let mut text = format!("{method} {path} HTTP/1.1\r\n");
    for (name, value) in fields {
        text += &format!("{name}: {value}\r\n");
    }
    Ok(text)
}

fn end_head(out: &mut Vec<u8>, expects_body: bool, body_bytes: Option<usize>) {
    if body_bytes.is_some() || expects_body {
        // Writing into memory does not fail.
        let _ = write!(out, "Content-Length: {}\r\n", body_bytes.unwrap_or(0));
    }
    out.extend_from_slice(b"\r\n");
}

/// Smooth weighted round robin: in each turn every entry's credit grows by its weight; the entry
/// with the highest credit is taken and its credit falls by the sum of the weights.
fn cycle(weights: &[u64]) -> Result<Vec<u16>, Mistyped> {
    let divisor = weights.iter().copied().fold(0, gcd).max(1);
    let weights: Vec<i64> = weights.iter().map(|weight| (weight / divisor) as i64).collect();
    let sum: i64 = weights.iter().sum();
    if !(1..=CYCLE_MAX as i64).contains(&sum) {
        return Err(format!("the weights must not add up to more than {CYCLE_MAX}").into());
    }
    let mut wealth = vec![0; weights.len()];
    let turn = |_| {
        wealth.iter_mut().zip(&weights).for_each(|(own, weight)| *own += weight);
        let richest = (0..wealth.len()).rev().max_by_key(|place| wealth[*place]).unwrap_or(0);
        wealth[richest] -= sum;
        richest as u16
    };
    Ok((0..sum).map(turn).collect())
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn proportions_are_exact() {
        assert_eq!(cycle(&[1, 2, 2]).unwrap(), [1, 2, 0, 1, 2]);
        assert_eq!(cycle(&[300, 100]).unwrap(), [0, 0, 1, 0]);
        assert!(cycle(&[20_001, 1]).is_err());
    }

    fn written(plan: &str) -> Result<Vec<String>, Mistyped> {
        let plan = Plan::parse("p.toml", plan, Path::new("."))?;
        let target = Target::parse("http://h:1/base/").unwrap();
        let mut traffic = Arc::new(Requests::of_plan(&plan, &target)?).traffic(0);
        let mut write = |_| {
            let mut out = Vec::new();
            traffic.request(0, &mut out);
            String::from_utf8(out).unwrap()
        };
        Ok((0..2).map(&mut write).collect())
    }

    #[test]
    fn requests_of_a_plan() {
        let all = written(
            "seed = 1\nheaders = { A = 'b' }\n[[endpoint]]\npath = '/x?n={random_int(5,5)}'\nheaders = { a = '{pick(c)}' }\n\
             [[endpoint]]\nmethod = 'POST'\npath = '/y'\nbody = '{\"n\":{random_int(10,10)}}'",
        )
        .unwrap();
        assert_eq!(all[0], "GET /base/x?n=5 HTTP/1.1\r\nHost: h:1\r\na: c\r\n\r\n");
        let post = "POST /base/y HTTP/1.1\r\nHost: h:1\r\nContent-Type: application/json\r\nA: b\r\nContent-Length: 8\r\n\r\n{\"n\":10}";
        assert_eq!(all[1], post);
        for (plan, why) in [
            ("[[endpoint]]\npath = '/a b'", "no spaces"),
            ("[[endpoint]]\npath = '/'\nheaders = { 'a b' = 'c' }", "is no header"),
            ("[[endpoint]]\npath = '/'\nheaders = { Content-Length = '5' }", "leave it out"),
            (
                "[[endpoint]]\npath = '/'\nvalidate = true\nheaders = { if-none-match = '*' }",
                "by itself; leave the header out",
            ),
            ("[[endpoint]]\npath = '/{uid()}'", "did you mean `uuid`?"),
        ] {
            let error = written(plan).unwrap_err().to_string();
            assert!(error.contains(why), "{plan}: {error}");
        }
    }

    #[test]
    fn clients_send_what_they_have() {
        let plan = "[[endpoint]]\npath = '/a/{client_int(1,1000)}'\nvalidate = true\n[[endpoint]]\nmethod = 'PUT'\npath = '/b'";
        let plan = Plan::parse("p.toml", plan, Path::new(".")).unwrap();
        let target = Target::parse("http://h:1/").unwrap();
        let mut traffic = Arc::new(Requests::of_plan(&plan, &target).unwrap()).traffic(0);
        assert!(traffic.reads_answers());
        let mut send = |client: usize, etag: Option<&str>| {
            let mut out = Vec::new();
            traffic.request(client, &mut out);
            let field = etag.map_or_else(String::new, |etag| format!("ETag: {etag}\r\n"));
            let head = format!("HTTP/1.1 200 OK\r\n{field}\r\n");
            traffic.response(client, &Response { status: 200, head: head.as_bytes(), body: b"" });
            String::from_utf8(out).unwrap()
        };
        let first = send(7, Some("W/\"1\""));
        assert!(!first.contains("If-None-Match"), "{first}");
        assert_eq!(send(7, None), "PUT /b HTTP/1.1\r\nHost: h:1\r\nContent-Length: 0\r\n\r\n");
        let again = send(7, None);
        assert_eq!(again, first.replace("\r\n\r\n", "\r\nIf-None-Match: W/\"1\"\r\n\r\n"), "the same URL");
        send(7, None);
        let other = send(8, None);
        assert!(!other.contains("If-None-Match") && other != first, "{other}");
    }
}
