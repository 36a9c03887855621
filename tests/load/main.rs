//! `forebay load` and `forebay agent` as processes: their output, their exit codes, and which results
//! survive when one of them is killed.

mod agents;
mod ends;
mod fleet;
mod memory;
mod network;
mod probe;
mod redis;
mod runs;

use forebay_tests::binary;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

/// The smallest good answer.
const HI: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

/// A server that answers each read with these bytes after a pause, and does not answer when they are empty.
fn serve(answer: &'static [u8], pause: Duration) -> SocketAddr {
    serve_at("127.0.0.1:0", answer, pause)
}

/// As [`serve`], at this address.
fn serve_at(place: &str, answer: &'static [u8], pause: Duration) -> SocketAddr {
    let listener = TcpListener::bind(place).expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || answer_each(stream, answer, pause));
        }
    });
    address
}

fn answer_each(mut stream: TcpStream, answer: &[u8], pause: Duration) {
    let mut buffer = [0; 4096];
    // Without pipelining, each read contains one request.
    while let Ok(1..) = stream.read(&mut buffer) {
        thread::sleep(pause);
        if !answer.is_empty() && stream.write_all(answer).is_err() {
            return;
        }
        if answer.starts_with(b"HTTP/1.1 200 OK\r\nContent-Length: 10") {
            return;
        }
    }
}

fn forebay(arguments: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs it to its end.
#[track_caller]
fn ended(arguments: &[&str]) -> (i32, String, String) {
    let output = forebay(arguments).output().expect("the binary runs");
    shown(output)
}

#[track_caller]
fn shown(output: Output) -> (i32, String, String) {
    let [out, error] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).expect("UTF-8"));
    (output.status.code().expect("no signal ended it"), out, error)
}

fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(child.id().cast_signed()).expect("a process has an id");
    kill_process(pid, signal).expect("it can be signalled");
}
