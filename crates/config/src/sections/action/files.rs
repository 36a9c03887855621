//! `files`: a folder whose files are answers.

use super::scope::Typed;
use crate::syntax::fields::name;
use crate::syntax::keys::{ActionKeys, action};
use std::path::PathBuf;

pub(crate) const FILES: ActionKeys = action! {
    "files" | "path" | "serves files from this folder; the route is a GET that ends in `{path...}`" => {
        "index" | "file name" | "\"index.html\"" | "the file that is served for a folder"
    }
};

/// A folder whose files are answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// The folder.
    pub dir: PathBuf,
    /// The name of the file that is served for a folder.
    pub index: String,
}

/// Reads the action of an endpoint that has `files`. `None`: the mistakes were recorded.
pub(crate) fn files(typed: Typed<'_>) -> Option<Files> {
    let dir = typed.own.value.read("files", name).map(PathBuf::from)?;
    let index = typed.fields.read("index", |node| match name(node)? {
        name if name.contains('/') || name.starts_with('.') => {
            Err(format!("`{name}` is not the name of a file").into())
        }
        name => Ok(name),
    });
    if !typed.scope.path.is_empty() && typed.scope.path.len() != 1 {
        typed.fields.wrong_at("route", "files: the route has one parameter, the rest of the path");
    }
    Some(Files { dir, index: index.unwrap_or_else(|| "index.html".to_owned()) })
}
