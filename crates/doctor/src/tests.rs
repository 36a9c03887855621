//! Each check against the files of a machine without problems, and of one with problems.

use crate::{Finding, Fix, Needs, State, System, examine, report, sysctl_file};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// A machine of four cores and one network card, without problems.
const SOUND: &[(&str, &str)] = &[
    (
        "proc/self/limits",
        "Limit Soft Hard Units\nMax open files            1024                1048576              files\n",
    ),
    ("proc/sys/fs/file-max", "9223372036854775807"),
    ("proc/sys/net/core/somaxconn", "4096"),
    ("proc/sys/net/ipv4/tcp_max_syn_backlog", "8192"),
    ("proc/sys/net/ipv4/ip_local_port_range", "32768\t60999"),
    ("proc/meminfo", "MemTotal:       16777216 kB\n"),
    ("proc/self/cgroup", "0::/a/b"),
    ("sys/fs/cgroup/cpu.max", "max 100000"),
    ("sys/fs/cgroup/a/cpu.max", "max 100000"),
    ("sys/fs/cgroup/a/memory.max", "max"),
    ("proc/self/mounts", "/dev/vda / ext4 rw 0 0\n"),
    ("proc/swaps", "Filename Type Size Used Priority"),
    ("proc/sys/vm/swappiness", "60"),
    ("proc/interrupts", "  CPU0 CPU1\n 30: 1 2 PCI eth0-rx-0\n 31: 1 2 PCI eth0-rx-1\n"),
    ("proc/irq/30/effective_affinity_list", "0"),
    ("proc/irq/31/effective_affinity_list", "1"),
    ("sys/class/net/eth0/device/vendor", "0x1"),
    ("sys/class/net/eth0/queues/rx-0/rps_cpus", "0"),
    ("sys/class/net/eth0/queues/rx-1/rps_cpus", "0"),
    ("sys/class/net/eth0/queues/rx-2/rps_cpus", "0"),
    ("sys/class/net/eth0/queues/rx-3/rps_cpus", "0"),
    ("sys/class/net/lo/mtu", "65536"),
    ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance"),
    ("sys/devices/system/cpu/cpu1/online", "1"),
    ("sys/devices/system/cpu/cpu2/online", "1"),
    ("sys/devices/system/cpu/cpu3/online", "1"),
    ("sys/devices/system/cpu/cpufreq/policy", ""),
    ("sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc"),
    ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never"),
    ("run/systemd/timesync/synchronized", ""),
];

fn machine(changes: &[(&str, &str)]) -> TempDir {
    let root = tempfile::tempdir().expect("a folder");
    for (path, text) in SOUND.iter().chain(changes) {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().expect("below the root")).expect("a folder");
        fs::write(path, text).expect("a file");
    }
    root
}

fn examined(root: &Path, data: Option<&Path>) -> Vec<Finding> {
    let needs = Needs { connections: 16_384, memory_bytes: 4 << 30, huge_pages: true, data };
    examine(&System::at(root), &needs)
}

#[test]
fn a_sound_machine_has_nothing_to_mend() {
    let root = machine(&[]);
    for finding in examined(root.path(), None) {
        assert_eq!((finding.state, finding.fix), (State::Well, Fix::Nothing), "{}", finding.subject);
    }
}

