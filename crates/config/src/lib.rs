//! The config file: read, checked, every mistake explained.
//!
//! What was typed is a tree with the places of everything in it (`read`); what it means is [`model`]. The way there is
//! [`load`]: read, lay the environment and the command line over it (`overrides`), resolve section by section (`sections`,
//! `table`, `endpoint` with `params`, `action`, `values`, `expr`), cross-check (`check`). Nothing stops at the first
//! mistake. `keys` is the one list of keys, which the documentation is held to.
//!
//! What must not move in: opening anything that the config names.

mod action;
mod cache;
mod caching;
mod check;
mod constant;
mod endpoint;
mod errors;
mod explain;
mod expr;
mod fields;
mod guards;
mod job;
mod key_tables;
mod keys;
pub mod limits;
pub mod model;
mod overrides;
mod params;
mod proxy;
mod rate;
mod read;
mod sections;
mod size;
mod sql;
mod stores;
mod table;
#[cfg(test)]
mod tests;
mod values;

pub use errors::{ConfigError, ConfigErrors, Place};
pub use explain::explain;
pub use key_tables::key_tables;
pub use model::Config;
pub use overrides::Overrides;

use fields::Fields;
use limits::FILE_BYTES_MAX;
use read::Mistakes;
use std::path::Path;

/// The bundled examples: name and text. The first is what `serve` takes when no file is named.
pub const BUNDLED: &[(&str, &str)] = &[
    ("codes.toml", include_str!("../../../examples/codes.toml")),
    ("accounts.toml", include_str!("../../../examples/accounts.toml")),
    ("accounts-hot.toml", include_str!("../../../examples/accounts-hot.toml")),
    ("usages.toml", include_str!("../../../examples/usages.toml")),
    ("items.toml", include_str!("../../../examples/items.toml")),
    ("links.toml", include_str!("../../../examples/links.toml")),
    ("in-front.toml", include_str!("../../../examples/in-front.toml")),
];

/// Reads and checks a config file. `env` looks up environment variables.
///
/// # Errors
/// Every mistake in the file, in `overrides` and in the variables that stand above the file.
pub fn load(
    path: &Path,
    overrides: &Overrides,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Config, ConfigErrors> {
    let name = path.display().to_string();
    let text = std::fs::metadata(path)
        .and_then(|metadata| match metadata.len() {
            0..=FILE_BYTES_MAX => std::fs::read_to_string(path),
            _ => Err(std::io::Error::other("it is longer than 4 MiB, which no config is")),
        })
        .map_err(|error| ConfigErrors {
            errors: vec![ConfigError {
                place: Place::Origin(name.clone()),
                what: format!("cannot read the config file: {error}"),
            }],
        })?;
    parse(&name, &text, overrides, env)
}

/// Checks a config that is at hand as text; `name` stands for the file in messages.
///
/// # Errors
/// As [`load`].
pub fn parse(
    name: &str,
    text: &str,
    overrides: &Overrides,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Config, ConfigErrors> {
    let mistakes = Mistakes::new(name, text);
    let Some(mut root) = read::read(&mistakes, env) else { return Err(mistakes.into_errors()) };
    overrides::lay_over(&mut root, overrides, env, &mistakes);
    let top = Fields::open(&root, &keys::TOP, &mistakes);
    let (server, guard) = sections::server(top.get("server"), &mistakes);
    let database = sections::database(top.get("database"), &mistakes);
    let memory = sections::memory(top.get("memory"), &mistakes);
    let cache = cache::settings(top.get("cache"), &memory, &mistakes);
    let drain = sections::drain(top.get("drain"), &mistakes);
    let admin = sections::admin(top.get("admin"), &mistakes);
    let tables = table::tables(top.get("table"), &mistakes);
    let placed = endpoint::endpoints(top.get("endpoint"), &tables, guard.as_ref(), &mistakes);
    let jobs = job::jobs(top.get("job"), database.dialect(), &mistakes);
    check::check(&placed, &tables, database.dialect(), &mistakes);
    if mistakes.count() > 0 {
        return Err(mistakes.into_errors());
    }
    let endpoints = placed.into_iter().map(|placed| placed.endpoint).collect();
    Ok(Config {
        source: name.to_owned(),
        server,
        database,
        memory,
        cache,
        drain,
        admin,
        tables,
        endpoints,
        jobs,
    })
}
