//! `[[endpoint]]`: the route and everything around the action.

use super::action::{Scope, action};
use super::cache::{caching, invalidates};
use super::errors::list;
use super::expr;
use super::fields::{Fields, choice, flag, integer, milliseconds, name, text};
use super::keys::{GUARD, REPLY};
use super::model::{
    Action, Constraint, Endpoint, Expr, From, Guard, Literal, Method, Param, ParamKind, ParamType, Per,
    Place, Rate, Reply, TableConfig,
};
use super::params::params;
use super::rate;
use super::read::{At, Data, Mistakes, Node};
use super::values::value;
use forebay_value::Type;

const TIMEOUT_MS: u64 = 30_000;
const CONCURRENCY: usize = 1000;
/// Rows of a page of `list` when the client does not say, and at most.
const LIST_LIMIT: (i64, i64) = (100, 1000);
/// An endpoint with the places that later checks blame.
pub(super) struct Placed {
    pub endpoint: Endpoint,
    pub route_at: At,
    pub reply_at: At,
}

/// All endpoints.
pub(super) fn endpoints(
    node: Option<&Node>,
    tables: &[TableConfig],
    guard: Option<&Guard>,
    mistakes: &Mistakes<'_>,
) -> Vec<Placed> {
    let Some(node) = node else { return Vec::new() };
    let Data::Array(items) = &node.data else {
        mistakes.add(node.at, "endpoint: write [[endpoint]] with two brackets: there may be several");
        return Vec::new();
    };
    items.iter().filter_map(|item| endpoint(item, tables, guard, mistakes)).collect()
}

fn endpoint(
    node: &Node,
    tables: &[TableConfig],
    shared_guard: Option<&Guard>,
    mistakes: &Mistakes<'_>,
) -> Option<Placed> {
    let fields = Fields::of(node, "an endpoint", mistakes);
    let route = fields.read("route", mistakes, route);
    if fields.get("route").is_none() {
        mistakes.add(node.at, "an endpoint needs `route`, such as route = \"GET /codes/{id}\"");
    }
    let path = route.iter().flat_map(|(_, path)| path_params(path)).map(str::to_owned).collect::<Vec<_>>();
    let headers = headers(&fields, mistakes);
    let in_headers = || headers.iter().map(|(_, param)| param.clone());
    let mut params = params(fields.get("params"), &path, mistakes);
    let declared = params.iter().map(|param| param.name.clone()).chain(in_headers()).collect();
    let scope = Scope { tables, path, declared, mistakes };
    let action = action(&fields, false, &scope);
    let guard = match fields.get("guard") {
        Some(node) => guard(node, mistakes),
        None => shared_guard.cloned(),
    };
    let rate = fields.read("rate", mistakes, |node| text(node).and_then(|text| rate::rate(&text)));
    if let (Some(Rate { per: Per::Key, .. }), Some(node), true) =
        (&rate, fields.get("rate"), scope.path.is_empty())
    {
        mistakes.add(node.at, "rate: per key needs a route with a parameter, such as GET /items/{id}");
    }
    let timeout_ms = fields.read("timeout", mistakes, milliseconds).unwrap_or(TIMEOUT_MS);
    let concurrency = fields.read("concurrency", mistakes, integer(1, 10_000_000));
    let batch = fields.read("batch", mistakes, flag).unwrap_or(true);
    let cache = fields.get("cache").and_then(|node| caching(node, route.as_ref(), action.as_ref(), mistakes));
    let invalidates = invalidates(&fields, route.as_ref(), action.as_ref(), mistakes);
    let etag = fields.read("etag", mistakes, flag).unwrap_or(cache.is_some());
    let compress = fields.read("compress", mistakes, flag).unwrap_or(false);
    let reply = reply(fields.get("reply"), action.as_ref(), mistakes);
    let (method, route) = route?;
    let mut action = action?;
    if method == Method::Any && !matches!(action, Action::Proxy(_)) {
        let at = fields.get("route").map_or(node.at, |route| route.at);
        mistakes.add(at, "route: only a proxy can have every method (*); name one");
    }
    match &mut action {
        Action::Redirect { status, .. } => *status = reply.status.unwrap_or(*status),
        Action::List { after, limit, .. } => add_page_params(after, limit, &scope, &mut params),
        _ => {}
    }
    Some(Placed {
        route_at: fields.get("route").map_or(node.at, |route| route.at),
        reply_at: fields.get("reply").map_or(node.at, |reply| reply.at),
        endpoint: Endpoint {
            method,
            route,
            params,
            guard,
            rate,
            headers,
            timeout_ms,
            concurrency: concurrency.map_or(CONCURRENCY, |concurrency| concurrency as usize),
            batch,
            action,
            cache,
            invalidates,
            etag,
            compress,
            reply,
            line: mistakes.line(node.at),
        },
    })
}