#[test]
fn each_fault_is_named_with_its_mend() {
    for (path, text, subject, state, fix) in [
        (
            "proc/self/limits",
            "Max open files 1024 4096 files",
            "open files",
            State::Wrong,
            "LimitNOFILE=17408",
        ),
        ("proc/sys/fs/file-max", "10000", "files of the machine", State::Wrong, "fs.file-max"),
        ("proc/sys/net/core/somaxconn", "128", "accept queue", State::Slow, "net.core.somaxconn"),
        (
            "proc/sys/net/ipv4/tcp_max_syn_backlog",
            "512",
            "handshake queue",
            State::Slow,
            "tcp_max_syn_backlog",
        ),
        ("proc/sys/net/ipv4/ip_local_port_range", "50000 60000", "ports", State::Slow, "1024 65535"),
        ("proc/meminfo", "MemTotal: 4194304 kB", "memory", State::Wrong, "3584MiB"),
        ("sys/fs/cgroup/a/memory.max", "2147483648", "memory", State::Wrong, "1536MiB"),
        ("sys/fs/cgroup/a/b/cpu.max", "150000 100000", "processors", State::Slow, "server.workers = 1"),
        ("proc/swaps", "Filename\n/swap file 1 0 -2", "swap", State::Slow, "vm.swappiness"),
        ("proc/irq/31/effective_affinity_list", "0", "interrupts", State::Slow, "irqbalance"),
        (
            "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
            "powersave",
            "frequency governor",
            State::Slow,
            "cpupower",
        ),
        (
            "sys/devices/system/cpu/cpu4/online",
            "1",
            "receive queues",
            State::Slow,
            "ethtool -L eth0 combined 5",
        ),
        (
            "sys/devices/system/clocksource/clocksource0/current_clocksource",
            "hpet",
            "clock source",
            State::Slow,
            "echo tsc",
        ),
        (
            "sys/kernel/mm/transparent_hugepage/enabled",
            "always madvise [never]",
            "huge pages",
            State::Slow,
            "echo madvise",
        ),
    ] {
        let root = machine(&[(path, text)]);
        let found = examined(root.path(), None);
        let bad: Vec<&Finding> = found.iter().filter(|finding| finding.state != State::Well).collect();
        assert_eq!(bad.len(), 1, "{path}: {bad:?}");
        assert_eq!((bad[0].subject, bad[0].state), (subject, state), "{path}: {bad:?}");
        assert!(!bad[0].cost.is_empty() && format!("{:?}", bad[0].fix).contains(fix), "{path}: {bad:?}");
    }
}

#[test]
fn a_machine_that_tells_nothing_is_not_taken_for_well() {
    let empty = tempfile::tempdir().expect("a folder");
    let findings = examined(empty.path(), None);
    let subjects =
        |state| findings.iter().filter(move |finding| finding.state == state).map(|finding| finding.subject);
    let known: Vec<_> = subjects(State::Well).chain(subjects(State::Wrong)).collect();
    assert_eq!(known, ["processors"], "{findings:?}");
    assert_eq!(subjects(State::Slow).collect::<Vec<_>>(), ["clock"]);
}

#[test]
fn the_disk_is_measured_and_its_kind_is_judged() {
    let data = tempfile::tempdir().expect("a folder");
    let folder = data.path().join("not/made/yet");
    for (kind, state) in
        [("ext4", State::Well), ("nfs4", State::Slow), ("tmpfs", State::Wrong), ("overlay", State::Wrong)]
    {
        let mounts = format!("/dev/vda / ext4 rw 0 0\nx {} {kind} rw 0 0\n", data.path().display());
        let root = machine(&[("proc/self/mounts", &mounts)]);
        let findings = examined(root.path(), Some(&folder));
        let of =
            |subject| findings.iter().find(|finding| finding.subject == subject).expect("it is looked at");
        assert_eq!(of("file system").state, state, "{kind}");
        // The time depends on the disk.
        assert!(of("disk sync").found.contains("ms for 4096 bytes"), "{findings:?}");
    }
    assert_eq!(fs::read_dir(data.path()).expect("the folder").count(), 0, "nothing is left behind");
}

#[test]
fn a_report_fits_80_columns_and_begins_with_the_worst() {
    let root = machine(&[
        ("proc/self/limits", "Max open files 1024 4096 files"),
        ("proc/sys/net/core/somaxconn", "128"),
        ("sys/devices/system/cpu/cpu4/online", "1"),
    ]);
    let text = report(&examined(root.path(), None));
    assert!(text.starts_with("WRONG   open files"), "{text}");
    assert!(text.contains("mend: sysctl -w net.core.somaxconn='4096'"), "{text}");
    for line in text.lines() {
        let is_one_word = line.split_whitespace().count() == 1;
        assert!(line.chars().count() <= 80 || is_one_word, "{line}");
    }
}

#[test]
fn kernel_settings_become_a_file_of_sysctl_d() {
    let root = machine(&[("proc/sys/net/core/somaxconn", "128"), ("proc/swaps", "a\nb")]);
    let file = sysctl_file(&examined(root.path(), None)).expect("two settings");
    let settings: Vec<&str> = file.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(settings, ["net.core.somaxconn = 4096", "vm.swappiness = 1"]);
    assert_eq!(sysctl_file(&examined(machine(&[]).path(), None)), None);
}
