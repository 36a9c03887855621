//! What stands above the file: environment variables, and above those the command line.
//!
//! Both are laid over the tree as typed, before anything is checked, so that a mistake in one of them is found as one in
//! the file is, and is named after where it came from.

use super::read::{At, Data, Entry, Environment, Mistakes, Node, read_path, read_value};
use super::sections::RECORD_URL;

/// Settings from the command line. They win over the environment, which wins over the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overrides {
    /// `--listen`: for `server.listen`; several separated by commas.
    pub listen: Option<String>,
    /// `--record`: for `record.url`.
    pub record: Option<String>,
    /// `--memory`: for `memory.url`.
    pub memory: Option<String>,
    /// `--data`: the folder of everything embedded: the memory tier's, and that of a SQLite file with a relative path. Loses
    /// against `--memory` and `--record`.
    pub data: Option<String>,
    /// `--set key.path=value`, in order. An endpoint is named by its number, from 0: `endpoint.0.timeout=5s`.
    pub set: Vec<String>,
}

/// The settings of one layer that have names of their own, and what each of them is called.
const NAMED: [(&str, &str, [&str; 2]); 3] = [
    ("FOREBAY_LISTEN", "--listen", ["server", "listen"]),
    ("FOREBAY_RECORD", "--record", ["record", "url"]),
    ("FOREBAY_MEMORY", "--memory", ["memory", "url"]),
];

/// Lays the environment, then the command line over the file.
pub(super) fn lay_over(root: &mut Node, overrides: &Overrides, env: Environment<'_>, mistakes: &Mistakes<'_>) {
    let filled = |name: &str| env(name).filter(|value| !value.is_empty());
    let from_env = NAMED.map(|(variable, ..)| filled(variable));
    layer(root, from_env, filled("FOREBAY_DATA"), ["", "="], &|named| named.0, mistakes);
    let from_line = [&overrides.listen, &overrides.record, &overrides.memory].map(Clone::clone);
    layer(root, from_line, overrides.data.clone(), ["", " "], &|named| named.1, mistakes);
    for setting in &overrides.set {
        set(root, setting, env, mistakes);
    }
}

/// One layer: the data folder first, so that what is named more precisely wins.
fn layer(
    root: &mut Node,
    named: [Option<String>; 3],
    data: Option<String>,
    [_, joint]: [&str; 2],
    name: &dyn Fn(&(&'static str, &'static str, [&'static str; 2])) -> &'static str,
    mistakes: &Mistakes<'_>,
) {
    if let Some(data) = data {
        let name = if joint == "=" { "FOREBAY_DATA" } else { "--data" };
        put_data(root, &data, mistakes.origin(format!("{name}{joint}{data}")), mistakes);
    }
    for (definition, value) in NAMED.iter().zip(named) {
        if let Some(value) = value {
            let shown = if definition.0 == "FOREBAY_RECORD" { String::new() } else { format!("{joint}{value}") };
            let at = mistakes.origin(format!("{}{shown}", name(definition)));
            let path = definition.2.map(str::to_owned);
            put(root, &path, Node::text(at, value), mistakes);
        }
    }
}

/// Moves what is embedded into another folder.
fn put_data(root: &mut Node, data: &str, at: At, mistakes: &Mistakes<'_>) {
    if data.is_empty() {
        mistakes.add(at, "must name a folder");
        return;
    }
    put(root, &["memory".into(), "url".into()], Node::text(at, format!("embedded:{data}")), mistakes);
    let record = match root.get("record").and_then(|record| record.get("url")).map(|url| &url.data) {
        Some(Data::Text(url)) => url.clone(),
        Some(_) => return,
        None => RECORD_URL.to_owned(),
    };
    let Some(path) = record.strip_prefix("sqlite:") else { return };
    if path.starts_with(['/', ':']) {
        return;
    }
    let file = path.rsplit('/').next().unwrap_or(path);
    let moved = format!("sqlite:{}/{file}", data.trim_end_matches('/'));
    put(root, &["record".into(), "url".into()], Node::text(at, moved), mistakes);
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

/// Puts a value at the end of a path; tables on the way are made when they are missing.
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
                entries.push(Entry { key: key.clone(), at, node: empty });
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
                None => mistakes.add(at, format!("`{key}` is not the number of one of {count} items (the first is 0)")),
            }
        }
        Data::Broken => {}
        _ => mistakes.add(at, format!("`{key}`: there is {} in the file where this setting needs a table", node.kind())),
    }
}
