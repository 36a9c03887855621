//! The files in which an agent records a run: the seconds as they pass, and the results at the end.

use crate::report::{Error, Kind, write_json};
use crate::results::{Results, Second};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The two files of a run: `run-TIME.jsonl`, one line a second, and `run-TIME.json`, as `--json` writes it.
#[derive(Debug)]
pub(super) struct RunFiles {
    results: PathBuf,
    seconds: File,
}

impl RunFiles {
    /// Creates the file of seconds.
    pub fn create(folder: &Path) -> Result<RunFiles, Error> {
        let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let path = folder.join(format!("run-{now_ms}.jsonl"));
        let failed = |error| {
            Error::new(Kind::File, format!("the agent cannot write {}", path.display())).with_source(error)
        };
        fs::create_dir_all(folder).map_err(failed)?;
        let seconds = File::options().create_new(true).append(true).open(&path).map_err(failed)?;
        Ok(RunFiles { results: path.with_extension("json"), seconds })
    }

    /// Appends complete seconds.
    pub fn add(&mut self, seconds: &[Second]) -> std::io::Result<()> {
        let mut lines = Vec::new();
        for second in seconds {
            serde_json::to_writer(&mut lines, second)?;
            lines.push(b'\n');
        }
        self.seconds.write_all(&lines)
    }

    /// Writes the results.
    pub fn finish(&self, results: &Results) -> Result<(), Error> {
        write_json(results, &self.results)
    }
}
