//! `[[endpoint]]`: the route and all settings around the action.

pub(crate) mod cache;
pub(crate) mod params;
pub(crate) mod rate;
pub(crate) mod reply;
pub(crate) mod route;

use self::cache::Caching;
use self::params::{Constraint, Param, ParamKind, ParamType};
use self::rate::{Per, Rate};
use self::reply::Reply;
use self::route::{Method, Route};
use super::action::proxy::Proxy;
use super::action::scope::Scope;
use super::action::{self, Action};
use super::auth::Auth;
use super::cors::{self, AnswerHeaders};
use super::durability::{self, AnsweredWhen};
use super::group::GroupPlaces;
use super::guard::{self, Guard};
use super::memory::Memory;
use super::table::TableConfig;
use super::tags;
use crate::syntax::expr::{Expr, Literal};
use crate::syntax::fields::{Cursor, Fields, check_header_name, choice, flag, integer, milliseconds, text};
use crate::syntax::keys::{Section, keys};
use crate::syntax::mistakes::{At, Mistake};
use crate::syntax::tree::Node;
use crate::syntax::words::is_param_name;
use forebay_value::Type;

const TIMEOUT_MS: u64 = 30_000;
/// Of a `proxy`: twice as patient as nginx, so that a long poll of a minute ends by itself.
const PROXY_TIMEOUT_MS: u64 = 120_000;
const CONCURRENCY: usize = 1000;
/// The default number of rows on a page of `list`, and the maximum.
const LIST_LIMIT: (i64, i64) = (100, 1000);

pub(crate) const ENDPOINT: Section = Section {
    name: "[[endpoint]]",
    keys: keys! {
        "route" | "\"METHOD /path\"" | "" |
            "method (`*`: all, only with `proxy`) and path; `{name}` is a parameter, `{name...}` the rest of \
            the path"
        "group" | "name" | "(none)" | "the `[group.NAME]` from which the endpoint inherits"
        "upstream" | "name" | "(none)" |
            "the `[upstream.NAME]` to which requests are passed on, instead of `proxy`"
        "params" | "table of parameters" | "{}" | "types, defaults and computed parameters"
        "headers" | "table: header = parameter" | "{}" | "parameters that come from header fields"
        "guard" | "guard" | "(that of [server])" | "which requests are admitted"
        "body" | "\"any\" or \"strict\"" | "\"any\"" |
            "whether a JSON body may have members that the endpoint does not read, or gets 400 then; with `proxy` \
            a size"
        "csrf" | "true or false" | "false" |
            "whether writes and WebSockets that a page of another origin makes a browser send get 403, and a body that is \
            read here must have a JSON type: for an app whose cookies log its users in"
        "encoded_slash" | "\"refuse\" or \"pass\"" | "\"refuse\"" |
            "what happens to a path with an encoded slash or backslash, which servers interpret differently: \
            it gets 400, or it is accepted unchanged"
        "cors" | "table, or false" | "(that of [server])" | "which web pages may read the answers"
        "answer_headers" | "table: header = text" | "{}" |
            "header fields of every answer, in addition to those of [server]"
        "security_headers" | "true or false" | "(that of [server])" | "whether answers have the usual security headers"
        "timeout" | "time" | "\"30s\"" | "longest time that a request may take; then 504; with `proxy` `\"2m\"`, to the answer's head"
        "rate" | "\"N/TIME\", and perhaps \" per ip\", \" per auth.sub\", \" per header NAME\" or \" per path\", and \" shared\"" | "(no limit)" |
            "how many requests are accepted in a period, by each server or (`shared`) by all together; one \
            more gets 429 with Retry-After"
        "concurrency" | "number" | "1000" |
            "most requests that wait for this endpoint at one time; one more gets 503, and so does a client that \
            has 16 times as many as are free"
        "durability" | "\"sync\" or \"database\"" | "(that of the table)" |
            "when a write to a hot table is answered: when it is on the disk, or when it is committed in the \
            database; a write that the database then refuses gets 409 or 422, and a timeout gives 503"
        "batch" | "true or false" | "true" | "whether concurrent plain inserts share a transaction"
        "cache" | "table" | "(none)" | "caches answers; only with GET, or with `*` and `proxy`"
        "invalidates" | "array of texts" | "[]" |
            "tags of cached answers that are dropped, on every server, before this write is answered; with \
            `*`, every method except GET, HEAD and OPTIONS is a write"
        "etag" | "true or false" | "(true with cache)" |
            "whether answers have an ETag; a client that sends it back gets 304"
        "compress" | "true or false" | "false" |
            "whether longer answers are compressed for clients that accept it"
        "reply" | "table" | "{}" | "the shape of the answer"
    },
};

