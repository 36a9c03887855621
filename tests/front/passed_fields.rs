//! What an application receives besides a client's own words: no statement about a request that a client
//! made up, no credential that the guard has checked, and what the config adds.

use super::Front;
use super::upstream::{Scripted, Seen};
use forebay_tests::{Client, Folder};
use std::io::Write;

/// SHA-256 of `ann's key`.
const ANN: &str = "4a8c1eb8b2bbb2493bdc9ee3f7a3357b048de54a2dbc52301e88c39403cd6ce8";
const KEY: (&str, &str) = ("X-Api-Key", "ann's key");

/// Fields that frameworks and proxies document, which a client must not choose.
const ASSERTED: [&str; 20] = [
    "Forwarded",
    "X-Forwarded-For",
    "X-Forwarded-Host",
    "X-Forwarded-Port",
    "X-Forwarded-User",
    "X-Forwarded-Prefix",
    "X-Real-IP",
    "Proxy",
    "True-Client-IP",
    "CF-Connecting-IP",
    "Client-IP",
    "X-Client-IP",
    "X-Cluster-Client-IP",
    "X-Original-URL",
    "X-Rewrite-URL",
    "Remote-User",
    "X-Remote-User",
    "X-WebAuth-User",
    "X-MS-Client-Principal",
    "X-SSL-Client-Verify",
];

fn app() -> Scripted {
    Scripted::new(|_, stream| stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_ok())
}

/// What the application gets of one request.
#[track_caller]
fn seen(front: &Front, app: &Scripted, method: &str, target: &str, headers: &[(&str, &str)]) -> Seen {
    let mut client: Client = front.server.client();
    let answer = client.call(method, target, headers, None).expect("an answer");
    assert_eq!((answer.status, answer.text()), (200, "ok"), "{method} {target}: {answer:?}");
    app.seen().pop().expect("a request")
}

fn key_file(folder: &Folder) -> String {
    let file = folder.write("keys", &format!("{ANN} ann tenant=blue\n"));
    format!("[auth.apps]\nkind = 'key'\nfile = '{}'\n", file.display())
}

#[test]
fn what_clients_state_about_themselves_does_not_arrive() {
    let app = app();
    let endpoint = |path: &str, more: &str| {
        format!("[[endpoint]]\nroute = '* {path}/{{rest...}}'\nproxy = 'http://{}'\n{more}\n", app.address)
    };
    let config = [
        endpoint("", ""),
        endpoint("/kept", "keep_headers = ['x-original-URL', 'Remote-User']"),
        endpoint("/front", "forwarded = 'append'"),
    ];
    let front = Front::start(&config.concat());
    let lies: Vec<(&str, &str)> = ASSERTED.iter().map(|name| (*name, "6.6.6.6")).collect();
    let imitated = [("X.Forwarded.For", "6.6.6.6"), ("X_Real_IP", "6.6.6.6"), ("Remote!User", "6.6.6.6")];
    let own = [("X-Requested-With", "me"), ("X-Api-Key", "mine"), ("Authorization", "Bearer mine")];
    let sent: Vec<_> = lies.iter().copied().chain(imitated).chain(own).collect();
    let got = seen(&front, &app, "GET", "/a", &sent);
    assert!(!got.head.contains("6.6.6.6"), "{got:?}");
    assert!(own.iter().all(|(name, value)| got.header(name) == Some(*value)), "{got:?}");
    assert_eq!(got.header("x-forwarded-for"), Some("127.0.0.1"));
    let got = seen(&front, &app, "POST", "/kept/a", &sent);
    let kept = ["X-Original-URL", "Remote-User"];
    for name in ASSERTED {
        let expected = kept.contains(&name).then_some("6.6.6.6");
        assert_eq!(got.header(name).filter(|value| value.contains("6.6.6.6")), expected, "{name}: {got:?}");
    }
    let got = seen(&front, &app, "GET", "/front/a", &lies);
    assert!(ASSERTED.iter().all(|name| got.header(name).is_some_and(|v| v.contains("6.6.6.6"))), "{got:?}");
}

