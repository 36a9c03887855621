//! What can only be said when everything has been read: routes that clash, answers that show what is not there.

use super::endpoint::{Placed, action_params};
use super::errors::{did_you_mean, list};
use super::expr::each_param;
use super::model::{Action, Dialect, Endpoint, Method, TableConfig};
use super::read::{At, Mistakes};
use std::collections::HashMap;

/// Notes everything that does not fit together.
pub(super) fn check(endpoints: &[Placed], tables: &[TableConfig], dialect: Dialect, mistakes: &Mistakes<'_>) {
    routes(endpoints, mistakes);
    for placed in endpoints {
        reply(placed, tables, mistakes);
        headers(placed, mistakes);
        statements(placed, dialect, mistakes);
    }
}

/// What runs SQL needs a statement for the database that there is.
fn statements(placed: &Placed, dialect: Dialect, mistakes: &Mistakes<'_>) {
    let actions = match &placed.endpoint.action {
        Action::AnyOf(actions) => actions.as_slice(),
        action => std::slice::from_ref(action),
    };
    for action in actions {
        if let Action::Sql { statements, .. } = action
            && statements.in_dialect(dialect).is_none()
        {
            let what = format!(
                "sql: there is no statement for {}, the database that [database] names",
                dialect.key()
            );
            mistakes.add(placed.route_at, what);
        }
    }
}

/// No two endpoints may answer the same requests. The router decides, as it will when it serves.
fn routes(endpoints: &[Placed], mistakes: &Mistakes<'_>) {
    let mut routers: HashMap<Method, (matchit::Router<()>, HashMap<String, usize>)> = HashMap::new();
    for Placed { endpoint, route_at, .. } in endpoints {
        let (router, lines) = routers.entry(endpoint.method).or_default();
        let route = router_syntax(&endpoint.route);
        match router.insert(route.clone(), ()) {
            Ok(()) => {
                lines.insert(route, endpoint.line);
            }
            Err(matchit::InsertError::Conflict { with }) => {
                let line = lines.get(&with).map_or(String::new(), |line| format!(" at line {line}"));
                mistakes.add(*route_at, format!("route: cannot be told from `{with}` of the endpoint{line}"));
            }
            Err(other) => mistakes.add(*route_at, format!("route: {other}")),
        }
    }
}

/// `{rest...}` as the router spells it: `{*rest}`.
fn router_syntax(route: &str) -> String {
    match route.strip_suffix("...}").and_then(|head| head.rsplit_once('{')) {
        Some((head, name)) => format!("{head}{{*{name}}}"),
        None => route.to_owned(),
    }
}

/// What `reply.fields` shows must be a column of the answer or a parameter that the endpoint uses besides.
fn reply(placed: &Placed, tables: &[TableConfig], mistakes: &Mistakes<'_>) {
    let Placed { endpoint, reply_at, .. } = placed;
    let (Some(fields), Some(columns)) = (&endpoint.reply.fields, answer_columns(&endpoint.action, tables))
    else {
        return;
    };
    let params = known_params(endpoint);
    for (json_name, value) in fields {
        each_param(value, &mut |name| {
            if !columns.contains(&name) && !params.contains(&name) {
                let others = params.iter().filter(|param| !columns.contains(param));
                let known = || columns.iter().chain(others.clone()).copied();
                mistakes.add(
                    *reply_at,
                    format!(
                        "reply.fields.{json_name}: there is no `{name}` to show{} (there are {})",
                        did_you_mean(name, known()),
                        list(known())
                    ),
                );
            }
        });
    }
}

/// The columns of the rows that an action answers, when the file says.
fn answer_columns<'a>(action: &'a Action, tables: &'a [TableConfig]) -> Option<Vec<&'a str>> {
    let table = match action {
        Action::Get { table, .. }
        | Action::Insert { table, .. }
        | Action::Upsert { table, .. }
        | Action::Update { table, .. }
        | Action::Increment { table, .. }
        | Action::Delete { table, .. }
        | Action::Random { table }
        | Action::List { table, .. } => table,
        Action::Count { by, .. } => {
            return Some(by.iter().map(|(column, _)| column.as_str()).chain(["count"]).collect());
        }
        // What these answer is not known here, or has a shape of its own.
        Action::Sql { .. }
        | Action::AnyOf(_)
        | Action::Redirect { .. }
        | Action::Generate { .. }
        | Action::Handler(_)
        | Action::Proxy(_)
        | Action::Constant(_) => return None,
    };
    let schema = tables.iter().find(|known| known.name == *table)?.columns.as_ref()?;
    Some(schema.columns.iter().map(|column| column.name.as_str()).collect())
}

fn known_params(endpoint: &Endpoint) -> Vec<&str> {
    let declared = endpoint.params.iter().map(|param| param.name.as_str());
    let in_headers = endpoint.headers.iter().map(|(_, param)| param.as_str());
    let mut known: Vec<_> = endpoint.path_params().chain(declared).chain(in_headers).collect();
    known.extend(action_params(&endpoint.action));
    known.sort_unstable();
    known.dedup();
    known
}

/// A parameter comes from one place.
fn headers(placed: &Placed, mistakes: &Mistakes<'_>) {
    let Placed { endpoint, route_at, .. } = placed;
    for (header, param) in &endpoint.headers {
        if endpoint.path_params().any(|path| path == param) {
            blame(*route_at, header, param, "the route", mistakes);
        }
        let computed = |declared: &&super::model::Param| {
            declared.name == *param && matches!(declared.kind, super::model::ParamKind::Computed(_))
        };
        if endpoint.params.iter().any(|declared| computed(&declared)) {
            blame(*route_at, header, param, "an expression", mistakes);
        }
    }
}

fn blame(at: At, header: &str, param: &str, other: &str, mistakes: &Mistakes<'_>) {
    mistakes.add(
        at,
        format!("headers: parameter {param} cannot come from the header {header}: it comes from {other}"),
    );
}