/// `[[endpoint]]`: a route and one action.
#[derive(Debug, Clone, PartialEq)]
pub struct Endpoint {
    /// The method of its requests.
    pub method: Method,
    /// The pattern as written: `/codes/{id}`, with `{path...}` for the rest of a path. See
    /// [`Endpoint::path_params`].
    pub route: String,
    /// Declared parameters, in the order of the file; a computed one or a default may use those before it.
    /// `list` adds `after` and `limit` when they are not declared. A `$name` that is not declared is looked
    /// up in the path, the JSON body and the query, is required, and has the type of the column or SQL
    /// parameter that it is used for (else text).
    pub params: Vec<Param>,
    /// Who may call it; the endpoint's own guard or that of `[server]`.
    pub guard: Option<Guard>,
    /// Whether it refuses a JSON body with members that it does not read.
    pub has_strict_body: bool,
    /// Whether it refuses what pages of other origins make browsers send.
    pub csrf: bool,
    /// Header fields of its answers that address browsers.
    pub answer_headers: AnswerHeaders,
    /// Parameters that come from a header field: (header name, parameter name).
    pub headers: Vec<(String, String)>,
    /// Whether it accepts paths with an encoded slash or backslash; else they are answered 400.
    pub takes_encoded_slash: bool,
    /// The rate limit; `None`: no limit.
    pub rate: Option<Rate>,
    /// The longest duration of a request, in milliseconds; a longer one is answered 504.
    pub timeout_ms: u64,
    /// Most requests that wait for this endpoint at the same time; one more is answered 503.
    pub concurrency: usize,
    /// When a write to a hot table is answered; `None`: as the table defines.
    pub durability: Option<AnsweredWhen>,
    /// Whether concurrent plain inserts share a transaction.
    pub batch: bool,
    /// The action that it runs.
    pub action: Action,
    /// How its answers are cached; `None`: they are not.
    pub cache: Option<Caching>,
    /// Tags that are invalidated in all caches before it answers, when it has written.
    pub invalidates: Vec<Expr>,
    /// Whether its answers have a validator (ETag): a client that sends it back gets 304.
    pub etag: bool,
    /// Whether answers are compressed for clients that accept that.
    pub compress: bool,
    /// The shape of its answer.
    pub reply: Reply,
    /// The line of its `[[endpoint]]`.
    pub line: usize,
}

impl Endpoint {
    /// The names of the parameters in the route, in order; a tail parameter without its dots.
    pub fn path_params(&self) -> impl Iterator<Item = &str> {
        route::params(&self.route)
    }
}

/// An endpoint with the places that later checks report.
pub(crate) struct Placed {
    pub endpoint: Endpoint,
    pub route_at: At,
    pub reply_at: At,
}

/// The parts of the rest of the file that endpoints are read with.
#[derive(Clone, Copy)]
pub(crate) struct EndpointContext<'a> {
    pub tables: &'a [TableConfig],
    pub auths: &'a [Auth],
    /// The guard of `[server]`.
    pub guard: Option<&'a Guard>,
    /// The answer headers of `[server]`.
    pub answer_headers: &'a AnswerHeaders,
    pub memory: &'a Memory,
    /// Whether the servers share a Redis or Valkey.
    pub has_shared_store: bool,
    /// The keys that each endpoint got from a group.
    pub shared: &'a [GroupPlaces],
}

/// Reads all endpoints.
pub(crate) fn read(cursor: Option<Cursor<'_>>, known: EndpointContext<'_>) -> Vec<Placed> {
    let Some(cursor) = cursor else { return Vec::new() };
    let items = cursor.items("endpoint: write [[endpoint]] with two brackets: there may be several");
    let read = |(index, item): (usize, Cursor<'_>)| {
        let before = item.mistakes.count();
        let endpoint = read_endpoint(item, known);
        if let Some(shared) = known.shared.get(index) {
            let route = item.node.get("route").map_or("", |route| route.as_text());
            let of = |at| shared.iter().find(|(place, _)| *place == at).map(|(_, name)| name);
            item.mistakes.say_more(before, |at| of(at).map(|name| format!(" ({name}, for {route})")));
        }
        endpoint
    };
    items.into_iter().enumerate().filter_map(read).collect()
}

