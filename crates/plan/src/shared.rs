//! The rate of a machine that also carries the tester: both share its cores.

use crate::scaling::Law;

/// A tester on the server's machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tester {
    /// Cores of the machine.
    pub cores: f64,
    /// Microseconds of a core that the tester took for a request.
    pub cpu_us: f64,
}

impl Tester {
    /// The mean of several runs; `None` when one run had no tester on the server's machine, or the
    /// numbers of cores differ.
    pub fn of_all(testers: &[Option<Tester>]) -> Option<Tester> {
        let testers = testers.iter().copied().collect::<Option<Vec<Tester>>>()?;
        let cores = testers.first()?.cores;
        let is_one_size = testers.iter().all(|tester| tester.cores == cores);
        let cpu_us = testers.iter().map(|tester| tester.cpu_us).sum::<f64>() / testers.len() as f64;
        is_one_size.then_some(Tester { cores, cpu_us })
    }

    /// Requests a second of `workers` workers beside the tester, and whether the cores run out: each request
    /// takes the server's time by the law, and the tester's time. The tester is assumed to have as many
    /// threads as it needs.
    pub fn rate_per_s(&self, law: &Law, workers: f64) -> (f64, bool) {
        let apart_per_s = law.rate_per_s(workers);
        let server_us = workers * 1e6 / apart_per_s;
        let shared_per_s = self.cores * 1e6 / (server_us + self.cpu_us);
        (apart_per_s.min(shared_per_s), shared_per_s < apart_per_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scaling::Point;

    #[test]
    fn the_tester_takes_its_part_of_the_cores() {
        let law = Law::fit(&[Point { workers: 1.0, rate_per_s: 100_000.0 }]).expect("a point");
        let of = |cores, cpu_us, workers| {
            let (rate_per_s, are_cores_full) = Tester { cores, cpu_us }.rate_per_s(&law, workers);
            (rate_per_s.round(), are_cores_full)
        };
        // Each request takes 10 µs of the server and 10 µs of the tester: each of two cores spends
        // half of its time on the tester.
        assert_eq!(of(2.0, 10.0, 2.0), (100_000.0, true));
        // One worker has a core to itself, and so has the tester.
        assert_eq!(of(2.0, 9.0, 1.0), (100_000.0, false));
        assert_eq!(of(8.0, 10.0, 2.0), (200_000.0, false));
    }

    #[test]
    fn runs_on_unlike_machines_have_no_common_tester() {
        let two = |cpu_us| Some(Tester { cores: 2.0, cpu_us });
        assert_eq!(Tester::of_all(&[two(4.0), two(6.0)]), two(5.0));
        assert_eq!(Tester::of_all(&[two(4.0), None]), None);
        assert_eq!(Tester::of_all(&[two(4.0), Some(Tester { cores: 4.0, cpu_us: 4.0 })]), None);
        assert_eq!(Tester::of_all(&[]), None);
    }
}
