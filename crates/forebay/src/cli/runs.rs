//! `forebay runs`: its arguments.

use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct Runs {
    /// Files that --json or --history of forebay load wrote, or folders of them.
    #[arg(value_name = "FILE|FOLDER", required = true)]
    pub paths: Vec<PathBuf>,
    /// The run that all others are compared with, by its number in the list [default: 1].
    #[arg(long, value_name = "N", conflicts_with = "rows")]
    pub against: Option<usize>,
    /// Tables instead of a list: a row for each value of this label, such as size.
    #[arg(long, value_name = "LABEL", requires = "columns")]
    pub rows: Option<String>,
    /// And a column for each value of this one, such as profile.
    #[arg(long, value_name = "LABEL", requires = "rows")]
    pub columns: Option<String>,
}
