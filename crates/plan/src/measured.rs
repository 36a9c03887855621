//! What a request took, out of the JSON of `forebay load`.

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
    /// Why the figures do not say what the server can do, when the report says so.
    pub doubt: Option<String>,
}

impl Measured {
    /// Reads a report.
    ///
    /// # Errors
    /// One line that names what the report lacks.
    pub fn read(text: &str) -> Result<Measured, String> {
        let report: Value = serde_json::from_str(text).map_err(|error| format!("no JSON: {error}"))?;
        let number = |path: &str| {
            report.pointer(path).and_then(Value::as_f64).ok_or_else(|| format!("the report has no {path}"))
        };
        let (completed, rate_per_s) = (number("/requests/completed")?, number("/requests/rate_per_s")?);
        if completed <= 0.0 {
            return Err("the run has no answer".into());
        }
        let unexpected = number("/requests/unexpected")?;
        let doubt = if unexpected >= completed {
            Some("no answer of the run was one that it expected".to_owned())
        } else {
            let limit = report.pointer("/verdict/limit").and_then(Value::as_str);
            let why = report.pointer("/verdict/why").and_then(Value::as_str).unwrap_or_default();
            limit.filter(|limit| *limit == "tester_cpu").map(|_| format!("the tester was the limit: {why}"))
        };
        let cpu_us = server_cpu_percent(&report).map(|percent| percent / 100.0 * 1e6 / rate_per_s);
        Ok(Measured { rate_per_s, answer_bytes: number("/bytes/read")? / completed, cpu_us, doubt })
    }
}

/// The mean over all seconds, of all servers together; 100 is one core.
fn server_cpu_percent(report: &Value) -> Option<f64> {
    let hosts = report.get("hosts")?.as_array()?;
    let of = |host: &Value| -> Option<f64> {
        let seconds = host.get("seconds")?.as_array()?;
        let all: f64 = seconds.iter().filter_map(|second| second.get("process_cpu_percent")?.as_f64()).sum();
        (!seconds.is_empty()).then(|| all / seconds.len() as f64)
    };
    let servers = hosts.iter().filter(|host| host.get("role").and_then(Value::as_str) == Some("server"));
    servers.filter_map(of).reduce(|sum, percent| sum + percent)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = r#"{"requests":{"completed":100000,"rate_per_s":10000.0,"unexpected":0},
        "bytes":{"read":20000000,"written":1},"verdict":{"limit":"server_cpu","why":"full"},
        "hosts":[{"role":"tester","seconds":[{"process_cpu_percent":90.0}]},
                 {"role":"server","seconds":[{"process_cpu_percent":150.0},{"process_cpu_percent":50.0}]}]}"#;

    #[test]
    fn a_report_tells_what_a_request_took() {
        let measured = Measured::read(REPORT).expect("a report");
        let expected =
            Measured { rate_per_s: 10_000.0, answer_bytes: 200.0, cpu_us: Some(100.0), doubt: None };
        assert_eq!(measured, expected);
    }

    #[test]
    fn a_run_that_proves_nothing_is_doubted() {
        let tester = REPORT.replace("server_cpu", "tester_cpu");
        assert!(Measured::read(&tester).expect("a report").doubt.is_some_and(|why| why.contains("full")));
        let unexpected = REPORT.replace("\"unexpected\":0", "\"unexpected\":100000");
        assert!(Measured::read(&unexpected).expect("a report").doubt.is_some());
        let unwatched = REPORT.replace("\"server\"", "\"other\"");
        assert_eq!(Measured::read(&unwatched).expect("a report").cpu_us, None);
        assert!(Measured::read("{}").expect_err("no report").contains("/requests/completed"));
    }
}
