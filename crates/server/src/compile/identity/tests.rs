//! The identity of cached answers: its bytes, and which settings are part of it.

use super::encode;
use forebay_config::{Overrides, parse};

const TABLE: &str = "[table.t]\ncolumns = { id = \"bigint key\", a = \"text null indexed\" }\n";

/// The identity of the endpoint with these config lines.
fn identity(lines: &str) -> Vec<u8> {
    let text = format!("{TABLE}[[endpoint]]\n{lines}");
    let config = parse("test.toml", &text, &Overrides::default(), &|_| None);
    let config = config.unwrap_or_else(|errors| panic!("{lines}\n{errors}"));
    let endpoint = &config.endpoints[0];
    let caching = endpoint.cache.as_ref().expect("a cached endpoint");
    encode(endpoint, caching, "sqlite:x", None).expect("answers that are kept")
}

/// Replaces one part of the lines, which must contain it.
fn replaced(lines: &str, from: &str, to: &str) -> String {
    assert!(lines.contains(from), "{from} is not in {lines}");
    lines.replacen(from, to, 1)
}

const SQL: &str = r#"route = "GET /a/{id}"
sql = "SELECT id, a FROM t WHERE id = $id AND a = $b AND a <> $c"
params = { b = "text = 'x'", c = "= now()" }
headers = { X-User = "user" }
cache = { local = "2s", shared = "30s", missing = "3s", refresh = "1s", stale_while_revalidate = "4s", stale_if_error = "5s", max_age = "6s", vary = ["X-Vary"], tags = ["t:{$id}"] }
reply = { status = 200, wrap = "data", not_found = "no row", fields = { id = "$id", text = "{$a}!" } }
"#;

const PROXY: &str = r#"route = "GET /b/{rest...}"
proxy = ["http://127.0.0.1:1", "http://127.0.0.1:2"]
cache = { local = "2s", vary = ["X-Vary"], ignore = ["Cookie"], strip = ["Server"], largest = "1KiB", upstream = "heed" }
"#;

#[test]
fn the_bytes_are_these() {
    let lines = "route = \"GET /a/{id}\"\nget = \"t\"\ncache = { local = \"2s\", tags = [\"t:{$id}\"] }";
    let text = |text: &str| [&(text.len() as u32).to_le_bytes(), text.as_bytes()].concat();
    let number = |number: u64| number.to_le_bytes().to_vec();
    let expected = [
        vec![3],                                       // version
        text("sqlite:x"),                              // database
        vec![0],                                       // public URL: none
        text("GET"),                                   // method
        text("/a/{id}"),                               // route
        vec![0; 4],                                    // params: none
        vec![0; 4],                                    // headers: none
        vec![0, 0, 0, 0],                              // reply: no status, wrap, fields, not_found
        vec![0],                                       // consistency: eventual
        number(2_000),                                 // local
        vec![0],                                       // shared: none
        number(1_000),                                 // missing
        number(0),                                     // stale while revalidating
        number(0),                                     // stale if error
        number(0),                                     // refresh
        vec![0],                                       // max age: none
        vec![0],                                       // for all identities: no
        vec![0; 4],                                    // vary: none
        vec![1, 0, 0, 0],                              // tags: one,
        vec![5, 2, 0, 0, 0],                           //   a template of two parts,
        [vec![0], text("t:")].concat(),                //   a text
        [vec![1, 0], text("id")].concat(),             //   and a parameter
        vec![0, 0],                                    // upstream: heed; private: no
        vec![0; 8],                                    // ignore, strip: none
        number(forebay_cache::limits::UPSTREAM_BYTES), // largest
        vec![1],                                       // action: on a hot table
        text("get t"),                                 //   that does this
        vec![1, 0, 0, 0],                              //   with one value,
        [vec![0], text("id")].concat(),                //   this parameter
    ];
    assert_eq!(identity(lines), expected.concat());
}

