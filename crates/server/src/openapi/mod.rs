//! OpenAPI 3.1 for the routes of a config: parameters with their types and bounds, bodies, answers, errors,
//! and security.
//!
//! Promises that the described requests are those that the endpoints accept: both come from the same compiled
//! parameters. What lies behind a proxy is not described. The `openapi` action serves the document.

mod answers;
mod types;

use crate::compile::described::Described;
use crate::endpoint::params::{Missing, ParamPlan, ParamSource, Params};
use crate::start_error::StartError;
use forebay_config::Config;
use forebay_config::model::{self, Action, AuthKind, Guard, Method, SecretPlace};
use forebay_value::{Schema, Type};
use serde_json::{Map, Value, json};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Header parameters that OpenAPI describes elsewhere (section 4.8.12.1 of its specification).
const UNNAMED_HEADERS: [&str; 3] = ["Accept", "Content-Type", "Authorization"];

/// The description of all routes. `compiled` returns the parameters of endpoints whose statements the
/// database has prepared.
///
/// # Errors
/// A sentence for the config's author.
pub fn document(
    config: &Config,
    schemas: &HashMap<String, Arc<Schema>>,
    compiled: impl Fn(&model::Endpoint) -> Option<Params>,
) -> Result<Value, StartError> {
    let described = Described { schemas, dialect: config.database.dialect() };
    let mut paths = Map::new();
    for endpoint in &config.endpoints {
        let params = match compiled(endpoint) {
            Some(params) => params,
            None => described.params(endpoint)?,
        };
        let (path, names) = template(endpoint, &paths);
        let methods = match endpoint.method {
            Method::Any => &[Method::Get, Method::Post, Method::Put, Method::Patch, Method::Delete][..],
            _ => std::slice::from_ref(&endpoint.method),
        };
        for method in methods {
            let item = paths.entry(path.clone()).or_insert_with(|| json!({}));
            let name = method.name().to_ascii_lowercase();
            if endpoint.method != Method::Any || item.get(&name).is_none() {
                item[name] = operation(endpoint, *method, &params, &names, described);
            }
        }
    }
    let problem = json!({
        "type": "object",
        "description": "Problem details (RFC 9457).",
        "required": ["type", "title", "status"],
        "properties": {
            "type": { "type": "string", "format": "uri-reference" },
            "title": { "type": "string" },
            "status": { "type": "integer", "minimum": 400, "maximum": 599 },
            "detail": { "type": "string" }
        }
    });
    let mut components = json!({ "schemas": { "Problem": problem } });
    let schemes = schemes(config);
    if !schemes.is_empty() {
        components["securitySchemes"] = schemes.into();
    }
    let file = std::path::Path::new(&config.source).file_stem();
    let title = file.map_or_else(|| "API".into(), |stem| stem.to_string_lossy());
    Ok(json!({
        "openapi": "3.1.0",
        "info": { "title": title, "version": "1" },
        "servers": [{ "url": config.server.public_url.as_deref().unwrap_or("/") }],
        "paths": paths,
        "components": components
    }))
}

/// The path of a route, and the names of its parameters there. OpenAPI identifies paths that differ only in
/// parameter names: the names of the first are used.
fn template(endpoint: &model::Endpoint, paths: &Map<String, Value>) -> (String, Vec<String>) {
    let path = endpoint.route.replace("...}", "}");
    let names = |path: &str| -> Vec<String> {
        let parts = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        parts.map(str::to_owned).collect()
    };
    let shape = |path: &str| -> String {
        let part = |part: &str| if part.starts_with('{') { "{}".to_owned() } else { part.to_owned() };
        path.split('/').map(part).collect::<Vec<_>>().join("/")
    };
    let path = paths.keys().find(|known| shape(known) == shape(&path)).cloned().unwrap_or(path);
    let names = names(&path);
    (path, names)
}

/// One method of a path.
fn operation(
    endpoint: &model::Endpoint,
    method: Method,
    params: &Params,
    names: &[String],
    described: Described<'_>,
) -> Value {
    let takes_body = !matches!(method, Method::Get | Method::Delete);
    let mut parameters: Vec<Value> = Vec::new();
    let (mut fields, mut required) = (Map::new(), Vec::new());
    for (index, name) in names.iter().enumerate() {
        let plan = params
            .plans
            .iter()
            .find(|plan| matches!(plan.source, ParamSource::Path(found) if found == index));
        parameters.push(json!({ "name": name, "in": "path", "required": true, "schema": in_path(plan) }));
    }
    for plan in &params.plans {
        let must = matches!(plan.missing, Missing::Refuse | Missing::NotNull);
        match &plan.source {
            ParamSource::Field(_) if takes_body => {
                let schema = types::given_as(plan);
                fields.insert(plan.name.clone(), if must { schema } else { types::or_null(schema) });
                required.extend(must.then(|| plan.name.clone()));
            }
            ParamSource::Field(_) => parameters.push(parameter(&plan.name, "query", must, plan)),
            ParamSource::Header(header)
                if !UNNAMED_HEADERS.iter().any(|own| own.eq_ignore_ascii_case(header)) =>
            {
                parameters.push(parameter(header, "header", must, plan));
            }
            _ => {}
        }
    }
    let path = endpoint.route.split(|c: char| !c.is_ascii_alphanumeric()).filter(|part| !part.is_empty());
    let id: Vec<&str> = std::iter::once(method.name()).chain(path).collect();
    let mut operation = json!({
        "operationId": id.join("_").to_ascii_lowercase(),
        "summary": summary(&endpoint.action),
        "responses": answers::responses(endpoint, described, !params.plans.is_empty())
    });
    if !parameters.is_empty() {
        operation["parameters"] = parameters.into();
    }
    if !fields.is_empty() {
        let mut schema = json!({ "type": "object", "required": required, "properties": fields });
        if endpoint.has_strict_body {
            schema["additionalProperties"] = false.into();
        }
        operation["requestBody"] = json!({ "required": !required.is_empty(), "content": { "application/json": { "schema": schema } } });
    }
    if let Some(guard) = &endpoint.guard {
        operation["security"] = security(guard).into_iter().map(requirement).collect();
    }
    operation
}

