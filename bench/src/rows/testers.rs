//! The load tester beside other testers: redis-benchmark against Redis, wrk against nginx with TLS.

use super::load::{Turn, beside, beside_wrk, forebay, turn};
use super::peers::stores::{Persistence, Redis};
use super::yardsticks::{Yardstick, certificate, simple_by_tls};
use crate::machine;
use crate::process::{Bench, succeeded};
use crate::report::Lines;
use std::error::Error;
use std::net::SocketAddr;

/// Keys that both draw from: few enough that a GET finds something.
const KEYS: &str = "100000";

/// redis-benchmark for about as long as a sample lasts: answers a second.
fn redis_benchmark(
    bench: &Bench,
    address: SocketAddr,
    command: &str,
    depth: usize,
    amount: u64,
) -> Result<f64, Box<dyn Error>> {
    let output = bench
        .pinned("redis-benchmark", Some(bench.driver_core))
        .args(["-h", "127.0.0.1", "-p", &address.port().to_string(), "-t", command, "-c", "50", "-d", "32"])
        .args(["-r", KEYS, "-P", &depth.to_string(), "-n", &amount.to_string(), "--csv"])
        .output()
        .map_err(|error| format!("redis-benchmark: {error}; install it to measure beside it"))?;
    succeeded(&output)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let named = format!("\"{}\"", command.to_uppercase());
    let line = text.lines().find(|line| line.starts_with(&named));
    let rate = line.and_then(|line| line.split(',').nth(1)?.trim_matches('"').parse().ok());
    rate.ok_or_else(|| format!("redis-benchmark: {text}").into())
}

/// SET and GET at both depths, in turns, each tester on the driver's core and Redis on the other.
/// The same commands, sizes and keys.
pub fn beside_redis_benchmark(bench: &Bench) -> Lines {
    let redis = machine::on_core(Some(bench.server_core()), || {
        Redis::start(Persistence::None).map_err(|error| error.to_string())
    })??;
    let url = redis.url();
    let seconds = bench.sample().as_secs_f64();
    let mut lines = Vec::new();
    for (command, ratio) in [("set", "1:0"), ("get", "0:1")] {
        for depth in [1, 32] {
            let (mut others, mut ours): (Vec<Turn>, Vec<Turn>) = Default::default();
            // redis-benchmark ends by amount: a first, short run shows how many commands last as long
            // as a sample.
            let first = redis_benchmark(bench, redis.address(), command, depth, 20_000)?;
            let amount = (first * seconds) as u64 + 1;
            for _ in 0..bench.turns() {
                let theirs = || redis_benchmark(bench, redis.address(), command, depth, amount);
                others.push(turn(seconds, theirs)?);
                let (time, depth) = (format!("{seconds}s"), depth.to_string());
                let how = ["-c", "50", "-w", "1", "-d", &time, "-p", &depth, "--ratio", ratio];
                let arguments = [&how[..], &["--data-size", "32", "--key-maximum", KEYS, &url]].concat();
                let measured = || {
                    let results = forebay(bench, Some(bench.driver_core), &arguments)?;
                    Ok(crate::measure::clean(results)?.requests.rate_per_s)
                };
                ours.push(turn(seconds, measured)?);
            }
            let what = format!("{} at depth {depth}", command.to_uppercase());
            lines.extend(beside(&what, ("redis-benchmark", &others), &ours, 0.9));
        }
    }
    Ok(lines)
}

/// HTTPS, kept alive: the cost is that of the records.
pub fn beside_wrk_by_tls(bench: &Bench) -> Lines {
    let nginx = Yardstick::nginx(bench, bench.server_core(), |folder, address| {
        certificate(folder)?;
        Ok(simple_by_tls(folder, &format!("listen {address} ssl;")))
    })?;
    let lines = beside_wrk(bench, "HTTPS", &format!("https://{}/", nginx.address), 1)?;
    Ok(lines.into())
}
