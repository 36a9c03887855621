//! The cost of a request, from the JSON of `forebay load`.

use crate::invalid_figures::InvalidFigures;
use crate::shared::Tester;
use serde_json::Value;

/// One run.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// Answers a second.
    pub rate_per_s: f64,
    /// Bytes of an answer, head included.
    pub answer_bytes: f64,
    /// Microseconds of a core that the server took for a request; `None` without `--monitor`.
    pub cpu_us: Option<f64>,
    /// Joules of the servers' processors for 1,000,000 requests, where they count them (RAPL).
    pub joules_a_million: Option<f64>,
    /// The tester, when it ran on the server's machine.
    pub tester: Option<Tester>,
    /// Whether the server's workers could have done more than the rate of the run.
    has_idle_workers: bool,
    /// Why the figures do not show the server's capacity, if the report says so.
    pub unreliable_because: Option<String>,
}

impl Measured {
    /// Reads a report.
    ///
    /// # Errors
    /// One line that names what the report lacks.
    pub fn read(text: &str) -> Result<Measured, InvalidFigures> {
        let report: Value =
            serde_json::from_str(text).map_err(|error| InvalidFigures::malformed("no JSON", error))?;
        let number = |path: &str| {
            report.pointer(path).and_then(Value::as_f64).ok_or_else(|| format!("the report has no {path}"))
        };
        let (completed, rate_per_s) = (number("/requests/completed")?, number("/requests/rate_per_s")?);
        if completed <= 0.0 {
            return Err("the run has no answer".into());
        }
        let unexpected = number("/requests/unexpected")?;
        let limit = report.pointer("/verdict/limit").and_then(Value::as_str).unwrap_or_default();
        let unreliable_because = if unexpected >= completed {
            Some("no answer of the run was one that it expected".to_owned())
        } else {
            let why = report.pointer("/verdict/why").and_then(Value::as_str).unwrap_or_default();
            (limit == "tester_cpu").then(|| format!("the tester was the limit: {why}"))
        };
        let machines = Machines::of(&report);
        let a_request_us = |percent: f64| percent / 100.0 * 1e6 / rate_per_s;
        let tester =
            machines.shared().map(|(cores, percent)| Tester { cores, cpu_us: a_request_us(percent) });
        let has_idle_workers = match limit {
            "tester_cpu" | "rate_met" | "connections" => true,
            // Cores are used up, but not by the workers alone.
            "server_cpu" | "unknown" => tester.is_some(),
            _ => false,
        };
        Ok(Measured {
            rate_per_s,
            answer_bytes: number("/bytes/read")? / completed,
            cpu_us: machines.servers_cpu_percent().map(a_request_us),
            joules_a_million: machines.servers_watts().map(|watts| watts / rate_per_s * 1e6),
            tester,
            has_idle_workers,
            unreliable_because,
        })
    }

    /// Requests a second of `workers` workers with a core each: computed from the CPU of a request when the
    /// run left the workers idle for a part of the time, else the rate of the run.
    pub fn capacity_per_s(&self, workers: f64) -> f64 {
        match self.cpu_us {
            Some(cpu_us) if self.has_idle_workers => self.rate_per_s.max(workers * 1e6 / cpu_us),
            _ => self.rate_per_s,
        }
    }
}

/// The machines that were watched in a report.
struct Machines<'a> {
    servers: Vec<&'a Value>,
    testers: Vec<&'a Value>,
    /// Whole seconds of the run; the second in which it ended is partly idle and does not count.
    seconds: f64,
}

