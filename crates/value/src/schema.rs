//! Table schemas: columns, key, unique columns, columns whose rows are counted by value.

use crate::{Fill, Need, Numbering, Numbers, Presence, Type};
use std::fmt;

/// A column as the configuration or the database defines it.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// Its name, in the database and in JSON.
    pub name: String,
    /// Its type.
    pub ty: Type,
    /// Whether NULL is permitted.
    pub nullable: bool,
    /// Whether no two rows may have the same value (NULLs excepted).
    pub unique: bool,
    /// Whether rows are counted by value, for `count` on this column.
    pub indexed: bool,
    /// The value when an insert gives none.
    pub fill: Option<Fill>,
}

/// The kind of a table's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyKind {
    /// A bigint that the database assigns in blocks.
    Serial,
    /// A bigint that the caller gives.
    Bigint,
    /// A UUID, given or generated.
    Uuid,
    /// A text that the caller gives.
    Text,
}

/// A table: its name, its columns in order, and the key column.
#[derive(Debug, Clone, PartialEq)]
pub struct Schema {
    /// The table's name, also in the database.
    pub name: String,
    /// The columns, in order; the order of values in a row.
    pub columns: Vec<Column>,
    /// The index of the key column.
    pub key: usize,
    /// The kind of the key.
    pub key_kind: KeyKind,
    /// Sets of columns, by index: no two rows have equal values in all columns of a set (unless one is
    /// NULL).
    pub unique_sets: Vec<Vec<usize>>,
    /// Which of the columns the database lacks at present.
    pub presence: Presence,
    /// By which numbers the database knows the columns.
    pub numbers: Numbers,
}

impl Schema {
    /// Creates a schema; checks what every user of a schema relies on.
    pub fn new(
        name: impl Into<String>,
        columns: Vec<Column>,
        key: usize,
        key_kind: KeyKind,
    ) -> Result<Schema, SchemaError> {
        let name = name.into();
        let error = |what: String| Err(SchemaError { table: name.clone(), what });
        let Some(key_column) = columns.get(key) else {
            return error("has no key column".into());
        };
        let fits = match key_kind {
            KeyKind::Serial => key_column.ty == Type::Bigint,
            KeyKind::Bigint => key_column.ty.range().is_some(),
            KeyKind::Uuid => key_column.ty == Type::Uuid,
            KeyKind::Text => matches!(key_column.ty, Type::Text { .. }),
        };
        if !fits {
            return error(format!(
                "cannot have a key of type {} (column {})",
                key_column.ty, key_column.name
            ));
        }
        if key_column.nullable {
            return error(format!("has a key that may be null (column {})", key_column.name));
        }
        for (index, column) in columns.iter().enumerate() {
            if columns[..index].iter().any(|other| other.name.eq_ignore_ascii_case(&column.name)) {
                return error(format!("has two columns named {}", column.name));
            }
        }
        let presence = Presence::new(columns.len());
        let numbers = Numbers::default();
        Ok(Schema { name, columns, key, key_kind, unique_sets: Vec::new(), presence, numbers })
    }

    /// The index of the column with this name.
    pub fn position(&self, column: &str) -> Option<usize> {
        self.columns.iter().position(|candidate| candidate.name == column)
    }

    /// The columns that the database lacks at present, by name.
    pub fn gone(&self) -> Vec<String> {
        self.presence.gone().map(|column| self.columns[column].name.clone()).collect()
    }

    /// Without these columns, the key not among them.
    ///
    /// # Panics
    /// When the key is among them.
    pub fn without(&self, left_out: &[usize]) -> Schema {
        assert!(!left_out.contains(&self.key), "the key of {} stays", self.name);
        let place = |column: usize| {
            let before = left_out.iter().filter(|other| **other < column).count();
            (!left_out.contains(&column)).then(|| column - before)
        };
        let columns = self.columns.iter().enumerate().filter(|(column, _)| place(*column).is_some());
        let columns: Vec<Column> = columns.map(|(_, column)| column.clone()).collect();
        let sets =
            self.unique_sets.iter().filter_map(|set| set.iter().map(|column| place(*column)).collect());
        Schema {
            name: self.name.clone(),
            presence: Presence::new(columns.len()),
            numbers: Numbers::default(),
            columns,
            key: place(self.key).expect("it stays"),
            key_kind: self.key_kind,
            unique_sets: sets.collect(),
        }
    }

    /// With columns that the database lacks and only endpoints need, each at its place or at the end.
    pub fn with_gone(mut self, gone: Vec<(usize, Column)>) -> Schema {
        let mut places = Vec::with_capacity(gone.len());
        let mut numbers = self.numbers.logged().map(|numbers| Numbering::clone(numbers));
        for (place, column) in gone {
            let place = place.min(self.columns.len());
            let unique = self.unique_sets.iter_mut().flatten().chain([&mut self.key]);
            unique.filter(|other| **other >= place).for_each(|other| *other += 1);
            self.columns.insert(place, column);
            numbers.iter_mut().for_each(|numbers| numbers.columns.insert(place, 0));
            places.push(place);
        }
        self.presence = Presence::new(self.columns.len());
        self.numbers = Numbers::new(numbers);
        for place in places {
            self.presence.set_need(place, Need::Endpoints);
            self.presence.set_gone(place);
        }
        self
    }

    /// The column by which rows are found.
    pub fn key_column(&self) -> &Column {
        &self.columns[self.key]
    }

    /// The indexes of the unique columns, the key not among them.
    pub fn unique_columns(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.columns.len()).filter(|&index| self.columns[index].unique && index != self.key)
    }

    /// Whether two rows with different keys may conflict on a unique value.
    pub fn has_unique(&self) -> bool {
        self.unique_columns().next().is_some() || !self.unique_sets.is_empty()
    }

    /// The columns of a uniqueness rule: a unique column has its index as number, an entry of
    /// [`Schema::unique_sets`] its index there plus the number of columns.
    pub fn unique_rule(&self, rule: usize) -> Vec<usize> {
        match rule.checked_sub(self.columns.len()) {
            Some(set) => self.unique_sets[set].clone(),
            None => vec![rule],
        }
    }

    /// The indexes of the columns whose rows are counted by value.
    pub fn indexed_columns(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.columns.len()).filter(|&index| self.columns[index].indexed)
    }
}

/// An invalid schema: the table and the mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaError {
    /// The table's name.
    pub table: String,
    /// The mistake, as the rest of a sentence.
    pub what: String,
}

impl fmt::Display for SchemaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "table {} {}", self.table, self.what)
    }
}

impl std::error::Error for SchemaError {}
