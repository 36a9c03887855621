//! The start of a command: its config, and a runtime.

use crate::cli::ConfigArgs;
use crate::failure::Failure;
use forebay_config::{self as config, Config};
use std::path::PathBuf;

/// The default config file, in the current folder.
pub const DEFAULT_FILE: &str = "forebay.toml";

/// The config of a command, with the overrides.
pub fn load_config(args: &ConfigArgs) -> Result<Config, Failure> {
    let (overrides, env) = (args.overrides.to_overrides(), |name: &str| std::env::var(name).ok());
    if let Some(name) = &args.example {
        let (file, text) = bundled(name)?;
        return config::parse(file, text, &overrides, &env).map_err(Failure::from);
    }
    let path = match args.file.as_ref().or(args.config.as_ref()) {
        Some(path) => path.clone(),
        None => default_file()?,
    };
    config::load(&path, &overrides, &env).map_err(Failure::from)
}

fn default_file() -> Result<PathBuf, Failure> {
    let path = PathBuf::from(DEFAULT_FILE);
    if path.exists() {
        return Ok(path);
    }
    let looked_for = std::path::absolute(&path).map_err(Failure::from)?;
    Err(format!(
        "no config: {} does not exist; name one (FILE or -c FILE), or take a bundled one (--example codes)",
        looked_for.display()
    )
    .into())
}

/// File name and text of a bundled example, by its name without `.toml`.
fn bundled(name: &str) -> Result<(&'static str, &'static str), Failure> {
    let names = || config::BUNDLED.iter().filter_map(|(file, _)| file.strip_suffix(".toml"));
    let found = config::BUNDLED.iter().copied().find(|(file, _)| file.strip_suffix(".toml") == Some(name));
    found.ok_or_else(|| {
        Failure::from(format!(
            "there is no example {name}; there are {}",
            names().collect::<Vec<_>>().join(", ")
        ))
    })
}

/// A runtime for commands that talk to stores.
pub fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().map_err(Failure::from)
}