/// `METHOD /path`
fn route(node: &Node) -> Result<(Method, String), String> {
    let text = text(node)?;
    let Some((method, path)) = text.trim().split_once(char::is_whitespace) else {
        return Err(format!("`{text}` must be a method and a path, such as \"GET /codes/{{id}}\""));
    };
    let path = path.trim();
    let Some(method) = Method::ALL.iter().find(|known| known.name() == method) else {
        return Err(match method {
            "HEAD" => "HEAD is served where GET is; write GET".into(),
            method => format!(
                "{method} is not a method that a route can have ({})",
                list(Method::ALL.iter().map(|method| method.name()))
            ),
        });
    };
    let Some(segments) = path.strip_prefix('/') else {
        return Err(format!("the path `{path}` must start with /"));
    };
    let segments = segments.split('/').collect::<Vec<_>>();
    for (index, segment) in segments.iter().enumerate() {
        let last = index + 1 == segments.len();
        self::segment(segment, last).map_err(|what| format!("the path `{path}`: {what}"))?;
    }
    let mut names = path_params(path).collect::<Vec<_>>();
    names.sort_unstable();
    if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(format!("the path `{path}` has two parameters named {}", pair[0]));
    }
    Ok((*method, path.to_owned()))
}

fn segment(segment: &str, last: bool) -> Result<(), String> {
    let Some(inside) = segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) else {
        if segment.contains(['{', '}']) {
            return Err(format!(
                "a parameter is a whole part between slashes, as in /{{id}}, not `{segment}`"
            ));
        }
        if segment.contains(['?', '#']) {
            return Err("the query is no part of a route; its parameters are used by name".into());
        }
        if segment.is_empty() && !last {
            return Err("two slashes in a row".into());
        }
        if segment == "." || segment == ".." {
            return Err(format!("a part `{segment}` never reaches a server"));
        }
        return match segment.bytes().all(|byte| byte.is_ascii_graphic()) {
            true => Ok(()),
            false => Err(format!("`{segment}` must be percent-encoded")),
        };
    };
    let (name, tail) = match inside.strip_suffix("...") {
        Some(name) => (name, true),
        None => (inside, false),
    };
    if !is_param_name(name) {
        return Err(format!("`{{{inside}}}`: a parameter is named with letters, digits and _, as in {{id}}"));
    }
    if tail && !last {
        return Err(format!("`{{{inside}}}` takes the rest of the path and must be its end"));
    }
    Ok(())
}

/// Whether `$name` can name it.
pub(super) fn is_param_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn path_params(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter_map(|segment| {
        let name = segment.strip_prefix('{')?.strip_suffix('}')?;
        Some(name.strip_suffix("...").unwrap_or(name))
    })
}

/// A name of a header field, as a config may have one (RFC 9110 section 5.6.2: a token).
pub(super) fn header_name(name: &str) -> Result<(), String> {
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    match !name.is_empty() && name.bytes().all(token) {
        true => Ok(()),
        false => Err(format!("`{name}` is not the name of a header field")),
    }
}

