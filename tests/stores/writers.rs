//! Writers that continue during a fault: each token is sent once, and its answer is recorded.

use forebay_tests::Client;
use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

const TABLES: [&str; 2] = ["plain", "tokens"];

/// Writers at work.
pub struct Writers {
    stop: Arc<AtomicBool>,
    acknowledged: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<WriterRecord>>,
}

/// The sent tokens and their answers.
#[derive(Default)]
pub struct WriterRecord {
    sent: HashSet<(&'static str, String)>,
    acknowledged: HashSet<(&'static str, String)>,
}

impl WriterRecord {
    /// The tokens of a table that were answered 201.
    pub fn acknowledged(&self, table: &str) -> impl Iterator<Item = &String> {
        self.acknowledged.iter().filter(move |(of, _)| *of == table).map(|(_, token)| token)
    }

    /// Whether a token was sent at all: an unacknowledged token may be stored or not.
    pub fn was_sent(&self, table: &'static str, token: &str) -> bool {
        self.sent.contains(&(table, token.to_owned()))
    }

    /// How many were acknowledged.
    pub fn count(&self) -> usize {
        self.acknowledged.len()
    }

    fn add(&mut self, other: WriterRecord) {
        self.sent.extend(other.sent);
        self.acknowledged.extend(other.acknowledged);
    }
}

impl Writers {
    /// Starts `writers_each` writers on each of these servers.
    pub fn start(servers: &[SocketAddr], writers_each: usize) -> Writers {
        let (stop, acknowledged) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let mut threads = Vec::new();
        for (server, &address) in servers.iter().enumerate() {
            for writer in 0..writers_each {
                let (stop, acknowledged) = (stop.clone(), acknowledged.clone());
                let name = format!("{server}-{writer}");
                threads.push(std::thread::spawn(move || write(address, &name, &stop, &acknowledged)));
            }
        }
        Writers { stop, acknowledged, threads }
    }

    /// How many writes were acknowledged so far.
    pub fn count(&self) -> usize {
        self.acknowledged.load(Ordering::Relaxed)
    }

    /// Waits until `more` further writes are acknowledged.
    #[track_caller]
    pub fn wait_for_more(&self, more: usize) {
        let target = self.count() + more;
        forebay_tests::wait_for("writes go on", || (self.count() >= target).then_some(()));
    }

    /// Stops the writers; returns the tokens and answers.
    pub fn stop(self) -> WriterRecord {
        self.stop.store(true, Ordering::Relaxed);
        let mut told = WriterRecord::default();
        for thread in self.threads {
            told.add(thread.join().expect("a writer does not panic"));
        }
        told
    }
}

fn write(address: SocketAddr, name: &str, stop: &AtomicBool, acknowledged: &AtomicUsize) -> WriterRecord {
    let mut told = WriterRecord::default();
    let mut client = Client::connect(address).ok();
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let Some(open) = &mut client else {
            std::thread::sleep(Duration::from_millis(20));
            client = Client::connect(address).ok();
            continue;
        };
        let table = TABLES[number % TABLES.len()];
        let token = format!("{name}-{number}");
        told.sent.insert((table, token.clone()));
        let body = format!("{{\"token\":\"{token}\"}}");
        match open.call("POST", &format!("/{table}"), &[], Some(&body)) {
            Ok(answer) if answer.status == 201 => {
                told.acknowledged.insert((table, token));
                acknowledged.fetch_add(1, Ordering::Relaxed);
            }
            // The write failed or its outcome is unknown: the next write uses another token.
            Ok(answer) if answer.status == 503 || answer.status == 504 => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Ok(answer) => panic!("{answer:?}"),
            Err(_) => client = None,
        }
    }
    told
}
