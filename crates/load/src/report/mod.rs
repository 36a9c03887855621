//! The reports of a run: for a person, a script or a browser.
//!
//! Everything here reads one [`Results`](crate::results::Results) and changes nothing: [`tables`]
//! for the terminal, [`page`] for one self-contained HTML file, [`write_json`] for scripts,
//! [`Threshold`] for exit codes, [`Comparison`] for two runs, [`list`] and [`pivot`] for many,
//! [`Screen`] for a run in progress. `docs/load.md` says how to read all of it.

mod compare;
mod error;
mod files;
mod format;
mod history;
mod live;
mod page;
mod runs;
mod tables;
mod threshold;
mod words;

pub use compare::{Comparison, Difference};
pub use error::{Error, Kind};
pub use files::{read_json, write_html, write_json};
pub use history::{keep, prepare, read_runs};
pub use live::Screen;
pub use page::{Extras, page};
pub use runs::{StoredRun, list, pivot};
pub use tables::tables;
pub use threshold::{Checked, Threshold};
pub use words::{limit_word, model_note, warnings};
