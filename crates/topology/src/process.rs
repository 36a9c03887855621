//! The processes of nodes, found in the process table by their command line: the server, then the node's
//! config file. The configs contain `set-proc-title no`, so that the command line does not change; a
//! server's forks (for an append-only file, for a replica) have the same command line, and are found too.

use crate::error::{Error, Result};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Process {
    pub pid: Pid,
    /// SIGSTOP was sent, and SIGCONT has not been sent since.
    pub paused: bool,
}

/// The processes of each of these config files, in the same order. A process that has ended but was not
/// waited for has no command line and is not found.
pub(crate) fn find(server: &Path, configs: &[PathBuf]) -> Result<Vec<Vec<Process>>> {
    let mut found = vec![Vec::new(); configs.len()];
    let table = Path::new("/proc");
    for entry in fs::read_dir(table).map_err(|error| Error::io("read", table, error))? {
        let path = entry.map_err(|error| Error::io("read", table, error))?.path();
        let pid = path.file_name().and_then(|name| name.to_str()?.parse().ok()).and_then(Pid::from_raw);
        let Some(pid) = pid else { continue };
        // A process may end between the listing and this read: then it is skipped.
        let Ok(line) = fs::read(path.join("cmdline")) else { continue };
        let mut words = line.split(|byte| *byte == 0);
        if words.next() != Some(server.as_os_str().as_bytes()) {
            continue;
        }
        let Some(config) = words.next() else { continue };
        if let Some(index) = configs.iter().position(|path| path.as_os_str().as_bytes() == config) {
            let Ok(stat) = fs::read_to_string(path.join("stat")) else { continue };
            found[index].push(Process { pid, paused: state(&stat) == Some('T') });
        }
    }
    Ok(found)
}

/// The state in `/proc/PID/stat`: the field after the name, which is in parentheses and may contain any
/// characters (proc_pid_stat(5)).
fn state(stat: &str) -> Option<char> {
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Sends a signal to all of them. A process that has ended meanwhile is no error.
pub(crate) fn signal(processes: &[Process], signal: Signal) -> Result<()> {
    for process in processes {
        match kill_process(process.pid, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => {
                let path = PathBuf::from(format!("process {}", process.pid.as_raw_nonzero()));
                return Err(Error::io("signal", &path, error.into()));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_stands_behind_the_last_bracket() {
        assert_eq!(state("71 (a) b (c) T 1 71"), Some('T'));
        assert_eq!(state("71"), None);
    }
}
