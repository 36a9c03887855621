//! Comments are as wide as the code, documents 100 columns, and a doc comment says more than the
//! name below it.

use super::breach::{Breach, hold};
use super::{root, sources};
use std::fs;
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, Lit, Meta};

/// As `max_width` in `rustfmt.toml`.
const COMMENT_COLUMNS_MAX: usize = 110;
/// Columns of a line of prose in a document.
const DOCUMENT_COLUMNS_MAX: usize = 100;
/// A doc comment with more words than this is not checked for repeating a name.
const TRIVIAL_WORDS_MAX: usize = 3;

#[test]
fn comments_are_as_wide_as_the_code() {
    let settings = fs::read_to_string(root().join("rustfmt.toml")).expect("the settings of rustfmt");
    assert!(settings.contains(&format!("max_width = {COMMENT_COLUMNS_MAX}\n")), "{settings}");
    let breaches: Vec<Breach> = sources()
        .into_iter()
        .filter_map(|(file, text)| {
            // A row of a table cannot be broken.
            let wide = |(_, line): &(usize, &str)| {
                let comment = line.trim_start().strip_prefix("//");
                let is_row = |text: &str| text.trim_start_matches(['/', '!', ' ']).starts_with('|');
                comment.is_some_and(|text| !is_row(text)) && line.chars().count() > COMMENT_COLUMNS_MAX
            };
            let places: Vec<usize> = text.lines().enumerate().filter(wide).map(|(at, _)| at + 1).collect();
            let what = format!("{file}: comments of more than {COMMENT_COLUMNS_MAX} columns in {places:?}");
            (!places.is_empty()).then_some(Breach { file, what })
        })
        .collect();
    hold("comment-width", &breaches);
}

#[test]
fn documents_wrap() {
    let mut documents = Vec::new();
    for folder in ["", "docs", "examples", "crates/http", "bench", "peers"] {
        for entry in fs::read_dir(root().join(folder)).expect("a folder of the tree") {
            let path = entry.expect("an entry").path();
            if path.extension().is_some_and(|extension| extension == "md") {
                documents.push(path);
            }
        }
    }
    documents.sort();
    let breaches: Vec<Breach> = documents
        .into_iter()
        .filter_map(|path| {
            let file = path.strip_prefix(root()).expect("below the root").display().to_string();
            let places = wide_prose(&fs::read_to_string(&path).expect("a text"));
            let what = format!("{file}: more than {DOCUMENT_COLUMNS_MAX} columns in {places:?}");
            (!places.is_empty()).then_some(Breach { file, what })
        })
        .collect();
    hold("document-width", &breaches);
}

/// The numbers of prose lines that are too long and could be broken; tables, headings and code may
/// be wider.
fn wide_prose(text: &str) -> Vec<usize> {
    let mut is_code = false;
    let mut places = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        let is_prose = !is_code && !is_fence && !line.trim_start().starts_with(['|', '#', '<']);
        // A link or a path that is longer than a line cannot be broken.
        let can_break = line.trim_start().trim_start_matches("- ").contains(' ');
        if is_prose && can_break && line.chars().count() > DOCUMENT_COLUMNS_MAX {
            places.push(at + 1);
        }
    }
    places
}

#[test]
fn doc_comments_say_more_than_the_name() {
    let mut breaches = Vec::new();
    for (file, text) in sources() {
        let syntax = syn::parse_file(&text).unwrap_or_else(|error| panic!("{file}: {error}"));
        let mut docs = Docs::default();
        docs.visit_file(&syntax);
        if !docs.trivial.is_empty() {
            let what = format!("{file}: doc comments that repeat the name: {}", docs.trivial.join(", "));
            breaches.push(Breach { file, what });
        }
    }
    hold("trivial-docs", &breaches);
}

/// Finds doc comments that repeat the name of their item.
#[derive(Default)]
struct Docs {
    /// The type or trait around.
    owner: String,
    trivial: Vec<String>,
}

impl Docs {
    fn check(&mut self, name: &syn::Ident, attributes: &[Attribute]) {
        let text = doc(attributes);
        if repeats(&text, &[&name.to_string(), &self.owner]) {
            self.trivial.push(format!("`{name}`: {text:?}"));
        }
    }

    fn within(&mut self, owner: String, visit: impl FnOnce(&mut Docs)) {
        let outer = std::mem::replace(&mut self.owner, owner);
        visit(self);
        self.owner = outer;
    }
}

