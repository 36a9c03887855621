//! The table of what was measured, as lines and as a page.

use crate::measure::{Measured, ms};
use crate::normal::Latency;
use crate::sizes::Sizes;
use std::fs;
use std::process::Command;

fn mib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 20))
}

fn pair(alone: Latency, beside: Latency) -> String {
    format!("{} → {} | {} → {}", ms(alone.p50), ms(beside.p50), ms(alone.p99), ms(beside.p99))
}

/// One row of the table.
pub fn line(one: &Measured) -> String {
    let verdict = if one.faults.is_empty() { "holds".to_owned() } else { one.faults.join("; ") };
    format!(
        "| {} | {} | {} | {} | {} | 16 MiB + {} = {} | {} | {} | {verdict} |",
        one.name,
        one.log_name(),
        one.held,
        mib(one.before),
        mib(one.grown),
        one.formula,
        mib(one.bound),
        pair(one.alone.kept, one.beside.kept),
        pair(one.alone.new, one.beside.new),
    )
}

/// What a program prints, without the end of its line.
fn said(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).current_dir(forebay_tests::root()).output();
    output.map_or_else(|_| "?".into(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn machine() -> String {
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib: u64 = memory.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    format!(
        "{cores} cores, {:.0} GiB of memory, Linux {}, {}, commit {}",
        kib as f64 / f64::from(1 << 20),
        said("uname", &["-r"]),
        said("date", &["+%F"]),
        said("git", &["rev-parse", "--short", "HEAD"])
    )
}

/// Writes the page to the file that `FOREBAY_ATTACK_PAGE` names, if it does.
pub fn write(sizes: &Sizes, all: &[Measured]) {
    let Some(path) = std::env::var_os("FOREBAY_ATTACK_PAGE").filter(|path| !path.is_empty()) else { return };
    let rows: Vec<String> = all.iter().map(line).collect();
    let form = if sizes.is_long {
        "The limits are the defaults."
    } else {
        "The limits are those of the short form."
    };
    let text = format!(
        "{}\n{}\n\n{form}\n\n{}\n{}\n",
        TEXT.replace("{floor}", &ms(sizes.floor)),
        machine(),
        HEAD,
        rows.join("\n")
    );
    fs::write(&path, text).unwrap_or_else(|error| panic!("{path:?}: {error}"));
}

const HEAD: &str = "\
| attack | log | held | before | grown | bound | kept p50 | kept p99 | new p50 | new p99 | verdict |
|---|---|---|---|---|---|---|---|---|---|---|";

const TEXT: &str = "\
# Attacks that take memory

Each row is an attack that holds memory of the server: it is opened from 200 addresses of the same
machine and kept open. `make attack` measures them all and writes this page; `make test` measures
them with smaller limits.

* *held*: the connections, requests or callers of the attacker.
* *before*, *grown*: anonymous resident memory of the warmed-up server, and its highest growth while
  the attack was opened and held, in MiB.
* *bound*: what the limits permit, by the names of their keys in
  [configuration](configuration.md#serverlimits), and what the allocator retains (16 MiB), in MiB.
* *kept*, *new*: a normal client beside the attack, on one kept connection and on a new connection
  for each request: alone → beside the attack, in ms. The 99th percentile may be four times that
  alone, and always {floor} ms.
* *log*: the access log, of every request or off.

Measured on:
";