fn timeout_ms(fields: Fields<'_>, action: Option<&Action>) -> u64 {
    let default_ms = if matches!(action, Some(Action::Proxy(_))) { PROXY_TIMEOUT_MS } else { TIMEOUT_MS };
    fields.read("timeout", milliseconds).unwrap_or(default_ms)
}

fn read_endpoint(cursor: Cursor<'_>, known: EndpointContext<'_>) -> Option<Placed> {
    let fields = cursor.table("an endpoint");
    let route = fields.read("route", route::read);
    if !fields.has("route") {
        cursor.wrong("an endpoint needs `route`, such as route = \"GET /codes/{id}\"");
    }
    let path: Vec<_> = route.iter().flat_map(|route| route::params(&route.path)).map(str::to_owned).collect();
    let headers = read_headers(fields);
    let mut params = params::read(fields.get("params"), &path);
    let in_headers = headers.iter().map(|(_, param)| param.clone());
    let declared = params.iter().map(|param| param.name.clone()).chain(in_headers).collect();
    let scope = Scope { tables: known.tables, path, declared };
    let action = action::read(fields, ENDPOINT.keys, &scope);
    let guard = read_guard(fields, known);
    let has_strict_body = read_strict_body(fields, action.as_ref());
    let csrf = fields.read("csrf", flag).unwrap_or(false);
    let answer_headers = cors::read(fields, known.answer_headers);
    let takes_encoded_slash = fields.read("encoded_slash", encoded_slash).unwrap_or(false);
    let rate = read_rate(fields, &scope, known);
    let concurrency = fields.read("concurrency", integer(1, 10_000_000));
    let cache = fields.get("cache").and_then(|cursor| cache::read(cursor, route.as_ref(), action.as_ref()));
    let invalidates = read_invalidates(fields, route.as_ref(), action.as_ref());
    let etag = fields.read("etag", flag).unwrap_or(cache.is_some());
    let reply = reply::read(fields.get("reply"), action.as_ref());
    let timeout_ms = timeout_ms(fields, action.as_ref());
    let batch = fields.read("batch", flag).unwrap_or(true);
    let compress = fields.read("compress", flag).unwrap_or(false);
    let durability = durability::read(fields, known.memory);
    let Route { method, path: route } = route?;
    let mut action = action?;
    if durability.is_some() && action.each().iter().all(|action| action.written_table().is_none()) {
        let what = "durability: goes with insert, upsert, update, increment and delete; what `sql` writes is committed \
                    when it is answered";
        fields.wrong_at("durability", what);
    }
    check_route(fields, method, &route, &action);
    match &mut action {
        Action::Redirect(redirect) => redirect.status = reply.status.unwrap_or(redirect.status),
        Action::List(list) => add_page_params(&list.after, &list.limit, &scope, &mut params),
        _ => {}
    }
    let endpoint = Endpoint {
        method,
        route,
        params,
        guard,
        has_strict_body,
        csrf,
        answer_headers,
        takes_encoded_slash,
        rate,
        headers,
        timeout_ms,
        concurrency: concurrency.map_or(CONCURRENCY, |concurrency| concurrency as usize),
        durability,
        batch,
        action,
        cache,
        invalidates,
        etag,
        compress,
        reply,
        line: cursor.line(),
    };
    Some(Placed { endpoint, route_at: fields.place("route"), reply_at: fields.place("reply") })
}

