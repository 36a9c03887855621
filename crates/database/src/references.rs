//! Which tables refer to which: the foreign keys of a database.

use std::collections::BTreeSet;

/// A foreign key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// The table that refers.
    pub child: String,
    /// The table that it refers to.
    pub parent: String,
    /// The columns of the parent.
    pub columns: Vec<String>,
}

/// The foreign keys of a database, between tables that are found by their bare names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct References {
    /// The foreign keys.
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
            columns: vec!["id".into()],
        };
        let tables = tables.iter().map(|table| (*table).to_owned()).collect();
        References { keys: keys.iter().map(key).collect(), tables }
    }

    fn names(tables: &[&str]) -> BTreeSet<String> {
        tables.iter().map(|table| (*table).to_owned()).collect()
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
