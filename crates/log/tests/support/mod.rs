//! A disk in memory that can crash, fail and fill up: synced data survives, and any part of the rest may.
//!
//! The model is as unfavourable as a real disk may be: of unsynced writes any subset of sectors survives, of
//! unsynced renames, creations and deletions any prefix; a failed sync leaves its bytes readable but never
//! written (the system has marked them clean).
#![allow(dead_code, reason = "each test program uses a part of it")]

use forebay_log::{Access, Disk, DiskFile, DiskLock, Locked};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

const SECTOR_BYTES: usize = 512;

/// Random numbers from a seed (SplitMix64).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

#[derive(Clone)]
enum Change {
    Write(usize, Vec<u8>),
    Length(usize),
}

#[derive(Clone, Default)]
struct Inode {
    current: Vec<u8>,
    durable: Vec<u8>,
    unsynced: Vec<Change>,
}

#[derive(Clone)]
enum NameChange {
    Set(PathBuf, usize),
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
}

/// What goes wrong, counted in operations of that kind from now on; 0 is the next one.
#[derive(Clone, Copy, Default)]
pub struct Faults {
    /// The power fails in the middle of this change (write, sync, rename…).
    pub crash_at: Option<u64>,
    pub fail_write_at: Option<u64>,
    pub fail_sync_at: Option<u64>,
    pub fail_folder_sync_at: Option<u64>,
    pub read_only: bool,
}

struct State {
    inodes: Vec<Inode>,
    names: BTreeMap<PathBuf, usize>,
    durable_names: BTreeMap<PathBuf, usize>,
    unsynced_names: Vec<NameChange>,
    faults: Faults,
    crashed: bool,
    /// Counts restarts: handles from before the last one fail.
    life: u64,
    held: BTreeMap<PathBuf, (u64, String)>,
    space_bytes: u64,
    random: Random,
}

#[derive(Clone)]
pub struct SimDisk(Arc<Mutex<State>>);

struct SimFile {
    disk: SimDisk,
    inode: usize,
    life: u64,
}

struct SimLock {
    disk: SimDisk,
    path: PathBuf,
    life: u64,
}

impl DiskLock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut state = self.disk.state();
        if state.life == self.life {
            state.held.remove(&self.path);
        }
    }
}

fn apply(names: &mut BTreeMap<PathBuf, usize>, change: &NameChange) {
    match change {
        NameChange::Set(path, inode) => {
            names.insert(path.clone(), *inode);
        }
        NameChange::Rename(from, to) => {
            if let Some(inode) = names.remove(from) {
                names.insert(to.clone(), inode);
            }
        }
        NameChange::Remove(path) => {
            names.remove(path);
        }
    }
}

fn put(bytes: &mut Vec<u8>, offset: usize, new: &[u8]) {
    if bytes.len() < offset + new.len() {
        bytes.resize(offset + new.len(), 0);
    }
    bytes[offset..offset + new.len()].copy_from_slice(new);
}

fn counted(at: &mut Option<u64>) -> bool {
    match at {
        Some(0) => {
            *at = None;
            true
        }
        Some(more) => {
            *more -= 1;
            false
        }
        None => false,
    }
}

impl State {
    fn alive(&self, life: u64) -> io::Result<()> {
        if self.crashed || life != self.life {
            return Err(io::Error::other("the power is gone"));
        }
        Ok(())
    }

    /// Called before every change. Returns whether the power fails now: the change is then left unsynced.
    fn change(&mut self, life: u64) -> io::Result<bool> {
        self.alive(life)?;
        if self.faults.read_only {
            return Err(io::ErrorKind::ReadOnlyFilesystem.into());
        }
        self.crashed = counted(&mut self.faults.crash_at);
        Ok(self.crashed)
    }

    fn finish(&self) -> io::Result<()> {
        if self.crashed { Err(io::Error::other("the power went")) } else { Ok(()) }
    }

    fn used_bytes(&self) -> u64 {
        self.names.values().map(|inode| self.inodes[*inode].current.len() as u64).sum()
    }