fn headers(fields: &Fields<'_>, mistakes: &Mistakes<'_>) -> Vec<(String, String)> {
    let Some(node) = fields.get("headers") else { return Vec::new() };
    let mut headers = Vec::new();
    for entry in Fields::of(node, "headers", mistakes).entries() {
        let read = header_name(&entry.key).and_then(|()| text(&entry.node)).and_then(|param| {
            let param = param.strip_prefix('$').unwrap_or(&param).to_owned();
            match is_param_name(&param) {
                true => Ok(param),
                false => Err(format!("{}: must be the name of a parameter, such as \"user\"", entry.key)),
            }
        });
        match read {
            Ok(param) => headers.push((entry.key.clone(), param)),
            Err(_) if entry.node.data == Data::Broken => {}
            Err(what) => mistakes.add(entry.at, format!("headers: {what}")),
        }
    }
    headers
}

/// A guard, of an endpoint or of the server.
pub(super) fn guard(node: &Node, mistakes: &Mistakes<'_>) -> Option<Guard> {
    let fields = Fields::open(node, &GUARD, mistakes);
    let query = fields.read("query", mistakes, name).map(Place::Query);
    let header = fields.read("header", mistakes, |node| {
        let name = name(node)?;
        header_name(&name).map(|()| Place::Header(name))
    });
    let secret = fields.read("secret", mistakes, text);
    let from =
        fields.read("from", mistakes, choice(&[("anywhere", From::Anywhere), ("outside", From::Outside)]));
    let status = fields.read("status", mistakes, |node| match integer(400, 499)(node) {
        Ok(status @ (401 | 403 | 404)) => Ok(status as u16),
        _ => Err("must be 404, 401 or 403".into()),
    });
    if fields.get("query").is_some() == fields.get("header").is_some() {
        mistakes.add(node.at, "guard: where is the secret? one of query = \"name\" and header = \"Name\"");
    }
    if fields.get("secret").is_none() {
        mistakes.add(
            node.at,
            "guard needs `secret`, such as secret = \"${SECRET:-}\" (empty: nobody from there gets in)",
        );
    }
    Some(Guard {
        place: query.or(header)?,
        secret: secret?,
        from: from.unwrap_or(From::Anywhere),
        status: status.unwrap_or(404),
        line: mistakes.line(node.at),
    })
}

fn reply(node: Option<&Node>, action: Option<&Action>, mistakes: &Mistakes<'_>) -> Reply {
    let Some(node) = node else { return Reply::default() };
    let fields = Fields::open(node, &REPLY, mistakes);
    let is_redirect = matches!(action, Some(Action::Redirect { .. }));
    let status = fields.read("status", mistakes, |node| match (integer(100, 599)(node), is_redirect) {
        (Ok(status @ (301 | 302 | 303 | 307 | 308)), true) | (Ok(status @ 200..=299), false) => {
            Ok(status as u16)
        }
        (_, true) => Err("must be 301, 302, 303, 307 or 308 for a redirect".into()),
        (_, false) => Err("must be a status of success, from 200 to 299".into()),
    });
    let without_fields = match action {
        Some(Action::Redirect { .. }) => Some("redirect"),
        Some(Action::Handler(_)) => Some("handler"),
        Some(Action::Constant(_)) => Some("constant"),
        Some(Action::Generate { .. }) => Some("generate"),
        Some(Action::Proxy(_)) => Some("proxy"),
        _ => None,
    };
    if let Some(action) = without_fields {
        let others: &[&str] = if action == "proxy" { &["status", "missing"] } else { &[] };
        for key in ["fields", "wrap"].iter().chain(others) {
            if let Some(entry) = fields.entry(key) {
                mistakes.add(
                    entry.at,
                    format!("reply: {key} does not go with {action}, whose answer has its own shape"),
                );
            }
        }
    }
    Reply {
        status,
        wrap: fields.read("wrap", mistakes, name),
        fields: fields.get("fields").and_then(|node| reply_fields(node, mistakes)),
        missing: fields.read("missing", mistakes, name),
    }
}

