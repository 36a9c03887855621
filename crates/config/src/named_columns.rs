//! Which columns a config names: what cannot be served without them.

use crate::Config;
use crate::model::{Action, AuthKind, Endpoint, Expr, KeySource, Shows, ValueRole};
use forebay_value::Need;

impl Config {
    /// What needs this column of a hot table: a tag or an authentication is the whole table's. SQL is not
    /// looked at.
    pub fn need(&self, table: &str, column: &str) -> Need {
        let in_tags =
            || self.table(table).is_some_and(|table| table.invalidates.iter().any(|tag| names(tag, column)));
        let is_subject = || {
            self.auths.iter().any(|auth| match &auth.kind {
                AuthKind::Key { keys: KeySource::Table { table: of, subject }, .. } => {
                    of == table && subject == column
                }
                _ => false,
            })
        };
        match in_tags() || is_subject() {
            true => Need::Table,
            false if self.endpoints.iter().any(|endpoint| endpoint.names(table, column)) => Need::Endpoints,
            false => Need::Nothing,
        }
    }
}

impl Endpoint {
    /// Whether its action or its answer names this column of a hot table.
    pub fn names(&self, table: &str, column: &str) -> bool {
        let mut actions = self.action.each().iter().filter(|action| table_of(action) == Some(table));
        let mut fields = self.reply.fields.iter().flatten();
        let in_reply = fields.any(|(_, value)| names(value, column));
        actions.any(|action| in_reply || in_action(action, column))
    }
}

/// The hot table of an action.
fn table_of(action: &Action) -> Option<&str> {
    match action {
        Action::Redirect(redirect) => Some(&redirect.table),
        Action::Generate(generate) => Some(&generate.table),
        action => action.facts().map(|facts| facts.table),
    }
}

fn in_action(action: &Action, column: &str) -> bool {
    match action {
        Action::Redirect(redirect) => {
            let others = [&redirect.increment, &redirect.expires];
            redirect.location == column || others.into_iter().any(|other| other.as_deref() == Some(column))
        }
        Action::Generate(generate) => {
            let rows = generate.first.iter().chain([&generate.values]);
            rows.flatten().any(|(name, _)| name == column)
        }
        Action::Increment(increment) => increment.column == column,
        action => action.facts().is_some_and(|facts| {
            let is_of = |role: &ValueRole<'_>| match role {
                ValueRole::Column(name) | ValueRole::Change(name) | ValueRole::NewRow(name) => {
                    *name == column
                }
                _ => false,
            };
            facts.shows == Shows::Count(Some(column)) || facts.values.iter().any(|(role, _)| is_of(role))
        }),
    }
}

fn names(expr: &Expr, column: &str) -> bool {
    let mut found = false;
    expr.each(&mut |expr| {
        found |= matches!(expr, Expr::Column(name) | Expr::Param(name) if name == column);
    });
    found
}

#[cfg(test)]
mod tests {
    use crate::Overrides;
    use forebay_value::Need;

    const TABLE: &str = "[table.t]\n";

    #[test]
    fn a_column_is_named_where_a_route_needs_it() {
        let need = |route: &str| {
            let text = format!("{TABLE}[[endpoint]]\n{route}");
            let config = crate::parse("test.toml", &text, &Overrides::default(), &|_| None);
            config.unwrap_or_else(|errors| panic!("{errors}")).need("t", "z")
        };
        for route in [
            "route = \"POST /t\"\ninsert = \"t\"\nvalues = { z = \"$z\" }",
            "route = \"PATCH /t/{id}\"\nupdate = \"t\"\nvalues = { z = 1 }",
            "route = \"PUT /t/{id}\"\nupsert = \"t\"\nvalues = { z = 1 }",
            "route = \"POST /t/{id}\"\nincrement = \"t\"\ncolumn = \"z\"",
            "route = \"GET /t/{id}\"\nget = \"t\"\nreply = { fields = [\"z\"] }",
            "route = \"GET /t/{id}\"\nredirect = \"t\"\nlocation = \"z\"",
            "route = \"GET /count\"\ncount = \"t\"\nby = { z = \"$z\" }",
        ] {
            assert_eq!(need(route), Need::Endpoints, "{route}");
        }
        for route in [
            "route = \"GET /t/{id}\"\nget = \"t\"",
            "route = \"POST /t\"\ninsert = \"t\"\nvalues = { a = \"$z\" }",
            "route = \"GET /z/{z}\"\nsql = \"SELECT a FROM t WHERE id = $z\"",
        ] {
            assert_eq!(need(route), Need::Nothing, "{route}");
        }
    }
}