#[test]
fn credentials_that_the_guard_has_checked_stay_here() {
    let (folder, app) = (Folder::new(), app());
    let to = format!("proxy = 'http://{}'", app.address);
    let secret = "{ query = 'token', secret = 'sesame' }";
    let front = Front::start(&format!(
        "{}[[endpoint]]\nroute = 'GET /keys'\nguard = 'apps'\n{to}\n\
         [[endpoint]]\nroute = 'GET /passed'\nguard = 'apps'\npass_credentials = true\n{to}\n\
         [[endpoint]]\nroute = 'GET /query'\nguard = {secret}\n{to}\n\
         [[endpoint]]\nroute = 'GET /both'\nguard = {{ any = ['apps', {secret}] }}\n{to}\n\
         [[endpoint]]\nroute = 'GET /cached'\nguard = {secret}\ncache = {{ local = '1m', vary = ['X-Api-Key'] }}\n{to}\n\
         [[endpoint]]\nroute = 'GET /open'\n{to}\n",
        key_file(&folder)
    ));
    let target = |seen: &Seen| seen.head.split(' ').nth(1).expect("a target").to_owned();
    let got = seen(&front, &app, "GET", "/keys?a=1", &[KEY, ("Authorization", "Bearer x")]);
    assert_eq!((got.header("x-api-key"), got.header("authorization")), (None, Some("Bearer x")), "{got:?}");
    assert_eq!(got.header("x-forwarded-user"), Some("ann"));
    assert_eq!(seen(&front, &app, "GET", "/passed", &[KEY]).header("x-api-key"), Some(KEY.1));
    for (sent, expected) in [
        ("/query?token=sesame", "/query"),
        ("/query?a=%20b&token=sesame&c", "/query?a=%20b&c"),
        ("/query?%74oken=sesame&tokens=1", "/query?tokens=1"),
        ("/both?token=sesame&", "/both"),
        ("/cached?token=sesame&a=1", "/cached?a=1"),
        ("/open?token=sesame", "/open?token=sesame"),
    ] {
        let got = seen(&front, &app, "GET", sent, &[]);
        assert_eq!(target(&got), expected, "{sent}");
    }
    let got = seen(&front, &app, "GET", "/both", &[KEY]);
    assert_eq!(got.header("x-api-key"), None, "{got:?}");
}

#[test]
fn the_config_adds_fields_and_a_client_cannot() {
    let (folder, app) = (Folder::new(), app());
    let to = format!("proxy = 'http://{}'", app.address);
    let fields = "request_headers = { X-Tenant = '$auth.tenant', X-Env = 'test', X-Path = 'part {$id}' }";
    let front = Front::start(&format!(
        "{}[[endpoint]]\nroute = 'GET /a/{{id}}'\nguard = 'apps'\n{fields}\n{to}\n\
         [[endpoint]]\nroute = 'GET /cached/{{id}}'\nguard = 'apps'\ncache = {{ local = '1m', per = 'route' }}\n{fields}\n{to}\n\
         [[endpoint]]\nroute = 'GET /user'\nguard = 'apps'\nrequest_headers = {{ X-Forwarded-User = 'tenant-{{$auth.tenant}}' }}\n{to}\n\
         [[endpoint]]\nroute = 'GET /echo'\nparams = {{ v = 'text' }}\nrequest_headers = {{ X-V = '$v' }}\n{to}\n",
        key_file(&folder)
    ));
    for path in ["/a/7", "/cached/7"] {
        let sent = [KEY, ("X-Tenant", "red"), ("x-env", "red"), ("Connection", "keep-alive, X-Tenant")];
        let got = seen(&front, &app, "GET", path, &sent);
        let found = ["x-tenant", "x-env", "x-path"].map(|name| got.header(name));
        assert_eq!(found, [Some("blue"), Some("test"), Some("part 7")], "{path}: {got:?}");
        assert_eq!(got.head.to_ascii_lowercase().matches("x-tenant:").count(), 1, "{got:?}");
    }
    assert_eq!(seen(&front, &app, "GET", "/user", &[KEY]).header("x-forwarded-user"), Some("tenant-blue"));
    assert_eq!(seen(&front, &app, "GET", "/echo?v=a%20b", &[]).header("x-v"), Some("a b"));
    let before = app.seen().len();
    let mut client = front.server.client();
    for value in ["a%0d%0aX-Admin:%201", "%20a", "a%7f"] {
        client.get(&format!("/echo?v={value}")).expect_problem(400, "x-v");
    }
    assert_eq!(app.seen().len(), before);
}

