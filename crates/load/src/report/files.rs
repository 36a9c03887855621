//! Results to files and back.

use super::compare::Comparison;
use super::error::{Error, Kind};
use super::page::{Extras, page};
use super::threshold::Checked;
use crate::results::{FORMAT, Results};
use std::fs;
use std::io::Write;
use std::path::Path;

/// Writes the JSON that `docs/load.md` describes. `-` is standard output.
///
/// # Errors
/// [`Kind::File`].
pub fn write_json(results: &Results, path: &Path) -> Result<(), Error> {
    let mut text = serde_json::to_string_pretty(results)
        .map_err(|error| Error::new(Kind::Format, "these results have no JSON").with_source(error))?;
    text.push('\n');
    write(path, text.as_bytes())
}

/// Writes the page. `-` is standard output.
///
/// # Errors
/// [`Kind::File`].
pub fn write_html(
    results: &Results,
    comparison: Option<&Comparison>,
    thresholds: &[Checked],
    path: &Path,
) -> Result<(), Error> {
    write(path, page(results, &Extras { comparison, thresholds }).as_bytes())
}

/// Reads what [`write_json`] wrote.
///
/// # Errors
/// [`Kind::File`], or [`Kind::Format`] when the file contains something else.
pub fn read_json(path: &Path) -> Result<Results, Error> {
    let shown = path.display();
    let text = fs::read(path)
        .map_err(|error| Error::new(Kind::File, format!("cannot read {shown}")).with_source(error))?;
    let results: Results = serde_json::from_slice(&text).map_err(|error| {
        let message = format!("{shown} holds no results of forebay load; give a file that --json wrote");
        Error::new(Kind::Format, message).with_source(error)
    })?;
    if results.format > FORMAT {
        let message = format!(
            "{shown} was written by a newer forebay (format {}, this one reads up to {FORMAT}); update this one",
            results.format
        );
        return Err(Error::new(Kind::Format, message));
    }
    Ok(results)
}

/// Replaces a file atomically: the bytes are written beside it, then renamed.
fn write(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let shown = path.display();
    let failed =
        |error: std::io::Error| Error::new(Kind::File, format!("cannot write {shown}")).with_source(error);
    if path == Path::new("-") {
        return std::io::stdout().write_all(bytes).map_err(failed);
    }
    // A device or a pipe can only be written to, not replaced.
    if path.exists() && !path.is_file() {
        return fs::write(path, bytes).map_err(failed);
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(".part");
    fs::write(&beside, bytes).map_err(failed)?;
    fs::rename(&beside, path).map_err(failed)
}
