//! The examples with keys: an Express app behind an authenticating proxy, and short links with
//! owners.

use super::spellings::App;
use forebay_tests::{Answer, Client, Folder, Server, Start, Stores, binary, root, wait_for};
use std::process::Command;

const SECRET: &str = "a secret of an example, and long enough";

fn serve(example: &str, folder: &Folder, stores: &Stores, environment: &[(&str, &str)]) -> Server {
    let file = root().join("examples").join(example);
    let start = Start::new(binary(), folder, &file).stores(stores, folder);
    let start = environment.iter().fold(start, |start, (name, value)| start.environment(name, value));
    let server = start.start();
    server.wait_healthy();
    server
}

fn ask(client: &mut Client, route: &str, headers: &[(&str, &str)], body: Option<&str>) -> Answer {
    let (method, target) = route.split_once(' ').expect("METHOD /path");
    client.call(method, target, headers, body).expect("an answer")
}

fn text(answer: &Answer, name: &str) -> String {
    answer.json()[name].as_str().unwrap_or_else(|| panic!("{name}: {answer:?}")).to_owned()
}

#[test]
fn an_express_app_behind_login_and_keys() {
    let app = App::start("app.js", |_, _| {
        let mut command = Command::new("node");
        command.arg(root().join("examples/app.js")).env("LOGIN_SECRET", SECRET).env("NODE_ENV", "production");
        command.env("EXPRESS", root().join("peers/node_modules/express"));
        command
    });
    let (folder, stores) = (Folder::new(), Stores::new());
    let upstream = format!("http://{}", app.address);
    let server = serve("app.toml", &folder, &stores, &[("LOGIN_SECRET", SECRET), ("APP", &upstream)]);
    let mut client = server.client();
    let mut login = |name: &str, password: &str| {
        let body = format!(r#"{{"name":"{name}","password":"{password}"}}"#);
        ask(&mut client, "POST /login", &[], Some(&body))
    };
    assert_eq!(login("ann", "wrong").status, 401);
    let bearer = |answer: &Answer| format!("Bearer {}", text(answer, "token"));
    let (ann, bob) = (bearer(&login("ann", "sesame")), bearer(&login("bob", "mellon")));
    let made = ask(&mut client, "POST /keys", &[("Authorization", &bob)], None);
    let key = text(&made, "key");
    assert_eq!((made.status, text(&made, "owner").as_str(), key.len()), (201, "bob", 40));
    ask(&mut client, "POST /keys", &[], None).expect_problem(401, "");
    ask(&mut client, "POST /keys", &[("X-Api-Key", &key)], None).expect_problem(401, "");
    let by_key = [("X-Api-Key", key.as_str()), ("X-Forwarded-User", "ann")];
    for left in (0..100).rev() {
        let answer = ask(&mut client, "GET /api/me", &by_key, None);
        assert_eq!(text(&answer, "user"), "bob");
        // The budget grows by one every 600 ms.
        let field = answer.header("RateLimit").expect("what is left").to_owned();
        let shown =
            field.split(';').find_map(|part| part.strip_prefix("r=")?.parse::<i32>().ok()).expect("r");
        assert!((left..left + 60).contains(&shown), "{field} after {} requests", 100 - left);
    }
    let answer = ask(&mut client, "GET /api/me", &[("Authorization", &ann)], None);
    assert_eq!(text(&answer, "user"), "ann", "a count of her own");
    ask(&mut client, "GET /api/me", &[], None).expect_problem(401, "");
    assert_eq!(ask(&mut client, "GET /admin/people", &[("Authorization", &ann)], None).status, 200);
    ask(&mut client, "GET /admin/people", &[("Authorization", &bob)], None).expect_problem(403, "");
    ask(&mut client, "GET /ADMIN/people", &[("X-Api-Key", &key)], None).expect_problem(401, "");
    let hello = ask(&mut client, "GET /", &by_key, None);
    assert_eq!(
        (text(&hello, "hello").as_str(), hello.header("X-Content-Type-Options")),
        ("nobody", Some("nosniff"))
    );
    // Only this other site's page may send requests with credentials.
    let page = "http://localhost:5173";
    let advance = [("Origin", page), ("Access-Control-Request-Method", "PUT")];
    let allowed = ask(&mut client, "OPTIONS /api/me", &advance, None);
    assert_eq!((allowed.status, allowed.header("Access-Control-Allow-Origin")), (204, Some(page)));
    let fields = allowed.header("Access-Control-Allow-Headers");
    assert_eq!(fields, Some("Authorization, Content-Type, X-Api-Key"));
    let answer = ask(&mut client, "GET /api/me", &[("Authorization", &ann), ("Origin", page)], None);
    assert_eq!((answer.status, answer.header("Access-Control-Allow-Origin")), (200, Some(page)));
    let other = [("Authorization", ann.as_str()), ("Origin", "http://localhost:5174")];
    assert_eq!(ask(&mut client, "GET /api/me", &other, None).header("Access-Control-Allow-Origin"), None);
    let file = std::fs::read_to_string(root().join("examples/app.toml")).expect("the example");
    assert!(file.lines().count() < 80, "one file, below 80 lines");
}

#[test]
fn whose_link_it_is_decides_who_may_change_it() {
    let (folder, stores) = (Folder::new(), Stores::new());
    let server = serve("owners.toml", &folder, &stores, &[("OWNERS_SECRET", "sesame")]);
    let mut client = server.client();
    let mut key = |owner: &str| {
        let made = ask(&mut client, &format!("POST /keys/{owner}"), &[("X-Secret", "sesame")], None);
        made.expect(201);
        text(&made, "key")
    };
    let (ann, bob) = (key("ann"), key("bob"));
    let (ann, bob) = ([("X-Api-Key", ann.as_str())], [("X-Api-Key", bob.as_str())]);
    ask(&mut client, "POST /keys/ann", &[], None).expect_problem(403, "");
    let made =
        ask(&mut client, "POST /links", &ann, Some(r#"{"url":"https://example.com/a","owner":"bob"}"#));
    made.expect(201);
    let code = text(&made, "code");
    let location = |client: &mut Client| {
        let answer = ask(client, &format!("GET /{code}"), &[], None);
        (answer.status, answer.header("Location").unwrap_or_default().to_owned())
    };
    assert_eq!(location(&mut client), (302, "https://example.com/a".to_owned()));
    let (change, delete) = (format!("PUT /links/{code}"), format!("DELETE /links/{code}"));
    let other = Some(r#"{"url":"https://example.org/b"}"#);
    ask(&mut client, &change, &bob, other).expect_problem(404, "you have no such link");
    ask(&mut client, &delete, &bob, None).expect_problem(404, "you have no such link");
    ask(&mut client, &change, &[], other).expect_problem(401, "");
    assert_eq!(location(&mut client).1, "https://example.com/a");
    ask(&mut client, &change, &ann, other).expect(200);
    assert_eq!(location(&mut client).1, "https://example.org/b");
    let links = |client: &mut Client, key: &[(&str, &str)]| ask(client, "GET /links", key, None).expect(200);
    assert_eq!(links(&mut client, &bob).as_array().map(Vec::len), Some(0));
    wait_for("her clicks are in the database", || (links(&mut client, &ann)[0]["clicks"] == 3).then_some(()));
    ask(&mut client, &delete, &ann, None).expect(200);
    assert_eq!(location(&mut client).0, 404);
}
