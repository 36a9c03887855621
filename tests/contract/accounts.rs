//! Application 2, accounts: the same routes from SQL and from a hot table.

use super::{App, assert_now};
use forebay_tests::{Answer, Client, Start, wait_for};
use serde_json::Value;
use std::net::{IpAddr, SocketAddr, UdpSocket};

const FILES: [&str; 2] = ["accounts.toml", "accounts-hot.toml"];
const FIXED: [&str; 2] = ["06f40771-6460-479a-a47c-177473e240b5", "4db7506f-43fe-475e-afbe-842514a6223b"];
const SECRET: &str = "open sesame";

/// Sets the variable from which the example reads its secret.
fn with_secret(file: &str, start: Start) -> Start {
    let text = std::fs::read_to_string(forebay_tests::example(file)).expect("the example can be read");
    let from = text.find("${").expect("the secret comes from the environment");
    let name: String =
        text[from + 2..].chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
    start.environment(&name, SECRET)
}

/// An app with `size` generated accounts.
#[track_caller]
fn generated(file: &str, size: u64) -> App {
    let app = App::start_with(file, |start| with_secret(file, start));
    let answer = app.server.client().post(&format!("/accounts/generate-test-data?size={size}"));
    answer.expect(202);
    wait_generated(&app, size);
    app
}

fn stored(app: &App) -> i64 {
    app.server.drain();
    app.archive().number("SELECT count(*) FROM account")
}

fn wait_generated(app: &App, size: u64) {
    wait_for("all accounts are in the database", || (stored(app) == size as i64).then_some(()));
    // The job has ended too, so another may start.
    wait_for("the job has ended", || {
        (!app.server.admin("GET", "/jobs").text().contains("running")).then_some(())
    });
}

#[track_caller]
fn account(answer: &Answer) -> Value {
    let value = answer.expect(200);
    answer.expect_fields("", &["id", "name", "email", "createdAt", "version"]);
    value
}

/// Checks an account as the generator makes it.
#[track_caller]
fn check_account(value: &Value, id: &str) {
    assert_eq!(value["id"], id);
    let number = value["name"]
        .as_str()
        .and_then(|name| name.strip_prefix("name-"))
        .and_then(|n| n.parse::<u32>().ok());
    assert!(number.is_some_and(|number| number < 1000), "{value}");
    assert_eq!(value["email"], format!("email-{id}@email.com"));
    assert!(value["version"].as_i64().is_some_and(|version| (0..10_000).contains(&version)), "{value}");
    assert_now(&value["createdAt"]);
}

#[test]
fn generated_accounts_are_as_described() {
    for file in FILES {
        let app = generated(file, 3000);
        let mut client = app.server.client();
        let archive = app.archive();
        let ids = archive.rows("SELECT id FROM account ORDER BY id LIMIT 200");
        let ids = ids.into_iter().flatten().map(|id| id.expect("an id"));
        for id in ids.chain(FIXED.map(str::to_owned)) {
            check_account(&account(&client.get(&format!("/accounts/{id}"))), &id);
        }
        // Generating again replaces the accounts.
        client.post("/accounts/generate-test-data?size=100").expect(202);
        wait_generated(&app, 100);
        for id in FIXED {
            check_account(&account(&client.get(&format!("/accounts/{id}"))), id);
        }
    }
}

#[test]
fn an_account_by_id() {
    for file in FILES {
        let app = App::start_with(file, |start| with_secret(file, start));
        let mut client = app.server.client();
        client.get(&format!("/accounts/{}", uuid::Uuid::new_v4())).expect_problem(404, "");
        for wrong in
            ["1", "abc", "06f40771-6460-479a-a47c-177473e240b", "06f40771-6460-479a-a47c-177473e240bx"]
        {
            client.get(&format!("/accounts/{wrong}")).expect_problem(400, "id");
        }
    }
}

#[test]
fn counts_by_name() {
    for file in FILES {
        let app = generated(file, 2000);
        let mut client = app.server.client();
        let archive = app.archive();
        let mut total = 0;
        for number in 0..1000 {
            let name = format!("name-{number}");
            let answer = client.get(&format!("/accounts/count?name={name}"));
            let value = answer.expect(200);
            answer.expect_fields("", &["name", "count"]);
            assert_eq!(value["name"], name);
            let stored = archive.number(&format!("SELECT count(*) FROM account WHERE name = '{name}'"));
            assert_eq!(value["count"], stored, "{name} in {file}");
            total += stored;
        }
        assert_eq!(total, 2000);
        for (query, name) in
            [("nobody", "nobody"), ("", ""), ("J%C3%BCrgen", "Jürgen"), ("a%27%22%3B--", "a'\";--")]
        {
            let answer = client.get(&format!("/accounts/count?name={query}"));
            let value = answer.expect(200);
            assert_eq!((&value["name"], &value["count"]), (&name.into(), &0.into()), "{file}");
        }
        client.get("/accounts/count").expect_problem(400, "name");
        client.get("/accounts/count?other=1").expect_problem(400, "name");
    }
}

