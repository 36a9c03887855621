//! A new config for a running server, by SIGHUP, by the admin listener and by `forebay reload`.

use super::Front;
use super::upstream::Scripted;
use forebay_tests::{Client, Folder, Server, Start, binary, wait_for};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

const TABLE: &str = "[table.codes]\ncolumns = { id = 'serial key', code = 'text' }\n";

/// A config whose `GET /a` answers this number, with more behind it.
fn config(number: usize, more: &str) -> String {
    format!("{TABLE}[[endpoint]]\nroute = 'GET /a'\nconstant = {{ number = {number} }}\n{more}\n")
}

pub(super) fn reload(server: &Server) -> forebay_tests::Answer {
    server.admin("POST", "/reload")
}

#[test]
fn no_request_fails_while_configs_change() {
    let front = Front::start(&config(0, ""));
    let (over, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let address = front.server.address;
    let clients: Vec<_> = (0..8)
        .map(|kind| {
            let (over, asked) = (over.clone(), asked.clone());
            std::thread::spawn(move || {
                let mut client = Client::connect(address).expect("the server listens");
                let mut last = 0;
                // Half of them open a new connection each time. Workers change to the new config one after
                // another, so such a client may meet a worker with the previous config.
                let connects = kind % 2 == 0;
                while !over.load(SeqCst) {
                    if connects {
                        client = Client::connect(address).expect("the server listens");
                    }
                    let number = client.get("/a").expect(200)["number"].as_u64().expect("a number");
                    assert!(number + u64::from(connects) >= last, "{number} after {last}");
                    last = last.max(number);
                    asked.fetch_add(1, SeqCst);
                }
            })
        })
        .collect();
    for number in 1..=20 {
        front.folder.write("front.toml", &config(number, ""));
        let before = asked.load(SeqCst);
        if number % 2 == 0 {
            reload(&front.server).expect(200);
            assert_eq!(front.server.client().get("/a").expect(200)["number"], number, "at once");
        } else {
            front.server.signal(rustix::process::Signal::HUP);
            let mut client = front.server.client();
            wait_for("it serves the new one", || (client.get("/a").json()["number"] == number).then_some(()));
        }
        wait_for("clients go on", || (asked.load(SeqCst) > before + 50).then_some(()));
    }
    over.store(true, SeqCst);
    // All clients are joined first, because the server ends with this test.
    let ended: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
    assert!(ended.iter().all(Result::is_ok), "every request was answered well, in order: {ended:?}");
}

#[test]
fn what_only_a_start_can_change_is_refused_with_its_key() {
    let front = Front::start(&config(1, ""));
    let check = |text: &str, expected: &str| {
        front.folder.write("front.toml", text);
        let answer = reload(&front.server);
        answer.expect_problem(422, expected);
        front.server.wait_for_output(expected);
        assert_eq!(front.server.client().get("/a").expect(200)["number"], 1);
    };
    let two = config(2, "");
    check(&two.replace("'text'", "'bigint'"), "table.codes cannot change while the server runs");
    check(&format!("[drain]\npace = 5\n{two}"), "drain.pace cannot change");
    check(&config(2, "[[endpoint]]\nroute = 'GET /l'\nlist = 'codes'"), "`list = \"codes\"` needs a restart");
    check(&two.replace("GET", "GOT"), "front.toml:4:");
    check("nonsense", "front.toml:1:");
    check(
        &config(2, "[[endpoint]]\nroute = 'GET /s'\nsql = 'SELECT nothing FROM nowhere'"),
        "front.toml:6: GET /s: ",
    );
    check(&config(2, "[[endpoint]]\nroute = 'GET /h'\nhandler = 'none'"), "front.toml:6: GET /h: ");
    std::fs::remove_file(front.folder.path().join("front.toml")).expect("a file");
    reload(&front.server).expect_problem(422, "cannot read the config file");
    front.folder.write("front.toml", &two);
    reload(&front.server).expect(200);
    assert_eq!(front.server.client().get("/a").expect(200)["number"], 2);
}

#[test]
fn endpoints_guards_rates_limits_and_rows_after_a_reload() {
    let insert = "[[endpoint]]\nroute = 'POST /codes'\ninsert = 'codes'\nvalues = { code = '$code' }";
    let front = Front::start(&config(1, insert));
    let mut client = front.server.client();
    client.post_json("/codes", "{\"code\":\"x\"}").expect(201);
    client.get("/codes/1").expect_problem(404, "");
    let more = format!(
        "{insert}\n[[endpoint]]\nroute = 'GET /codes/{{id}}'\nget = 'codes'\n\
         [[endpoint]]\nroute = 'GET /guarded'\nconstant = {{}}\nguard = {{ header = 'X-Key', secret = 's' }}\n\
         [[endpoint]]\nroute = 'GET /rare'\nconstant = {{}}\nrate = '1/1h'\n\
         [auth.hs]\nkind = 'jwt'\nalgorithms = 'HS256'\nsecret = 'a secret of more than thirty-two bytes'\n\
         [[endpoint]]\nroute = 'GET /own'\nconstant = {{}}\nguard = {{ auth = 'hs' }}\n"
    );
    let limits = "[server]\nlimits = { body = '20B' }\n";
    front.folder.write("front.toml", &format!("{limits}{}", config(2, &more)));
    reload(&front.server).expect(200);
    assert_eq!(client.get("/codes/1").expect(200)["code"], "x", "the same table, on the same connection");
    client.post_json("/codes", "{\"code\":\"y\"}").expect(201);
    assert_eq!(client.get("/codes/2").expect(200)["code"], "y");
    client.get("/guarded").expect_problem(404, "");
    assert_eq!(client.get("/own").status, 401);
    client.get("/rare").expect(200);
    client.get("/rare").expect_problem(429, "");
    assert_eq!(client.post_json("/codes", "{\"code\":\"longer than that\"}").status, 413);
    front.folder.write("front.toml", &config(3, ""));
    reload(&front.server).expect(200);
    front.server.client().get("/codes/1").expect_problem(404, "nothing here");
    front.server.drain();
}

#[test]
fn a_request_that_has_begun_is_answered_by_the_config_that_it_began_with() {
    let upstream = Scripted::holding();
    let proxied = format!("[[endpoint]]\nroute = 'GET /slow'\nproxy = 'http://{}'", upstream.address);
    let front = Front::start(&config(1, &proxied));
    let mut client = front.server.client();
    client.send(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n").expect("a live socket");
    wait_for("the upstream is asked", || (upstream.seen().len() == 1).then_some(()));
    front
        .folder
        .write("front.toml", &config(2, "[[endpoint]]\nroute = 'GET /slow'\nconstant = { fast = true }"));
    reload(&front.server).expect(200);
    assert_eq!(front.server.client().get("/slow").expect(200)["fast"], true);
    upstream.release();
    assert_eq!(client.receive(false).expect("an answer").text(), "held");
    assert_eq!(client.get("/slow").expect(200)["fast"], true, "the next one on that connection");
    assert_eq!(upstream.seen().len(), 1);
}

#[test]
fn the_command_reloads_and_says_what_is_wrong() {
    let folder = Folder::new();
    let file = folder.write("front.toml", &config(1, ""));
    let start = Start::new(binary(), &folder, &file);
    let server = start.start();
    folder.write("front.toml", &config(2, ""));
    let output = start.run("reload", &[]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "reloaded: 1 endpoints\n");
    assert_eq!(server.client().get("/a").expect(200)["number"], 2);
    folder.write("front.toml", &config(3, "[table.more]\ncolumns = { id = 'serial key' }"));
    let output = start.run("reload", &[]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("table.more cannot change"), "{said}");
    server.stop();
    let output = start.run("reload", &[]);
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("no server of this machine runs on"),
        "{output:?}"
    );
}
