//! Another clock for a process: libfaketime, preloaded. A time namespace is no alternative: it does not
//! change the time of day.

use crate::server::wait_for;
use forebay_topology::Local;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The environment that shifts a program's time of day: `clock("-1d")`. The monotonic clock is not
/// changed.
///
/// # Panics When libfaketime is not installed.
pub fn clock(offset: &str) -> Vec<(&'static str, String)> {
    let mut environment = preloaded();
    environment.push(("FAKETIME", offset.to_owned()));
    environment
}

fn preloaded() -> Vec<(&'static str, String)> {
    let library = std::fs::read_dir("/usr/lib")
        .into_iter()
        .flatten()
        .flatten()
        // For programs with several threads.
        .map(|entry| entry.path().join("faketime/libfaketimeMT.so.1"))
        .find(|path: &PathBuf| path.exists())
        .expect("libfaketime is not installed: scripts/services up does it");
    vec![("LD_PRELOAD", library.display().to_string()), ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned())]
}

/// A clock that jumps while its process runs.
pub struct JumpingClock {
    file: PathBuf,
}

impl JumpingClock {
    /// A clock without an offset, which is stored in the given file.
    pub fn new(file: &Path) -> JumpingClock {
        let clock = JumpingClock { file: file.to_owned() };
        clock.jump(0);
        clock
    }

    /// The environment of a process that uses this clock.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        let mut environment = preloaded();
        environment.push(("FAKETIME_TIMESTAMP_FILE", self.file.display().to_string()));
        // libfaketime reads the file again after a second.
        environment.push(("FAKETIME_CACHE_DURATION", "1".to_owned()));
        environment
    }

    /// Starts a node of Redis or Valkey again, with this clock. Valkey only: the jemalloc of Debian's Redis
    /// reads the time before libfaketime is initialised.
    ///
    /// # Panics When it does not start.
    pub fn give_to(&self, memory: &Local, node: &str) {
        let environment = self.environment();
        let environment: Vec<_> = environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
        memory.kill(node).expect("a node can be killed");
        memory.start_in(node, &environment).expect("a node can be started");
    }

    /// Sets the clock ahead by `offset_s` seconds, or back if negative.
    pub fn jump(&self, offset_s: i64) {
        let next = self.file.with_extension("next");
        std::fs::write(&next, format!("{offset_s:+}")).expect("a file can be written");
        // Renamed, so that it is never read half written.
        std::fs::rename(&next, &self.file).expect("a file can be renamed");
    }

    /// As [`JumpingClock::jump`], for the Redis or Valkey at this port; returns when that server
    /// shows the new time.
    #[track_caller]
    pub fn jump_of(&self, port: u16, offset_s: i64) {
        self.jump(offset_s);
        wait_for("its clock has jumped", || {
            let mut connection = redis::Client::open(("127.0.0.1", port)).ok()?.get_connection().ok()?;
            let (shown_s, _): (i64, u64) = redis::cmd("TIME").query(&mut connection).ok()?;
            let now_s = SystemTime::UNIX_EPOCH.elapsed().expect("after 1970").as_secs() as i64;
            ((now_s + offset_s - shown_s).abs() <= 1).then_some(())
        });
    }
}