#[test]
fn a_prefix_ends_here() {
    let app = app();
    let endpoint =
        |route: &str, more: &str| format!("[[endpoint]]\nroute = '{route}'\nupstream = 'app'\n{more}\n");
    let guard = "guard = { header = 'X-Secret', secret = 'sesame', status = 403 }";
    let front = Front::start(&format!(
        "[upstream.app]\nurl = 'http://{}'\nstrip_prefix = '/shop/v1'\n\n{}{}{}",
        app.address,
        endpoint("* /shop/v1/{rest...}", ""),
        endpoint("* /shop/v1/admin/{rest...}", guard),
        endpoint("GET /shop/v1/page", "cache = { local = '1m' }"),
    ));
    for (sent, expected) in [
        ("/shop/v1/a%20b/c?d=/shop/v1", "/a%20b/c?d=/shop/v1"),
        ("/shop/v1", "/"),
        ("/shop/v1/", "/"),
        ("/shop/v1?a", "/?a"),
        ("/shop/v1/shop/v1/a", "/shop/v1/a"),
        ("/shop/v1/page?b", "/page?b"),
        ("/shop//v1/./a", "/a"),
    ] {
        let got = seen(&front, &app, "GET", sent, &[("X-Forwarded-Prefix", "/evil")]);
        assert!(got.head.starts_with(&format!("GET {expected} HTTP/1.1\r\n")), "{sent}: {got:?}");
        assert_eq!(got.header("x-forwarded-prefix"), Some("/shop/v1"), "{got:?}");
    }
    let before = app.seen().len();
    let mut client = front.server.client();
    for path in ["/shop/v1/admin/x", "/shop/v1/admin;a/x", "/shop/v1/;/admin", "/shop/v1/a/%252e%252e/admin"]
    {
        client.get(path).expect_problem(403, "the secret");
    }
    for path in ["/shop/v1/a/..;/admin", "/shop/v1/..;/admin/x"] {
        client.get(path).expect_problem(400, "dots");
    }
    client.get("/shop/v10/a").expect_problem(404, "");
    assert_eq!(app.seen().len(), before);
}

/// The application has its guarded path behind another route too.
#[test]
fn a_prefix_is_no_way_round_a_guard_of_the_same_application() {
    let app = app();
    let to = format!("proxy = 'http://{}'", app.address);
    let guard = "guard = { header = 'X-Secret', secret = 'sesame', status = 403 }";
    let front = Front::start(&format!(
        "[[endpoint]]\nroute = '* /admin/{{rest...}}'\n{guard}\n{to}\n\
         [[endpoint]]\nroute = '* /app/{{rest...}}'\nstrip_prefix = '/app'\n{to}\n\
         [[endpoint]]\nroute = '* /app/vault'\nstrip_prefix = '/app'\n{guard}\n{to}\n\
         [[endpoint]]\nroute = '* /{{path...}}'\n{to}\n\
         [[endpoint]]\nroute = '* /other/{{rest...}}'\nstrip_prefix = '/other'\nproxy = 'http://127.0.0.1:9'\n"
    ));
    let mut client = front.server.client();
    for path in ["/admin/x", "/app/admin/x", "/app/ADMIN/x", "/app/vault", "/vault", "/vault;a"] {
        client.get(path).expect_problem(403, "the secret");
    }
    assert_eq!(app.seen().len(), 0);
    client.get("/other/admin/x").expect_problem(502, "cannot be reached");
    for path in ["/app/a", "/a"] {
        seen(&front, &app, "GET", path, &[]);
    }
}
