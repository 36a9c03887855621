//! CORS, OPTIONS, and header fields that the config sets, on answers of every kind.

use super::Front;
use super::upstream::Scripted;
use forebay_tests::{Answer, Client};
use std::io::Write;

const PAGE: &str = "https://app.example";

fn call(client: &mut Client, method: &str, target: &str, headers: &[(&str, &str)]) -> Answer {
    client.call(method, target, headers, None).expect("an answer")
}

/// All values of a field, in order.
fn all<'a>(answer: &'a Answer, name: &str) -> Vec<&'a str> {
    let fields = answer.headers.iter().filter(|(found, _)| found.eq_ignore_ascii_case(name));
    fields.map(|(_, value)| value.as_str()).collect()
}

fn preflight(client: &mut Client, target: &str, method: &str, origin: &str) -> Answer {
    call(client, "OPTIONS", target, &[("Origin", origin), ("Access-Control-Request-Method", method)])
}

/// An application that sends its own CORS fields.
fn app() -> Scripted {
    Scripted::new(|_, stream| {
        let fields = "Access-Control-Allow-Origin: https://evil.example\r\nX-Frame-Options: ALLOWALL\r\nServer: app\r\n";
        write!(stream, "HTTP/1.1 200 OK\r\n{fields}Content-Length: 2\r\n\r\nok").is_ok()
    })
}

#[test]
fn pages_of_other_sites_read_what_the_config_lets_them() {
    let app = app();
    let front = Front::start(&format!(
        "[auth.apps]\nkind = 'basic'\nfile = '/dev/null'\n\
         [table.notes]\ncolumns = {{ id = 'serial key', text = 'text' }}\n\
         [group.api]\nprefix = '/api'\n\
         cors = {{ origins = ['{PAGE}', 'http://localhost:5173'], credentials = true, headers = ['X-Own'], expose = ['X-Total'], max_age = '2m' }}\n\
         [[endpoint]]\ngroup = 'api'\nroute = 'GET /notes/{{id}}'\nget = 'notes'\n\
         [[endpoint]]\ngroup = 'api'\nroute = 'DELETE /notes/{{id}}'\ndelete = 'notes'\nguard = 'apps'\n\
         [[endpoint]]\ngroup = 'api'\nroute = 'GET /sql'\nsql = 'SELECT 1 AS one'\ncache = {{ local = '1m' }}\n\
         [[endpoint]]\ngroup = 'api'\nroute = '* /app/{{path...}}'\nproxy = 'http://{0}'\n\
         [[endpoint]]\nroute = 'GET /open'\nconstant = {{ a = 1 }}\ncors = {{ origins = '*' }}\n\
         [[endpoint]]\nroute = 'GET /closed'\nconstant = {{ a = 1 }}\n\
         [[endpoint]]\nroute = '* /bare/{{path...}}'\nproxy = 'http://{0}'\n",
        app.address
    ));
    front.server.wait_healthy();
    let mut client = front.server.client();
    // Answers of every kind: immediate, from a guard, an error, delayed, from a cache, from an
    // application.
    for (method, target, status) in [
        ("GET", "/api/notes/7", 404),
        ("GET", "/api/notes/x", 400),
        ("DELETE", "/api/notes/7", 401),
        ("GET", "/api/sql", 200),
        ("GET", "/api/sql", 200),
        ("GET", "/api/app/a", 200),
        ("POST", "/api/app/a", 200),
        ("OPTIONS", "/api/app/a", 200),
    ] {
        let answer = call(&mut client, method, target, &[("Origin", PAGE)]);
        assert_eq!(answer.status, status, "{method} {target}: {answer:?}");
        assert_eq!(all(&answer, "access-control-allow-origin"), [PAGE], "{method} {target}: {answer:?}");
        assert_eq!(all(&answer, "access-control-allow-credentials"), ["true"]);
        assert_eq!(all(&answer, "access-control-expose-headers"), ["X-Total"]);
        assert!(all(&answer, "vary").contains(&"Origin"), "{answer:?}");
        let other = call(&mut client, method, target, &[("Origin", "https://evil.example")]);
        assert_eq!(all(&other, "access-control-allow-origin"), [""; 0], "{method} {target}: {other:?}");
        assert!(all(&other, "vary").contains(&"Origin"), "{other:?}");
    }
    for origin in
        ["https://app.example.evil.example", "https://app.example/", "null", "http://app.example", ""]
    {
        let answer = call(&mut client, "GET", "/api/sql", &[("Origin", origin)]);
        assert_eq!(all(&answer, "access-control-allow-origin"), [""; 0], "{origin}");
    }
    let asked = preflight(&mut client, "/api/notes/7", "DELETE", PAGE);
    assert_eq!((asked.status, asked.body.len()), (204, 0), "{asked:?}");
    assert_eq!(all(&asked, "access-control-allow-origin"), [PAGE]);
    assert_eq!(all(&asked, "access-control-allow-methods"), ["GET, HEAD, DELETE, OPTIONS"]);
    assert_eq!(all(&asked, "access-control-allow-headers"), ["Authorization, Content-Type, X-Own"]);
    assert_eq!(all(&asked, "access-control-max-age"), ["120"]);
    let before = app.seen().len();
    let asked = preflight(&mut client, "/api/app/a", "PUT", "http://localhost:5173");
    assert_eq!(all(&asked, "access-control-allow-origin"), ["http://localhost:5173"]);
    assert_eq!(app.seen().len(), before, "an app is not asked");
    let refused = preflight(&mut client, "/api/notes/7", "DELETE", "https://evil.example");
    assert_eq!((refused.status, all(&refused, "access-control-allow-origin").len()), (204, 0));
    assert!(all(&refused, "access-control-allow-methods").is_empty());
    let open = call(&mut client, "GET", "/open", &[]);
    assert_eq!((all(&open, "access-control-allow-origin"), all(&open, "vary").len()), (vec!["*"], 0));
    let closed = call(&mut client, "GET", "/closed", &[("Origin", PAGE)]);
    assert!(all(&closed, "access-control-allow-origin").is_empty() && all(&closed, "vary").is_empty());
    // Without `cors` the app's own fields pass through, and the app answers OPTIONS itself.
    let bare = preflight(&mut client, "/bare/a", "PUT", PAGE);
    assert_eq!((bare.status, all(&bare, "access-control-allow-origin")), (200, vec!["https://evil.example"]));
}

