//! One layout for all files: imports in one block, unit tests at the end.

use super::breach::{Breach, hold};
use super::sources;
use syn::spanned::Spanned;
use syn::{Attribute, Item, ItemMod, Visibility};

/// `use …` of a file stand together, without an empty line: rustfmt keeps a block in order.
/// Re-exports (`pub use`) may stand apart.
#[test]
fn imports_stand_in_one_block() {
    let mut breaches = Vec::new();
    for (file, text) in sources() {
        let syntax = syn::parse_file(&text).unwrap_or_else(|error| panic!("{file}: {error}"));
        if let Some(line) = import_apart(&syntax.items) {
            let what = format!("{file}:{line}: an import apart from those above it");
            breaches.push(Breach { file, what });
        }
    }
    hold("import-order", &breaches);
}

/// The line of an import that is separated from the others, in a file or a module within it.
fn import_apart(items: &[Item]) -> Option<usize> {
    let lines = items.iter().filter_map(|item| match item {
        Item::Use(item) if matches!(item.vis, Visibility::Inherited) && item.attrs.is_empty() => {
            Some((item.span().start().line, item.span().end().line))
        }
        _ => None,
    });
    let lines: Vec<_> = lines.collect();
    let within = items.iter().find_map(|item| match item {
        Item::Mod(module) => import_apart(&module.content.as_ref()?.1),
        _ => None,
    });
    lines.windows(2).find(|pair| pair[0].1 + 1 != pair[1].0).map(|pair| pair[1].0).or(within)
}

/// Unit tests are a module `tests`, the last of its file; when it is long, in `tests.rs` below the
/// module that it tests.
#[test]
fn unit_tests_stand_at_the_end() {
    let mut breaches = Vec::new();
    for (file, text) in sources() {
        let syntax = syn::parse_file(&text).unwrap_or_else(|error| panic!("{file}: {error}"));
        let mut wrong = |at: &ItemMod, what: &str| {
            let what = format!("{file}:{}: {what}", at.span().start().line);
            breaches.push(Breach { file: file.clone(), what });
        };
        for (at, item) in syntax.items.iter().enumerate() {
            let Item::Mod(module) = item else { continue };
            if !has(&module.attrs, "cfg", "test") {
                continue;
            }
            if has(&module.attrs, "path", "") {
                wrong(module, "unit tests in a file of another name; call it tests.rs, below the module");
            } else if module.ident == "tests" && module.content.is_some() && at + 1 != syntax.items.len() {
                wrong(module, "unit tests before the end of the file");
            } else if module.ident.to_string().ends_with("_tests") {
                wrong(module, "unit tests by another name than `tests`");
            }
        }
    }
    hold("test-layout", &breaches);
}

/// Whether an attribute of that name exists; if `inside` is not empty, it must be the attribute's only
/// word.
fn has(attributes: &[Attribute], name: &str, inside: &str) -> bool {
    let is = |attribute: &Attribute| {
        attribute.path().is_ident(name)
            && (inside.is_empty()
                || attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident(inside)))
    };
    attributes.iter().any(is)
}