/// Checks that method and path fit the action.
fn check_route(fields: Fields<'_>, method: Method, path: &str, action: &Action) {
    if method == Method::Any && !matches!(action, Action::Proxy(_)) {
        fields.wrong_at("route", "route: only a proxy can have every method (*); name one");
    }
    if let Action::Proxy(Proxy { strip_prefix: Some(prefix), .. }) = action
        && !path.strip_prefix(prefix.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    {
        fields
            .wrong_at("strip_prefix", format!("strip_prefix: the route {path} does not begin with {prefix}"));
    }
    if matches!(action, Action::OpenApi) && method != Method::Get {
        fields.wrong_at("route", "route: openapi needs a GET, such as GET /openapi.json");
    }
    if matches!(action, Action::Files(_)) && (method != Method::Get || !path.ends_with("...}")) {
        let what = "route: files need a GET that ends in the rest of the path, such as GET /static/{path...}";
        fields.wrong_at("route", what);
    }
}

/// Reads `body`, which is a size beside `proxy`.
fn read_strict_body(fields: Fields<'_>, action: Option<&Action>) -> bool {
    match action {
        None | Some(Action::Proxy(_)) => false,
        Some(Action::Handler(_) | Action::Files(_) | Action::Constant(_) | Action::OpenApi)
            if fields.has("body") =>
        {
            let what = "body: does not go with handler, files, constant and openapi: none reads members here";
            fields.wrong_at("body", what);
            false
        }
        Some(_) => fields.read("body", choice(&[("any", false), ("strict", true)])).unwrap_or(false),
    }
}

fn read_guard(fields: Fields<'_>, known: EndpointContext<'_>) -> Option<Guard> {
    match fields.get("guard") {
        Some(guard) => guard::read(guard, known.auths),
        None => known.guard.cloned(),
    }
}

/// Reads `rate`, and checks whether its callers can be told apart and counted together.
fn read_rate(fields: Fields<'_>, scope: &Scope<'_>, known: EndpointContext<'_>) -> Option<Rate> {
    let rate = fields.read("rate", |node| text(node).and_then(|text| rate::parse(&text)));
    if matches!(rate, Some(Rate { per: Per::Path, .. })) && scope.path.is_empty() {
        let what = "rate: per path needs a route with a parameter, such as GET /items/{id}";
        fields.wrong_at("rate", what);
    }
    if rate.as_ref().is_some_and(|rate| rate.is_shared) && !known.has_shared_store {
        let what = "rate: servers can only count together on Redis or Valkey: name one in `cache.shared` or `memory.url`";
        fields.wrong_at("rate", what);
    }
    rate
}

fn encoded_slash(node: &Node) -> Result<bool, Mistake> {
    match text(node)?.as_str() {
        "refuse" => Ok(false),
        "pass" => Ok(true),
        other => Err(format!("`{other}` must be \"refuse\" or \"pass\"").into()),
    }
}

fn read_headers(fields: Fields<'_>) -> Vec<(String, String)> {
    let Some(cursor) = fields.get("headers") else { return Vec::new() };
    let mut headers = Vec::new();
    for field in cursor.table("headers").iter().filter(|field| !field.value.is_broken()) {
        let read = check_header_name(field.key).and_then(|()| text(field.value.node)).and_then(|param| {
            let param = param.strip_prefix('$').unwrap_or(&param).to_owned();
            match is_param_name(&param) {
                true => Ok(param),
                false => {
                    Err(format!("{}: must be the name of a parameter, such as \"user\"", field.key).into())
                }
            }
        });
        match read {
            Ok(param) => headers.push((field.key.to_owned(), param)),
            Err(what) => field.wrong(format!("headers: {what}")),
        }
    }
    headers
}

/// Reads `invalidates`, and checks whether it, `etag` and `compress` fit the action.
fn read_invalidates(fields: Fields<'_>, route: Option<&Route>, action: Option<&Action>) -> Vec<Expr> {
    let (keys, what): (&[&str], _) = match action {
        Some(Action::Handler(_)) => {
            (&["invalidates", "etag", "compress"], "does not go with handler, whose answer is its own")
        }
        Some(Action::Files(_)) => {
            (&["etag", "compress", "params"], "does not go with files, whose answers have their own form")
        }
        Some(Action::Proxy(_)) if !fields.has("cache") => {
            (&["etag", "compress"], "goes with proxy only beside `cache`: what is passed on stays as it is")
        }
        _ => (&[], ""),
    };
    for field in keys.iter().filter_map(|key| fields.field(key)) {
        field.wrong(format!("{} {what}", field.key));
    }
    let Some(field) = fields.field("invalidates") else { return Vec::new() };
    if route.is_some_and(|route| route.method == Method::Get) && fields.has("cache") {
        field.wrong(
            "invalidates: a GET whose answers are kept writes nothing; it stands where something is written",
        );
    }
    tags::read("invalidates", field.value)
}

/// Adds the parameters `after` and `limit` of a list, unless they are declared.
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
    let ty = ParamType {
        ty: Type::Bigint,
        constraint: Constraint::Range { min: 1, max: LIST_LIMIT.1 },
        is_array: false,
    };
    let default = Some(Expr::Literal(Literal::Int(LIST_LIMIT.0)));
    add(limit, ParamKind::Given { ty: Some(ty), default, optional: false });
}
