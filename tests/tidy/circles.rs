//! No two files of a crate import from each other, not even through other files.
//!
//! A file depends on the file that *defines* what it names: `use super::Thing` where `mod.rs` only
//! re-exports `thing::Thing` is an import from `thing.rs`. A re-export (`pub use`) is no import.
//! Tests are not checked: they may use what they test.

use super::breach::{Breach, hold};
use super::sources;
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, ItemUse, UseTree, Visibility};

/// A path of modules from the root of the crate.
type ModulePath = Vec<String>;

/// The modules of a crate.
#[derive(Default)]
struct Crate {
    modules: BTreeMap<ModulePath, Module>,
}

/// A module, in its own file or within another one.
#[derive(Default)]
struct Module {
    file: String,
    /// The imports of the module: from the imported name to its path.
    imports: BTreeMap<String, Vec<String>>,
    /// Paths to other modules, as written.
    names: Vec<Vec<String>>,
}

#[test]
fn files_do_not_import_from_each_other() {
    let mut crates: BTreeMap<String, Crate> = BTreeMap::new();
    for (file, text) in sources() {
        let Some((root, path)) = module_path(&file) else { continue };
        let syntax = syn::parse_file(&text).unwrap_or_else(|error| panic!("{file}: {error}"));
        let mut reader = Reader { file, path, modules: &mut crates.entry(root).or_default().modules };
        reader.enter();
        reader.visit_file(&syntax);
    }
    let breaches: Vec<Breach> = crates.values().flat_map(|found| circles(&found.dependencies())).collect();
    hold("circle", &breaches);
}

/// `crates/load/src/agent/mod.rs` is the module `agent` of `crates/load/src`. Files outside of a
/// `src` belong to no crate here.
fn module_path(file: &str) -> Option<(String, ModulePath)> {
    let (root, rest) = file.split_once("/src/")?;
    let mut path: ModulePath = rest.strip_suffix(".rs")?.split('/').map(str::to_owned).collect();
    match path.last().map(String::as_str) {
        Some("mod") => drop(path.pop()),
        Some("lib" | "main") if path.len() == 1 => drop(path.pop()),
        _ => {}
    }
    Some((root.to_owned(), path))
}

fn is_test(attributes: &[Attribute]) -> bool {
    let is_test = |attribute: &Attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"))
    };
    attributes.iter().any(is_test)
}

/// Collects the paths that a file names.
struct Reader<'a> {
    file: String,
    path: ModulePath,
    modules: &'a mut BTreeMap<ModulePath, Module>,
}

impl Reader<'_> {
    fn enter(&mut self) -> &mut Module {
        let module = self.modules.entry(self.path.clone()).or_default();
        module.file.clone_from(&self.file);
        module
    }
}

impl<'a> Visit<'a> for Reader<'_> {
    fn visit_item(&mut self, item: &'a Item) {
        let attributes = match item {
            Item::Mod(item) => &item.attrs,
            Item::Use(item) => &item.attrs,
            Item::Fn(item) => &item.attrs,
            Item::Impl(item) => &item.attrs,
            Item::Struct(item) => &item.attrs,
            _ => &Vec::new(),
        };
        if !is_test(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'a ItemMod) {
        // A module in its own file is read from that file.
        if item.content.is_some() {
            self.path.push(item.ident.to_string());
            self.enter();
            visit::visit_item_mod(self, item);
            self.path.pop();
        }
    }

    fn visit_item_use(&mut self, item: &'a ItemUse) {
        let mut leaves = Vec::new();
        flatten(&item.tree, &mut Vec::new(), &mut leaves);
        let passes_on = !matches!(item.vis, Visibility::Inherited);
        let module = self.enter();
        for (name, path) in leaves {
            if !passes_on {
                module.names.push(path.clone());
            }
            module.imports.insert(name, path);
        }
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        if path.segments.len() > 1 && path.leading_colon.is_none() {
            let names = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            self.enter().names.push(names);
        }
        visit::visit_path(self, path);
    }
}

/// Each name that a `use` imports, with its full path; `*` for a whole module.
fn flatten(tree: &UseTree, before: &mut Vec<String>, leaves: &mut Vec<(String, Vec<String>)>) {
    let mut leaf = |name: String, last: String| {
        let mut path = before.clone();
        if last != "self" || path.is_empty() {
            path.push(last);
        }
        let name = if name == "self" { path.last().cloned().unwrap_or(name) } else { name };
        leaves.push((name, path));
    };
    match tree {
        UseTree::Name(name) => leaf(name.ident.to_string(), name.ident.to_string()),
        UseTree::Rename(rename) => leaf(rename.rename.to_string(), rename.ident.to_string()),
        UseTree::Glob(_) => leaf("*".into(), "*".into()),
        UseTree::Group(group) => group.items.iter().for_each(|item| flatten(item, before, leaves)),
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            flatten(&path.tree, before, leaves);
            before.pop();
        }
    }
}