#[test]
fn whatever_an_answer_depends_on_is_part_of_it() {
    let base = identity(SQL);
    for (from, to) in [
        ("GET /a/", "GET /c/"),
        ("SELECT id, a", "SELECT a, id"),
        ("= 'x'", "= 'y'"),
        ("b = \"text", "b = \"slug"),
        ("now()", "uuid()"),
        ("X-User = \"user\"", "X-Other = \"user\""),
        ("X-User = \"user\"", "X-User = \"other\""),
        ("local = \"2s\"", "local = \"3s\""),
        ("shared = \"30s\"", "shared = \"31s\""),
        ("shared = \"30s\", ", ""),
        ("missing = \"3s\"", "missing = \"4s\""),
        ("refresh = \"1s\"", "refresh = \"2s\""),
        ("stale_while_revalidate = \"4s\"", "stale_while_revalidate = \"5s\""),
        ("stale_if_error = \"5s\"", "stale_if_error = \"6s\""),
        ("max_age = \"6s\"", "max_age = \"7s\""),
        ("\"X-Vary\"", "\"X-Other\""),
        ("t:{$id}", "u:{$id}"),
        ("status = 200", "status = 201"),
        ("wrap = \"data\"", "wrap = \"row\""),
        ("\"no row\"", "\"nothing\""),
        ("text = \"{$a}!\"", "text = \"{$a}?\""),
        ("text = \"{$a}!\"", "other = \"{$a}!\""),
    ] {
        assert_ne!(base, identity(&replaced(SQL, from, to)), "{from} -> {to}");
    }
    let base = identity(PROXY);
    for (from, to) in [
        ("127.0.0.1:2", "127.0.0.1:3"),
        ("ignore = [\"Cookie\"]", "ignore = [\"Range\"]"),
        ("strip = [\"Server\"]", "strip = [\"Via\"]"),
        ("1KiB", "2KiB"),
        ("\"heed\"", "\"explicit\""),
        ("local = ", "private = true, local = "),
        ("local = ", "per = \"route\", local = "),
        ("proxy =", "host = \"upstream\"\nproxy ="),
        ("proxy =", "forwarded = \"append\"\nproxy ="),
    ] {
        assert_ne!(base, identity(&replaced(PROXY, from, to)), "{from} -> {to}");
    }
    let actions = [
        "get = \"t\"\nroute = \"GET /a/{id}\"",
        "random = \"t\"\nroute = \"GET /a/{id}\"",
        "count = \"t\"\nroute = \"GET /a/{id}\"",
        "count = \"t\"\nby = { a = \"$id\" }\nroute = \"GET /a/{id}\"",
        "list = \"t\"\nroute = \"GET /a/{id}\"",
        "redirect = \"t\"\nlocation = \"a\"\nroute = \"GET /a/{id}\"",
        "constant = { a = 1 }\nroute = \"GET /a/{id}\"",
        "constant = { a = 2 }\nroute = \"GET /a/{id}\"",
    ];
    let mut all: Vec<_> =
        actions.iter().map(|action| identity(&format!("{action}\ncache = {{ local = \"2s\" }}"))).collect();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), actions.len());
}

#[test]
fn who_may_ask_and_how_patiently_is_no_part_of_it() {
    let base = identity(SQL);
    for more in [
        "timeout = \"1s\"",
        "concurrency = 1",
        "rate = \"1/s\"",
        "guard = { query = \"secret\", secret = \"s\" }",
        "etag = false",
        "compress = true",
    ] {
        assert_eq!(base, identity(&format!("{SQL}{more}")), "{more}");
    }
    assert_eq!(identity(PROXY), identity(&format!("{PROXY}retries = 0\nconnect_timeout = \"9s\"")));
}

#[test]
fn the_database_and_the_public_url_are_part_of_it() {
    let config = parse("test.toml", &format!("{TABLE}[[endpoint]]\n{SQL}"), &Overrides::default(), &|_| None);
    let endpoint = &config.unwrap().endpoints[0];
    let caching = endpoint.cache.as_ref().unwrap();
    let of = |database, url| encode(endpoint, caching, database, url).unwrap();
    let all = [of("a", None), of("b", None), of("a", Some("")), of("a", Some("http://x"))];
    for (index, one) in all.iter().enumerate() {
        assert!(!all[index + 1..].contains(one), "number {index}");
    }
}
