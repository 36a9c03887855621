//! A request is decided by its head: whoever is refused sends no body, and whoever is admitted is served as
//! if head and body had come together.

use super::Front;
use super::upstream::Scripted;
use forebay_tests::{Answer, Client, Folder};
use serde_json::json;
use std::time::{Duration, Instant};

/// The output of `htpasswd -nbB -C 5 ann sesame`.
const PASSWORDS: &str = "ann:$2b$05$ckdqZcG4S8SYQpxCfV8Aper6r3HC/GsnPAapqkXIZOxGOGP32rVc6\n";
const ANN: &str = "Authorization: Basic YW5uOnNlc2FtZQ==";

fn staff(folder: &Folder) -> String {
    format!("[auth.staff]\nkind = 'basic'\nfile = '{}'\n", folder.write("users", PASSWORDS).display())
}

/// The status of the answer to a head whose body never comes, and whether the connection ends with it.
fn by_head(front: &Front, head: &str) -> (u16, bool) {
    let mut client = front.server.client();
    client.send(format!("{head}\r\nHost: localhost\r\n\r\n").as_bytes()).expect("it is sent");
    let answer = client.receive(false).expect("an answer");
    let ends = answer.header("connection") == Some("close");
    if ends {
        assert!(client.receive(false).is_err(), "{head}: the connection has ended");
    }
    (answer.status, ends)
}

#[test]
fn who_is_refused_sends_no_body() {
    let (app, folder) = (Scripted::holding(), Folder::new());
    let front = Front::start(&format!(
        "{}[[endpoint]]\nroute = 'POST /guarded'\nconstant = {{ a = '$a' }}\nguard = 'staff'\n\
         [[endpoint]]\nroute = 'POST /app'\nproxy = 'http://{}'\nguard = 'staff'\n\
         [[endpoint]]\nroute = 'POST /small'\nproxy = 'http://{1}'\nbody = '1KiB'\n\
         [[endpoint]]\nroute = 'POST /once'\nconstant = {{ a = '$a' }}\nrate = '1/1h'\n\
         [[endpoint]]\nroute = 'POST /open'\nconstant = {{ a = '$a' }}\n",
        staff(&folder),
        app.address
    ));
    assert_eq!(front.server.client().post_json("/once", r#"{"a":1}"#).status, 200);
    let began = Instant::now();
    for (request, status) in [
        ("POST /guarded", 401),
        ("POST /app", 401),
        ("POST /missing", 404),
        ("PUT /open", 405),
        ("POST /once", 429),
        ("POST /%zz", 400),
    ] {
        for (framing, ends) in [
            ("Content-Length: 1000000", true),
            ("Content-Length: 1000000\r\nExpect: 100-continue", true),
            ("Transfer-Encoding: chunked\r\nExpect: 100-continue", true),
            // A short body is read past.
            ("Content-Length: 10", false),
            ("Transfer-Encoding: chunked", false),
        ] {
            let head = format!("{request} HTTP/1.1\r\n{framing}");
            assert_eq!(by_head(&front, &head), (status, ends), "{head}");
        }
    }
    let wrong = "POST /guarded HTTP/1.1\r\nAuthorization: Basic YW5uOndyb25n\r\nContent-Length: 1000000";
    assert_eq!(by_head(&front, wrong), (401, true), "a password takes time");
    for path in ["/open", "/small"] {
        let head = format!("POST {path} HTTP/1.1\r\nContent-Length: 9999999");
        assert_eq!(by_head(&front, &head), (413, true), "{path}");
    }
    assert!(began.elapsed() < Duration::from_secs(5), "somebody waited for a body: {:?}", began.elapsed());
    assert_eq!(app.seen().len(), 0);
}

/// Sends head and body apart, the body in pieces of this many bytes.
fn apart(client: &mut Client, head: &str, body: &[u8], piece: usize, is_chunked: bool) -> Answer {
    let framing = match is_chunked {
        true => "Transfer-Encoding: chunked".to_owned(),
        false => format!("Content-Length: {}", body.len()),
    };
    client.send(format!("{head}\r\nHost: localhost\r\n{framing}\r\n\r\n").as_bytes()).expect("it is sent");
    for piece in body.chunks(piece) {
        std::thread::sleep(Duration::from_millis(1));
        let bytes = match is_chunked {
            true => [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat(),
            false => piece.to_vec(),
        };
        client.send(&bytes).expect("it is sent");
    }
    if is_chunked {
        client.send(b"0\r\n\r\n").expect("it is sent");
    }
    client.receive(false).expect("an answer")
}

#[test]
fn a_body_that_comes_later_is_served_like_one_that_comes_at_once() {
    let folder = Folder::new();
    let front = Front::start(&format!(
        "{}[table.notes.columns]\nid = 'serial key'\nkind = 'text'\nbody = 'text'\nwho = 'text'\n\
         [[endpoint]]\nroute = 'POST /notes/{{kind}}'\ninsert = 'notes'\nguard = 'staff'\nrate = '1000/1s'\n\
         answer_headers = {{ X-Kept = 'yes' }}\n\
         values = {{ kind = '$kind', body = '$body', who = '$auth.sub' }}\n\
         [[endpoint]]\nroute = 'POST /constant'\nconstant = {{ a = 1 }}\n",
        staff(&folder)
    ));
    front.server.wait_healthy();
    let (long, mut client) = ("x".repeat(200_000), front.server.client());
    for (text, piece) in [("short", 3), ("short", 1000), (&*long, 70_000), (&*long, 500_000)] {
        for is_chunked in [false, true] {
            let body = json!({ "body": text }).to_string();
            let head = format!("POST /notes/a%20b HTTP/1.1\r\n{ANN}\r\nContent-Type: application/json");
            let answer = apart(&mut client, &head, body.as_bytes(), piece, is_chunked);
            let note = answer.expect(201);
            assert_eq!((&note["kind"], &note["who"]), (&"a b".into(), &"ann".into()));
            assert_eq!(note["body"].as_str().map(str::len), Some(text.len()));
            assert_eq!(answer.header("X-Kept"), Some("yes"));
            assert!(answer.header("RateLimit").is_some());
            assert_eq!(apart(&mut client, "POST /constant HTTP/1.1", b"ignored", 2, is_chunked).status, 200);
        }
    }
    let head = format!("POST /notes/a HTTP/1.1\r\n{ANN}\r\nContent-Type: application/json");
    apart(&mut client, &head, b"{\"body\":", 3, false).expect_problem(400, "not valid JSON");
    let head = format!("POST /notes/a HTTP/1.1\r\n{ANN}\r\nContent-Type: text/plain");
    apart(&mut client, &head, b"{\"body\":1}", 3, false).expect_problem(415, "application/json");
    assert_eq!(client.get("/notes/a").status, 405, "the connection goes on");
    for is_chunked in [false, true] {
        let answer = apart(&mut client, "POST /nothing HTTP/1.1", &[b'x'; 60_000], 999, is_chunked);
        assert_eq!((answer.status, answer.header("connection")), (404, None), "after the answer");
        assert_eq!(client.get("/notes/a").status, 405, "the connection goes on behind the body");
    }
}
