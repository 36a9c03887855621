//! A folder of runs, each in its own file, which no later run replaces.

use super::error::{Error, Kind};
use super::files::{read_json, write_json};
use super::format::moment;
use super::runs::StoredRun;
use crate::results::Results;
use std::fs;
use std::path::{Path, PathBuf};

/// Writes a run into the folder, in a file named by its start. Returns the path.
///
/// # Errors
/// [`Kind::File`].
pub fn keep(results: &Results, folder: &Path) -> Result<PathBuf, Error> {
    prepare(folder)?;
    let named = |tail: String| folder.join(format!("run-{}{tail}.json", stamp(results.started_at_ms)));
    let mut path = named(String::new());
    let mut number = 2;
    while path.exists() {
        path = named(format!("-{number}"));
        number += 1;
    }
    write_json(results, &path)?;
    Ok(path)
}

/// Creates the folder if it does not exist. Called before a run, so that its results are not lost
/// because the folder is missing.
///
/// # Errors
/// [`Kind::File`].
pub fn prepare(folder: &Path) -> Result<(), Error> {
    let failed =
        |error| Error::new(Kind::File, format!("cannot make {}", folder.display())).with_source(error);
    fs::create_dir_all(folder).map_err(failed)
}

/// Unix time as `2026-11-21T13-24-06.123Z`, which sorts by time.
fn stamp(unix_ms: u64) -> String {
    let text = moment(unix_ms).replace(':', "-").replacen(' ', "T", 1).replace(" UTC", "");
    format!("{text}.{:03}Z", unix_ms % 1_000)
}

/// Reads runs, the oldest first: from files, and from all files of folders whose names end with
/// `.json`.
///
/// # Errors
/// When a file cannot be read, or contains no run.
pub fn read_runs(paths: &[PathBuf]) -> Result<Vec<StoredRun>, Error> {
    let mut runs = Vec::new();
    for path in paths {
        let files = if path.is_dir() { files_of(path)? } else { vec![path.clone()] };
        for path in files {
            let results = read_json(&path)?;
            let name = path.file_name().unwrap_or(path.as_os_str());
            runs.push(StoredRun { file: name.to_string_lossy().into_owned(), results });
        }
    }
    runs.sort_by_key(|run| run.results.started_at_ms);
    Ok(runs)
}

fn files_of(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let failed =
        |error| Error::new(Kind::File, format!("cannot read {}", folder.display())).with_source(error);
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_run_replaces_another_and_the_oldest_is_first() {
        let folder = tempfile::tempdir().unwrap();
        let history = folder.path().join("a/b");
        let at = |started_at_ms| Results { started_at_ms, ..Results::default() };
        let late = keep(&at(1_795_267_446_123), &history).unwrap();
        assert_eq!(late.file_name().unwrap(), "run-2026-11-21T13-24-06.123Z.json");
        let same = keep(&at(1_795_267_446_123), &history).unwrap();
        assert_eq!(same.file_name().unwrap(), "run-2026-11-21T13-24-06.123Z-2.json");
        keep(&at(1_000), &history).unwrap();
        fs::write(history.join("notes.txt"), "no run").unwrap();
        let runs = read_runs(std::slice::from_ref(&history)).unwrap();
        assert_eq!(
            runs.iter().map(|run| run.results.started_at_ms).collect::<Vec<_>>(),
            [1_000, 1_795_267_446_123, 1_795_267_446_123]
        );
        fs::write(history.join("other.json"), "{}").unwrap();
        let error = read_runs(&[history]).unwrap_err().to_string();
        assert!(error.contains("other.json holds no results of forebay load"), "{error}");
    }
}
