//! Reads the files and builds a sample from them.

use crate::limits::{INTERFACES_MAX, THREADS_MAX};
use crate::{Error, Host, Interface, InterfaceQueue, Kind, Process, Sample, Thread, proc};
use rustix::time::{ClockId, clock_gettime};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Takes samples. Cheap to create; holds no file open.
#[derive(Clone, Debug)]
pub struct Sampler {
    proc: PathBuf,
    sys: PathBuf,
    /// Whether these are the files of the running system; a copy of them has no queues.
    live: bool,
}

impl Default for Sampler {
    fn default() -> Sampler {
        Sampler::new()
    }
}

impl Sampler {
    /// A sampler of this machine.
    pub fn new() -> Sampler {
        Sampler { proc: "/proc".into(), sys: "/sys".into(), live: true }
    }

    /// A sampler of a copy of `/proc` and `/sys` below `root`.
    pub fn of_copy(root: &Path) -> Sampler {
        Sampler { proc: root.join("proc"), sys: root.join("sys"), live: false }
    }

    /// Samples this machine and this process.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] where there is no `/proc` as Linux has it.
    pub fn sample(&self) -> Result<Sample, Error> {
        Ok(Sample { host: self.host()?, process: self.process(std::process::id())?, server: None })
    }

    /// Samples the machine without a process.
    ///
    /// # Errors
    /// As [`Sampler::sample`].
    pub fn host(&self) -> Result<Host, Error> {
        let stat = self.proc.join("stat");
        let meminfo = self.proc.join("meminfo");
        let cores = proc::cores(&read(&stat)?, tick_ms());
        let memory = proc::memory(&read(&meminfo)?);
        Ok(Host {
            name: self.text("sys/kernel/hostname"),
            boot_id: self.text("sys/kernel/random/boot_id"),
            uptime_ms: uptime_ms(),
            cores: cores.ok_or_else(|| Error::malformed(&stat, "it has no lines cpu0, cpu1, …"))?,
            memory: memory.ok_or_else(|| Error::malformed(&meminfo, "MemAvailable is missing"))?,
            interfaces: self.interfaces(),
            tcp: proc::tcp(
                &self.text("net/sockstat"),
                &self.text("net/sockstat6"),
                &self.text("net/snmp"),
                &self.text("net/netstat"),
            )
            .unwrap_or_default(),
            io_stalled_ms: proc::stalled_ms(&self.text("pressure/io")),
            energy_uj: self.energy_uj(),
        })
    }

    /// Samples a process of this machine.
    ///
    /// # Errors
    /// [`Kind::Gone`] when there is no process with that number.
    pub fn process(&self, id: u32) -> Result<Process, Error> {
        // A copy of `/proc` contains one process, as `self`.
        let folder = self.proc.join(if self.live { id.to_string() } else { "self".into() });
        let stat = folder.join("stat");
        let text = fs::read_to_string(&stat).map_err(|source| Error::read(Kind::Gone, &stat, source))?;
        let (_, cpu_ms) = proc::name_and_cpu_ms(&text, tick_ms())
            .ok_or_else(|| Error::malformed(&stat, "fields 14 and 15 should be ticks"))?;
        let status = fs::read_to_string(folder.join("status")).unwrap_or_default();
        Ok(Process {
            id,
            cpu_ms,
            resident_bytes: proc::resident_bytes(&status),
            threads: threads(&folder.join("task")),
        })
    }

    /// The text of a file, empty when it does not exist.
    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.proc.join(name)).map(|text| text.trim_end().to_owned()).unwrap_or_default()
    }

    /// Sums the packages. They include the counters of their parts, and the counter of the platform (`psys`)
    /// includes the packages.
    fn energy_uj(&self) -> Option<u64> {
        let zones = fs::read_dir(self.sys.join("class/powercap")).ok()?.filter_map(Result::ok);
        let of_package = |zone: fs::DirEntry| {
            // Other zones report the same packages through other registers (`intel-rapl-mmio:0`).
            let is_rapl = zone.file_name().to_str()?.starts_with("intel-rapl:");
            let read = |file: &str| fs::read_to_string(zone.path().join(file)).ok();
            read("name").filter(|name| is_rapl && name.starts_with("package-"))?;
            read("energy_uj")?.trim().parse::<u64>().ok()
        };
        zones.filter_map(of_package).reduce(|sum, package| sum + package)
    }

    fn interfaces(&self) -> Vec<Interface> {
        let mut interfaces = proc::interfaces(&self.text("net/dev"));
        interfaces.retain(|interface| interface.received_bytes + interface.sent_bytes > 0);
        // The busiest first: when there are very many, only these are shown.
        interfaces
            .sort_by_key(|interface| std::cmp::Reverse(interface.received_bytes + interface.sent_bytes));
        interfaces.truncate(INTERFACES_MAX);
        let queues = if self.live { queues() } else { HashMap::new() };
        for interface in &mut interfaces {
            let folder = self.sys.join("class/net").join(&interface.name);
            let number = |file: &str| fs::read_to_string(folder.join(file)).ok()?.trim().parse::<i64>().ok();
            // 772 is ARPHRD_LOOPBACK; for a copy without /sys the name decides.
            interface.loopback = number("type").map_or(interface.name == "lo", |kind| kind == 772);
            interface.speed_mbit =
                number("speed").and_then(|speed| u64::try_from(speed).ok()).filter(|s| *s > 0);
            interface.queue = number("ifindex")
                .and_then(|index| u32::try_from(index).ok())
                .and_then(|index| queues.get(&index).copied());
        }
        interfaces.sort_by(|a, b| a.name.cmp(&b.name));
        interfaces
    }
}

fn threads(folder: &Path) -> Vec<Thread> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut threads: Vec<Thread> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let id = entry.file_name().to_str()?.parse().ok()?;
            // A thread may end between the listing and the reading.
            let text = fs::read_to_string(entry.path().join("stat")).ok()?;
            let (name, cpu_ms) = proc::name_and_cpu_ms(&text, tick_ms())?;
            Some(Thread { id, name, cpu_ms })
        })
        .collect();
    threads.sort_by(|a, b| b.cpu_ms.total_cmp(&a.cpu_ms));
    threads.truncate(THREADS_MAX);
    threads.sort_by_key(|thread| thread.id);
    threads
}

#[cfg(target_os = "linux")]
fn queues() -> HashMap<u32, InterfaceQueue> {
    crate::interface_queues::queues()
}

#[cfg(not(target_os = "linux"))]
fn queues() -> HashMap<u32, InterfaceQueue> {
    HashMap::new()
}

fn read(path: &Path) -> Result<String, Error> {
    fs::read_to_string(path).map_err(|source| Error::read(Kind::Unsupported, path, source))
}

fn tick_ms() -> f64 {
    1_000.0 / rustix::param::clock_ticks_per_second() as f64
}

#[cfg(target_os = "linux")]
fn uptime_ms() -> f64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec as f64 * 1e3 + now.tv_nsec as f64 / 1e6
}

#[cfg(not(target_os = "linux"))]
fn uptime_ms() -> f64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as f64 * 1e3 + now.tv_nsec as f64 / 1e6
}
