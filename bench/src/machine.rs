//! Figures from the kernel: CPU time of a process and of the machine, memory, cores, control
//! groups.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn ticks_to_us(ticks: u64) -> f64 {
    ticks as f64 * 1e6 / rustix::param::clock_ticks_per_second() as f64
}

/// CPU time of a process, all threads, user and system, in microseconds (proc(5), `/proc/PID/stat`).
pub fn process_cpu_us(pid: u32) -> io::Result<f64> {
    Ok(ticks_to_us(ticks(pid, 11)?))
}

/// CPU time of this process's descendants that have ended and were waited for.
pub fn ended_cpu_us() -> io::Result<f64> {
    Ok(ticks_to_us(ticks(std::process::id(), 13)?))
}

/// CPU time of a process's threads with this name, user and system, in microseconds.
pub fn thread_cpu_us(pid: u32, name: &str) -> io::Result<f64> {
    let mut sum = 0;
    for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
        let path = entry?.path();
        if fs::read_to_string(path.join("comm"))?.trim() == name {
            sum += ticks_of(&path.join("stat"), 11)?;
        }
    }
    Ok(ticks_to_us(sum))
}

fn ticks(pid: u32, place: usize) -> io::Result<u64> {
    ticks_of(Path::new(&format!("/proc/{pid}/stat")), place)
}

/// The sum of a user time in a `stat` file and the system time after it; `place` is the index of
/// the user time after the name.
fn ticks_of(path: &Path, place: usize) -> io::Result<u64> {
    let text = fs::read_to_string(path)?;
    // The name in parentheses may contain anything; fields are counted after it.
    let rest = text.rsplit_once(')').ok_or_else(|| invalid("/proc/PID/stat"))?.1;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let number = |place: usize| fields.get(place).and_then(|field| field.parse::<u64>().ok());
    let times = number(place).zip(number(place + 1)).ok_or_else(|| invalid("times of /proc/PID/stat"))?;
    Ok(times.0 + times.1)
}

/// Servers that another process started and that [`started_cpu_us`] also counts.
static ADOPTED: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// Counts a process and its descendants as if this process had started them.
pub fn adopt(pid: u32) {
    ADOPTED.lock().unwrap_or_else(PoisonError::into_inner).push(pid);
}

/// CPU time of all processes that this process started or adopted, with their descendants, in
/// microseconds; this process itself is excluded. Ended processes count in the clock of the parent
/// that waited for them. Unlike [`busy_us`], the result includes neither other processes of the
/// machine nor the kernel's threads.
pub fn started_cpu_us() -> io::Result<f64> {
    let processes = processes()?;
    let mut roots = ADOPTED.lock().unwrap_or_else(PoisonError::into_inner).clone();
    roots.push(std::process::id());
    let counted = family_of(&processes, roots);
    let counted = counted.iter().filter(|pid| **pid != std::process::id());
    let ticks =
        |pid: &u32| processes.iter().find(|process| process.pid == *pid).map_or(0, |process| process.ticks);
    Ok(ticks_to_us(counted.map(ticks).sum()))
}

/// A process, from `/proc`.
struct Process {
    pid: u32,
    parent: u32,
    /// User and system time, including children that were waited for.
    ticks: u64,
}

fn processes() -> io::Result<Vec<Process>> {
    let mut processes = Vec::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // A process may have ended since the folder was read.
        let Ok(text) = fs::read_to_string(entry.path().join("stat")) else { continue };
        let Some((_, rest)) = text.rsplit_once(')') else { continue };
        let fields: Vec<u64> = rest.split_whitespace().map(|field| field.parse().unwrap_or(0)).collect();
        if let (Some(parent), Some(ticks)) = (fields.get(1), fields.get(11..15)) {
            processes.push(Process { pid, parent: *parent as u32, ticks: ticks.iter().sum() });
        }
    }
    Ok(processes)
}

/// These processes and their descendants.
fn family_of(processes: &[Process], mut family: Vec<u32>) -> Vec<u32> {
    let mut place = 0;
    while let Some(&parent) = family.get(place) {
        family.extend(processes.iter().filter(|process| process.parent == parent).map(|process| process.pid));
        place += 1;
    }
    family
}

