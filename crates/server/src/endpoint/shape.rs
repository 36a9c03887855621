//! The shape of an answer: its fields, their order and names. The shape is compiled at start, so that a
//! request only copies keys and writes values.

use super::eval::{Eval, Scope};
use forebay_value::{Presence, Row, RowRef, Schema, Value, ValueRef, json};
use smallvec::SmallVec;

/// Values of one row, in column order.
pub type RowValues<'a> = SmallVec<[ValueRef<'a>; 16]>;

/// A compiled answer body: `{"wrap":{"a":…,"b":…}}`.
#[derive(Debug, Clone)]
pub struct Shape {
    open: Vec<u8>,
    fields: Vec<Field>,
    close: Vec<u8>,
    /// Whether the fields are exactly the columns, in order: then values are written without collecting them
    /// first.
    in_column_order: bool,
    /// Which columns are left out.
    presence: Presence,
}

#[derive(Debug, Clone)]
struct Field {
    /// The key with the punctuation before it: `{"id":` or `,"code":`.
    key: Vec<u8>,
    source: Eval,
}

impl Shape {
    /// A shape of these fields (JSON name and source), wrapped in an object with the key `wrap` if it is
    /// given. `columns` is the number of columns of the rows that will be written. A field that is a column
    /// is left out while `presence` hides it.
    pub fn new(wrap: Option<&str>, fields: Vec<(String, Eval)>, columns: usize, presence: Presence) -> Shape {
        let is_column =
            |(index, (_, source)): (usize, &(String, Eval))| matches!(source, Eval::Column(c) if *c == index);
        let in_column_order = fields.len() == columns && fields.iter().enumerate().all(is_column);
        let mut open = Vec::new();
        if let Some(wrap) = wrap {
            open.push(b'{');
            json::write_string(wrap, &mut open);
            open.push(b':');
        }
        let fields = fields
            .into_iter()
            .enumerate()
            .map(|(index, (name, source))| {
                let mut key = vec![if index == 0 { b'{' } else { b',' }];
                json::write_string(&name, &mut key);
                key.push(b':');
                Field { key, source }
            })
            .collect();
        Shape {
            open,
            fields,
            close: if wrap.is_some() { b"}".to_vec() } else { Vec::new() },
            in_column_order,
            presence,
        }
    }

    /// Whether any field shows this column.
    pub fn shows(&self, column: usize) -> bool {
        self.fields.iter().any(|field| field.source.uses_column(column))
    }

    /// Appends the answer for one row of a hot table.
    pub fn write_row(&self, schema: &Schema, row: RowRef<'_>, scope: &Scope<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.open);
        self.write_row_object(schema, row, scope, out);
        out.extend_from_slice(&self.close);
    }

    /// Appends the answer for one row that was just created.
    pub fn write_own(&self, values: &[Value], scope: &Scope<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.open);
        self.write_columns(values.iter().map(Value::as_ref), scope, out);
        out.extend_from_slice(&self.close);
    }

    fn write_row_object(&self, schema: &Schema, row: RowRef<'_>, scope: &Scope<'_>, out: &mut Vec<u8>) {
        self.write_columns(row.values(schema), scope, out);
    }

    fn write_columns<'v>(
        &self,
        values: impl Iterator<Item = ValueRef<'v>>,
        scope: &Scope<'_>,
        out: &mut Vec<u8>,
    ) {
        if self.in_column_order && !self.presence.hides() {
            for (field, value) in self.fields.iter().zip(values) {
                out.extend_from_slice(&field.key);
                json::write_value(value, out);
            }
            out.push(b'}');
        } else {
            let values: RowValues<'_> = values.collect();
            self.write_object(&values, scope, out);
        }
    }

    /// Appends the answer for one row given as values.
    pub fn write_values(&self, values: &[ValueRef<'_>], scope: &Scope<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.open);
        self.write_object(values, scope, out);
        out.extend_from_slice(&self.close);
    }

    /// Appends the answer for several rows: an array where [`Shape::write_row`] has an object.
    pub fn write_rows(&self, schema: &Schema, rows: &[Row], scope: &Scope<'_>, out: &mut Vec<u8>) {
        self.write_array(rows, out, |row, out| self.write_row_object(schema, row.as_ref(), scope, out));
    }

    /// Appends the answer for several rows given as values.
    pub fn write_all<'v>(
        &self,
        rows: impl IntoIterator<Item = RowValues<'v>>,
        scope: &Scope<'_>,
        out: &mut Vec<u8>,
    ) {
        self.write_array(rows, out, |values, out| self.write_object(&values, scope, out));
    }

    fn write_array<T>(
        &self,
        items: impl IntoIterator<Item = T>,
        out: &mut Vec<u8>,
        mut write: impl FnMut(T, &mut Vec<u8>),
    ) {
        out.extend_from_slice(&self.open);
        out.push(b'[');
        for (index, item) in items.into_iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            write(item, out);
        }
        out.push(b']');
        out.extend_from_slice(&self.close);
    }

    fn write_object(&self, values: &[ValueRef<'_>], scope: &Scope<'_>, out: &mut Vec<u8>) {
        let begin = out.len();
        for field in &self.fields {
            if matches!(field.source, Eval::Column(column) if self.presence.is_hidden(column)) {
                continue;
            }
            out.extend_from_slice(&field.key);
            match &field.source {
                Eval::Column(column) => json::write_value(values[*column], out),
                // Fields consist of columns, parameters and functions that cannot fail (checked at start).
                source => match source.evaluate(&scope.with_columns(values)) {
                    Ok(value) => json::write_value(value.as_ref(), out),
                    Err(_) => json::write_value(ValueRef::Null, out),
                },
            }
        }
        match out.get_mut(begin) {
            // The first field may be left out.
            Some(first) => *first = b'{',
            None => out.push(b'{'),
        }
        out.push(b'}');
    }
}