fn parameter(name: &str, place: &str, required: bool, plan: &ParamPlan) -> Value {
    json!({ "name": name, "in": place, "required": required, "schema": types::given_as(plan) })
}

/// A path segment is never empty, and contains nothing that servers interpret differently.
fn in_path(plan: Option<&ParamPlan>) -> Value {
    let mut schema = plan.map_or_else(|| json!({ "type": "string" }), types::given_as);
    let is_text = plan.is_none_or(|plan| matches!(plan.ty, Type::Text { .. }));
    if is_text && schema.get("format").is_none() && schema["pattern"] != "^[A-Za-z0-9_-]+$" {
        schema["pattern"] = "^(?!\\.{1,2}$)[^/\\\\\\u0000]+$".into();
    }
    schema
}

fn summary(action: &Action) -> String {
    match action {
        Action::Sql(_) => "Runs a statement".into(),
        Action::Redirect(redirect) => format!("Redirects to where a row of {} says", redirect.table),
        Action::AnyOf(_) => "Does one of several things".into(),
        Action::Generate(generate) => format!("Fills {} in the background", generate.table),
        Action::Handler(name) => format!("Calls {name}"),
        Action::Constant(_) => "Answers the same every time".into(),
        Action::Proxy(_) => "Passes the request on".into(),
        Action::Files(_) => "Answers a file".into(),
        Action::OpenApi => "Describes this API".into(),
        action => action.facts().map_or_else(String::new, |facts| facts.summary),
    }
}

/// The name of the security scheme of a secret.
fn secret_name(place: &SecretPlace) -> String {
    match place {
        SecretPlace::Query(name) => format!("secret in query {name}"),
        SecretPlace::Header(name) => format!("secret in header {name}"),
    }
    .replace(|c: char| !c.is_ascii_alphanumeric() && c != '-', "_")
}

/// The alternatives of a guard; each is a set of schemes that are needed together.
fn security(guard: &Guard) -> Vec<BTreeSet<String>> {
    match guard {
        Guard::Secret(secret) => {
            let own = BTreeSet::from([secret_name(&secret.place)]);
            match secret.from {
                model::GuardFrom::Anywhere => vec![own],
                model::GuardFrom::Outside => vec![own, BTreeSet::new()],
            }
        }
        Guard::Auth(identified) => vec![BTreeSet::from([identified.auth.clone()])],
        Guard::Any(guards) => guards.iter().flat_map(security).collect(),
        Guard::All(guards) => guards.iter().fold(vec![BTreeSet::new()], |so_far, guard| {
            let with = |known: &BTreeSet<String>| -> Vec<BTreeSet<String>> {
                security(guard).iter().map(|more| known.union(more).cloned().collect()).collect()
            };
            so_far.iter().flat_map(with).collect()
        }),
    }
}

fn requirement(names: BTreeSet<String>) -> Value {
    Value::Object(names.into_iter().map(|name| (name, json!([]))).collect())
}

/// The security schemes of identities and secrets.
fn schemes(config: &Config) -> Map<String, Value> {
    let mut schemes = Map::new();
    for auth in &config.auths {
        let scheme = match &auth.kind {
            AuthKind::Key { header, .. } => json!({ "type": "apiKey", "in": "header", "name": header }),
            AuthKind::Jwt(_) => json!({ "type": "http", "scheme": "bearer", "bearerFormat": "JWT" }),
            AuthKind::Basic(_) => json!({ "type": "http", "scheme": "basic" }),
        };
        schemes.insert(auth.name.clone(), scheme);
    }
    for guard in config.endpoints.iter().filter_map(|endpoint| endpoint.guard.as_ref()) {
        note_secrets(guard, &mut schemes);
    }
    schemes
}

fn note_secrets(guard: &Guard, schemes: &mut Map<String, Value>) {
    match guard {
        Guard::Secret(secret) => {
            let (place, name) = match &secret.place {
                SecretPlace::Query(name) => ("query", name),
                SecretPlace::Header(name) => ("header", name),
            };
            let scheme = json!({ "type": "apiKey", "in": place, "name": name });
            schemes.insert(secret_name(&secret.place), scheme);
        }
        Guard::Auth(_) => {}
        Guard::Any(guards) | Guard::All(guards) => {
            guards.iter().for_each(|guard| note_secrets(guard, schemes))
        }
    }
}
