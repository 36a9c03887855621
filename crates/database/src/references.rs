//! Which tables refer to which: the foreign keys of a database, and its triggers and rules, as far as their
//! text and that of the functions that they call names tables. SQL that they put together is not understood.

use std::collections::{BTreeSet, HashSet};

/// A foreign key, or a trigger or rule of the child that names the parent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// The table that refers.
    pub child: String,
    /// The table that it refers to.
    pub parent: String,
    /// The columns of the parent; `None`: any change of the parent may matter.
    pub columns: Option<Vec<String>>,
}

/// SQL that the database runs beside changes: words in lower case.
#[derive(Debug, Default)]
pub(crate) struct Code {
    /// Tables, and what runs beside their changes.
    pub(crate) of_tables: Vec<(String, HashSet<String>)>,
    /// Functions by name.
    pub(crate) functions: Vec<(String, HashSet<String>)>,
}

/// The words of a text: letters, digits and `_`, or what stands in double quotes.
pub(crate) fn words(text: &str) -> HashSet<String> {
    let bare = text.split(|character: char| !character.is_alphanumeric() && character != '_');
    let quoted = text.split('"').skip(1).step_by(2);
    bare.chain(quoted).filter(|word| !word.is_empty()).map(str::to_lowercase).collect()
}

impl Code {
    /// The tables that the code of each table names, directly or through functions.
    pub(crate) fn references(&self, tables: &BTreeSet<String>) -> Vec<Reference> {
        let mut found = Vec::new();
        for (child, text) in &self.of_tables {
            let (mut texts, mut called) = (vec![text], HashSet::new());
            let mut parents = BTreeSet::new();
            while let Some(text) = texts.pop() {
                let names = |name: &str| text.contains(&name.to_lowercase());
                parents.extend(tables.iter().filter(|table| *table != child && names(table)));
                for (place, (name, body)) in self.functions.iter().enumerate() {
                    if names(name) && called.insert(place) {
                        texts.push(body);
                    }
                }
            }
            found.extend(parents.into_iter().map(|parent| Reference {
                child: child.clone(),
                parent: parent.clone(),
                columns: None,
            }));
        }
        found
    }
}

/// The references of a database, between tables that are found by their bare names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct References {
    /// Foreign keys, triggers and rules.
    pub keys: Vec<Reference>,
    /// The names of all tables.
    pub tables: BTreeSet<String>,
}

impl References {
    /// Takes over what was read later. A key of a table that is missing now stays: it was renamed or dropped,
    /// and what its children contain was written for it.
    pub fn learn(&mut self, later: References) {
        let known = std::mem::replace(self, later);
        let is_missing =
            |key: &Reference| !self.tables.contains(&key.child) || !self.tables.contains(&key.parent);
        let kept: Vec<Reference> = known.keys.into_iter().filter(is_missing).collect();
        self.keys.extend(kept);
    }

    /// The tables that refer to this one, also through others, and this one.
    pub fn children(&self, table: &str) -> BTreeSet<String> {
        let mut found = BTreeSet::from([table.to_owned()]);
        let mut open = vec![table.to_owned()];
        while let Some(parent) = open.pop() {
            for key in self.keys.iter().filter(|key| key.parent == parent) {
                if found.insert(key.child.clone()) {
                    open.push(key.child.clone());
                }
            }
        }
        found
    }

    /// The tables among `of` that are connected with this one by keys between tables of `of`, and this one.
    pub fn connected(&self, table: &str, of: impl Fn(&str) -> bool) -> BTreeSet<String> {
        let mut found = BTreeSet::from([table.to_owned()]);
        let mut open = vec![table.to_owned()];
        while let Some(one) = open.pop() {
            for key in &self.keys {
                let other = match () {
                    () if key.parent == one => &key.child,
                    () if key.child == one => &key.parent,
                    () => continue,
                };
                if of(other) && found.insert(other.clone()) {
                    open.push(other.clone());
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn references(keys: &[(&str, &str)], tables: &[&str]) -> References {
        let key = |(child, parent): &(&str, &str)| Reference {
            child: (*child).into(),
            parent: (*parent).into(),
            columns: Some(vec!["id".into()]),
        };
        let tables = tables.iter().map(|table| (*table).to_owned()).collect();
        References { keys: keys.iter().map(key).collect(), tables }
    }

    fn names(tables: &[&str]) -> BTreeSet<String> {
        tables.iter().map(|table| (*table).to_owned()).collect()
    }

    #[test]
    fn code_names_tables_directly_and_through_functions() {
        let tables = names(&["sale", "stock", "Odd name", "orders", "log"]);
        let code = |of: &str, functions: &[(&str, &str)]| Code {
            of_tables: vec![("sale".into(), words(of))],
            functions: functions.iter().map(|(name, text)| ((*name).into(), words(text))).collect(),
        };
        let parents = |code: Code| -> Vec<String> {
            code.references(&tables).into_iter().map(|reference| reference.parent).collect()
        };
        assert_eq!(parents(code("UPDATE Stock SET qty = 1; SELECT * FROM sale ORDER BY 1", &[])), ["stock"]);
        assert_eq!(parents(code(r#"DELETE FROM "Odd name""#, &[])), ["Odd name"]);
        let functions =
            [("Takes", "perform more()"), ("more", "insert into log select takes()"), ("other", "orders")];
        assert_eq!(parents(code("SELECT takes(1)", &functions)), ["log"]);
    }

    #[test]
    fn children_are_found_through_others_and_in_circles() {
        let found = references(&[("b", "a"), ("c", "b"), ("a", "c"), ("d", "d"), ("e", "d")], &[]);
        assert_eq!(found.children("b"), names(&["a", "b", "c"]));
        assert_eq!(found.children("d"), names(&["d", "e"]));
        assert_eq!(found.children("e"), names(&["e"]));
    }

    #[test]
    fn tables_are_connected_by_tables_that_are_looked_at() {
        let found = references(&[("ord", "cust"), ("ord", "prod"), ("part", "prod")], &[]);
        let stopped = names(&["ord", "cust", "part"]);
        assert_eq!(found.connected("cust", |table| stopped.contains(table)), names(&["cust", "ord"]));
        assert_eq!(found.connected("part", |_| true), names(&["cust", "ord", "part", "prod"]));
    }

    #[test]
    fn keys_of_a_renamed_table_stay_and_dropped_keys_do_not() {
        let mut known = references(&[("ord", "cust"), ("ord", "prod")], &["ord", "cust", "prod"]);
        known.learn(references(&[("ord", "aside")], &["ord", "aside", "prod"]));
        assert_eq!(known.children("cust"), names(&["cust", "ord"]));
        assert_eq!(known.children("prod"), names(&["prod"]));
        known.learn(references(&[], &["ord", "cust", "prod"]));
        assert_eq!(known.children("cust"), names(&["cust"]));
    }
}
