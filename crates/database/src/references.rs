//! Which tables refer to which: the foreign keys of a database, and its triggers and rules, as far as their
//! text and that of the functions that they call names tables. SQL that they put together is not understood.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

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

/// SQL that the database runs beside changes: of tables and views (triggers, rules) and of functions, by
/// their names in lower case.
#[derive(Debug, Default)]
pub(crate) struct Code(HashMap<String, Vec<Text>>);

#[derive(Debug)]
struct Text {
    lower: String,
    /// Letters, digits and `_`.
    words: HashSet<String>,
}

impl Code {
    pub(crate) fn add(&mut self, name: &str, text: &str) {
        let lower = text.to_lowercase();
        let words = lower.split(|character: char| !is_of_word(character)).filter(|word| !word.is_empty());
        let words = words.map(str::to_owned).collect();
        self.0.entry(name.to_lowercase()).or_default().push(Text { lower, words });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether some text names what has no text here.
    pub(crate) fn lacks(&self, name: &str) -> bool {
        let name = name.to_lowercase();
        !self.0.contains_key(&name) && self.0.values().flatten().any(|text| text.words.contains(&name))
    }

    /// The tables that the code of each table names, directly or through functions, views and other tables.
    pub(crate) fn references(&self, tables: &BTreeSet<String>) -> Vec<Reference> {
        let mut found = Vec::new();
        for child in tables {
            let mut known = HashSet::from([child.to_lowercase()]);
            let (mut open, mut parents) = (Vec::from_iter(known.clone()), BTreeSet::new());
            while let Some(name) = open.pop() {
                for text in self.0.get(&name).into_iter().flatten() {
                    parents.extend(tables.iter().filter(|table| text.names(table)));
                    let called = text.words.iter().filter(|word| self.0.contains_key(*word));
                    open.extend(called.filter(|word| known.insert((*word).clone())).cloned());
                }
            }
            parents.remove(child);
            found.extend(parents.into_iter().map(|parent| Reference {
                child: child.clone(),
                parent: parent.clone(),
                columns: None,
            }));
        }
        found
    }
}

impl Text {
    fn names(&self, table: &str) -> bool {
        let table = table.to_lowercase();
        // A name of other characters stands in quotes of some kind.
        match table.chars().all(is_of_word) {
            true => self.words.contains(&table),
            false => self.lower.contains(&table),
        }
    }
}

fn is_of_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// The references of a database, between tables that are found by their bare names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct References {
    /// Foreign keys, triggers and rules.
    pub keys: Vec<Reference>,
    /// The names of all tables, with the numbers by which the database knows them.
    pub tables: BTreeMap<String, Option<i64>>,
}

impl References {
    /// With other names for the tables that have others elsewhere, by their names here and their numbers.
    pub fn named(mut self, name: impl Fn(&str, i64) -> Option<String>) -> References {
        let other =
            |(table, number): (&String, &Option<i64>)| Some((table.clone(), name(table, (*number)?)?));
        let others: HashMap<String, String> = self.tables.iter().filter_map(other).collect();
        for end in self.keys.iter_mut().flat_map(|key| [&mut key.child, &mut key.parent]) {
            if let Some(other) = others.get(end) {
                end.clone_from(other);
            }
        }
        self
    }

    /// Takes over what was read later. A key of a table that is missing now stays: it was renamed or dropped,
    /// and what its children contain was written for it.
    pub fn learn(&mut self, later: References) {
        let known = std::mem::replace(self, later);
        let tables = self.tables.clone();
        let is_missing =
            |key: &Reference| !tables.contains_key(&key.child) || !tables.contains_key(&key.parent);
        for key in known.keys.iter().filter(|key| is_missing(key)) {
            if !self.keys.contains(key) {
                self.keys.push(key.clone());
            }
        }
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
        let tables = (1..).zip(tables).map(|(number, table)| ((*table).to_owned(), Some(number))).collect();
        References { keys: keys.iter().map(key).collect(), tables }
    }

    fn names(tables: &[&str]) -> BTreeSet<String> {
        tables.iter().map(|table| (*table).to_owned()).collect()
    }

    #[test]
    fn code_names_tables_directly_and_through_others() {
        let tables = names(&["sale", "stock", "Odd name", "orders", "log", "ledger"]);
        let parents = |items: &[(&str, &str)]| -> Vec<String> {
            let mut code = Code::default();
            items.iter().for_each(|(name, text)| code.add(name, text));
            let found = code.references(&tables).into_iter().filter(|reference| reference.child == "sale");
            found.map(|reference| reference.parent).collect()
        };
        assert_eq!(
            parents(&[("SALE", "UPDATE Stock SET qty = 1; SELECT * FROM sale ORDER BY 1")]),
            ["stock"]
        );
        assert_eq!(parents(&[("sale", r#"DELETE FROM "Odd name""#)]), ["Odd name"]);
        assert_eq!(parents(&[("sale", "DELETE FROM [odd name]")]), ["Odd name"]);
        let functions =
            [("sale", "takes"), ("Takes", "perform more()"), ("more", "insert into log select takes()")];
        assert_eq!(parents(&functions), ["log"]);
        // By the trigger of a table that it writes to, and through a view.
        assert_eq!(
            parents(&[("sale", "UPDATE stock"), ("stock", "INSERT INTO ledger")]),
            ["ledger", "stock"]
        );
        assert_eq!(parents(&[("sale", "UPDATE seen"), ("seen", "orders")]), ["orders"]);
        assert_eq!(parents(&[("stock", "sale")]), [""; 0]);
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
    fn renamed_tables_have_the_names_that_are_known() {
        let now = references(&[("ord", "aside"), ("part", "ord")], &["aside", "ord", "part"]);
        let named = now.named(|table, number| (table != "ord").then(|| format!("t{number}")));
        let ends = named.keys.iter().map(|key| (&*key.child, &*key.parent));
        assert_eq!(ends.collect::<Vec<_>>(), [("ord", "t1"), ("t3", "ord")]);
    }

    #[test]
    fn keys_of_a_renamed_table_stay_and_dropped_keys_do_not() {
        let mut known = references(&[("ord", "cust"), ("ord", "prod")], &["ord", "cust", "prod"]);
        known.learn(references(&[("ord", "aside")], &["ord", "aside", "prod"]));
        assert_eq!(known.children("cust"), names(&["cust", "ord"]));
        assert_eq!(known.children("prod"), names(&["prod"]));
        known.learn(references(&[("ord", "cust")], &["ord", "aside", "prod"]));
        assert_eq!(known.keys.len(), 1, "a key that was missing is known once");
        known.learn(references(&[], &["ord", "cust", "prod"]));
        assert_eq!(known.children("cust"), names(&["cust"]));
    }
}
