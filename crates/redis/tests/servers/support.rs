//! Servers, scripts and loads that the tests share.

use forebay_redis::{Address, Client, Error, Kind, Link, Options, Script, Value, slot_of};
use forebay_topology::{Flavour, Local, Persistence, Spec, Topology};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The servers on which every test must pass.
pub const FLAVOURS: [Flavour; 2] = [Flavour::Redis, Flavour::Valkey];

/// A failover takes seconds, on a loaded machine longer.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// Counts how often an id was applied, which shows lost and repeated writes.
pub static APPLY: Script = Script::new("apply", "return redis.call('HINCRBY', KEYS[1], ARGV[2], 1)");

/// Returns the epoch that the link inserted.
pub static EPOCH: Script = Script::new("epoch", "return ARGV[1]");

/// Counts the ids that [`APPLY`] wrote.
pub static COUNT: Script = Script::new("count", "return redis.call('HLEN', KEYS[1])");

pub fn up(topology: Topology, flavour: Flavour) -> Local {
    Local::up(Spec::new(topology).on(flavour).keep(Persistence::None)).expect("servers")
}

/// Options with short time-outs, so that faults are noticed quickly.
pub fn quick() -> Options {
    Options {
        connect_timeout_ms: 1_000,
        response_timeout_ms: 2_000,
        wait_timeout_ms: 1_000,
        ..Options::default()
    }
}

pub async fn connect(local: &Local, options: Options) -> Client {
    Client::connect(&local.url(), options).await.expect("a client")
}

pub fn address(local: &Local, name: &str) -> Address {
    let node = local.nodes().iter().find(|node| node.name == name).expect("a node of that name");
    Address::tcp("127.0.0.1", node.port)
}

/// The name of the node at an address.
pub fn name_of(local: &Local, address: &Address) -> String {
    let text = address.to_string();
    local.nodes().iter().find(|node| node.address() == text).expect("a node there").name.clone()
}

pub fn get(key: &str) -> forebay_redis::Command {
    let mut command = forebay_redis::Command::new();
    command.arg("GET").arg(key);
    command
}

pub async fn apply(link: &Link, key: &str, id: &str) -> Result<Value, Error> {
    link.write(slot_of(key.as_bytes()), &APPLY, vec![key.into()], vec![id.into()]).await
}

/// The outcome of each id of a load.
#[derive(Default)]
pub struct Ledger {
    pub done: Vec<(String, String)>,
    pub not_sent: Vec<(String, String)>,
    pub unknown: Vec<(String, String)>,
}

/// Writes to all `keys`, several at a time, until stopped.
pub struct Load {
    stop: Arc<AtomicBool>,
    pub ledger: Arc<Mutex<Ledger>>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Load {
    pub fn start(link: &Link, keys: &[String], writers: usize) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let ledger = Arc::new(Mutex::new(Ledger::default()));
        let tasks = (0..writers)
            .map(|writer| {
                let (link, keys, stop, ledger) = (link.clone(), keys.to_vec(), stop.clone(), ledger.clone());
                tokio::spawn(async move {
                    for number in 0.. {
                        if stop.load(Ordering::Relaxed) {
                            return;
                        }
                        let key = keys[(number + writer * 7) % keys.len()].clone();
                        let id = format!("{writer}-{number}");
                        let result = apply(&link, &key, &id).await;
                        let mut ledger = ledger.lock().unwrap();
                        match result {
                            Ok(_) => ledger.done.push((key, id)),
                            Err(error) => match error.kind() {
                                Kind::NotSent => ledger.not_sent.push((key, id)),
                                Kind::UnknownOutcome => ledger.unknown.push((key, id)),
                                other => panic!("{other:?}: {error}"),
                            },
                        }
                    }
                })
            })
            .collect();
        Load { stop, ledger, tasks }
    }

    pub fn done(&self) -> usize {
        self.ledger.lock().unwrap().done.len()
    }

    /// Waits until `more` further writes were answered successfully.
    pub async fn progress(&self, more: usize) {
        let goal = self.done() + more;
        until("writes go on", async || self.done() >= goal).await;
    }

    pub async fn stop(self) -> Ledger {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.expect("a writer that did not panic");
        }
        std::mem::take(&mut self.ledger.lock().unwrap())
    }
}

/// Compares the ledger with the servers: a done write was applied once, an unsent one never, an unknown one
/// at most once.
pub async fn settle(link: &Link, ledger: &Ledger) {
    let mut found: HashMap<(String, String), i64> = HashMap::new();
    let mut keys: Vec<&String> =
        ledger.done.iter().chain(&ledger.not_sent).chain(&ledger.unknown).map(|(key, _)| key).collect();
    keys.sort();
    keys.dedup();
    for key in keys {
        let mut command = forebay_redis::Command::new();
        command.arg("HGETALL").arg(key);
        let Value::Array(parts) = link.read(slot_of(key.as_bytes()), command).await.expect("HGETALL") else {
            panic!("no list")
        };
        for pair in parts.chunks_exact(2) {
            found.insert((key.clone(), text(&pair[0])), text(&pair[1]).parse().expect("a count"));
        }
    }
    for (which, expected, ids) in [
        ("done", 1..=1, &ledger.done),
        ("not sent", 0..=0, &ledger.not_sent),
        ("unknown", 0..=1, &ledger.unknown),
    ] {
        for id in ids {
            let times = found.get(id).copied().unwrap_or(0);
            assert!(expected.contains(&times), "{id:?} was answered as {which}, and is there {times} times");
        }
    }
}

pub fn text(value: &Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).expect("UTF-8"),
        Value::SimpleString(text) => text.clone(),
        other => panic!("no text: {other:?}"),
    }
}

pub fn int(value: &Value) -> i64 {
    match value {
        Value::Int(number) => *number,
        other => panic!("no number: {other:?}"),
    }
}

/// Repeats the attempt until it returns true.
pub async fn until(what: &str, mut attempt: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !attempt().await {
        assert!(Instant::now() < deadline, "it did not happen: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// One field of a node's INFO.
pub async fn info(client: &Client, node: &Address, section: &str, field: &str) -> String {
    let mut command = forebay_redis::Command::new();
    command.arg("INFO").arg(section);
    let text = text(&client.on_node(node, &command).await.expect("INFO"));
    let prefix = format!("{field}:");
    text.lines().find_map(|line| line.strip_prefix(&prefix)).unwrap_or_default().trim().to_owned()
}

/// Keys that are distributed over all slots.
pub fn keys(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("key-{number}")).collect()
}
