//! `rate` and `concurrency` over sockets. Unit tests cover how a rate changes with time, on a simulated
//! clock; here the periods are longer than any test.

use super::Front;
use super::upstream::Scripted;
use forebay_tests::{Answer, Client, wait_for};

const CONFIG: &str = r#"
[[endpoint]]
route = "GET /all"
constant = {}
rate = "3/h"

[[endpoint]]
route = "GET /ip"
constant = {}
rate = "2/h per ip"

[[endpoint]]
route = "GET /header"
constant = {}
rate = "2/h per header X-Api-Key"

[[endpoint]]
route = "GET /key/{id}"
constant = {}
rate = "2/h per path"

[[endpoint]]
route = "GET /guarded"
constant = {}
guard = { header = "X-Secret", secret = "sesame" }
rate = "2/h"

[[endpoint]]
route = "GET /free"
constant = {}
"#;

#[track_caller]
fn assert_refused(answer: &Answer, interval_s: u64) {
    answer.expect_problem(429, "too many requests");
    let wait_s: u64 = answer.header("retry-after").and_then(|text| text.parse().ok()).expect("seconds");
    // One interval, less the time that has passed.
    assert!((interval_s / 2..=interval_s).contains(&wait_s), "{wait_s} of {interval_s} s: {answer:?}");
}

/// How many of the next requests are accepted before one is refused.
fn taken(client: &mut Client, target: &str, headers: &[(&str, &str)], interval_s: u64) -> usize {
    for count in 0..100 {
        let answer = client.call("GET", target, headers, None).expect("an answer");
        if answer.status != 200 {
            assert_refused(&answer, interval_s);
            return count;
        }
    }
    panic!("{target}: no limit");
}

#[test]
fn each_caller_has_its_count() {
    let front = Front::start(CONFIG);
    let (mut client, mut other) = (front.server.client(), front.server.client());
    assert_eq!(taken(&mut client, "/all", &[], 1200), 3);
    assert_eq!(taken(&mut other, "/all", &[], 1200), 0, "shared by all");
    assert_eq!(taken(&mut client, "/ip", &[], 1800), 2);
    assert_eq!(taken(&mut other, "/ip", &[], 1800), 0, "another connection is no other address");
    for key in ["a", "b", ""] {
        assert_eq!(taken(&mut client, "/header", &[("X-Api-Key", key)], 1800), 2, "{key}");
        assert_eq!(taken(&mut other, "/header", &[("x-api-key", key)], 1800), 0, "{key}");
    }
    assert_eq!(taken(&mut other, "/header", &[], 1800), 0, "none is as an empty one");
    assert_eq!(taken(&mut client, "/key/1", &[], 1800), 2);
    assert_eq!(taken(&mut client, "/key/%31", &[], 1800), 0, "another spelling is no other key");
    assert_eq!(taken(&mut client, "/key/2", &[], 1800), 2);
    // A refusal neither closes the connection nor uses up anything.
    for _ in 0..50 {
        client.get("/free").expect(200);
    }
    client.ask("HEAD", "/all", None);
}

#[test]
fn who_is_stopped_by_the_guard_uses_up_nothing() {
    let front = Front::start(CONFIG);
    let mut client = front.server.client();
    for _ in 0..10 {
        client.get("/guarded").expect_problem(404, "");
    }
    assert_eq!(taken(&mut client, "/guarded", &[("X-Secret", "sesame")], 1800), 2);
}

#[test]
fn many_connections_at_once_get_no_more_than_the_count() {
    let front = Front::start("[[endpoint]]\nroute = 'GET /'\nconstant = {}\nrate = '100/h per ip'");
    let address = front.server.address;
    let clients: Vec<_> = (0..4)
        .map(|_| {
            std::thread::spawn(move || {
                let mut client = Client::connect(address).expect("a connection");
                (0..100).filter(|_| client.get("/").status == 200).count()
            })
        })
        .collect();
    let taken: usize = clients.into_iter().map(|client| client.join().expect("a client")).sum();
    // One more comes every 36 s.
    assert!((100..=110).contains(&taken), "{taken} of 100");
}

#[test]
fn places_are_given_back() {
    let upstream = Scripted::holding();
    let config = format!(
        "[[endpoint]]\nroute = 'GET /'\nproxy = 'http://{}'\nconcurrency = 2\n\
         [[endpoint]]\nroute = 'GET /free'\nconstant = {{}}",
        upstream.address
    );
    let front = Front::start(&config);
    let mut holders: Vec<Client> = (0..2).map(|_| front.server.client()).collect();
    for holder in &mut holders {
        holder.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("a live socket");
    }
    wait_for("both are with the upstream", || (upstream.connections() == 2).then_some(()));
    let mut client = front.server.client();
    let answer = client.get("/");
    answer.expect_problem(503, "too many requests");
    assert!(answer.header("retry-after").is_some(), "{answer:?}");
    client.get("/free").expect(200);
    // An answer frees a place, and so does a client that disconnects.
    upstream.release();
    assert_eq!(holders[0].receive(false).expect("an answer").text(), "held");
    drop(holders);
    wait_for("there is a place again", || (client.get("/").status == 200).then_some(()));
}
