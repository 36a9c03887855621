//! Exit codes, and faulty servers.

use crate::{HI, ended, forebay, serve, shown, signal};
use forebay_load::LoadFlags;
use forebay_tests::{example, free_port};
use rustix::process::Signal;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

fn url(address: SocketAddr) -> String {
    format!("http://{address}/hello")
}

#[test]
fn bad_input_is_one_line_that_names_it() {
    let plan = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(plan.path(), "[[endpoint]]\npath = '/'\nwieght = 2\n").expect("written");
    let plan = plan.path().display().to_string();
    let a = "http://a/";
    for (arguments, named) in [
        (vec![], "URL"),
        (vec!["localhost:3000"], "`localhost:3000`"),
        (vec!["-R", "0", a], "rate"),
        (vec!["-R", "fast", a], "`fast`"),
        (vec!["-c", "0", a], "connections"),
        (vec!["-d", "1s", "-a", "5", a], "-d and -a"),
        (vec!["--plan", &plan, a], "wieght"),
        (vec!["--plan", "/nothing.toml"], "/nothing.toml"),
        (vec!["--threshold", "p99<<1", a], "p99<<1"),
        (vec!["--find-max", "quick", a], "--find-max \"quick\""),
        (vec!["--compare", "/nothing.json", a], "/nothing.json"),
        (vec!["--agents", "b", "--token", "x", a], "`b`"),
        (vec!["--agents", "b:1", a], "--token"),
        (vec!["--agents", "b:1,c:1", "--token", "x", "-c", "1", a], "1 connections"),
    ] {
        let arguments = [vec!["load"], arguments].concat();
        let (code, out, error) = ended(&arguments);
        assert_eq!((code, out.as_str()), (2, ""), "{arguments:?}: {error}");
        assert!(error.contains(named) && error.lines().count() == 1, "{arguments:?}: {error}");
    }
}

#[test]
fn what_cannot_be_run_is_one() {
    let nobody = SocketAddr::from(([127, 0, 0, 1], free_port()));
    for (target, named, kind) in [
        (url(nobody), "connection refused", "refused"),
        ("http://no.such.name.invalid/".into(), "no.such.name.invalid", "dns"),
    ] {
        let (code, out, error) = ended(&["load", "-d", "200ms", "-c", "3", "--json", "-", &target]);
        assert_eq!(code, 1, "{error}");
        let json: Value = serde_json::from_str(&out).expect("JSON");
        assert_eq!(json["errors_by_kind"][kind], 3, "{}", json["errors_by_kind"]);
        assert_eq!((&json["connects"]["failed"], &json["complete"]), (&3.into(), &false.into()));
        let sentences = error.lines().filter(|line| line.starts_with("forebay: ")).collect::<Vec<_>>();
        assert!(sentences.len() == 1 && sentences[0].contains(named), "{error}");
    }
}

#[test]
fn thresholds_alone_make_three() {
    let missing = serve(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", Duration::ZERO);
    let target = url(missing);
    let run = ["load", "-a", "50", "-c", "2", &target];
    assert_eq!(ended(&run).0, 0, "errors of HTTP change nothing");
    let (code, out, _) = ended(&[&run[..], &["--threshold", "2xx>=99%,p99<100s"]].concat());
    assert_eq!(code, 3);
    assert!(out.contains("2xx>=99%") && out.contains("BROKEN") || out.contains("broken"), "{out}");
    assert_eq!(ended(&[&run[..], &["--threshold", "404==50"]].concat()).0, 0);
}

#[test]
fn an_interrupt_gives_what_there_is() {
    let target = url(serve(HI, Duration::from_millis(1)));
    for before in [&["-d", "10m"][..], &["-a", "2m", "-R", "100"]] {
        let mut child =
            forebay(&[&["load", "-c", "2", "--json", "-", &target], before].concat()).spawn().expect("runs");
        let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        // A line with a rate: at least one second is complete.
        let line = lines.find(|line| line.as_ref().is_ok_and(|line| !line.contains(": 0/s")));
        assert!(line.is_some(), "it ended by itself");
        signal(&child, Signal::INT);
        let (code, out, _) = shown(child.wait_with_output().expect("it ends"));
        assert_eq!(code, 130);
        let json: Value = serde_json::from_str(&out).expect("whole JSON");
        assert_eq!(json["complete"], false);
        assert!(json["requests"]["completed"].as_u64() > Some(0), "{}", json["requests"]);
    }
}

#[test]
fn an_interrupt_before_the_start_ends_at_once() {
    let target = url(serve(HI, Duration::ZERO));
    let mut child = forebay(&["load", "--start-at", "+2h", &target]).spawn().expect("runs");
    let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
    assert!(lines.next().is_some(), "the screen says that it waits");
    signal(&child, Signal::INT);
    assert_eq!(shown(child.wait_with_output().expect("it ends")).0, 130);
}

#[test]
fn servers_that_do_not_behave_are_counted_by_kind() {
    for (answer, kind) in [
        (&b"SSH-2.0-garbage\r\n\r\n"[..], "malformed"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", "closed_early"),
        (b"", "timeout"),
    ] {
        let target = url(serve(answer, Duration::ZERO));
        let run = ["load", "-c", "2", "-d", "2s", "-t", "1s", "--json", "-", &target];
        let (code, out, error) = ended(&run);
        assert_eq!(code, 0, "{error}");
        let json: Value = serde_json::from_str(&out).expect("JSON");
        assert!(json["errors_by_kind"][kind].as_u64() > Some(0), "{kind}: {}", json["errors_by_kind"]);
        assert_eq!(json["requests"]["completed"], 0);
    }
}

#[test]
fn connections_that_are_reset_are_counted() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let target = url(listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A socket that is closed with bytes unread is reset (RFC 9293, 3.6.1).
            let _ = stream.peek(&mut [0]);
        }
    });
    let (code, out, error) = ended(&["load", "-c", "2", "-d", "1s", "-t", "10s", "--json", "-", &target]);
    assert_eq!(code, 0, "{error}");
    let json: Value = serde_json::from_str(&out).expect("JSON");
    assert!(json["errors_by_kind"]["reset"].as_u64() > Some(0), "{}", json["errors_by_kind"]);
    assert_eq!(json["requests"]["completed"], 0);
}

