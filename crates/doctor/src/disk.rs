//! The disk of the data folder: the latency of a durable write, measured there.

use crate::finding::{Finding, Fix};
use crate::system::System;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Number of synced writes; their median counts.
const SYNCS: usize = 64;
/// Length of a write: that of a small group of the log.
const WRITE_BYTES: usize = 4_096;
/// A sync slower than this is slower than any solid-state disk with a healthy queue.
const SLOW: Duration = Duration::from_millis(5);
/// A sync quicker than this is quicker than any disk: it is answered from a cache.
const TOO_QUICK: Duration = Duration::from_micros(5);

/// Examines the data folder, or the folder in which it will be created.
pub(crate) fn examine(system: &System, folder: &Path) -> Vec<Finding> {
    let there = folder.ancestors().find(|above| above.is_dir()).unwrap_or(Path::new("."));
    vec![kind(system, there), sync(there)]
}

fn kind(system: &System, folder: &Path) -> Finding {
    const SUBJECT: &str = "file system";
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let mounts = system.text("proc/self/mounts").unwrap_or_default();
    let mounted = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        let at = PathBuf::from(words.next()?);
        folder.starts_with(&at).then_some((at, words.next()?))
    });
    match mounted.max_by_key(|(at, _)| at.as_os_str().len()) {
        None => Finding::unknown(SUBJECT, "/proc/self/mounts does not name it"),
        Some((_, "tmpfs" | "ramfs")) => Finding::wrong(
            SUBJECT,
            format!("{} is in memory", folder.display()),
            "a restart of the machine loses every acknowledged write that is not drained",
            Fix::command("a data folder on a disk (memory.url or --data)"),
        ),
        Some((_, "overlay")) => Finding::wrong(
            SUBJECT,
            format!("{} is in the writable layer of a container", folder.display()),
            "a new container loses every acknowledged write that is not drained",
            Fix::command("a volume at the data folder"),
        ),
        Some((_, kind @ ("nfs" | "nfs4" | "cifs"))) => Finding::slow(
            SUBJECT,
            format!("{} is on {kind}", folder.display()),
            "each group of writes crosses the network, and locks depend on the server",
            Fix::command("a data folder on a disk of this machine"),
        ),
        Some((_, kind)) => Finding::well(SUBJECT, format!("{} on {kind}", folder.display())),
    }
}

fn sync(folder: &Path) -> Finding {
    const SUBJECT: &str = "disk sync";
    let median = match measure(folder) {
        Ok(median) => median,
        Err(error) => {
            let found = format!("{}: {error}", folder.display());
            let fix = Fix::command("a folder that the server's user may write to");
            return Finding::wrong(SUBJECT, found, "the log cannot be written", fix);
        }
    };
    let milliseconds = median.as_secs_f64() * 1_000.0;
    let found = format!("{milliseconds:.2} ms for {WRITE_BYTES} bytes, median of {SYNCS}");
    if median >= SLOW {
        let writes = 1.0 / median.as_secs_f64();
        let cost = format!(
            "a durable write waits that long: a client that waits for each makes {writes:.0} a second"
        );
        Finding::slow(
            SUBJECT,
            found,
            cost,
            Fix::command("a local NVMe disk, or one with a battery-backed cache"),
        )
    } else if median <= TOO_QUICK {
        let cost = "no disk is that quick: a cache answers that a power cut may empty";
        Finding::slow(
            SUBJECT,
            found,
            cost,
            Fix::command("ask the provider of the disk whether a sync is one"),
        )
    } else {
        Finding::well(SUBJECT, found)
    }
}

/// The median time of an append and an `fdatasync`, as the log writes, in a temporary file.
fn measure(folder: &Path) -> io::Result<Duration> {
    let path = folder.join(format!(".forebay-doctor-{}", std::process::id()));
    let mut file = OpenOptions::new().create_new(true).write(true).open(&path)?;
    let mut times = Vec::with_capacity(SYNCS);
    let written = (0..SYNCS).try_for_each(|_| {
        let begun = Instant::now();
        file.write_all(&[0x5a; WRITE_BYTES])?;
        file.sync_data()?;
        times.push(begun.elapsed());
        Ok(())
    });
    std::fs::remove_file(&path)?;
    written.map(|()| {
        times.sort();
        times[SYNCS / 2]
    })
}
