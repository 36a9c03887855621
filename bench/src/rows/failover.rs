//! A primary of a cluster dies during writes: the longest time of a write, from its first attempt to
//! its acknowledgement, refused attempts included.

use crate::process::{Bench, start_loaded, succeeded};
use crate::report::{Bar, Line};
use forebay_tests::{Client, Folder, example};
use forebay_topology::{Local, NodeStatus, Persistence, Spec, Topology};
use std::error::Error;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const WRITERS: usize = 16;
/// Pause between two attempts of a write.
const AGAIN: Duration = Duration::from_millis(20);
/// How long clients write before and after the fault: longer than any bar.
const BEFORE: Duration = Duration::from_secs(2);
const BEHIND: Duration = Duration::from_secs(20);
/// How long a replica lags when its primary dies.
const LAG: Duration = Duration::from_secs(1);

/// Measures a restart with all data, and a failover that loses some.
pub fn longest_writes(bench: &Bench) -> Result<Vec<Line>, Box<dyn Error>> {
    let rows = bench.scaled(500_000, 20_000);
    let restarted = longest_write(bench, rows, 0, |cluster, primary| {
        cluster.kill(&primary.name)?;
        cluster.start(&primary.name)?;
        Ok(())
    })?;
    let failed_over = longest_write(bench, rows, 1, |cluster, primary| {
        let nodes = cluster.status()?.nodes;
        let replica = nodes.into_iter().find(|node| node.primary.as_ref() == Some(&primary.name));
        let replica = replica.ok_or("the primary has no replica")?.name;
        cluster.pause(&replica)?;
        thread::sleep(LAG);
        cluster.kill(&primary.name)?;
        cluster.resume_node(&replica)?;
        Ok(())
    })?;
    let line = |what: &str, (longest_s, writes): (f64, u64), bar_s: f64| {
        Line::new(format!("{what}, {rows} rows: longest write"), longest_s, "s", Bar::AtMost(bar_s), "")
            .beside(format!("{writes} writes"))
    };
    Ok(vec![
        line("one primary of 3 is killed and started with its data", restarted, 3.0),
        line("one primary of 3 is killed, its replica lacks the last second", failed_over, 5.0),
    ])
}

/// The longest write in seconds, and how many there were, around a fault of the first primary.
fn longest_write(
    bench: &Bench,
    rows: u64,
    replicas: usize,
    fault: impl FnOnce(&Local, &NodeStatus) -> Result<(), Box<dyn Error>>,
) -> Result<(f64, u64), Box<dyn Error>> {
    let spec = Spec::new(Topology::Cluster { masters: 3, replicas }).keep(Persistence::EverySecond);
    let (cluster, folder, database) = (Local::up(spec)?, Folder::new(), Folder::new());
    let record = format!("sqlite:{}", database.database().display());
    let start = bench.start_remote(&example("codes.toml"), &folder, &record, &cluster.url());
    let start = start.set("memory.durability=async");
    succeeded(&start.seed("codes", rows))?;
    let server = start_loaded(&start)?;
    let primary = cluster.status()?.nodes.into_iter().find(|node| node.slots > 0).ok_or("no primary")?;
    let (is_over, writes) = (AtomicBool::new(false), AtomicU64::new(0));
    let longest = thread::scope(|scope| {
        let writer = || write(server.address, &is_over, &writes);
        let writers: Vec<_> = (0..WRITERS).map(|_| scope.spawn(writer)).collect();
        thread::sleep(BEFORE);
        let faulted = fault(&cluster, &primary).map_err(|error| error.to_string());
        thread::sleep(BEHIND);
        is_over.store(true, Ordering::Relaxed);
        let longest = writers.into_iter().map(|writer| writer.join().unwrap_or(Duration::MAX)).max();
        faulted.map(|()| longest.unwrap_or_default())
    })?;
    Ok((longest.as_secs_f64(), writes.load(Ordering::Relaxed)))
}

/// Writes until `is_over`. Returns the longest time of one write.
fn write(server: SocketAddr, is_over: &AtomicBool, writes: &AtomicU64) -> Duration {
    let (mut client, mut longest) = (Client::connect(server).ok(), Duration::ZERO);
    while !is_over.load(Ordering::Relaxed) {
        let began = Instant::now();
        while !is_over.load(Ordering::Relaxed) {
            match client.as_mut().map(|client| client.call("POST", "/code-fast", &[], None)) {
                Some(Ok(answer)) if answer.status == 201 => {
                    writes.fetch_add(1, Ordering::Relaxed);
                    break;
                }
                Some(Ok(_)) => thread::sleep(AGAIN),
                None | Some(Err(_)) => client = Client::connect(server).ok(),
            }
        }
        longest = longest.max(began.elapsed());
    }
    longest
}
