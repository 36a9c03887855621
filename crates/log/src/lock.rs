//! One process per data folder: the `LOCK` file.

use crate::disk::{Disk, DiskLock, Locked};
use crate::error::{Error, Kind};
use std::path::Path;

const LOCK_FILE: &str = "LOCK";

/// Locks the folder for this process, or returns an error with the process that holds the lock. Released on
/// drop, or by the system when the process dies.
pub(crate) fn take(disk: &dyn Disk, folder: &Path) -> Result<Box<dyn DiskLock>, Error> {
    let path = folder.join(LOCK_FILE);
    let holder = format!("{}\n", std::process::id());
    let locked =
        disk.lock(&path, &holder).map_err(|source| Error::io("take the lock file", &path, source))?;
    match locked {
        Locked::Taken(lock) => Ok(lock),
        Locked::Held(text) => {
            let pid = text.trim().parse().ok();
            let who = match pid {
                Some(pid) => format!("process {pid}"),
                None => "another process".to_owned(),
            };
            Err(Error::new(
                Kind::Locked { pid },
                format!("the log in {} is in use by {who}", folder.display()),
            ))
        }
    }
}
