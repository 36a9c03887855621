//! The settings that a running server refuses to change, by key.

use super::*;

const RUNNING: &str = "[table.t]\ncolumns = { id = 'serial key', a = 'text' }\n\
    [[job]]\nname = 'j'\nevery = '1m'\nsql = 'SELECT 1'\n[[endpoint]]\nroute = 'GET /'\nconstant = { a = 1 }\n";

#[track_caller]
fn check(change: impl FnOnce(&str) -> String, expected: &[&str]) {
    let found = fixed(&good(RUNNING), &good(&change(RUNNING)));
    let keys: Vec<_> = found.iter().map(|what| what.split(' ').next().unwrap_or_default()).collect();
    assert_eq!(keys, expected, "{found:?}");
}

#[test]
fn what_needs_a_restart_is_named() {
    check(|file| format!("# another line\n\n{file}"), &[]);
    check(|file| file.replace("a = 1", "a = 2") + "[[endpoint]]\nroute = 'GET /b'\ncount = 't'", &[]);
    check(|file| format!("[server]\npublic_url = 'https://a'\nlimits = {{ body = '2MiB' }}\n{file}"), &[]);
    check(
        |file| format!("[server]\nlisten = ':80'\nworkers = 7\n{file}"),
        &["server.listen", "server.workers"],
    );
    check(|file| format!("[database]\nurl = 'sqlite:b.db'\n{file}"), &["database.url"]);
    check(
        |file| format!("[memory]\nurl = 'embedded:b'\nlimit = '3GiB'\n{file}"),
        &["memory.url", "memory.limit"],
    );
    check(
        |file| format!("[cache]\nlimit = '1MiB'\n[drain]\npace = 5\n{file}"),
        &["cache.limit", "drain.pace"],
    );
    check(|file| format!("[admin]\nlisten = '127.0.0.1:1'\n{file}"), &["admin.listen"]);
    check(|file| format!("[admin]\nstatus = '127.0.0.1:1'\n{file}"), &["admin.status"]);
    check(|file| file.replace("a = 'text'", "a = 'text null'"), &["table.t"]);
    check(|file| format!("[table.b]\ncolumns = {{ id = 'serial key' }}\n{file}"), &["table.b"]);
    check(|file| file.replace("[table.t]", "[table.u]"), &["table.t", "table.u"]);
    check(|file| file.replace("1m", "2m"), &["job"]);
}