impl Crate {
    /// Each file with the files that define the names that it uses.
    fn dependencies(&self) -> BTreeMap<&str, BTreeSet<&str>> {
        let mut files: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (path, module) in &self.modules {
            let uses = files.entry(&module.file).or_default();
            let defined = module.names.iter().filter_map(|name| self.definer(path, name, 0));
            uses.extend(defined.filter(|file| *file != module.file));
        }
        files
    }

    /// The file that defines what `name` means in the module `within`; `None` when it belongs to another
    /// crate.
    fn definer(&self, within: &[String], name: &[String], depth: usize) -> Option<&str> {
        // A cyclic chain of imports does not compile, but a glob may look like one.
        if depth > 16 {
            return None;
        }
        let mut at = within.to_vec();
        let mut rest = name;
        let mut is_first = true;
        while let Some((segment, after)) = rest.split_first() {
            let child = [at.as_slice(), std::slice::from_ref(segment)].concat();
            let here = self.modules.get(&at)?;
            match segment.as_str() {
                "crate" => at.clear(),
                "self" => {}
                "super" => drop(at.pop()),
                _ if self.modules.contains_key(&child) => at = child,
                _ => {
                    // An imported name is resolved through its import.
                    if let Some(import) = here.imports.get(segment).filter(|import| *import != name) {
                        let whole = [import.as_slice(), after].concat();
                        return self.definer(&at, &whole, depth + 1);
                    }
                    // A first segment that is not found here is another crate, or a type of this file.
                    return (!is_first).then_some(&here.file);
                }
            }
            is_first = false;
            rest = after;
        }
        self.modules.get(&at).map(|module| module.file.as_str())
    }
}

/// The files on a cycle, each with the other files of its cycle.
fn circles(files: &BTreeMap<&str, BTreeSet<&str>>) -> Vec<Breach> {
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        files.keys().map(|file| (*file, reach(files, file))).collect();
    let breach = |(file, reached_from): (&&str, &BTreeSet<&str>)| {
        let circle: Vec<&str> =
            reached_from.iter().copied().filter(|other| reached[other].contains(file)).collect();
        let direct: Vec<&str> = files[file].iter().copied().filter(|used| circle.contains(used)).collect();
        (!circle.is_empty()).then(|| Breach {
            file: (*file).to_owned(),
            what: format!("{file} imports from {}, and is imported by way of it", direct.join(", ")),
        })
    };
    reached.iter().filter_map(breach).collect()
}

fn reach<'a>(files: &BTreeMap<&'a str, BTreeSet<&'a str>>, from: &str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut open: Vec<&str> = files[from].iter().copied().collect();
    while let Some(file) = open.pop() {
        if found.insert(file) {
            open.extend(&files[file]);
        }
    }
    found
}

#[test]
fn a_circle_is_found_and_a_parent_that_passes_on_is_none() {
    let read = |files: &[(&str, &str)]| {
        let mut found = Crate::default();
        for (file, text) in files {
            let (_, path) = module_path(file).expect("below src");
            let mut reader = Reader { file: (*file).into(), path, modules: &mut found.modules };
            reader.enter();
            reader.visit_file(&syn::parse_file(text).expect("it compiles"));
        }
        circles(&found.dependencies()).into_iter().map(|breach| breach.file).collect::<Vec<_>>()
    };
    let root = ("x/src/lib.rs", "mod a;");
    let parent = ("x/src/a/mod.rs", "mod b; mod c; pub use b::B; pub use c::C;");
    let b = ("x/src/a/b.rs", "use super::C; pub struct B(C);");
    assert!(read(&[root, parent, b, ("x/src/a/c.rs", "pub struct C;")]).is_empty());
    let both = [root, parent, b, ("x/src/a/c.rs", "use crate::a::B;")];
    assert_eq!(read(&both), ["x/src/a/b.rs", "x/src/a/c.rs"]);
    let with_parent =
        [("x/src/a.rs", "mod b; use b::B; pub struct A;"), ("x/src/a/b.rs", "fn b() { super::A; }")];
    assert_eq!(read(&with_parent), ["x/src/a.rs", "x/src/a/b.rs"]);
    let in_tests = [
        ("x/src/a.rs", "mod b; use b::B; pub struct A;"),
        ("x/src/a/b.rs", "#[cfg(test)] mod tests { use super::super::A; }"),
    ];
    assert!(read(&in_tests).is_empty());
}
