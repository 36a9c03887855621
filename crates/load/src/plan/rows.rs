//! A file of values (RFC 4180: commas, quotes, a line of names first), held in memory.

use crate::mistyped::Mistyped;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// A file's rows.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Rows {
    path: PathBuf,
    names: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Rows {
    /// Reads a file; it must have a row below its names.
    pub fn read(path: &Path) -> Result<Rows, Mistyped> {
        let shown = path.display();
        let text = std::fs::read_to_string(path).map_err(|why| Mistyped::unreadable(&shown, why))?;
        let mut rows = parse(&text);
        if rows.len() < 2 {
            return Err(format!("{shown}: must have a line of names and at least one row").into());
        }
        let names = rows.remove(0);
        if let Some(place) = rows.iter().position(|row| row.len() != names.len()) {
            return Err(
                format!("{shown}: row {} has not as many values as there are names", place + 1).into()
            );
        }
        Ok(Rows { path: path.to_owned(), names, rows })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The index of a column by its name, or by its number from 1.
    pub fn find(&self, column: &str) -> Result<usize, Mistyped> {
        let by_number =
            || column.parse::<usize>().ok().filter(|number| (1..=self.names.len()).contains(number));
        let found = self
            .names
            .iter()
            .position(|name| name == column)
            .or_else(|| by_number().map(|number| number - 1));
        found.ok_or_else(|| {
            format!("{}: no column `{column}`; there are {}", self.path.display(), self.names.join(", "))
                .into()
        })
    }

    pub fn columns(&self) -> usize {
        self.names.len()
    }

    /// Whether there are rows, and all of them have every column.
    pub fn is_sound(&self) -> bool {
        !self.rows.is_empty() && self.rows.iter().all(|row| row.len() == self.names.len())
    }

    pub fn count(&self) -> usize {
        self.rows.len()
    }

    pub fn value(&self, row: usize, column: usize) -> &str {
        &self.rows[row][column]
    }

    pub fn column(&self, column: usize) -> impl Iterator<Item = &str> {
        self.rows.iter().map(move |row| row[column].as_str())
    }
}

fn parse(text: &str) -> Vec<Vec<String>> {
    let (mut rows, mut row, mut value) = (Vec::new(), Vec::new(), String::new());
    let (mut quoted, mut characters) = (false, text.chars().peekable());
    while let Some(character) = characters.next() {
        match character {
            '"' if quoted && characters.peek() == Some(&'"') => {
                characters.next();
                value.push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => row.push(std::mem::take(&mut value)),
            '\r' if !quoted && characters.peek() == Some(&'\n') => {}
            '\n' if !quoted => {
                row.push(std::mem::take(&mut value));
                rows.push(std::mem::take(&mut row));
            }
            other => value.push(other),
        }
    }
    if !value.is_empty() || !row.is_empty() {
        row.push(value);
        rows.push(row);
    }
    rows.retain(|row| row.as_slice() != [""]);
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        let rows = parse("a,b\r\n1,\"x, \"\"y\"\"\"\n\n2,\n");
        assert_eq!(rows, [["a", "b"], ["1", "x, \"y\""], ["2", ""]]);
    }
}
