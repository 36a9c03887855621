//! How long others' commits take until they are served: measured while something else is in trouble.

use crate::environment::number;
use crate::server::{PATIENCE, Server};
use std::thread;
use std::time::{Duration, Instant};

/// The bar of the 99th percentile on a machine that builds and tests other things; `FOREBAY_FRESH_MS` is
/// that of a quiet one.
const P99_MS: u64 = 1000;
/// How many commits each measurement makes, unless `FOREBAY_FRESH_COMMITS` says it.
const COMMITS: u64 = 2;

/// What was measured.
#[derive(Default)]
pub struct Freshness(Vec<Duration>);

impl Freshness {
    /// Commits some times, with a number that is new each time; each route then shows that number at
    /// `pointer`.
    ///
    /// # Errors
    /// The routes that do not show it.
    pub fn measure(
        &mut self,
        server: &Server,
        routes: &[String],
        pointer: &str,
        mut commit: impl FnMut(u64),
    ) -> Result<(), String> {
        let mut client = server.client();
        for _ in 0..number("FOREBAY_FRESH_COMMITS", COMMITS) {
            let mark = self.0.len() as u64 + 1000;
            commit(mark);
            let since = Instant::now();
            let mut open: Vec<&String> = routes.iter().collect();
            while !open.is_empty() {
                if since.elapsed() > PATIENCE {
                    return Err(format!("{open:?} do not show {mark} after {PATIENCE:?}"));
                }
                open.retain(|route| {
                    let answer = client.get(route);
                    let shown = answer.status == 200 && {
                        let found = answer.json().pointer(pointer).map(ToString::to_string);
                        found.is_some_and(|found| found.trim_matches('"') == mark.to_string())
                    };
                    if shown {
                        self.0.push(since.elapsed());
                    }
                    !shown
                });
                thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(())
    }

    /// Prints the percentiles, and asserts the 99th.
    #[track_caller]
    pub fn assert(mut self, beside: &str) {
        self.0.sort_unstable();
        let at = |share: usize| self.0[(self.0.len() - 1) * share / 100];
        let (p50, p99, max) = (at(50), at(99), at(100));
        println!(
            "beside {beside}: {} commits seen after p50 {p50:?}, p99 {p99:?}, max {max:?}",
            self.0.len()
        );
        let bar = Duration::from_millis(number("FOREBAY_FRESH_MS", P99_MS));
        assert!(p99 <= bar, "beside {beside}: p99 {p99:?} is more than {bar:?}");
    }
}
