//! However a path is spelled, an upstream application never receives a path that its guard forbids.

use super::Front;
use forebay_tests::{Folder, free_port, wait_for};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Request lines that mean `/admin/x` to some server: case, dots, slashes, escapes, double escapes, path
/// parameters, absolute forms, and parts that some servers strip.
const SPELLINGS: &[&str] = &[
    "/admin",
    "/admin/",
    "/admin/x",
    "/admin?a=b",
    "/admin/?",
    "/admin//",
    "/admin//x",
    "//admin/x",
    "///admin/x",
    "//admin//x//",
    "/./admin/x",
    "/.//admin/x",
    "/admin/./x",
    "/admin/.",
    "/admin/x/..",
    "/a/../admin/x",
    "/a/b/../../admin/x",
    "/../admin/x",
    "/../../admin/x",
    "/a/..//admin/x",
    "/a/./../admin/x",
    "/admin/../admin/x",
    "/%61dmin/x",
    "/%61%64%6d%69%6e/x",
    "/%61%64%6D%69%6E/x",
    "/adm%69n",
    "/admin%2Fx",
    "/admin%2fx",
    "/admin%2f",
    "/%2fadmin/x",
    "/%2Fadmin/x",
    "/a%2f..%2fadmin/x",
    "/a/%2e%2e/admin/x",
    "/a/%2E%2E/admin/x",
    "/a/.%2e/admin/x",
    "/a/%2e./admin/x",
    "/%2e/admin/x",
    "/%2e%2e/admin/x",
    "/a/..%2fadmin/x",
    "/a%2f../admin/x",
    "/a/%2e%2e%2fadmin/x",
    "/%2561dmin/x",
    "/a/%252e%252e/admin/x",
    "/admin%252fx",
    "/a/..%252fadmin/x",
    "/\\admin\\x",
    "/a/..\\admin/x",
    "/a/..%5cadmin/x",
    "/admin%5cx",
    "/admin\\x",
    "/admin;/x",
    "/admin;a=b/x",
    "/;/admin/x",
    "/a/..;/admin/x",
    "/.;/admin/x",
    "/a/..;a/admin/x",
    "/admin%3b/x",
    "/ADMIN/x",
    "/Admin",
    "/aDmIn/x",
    "/%41dmin/x",
    "/%41%44%4d%49%4e/x",
    "/admin%00",
    "/admin%00/x",
    "/admin/x%00.js",
    "/admin%20",
    "/admin%09/x",
    "/admin%0a",
    "/admin/x.json",
    "/admin/x.css",
    "/admin/..;/admin/x",
    "/a/../admin%2fx",
    "/%c0%ae%c0%ae/admin/x",
    "/a/%c0%ae%c0%ae/admin/x",
    "/%e0%80%aeadmin/x",
    "/admin%ef%bc%8fx",
    "/a/..%ef%bc%8fadmin",
    "/a/%uff0e%uff0e/admin/x",
    "/admin/%2e%2e/admin/x",
    "/a?/../admin/x",
    "http://app/admin/x",
    "http://app//admin/x",
    "http://app/%61dmin/x",
    "http://app/a/../admin/x",
    "HTTP://APP/ADMIN/x",
    "http://admin/x",
    "http://app?/admin/x",
    "//app/admin/x",
    "/admin/x#",
    "/#/../admin/x",
    "/admin/%23/..",
];

/// An application in `peers`; killed when dropped.
pub struct App {
    pub address: SocketAddr,
    child: Child,
    _folder: Folder,
}

