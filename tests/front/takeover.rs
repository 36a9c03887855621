//! Listeners that outlive a process: another process takes over at SIGUSR2, or a service manager owns
//! the listeners.

use super::Front;
use forebay_tests::{Client, Folder, Server, Start, am_root, binary};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::Signal;
use serde_json::Value;
use std::fs::{Permissions, set_permissions};
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

const CONFIG: &str = r#"
[table.notes]
columns = { id = "serial key", text = "text(20)" }

[[endpoint]]
route = "POST /notes"
insert = "notes"
values = { text = "$text" }

[[endpoint]]
route = "GET /notes/{id}"
get = "notes"
"#;

const LISTENS: &str = "listening on http://";

#[track_caller]
fn take_over(server: &Server) {
    let before = server.count_lines(LISTENS);
    server.signal(Signal::USR2);
    server.wait_for_lines(before + 1, LISTENS);
    server.wait_healthy();
}

#[test]
fn another_process_takes_over_under_load_and_no_request_fails() {
    let mut front = Front::start(CONFIG);
    front.server.wait_healthy();
    let (pid, result) = (front.server.pid(), front.folder.path().join("load.json"));
    let url = format!("http://{}/notes", front.server.address);
    // A process that stops closes a connection that is silent for 0.2 s: the tester must not stall.
    let mut load = Command::new("nice");
    load.args(["-n", if am_root() { "-10" } else { "0" }]).arg(binary());
    load.args(["load", "-c", "16", "-d", "8s", "-m", "POST", "-b", r#"{"text":"a"}"#, "--warmup", "0s"]);
    // A busy machine may take seconds for each start.
    load.args(["-t", "60s", "--threshold", "errors==0", "--json"]).arg(&result).arg(&url);
    let mut load = load.stdout(Stdio::null()).spawn().expect("the load tester runs");
    for _ in 0..3 {
        take_over(&front.server);
    }
    assert!(load.wait().expect("it ends").success(), "no request fails");
    let told: Value = serde_json::from_slice(&std::fs::read(&result).expect("a result")).expect("JSON");
    let sent = told["requests"]["sent"].as_i64().expect("a number");
    assert!(sent > 16, "no connection has sent a second request: {told}");
    assert!(front.server.is_running(), "it is the same process");
    assert_eq!(front.server.pid(), pid);
    front.server.drain();
    let database = rusqlite::Connection::open(front.folder.database()).expect("a file");
    let rows: i64 = database.query_row("SELECT count(*) FROM notes", [], |row| row.get(0)).expect("a count");
    assert_eq!(rows, sent, "every answered insert is there, once");
}

#[test]
fn what_cannot_take_over_changes_nothing() {
    let front = Front::start(CONFIG);
    front.server.wait_healthy();
    let mut client = front.server.client();
    client.post_json("/notes", r#"{"text":"a"}"#).expect(201);
    front.folder.write("front.toml", "endpoint = 1");
    front.server.signal(Signal::USR2);
    front.server.wait_for_output("no takeover, this process continues to serve");
    client.get("/notes/1").expect(200);
    assert_eq!(front.server.count_lines(LISTENS), 1);
    front.folder.write("front.toml", CONFIG);
    take_over(&front.server);
    front.server.client().get("/notes/1").expect(200);
}

/// Sends a request on a new connection, which the kernel accepts whether or not a server runs.
fn ask(listener: &TcpListener, path: &str) -> Client {
    let mut client = Client::connect(listener.local_addr().expect("an address")).expect("it is not refused");
    client.send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).expect("it is sent");
    client
}

#[test]
fn connections_to_a_listener_of_a_service_manager_wait_for_the_next_process() {
    let folder = Folder::new();
    let file = folder.write("front.toml", CONFIG);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    fcntl_setfd(&listener, FdFlags::empty()).expect("a flag");
    // As systemd does: the listener is descriptor 3 of the process that LISTEN_PID names.
    let manager = format!(
        "#!/bin/bash\nexec 3<&{}\nLISTEN_PID=$$ LISTEN_FDS=1 exec {} \"$@\"\n",
        listener.as_raw_fd(),
        binary().display()
    );
    let manager = folder.write("manager", &manager);
    set_permissions(&manager, Permissions::from_mode(0o755)).expect("it is ours");
    let address = listener.local_addr().expect("an address").to_string();
    let start = Start::new(manager, &folder, &file).listen(&address);
    for text in ["first", "second"] {
        let mut early = ask(&listener, "/notes/99");
        let server = start.start();
        assert_eq!(server.address.to_string(), address);
        assert_eq!(early.receive(false).expect("an answer").status, 404);
        server.client().post_json("/notes", &format!("{{\"text\":\"{text}\"}}")).expect(201);
        assert!(server.stop().status.success());
    }
}