    fn grow(&self, inode: usize, length: usize) -> io::Result<()> {
        let more = length.saturating_sub(self.inodes[inode].current.len()) as u64;
        if more > 0 && self.used_bytes() + more > self.space_bytes {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }
}

impl SimDisk {
    pub fn new(seed: u64) -> SimDisk {
        SimDisk(Arc::new(Mutex::new(State {
            inodes: Vec::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            unsynced_names: Vec::new(),
            faults: Faults::default(),
            crashed: false,
            life: 0,
            held: BTreeMap::new(),
            space_bytes: u64::MAX,
            random: Random(seed),
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub fn set_faults(&self, faults: Faults) {
        self.state().faults = faults;
    }

    pub fn set_space_bytes(&self, space_bytes: u64) {
        self.state().space_bytes = space_bytes;
    }

    pub fn used_bytes(&self) -> u64 {
        self.state().used_bytes()
    }

    pub fn is_crashed(&self) -> bool {
        self.state().crashed
    }

    /// All files as they are now.
    pub fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let state = self.state();
        let content = |inode: &usize| state.inodes[*inode].current.clone();
        state.names.iter().map(|(path, inode)| (path.clone(), content(inode))).collect()
    }

    /// A disk that has these files, durably.
    pub fn holding(files: &BTreeMap<PathBuf, Vec<u8>>) -> SimDisk {
        let disk = SimDisk::new(0);
        let mut state = disk.state();
        for (path, bytes) in files {
            let inode = state.inodes.len();
            state.inodes.push(Inode { current: bytes.clone(), durable: bytes.clone(), unsynced: Vec::new() });
            state.names.insert(path.clone(), inode);
        }
        state.durable_names = state.names.clone();
        drop(state);
        disk
    }

    /// The process dies, but the system continues: everything written is still readable, synced or not.
    pub fn kill(&self) {
        let mut state = self.state();
        state.crashed = false;
        state.life += 1;
        state.faults = Faults::default();
        state.held.clear();
    }

    /// The power returns, and only synced data has survived.
    pub fn reboot_losing_all(&self) {
        let mut state = self.state();
        state.unsynced_names.clear();
        for inode in &mut state.inodes {
            inode.unsynced.clear();
        }
        drop(state);
        self.reboot();
    }

    /// The power fails (unless it has) and returns: synced data has survived, and any part of the rest.
    pub fn reboot(&self) {
        let mut guard = self.state();
        let state = &mut *guard;
        state.crashed = false;
        state.life += 1;
        state.faults = Faults::default();
        state.held.clear();
        let random = &mut state.random;
        let kept = random.below(state.unsynced_names.len() as u64 + 1) as usize;
        for change in state.unsynced_names.drain(..).take(kept) {
            apply(&mut state.durable_names, &change);
        }
        state.names = state.durable_names.clone();
        for inode in &mut state.inodes {
            for change in inode.unsynced.drain(..) {
                survive(&mut inode.durable, change, random);
            }
            inode.current = inode.durable.clone();
        }
    }
}

/// Any part of an unsynced change reaches the disk.
fn survive(durable: &mut Vec<u8>, change: Change, random: &mut Random) {
    match change {
        Change::Length(length) => {
            if random.below(2) == 0 {
                durable.resize(length, 0);
            }
        }
        Change::Write(offset, bytes) => {
            let share = random.below(5);
            let mut at = 0;
            while at < bytes.len() {
                let end =
                    bytes.len().min((offset + at) / SECTOR_BYTES * SECTOR_BYTES + SECTOR_BYTES - offset);
                if random.below(4) < share {
                    put(durable, offset + at, &bytes[at..end]);
                }
                at = end;
            }
        }
    }
}

impl DiskFile for SimFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let state = self.disk.state();
        state.alive(self.life)?;
        let bytes = &state.inodes[self.inode].current;
        let from = bytes.len().min(offset as usize);
        let length = buffer.len().min(bytes.len() - from);
        buffer[..length].copy_from_slice(&bytes[from..from + length]);
        Ok(length)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        state.change(self.life)?;
        let offset = offset as usize;
        if counted(&mut state.faults.fail_write_at) {
            // Half of the bytes were written.
            let half = bytes[..bytes.len() / 2].to_vec();
            let inode = &mut state.inodes[self.inode];
            put(&mut inode.current, offset, &half);
            inode.unsynced.push(Change::Write(offset, half));
            return Err(io::Error::other("write failed"));
        }
        state.grow(self.inode, offset + bytes.len())?;
        let inode = &mut state.inodes[self.inode];
        put(&mut inode.current, offset, bytes);
        inode.unsynced.push(Change::Write(offset, bytes.to_vec()));
        state.finish()
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.state();
        if state.change(self.life)? {
            return state.finish();
        }
        if counted(&mut state.faults.fail_sync_at) {
            state.inodes[self.inode].unsynced.clear();
            return Err(io::Error::other("sync failed"));
        }
        let inode = &mut state.inodes[self.inode];
        for change in inode.unsynced.drain(..) {
            match change {
                Change::Write(offset, bytes) => put(&mut inode.durable, offset, &bytes),
                Change::Length(length) => inode.durable.resize(length, 0),
            }
        }
        Ok(())
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        state.change(self.life)?;
        let length = length as usize;
        state.grow(self.inode, length)?;
        let inode = &mut state.inodes[self.inode];
        if inode.current.len() < length {
            inode.current.resize(length, 0);
            inode.unsynced.push(Change::Length(length));
        }
        state.finish()
    }

    fn length(&self) -> io::Result<u64> {
        let state = self.disk.state();
        state.alive(self.life)?;
        Ok(state.inodes[self.inode].current.len() as u64)
    }
}

impl Disk for SimDisk {
    fn create_folder(&self, _folder: &Path) -> io::Result<()> {
        let state = self.state();
        state.alive(state.life)
    }

    fn free_bytes(&self, _folder: &Path) -> io::Result<u64> {
        let state = self.state();
        Ok(state.space_bytes.saturating_sub(state.used_bytes()))
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let state = self.state();
        state.alive(state.life)?;
        let inside = state.names.keys().filter(|path| path.parent() == Some(folder));
        Ok(inside.filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned())).collect())
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.state();
        let life = state.life;
        state.alive(life)?;
        let found = state.names.get(path).copied();
        let inode = match (found, access) {
            (Some(inode), Access::Read | Access::Write) => inode,
            (None, Access::Read | Access::Write) => return Err(io::ErrorKind::NotFound.into()),
            (_, Access::Create) => {
                state.change(life)?;
                // Truncating an existing file is modelled as a new file under its name.
                let inode = state.inodes.len();
                state.inodes.push(Inode::default());
                let change = NameChange::Set(path.to_owned(), inode);
                apply(&mut state.names, &change);
                state.unsynced_names.push(change);
                state.finish()?;
                inode
            }
        };
        Ok(Arc::new(SimFile { disk: self.clone(), inode, life }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        let life = state.life;
        state.change(life)?;
        if !state.names.contains_key(from) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let change = NameChange::Rename(from.to_owned(), to.to_owned());
        apply(&mut state.names, &change);
        state.unsynced_names.push(change);
        state.finish()
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        let life = state.life;
        state.change(life)?;
        if !state.names.contains_key(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let change = NameChange::Remove(path.to_owned());
        apply(&mut state.names, &change);
        state.unsynced_names.push(change);
        state.finish()
    }

    fn sync_folder(&self, _folder: &Path) -> io::Result<()> {
        let mut state = self.state();
        let life = state.life;
        if state.change(life)? {
            return state.finish();
        }
        if counted(&mut state.faults.fail_folder_sync_at) {
            return Err(io::Error::other("sync failed"));
        }
        let changes = std::mem::take(&mut state.unsynced_names);
        for change in &changes {
            apply(&mut state.durable_names, change);
        }
        Ok(())
    }

    fn lock(&self, path: &Path, holder: &str) -> io::Result<Locked> {
        let mut state = self.state();
        let life = state.life;
        state.change(life)?;
        if let Some((_, holder)) = state.held.get(path) {
            return Ok(Locked::Held(holder.clone()));
        }
        state.held.insert(path.to_owned(), (life, holder.to_owned()));
        Ok(Locked::Taken(Box::new(SimLock { disk: self.clone(), path: path.to_owned(), life })))
    }
}
