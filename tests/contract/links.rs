//! Application 5, links.

use super::{App, assert_now};
use forebay_tests::{Answer, Client, wait_for};
use serde_json::{Value, json};
use std::collections::HashSet;

const SECRET: &str = "open sesame";
const FILE: &str = "links.toml";

fn start() -> App {
    App::start_with(FILE, |start| match secret_variable() {
        Some(name) => start.environment(&name, SECRET),
        None => start,
    })
}

fn text_of_example() -> String {
    std::fs::read_to_string(forebay_tests::example(FILE)).expect("the example can be read")
}

/// The variable that the secret is read from.
fn secret_variable() -> Option<String> {
    let text = text_of_example();
    let from = text.find("${")?;
    Some(text[from + 2..].chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect())
}

/// The header that carries the secret: the contract leaves its name to the file.
fn secret_header() -> String {
    let text = text_of_example();
    let guard = text
        .lines()
        .find(|line| line.contains("guard") && line.contains("header"))
        .expect("DELETE has a guard");
    let after = &guard[guard.find("header").expect("just found") + "header".len()..];
    after.split('"').nth(1).expect("a name in quotes").to_owned()
}

#[track_caller]
fn shorten(client: &mut Client, body: &Value) -> Value {
    let answer = client.post_json("/links", &body.to_string());
    let value = answer.expect(201);
    answer.expect_fields("", &["code", "shortUrl", "url"]);
    value
}

#[track_caller]
fn code_of(value: &Value) -> String {
    value["code"].as_str().unwrap_or_else(|| panic!("no code: {value}")).to_owned()
}

#[track_caller]
fn assert_redirect(answer: &Answer, url: &str) {
    assert_eq!(answer.status, 302, "{answer:?}");
    assert_eq!(answer.header("location"), Some(url), "{answer:?}");
}

