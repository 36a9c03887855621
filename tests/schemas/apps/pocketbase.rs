//! PocketBase, on SQLite. Its collections are tables: to change one is a migration.

use super::{App, install_once, source, succeed};
use crate::site::Way;
use std::process::Command;

pub fn app() -> App {
    let folder = install_once("pocketbase", "go.sum", |folder| {
        let mut go = Command::new("go");
        go.args(["build", "-buildvcs=false", "-o"]).arg(folder.join("pocketbase")).arg(".");
        succeed(go.current_dir(source("pocketbase")), "Go 1.24 or later and a proxy for its modules");
    });
    App {
        name: "pocketbase",
        python: "python3".into(),
        environment: vec![("APP_PROGRAM", folder.join("pocketbase").display().to_string())],
        ways: &[Way::Sqlite],
        steps: &["make", "write 1", "migrate 1", "write 2", "migrate 2", "write 3"],
        is_error: |line| line.starts_with("ERROR") || line.contains("panic"),
    }
}
