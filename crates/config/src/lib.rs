//! The config file: read, checked, every mistake explained.
//!
//! What was typed is a tree with the places of everything in it (`syntax`); what it means is
//! [`model`]. The way there is [`load`]: read the tree, lay the environment and the command line
//! over it (`overrides`), read section by section (`sections`), cross-check (`check`). Nothing
//! stops at the first mistake. The keys of the sections are what files are checked against and what
//! the documentation shows (`key_tables`). [`draft`] goes the other way: from tables to a file.
//!
//! What must not move in: opening anything that the config names, and the types of any other room
//! but `value`.

mod check;
pub mod draft;
mod explain;
mod key_tables;
pub mod limits;
pub mod model;
mod needs_restart;
mod overrides;
mod sections;
mod syntax;
#[cfg(test)]
mod tests;

pub use explain::explain;
pub use key_tables::key_tables;
pub use model::Config;
pub use needs_restart::fixed;
pub use overrides::Overrides;
pub use syntax::mistakes::{ConfigError, ConfigErrors, Place};

use limits::FILE_BYTES_MAX;
use std::path::Path;
use syntax::fields::Cursor;
use syntax::mistakes::Mistakes;
use syntax::tree;

/// The bundled examples: name and text.
pub const BUNDLED: &[(&str, &str)] = &[
    ("codes.toml", include_str!("../../../examples/codes.toml")),
    ("accounts.toml", include_str!("../../../examples/accounts.toml")),
    ("accounts-hot.toml", include_str!("../../../examples/accounts-hot.toml")),
    ("usages.toml", include_str!("../../../examples/usages.toml")),
    ("items.toml", include_str!("../../../examples/items.toml")),
    ("positions.toml", include_str!("../../../examples/positions.toml")),
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
    let Some(mut root) = tree::read(&mistakes, env) else { return Err(mistakes.into_errors()) };
    overrides::lay_over(&mut root, overrides, env, &mistakes);
    let shared = sections::group::expand(&mut root, &mistakes);
    let (mut config, placed) =
        sections::file::read(Cursor { node: &root, mistakes: &mistakes }, &shared, name);
    check::check(&placed, &config.tables, config.database.dialect(), &mistakes);
    if mistakes.count() > 0 {
        return Err(mistakes.into_errors());
    }
    config.endpoints = placed.into_iter().map(|placed| placed.endpoint).collect();
    Ok(config)
}
