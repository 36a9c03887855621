//! An endpoint's `timeout`: 504 in every mode, because the outcome of the pending work is unknown.

use forebay_tests::{Folder, Start, binary};

/// Counts far longer than the time-outs below, and ends with SQLite's own time-out.
const SLOW: &str = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 1000000000) SELECT max(n) AS n FROM c";

#[test]
fn a_time_out_was_documented_as_503_and_is_504_in_every_mode() {
    let folder = Folder::new();
    let mut config = String::from("[server]\nlisten = \"127.0.0.1:0\"\n[database]\nurl = \"sqlite:x.db\"\n");
    let modes = [
        ("GET /plain", ""),
        ("GET /validated", "etag = true"),
        ("GET /cached", "cache = { local = \"10s\" }"),
        ("POST /dropping", "invalidates = [\"x\"]"),
    ];
    for (route, mode) in modes {
        config +=
            &format!("[[endpoint]]\nroute = \"{route}\"\nsql = \"{SLOW}\"\ntimeout = \"300ms\"\n{mode}\n");
    }
    let server = Start::new(binary(), &folder, &folder.write("slow.toml", &config)).start();
    for (route, _) in modes {
        let (method, path) = route.split_once(' ').expect("a method and a path");
        let answer = server.client().ask(method, path, None);
        answer.expect_problem(504, "not ready in time");
        assert_eq!(answer.header("retry-after"), None, "{route}: a retry may do it twice");
    }
}
