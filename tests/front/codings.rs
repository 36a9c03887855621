//! Bodies of requests in a content coding, and what HEAD leaves alone.

use super::Front;
use forebay_tests::{Answer, Client, wait_for};
use std::io::Write;
use std::process::{Command, Stdio};

const CONFIG: &str = "[server.limits]\nbody = '64KiB'\n[table.notes]\ncolumns = { id = 'serial key', text = 'text', clicks = 'bigint = 0' }\n\
    [[endpoint]]\nroute = 'POST /notes'\ninsert = 'notes'\nvalues = { text = '$text' }\n\
    [[endpoint]]\nroute = 'GET /notes/{id}'\nget = 'notes'\n\
    [[endpoint]]\nroute = 'GET /go/{id}'\nredirect = 'notes'\nlocation = 'text'\ncounter = 'clicks'\n";

/// A body, as compressed by a program.
fn coded(program: &str, body: &[u8]) -> Vec<u8> {
    let mut command = Command::new(program);
    let child = command.arg("-c").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut child = child.unwrap_or_else(|error| panic!("{program}: {error}"));
    let mut stdin = child.stdin.take().expect("a pipe");
    let body = body.to_vec();
    let writing = std::thread::spawn(move || stdin.write_all(&body));
    let output = child.wait_with_output().expect("it ends");
    writing.join().expect("no panic").expect("it reads all");
    output.stdout
}

fn post(client: &mut Client, coding: &str, body: &[u8]) -> Answer {
    let head = format!(
        "POST /notes HTTP/1.1\r\nHost: a\r\nContent-Encoding: {coding}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    client.send(&[head.as_bytes(), body].concat()).expect("it is sent");
    client.receive(false).expect("an answer")
}

#[test]
fn bodies_are_read_in_gzip_and_zstd_and_no_bomb() {
    let front = Front::start(CONFIG);
    front.server.wait_healthy();
    let mut client = front.server.client();
    let body = |chars: usize| format!("{{\"text\":\"{}\"}}", "é".repeat(chars)).into_bytes();
    for (coding, program) in [("gzip", "gzip"), ("x-gzip", "gzip"), ("GZIP", "gzip"), ("zstd", "zstd")] {
        let made = post(&mut client, coding, &coded(program, &body(20_000)));
        assert_eq!(
            (made.status, made.json()["text"].as_str().map(str::len)),
            (201, Some(40_000)),
            "{coding}: {made:?}"
        );
        // 60 MB, compressed to less than 64 KiB.
        let bomb = coded(program, &body(30_000_000));
        assert!(bomb.len() < 64 << 10, "{}", bomb.len());
        assert_eq!(post(&mut client, coding, &bomb).status, 413, "{coding}");
        let mut cut = coded(program, &body(20_000));
        cut.truncate(cut.len() - 3);
        post(&mut client, coding, &cut).expect_problem(400, "Content-Encoding");
        post(&mut client, coding, b"{\"text\":\"plain\"}").expect_problem(400, "Content-Encoding");
        post(&mut client, coding, &coded(program, b"no JSON")).expect_problem(400, "JSON");
    }
    for coding in ["br", "deflate", "compress", "gzip, gzip", "x"] {
        let refused = post(&mut client, coding, b"{\"text\":\"plain\"}");
        assert_eq!(
            (refused.status, refused.header("accept-encoding")),
            (415, Some("gzip, zstd")),
            "{coding}"
        );
    }
    assert_eq!(post(&mut client, "identity", b"{\"text\":\"plain\"}").status, 201);
}

#[test]
fn head_counts_no_click() {
    let front = Front::start(CONFIG);
    front.server.wait_healthy();
    let mut client = front.server.client();
    let id = client.ask("POST", "/notes", Some(r#"{"text":"https://example.com"}"#)).json()["id"].clone();
    let clicks = |client: &mut Client| client.get(&format!("/notes/{id}")).json()["clicks"].clone();
    for _ in 0..3 {
        let head = client.ask("HEAD", &format!("/go/{id}"), None);
        assert_eq!((head.status, head.header("location")), (302, Some("https://example.com")));
    }
    assert_eq!(client.get(&format!("/go/{id}")).status, 302);
    wait_for("the visit is counted", || (clicks(&mut client) != 0).then_some(()));
    assert_eq!(clicks(&mut client), 1, "none of HEAD");
}
