//! A disk whose syncs are held for as long as a test wants, or fail: a small preloaded library
//! makes `fdatasync` check for files that say so.

use crate::Start;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Waits while FOREBAY_TEST_DISK/held exists, and then creates FOREBAY_TEST_DISK/waited; fails when
/// FOREBAY_TEST_DISK/broken exists.
const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int fdatasync(int file) {
    static int (*sync)(int);
    char held[4096], waited[4096], broken[4096];
    const char *folder = getenv("FOREBAY_TEST_DISK");
    if (!sync) sync = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    snprintf(held, sizeof held, "%s/held", folder);
    snprintf(waited, sizeof waited, "%s/waited", folder);
    snprintf(broken, sizeof broken, "%s/broken", folder);
    while (access(held, F_OK) == 0) {
        int mark = open(waited, O_CREAT | O_WRONLY, 0600);
        if (mark >= 0) close(mark);
        usleep(1000);
    }
    if (access(broken, F_OK) == 0) { errno = EIO; return -1; }
    return sync(file);
}
"#;

/// The library, and the folder of its two files.
pub struct SlowDisk {
    object: PathBuf,
    folder: PathBuf,
}

impl SlowDisk {
    /// Builds the library, for the processes that use this disk.
    #[track_caller]
    pub fn new(folder: &Path) -> SlowDisk {
        let (source, library) = (folder.join("slow_disk.c"), folder.join("slow_disk.so"));
        std::fs::write(&source, SOURCE).expect("a file can be written");
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .arg(&library)
            .arg(&source)
            .arg("-ldl")
            .status();
        assert!(built.expect("a C compiler").success(), "the library cannot be built");
        SlowDisk { object: library, folder: folder.to_owned() }
    }

    /// The same start, with this disk.
    pub fn with_disk(&self, start: Start) -> Start {
        let start = start.environment("LD_PRELOAD", &self.object.display().to_string());
        start.environment("FOREBAY_TEST_DISK", &self.folder.display().to_string())
    }

    /// Syncs wait from here on.
    pub fn hold(&self) {
        std::fs::write(self.folder.join("held"), "").expect("a file can be written");
    }

    /// Syncs fail from here on.
    pub fn fail(&self) {
        std::fs::write(self.folder.join("broken"), "").expect("a file can be written");
    }

    /// Whether a sync waits or has waited.
    pub fn has_waiting_sync(&self) -> bool {
        self.folder.join("waited").exists()
    }

    /// Syncs continue.
    pub fn release(&self) {
        std::fs::remove_file(self.folder.join("held")).expect("it was held");
    }
}