impl App {
    #[track_caller]
    pub fn start(name: &str, program: impl FnOnce(&Path, u16) -> Command) -> App {
        let (folder, port) = (Folder::new(), free_port());
        let mut command = program(folder.path(), port);
        command.env("PORT", port.to_string()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().unwrap_or_else(|error| panic!("{name}: {error}"));
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        wait_for(name, || TcpStream::connect(address).ok());
        App { address, child, _folder: folder }
    }
}

impl Drop for App {
    fn drop(&mut self) {
        // The error means that the process has already ended.
        let _killed = self.child.kill();
        let _ended = self.child.wait();
    }
}

fn source(name: &str) -> PathBuf {
    forebay_tests::root().join("tests/front/apps").join(name)
}

fn with_source(program: &str, name: &str) -> Command {
    let mut command = Command::new(program);
    command.arg(source(name));
    command
}

fn apps() -> Vec<(&'static str, App)> {
    let express = forebay_tests::root().join("peers/node_modules/express");
    let mux = |folder: &Path, _| {
        let built =
            Command::new("go").args(["build", "-o"]).arg(folder.join("mux")).arg(source("mux.go")).status();
        assert!(built.expect("go is installed").success(), "mux.go cannot be built");
        Command::new(folder.join("mux"))
    };
    let nginx = |folder: &Path, port: u16| {
        let (folder, file) = (folder.display().to_string(), folder.join("nginx.conf"));
        let text = std::fs::read_to_string(source("nginx.conf")).expect("the file of the tree");
        let text = text.replace("FOLDER", &folder).replace("PORT", &port.to_string());
        std::fs::write(&file, text).expect("a file can be written");
        let mut command = Command::new("nginx");
        command.args(["-p", &folder, "-e", &format!("{folder}/error.log"), "-c"]).arg(file);
        command
    };
    let wsgi = |_: &Path, port: u16| {
        let mut command = Command::new("gunicorn");
        command.arg("--chdir").arg(source("")).args(["--bind", &format!("127.0.0.1:{port}"), "wsgi:app"]);
        command
    };
    let asgi = |_: &Path, port: u16| {
        let mut command = Command::new("uvicorn");
        command.arg("--app-dir").arg(source("")).args(["--port", &port.to_string(), "asgi:app"]);
        command
    };
    let php = |_: &Path, port: u16| {
        let mut command = Command::new("php");
        command.args(["-S", &format!("127.0.0.1:{port}")]).arg(source("router.php"));
        command
    };
    vec![
        ("node", App::start("node", |_, _| with_source("node", "plain.js"))),
        (
            "express",
            App::start("express", |_, _| {
                let mut command = with_source("node", "express.js");
                command.env("EXPRESS", express).env("NODE_ENV", "production");
                command
            }),
        ),
        ("python", App::start("python", |_, _| with_source("python3", "wsgi.py"))),
        ("gunicorn", App::start("gunicorn", wsgi)),
        ("uvicorn", App::start("uvicorn", asgi)),
        ("php", App::start("php", php)),
        ("go", App::start("go", mux)),
        ("nginx", App::start("nginx", nginx)),
        ("tomcat", App::start("tomcat", tomcat)),
    ]
}

/// Debian's Tomcat with a folder of its own.
fn tomcat(folder: &Path, port: u16) -> Command {
    let folders = ["conf", "logs", "temp", "work", "webapps/ROOT/WEB-INF"];
    folders.iter().for_each(|name| std::fs::create_dir_all(folder.join(name)).expect("a folder"));
    let copy = |name: &str, to: &str| {
        std::fs::copy(source("tomcat").join(name), folder.join(to)).expect("a file of the tree");
    };
    copy("server.xml", "conf/server.xml");
    for name in ["web.xml", "treasure.jsp", "open.jsp"] {
        copy(name, &format!("webapps/ROOT/WEB-INF/{name}"));
    }
    let home = "/usr/share/tomcat10";
    let mut command = Command::new("java");
    command
        .arg("-cp")
        .arg(format!("{home}/bin/bootstrap.jar:{home}/bin/tomcat-juli.jar"))
        .args(["-Xmx128m", &format!("-Dport={port}"), &format!("-Dcatalina.home={home}")])
        .arg(format!("-Dcatalina.base={}", folder.display()))
        .arg(format!("-Djava.io.tmpdir={}", folder.join("temp").display()))
        .args(["org.apache.catalina.startup.Bootstrap", "start"]);
    command
}

/// The answer to one request, as text.
fn answer(address: SocketAddr, target: &str, headers: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a live socket");
    let request = format!("GET {target} HTTP/1.1\r\nHost: app\r\n{headers}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut bytes = Vec::new();
    // Some applications close without reading all.
    let _ended = stream.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// What some server ignores, or ends a part or a path with, behind a part of a path.
const BEHIND: &[&str] = &[
    ";",
    ";a=b",
    ";a=b;c",
    "%3b",
    "%3Ba=b",
    "%253b",
    ".",
    "..",
    "%2e",
    "%252e",
    "%20",
    "%2520",
    ".%20",
    "%20.",
    "%09",
    "%00",
    "%0a",
    "%0d",
    "/",
    "//",
    "%2f",
    "%252f",
    "%25252f",
    "%5c",
    "%255c",
    "/.",
    "/..;/admin",
    "/%2e",
    "?",
    "%3f",
    "%253f",
    "%23",
    "#",
    "~",
    "$",
    "!",
    "&",
    ",",
    "+",
    "@",
    ":",
    "*",
    "'",
    "%ef%bc%8f",
    "%c2%a0",
];

/// What some server ignores before a path.
const BEFORE: &[&str] = &[
    "/;",
    "/;a=b",
    "/.;",
    "/%3b",
    "/%253b",
    "/.",
    "/%2e",
    "/%252e",
    "/",
    "//",
    "/a/..",
    "/a/..;",
    "/a;/..",
    "/a/..;a=b",
    "/a/%2e%2e",
    "/a/%252e%252e",
    "/a/%25%32%65%25%32%65",
    "/%2f",
    "/%252f",
    "/%5c",
    "/%20",
    "/%09",
    "/a%2f..",
    "/a%252f..",
    "/a/..%2f",
    "/a;b/../%2e",
];

fn spellings() -> Vec<String> {
    let mut all: Vec<String> = SPELLINGS.iter().map(|target| (*target).to_owned()).collect();
    for what in BEHIND {
        all.extend([format!("/admin{what}/x"), format!("/admin/x{what}"), format!("/vault{what}")]);
    }
    for what in BEFORE {
        all.extend([format!("{what}/admin/x"), format!("{what}/vault"), format!("{what}/ADMIN;/x")]);
    }
    all
}

/// Spellings of the same paths below `/app`.
fn spellings_below_app() -> Vec<String> {
    let below = |target: &String| match target.find("app").filter(|_| target.contains("://")) {
        Some(_) => target.replacen("app", "app/app", 1),
        None => format!("/app{target}"),
    };
    let mut all: Vec<String> = spellings().iter().map(below).collect();
    for what in BEHIND {
        all.extend([format!("/app{what}/admin/x"), format!("/app{what}/vault")]);
    }
    for what in BEFORE {
        all.extend([format!("{what}/app/admin/x"), format!("/app/app/..{what}/admin/x")]);
    }
    all
}

/// Asks every application for all spellings through a front that guards two paths below `prefix`, which it
/// strips, and passes on all others. Each application is asked without the front for what it hides, too.
fn assert_guarded(prefix: &str, spellings: &[String]) {
    let of_app = self::spellings();
    assert!(of_app.len() >= 200 && spellings.len() >= 200);
    let strip = if prefix.is_empty() { String::new() } else { format!("strip_prefix = '{prefix}'\n") };
    let mut passed = Vec::new();
    for (name, app) in apps() {
        let guard = "guard = { header = 'X-Secret', secret = 'sesame', status = 403 }\n";
        let endpoint = |route: &str, more: &str| {
            let url = app.address;
            format!("[[endpoint]]\nroute = '* {prefix}{route}'\nproxy = 'http://{url}'\n{strip}{more}\n")
        };
        let front = Front::start(
            &[
                endpoint("/admin/{rest...}", guard),
                endpoint("/vault", guard),
                endpoint("/{path...}", "encoded_slash = 'pass'"),
            ]
            .concat(),
        );
        let reached: Vec<_> =
            of_app.iter().filter(|target| answer(app.address, target, "").contains("the treasure")).collect();
        assert!(reached.len() >= 10, "{name}: the application has nothing to hide: {reached:?}");
        for target in spellings {
            let text = answer(front.server.address, target, "");
            assert!(text.starts_with("HTTP/1.1 "), "{name}: GET {target}: {text:?}");
            if text.contains("the treasure") {
                passed.push((name, target.clone()));
            }
        }
        for target in ["/admin", "/admin/", "/admin/x", "//admin/x", "/%61dmin/x", "/vault"] {
            let target = format!("{prefix}{target}");
            let text = answer(front.server.address, &target, "X-Secret: sesame\r\n");
            assert!(text.contains("the treasure"), "{name}: GET {target} with the secret: {text}");
        }
        for target in ["/a", "/a.b/c-d", "/caf%C3%A9", "/100%25", "/a;b", "/A/b"] {
            let target = format!("{prefix}{target}");
            let text = answer(front.server.address, &target, "");
            assert!(
                text.starts_with("HTTP/1.1 200") && text.contains("open"),
                "{name}: GET {target}: {text}"
            );
        }
    }
    assert!(passed.is_empty(), "{} got round: {passed:?}", passed.len());
}

#[test]
fn no_spelling_of_a_path_gets_round_its_guard() {
    assert_guarded("", &spellings());
}

#[test]
fn no_spelling_gets_round_a_guard_below_a_prefix_that_is_stripped() {
    assert_guarded("/app", &spellings_below_app());
}

/// What a front with these guarded and open routes answers.
fn assert_answers(guarded: &[&str], open: &[&str], expected: &[(&str, u16)]) {
    let app = App::start("node", |_, _| with_source("node", "plain.js"));
    let guard = "guard = { header = 'X-Secret', secret = 'sesame', status = 403 }\n";
    let endpoint = |route: &str, guard: &str| {
        format!("[[endpoint]]\nroute = '{route}'\n{guard}proxy = 'http://{}'\n", app.address)
    };
    let guarded = guarded.iter().map(|route| endpoint(route, guard));
    let config: String = guarded.chain(open.iter().map(|route| endpoint(route, ""))).collect();
    let front = Front::start(&config);
    for (target, status) in expected {
        let text = answer(front.server.address, target, "");
        assert!(text.starts_with(&format!("HTTP/1.1 {status}")), "GET {target}: {text}");
    }
}

#[test]
fn what_a_config_opens_by_name_stays_open() {
    assert_answers(
        &["* /{path...}"],
        &["* /docs/", "* /static/{rest...}"],
        &[
            ("/docs/", 200),
            ("/static/a.js", 200),
            ("/static/", 200),
            ("/static/A%20b.js", 200),
            ("/docs", 403),
            ("/docs;a/", 403),
            ("/a", 403),
            ("/static/%252e%252e/a", 403),
            ("/static;/../a", 403),
        ],
    );
}

#[test]
fn a_guarded_route_is_found_however_it_is_written() {
    assert_answers(
        &["* /Admin/{rest...}", "* /files/vault", "* /caf%C3%A9"],
        &["* /files/{id}/", "* /{path...}"],
        &[
            ("/admin/x", 403),
            ("/index.php/admin/x", 403),
            ("/index.php/a", 200),
            ("/files/vault/", 403),
            ("/files/a/", 200),
            ("/caf%C3%A9%20", 403),
            ("/caf%C3%A8%20", 200),
        ],
    );
}

#[test]
fn a_field_with_an_underscore_is_not_passed_on() {
    let upstream = super::upstream::Scripted::saying("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let front = Front::start(&format!(
        "[[endpoint]]\nroute = 'GET /{{path...}}'\nproxy = 'http://{}'",
        upstream.address
    ));
    let text =
        answer(front.server.address, "http://real.example/a", "X_Forwarded_For: 6.6.6.6\r\nX-Kept: 1\r\n");
    assert!(text.ends_with("ok"), "{text}");
    let seen = upstream.seen();
    assert_eq!(seen[0].header("x-kept"), Some("1"));
    assert!(!seen[0].head.to_lowercase().contains("6.6.6.6"), "{}", seen[0].head);
    // The authority of an absolute target replaces Host.
    assert_eq!(seen[0].header("x-forwarded-host"), Some("real.example"), "{}", seen[0].head);
}

#[test]
fn a_parameter_that_is_given_twice_is_refused() {
    let front = Front::start(
        "[table.notes.columns]\nid = 'serial key'\ntext = 'text'\n\n[[endpoint]]\nroute = 'POST /notes'\ninsert = 'notes'\n\
         values = { text = '$text' }\n\n[[endpoint]]\nroute = 'GET /say'\nparams = { text = 'text' }\nsql = 'SELECT $text AS text'\n\
         reply = { wrap = 'data' }",
    );
    front.server.wait_healthy();
    let mut client = front.server.client();
    client.get("/say?text=a").expect(200);
    for (method, target, body) in [
        ("GET", "/say?text=a&text=b", None),
        ("GET", "/say?text=a&%74ext=b", None),
        ("POST", "/notes", Some(r#"{"text":"a","text":"b"}"#)),
        ("POST", "/notes", Some(r#"{"text":"a","\u0074ext":"b"}"#)),
    ] {
        let answer = client.ask(method, target, body);
        answer.expect_problem(400, "more than once");
    }
    client.post_json("/notes", r#"{"text":"a","other":1,"other":2}"#).expect(201);
}
