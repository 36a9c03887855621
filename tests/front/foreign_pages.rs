//! Pages of other origins, which make a browser send requests with what the browser knows of its user.

use super::Front;
use super::upstream::Scripted;
use forebay_tests::{Client, Folder};
use std::io::Write;

/// The output of `htpasswd -nbB -C 5 ann sesame`.
const PASSWORDS: &str = "ann:$2b$05$ckdqZcG4S8SYQpxCfV8Aper6r3HC/GsnPAapqkXIZOxGOGP32rVc6\n";
/// `ann:sesame`.
const ANN: (&str, &str) = ("Authorization", "Basic YW5uOnNlc2FtZQ==");
/// SHA-256 of `ann's key`.
const KEY_HASH: &str = "4a8c1eb8b2bbb2493bdc9ee3f7a3357b048de54a2dbc52301e88c39403cd6ce8";
const BODY: Option<&str> = Some("{\"v\":1}");

/// What browsers send for a page of another origin, by their age and the way of the request.
const FOREIGN: [&[(&str, &str)]; 6] = [
    &[("Origin", "https://evil.example")],
    &[("Origin", "null")],
    &[("Origin", "http://localhost.evil.example")],
    &[("Sec-Fetch-Site", "cross-site")],
    &[("Sec-Fetch-Site", "same-site"), ("Origin", "http://localhost")],
    &[("Sec-Fetch-Site", "cross-site"), ("Origin", "https://evil.example")],
];
/// What browsers send for a page of the server's own, and what programs send.
const OWN: [&[(&str, &str)]; 4] = [
    &[],
    &[("Origin", "http://localhost")],
    &[("Sec-Fetch-Site", "same-origin"), ("Origin", "https://www.example")],
    &[("Sec-Fetch-Site", "none")],
];

#[track_caller]
fn status(
    client: &mut Client,
    method: &str,
    target: &str,
    headers: &[&[(&str, &str)]],
    body: Option<&str>,
) -> u16 {
    client.call(method, target, &headers.concat(), body).expect("an answer").status
}

fn auths(folder: &Folder) -> String {
    let users = folder.write("users", PASSWORDS);
    let keys = folder.write("keys", &format!("{KEY_HASH} ann\n"));
    format!(
        "[auth.people]\nkind = 'basic'\nfile = '{}'\n[auth.apps]\nkind = 'key'\nfile = '{}'\n",
        users.display(),
        keys.display()
    )
}

#[test]
fn a_password_that_a_browser_adds_writes_for_no_other_page() {
    let folder = Folder::new();
    let endpoint = |route: &str, guard: &str, more: &str| {
        format!(
            "[[endpoint]]\nroute = '{route}'\nguard = {guard}\n{more}\nparams = {{ v = 'bigint = 1' }}\nsql = 'SELECT $v AS v'\n"
        )
    };
    let cors = |credentials: bool| {
        format!("cors = {{ origins = ['https://app.example'], credentials = {credentials} }}")
    };
    let any = "{ any = ['apps', 'people'] }";
    let config = ["GET", "POST", "PUT", "PATCH", "DELETE"]
        .map(|method| endpoint(&format!("{method} /a"), "'people'", ""));
    let front = Front::start(&format!(
        "{}{}{}{}{}{}",
        auths(&folder),
        config.concat(),
        "[table.notes]\ncolumns = { id = 'bigint key' }\n[[endpoint]]\nroute = 'GET /write'\nguard = 'people'\n\
         params = { id = 'bigint = 1' }\ndelete = 'notes'\nkey = '$id'\n",
        endpoint("POST /any", any, ""),
        endpoint("POST /named", "'people'", &cors(true)),
        endpoint("POST /read", "'people'", &cors(false)),
    ));
    let mut client = front.server.client();
    for method in ["POST", "PUT", "PATCH", "DELETE"] {
        for page in FOREIGN {
            let found = status(&mut client, method, "/a", &[&[ANN], page], BODY);
            assert_eq!(found, 403, "{method} {page:?}");
        }
        for page in OWN {
            let found = status(&mut client, method, "/a", &[&[ANN], page], BODY);
            assert_eq!(found, 200, "{method} {page:?}");
        }
    }
    for page in FOREIGN.into_iter().chain(OWN) {
        assert_eq!(status(&mut client, "GET", "/a", &[&[ANN], page], None), 200, "{page:?}");
    }
    // A GET that writes is a write.
    for page in FOREIGN {
        assert_eq!(status(&mut client, "GET", "/write", &[&[ANN], page], None), 403, "{page:?}");
    }
    assert_eq!(status(&mut client, "GET", "/write", &[&[ANN]], None), 404);
    // Without the password there is nothing to misuse, and the browser is asked for it.
    assert_eq!(status(&mut client, "POST", "/a", &[FOREIGN[0]], BODY), 401);
    // A key is sent by a page that knows it.
    let key = ("X-Api-Key", "ann's key");
    assert_eq!(status(&mut client, "POST", "/any", &[&[key], FOREIGN[0]], BODY), 200);
    assert_eq!(status(&mut client, "POST", "/any", &[&[ANN], FOREIGN[0]], BODY), 403);
    let named: &[(&str, &str)] = &[("Origin", "https://app.example"), ("Sec-Fetch-Site", "cross-site")];
    assert_eq!(status(&mut client, "POST", "/named", &[&[ANN], named], BODY), 200);
    assert_eq!(status(&mut client, "POST", "/named", &[&[ANN], FOREIGN[0]], BODY), 403);
    assert_eq!(status(&mut client, "POST", "/read", &[&[ANN], named], BODY), 403);
}

