//! The answers of an endpoint: statuses, header fields, bodies.

use super::types::{answered, or_null};
use crate::compile::described::{Described, table_of};
use forebay_config::model::{self, Action, Expr, Method, Shows};
use serde_json::{Map, Value, json};

/// The answers, by status.
pub fn responses(
    endpoint: &model::Endpoint,
    described: Described<'_>,
    has_params: bool,
) -> Map<String, Value> {
    let mut responses = Map::new();
    if matches!(endpoint.action, Action::Proxy(_)) {
        responses.insert("default".into(), json!({ "description": "The answer of the upstream." }));
        return responses;
    }
    for action in endpoint.action.each() {
        let (status, response) = success(endpoint, action, described);
        match responses.get_mut(&status.to_string()) {
            Some(other) => join(other, response),
            None => drop(responses.insert(status.to_string(), response)),
        }
    }
    if endpoint.etag && endpoint.method == Method::Get {
        responses.insert("304".into(), json!({ "description": "The client's copy is current." }));
    }
    for (status, what) in problems(endpoint, has_params) {
        responses.insert(status.to_string(), problem(what));
    }
    responses.sort_keys();
    responses
}

/// Merges the answers of several actions with the same status: either body is possible.
fn join(response: &mut Value, other: Value) {
    const SCHEMA: &str = "/content/application~1json/schema";
    let (Some(known), Some(more)) = (response.pointer_mut(SCHEMA), other.pointer(SCHEMA)) else { return };
    if known == more {
        return;
    }
    if known.get("anyOf").is_none() {
        *known = json!({ "anyOf": [known.take()] });
    }
    if let Some(all) = known["anyOf"].as_array_mut().filter(|all| !all.contains(more)) {
        all.push(more.clone());
    }
}

fn problem(what: &str) -> Value {
    let schema = json!({ "$ref": "#/components/schemas/Problem" });
    json!({ "description": what, "content": { "application/problem+json": { "schema": schema } } })
}

/// The problems that a request may get.
fn problems(endpoint: &model::Endpoint, has_params: bool) -> Vec<(u16, &'static str)> {
    let any = |is: fn(&Action) -> bool| endpoint.action.each().iter().any(is);
    let reads_row = any(|action| match action {
        Action::Sql(sql) => sql.returns == model::Returns::One,
        Action::Redirect(_) | Action::Files(_) => true,
        action => action.facts().is_some_and(|facts| matches!(facts.shows, Shows::Row | Shows::RowOrNulls)),
    });
    let writes = any(|action| action.written_table().is_some() || matches!(action, Action::Sql(_)));
    let mut problems = vec![(400, "The request is malformed.")];
    let guard = endpoint.guard.as_ref();
    guard.into_iter().for_each(|guard| refusals(guard, &mut problems));
    if reads_row {
        problems.push((404, "There is no such row."));
    }
    if any(|action| matches!(action, Action::Redirect(redirect) if redirect.expires.is_some())) {
        problems.push((410, "The redirect has expired."));
    }
    if writes {
        problems.push((409, "The values conflict with an existing row."));
    }
    if writes || has_params {
        problems.push((422, "A value is beyond what its column takes."));
    }
    if endpoint.method != Method::Get {
        problems.push((413, "The body is too large."));
        problems.push((415, "The body's type or its content coding is not supported."));
    }
    if matches!(endpoint.action, Action::Files(_)) {
        problems.push((416, "The file has no such range."));
    }
    if endpoint.csrf {
        problems.push((403, "The client is not allowed to do this."));
    }
    let proves = endpoint.guard.as_ref().is_some_and(|guard| !guard.identified().is_empty());
    if endpoint.rate.is_some() || proves {
        let what = "Too many requests, or too many wrong credentials; Retry-After says when to retry.";
        problems.push((429, what));
    }
    problems.push((503, "Unavailable now. Nothing was done if Retry-After says when to retry; without it the outcome may be unknown."));
    problems.push((504, "The answer was not ready in time."));
    problems
}

