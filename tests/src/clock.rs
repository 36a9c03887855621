//! Another clock for a process: libfaketime, preloaded.

use std::path::PathBuf;

/// The environment in which a program believes that it is earlier or later: `clock("-1d")`. Only the time
/// of day; what passes is measured as ever.
///
/// # Panics When libfaketime is not installed.
pub fn clock(offset: &str) -> Vec<(&'static str, String)> {
    let library = std::fs::read_dir("/usr/lib")
        .into_iter()
        .flatten()
        .flatten()
        // For programs with several threads.
        .map(|entry| entry.path().join("faketime/libfaketimeMT.so.1"))
        .find(|path: &PathBuf| path.exists())
        .expect("libfaketime is not installed: scripts/services up does it");
    vec![
        ("LD_PRELOAD", library.display().to_string()),
        ("FAKETIME", offset.to_owned()),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
    ]
}
