//! The Rust handlers of the bundled examples, which their configs call by `handler = "name"`.
//!
//! Register your own handlers in your own `main` (see `docs/handlers.md`); none is added here.

mod update_something;

use forebay_server::Handlers;
use update_something::UpdateSomething;

/// Every handler of the bundled examples, by the name that their configs use.
pub fn bundled() -> Handlers {
    Handlers::new().with("update_something", UpdateSomething)
}