/// The text of a doc comment, in one line.
fn doc(attributes: &[Attribute]) -> String {
    let line = |attribute: &Attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            Expr::Lit(literal) => match &literal.lit {
                Lit::Str(text) => Some(text.value()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    };
    attributes.iter().filter_map(line).collect::<Vec<_>>().join(" ").trim().to_owned()
}

/// Whether a text has few words, and each of them occurs in one of the names.
fn repeats(text: &str, names: &[&str]) -> bool {
    const FILLERS: &[&str] =
        &["a", "an", "the", "its", "of", "it", "this", "all", "one", "is", "to", "for", "in"];
    let words = lowercase_words(text);
    let known: Vec<String> = names.iter().flat_map(|name| lowercase_words(name)).collect();
    let says_nothing = |word: &String| {
        FILLERS.contains(&word.as_str()) || known.iter().any(|known| stem(known) == stem(word))
    };
    (1..=TRIVIAL_WORDS_MAX).contains(&words.len()) && words.iter().all(says_nothing)
}

/// `SnakeCase`, `snake_case` and a sentence, by words.
fn lowercase_words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for letter in text.chars() {
        if !letter.is_alphanumeric() || (letter.is_uppercase() && was_lower) {
            words.push(String::new());
        }
        if letter.is_alphanumeric() {
            words.last_mut().expect("never empty").extend(letter.to_lowercase());
        }
        was_lower = letter.is_lowercase();
    }
    words.retain(|word| !word.is_empty());
    words
}

/// The stem by which forms of a word are compared: `host`, `hosts`, `hosted`.
fn stem(word: &str) -> String {
    word.trim_end_matches("ing").trim_end_matches("ed").trim_end_matches('s').trim_end_matches('e').to_owned()
}

impl<'a> Visit<'a> for Docs {
    fn visit_item_struct(&mut self, item: &'a syn::ItemStruct) {
        self.check(&item.ident, &item.attrs);
        self.within(item.ident.to_string(), |docs| visit::visit_item_struct(docs, item));
    }

    fn visit_item_enum(&mut self, item: &'a syn::ItemEnum) {
        self.check(&item.ident, &item.attrs);
        self.within(item.ident.to_string(), |docs| visit::visit_item_enum(docs, item));
    }

    fn visit_item_trait(&mut self, item: &'a syn::ItemTrait) {
        self.check(&item.ident, &item.attrs);
        self.within(item.ident.to_string(), |docs| visit::visit_item_trait(docs, item));
    }

    fn visit_item_fn(&mut self, item: &'a syn::ItemFn) {
        self.check(&item.sig.ident, &item.attrs);
    }

    fn visit_item_const(&mut self, item: &'a syn::ItemConst) {
        self.check(&item.ident, &item.attrs);
    }

    fn visit_item_type(&mut self, item: &'a syn::ItemType) {
        self.check(&item.ident, &item.attrs);
    }

    fn visit_item_impl(&mut self, item: &'a syn::ItemImpl) {
        let owner = match &*item.self_ty {
            syn::Type::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()),
            _ => None,
        };
        self.within(owner.unwrap_or_default(), |docs| visit::visit_item_impl(docs, item));
    }

    fn visit_impl_item_fn(&mut self, item: &'a syn::ImplItemFn) {
        self.check(&item.sig.ident, &item.attrs);
    }

    fn visit_trait_item_fn(&mut self, item: &'a syn::TraitItemFn) {
        self.check(&item.sig.ident, &item.attrs);
    }

    fn visit_field(&mut self, field: &'a syn::Field) {
        if let Some(name) = &field.ident {
            self.check(name, &field.attrs);
        }
        visit::visit_field(self, field);
    }

    fn visit_variant(&mut self, variant: &'a syn::Variant) {
        self.check(&variant.ident, &variant.attrs);
        visit::visit_variant(self, variant);
    }
}

#[test]
fn a_repetition_is_told_from_a_sentence() {
    assert!(repeats("Its hosts.", &["host", ""]));
    assert!(repeats("The sampler.", &["Sampler", ""]));
    assert!(repeats("Sent segments.", &["sent_segments", "Tcp"]));
    assert!(!repeats("A gauge.", &["waiting_bytes", "Queue"]));
    assert!(!repeats("", &["waiting", ""]));
}
