//! What a person, a script or a browser sees of a run.
//!
//! Everything here reads one [`Results`](crate::results::Results) and changes nothing: [`tables`]
//! for the terminal, [`page`] for one self-contained HTML file, [`write_json`] for scripts,
//! [`Threshold`] for exit codes, [`Comparison`] for two runs, [`Screen`] for the time in which a
//! run goes on. `docs/load.md` says how to read all of it.

mod compare;
mod error;
mod files;
mod format;
mod live;
mod page;
mod tables;
mod threshold;
mod words;

pub use compare::{Comparison, Difference};
pub use error::{Error, Kind};
pub use files::{read_json, write_html, write_json};
pub use live::Screen;
pub use page::{Extras, page};
pub use tables::tables;
pub use threshold::{Checked, Threshold};
pub use words::{limit_word, model_note, warnings};
