//! `forebay advise`: its output for an access log is a config, and it judges PostgreSQL's statement counts.

use forebay_tests::{Folder, Postgres, Start, binary};

fn advised(start: &Start, arguments: &[&str]) -> String {
    let ended = start.run_bare("advise", arguments.iter().copied());
    assert!(ended.status.success(), "{ended:?}");
    String::from_utf8(ended.stdout).expect("text")
}

#[test]
fn an_access_log_becomes_a_config() {
    let folder = Folder::new();
    let line = |turn: usize| {
        format!(
            "::1 - - [10/Oct/2000:13:55:{:02} +0000] \"GET /items/{} HTTP/1.1\" 200 9 \"-\" \"x\" 0.020\n",
            turn / 10,
            turn % 2
        )
    };
    let log: String = (0..100).map(line).collect();
    let log = folder.write("access.log", &log);
    let file = folder.path().join("forebay.toml");
    let start = Start::new(binary(), &folder, &file);
    let text = advised(&start, &[log.to_str().expect("a path of text"), "--app", "http://127.0.0.1:3201"]);
    for expected in [
        "# 100 requests in 9 s",
        "route = \"GET /items/{id}\"\nproxy = \"http://127.0.0.1:3201\"\ncache = { local = \"1s\"",
        "# Together: 80 of 100 requests (80.0 %) would not reach the app, 1.6 s of its time.",
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
    folder.write("forebay.toml", &text);
    let checked = start.run("check", &[]);
    assert!(checked.status.success(), "{checked:?}\n{text}");
    let noise = folder.write("noise.log", "no request\n");
    let ended = start.run_bare("advise", [noise.to_str().expect("a path of text")]);
    assert!(
        !ended.status.success() && String::from_utf8_lossy(&ended.stderr).contains("no line is a request"),
        "{ended:?}"
    );
}

#[test]
fn counted_statements_are_judged() {
    let server = Postgres::start(&["shared_preload_libraries=pg_stat_statements"]);
    server.run("CREATE TABLE items (id bigint PRIMARY KEY, views bigint); INSERT INTO items SELECT i, 0 FROM generate_series(1, 100) i; GRANT ALL ON items TO PUBLIC");
    let folder = Folder::new();
    let start = Start::new(binary(), &folder, &folder.path().join("forebay.toml"));
    let url = server.server_url();
    let ended = start.run_bare("advise", ["--database", url.as_str()]);
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(!ended.status.success() && said.contains("CREATE EXTENSION pg_stat_statements"), "{said}");
    server.run("CREATE EXTENSION pg_stat_statements");
    for id in 1..50_i64 {
        let mut client = server.connect().expect("a connection");
        client.query("SELECT views FROM items WHERE id = $1", &[&id]).expect("a row");
        client.execute("UPDATE items SET views = views + 1 WHERE id = $1", &[&id]).expect("a row");
    }
    let text = advised(&start, &["--database", &url]);
    for expected in [
        "49 runs of ",
        "from memory: get = \"items\"",
        "written behind: increment = \"items\"",
        "# Rows in memory would save ",
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
}
