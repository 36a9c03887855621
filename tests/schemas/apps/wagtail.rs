//! Wagtail and Django, on PostgreSQL.

use super::{App, interpreter};
use crate::site::Way;

pub const STEPS: &[&str] = &["make", "write 1", "migrate 1", "write 2", "migrate 2", "write 3"];

pub fn app() -> App {
    App {
        name: "wagtail",
        python: interpreter("wagtail", "pinned.txt"),
        environment: Vec::new(),
        ways: &[Way::Logical, Way::Triggers],
        steps: STEPS,
        is_error: |line| ["ERROR", "CRITICAL", "Traceback"].iter().any(|begin| line.starts_with(begin)),
    }
}
