//! The files in which Linux reports its state, below a root: `/`, or a folder that a test has
//! created.

use std::fs;
use std::path::{Path, PathBuf};

/// `/proc`, `/sys` and `/run` of a machine.
#[derive(Debug, Clone)]
pub struct System {
    root: PathBuf,
}

impl System {
    /// The files below this root.
    pub fn at(root: impl Into<PathBuf>) -> System {
        System { root: root.into() }
    }

    /// The text of a file, trimmed; `None` when it does not exist or is not readable.
    pub fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        fs::read_to_string(self.root.join(path)).ok().map(|text| text.trim().to_owned())
    }

    /// The first number of a file.
    pub fn number(&self, path: impl AsRef<Path>) -> Option<u64> {
        self.text(path)?.split_whitespace().next()?.parse().ok()
    }

    /// A kernel setting by its name (`net.core.somaxconn`).
    pub fn sysctl(&self, key: &str) -> Option<u64> {
        self.number(Path::new("proc/sys").join(key.replace('.', "/")))
    }

    /// Whether a file exists.
    pub fn has(&self, path: impl AsRef<Path>) -> bool {
        self.root.join(path).exists()
    }

    /// The file name of a link's target.
    pub fn target(&self, path: impl AsRef<Path>) -> Option<String> {
        let target = fs::canonicalize(self.root.join(path)).ok()?;
        target.file_name()?.to_str().map(str::to_owned)
    }

    /// The names in a folder, sorted; empty when the folder does not exist.
    pub fn names(&self, folder: impl AsRef<Path>) -> Vec<String> {
        let entries = fs::read_dir(self.root.join(folder));
        let entries = entries.into_iter().flatten().filter_map(Result::ok);
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// The processors of the machine.
    pub fn cores(&self) -> usize {
        let is_core = |name: &String| {
            name.strip_prefix("cpu")
                .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
        };
        self.names("sys/devices/system/cpu").iter().filter(|name| is_core(name)).count().max(1)
    }

    /// All memory of the machine, in bytes.
    pub fn memory_bytes(&self) -> Option<u64> {
        let text = self.text("proc/meminfo")?;
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        line.split_whitespace().next()?.parse::<u64>().ok().map(|kibibytes| kibibytes * 1024)
    }
}
