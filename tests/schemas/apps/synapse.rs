//! Synapse, a Matrix server, on PostgreSQL: an older version, then a newer one, which alters the database
//! when it starts.

use super::{App, interpreter};
use crate::site::Way;

pub fn app() -> App {
    let versions = ["older.txt", "newer.txt"];
    let versions = versions.map(|version| interpreter("synapse", version).display().to_string());
    App {
        name: "synapse",
        python: "python3".into(),
        environment: vec![("APP_VERSIONS", versions.join(":"))],
        ways: &[Way::Logical, Way::Triggers],
        steps: &["make", "write 1", "migrate 1", "write 2", "write 3"],
        is_error: |line| ["ERROR", "CRITICAL", "Traceback"].iter().any(|begin| line.starts_with(begin)),
    }
}
