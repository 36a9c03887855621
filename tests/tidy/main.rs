//! The tree keeps its own rules: every module says what it is, functions fit on a screen, files stay
//! readable, no crate depends upwards and no two files depend on each other ([`circles`]), comments
//! say something within the width of the code ([`comments`]), and files are laid out alike
//! ([`layout`]).

mod breach;
mod circles;
mod comments;
mod layout;

use breach::{Breach, hold};
use std::fs;
use std::path::{Path, PathBuf};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// A function has at most this many lines.
const FUNCTION_LINES_MAX: usize = 70;
/// A file has at most this many lines, its `#[cfg(test)]` module not counted.
const FILE_LINES_MAX: usize = 500;

/// The workspace crates that each crate may depend on. `tests`, `bench` and `peers` may depend on
/// anything.
const MAY_USE: &[(&str, &[&str])] = &[
    ("value", &[]),
    ("config", &["value"]),
    ("http", &[]),
    ("log", &[]),
    ("host", &[]),
    ("terminal", &[]),
    ("load", &["host", "terminal"]),
    ("advise", &[]),
    ("plan", &[]),
    ("redis", &[]),
    ("cache", &["http", "redis"]),
    ("table", &["log", "redis", "value"]),
    ("database", &["value"]),
    ("proxy", &[]),
    ("drain", &["log", "database", "redis", "table", "terminal", "value"]),
    (
        "server",
        &[
            "cache", "config", "drain", "host", "http", "log", "proxy", "database", "redis", "table",
            "terminal", "value",
        ],
    ),
    ("doctor", &["database", "redis", "value"]),
    ("topology", &["terminal"]),
    (
        "forebay",
        &[
            "advise", "config", "doctor", "drain", "http", "load", "log", "database", "plan", "server",
            "terminal", "topology", "value",
        ],
    ),
];

fn root() -> PathBuf {
    // Read when the test runs: a path from compile time could name another copy of the tree.
    let tests = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs the test");
    Path::new(&tests).parent().expect("the tests stand in the tree").to_owned()
}

/// Every Rust file of the tree, with its path relative to the root.
fn sources() -> Vec<(String, String)> {
    let root = root();
    let mut folders =
        ["crates", "examples", "tests", "bench", "peers", "fuzz"].map(|folder| root.join(folder)).to_vec();
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the tree") {
            let path = entry.expect("an entry").path();
            if path.is_dir() && !path.ends_with("target") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(&root).expect("below the root").display().to_string();
                files.push((name, fs::read_to_string(&path).expect("a text")));
            }
        }
    }
    assert!(files.len() > 50, "the tree was not found");
    files.sort();
    files
}

#[test]
fn every_module_says_what_it_is() {
    let silent: Vec<_> = sources()
        .into_iter()
        .filter(|(_, text)| !text.lines().take(5).any(|line| line.starts_with("//!")))
        .map(|(name, _)| name)
        .collect();
    assert!(silent.is_empty(), "no //! at the top of {silent:#?}");
}

#[test]
fn functions_fit_on_a_screen() {
    struct Functions {
        file: String,
        long: Vec<Breach>,
    }
    impl Functions {
        fn look(&mut self, name: &syn::Ident, block: &syn::Block) {
            let span = block.span();
            if span.end().line - span.start().line + 1 > FUNCTION_LINES_MAX {
                let what = format!("{}: {name} has more than {FUNCTION_LINES_MAX} lines", self.file);
                self.long.push(Breach { file: self.file.clone(), what });
            }
        }
    }
    impl<'a> Visit<'a> for Functions {
        fn visit_item_fn(&mut self, item: &'a syn::ItemFn) {
            self.look(&item.sig.ident, &item.block);
            visit::visit_item_fn(self, item);
        }
        fn visit_impl_item_fn(&mut self, item: &'a syn::ImplItemFn) {
            self.look(&item.sig.ident, &item.block);
            visit::visit_impl_item_fn(self, item);
        }
    }
    let mut long = Vec::new();
    for (file, text) in sources() {
        let syntax = syn::parse_file(&text).unwrap_or_else(|error| panic!("{file}: {error}"));
        let mut functions = Functions { file, long: Vec::new() };
        functions.visit_file(&syntax);
        long.append(&mut functions.long);
    }
    hold("function-length", &long);
}

#[test]
fn files_stay_readable() {
    let own_lines = |text: &str| {
        let syntax = syn::parse_file(text).expect("it compiles");
        let tests: usize = syntax
            .items
            .iter()
            .filter(|item| matches!(item, syn::Item::Mod(module) if module.ident == "tests"))
            .map(|item| item.span().end().line - item.span().start().line + 1)
            .sum();
        text.lines().count() - tests
    };
    let is_test = |name: &str| {
        name.contains("/tests/")
            || name.starts_with("tests/")
            || name.contains("_tests.rs")
            || name.ends_with("/tests.rs")
    };
    let long: Vec<Breach> = sources()
        .into_iter()
        .filter(|(name, text)| !is_test(name) && own_lines(text) > FILE_LINES_MAX)
        .map(|(file, _)| Breach { what: format!("{file}: more than {FILE_LINES_MAX} lines"), file })
        .collect();
    hold("file-length", &long);
}

#[test]
fn no_thread_ends_because_a_stream_is_closed() {
    let macros = ["println!", "eprintln!", "print!", "eprint!"];
    let is_checked = |name: &str| name.starts_with("crates/") && name.contains("/src/");
    let uses = |text: &str| {
        text.split("#[cfg(test)]").next().is_some_and(|code| {
            code.lines().any(|line| {
                macros
                    .iter()
                    .any(|name| line.trim_start().starts_with(name) || line.contains(&format!(" {name}")))
            })
        })
    };
    let panicking: Vec<_> = sources()
        .into_iter()
        .filter(|(name, text)| is_checked(name) && uses(text))
        .map(|(name, _)| name)
        .collect();
    assert!(panicking.is_empty(), "say! and answer! do not panic, print! does: {panicking:#?}");
}

#[test]
fn rooms_depend_downwards() {
    for (room, may_use) in MAY_USE {
        let manifest =
            fs::read_to_string(root().join("crates").join(room).join("Cargo.toml")).expect("a manifest");
        let dependencies =
            manifest.split("[dev-dependencies]").next().expect("split gives at least one part");
        for line in dependencies.lines() {
            if let Some((used, _)) =
                line.strip_prefix("forebay-").and_then(|rest| rest.split_once(['.', ' ', '=']))
            {
                assert!(may_use.contains(&used), "{room} must not depend on {used}");
            }
        }
    }
}
