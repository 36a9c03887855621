//! Driving and sampling.

use crate::machine;
use crate::process::Bench;
use forebay_load::{Results, Settings, Stop, Tls, Traffic, run};
use serde_json::{Value, json};
use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

/// Whose CPU time counts.
#[derive(Clone, Copy, Debug)]
pub enum Cost {
    /// The CPU time of one process.
    Server(u32),
    /// The CPU time of the machine without this program; that of this process is quoted beside it.
    System(u32),
}

impl Cost {
    /// The CPU time so far.
    pub fn cpu_us(self) -> std::io::Result<f64> {
        match self {
            Cost::Server(pid) => machine::process_cpu_us(pid),
            Cost::System(_) => Ok(machine::busy_us()? - machine::process_cpu_us(std::process::id())?),
        }
    }

    fn pid(self) -> u32 {
        match self {
            Cost::Server(pid) | Cost::System(pid) => pid,
        }
    }
}

/// How a server is driven.
#[derive(Clone, Debug)]
pub struct Drive {
    /// The server.
    pub address: SocketAddr,
    pub connections: usize,
    /// Requests under way on each.
    pub pipelining: usize,
    /// The driver's core.
    pub core: Option<usize>,
    /// How connections are encrypted, if they are.
    pub tls: Option<Tls>,
}

impl Drive {
    /// 64 connections, the driver on that core.
    pub fn new(address: SocketAddr, core: Option<usize>) -> Drive {
        Drive { address, connections: 64, pipelining: 1, core, tls: None }
    }

    /// With pipelining.
    pub fn pipelined(self, pipelining: usize) -> Drive {
        Drive { pipelining, ..self }
    }

    /// Over TLS connections of this kind.
    pub fn by_tls(self, tls: Tls) -> Drive {
        Drive { tls: Some(tls), ..self }
    }

    /// The settings of a run of this length.
    pub fn settings(&self, time: Duration) -> Settings {
        Settings {
            connections: self.connections,
            pipelining: self.pipelining,
            tls: self.tls.clone(),
            ..Settings::new(self.address, Stop::After(time))
        }
    }
}

/// The results of one run.
pub struct Sample {
    /// CPU microseconds a request: cores per million requests a second.
    pub cpu_us: f64,
    /// The same for the server's process alone.
    pub server_cpu_us: f64,
    /// The same for everything that this program started: the server with its stores.
    pub started_cpu_us: f64,
    /// The driver's results.
    pub report: Results,
}

impl Sample {
    /// For the JSON file.
    pub fn json(&self) -> Value {
        json!({
            "cpu_us_per_request": self.cpu_us,
            "server_cpu_us_per_request": self.server_cpu_us,
            "started_cpu_us_per_request": self.started_cpu_us,
            "rate_per_s": self.report.requests.rate_per_s,
            "p50_ms": self.report.latency_ms.percentile_ms(50.0),
            "p99_ms": self.report.latency_ms.percentile_ms(99.0),
            "max_ms": self.report.latency_ms.percentile_ms(100.0),
            "completed": self.report.requests.completed,
        })
    }
}

/// Returns a report without errors and with success statuses only; otherwise an error.
pub fn clean(report: Results) -> Result<Results, Box<dyn Error>> {
    if report.is_clean() && report.requests.completed > 0 {
        Ok(report)
    } else {
        Err(format!("not all is well: {report}").into())
    }
}

/// Drives it for the warm-up and then for a sample.
pub fn sample(
    bench: &Bench,
    drive: Drive,
    cost: Cost,
    traffic: &mut (impl Traffic + Send),
) -> Result<Sample, Box<dyn Error>> {
    let clocks = || -> std::io::Result<_> {
        Ok((cost.cpu_us()?, machine::process_cpu_us(cost.pid())?, machine::started_cpu_us()?))
    };
    let (before, report) = machine::on_core(drive.core, || -> std::io::Result<_> {
        run(&drive.settings(bench.warm_up()), traffic)?;
        let before = clocks()?;
        Ok((before, run(&drive.settings(bench.sample()), traffic)?))
    })??;
    let after = clocks()?;
    let report = clean(report)?;
    let requests = report.requests.completed as f64;
    Ok(Sample {
        cpu_us: (after.0 - before.0) / requests,
        server_cpu_us: (after.1 - before.1) / requests,
        started_cpu_us: (after.2 - before.2) / requests,
        report,
    })
}

/// The middle one. Of an even number the lower of the two; none is a mistake of the caller.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[(values.len() - 1) / 2]
}

/// The median of a value over the samples.
pub fn median_of(samples: &[Sample], value: impl Fn(&Sample) -> f64) -> f64 {
    median(samples.iter().map(value).collect())
}

/// Median CPU microseconds a request.
pub fn cpu(samples: &[Sample]) -> f64 {
    median_of(samples, |sample| sample.cpu_us)
}

/// The server's own part of the system's CPU time, with rates and latencies, to be printed beside.
pub fn beside_system(samples: &[Sample]) -> String {
    format!("the server alone {:.2}; {}", median_of(samples, |sample| sample.server_cpu_us), beside(samples))
}

/// As [`beside_system`], with the CPU time of server and stores, which is more reliable than the
/// system's figure when other processes use the machine.
pub fn beside_stores(samples: &[Sample]) -> String {
    let started = median_of(samples, |sample| sample.started_cpu_us);
    format!("with its stores {started:.2}, {}", beside_system(samples))
}

/// Rates and latencies to be printed beside.
pub fn beside(samples: &[Sample]) -> String {
    let rate = median_of(samples, |sample| sample.report.requests.rate_per_s);
    let p99 = median_of(samples, |sample| sample.report.latency_ms.percentile_ms(99.0));
    format!("{rate:.0}/s, p99 {p99:.2} ms")
}

/// All samples for the JSON file.
pub fn raw(samples: &[Sample]) -> Value {
    samples.iter().map(Sample::json).collect()
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn the_middle_one() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![5.0]), 5.0);
        assert_eq!(median(vec![4.0, 1.0]), 1.0);
    }
}
