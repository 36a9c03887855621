//! Handlers in Rust for the examples: what a config file calls by `handler = "name"`.
//!
//! A handler is a type with one method; it reads what it needs from the [`Call`], returns a [`Problem`] or writes its
//! answer straight into the connection's output. Give your own to `forebay_server::Handlers` beside these in a
//! `main` of your own (see `docs/handlers.md`).

mod update_something;

pub use update_something::UpdateSomething;

use forebay_server::Handlers;

/// Every handler of the examples, by the name that config files use.
pub fn all() -> Handlers {
    Handlers::new().with("update_something", UpdateSomething)
}