/// `["id", "name"]`, or `{ id = "$id", createdAt = "$created_at" }`.
fn reply_fields(node: &Node, mistakes: &Mistakes<'_>) -> Option<Vec<(String, Expr)>> {
    let field = |item: &Node| match &item.data {
        Data::Text(column) => {
            let column = column.strip_prefix('$').unwrap_or(column).to_owned();
            Some((column.clone(), Expr::Param(column)))
        }
        Data::Broken => None,
        _ => {
            mistakes.add(item.at, format!("fields: must be the name of a column, not {}", item.kind()));
            None
        }
    };
    match &node.data {
        Data::Array(items) => Some(items.iter().filter_map(field).collect()),
        Data::Table(entries) => {
            let mut fields = Vec::new();
            for entry in entries.iter().filter(|entry| entry.node.data != Data::Broken) {
                match value(&entry.node) {
                    Ok(value) => fields.push((entry.key.clone(), value)),
                    Err(what) => mistakes.add(entry.node.at, format!("fields.{}: {what}", entry.key)),
                }
            }
            Some(fields)
        }
        Data::Broken => None,
        _ => {
            mistakes.add(node.at, "fields: must be [\"column\", …] or { name = \"$column\", … }");
            None
        }
    }
}

/// The parameters `after` and `limit` of a list, unless they are declared.
fn add_page_params(after: &Expr, limit: &Expr, scope: &Scope<'_>, params: &mut Vec<Param>) {
    let mut add = |expr: &Expr, kind: ParamKind| {
        if let Expr::Param(name) = expr
            && !scope.path.contains(name)
            && !scope.declared.contains(name)
        {
            params.push(Param { name: name.clone(), kind, line: 0 });
        }
    };
    add(after, ParamKind::Given { ty: None, default: None, optional: true });
    let ty = ParamType { ty: Type::Bigint, constraint: Constraint::Range { min: 1, max: LIST_LIMIT.1 } };
    let default = Some(Expr::Literal(Literal::Int(LIST_LIMIT.0)));
    add(limit, ParamKind::Given { ty: Some(ty), default, optional: false });
}

/// Every parameter that an endpoint's action refers to.
pub(super) fn action_params(action: &Action) -> Vec<&str> {
    let mut names = Vec::new();
    each_expr(action, &mut |expr| expr::each_param(expr, &mut |name| names.push(name)));
    names
}

fn each_expr<'a>(action: &'a Action, f: &mut dyn FnMut(&'a Expr)) {
    let mut all = |values: &'a [(String, Expr)]| values.iter().for_each(|(_, value)| f(value));
    match action {
        Action::Insert { values, .. } => all(values),
        Action::Upsert { key, values, .. } | Action::Update { key, values, .. } => {
            all(values);
            f(key);
        }
        Action::Generate { rows, values, first, .. } => {
            all(values);
            first.iter().for_each(|row| all(row));
            f(rows);
        }
        Action::Get { key, .. }
        | Action::Redirect { key, .. }
        | Action::Delete { pick: super::model::Pick::Key(key), .. } => f(key),
        Action::Increment { key, by, .. } => {
            f(key);
            f(by);
        }
        Action::Count { by: Some((_, value)), .. } => f(value),
        Action::List { after, limit, .. } => {
            f(after);
            f(limit);
        }
        Action::AnyOf(actions) => actions.iter().for_each(|action| each_expr(action, f)),
        Action::Sql { .. }
        | Action::Random { .. }
        | Action::Delete { .. }
        | Action::Count { .. }
        | Action::Handler(_)
        | Action::Proxy(_)
        | Action::Constant(_) => {}
    }
}