#[test]
fn a_server_that_is_gone_in_the_middle_is_counted() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let target = url(listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        let first = listener.accept();
        // The listener closes, and then the open connection does too.
        drop(listener);
        let _ = first.map(|(stream, _)| stream.peek(&mut [0]));
    });
    let (code, out, error) = ended(&["load", "-c", "1", "-d", "2s", "-t", "10s", "--json", "-", &target]);
    assert_eq!(code, 0, "{error}");
    let json: Value = serde_json::from_str(&out).expect("JSON");
    assert!(json["errors_by_kind"]["refused"].as_u64() > Some(0), "{}", json["errors_by_kind"]);
}

#[test]
fn the_highest_rate_is_said() {
    let target = url(serve(HI, Duration::from_millis(5)));
    // One connection, 5 ms an answer: under 200 a second.
    let how = ["load", "-c", "1", "-w", "1", "-d", "300ms", "--find-max", "p99<10s", "--json", "-", &target];
    let (code, out, error) = ended(&how);
    assert_eq!(code, 0, "{error}");
    let json: Value = serde_json::from_str(&out).expect("JSON");
    let note = json["notes"][0].as_str().unwrap_or_default();
    assert!(note.starts_with("the highest rate that holds: "), "{note}");
    let rate = json["load"]["rate_per_s"].as_f64().expect("a rate");
    assert!(rate > 0.0 && rate < 210.0, "{note}");
    assert!(error.contains("% of the rate were answered in time"), "{error}");
}

#[test]
fn files_are_written_and_compared() {
    let folder = tempfile::tempdir().expect("a folder");
    let [json, html] = ["a.json", "a.html"].map(|name| folder.path().join(name).display().to_string());
    let target = url(serve(HI, Duration::ZERO));
    let run = ["load", "-a", "100", "-c", "2", &target];
    let (code, out, _) = ended(&[&run[..], &["--json", &json, "--html", &html]].concat());
    assert!(code == 0 && out.contains("100 answered"), "{out}");
    assert!(std::fs::read_to_string(&html).expect("a page").contains("</html>"));
    let (code, out, _) = ended(&[&run[..], &["--compare", &json]].concat());
    assert!(code == 0 && out.contains("Latency max"), "{out}");
}

#[test]
fn the_plans_of_the_examples_can_be_run() {
    for (name, endpoints, is_open) in [("accounts.load.toml", 5, false), ("codes.load.toml", 5, true)] {
        let plan = example(name).display().to_string();
        let planned = LoadFlags { plan: Some(plan.clone()), ..LoadFlags::default() }.resolve();
        assert!(planned.is_ok(), "{planned:?}");
        let server = format!("http://{}", serve(HI, Duration::ZERO));
        let limit = if is_open { ["-R", "200"] } else { ["--warmup", "0"] };
        let arguments =
            [&["load", "--plan", &plan, "-a", "60", "--json", "-"], &limit[..], &[&server]].concat();
        let (code, out, error) = ended(&arguments);
        assert_eq!(code, 0, "{error}");
        let json: Value = serde_json::from_str(&out).expect("JSON");
        assert_eq!(json["endpoints"].as_array().map(Vec::len), Some(endpoints), "{name}");
        assert_eq!(json["requests"]["completed"], 60, "{name}");
    }
}