#[test]
fn a_body_that_a_form_can_send_is_not_read_as_json() {
    let folder = Folder::new();
    let front = Front::start(&format!(
        "{}[[endpoint]]\nroute = 'POST /a'\nguard = 'people'\nparams = {{ v = 'bigint = 1' }}\nsql = 'SELECT $v AS v'\n\
         [[endpoint]]\nroute = 'POST /key'\nguard = 'apps'\nparams = {{ v = 'bigint = 1' }}\nsql = 'SELECT $v AS v'\n\
         [[endpoint]]\nroute = 'POST /csrf'\ncsrf = true\nparams = {{ v = 'bigint = 1' }}\nsql = 'SELECT $v AS v'\n",
        auths(&folder)
    ));
    let mut client = front.server.client();
    let mut posted = |path: &str, more: &str| {
        let (name, value) = ANN;
        let head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\n{name}: {value}\r\n{more}");
        client.send(format!("{head}Content-Length: 7\r\n\r\n{{\"v\":1}}").as_bytes()).expect("a live socket");
        client.receive(false).expect("an answer").status
    };
    for path in ["/a", "/csrf"] {
        for kind in ["text/plain", "application/x-www-form-urlencoded", "text/json", "application/jsonx", ""]
        {
            assert_eq!(posted(path, &format!("Content-Type: {kind}\r\n")), 415, "{path} {kind}");
        }
        assert_eq!(posted(path, ""), 415, "{path}");
        let two = "Content-Type: application/json\r\nContent-Type: text/plain\r\n";
        assert_eq!(posted(path, two), 415, "{path}");
        for kind in ["application/json", "Application/JSON; charset=utf-8", "application/merge-patch+json"] {
            assert_eq!(posted(path, &format!("Content-Type: {kind}\r\n")), 200, "{path} {kind}");
        }
    }
    assert_eq!(posted("/key", "X-Api-Key: ann's key\r\nContent-Type: text/plain\r\n"), 200);
    for path in ["/a?v=1", "/csrf?v=1"] {
        assert_eq!(status(&mut client, "POST", path, &[&[ANN]], None), 200, "{path}: no body");
    }
}

#[test]
fn an_app_with_cookies_is_written_to_by_its_own_pages() {
    let app = Scripted::new(|_, stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_ok()
    });
    let to = format!("proxy = 'http://{}'", app.address);
    let front = Front::start(&format!(
        "[server]\npublic_url = 'https://shop.example/base'\n\
         [[endpoint]]\nroute = '* /transfer'\ncsrf = true\n{to}\n\
         [[endpoint]]\nroute = '* /{{path...}}'\n{to}\n"
    ));
    let mut client = front.server.client();
    let cookie: &[(&str, &str)] = &[("Cookie", "session=1")];
    // Another server may read the path of the guarded route in each of these.
    for path in ["/transfer", "/transfer;a", "/transfer/", "/Transfer"] {
        for page in FOREIGN {
            assert_eq!(status(&mut client, "POST", path, &[cookie, page], None), 403, "{path} {page:?}");
        }
        for page in OWN {
            assert_eq!(status(&mut client, "POST", path, &[cookie, page], None), 200, "{path} {page:?}");
        }
    }
    let public: &[(&str, &str)] = &[("Origin", "https://shop.example"), ("Sec-Fetch-Site", "cross-site")];
    assert_eq!(status(&mut client, "POST", "/transfer", &[cookie, public], None), 200);
    assert_eq!(status(&mut client, "GET", "/transfer", &[cookie, FOREIGN[0]], None), 200, "a link");
    assert_eq!(status(&mut client, "PROPFIND", "/transfer", &[cookie, FOREIGN[0]], None), 403);
    let socket: &[(&str, &str)] = &[("Connection", "Upgrade"), ("Upgrade", "websocket")];
    let before = app.seen().len();
    assert_eq!(status(&mut client, "GET", "/transfer", &[cookie, socket, FOREIGN[0]], None), 403);
    assert_eq!(app.seen().len(), before);
    assert_eq!(status(&mut client, "GET", "/transfer", &[cookie, socket, OWN[1]], None), 200);
    assert_eq!(status(&mut client, "POST", "/a", &[cookie, FOREIGN[0]], None), 200, "without csrf");
}

#[test]
fn a_page_is_not_a_program_on_this_machine() {
    let front = Front::start(
        "[[endpoint]]\nroute = 'POST /run'\nguard = { query = 'secret', secret = 'sesame', from = 'outside' }\nconstant = {}\n\
         [[endpoint]]\nroute = 'GET /show'\nguard = { query = 'secret', secret = 'sesame', from = 'outside' }\nconstant = {}\n",
    );
    let mut client = front.server.client();
    for page in FOREIGN {
        assert_eq!(status(&mut client, "POST", "/run", &[page], None), 404, "{page:?}");
        assert_eq!(status(&mut client, "GET", "/show", &[page], None), 404, "{page:?}");
        assert_eq!(status(&mut client, "POST", "/run?secret=sesame", &[page], None), 200, "{page:?}");
    }
    for page in [OWN[0], OWN[1], OWN[3]] {
        assert_eq!(status(&mut client, "POST", "/run", &[page], None), 200, "{page:?}");
        assert_eq!(status(&mut client, "GET", "/show", &[page], None), 200, "{page:?}");
    }
}
