//! Samples of this machine and of copies of `/proc`.

use forebay_host::{Core, Kind, Memory, Sample, Sampler, Tcp};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// A copy of `/proc` of a machine with two cores, one of which has stolen time.
fn copy(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a scratch folder");
    for (name, text) in files {
        let path = folder.path().join(if name.starts_with("class/") { "sys" } else { "proc" }).join(name);
        fs::create_dir_all(path.parent().expect("below the root")).expect("a folder");
        fs::write(path, text).expect("a file");
    }
    folder
}

const FILES: &[(&str, &str)] = &[
    (
        "stat",
        "cpu  300 20 60 4000 10 2 3 500 0 0\ncpu0 100 20 30 2000 5 1 2 0 0 0\ncpu1 200 0 30 2000 5 1 1 500 7 0\nintr 1\n",
    ),
    ("meminfo", "MemTotal:        2048 kB\nMemFree:          10 kB\nMemAvailable:    1024 kB\n"),
    (
        "net/dev",
        "Inter-| Receive\n face |bytes\n    lo: 10 1 0 0 0 0 0 0 10 1 0 0 0 0 0 0\n  eth0:2000 20 0 0 0 0 0 0 3000 30 0 0 0 0 0 0\n",
    ),
    ("net/sockstat", "sockets: used 21\nTCP: inuse 7 orphan 0 tw 2 alloc 1 mem 193\n"),
    ("net/sockstat6", "TCP6: inuse 3\n"),
    ("net/snmp", "Tcp: RtoAlgorithm OutSegs RetransSegs\nTcp: 1 900 9\n"),
    (
        "net/netstat",
        "TcpExt: SyncookiesSent TCPDSACKRecv TCPDSACKOfoRecv\nTcpExt: 5 3 1\nIpExt: InOctets\nIpExt: 8\n",
    ),
    ("pressure/io", "some avg10=0.01 avg60=0.47 avg300=0.61 total=10097025\nfull avg10=0.00 total=5\n"),
    ("class/powercap/intel-rapl/enabled", "1\n"),
    ("class/powercap/intel-rapl:0/name", "package-0\n"),
    ("class/powercap/intel-rapl:0/energy_uj", "5000000\n"),
    ("class/powercap/intel-rapl:0:0/name", "core\n"),
    ("class/powercap/intel-rapl:0:0/energy_uj", "3000000\n"),
    ("class/powercap/intel-rapl:1/name", "package-1\n"),
    ("class/powercap/intel-rapl:1/energy_uj", "2000000\n"),
    ("class/powercap/intel-rapl:2/name", "psys\n"),
    ("class/powercap/intel-rapl:2/energy_uj", "90000000\n"),
    ("class/powercap/intel-rapl-mmio:0/name", "package-0\n"),
    ("class/powercap/intel-rapl-mmio:0/energy_uj", "5000000\n"),
    ("sys/kernel/hostname", "turbine\n"),
    ("sys/kernel/random/boot_id", "b\n"),
    ("self/stat", "9 (a (b) c) R 1 9 9 0 -1 4194304 99 0 0 0 70 30 0 0 20 0 1 0 116040 3133440 380"),
    ("self/status", "Name:\ta\nVmRSS:\t     512 kB\n"),
    ("self/task/9/stat", "9 (worker 1) R 1 9 9 0 -1 4194304 99 0 0 0 60 30 0 0 20 0 1 0 1 1 1"),
];

#[test]
fn every_file_is_read_as_written() {
    let folder = copy(FILES);
    let sample = Sampler::of_copy(folder.path()).sample().expect("a sample");
    let host = &sample.host;
    assert_eq!(
        host.cores,
        [
            Core { user_ms: 1200.0, system_ms: 330.0, steal_ms: 0.0, idle_ms: 20_050.0 },
            Core { user_ms: 2000.0, system_ms: 320.0, steal_ms: 5_000.0, idle_ms: 20_050.0 },
        ]
    );
    assert_eq!(host.memory, Memory { total_bytes: 2 << 20, available_bytes: 1 << 20 });
    let segments =
        Tcp { sent_segments: 900, resent_segments: 9, spurious_resent_segments: 4, ..Tcp::default() };
    assert_eq!(host.tcp, Tcp { in_use: 10, time_wait: 2, ..segments });
    assert_eq!((host.io_stalled_ms, host.energy_uj), (Some(10_097.025), Some(7_000_000)));
    assert_eq!((host.name.as_str(), host.boot_id.as_str()), ("turbine", "b"));
    let names: Vec<_> = host.interfaces.iter().map(|found| (found.name.as_str(), found.loopback)).collect();
    assert_eq!(names, [("eth0", false), ("lo", true)]);
    assert_eq!((host.interfaces[0].sent_bytes, host.interfaces[0].received_packets), (3000, 20));
    assert_eq!((sample.process.cpu_ms, sample.process.resident_bytes), (1000.0, 512 << 10));
    assert_eq!(
        (sample.process.threads[0].name.as_str(), sample.process.threads[0].cpu_ms),
        ("worker 1", 900.0)
    );
}

#[test]
fn what_is_not_linux_is_named() {
    let none = Sampler::of_copy(Path::new("/nowhere")).sample().expect_err("nothing is there");
    assert_eq!(none.kind(), Kind::Unsupported);
    let mut files = FILES.to_vec();
    files[0].1 = "nothing\n";
    let folder = copy(&files);
    let broken = Sampler::of_copy(folder.path()).sample().expect_err("no cores");
    assert_eq!(broken.kind(), Kind::Malformed);
    assert!(broken.to_string().contains("cpu0"), "{broken}");
    let gone = Sampler::new().process(u32::MAX).expect_err("no such process");
    assert_eq!(gone.kind(), Kind::Gone);
}

#[test]
fn this_machine_counts_what_this_test_does() {
    let sampler = Sampler::new();
    let before = sampler.sample().expect("Linux");
    let start = Instant::now();
    let mut after = before.clone();
    // 300 ms, and on a busy machine until the clocks of the process and of one of its threads have
    // moved: they count in ticks of 10 ms, and several threads may share the first tick of the
    // process.
    let has_counted = |after: &Sample| {
        after.process.cpu_ms > before.process.cpu_ms
            && after.process.threads.iter().any(|thread| thread.cpu_ms > 0.0)
    };
    while !has_counted(&after) || start.elapsed() < Duration::from_millis(300) {
        assert!(start.elapsed() < Duration::from_secs(60), "the clock of this process stands still");
        after = sampler.sample().expect("Linux");
    }
    assert!(after.host.uptime_ms - before.host.uptime_ms >= 300.0);
    assert_eq!(before.host.boot_id, after.host.boot_id);
    assert!(after.process.resident_bytes > 0 && after.host.memory.total_bytes > after.process.resident_bytes);
    let text = serde_json::to_string(&after).expect("JSON");
    let back: forebay_host::Sample = serde_json::from_str(&text).expect("the same JSON");
    assert_eq!(back.host.cores.len(), after.host.cores.len());
}
