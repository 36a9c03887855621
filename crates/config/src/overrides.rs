//! Settings that override the file: environment variables, and above those the command line.
//!
//! Both are merged into the typed tree before anything is checked, so that a mistake in them is found like a
//! mistake in the file, and its message names its source.

use crate::sections::database::DATABASE_URL;
use crate::syntax::mistakes::{At, Mistakes};
use crate::syntax::tree::{Data, Environment, KeyValue, Node, read_path, read_value};

/// Settings from the command line. They win over the environment, which wins over the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overrides {
    /// `--listen`: sets `server.listen`; several addresses separated by commas.
    pub listen: Option<String>,
    /// `--database`: sets `database.url`.
    pub database: Option<String>,
    /// `--memory`: sets `memory.url`.
    pub memory: Option<String>,
    /// `--data`: the folder of all embedded data: the memory tier's, and that of a SQLite file with a
    /// relative path. `--memory` and `--database` override it.
    pub data: Option<String>,
    /// `--set key.path=value`, in order. An endpoint is addressed by its number, from 0:
    /// `endpoint.0.timeout=5s`.
    pub set: Vec<String>,
}

/// The keys that `--listen`, `--database` and `--memory` set, in that order; `--data` is the fourth option
/// and sets two keys.
const PATHS: [[&str; 2]; 3] = [["server", "listen"], ["database", "url"], ["memory", "url"]];
const VARIABLES: [&str; 4] = ["FOREBAY_LISTEN", "FOREBAY_DATABASE", "FOREBAY_MEMORY", "FOREBAY_DATA"];
const OPTIONS: [&str; 4] = ["--listen", "--database", "--memory", "--data"];

/// Merges the environment, then the command line into the file's tree.
pub(crate) fn lay_over(
    root: &mut Node,
    overrides: &Overrides,
    env: Environment<'_>,
    mistakes: &Mistakes<'_>,
) {
    let from_env = VARIABLES.map(|name| env(name).filter(|value| !value.is_empty()));
    layer(root, VARIABLES, &from_env, mistakes);
    let Overrides { listen, database, memory, data, set: settings } = overrides;
    layer(root, OPTIONS, &[listen, database, memory, data].map(Clone::clone), mistakes);
    for setting in settings {
        set(root, setting, env, mistakes);
    }
}

/// Merges one layer: the data folder first, so that more specific options override it. The name of the
/// option does not include the value, because a URL may contain a password.
fn layer(root: &mut Node, names: [&str; 4], values: &[Option<String>; 4], mistakes: &Mistakes<'_>) {
    let [named @ .., data] = values;
    if let Some(data) = data {
        put_data(root, data, mistakes.origin(names[3]), mistakes);
    }
    for ((path, name), value) in PATHS.iter().zip(names).zip(named) {
        if let Some(value) = value {
            let path = path.map(str::to_owned);
            put(root, &path, Node::text(mistakes.origin(name), value), mistakes);
        }
    }
}

/// Moves the embedded data into another folder.
fn put_data(root: &mut Node, data: &str, at: At, mistakes: &Mistakes<'_>) {
    if data.is_empty() {
        mistakes.add(at, "must name a folder");
        return;
    }
    put(root, &["memory".into(), "data".into()], Node::text(at, data), mistakes);
    let memory = root.get("memory").and_then(|memory| memory.get("url")).map(|url| &url.data);
    if !matches!(memory, Some(Data::Text(url)) if !url.starts_with("embedded:")) {
        put(root, &["memory".into(), "url".into()], Node::text(at, format!("embedded:{data}")), mistakes);
    }
    let database = match root.get("database").and_then(|database| database.get("url")).map(|url| &url.data) {
        Some(Data::Text(url)) => url.clone(),
        Some(_) => return,
        None => DATABASE_URL.to_owned(),
    };
    let Some(path) = database.strip_prefix("sqlite:") else { return };
    if path.starts_with(['/', ':']) {
        return;
    }
    let file = path.rsplit('/').next().unwrap_or(path);
    let moved = format!("sqlite:{}/{file}", data.trim_end_matches('/'));
    put(root, &["database".into(), "url".into()], Node::text(at, moved), mistakes);
}

/// `--set key.path=value`
fn set(root: &mut Node, setting: &str, env: Environment<'_>, mistakes: &Mistakes<'_>) {
    let at = mistakes.origin(format!("--set {setting}"));
    let Some((key, value)) = setting.split_once('=') else {
        mistakes.add(at, "must be KEY=VALUE, such as memory.limit=4GiB");
        return;
    };
    let Some(path) = read_path(key.trim()) else {
        mistakes.add(at, format!("`{key}` is not a key such as memory.limit"));
        return;
    };
    put(root, &path, read_value(value, at, mistakes, env), mistakes);
}

/// Sets the value at the end of a path; missing tables on the path are created.
fn put(node: &mut Node, path: &[String], value: Node, mistakes: &Mistakes<'_>) {
    let at = value.at;
    let Some((key, rest)) = path.split_first() else {
        *node = value;
        return;
    };
    match &mut node.data {
        Data::Table(entries) => {
            let index = entries.iter().position(|entry| entry.key == *key).unwrap_or_else(|| {
                let empty = Node { at, data: Data::Table(Vec::new()) };
                entries.push(KeyValue { key: key.clone(), at, node: empty });
                entries.len() - 1
            });
            if rest.is_empty() {
                entries[index].at = at;
            }
            put(&mut entries[index].node, rest, value, mistakes);
        }
        Data::Array(items) => {
            let count = items.len();
            match key.parse::<usize>().ok().and_then(|index| items.get_mut(index)) {
                Some(item) => put(item, rest, value, mistakes),
                None => mistakes
                    .add(at, format!("`{key}` is not the number of one of {count} items (the first is 0)")),
            }
        }
        Data::Broken => {}
        _ => mistakes.add(
            at,
            format!("`{key}`: there is {} in the file where this setting needs a table", node.kind()),
        ),
    }
}
