//! SIGTERM and SIGINT: every accepted request is answered, every acknowledged write is kept, and the exit
//! code is 0.

use crate::{assert_readable, start};
use forebay_tests::{Client, Folder, free_port, request_bytes, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

const CLIENTS: usize = 12;
const PIPELINED: usize = 20;

fn batch(round: usize, client: usize) -> Vec<u8> {
    (0..PIPELINED)
        .flat_map(|i| {
            request_bytes("POST", "/uuids", &[], Some(&format!("{{\"token\":\"{client}-{round}-{i}\"}}")))
        })
        .collect()
}

/// The counts of one client at the end.
struct Seen {
    written: Vec<super::Written>,
    /// Requests that were sent before the signal and were not answered.
    unanswered: usize,
}

/// Sends whole batches and waits for their answers until the connection ends. All of a batch is in the
/// server's socket before `send` returns (loopback), so a batch that was sent before the signal is
/// accepted.
fn hammer(mut connection: Client, client: usize, signalled: &AtomicBool, answers: &AtomicUsize) -> Seen {
    let mut seen = Seen { written: Vec::new(), unanswered: 0 };
    for round in 0.. {
        let sent = connection.send(&batch(round, client));
        let before_signal = sent.is_ok() && !signalled.load(Ordering::SeqCst);
        for answered in 0..PIPELINED {
            match connection.receive(false) {
                Ok(answer) => {
                    let row = answer.expect(201);
                    let target = format!("/uuids/{}", row["id"].as_str().expect("an id"));
                    seen.written.push(super::Written { target, row });
                    answers.fetch_add(1, Ordering::SeqCst);
                }
                Err(error) => {
                    let kind = error.kind();
                    let ended = matches!(
                        kind,
                        io::ErrorKind::UnexpectedEof
                            | io::ErrorKind::ConnectionReset
                            | io::ErrorKind::BrokenPipe
                    );
                    assert!(ended, "{error}");
                    assert!(!connection.has_rest(), "an answer was cut off");
                    if before_signal {
                        seen.unanswered = PIPELINED - answered;
                    }
                    return seen;
                }
            }
        }
    }
    seen
}

fn check(signal: Signal) {
    let folder = Folder::new();
    let mut server = start(&folder).start();
    let (signalled, answers) = (AtomicBool::new(false), AtomicUsize::new(0));
    let seen: Vec<Seen> = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let (connection, signalled, answers) = (server.client(), &signalled, &answers);
                scope.spawn(move || hammer(connection, client, signalled, answers))
            })
            .collect();
        wait_for("it is under load", || {
            (answers.load(Ordering::SeqCst) > 2 * CLIENTS * PIPELINED).then_some(())
        });
        signalled.store(true, Ordering::SeqCst);
        server.signal(signal);
        clients.into_iter().map(|client| client.join().expect("a client")).collect()
    });
    let ended = server.wait();
    assert!(ended.status.success(), "{ended:?}");
    let unanswered: usize = seen.iter().map(|seen| seen.unanswered).sum();
    assert_eq!(unanswered, 0, "accepted requests without an answer\n{}", ended.output);
    let written: Vec<_> = seen.into_iter().flat_map(|seen| seen.written).collect();
    let server = start(&folder).start();
    assert_readable(&mut server.client(), &written);
    server.drain();
    let database = forebay_tests::Database::open(&folder.database());
    assert!(database.number("SELECT count(*) FROM uuids", []) >= written.len() as i64);
    assert_eq!(database.number("SELECT count(*) - count(DISTINCT token) FROM uuids", []), 0);
}

#[test]
fn sigterm_under_load_answers_what_was_accepted() {
    check(Signal::TERM);
}

#[test]
fn sigint_under_load_answers_what_was_accepted() {
    check(Signal::INT);
}

#[test]
fn idle_connections_do_not_hold_up_the_stop() {
    let folder = Folder::new();
    let server = start(&folder).start();
    let idle: Vec<Client> = (0..20).map(|_| server.client()).collect();
    // A client that has sent half a request, which does not count as accepted.
    let mut half = server.client();
    half.send(b"GET /uuids HTTP/1.1\r\nHost: loc").expect("a server that listens");
    let ended = server.stop();
    assert!(ended.status.success(), "{ended:?}");
    for mut client in idle {
        assert!(client.receive(false).is_err(), "nobody asked");
    }
}

#[test]
fn a_closed_standard_error_does_not_end_threads() {
    let folder = Folder::new();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let mut server = start(&folder).listen(&address.to_string()).spawn_with_closed_output();
    let mut client = wait_for("it serves", || Client::connect(address).ok());
    client.post_json("/uuids", "{\"token\":\"heard\"}").expect(201);
    kill_process(Pid::from_child(&server), Signal::TERM).expect("a child can be signalled");
    let status = wait_for("it stops", || server.try_wait().expect("a child can be waited for"));
    assert!(status.success(), "{status}");
    let database = forebay_tests::Database::open(&folder.database());
    assert_eq!(database.number("SELECT count(*) FROM uuids", []), 1);
}