fn refusals(guard: &model::Guard, problems: &mut Vec<(u16, &'static str)>) {
    match guard {
        model::Guard::Secret(secret) => problems.push((secret.status, "The guard refuses this request.")),
        model::Guard::Auth(_) => {
            problems.push((401, "Credentials are required."));
            problems.push((403, "The client is not allowed to do this."));
        }
        model::Guard::Any(guards) | model::Guard::All(guards) => {
            guards.iter().for_each(|guard| refusals(guard, problems));
        }
    }
}

/// The successful answer.
fn success(endpoint: &model::Endpoint, action: &Action, described: Described<'_>) -> (u16, Value) {
    let default = match action {
        Action::Generate(_) => 202,
        Action::Redirect(redirect) => redirect.status,
        action => action.facts().map_or(200, |facts| facts.status),
    };
    let status = endpoint.reply.status.unwrap_or(default);
    let description = match action {
        Action::Redirect(_) => "The redirect.",
        Action::Generate(_) => "The job that was started.",
        Action::OpenApi => "The description of this API.",
        _ if default == 201 => "The new row.",
        _ => "The answer.",
    };
    let mut response = json!({ "description": description });
    match action {
        Action::Redirect(_) => {
            response["headers"] =
                json!({ "Location": { "schema": { "type": "string", "format": "uri-reference" } } });
        }
        Action::Files(_) => response["content"] = json!({ "*/*": {} }),
        _ if status == 204 => {}
        _ => {
            let schema = body(endpoint, action, described);
            response["content"] = json!({ "application/json": { "schema": schema } });
        }
    }
    (status, response)
}

/// The body of the successful answer.
fn body(endpoint: &model::Endpoint, action: &Action, described: Described<'_>) -> Value {
    let is_array = match action {
        Action::Sql(sql) => sql.returns == model::Returns::Many,
        action => action.facts().is_some_and(|facts| facts.shows == Shows::Rows),
    };
    let row = match action {
        Action::Constant(_) | Action::Handler(_) => return json!({}),
        Action::OpenApi => return json!({ "type": "object" }),
        Action::Generate(_) => {
            return object([("job", json!({})), ("rows", json!({ "type": "integer" }))].into_iter());
        }
        action => row(endpoint, action, described),
    };
    let shown = if is_array { json!({ "type": "array", "items": row }) } else { row };
    match &endpoint.reply.wrap {
        Some(wrap) => object(std::iter::once((wrap.as_str(), shown))),
        None => shown,
    }
}

/// One row of an answer.
fn row(endpoint: &model::Endpoint, action: &Action, described: Described<'_>) -> Value {
    let schema = table_of(action).and_then(|table| described.schemas.get(table));
    let shows = action.facts().map(|facts| facts.shows);
    let column = |name: &str| {
        let count = matches!(shows, Some(Shows::Count(_))) && name == "count";
        let found = schema.and_then(|schema| schema.columns.iter().find(|column| column.name == name));
        match found {
            _ if count => json!({ "type": "integer", "minimum": 0 }),
            // When no row is left, the answer is a row of nulls.
            Some(column) if column.nullable || shows == Some(Shows::RowOrNulls) => {
                or_null(answered(column.ty))
            }
            Some(column) => answered(column.ty),
            None => json!({}),
        }
    };
    if let Some(fields) = &endpoint.reply.fields {
        let shown = |value: &Expr| if let Expr::Param(name) = value { column(name) } else { json!({}) };
        return object(fields.iter().map(|(name, value)| (name.as_str(), shown(value))));
    }
    if let Some(Shows::Count(by)) = shows {
        return object(by.into_iter().chain(["count"]).map(|name| (name, column(name))));
    }
    match (action, schema) {
        (Action::Sql(sql), _) if sql.returns == model::Returns::None => {
            object(std::iter::once(("changed", json!({ "type": "integer", "minimum": 0 }))))
        }
        (_, Some(schema)) => {
            object(schema.columns.iter().map(|found| (found.name.as_str(), column(&found.name))))
        }
        _ => json!({ "type": "object" }),
    }
}

/// An object with all of these members.
fn object<'a>(fields: impl Iterator<Item = (&'a str, Value)>) -> Value {
    let properties: Map<String, Value> = fields.map(|(name, schema)| (name.to_owned(), schema)).collect();
    let required: Vec<&String> = properties.keys().collect();
    json!({ "type": "object", "required": required, "properties": properties })
}