/// A process and its descendants.
fn family(pid: u32) -> io::Result<Vec<u32>> {
    Ok(family_of(&processes()?, vec![pid]))
}

/// ESRCH.
const NO_SUCH_PROCESS: i32 = 3;

/// Time that any core was busy, in microseconds (proc(5), `/proc/stat`): user, nice, system, irq,
/// softirq. Time that a hypervisor took away does not count.
pub fn busy_us() -> io::Result<f64> {
    let text = fs::read_to_string("/proc/stat")?;
    let line = text.lines().next().ok_or_else(|| invalid("/proc/stat"))?;
    let fields: Vec<u64> = line.split_whitespace().skip(1).filter_map(|field| field.parse().ok()).collect();
    let &[user, nice, system, _idle, _iowait, irq, softirq, ..] = fields.as_slice() else {
        return Err(invalid("/proc/stat"));
    };
    Ok(ticks_to_us(user + nice + system + irq + softirq))
}

/// Resident memory of a process, in bytes.
pub fn resident_bytes(pid: u32) -> io::Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = text.lines().find(|line| line.starts_with("VmRSS:")).ok_or_else(|| invalid("VmRSS"))?;
    let kib = line.split_whitespace().nth(1).and_then(|field| field.parse::<u64>().ok());
    Ok(kib.ok_or_else(|| invalid("VmRSS"))? * 1024)
}

/// Cores that this process may use.
pub fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Runs `work` on a thread pinned to one core; `None`: not pinned.
pub fn on_core<T: Send>(core: Option<usize>, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = scope.spawn(move || {
            if let Some(core) = core {
                let mut set = CpuSet::new();
                set.set(core);
                sched_setaffinity(None, &set)?;
            }
            Ok(work())
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Two different cores for driver and server, in this order; the same core twice when there is only
/// one.
pub fn two_cores() -> io::Result<(usize, usize)> {
    let set = sched_getaffinity(None)?;
    let mut cores = (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core));
    let first = cores.next().ok_or_else(|| invalid("no core"))?;
    Ok((first, cores.next().unwrap_or(first)))
}

/// Raises the limit of open files as far as the kernel allows, for ten thousand connections.
pub fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, wanted) {
        eprintln!("the limit of open files stays as it is: {error}");
    }
}

/// Prints a warning when other processes use CPU: the measurements are then unreliable.
pub fn warn_when_busy() {
    if let Some(share) = busy_share() {
        println!("  the machine is not idle: something else uses {:.0} % of a core", share * 100.0);
    }
}

/// The part of a core that other processes use; `None` when it is no more than on an idle machine.
pub fn busy_share() -> Option<f64> {
    let time = Duration::from_millis(400);
    let others_us = || Some(busy_us().ok()? - process_cpu_us(std::process::id()).ok()?);
    let before = others_us()?;
    thread::sleep(time);
    let share = (others_us()? - before) / time.as_micros() as f64;
    (share > 0.15).then_some(share)
}

/// A control group with limits of CPU and memory, removed when dropped.
pub struct ControlGroup {
    folders: Vec<PathBuf>,
    unified: bool,
}

/// The period of the CPU quota, in microseconds.
const PERIOD_US: usize = 100_000;

impl ControlGroup {
    /// Creates a group, in version 2 or 1 of the interface, whichever this machine has.
    pub fn new(cpus: usize, memory_bytes: u64) -> io::Result<ControlGroup> {
        let name = format!("forebay-bench-{}", std::process::id());
        let root = Path::new("/sys/fs/cgroup");
        let unified = root.join("cgroup.controllers").exists();
        let mut group = ControlGroup { folders: Vec::new(), unified };
        let controllers: &[&str] = if unified { &[""] } else { &["cpu", "memory"] };
        for controller in controllers {
            let folder = root.join(controller).join(&name);
            fs::create_dir(&folder)?;
            group.folders.push(folder);
        }
        group.resize(cpus, memory_bytes)?;
        Ok(group)
    }