impl Machines<'_> {
    fn of(report: &Value) -> Machines<'_> {
        let hosts = report.get("hosts").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let of = |role: &str| {
            hosts.iter().filter(|host| host.get("role").and_then(Value::as_str) == Some(role)).collect()
        };
        let duration_s = report.get("duration_s").and_then(Value::as_f64);
        let seconds = duration_s.map_or(f64::INFINITY, |duration_s| (duration_s + 1e-6).floor().max(1.0));
        Machines { servers: of("server"), testers: of("tester"), seconds }
    }

    /// The mean over all seconds, summed over all servers; 100 is one core.
    fn servers_cpu_percent(&self) -> Option<f64> {
        let servers = self.servers.iter();
        servers.filter_map(|host| self.cpu_percent(host)).reduce(|sum, percent| sum + percent)
    }

    /// Watts of all servers together; `None` when one of them does not report any.
    fn servers_watts(&self) -> Option<f64> {
        let watts: Option<Vec<f64>> =
            self.servers.iter().map(|host| self.mean(host, "/extra/watts")).collect();
        watts.filter(|watts| !watts.is_empty()).map(|watts| watts.iter().sum())
    }

    fn cpu_percent(&self, host: &Value) -> Option<f64> {
        self.mean(host, "/process_cpu_percent")
    }

    /// The mean of a figure over all whole seconds.
    fn mean(&self, host: &Value, figure: &str) -> Option<f64> {
        let during = |second: &&Value| {
            second.get("second").and_then(Value::as_f64).is_none_or(|second| second < self.seconds)
        };
        let seconds = host.get("seconds")?.as_array()?.iter().filter(during);
        let figures: Vec<f64> = seconds.filter_map(|second| second.pointer(figure)?.as_f64()).collect();
        (!figures.is_empty()).then(|| figures.iter().sum::<f64>() / figures.len() as f64)
    }

    /// The cores of the machine on which both server and tester ran, and the tester's CPU per cent. The
    /// monitor gives two hosts of one boot id the same name; cores and memory distinguish two machines
    /// that happen to have the same name.
    fn shared(&self) -> Option<(f64, f64)> {
        let (&[server], &[tester]) = (self.servers.as_slice(), self.testers.as_slice()) else { return None };
        let is_same = |key: &str| server.get(key).is_some() && server.get(key) == tester.get(key);
        let is_one = ["name", "cores", "memory_bytes"].into_iter().all(is_same);
        let cores = server.get("cores")?.as_f64().filter(|cores| is_one && *cores > 0.0)?;
        Some((cores, self.cpu_percent(tester)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = r#"{"requests":{"completed":100000,"rate_per_s":10000.0,"unexpected":0},
        "bytes":{"read":20000000,"written":1},"duration_s":2.0,"verdict":{"limit":"server_cpu","why":"full"},
        "hosts":[{"role":"tester","name":"one","cores":4,"memory_bytes":7,"seconds":[
                     {"second":0,"process_cpu_percent":90.0}]},
                 {"role":"server","name":"two","cores":4,"memory_bytes":7,"seconds":[
                     {"second":0,"process_cpu_percent":150.0},{"second":1,"process_cpu_percent":50.0},
                     {"second":2,"process_cpu_percent":3.0}]}]}"#;

    fn read(report: &str) -> Measured {
        Measured::read(report).expect("a report")
    }

    #[test]
    fn a_report_tells_what_a_request_took() {
        // The last second is incomplete and does not count.
        let expected = Measured {
            rate_per_s: 10_000.0,
            answer_bytes: 200.0,
            cpu_us: Some(100.0),
            joules_a_million: None,
            tester: None,
            has_idle_workers: false,
            unreliable_because: None,
        };
        assert_eq!(read(REPORT), expected);
    }

    #[test]
    fn processors_that_count_their_energy_tell_joules() {
        let with = |second: &str| format!("\"process_cpu_percent\":{second},\"extra\":{{\"watts\":80.0}}");
        let both = REPORT
            .replace("\"process_cpu_percent\":150.0", &with("150.0"))
            .replace("\"process_cpu_percent\":50.0", &with("50.0"));
        // 80 W for 10,000 requests a second.
        assert_eq!(read(&both).joules_a_million, Some(8_000.0));
    }

    #[test]
    fn a_tester_on_the_machine_of_the_server_is_seen() {
        let shared = REPORT.replace("\"two\"", "\"one\"");
        assert_eq!(read(&shared).tester, Some(Tester { cores: 4.0, cpu_us: 90.0 }));
        let other = shared.replacen("\"memory_bytes\":7", "\"memory_bytes\":8", 1);
        assert_eq!(read(&other).tester, None);
        assert_eq!(read(&shared.replacen("\"tester\"", "\"other\"", 1)).tester, None);
    }

    #[test]
    fn workers_that_were_idle_for_a_part_count_by_their_cpu() {
        assert_eq!(read(REPORT).capacity_per_s(2.0), 10_000.0);
        let tester = REPORT.replace("server_cpu", "tester_cpu");
        assert_eq!(read(&tester).capacity_per_s(2.0), 20_000.0);
        let shared = REPORT.replace("\"two\"", "\"one\"");
        assert_eq!(read(&shared).capacity_per_s(2.0), 20_000.0);
        assert_eq!(read(&shared.replace("server_cpu", "unknown")).capacity_per_s(2.0), 20_000.0);
        // A server that waits for the database does not get faster by more CPU.
        assert_eq!(read(&shared.replace("server_cpu", "database")).capacity_per_s(2.0), 10_000.0);
        assert_eq!(read(&tester).capacity_per_s(0.5), 10_000.0);
        assert_eq!(read(&tester.replace("\"server\"", "\"other\"")).capacity_per_s(2.0), 10_000.0);
    }

    #[test]
    fn a_run_that_proves_nothing_is_doubted() {
        let tester = REPORT.replace("server_cpu", "tester_cpu");
        assert!(read(&tester).unreliable_because.is_some_and(|why| why.contains("full")));
        let unexpected = REPORT.replace("\"unexpected\":0", "\"unexpected\":100000");
        assert!(read(&unexpected).unreliable_because.is_some());
        let unwatched = REPORT.replace("\"server\"", "\"other\"");
        assert_eq!(read(&unwatched).cpu_us, None);
        assert!(Measured::read("{}").expect_err("no report").to_string().contains("/requests/completed"));
    }
}
