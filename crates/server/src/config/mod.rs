//! The config file: read, checked, every mistake explained.
//!
//! What was typed is a TOML document with the places of everything in it (`read`); what it means is [`model`]. The
//! way there is [`load`]: read, lay the environment and the command line over it (`overrides`), resolve section by section
//! (`sections`, `table`, `endpoint`, `action`, `expr`), cross-check (`check`). Nothing stops at the first mistake.
//!
//! What must not move in: opening anything that the config names.

mod errors;
pub mod model;
mod overrides;

pub use errors::{ConfigError, ConfigErrors, Place};
pub use model::Config;
pub use overrides::Overrides;
