//! The config file: read, checked, every mistake explained.
//!
//! The typed file is a tree in which every value has its place (`syntax`); its meaning is [`model`].
//! [`load`] reads the tree, applies the environment and the command line to it (`overrides`), reads it
//! section by section (`sections`), and cross-checks it (`check`). No step stops at the first mistake. Files
//! are checked against the keys of the sections, which are also the documentation's key tables
//! (`key_tables`). [`draft`] is the reverse: from tables to a file.
//!
//! What must not move in: opening anything that the config names, and the types of any other crate except
//! `value`.

mod check;
pub mod draft;
mod explain;
mod key_tables;
pub mod limits;
pub mod model;
mod named_columns;
mod needs_restart;
mod overrides;
mod sections;
mod syntax;
#[cfg(test)]
mod tests;
mod weak;

pub use explain::explain;
pub use key_tables::key_tables;
pub use model::Config;
pub use needs_restart::fixed;
pub use overrides::Overrides;
pub use syntax::mistakes::{ConfigError, ConfigErrors, Mistake, Place};
pub use weak::weaknesses;

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
/// Every mistake in the file, in `overrides` and in the environment variables that override the file.
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

/// Checks a config that is available as text; `name` stands for the file in messages.
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
