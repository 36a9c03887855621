//! What Forebay creates is for its own user, whatever the umask of the shell.

use forebay_tests::{Folder, Start, binary};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const CONFIG: &str = r#"
[table.notes.columns]
id = "serial key"
text = "text"

[[endpoint]]
route = "POST /notes"
insert = "notes"
values = { text = "$text" }
"#;

/// Files and folders that others may read or write.
fn open_to_others(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let entry = entry.expect("an entry");
        let kind = entry.file_type().expect("a type");
        // A link has no permissions of its own.
        if !kind.is_symlink() && entry.metadata().expect("it is there").permissions().mode() & 0o077 != 0 {
            found.push(entry.path());
        }
        if kind.is_dir() {
            found.extend(open_to_others(&entry.path()));
        }
    }
    found
}

#[test]
fn nothing_that_a_server_creates_is_for_others() {
    let folder = Folder::new();
    let config = folder.write("forebay.toml", CONFIG);
    let server = Start::new(binary(), &folder, &config).start();
    server.wait_healthy();
    server.client().post_json("/notes", r#"{"text":"mine"}"#).expect(201);
    server.drain();
    server.checkpoint();
    let found = open_to_others(folder.path());
    assert_eq!(found, std::slice::from_ref(&config), "the config is the test's, all else is the server's");
    drop(server.stop());
    assert_eq!(open_to_others(folder.path()), [config]);
}

#[test]
fn a_drafted_config_is_for_its_writer() {
    let folder = Folder::new();
    let (config, database) = (folder.path().join("drafted.toml"), folder.database());
    rusqlite::Connection::open(&database)
        .expect("a file")
        .execute_batch("CREATE TABLE t (id INTEGER PRIMARY KEY)")
        .expect("a table");
    let url = format!("sqlite:{}", database.display());
    let made = Command::new(binary()).args(["init", &url, "-o"]).arg(&config).status().expect("it runs");
    assert!(made.success());
    assert_eq!(open_to_others(folder.path()), [database], "the database is the test's");
}