    /// Changes its limits.
    pub fn resize(&self, cpus: usize, memory_bytes: u64) -> io::Result<()> {
        let (quota_us, memory) = (PERIOD_US * cpus, memory_bytes.to_string());
        if self.unified {
            fs::write(self.folders[0].join("cpu.max"), format!("{quota_us} {PERIOD_US}"))?;
            return fs::write(self.folders[0].join("memory.max"), memory);
        }
        fs::write(self.folders[0].join("cpu.cfs_period_us"), PERIOD_US.to_string())?;
        fs::write(self.folders[0].join("cpu.cfs_quota_us"), quota_us.to_string())?;
        fs::write(self.folders[1].join("memory.limit_in_bytes"), memory)
    }

    /// Moves a process into it, all threads.
    pub fn add(&self, pid: u32) -> io::Result<()> {
        self.folders.iter().try_for_each(|folder| fs::write(folder.join("cgroup.procs"), pid.to_string()))
    }

    /// Moves a process and its descendants into the group.
    pub fn add_family(&self, pid: u32) -> io::Result<()> {
        family(pid)?.into_iter().try_for_each(|pid| match self.add(pid) {
            // A process that has ended meanwhile is skipped.
            Err(error) if error.raw_os_error() == Some(NO_SUCH_PROCESS) => Ok(()),
            added => added,
        })
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        for folder in &self.folders {
            // Adopted processes continue without limits.
            let members = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
            let parent = folder.parent().unwrap_or(folder).join("cgroup.procs");
            for pid in members.lines() {
                // An error means that the process has ended.
                let _ = fs::write(&parent, pid);
            }
            // A group can only be removed when its last process has been reaped, which may take a
            // moment.
            for _ in 0..50 {
                if fs::remove_dir(folder).is_ok() {
                    break;
                }
                thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

/// One line about this machine, for the report.
pub fn describe() -> String {
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let info = text("/proc/cpuinfo");
    let model =
        info.lines().find(|line| line.starts_with("model name")).and_then(|line| line.split(": ").nth(1));
    let memory = text("/proc/meminfo").split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok());
    format!(
        "{}, {} cores, {} GiB, Linux {}",
        model.unwrap_or("unknown CPU"),
        cores(),
        memory.unwrap_or(0) >> 20,
        text("/proc/sys/kernel/osrelease").trim()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn cpu_time_grows_with_work() {
        let own = std::process::id();
        let (before, busy_before) = (process_cpu_us(own).unwrap(), busy_us().unwrap());
        let began = Instant::now();
        // Loops until the CPU clock of the process has moved by 100 ms; sleeping would not move it.
        while process_cpu_us(own).unwrap() - before < 100_000.0 {
            assert!(began.elapsed() < Duration::from_secs(20), "the clock of this process stands still");
        }
        assert!(busy_us().unwrap() > busy_before);
    }

    #[test]
    fn what_children_spend_is_seen() {
        let before = started_cpu_us().unwrap();
        let mut child =
            std::process::Command::new("sh").args(["-c", "while :; do :; done & wait"]).spawn().unwrap();
        let began = Instant::now();
        while started_cpu_us().unwrap() - before < 100_000.0 {
            assert!(began.elapsed() < Duration::from_secs(20), "the clock of the children stands still");
        }
        // The loop is a grandchild, so it does not end with the shell and is killed separately.
        let id = child.id().to_string();
        std::process::Command::new("pkill").args(["-P", &id]).status().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn memory_is_seen() {
        let own = std::process::id();
        let before = resident_bytes(own).unwrap();
        let block = vec![1u8; 64 << 20];
        let after = resident_bytes(own).unwrap();
        assert!(after >= before + (60 << 20), "{before} → {after} with {} bytes more", block.len());
    }

    #[test]
    fn a_thread_stays_on_its_core() {
        let (first, _) = two_cores().unwrap();
        let set = on_core(Some(first), || sched_getaffinity(None).unwrap()).unwrap();
        assert!(set.is_set(first) && set.count() == 1);
        assert!(on_core(None, || 7).unwrap() == 7);
    }
}
