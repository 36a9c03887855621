//! Checks that need the complete file: routes that clash, replies that use names that do not exist,
//! statements for the configured database, headers.

use crate::sections::action::Action;
use crate::sections::action::facts::{ActionFacts, Shows};
use crate::sections::action::sql;
use crate::sections::database::Dialect;
use crate::sections::endpoint::params::ParamKind;
use crate::sections::endpoint::route::Method;
use crate::sections::endpoint::{Endpoint, Placed};
use crate::sections::table::TableConfig;
use crate::syntax::mistakes::Mistakes;
use crate::syntax::words::{did_you_mean, list};
use std::collections::HashMap;

/// Records every inconsistency between the parts.
pub(crate) fn check(endpoints: &[Placed], tables: &[TableConfig], dialect: Dialect, mistakes: &Mistakes<'_>) {
    routes(endpoints, mistakes);
    for placed in endpoints {
        reply(placed, tables, mistakes);
        headers(placed, mistakes);
        tags(placed, mistakes);
        statements(placed, dialect, mistakes);
    }
}

/// An action that runs SQL needs a statement for the configured database.
fn statements(placed: &Placed, dialect: Dialect, mistakes: &Mistakes<'_>) {
    for action in placed.endpoint.action.each() {
        if let Action::Sql(sql) = action
            && let Err(what) = sql.statements.check_dialect(dialect)
        {
            mistakes.add(placed.route_at, what);
        }
    }
}

/// No two endpoints may answer the same requests. The check uses the router that serves requests.
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

/// Converts `{rest...}` to the router's syntax: `{*rest}`.
pub(crate) fn router_syntax(route: &str) -> String {
    match route.strip_suffix("...}").and_then(|head| head.rsplit_once('{')) {
        Some((head, name)) => format!("{head}{{*{name}}}"),
        None => route.to_owned(),
    }
}

/// Every name in `reply.fields` must be a column of the answer or a parameter that the endpoint uses
/// elsewhere.
fn reply(placed: &Placed, tables: &[TableConfig], mistakes: &Mistakes<'_>) {
    let Placed { endpoint, reply_at, .. } = placed;
    let (Some(fields), Some(columns)) = (&endpoint.reply.fields, answer_columns(&endpoint.action, tables))
    else {
        return;
    };
    let params = known_params(endpoint);
    for (json_name, value) in fields {
        value.each_param(&mut |name| {
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

/// The columns of the rows that an action answers, if the file defines them.
fn answer_columns<'a>(action: &'a Action, tables: &'a [TableConfig]) -> Option<Vec<&'a str>> {
    // The columns of other actions are not known here.
    let ActionFacts { table, shows, .. } = action.facts()?;
    if let Shows::Count(by) = shows {
        return Some(by.into_iter().chain(["count"]).collect());
    }
    let schema = tables.iter().find(|known| known.name == table)?.columns.as_ref()?;
    Some(schema.columns.iter().map(|column| column.name.as_str()).collect())
}

/// A tag is made of parameters that the endpoint has without it: else each request would have to give one
/// more.
fn tags(placed: &Placed, mistakes: &Mistakes<'_>) {
    let Placed { endpoint, route_at, .. } = placed;
    let of_cache = endpoint.cache.iter().flat_map(|cache| &cache.tags).map(|tag| ("cache: tags", tag));
    for (key, tag) in of_cache.chain(endpoint.invalidates.iter().map(|tag| ("invalidates", tag))) {
        tag.each_param(&mut |name| {
            if !has_param(endpoint, name) {
                let what = "is neither in the route, nor in `params`, nor in what the endpoint does";
                mistakes.add(*route_at, format!("{key}: `${name}` {what}"));
            }
        });
    }
}

/// Whether an endpoint has a parameter but for its tags; those of a handler are not known here.
fn has_param(endpoint: &Endpoint, name: &str) -> bool {
    let has = |action: &Action| match action {
        Action::Sql(sql) => sql.statements.iter().any(|text| sql::has_param(text, name)),
        action => matches!(action, Action::Handler(_)),
    };
    name.starts_with("auth.")
        || known_params(endpoint).contains(&name)
        || endpoint.action.each().iter().any(has)
}

fn known_params(endpoint: &Endpoint) -> Vec<&str> {
    let declared = endpoint.params.iter().map(|param| param.name.as_str());
    let in_headers = endpoint.headers.iter().map(|(_, param)| param.as_str());
    let mut known: Vec<_> = endpoint.path_params().chain(declared).chain(in_headers).collect();
    known.extend(endpoint.action.params());
    known.sort_unstable();
    known.dedup();
    known
}

/// A parameter has a single source.
fn headers(placed: &Placed, mistakes: &Mistakes<'_>) {
    let Placed { endpoint, route_at, .. } = placed;
    for (header, param) in &endpoint.headers {
        let is_in_route = endpoint.path_params().any(|path| path == param);
        let is_computed = endpoint
            .params
            .iter()
            .any(|declared| declared.name == *param && matches!(declared.kind, ParamKind::Computed(_)));
        let is_array =
            endpoint.params.iter().any(|declared| declared.name == *param && declared.kind.is_array());
        for (is_it, why) in [
            (is_in_route, "it comes from the route"),
            (is_computed, "it comes from an expression"),
            (is_array, "it is an array"),
        ] {
            if is_it {
                let what = format!("parameter {param} cannot come from the header {header}: {why}");
                mistakes.add(*route_at, format!("headers: {what}"));
            }
        }
    }
}