#[test]
fn a_link_is_made_and_followed() {
    let app = start();
    let mut client = app.server.client();
    let url = "https://example.com/a/b?c=d&e=%20f#g";
    let made = shorten(&mut client, &json!({ "url": url }));
    let code = code_of(&made);
    assert!(code.len() == 6 && code.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{made}");
    assert_eq!(made["url"], url);
    let short = made["shortUrl"].as_str().unwrap_or_default();
    assert!(short.starts_with("http") && short.ends_with(&format!("/{code}")), "{made}");
    assert_redirect(&client.get(&format!("/{code}")), url);
    assert_redirect(&client.ask("HEAD", &format!("/{code}"), None), url);
    client.get("/zzzzzz").expect_problem(404, "");
    app.server.drain();
    let archive = app.archive();
    assert_eq!(archive.text(&format!("SELECT url FROM links WHERE code = '{code}'")), url);
}

#[test]
fn aliases_are_taken_once() {
    let app = start();
    let mut client = app.server.client();
    let first = shorten(&mut client, &json!({ "url": "https://example.com/1", "alias": "my-Alias_1" }));
    assert_eq!(first["code"], "my-Alias_1");
    assert_redirect(&client.get("/my-Alias_1"), "https://example.com/1");
    let again = json!({ "url": "https://example.com/2", "alias": "my-Alias_1" }).to_string();
    client.post_json("/links", &again).expect_problem(409, "");
    assert_redirect(&client.get("/my-Alias_1"), "https://example.com/1");
    // Aliases are case-sensitive.
    shorten(&mut client, &json!({ "url": "https://example.com/3", "alias": "MY-ALIAS_1" }));
    assert_redirect(&client.get("/MY-ALIAS_1"), "https://example.com/3");
    // A generated code counts as taken too.
    let drawn = code_of(&shorten(&mut client, &json!({ "url": "https://example.com/4" })));
    let body = json!({ "url": "https://example.com/5", "alias": drawn }).to_string();
    client.post_json("/links", &body).expect_problem(409, "");
    assert_redirect(&client.get(&format!("/{drawn}")), "https://example.com/4");
}

#[test]
fn an_alias_has_one_winner() {
    let app = start();
    for round in 0..20 {
        let address = app.server.address;
        let rivals: Vec<_> = (0..4)
            .map(|rival| {
                std::thread::spawn(move || {
                    let mut client = Client::connect(address).expect("a connection");
                    let url = format!("https://example.com/{rival}");
                    let body = json!({ "url": url, "alias": format!("wanted{round}") }).to_string();
                    (client.post_json("/links", &body).status, url)
                })
            })
            .collect();
        let answers: Vec<(u16, String)> =
            rivals.into_iter().map(|rival| rival.join().expect("a rival")).collect();
        let winners: Vec<_> = answers.iter().filter(|(status, _)| *status == 201).collect();
        assert_eq!(winners.len(), 1, "{answers:?}");
        assert!(answers.iter().all(|(status, _)| [201, 409].contains(status)), "{answers:?}");
        assert_redirect(&app.server.client().get(&format!("/wanted{round}")), &winners[0].1);
    }
}

#[test]
fn bad_urls_are_400() {
    let app = start();
    let mut client = app.server.client();
    for url in [
        json!("nonsense"),
        json!(""),
        json!("example.com"),
        json!("/relative"),
        json!("//example.com"),
        json!("javascript:alert(1)"),
        json!("ftp://example.com/"),
        json!("https://"),
        json!("https://example.com/\r\nSet-Cookie: a=b"),
        json!("https://exa mple.com/"),
        json!(7),
        json!(null),
    ] {
        client.post_json("/links", &json!({ "url": url }).to_string()).expect_problem(400, "url");
    }
    client.post_json("/links", "{}").expect_problem(400, "url");
    client.post_json("/links", "[]").expect_problem(400, "body");
    for alias in ["", "a b", "a/b", "ä", "a\nb"] {
        let body = json!({ "url": "https://example.com/", "alias": alias }).to_string();
        client.post_json("/links", &body).expect_problem(400, "alias");
    }
    app.server.drain();
    assert_eq!(app.archive().number("SELECT count(*) FROM links"), 0);
}

#[test]
fn codes_are_never_the_same() {
    let app = start();
    let mut client = app.server.client();
    let codes: Vec<String> = (0..2000)
        .map(|i| code_of(&shorten(&mut client, &json!({ "url": format!("https://example.com/{i}") }))))
        .collect();
    assert_eq!(codes.iter().collect::<HashSet<_>>().len(), 2000);
    // Codes must be unguessable: neighbours have nothing in common. 62^2 first pairs of letters, 1999
    // neighbours: 0.5 are expected to agree.
    let alike = codes.windows(2).filter(|pair| pair[0][..2] == pair[1][..2]).count();
    assert!(alike < 15, "{alike} neighbours begin alike");
    for (i, code) in codes.iter().enumerate().step_by(97) {
        assert_redirect(&client.get(&format!("/{code}")), &format!("https://example.com/{i}"));
    }
}

#[track_caller]
fn clicks(client: &mut Client, code: &str) -> i64 {
    let answer = client.get(&format!("/links/{code}"));
    let value = answer.expect(200);
    value["clicks"].as_i64().unwrap_or_else(|| panic!("no clicks: {answer:?}"))
}

#[test]
fn clicks_are_counted() {
    let app = start();
    let mut client = app.server.client();
    let url = "https://example.com/clicked";
    let code = code_of(&shorten(&mut client, &json!({ "url": url })));
    assert_eq!(clicks(&mut client, &code), 0);
    let address = app.server.address;
    let clickers: Vec<_> = (0..4)
        .map(|_| {
            let target = format!("/{code}");
            std::thread::spawn(move || {
                let mut client = Client::connect(address).expect("a connection");
                for _ in 0..250 {
                    assert_redirect(&client.get(&target), "https://example.com/clicked");
                }
            })
        })
        .collect();
    clickers.into_iter().for_each(|clicker| clicker.join().expect("a clicker"));
    wait_for("every click is counted", || (clicks(&mut client, &code) == 1000).then_some(()));
    let answer = client.get(&format!("/links/{code}"));
    let value = answer.expect(200);
    assert_eq!(value["url"], url, "{answer:?}");
    let created =
        value.as_object().and_then(|object| object.iter().find(|(name, _)| name.starts_with("created")));
    assert_now(created.unwrap_or_else(|| panic!("when it was created is missing: {answer:?}")).1);
    client.get("/links/zzzzzz").expect_problem(404, "");
    app.server.drain();
    let archive = app.archive();
    assert_eq!(archive.number(&format!("SELECT clicks FROM links WHERE code = '{code}'")), 1000);
    assert_eq!(archive.number("SELECT count(*) FROM links"), 1);
}

#[test]
fn links_expire() {
    let app = start();
    let mut client = app.server.client();
    let made = |client: &mut Client, expires_in: Value| {
        code_of(&shorten(
            client,
            &json!({ "url": "https://example.com/short-lived", "expiresIn": expires_in }),
        ))
    };
    let (soon, late, never) =
        (made(&mut client, json!(1)), made(&mut client, json!("3600")), made(&mut client, json!(null)));
    wait_for("the link expires", || {
        let answer = client.get(&format!("/{soon}"));
        (answer.status == 410).then(|| answer.expect_problem(410, ""))
    });
    for code in [&late, &never] {
        assert_redirect(&client.get(&format!("/{code}")), "https://example.com/short-lived");
    }
    let expires = |client: &mut Client, code: &str| {
        client.get(&format!("/links/{code}")).expect(200)["expiresAt"].clone()
    };
    assert_eq!(expires(&mut client, &never), Value::Null);
    let at = expires(&mut client, &late);
    let text = at.as_str().unwrap_or_else(|| panic!("{at}"));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    let left = super::seconds_of(text) - now.as_secs() as i64;
    assert!((3_000..=3_600).contains(&left), "{text} is {left} s from now");
    // The entry of the expired link can still be read.
    assert!(expires(&mut client, &soon).is_string());
    for expires_in in [json!(0), json!(-5), json!("soon"), json!(1.5), json!(i64::MAX)] {
        let body = json!({ "url": "https://example.com/", "expiresIn": expires_in }).to_string();
        client.post_json("/links", &body).expect_problem(400, "expiresIn");
    }
}

#[test]
fn deleting_needs_the_secret() {
    let app = start();
    let mut client = app.server.client();
    let header = secret_header();
    let code = code_of(&shorten(&mut client, &json!({ "url": "https://example.com/" })));
    let target = format!("/links/{code}");
    for secret in [None, Some("wrong"), Some("")] {
        let headers: Vec<(&str, &str)> = secret.iter().map(|secret| (header.as_str(), *secret)).collect();
        let answer = client.call("DELETE", &target, &headers, None).expect("an answer");
        assert!([401, 403, 404].contains(&answer.status), "{answer:?}");
        answer.expect_problem(answer.status, "");
    }
    assert_redirect(&client.get(&format!("/{code}")), "https://example.com/");
    let headers = [(header.as_str(), SECRET)];
    let answer = client.call("DELETE", &target, &headers, None).expect("an answer");
    assert!([200, 204].contains(&answer.status), "{answer:?}");
    client.get(&format!("/{code}")).expect_problem(404, "");
    client.get(&target).expect_problem(404, "");
    client.call("DELETE", &target, &headers, None).expect("an answer").expect_problem(404, "");
    app.server.drain();
    assert_eq!(app.archive().number("SELECT count(*) FROM links"), 0);
}