#[test]
fn the_account_in_memory() {
    for file in FILES {
        let app = App::start_with(file, |start| with_secret(file, start));
        let mut client = app.server.client();
        let first = client.get("/accounts/in-memory");
        account(&first);
        assert_eq!(client.get("/accounts/in-memory").text(), first.text(), "always the same");
    }
}

#[test]
fn random_writes_insert_and_delete() {
    for file in FILES {
        let app = generated(file, 300);
        let mut client = app.server.client();
        let mut previous = stored(&app);
        let (mut inserted, mut deleted) = (0, 0);
        for _ in 0..60 {
            let answer = client.post("/accounts/execute-random-write");
            assert_eq!(answer.status, 200, "{file}: {answer:?}");
            let now = stored(&app);
            match now - previous {
                1 => inserted += 1,
                -1 => deleted += 1,
                other => panic!("{file}: one write changed the table by {other} rows"),
            }
            previous = now;
        }
        // Each is drawn at random: sixty of the same kind have a probability of 2^-59.
        assert!(inserted > 0 && deleted > 0, "{file}: {inserted} inserted, {deleted} deleted");
        let archive = app.archive();
        let distinct = archive.number("SELECT count(DISTINCT email) FROM account");
        assert_eq!(distinct, previous);
    }
}

#[test]
fn random_writes_spare_the_fixed_accounts() {
    for file in FILES {
        // There is hardly any other row to delete.
        let app = generated(file, 3);
        let mut client = app.server.client();
        for _ in 0..200 {
            let answer = client.post("/accounts/execute-random-write");
            assert!(answer.status == 200, "{file}: {answer:?}");
            for id in FIXED {
                account(&client.get(&format!("/accounts/{id}")));
            }
        }
        app.server.drain();
        let archive = app.archive();
        for id in FIXED {
            let found = archive.number(&format!("SELECT count(*) FROM account WHERE id = '{id}'"));
            assert_eq!(found, 1, "{file}");
        }
    }
}

#[test]
fn wrong_sizes_are_400() {
    for file in FILES {
        let app = App::start_with(file, |start| with_secret(file, start));
        let mut client = app.server.client();
        for size in ["abc", "0", "-1", "1.5"] {
            client.post(&format!("/accounts/generate-test-data?size={size}")).expect_problem(400, "size");
        }
    }
}

/// An address of this machine that is not loopback. Packets to it stay on the machine.
fn outside_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // Connecting a UDP socket chooses a route and sends nothing (a documentation address, RFC
    // 5737).
    socket.connect("198.51.100.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}

fn is_unknown_route(answer: &Answer) -> bool {
    answer.expect_problem(404, "");
    true
}

#[test]
fn requests_from_outside_need_the_secret() {
    let Some(outside) = outside_address() else {
        // Without a second interface no request can come from outside; the server's own tests cover the
        // guard.
        return eprintln!("this machine has only loopback");
    };
    for file in FILES {
        let app = App::start_with(file, |start| with_secret(file, start).listen("0.0.0.0:0"));
        let port = app.server.address.port();
        let mut inside = Client::connect(SocketAddr::from(([127, 0, 0, 1], port))).expect("a connection");
        inside.get("/accounts/in-memory").expect(200);
        let mut client = Client::connect(SocketAddr::new(outside, port)).expect("a connection");
        for target in [
            "/accounts/in-memory",
            "/accounts/count?name=a",
            "/accounts/in-memory?secret=wrong",
            "/accounts/in-memory?secret=",
        ] {
            assert!(is_unknown_route(&client.get(target)), "{target}");
        }
        for target in ["/accounts/execute-random-write", "/accounts/generate-test-data?size=10"] {
            assert!(is_unknown_route(&client.post(target)), "{target}");
        }
        client.get("/accounts/in-memory?secret=open+sesame").expect(200);
        client.get("/accounts/count?name=a&secret=open%20sesame").expect(200);
        client.post("/accounts/generate-test-data?size=10&secret=open%20sesame").expect(202);
    }
}
