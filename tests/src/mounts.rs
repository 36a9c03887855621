//! Small file systems for tests that need a full or read-only one. Only root may mount; without root,
//! tests use other means.

use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};
use std::ffi::CString;
use std::io;
use std::path::{Path, PathBuf};

/// Whether this process is root.
pub fn am_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A tmpfs, unmounted when dropped.
pub struct Mount(PathBuf);

fn option(size_bytes: u64) -> CString {
    CString::new(format!("size={size_bytes}")).expect("digits hold no NUL")
}

impl Mount {
    /// Mounts a tmpfs of that size on an existing folder.
    pub fn tmpfs(folder: &Path, size_bytes: u64) -> io::Result<Mount> {
        mount("tmpfs", folder, "tmpfs", MountFlags::empty(), &*option(size_bytes))?;
        Ok(Mount(folder.to_owned()))
    }

    /// Makes it larger or smaller.
    pub fn resize(&self, size_bytes: u64) -> io::Result<()> {
        Ok(mount_remount(&self.0, MountFlags::empty(), &*option(size_bytes))?)
    }

    /// Remounts it read-only.
    pub fn make_read_only(&self) -> io::Result<()> {
        Ok(mount_remount(&self.0, MountFlags::RDONLY, c"")?)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Err(error) = unmount(&self.0, UnmountFlags::DETACH) {
            eprintln!("{} stays mounted: {error}", self.0.display());
        }
    }
}
