//! What one client may take of what all clients need: places to wait in, and the comparison of passwords.

use super::Front;
use super::upstream::Scripted;
use forebay_tests::{Client, Folder, wait_for};

/// SHA-256 of `ann's key`.
const KEY_HASH: &str = "4a8c1eb8b2bbb2493bdc9ee3f7a3357b048de54a2dbc52301e88c39403cd6ce8";
/// The output of `htpasswd -nbB -C 5 ann sesame`.
const PASSWORDS: &str = "ann:$2b$05$ckdqZcG4S8SYQpxCfV8Aper6r3HC/GsnPAapqkXIZOxGOGP32rVc6\n";
/// `ann:sesame`, and `ann:mesase`.
const RIGHT: (&str, &str) = ("Authorization", "Basic YW5uOnNlc2FtZQ==");
const WRONG: (&str, &str) = ("Authorization", "Basic YW5uOm1lc2FzZQ==");

/// Sends a request for a client of this address, as the proxy in front of it.
fn send(front: &Front, target: &str, address: &str) -> Client {
    let mut client = front.server.client();
    let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: {address}\r\n\r\n");
    client.send(request.as_bytes()).expect("a live socket");
    client
}

fn status(client: &mut Client) -> u16 {
    client.receive(false).expect("an answer").status
}

#[test]
fn a_client_that_takes_places_leaves_some_to_others() {
    let app = Scripted::holding();
    let front = Front::start(&format!(
        "[server]\ntrusted_proxies = ['127.0.0.1']\n\
         [[endpoint]]\nroute = 'GET /a'\nproxy = 'http://{}'\nconcurrency = 34\n",
        app.address
    ));
    let arrived =
        |count: usize| wait_for("the requests are there", || (app.seen().len() == count).then_some(()));
    // Addresses of one network are one client.
    let greedy = |index: usize| send(&front, "/a", &format!("2001:db8:0:1::{index:x}"));
    let mut waiting: Vec<Client> = (1..=32).map(greedy).collect();
    arrived(32);
    for index in 33..40 {
        assert_eq!(status(&mut greedy(index)), 503, "{index}");
    }
    waiting.extend(["2001:db8:0:2::1", "192.0.2.1"].map(|address| send(&front, "/a", address)));
    arrived(34);
    assert_eq!(status(&mut send(&front, "/a", "192.0.2.2")), 503, "all are taken");
    app.release();
    assert!(waiting.iter_mut().all(|client| status(client) == 200));
    wait_for("the places are free", || (status(&mut greedy(1)) == 200).then_some(()));
}

#[test]
fn who_waits_for_the_fill_of_another_takes_no_place() {
    let app = Scripted::holding();
    let slow = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000000) SELECT count(*) AS n FROM n";
    let front = Front::start(&format!(
        "[[endpoint]]\nroute = 'GET /app/{{id}}'\nproxy = 'http://{}'\nconcurrency = 2\ncache = {{ local = '1m' }}\n\
         [[endpoint]]\nroute = 'GET /sql'\nsql = '{slow}'\nconcurrency = 1\ncache = {{ local = '1m' }}\n",
        app.address
    ));
    let all = |target: &str| -> Vec<Client> { (0..40).map(|_| send(&front, target, "")).collect() };
    let mut waiting: Vec<Client> = all("/app/1").into_iter().chain(all("/app/2")).collect();
    wait_for("both fills have begun", || (app.seen().len() == 2).then_some(()));
    assert_eq!(status(&mut send(&front, "/app/3", "")), 503, "a third fill has no place");
    app.release();
    assert!(waiting.iter_mut().all(|client| status(client) == 200));
    assert_eq!(app.seen().len(), 2);
    assert!(all("/sql").iter_mut().all(|client| status(client) == 200));
    wait_for("the places are free", || (status(&mut send(&front, "/app/3", "")) == 200).then_some(()));
}

#[test]
fn who_guesses_passwords_and_keys_is_slowed_down_and_others_are_not() {
    let folder = Folder::new();
    let (users, keys) =
        (folder.write("users", PASSWORDS), folder.write("keys", &format!("{KEY_HASH} ann\n")));
    let front = Front::start(&format!(
        "[server]\ntrusted_proxies = ['127.0.0.1']\n\
         [auth.people]\nkind = 'basic'\nfile = '{}'\n[auth.apps]\nkind = 'key'\nfile = '{}'\n\
         [auth.tokens]\nkind = 'jwt'\nalgorithms = 'HS256'\nsecret = 'a secret of more than thirty-two bytes'\n\
         [[endpoint]]\nroute = 'GET /people'\nguard = 'people'\nconstant = {{}}\n\
         [[endpoint]]\nroute = 'GET /apps'\nguard = 'apps'\nconstant = {{}}\n\
         [[endpoint]]\nroute = 'GET /tokens'\nguard = 'tokens'\nconstant = {{}}\n",
        users.display(),
        keys.display()
    ));
    let mut client = front.server.client();
    let mut get = |target: &str, address: &str, header: (&str, &str)| {
        client.call("GET", target, &[("X-Forwarded-For", address), header], None).expect("an answer")
    };
    let (guesser, other) = ("192.0.2.1", "192.0.2.2");
    let (right_key, wrong_key) = (("X-Api-Key", "ann's key"), ("X-Api-Key", "bob's key"));
    assert_eq!(get("/people", guesser, RIGHT).status, 200, "its password is remembered");
    for (target, right, wrong) in [("/people", RIGHT, WRONG), ("/apps", right_key, wrong_key)] {
        let refusals = (0..30).map(|_| get(target, guesser, wrong)).collect::<Vec<_>>();
        assert!(refusals[..20].iter().all(|answer| answer.status == 401), "{target}: {refusals:?}");
        let last = refusals.last().expect("thirty");
        last.expect_problem(429, "too many wrong credentials");
        let wait_s: u64 = last.header("retry-after").and_then(|text| text.parse().ok()).expect("seconds");
        assert!((1..=4).contains(&wait_s), "{target}: one more after a twentieth of a minute: {wait_s}");
        assert_eq!(get(target, guesser, right).status, 200, "{target}: one that shares the address");
        assert_eq!(get(target, other, wrong).status, 401, "{target}");
        assert_eq!(get(target, other, right).status, 200, "{target}");
    }
    // Who guesses right from elsewhere does not learn it.
    assert!((0..30).all(|_| [401, 429].contains(&get("/people", "192.0.2.3", WRONG).status)));
    assert_eq!(get("/people", "192.0.2.3", RIGHT).status, 429);
    let token = ("Authorization", "Bearer a.b.c");
    assert!((0..30).all(|_| get("/tokens", guesser, token).status == 401));
}
