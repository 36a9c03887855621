//! What appending costs: threads append 550-byte records, waiting for durability in a closed loop
//! of so many waiters, or not waiting; then everything is read back. Prints appends/s, groups/s and
//! CPU per append (of the process, log thread included).
//!
//!     cargo run --release -p forebay-log --example append -- [threads] [waiters] [seconds] [folder]
//!
//! The folder is made new below the given one (default: the system's for temporary files) and
//! deleted at the end.

use forebay_log::{AppendError, Log, Options, Position};
use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const RECORD_BYTES: usize = 550;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let threads: usize = arguments.next().map_or(Ok(2), |text| text.parse())?;
    let waiters: usize = arguments.next().map_or(Ok(64), |text| text.parse())?;
    let seconds: u64 = arguments.next().map_or(Ok(3), |text| text.parse())?;
    let folder = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = folder.join(format!("forebay-log-append-{}", std::process::id()));
    println!("{threads} threads, {RECORD_BYTES}-byte records, {seconds} s each");
    for (name, waiting) in [("closed loop", Some(waiters)), ("not waiting", None)] {
        let result = run(&folder, name, threads, waiting, Duration::from_secs(seconds));
        fs::remove_dir_all(&folder)?;
        result?;
    }
    Ok(())
}

fn run(
    folder: &PathBuf,
    name: &str,
    threads: usize,
    waiting: Option<usize>,
    time: Duration,
) -> Result<(), Box<dyn Error>> {
    let (log, _) = Log::open(Options { limit_bytes: 64 << 30, ..Options::new(folder) })?;
    let groups = Arc::new(AtomicU64::new(0));
    let counting = groups.clone();
    log.on_durable(Box::new(move |_| {
        counting.fetch_add(1, Ordering::Relaxed);
    }));
    let stop = Arc::new(AtomicBool::new(false));
    let cpu = cpu_us();
    let start = Instant::now();
    let handles: Vec<_> = (0..threads)
        .map(|_| {
            let (log, stop) = (log.clone(), stop.clone());
            // One thread stands for many connections, as a worker does.
            let share = waiting.map(|waiters| waiters.div_ceil(threads));
            std::thread::spawn(move || append(&log, &stop, share))
        })
        .collect();
    std::thread::sleep(time);
    stop.store(true, Ordering::Relaxed);
    let mut appends = 0;
    for handle in handles {
        appends += handle.join().map_err(|_| "an appender panicked")??;
    }
    log.flush()?;
    let wall_s = start.elapsed().as_secs_f64();
    let cpu = cpu_us() - cpu;
    println!(
        "{name:12} {:>9.0} appends/s  {:>7.0} groups/s  {:>6.3} µs CPU/append  {:>6.1} µs CPU/group  {:.0} MB/s",
        appends as f64 / wall_s,
        groups.load(Ordering::Relaxed) as f64 / wall_s,
        cpu / appends as f64,
        cpu / groups.load(Ordering::Relaxed) as f64,
        log.end().0 as f64 / wall_s / 1e6,
    );
    log.close()?;
    recover(folder, appends)
}

/// Appends until stopped: `share` records, then waits until they are durable; or without waiting.
fn append(log: &Log, stop: &AtomicBool, share: Option<usize>) -> Result<u64, AppendError> {
    let record = [0x5A; RECORD_BYTES];
    let mut appends = 0;
    while !stop.load(Ordering::Relaxed) {
        let mut last = Position(0);
        for _ in 0..share.unwrap_or(1000) {
            match log.append(&record) {
                Ok(position) => last = position,
                Err(AppendError::Busy) => {
                    log.wait_durable(log.durable(), Duration::from_millis(100));
                    continue;
                }
                Err(error) => return Err(error),
            }
            appends += 1;
        }
        while share.is_some() && log.durable() < last {
            let before = Position(last.0 - 1);
            log.wait_durable(before, Duration::from_secs(1));
        }
    }
    Ok(appends)
}

fn recover(folder: &PathBuf, appends: u64) -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    let (log, recovery) = Log::open(Options::new(folder))?;
    let opened_s = start.elapsed().as_secs_f64();
    let start = Instant::now();
    let mut reader = log.reader(log.first())?;
    let (mut records, mut bytes) = (0_u64, 0_usize);
    loop {
        let batch = reader.next_batch(1 << 20)?;
        if batch.is_empty() {
            break;
        }
        for (_, record) in batch.iter() {
            records += 1;
            bytes += record.len();
        }
    }
    let read_s = start.elapsed().as_secs_f64();
    println!(
        "{:12} {:>9.0} records/s opened and checked, {:.0} records/s read ({} records, {} MB)",
        "  recovery",
        recovery.records as f64 / opened_s,
        records as f64 / read_s,
        records,
        bytes / 1_000_000
    );
    if records != appends || recovery.records != appends {
        return Err(format!("{appends} appended, {records} read").into());
    }
    log.close()?;
    Ok(())
}

/// CPU time of this process, user and system, ended threads included, in microseconds.
fn cpu_us() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}