#[test]
fn options_are_answered_from_the_routes() {
    let front = Front::start(
        "[server]\nanswer_headers = { X-A = 'b' }\n\
         [[endpoint]]\nroute = 'GET /a/{id}'\nconstant = { a = 1 }\n[[endpoint]]\nroute = 'PUT /a/{id}'\nconstant = { a = 1 }\n\
         [[endpoint]]\nroute = 'POST /b'\nconstant = { a = 1 }\n",
    );
    let mut client = front.server.client();
    for (target, allow) in [("/a/7", "GET, HEAD, PUT, OPTIONS"), ("/b", "POST, OPTIONS")] {
        let answer = call(&mut client, "OPTIONS", target, &[]);
        assert_eq!((answer.status, answer.header("allow"), answer.body.len()), (204, Some(allow), 0));
        assert_eq!(answer.header("x-a"), Some("b"));
        let closed = preflight(&mut client, target, "GET", PAGE);
        assert_eq!((closed.status, closed.header("access-control-allow-origin")), (204, None));
        let wrong = call(&mut client, "PATCH", target, &[]);
        assert_eq!((wrong.status, wrong.header("allow"), wrong.header("x-a")), (405, Some(allow), Some("b")));
    }
    call(&mut client, "OPTIONS", "/nowhere", &[]).expect_problem(404, "there is nothing here");
}

#[test]
fn header_fields_of_the_config_are_on_every_answer_once() {
    let app = app();
    let front = Front::start(&format!(
        "[server]\nsecurity_headers = true\nanswer_headers = {{ X-Frame-Options = 'DENY', Server = 'forebay' }}\n\
         trusted_proxies = '127.0.0.1'\n\
         [[endpoint]]\nroute = 'GET /a'\nconstant = {{ a = 1 }}\nanswer_headers = {{ server = 'own' }}\n\
         [[endpoint]]\nroute = 'GET /sql'\nsql = 'SELECT 1 AS one'\n\
         [[endpoint]]\nroute = 'GET /plain'\nconstant = {{ a = 1 }}\nsecurity_headers = false\n\
         [[endpoint]]\nroute = 'GET /app/{{path...}}'\nproxy = 'http://{0}'\n\
         [[endpoint]]\nroute = 'GET /kept/{{path...}}'\nproxy = 'http://{0}'\ncache = {{ local = '1m' }}\n",
        app.address
    ));
    front.server.wait_healthy();
    let mut client = front.server.client();
    for (target, server) in [
        ("/a", "own"),
        ("/sql", "forebay"),
        ("/app/a", "forebay"),
        ("/kept/a", "forebay"),
        ("/kept/a", "forebay"),
        ("/no", "forebay"),
    ] {
        let answer = call(&mut client, "GET", target, &[]);
        assert_eq!(all(&answer, "x-content-type-options"), ["nosniff"], "{target}");
        assert_eq!(all(&answer, "x-frame-options"), ["DENY"], "{target}: {answer:?}");
        assert_eq!(all(&answer, "server"), [server], "{target}: {answer:?}");
        assert_eq!(all(&answer, "referrer-policy").len(), 1);
        assert!(all(&answer, "strict-transport-security").is_empty(), "{target}: not by http");
        let secure = call(&mut client, "GET", target, &[("X-Forwarded-Proto", "https")]);
        assert_eq!(all(&secure, "strict-transport-security"), ["max-age=31536000"], "{target}");
    }
    let plain = call(&mut client, "GET", "/plain", &[]);
    assert!(all(&plain, "x-content-type-options").is_empty() && all(&plain, "x-frame-options") == ["DENY"]);
}
