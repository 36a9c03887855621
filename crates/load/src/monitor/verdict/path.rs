//! The network between testers and servers: what it carried before the run, and whether the run filled it.

use super::super::thresholds::PATH_FULL;
use super::run::{WatchedRun, found, percent};
use crate::results::{HostSecond, Limit, Path, Results, Role, Verdict};

/// What was found before the run: the capacity of the network, and clocks that are off.
pub(super) fn before(results: &Results) -> Option<String> {
    let capacity = Capacity::of(&results.paths)?;
    let packets = match (capacity.packets_up, capacity.packets_down) {
        (0.0, 0.0) => String::new(),
        (up, down) => format!(", {up:.0} and {down:.0} packets a second"),
    };
    let off_ms = results.agents.iter().map(|agent| agent.clock_offset_ms.abs()).fold(0.0, f64::max);
    let clocks = if off_ms > 0.0 {
        format!(" The agents' clocks were up to {off_ms:.1} ms off.")
    } else {
        String::new()
    };
    Some(format!(
        " Before the run, the network carried {} to the server and {} from it{packets}.{clocks}",
        megabits(capacity.bits_up),
        megabits(capacity.bits_down)
    ))
}

/// All paths together.
#[derive(Default)]
struct Capacity {
    bits_up: f64,
    bits_down: f64,
    packets_up: f64,
    packets_down: f64,
}

impl Capacity {
    fn of(paths: &[Path]) -> Option<Capacity> {
        let sum = |figure: fn(&Path) -> f64| paths.iter().map(figure).sum();
        (!paths.is_empty()).then(|| Capacity {
            bits_up: sum(|path| path.to_server_bits_per_s),
            bits_down: sum(|path| path.from_server_bits_per_s),
            packets_up: sum(|path| path.to_server_packets_per_s.unwrap_or(0.0)),
            packets_down: sum(|path| path.from_server_packets_per_s.unwrap_or(0.0)),
        })
    }
}

fn megabits(bits_per_s: f64) -> String {
    format!("{:.0} Mbit/s", bits_per_s / 1e6)
}

/// The load is near the rate of the probe, and no machine was used up.
pub(super) fn full(run: &WatchedRun<'_>) -> Option<Verdict> {
    let capacity = Capacity::of(&run.results.paths)?;
    let per_s = |bytes: u64| bytes as f64 * 8.0 / run.results.duration_s.max(f64::MIN_POSITIVE);
    let [written, read] = [run.results.bytes.written, run.results.bytes.read].map(per_s);
    let bits = [("wrote", written, capacity.bits_up), ("read", read, capacity.bits_down)];
    let full = bits.into_iter().find(|(_, used, most)| *most > 0.0 && *used >= PATH_FULL * most);
    if let Some((did, used, most)) = full {
        let why = format!(
            "The testers {did} {}, {} of what the network carried before the run: it takes no more.",
            megabits(used),
            percent(used / most)
        );
        return found(Limit::Network, why);
    }
    // All packets of the run are known only when every tester was watched.
    let testers: Vec<_> = run.of(Role::Tester).collect();
    let sum = |figure: fn(&HostSecond) -> u64| {
        testers.iter().map(|tester| tester.mean(|second| figure(second) as f64)).sum::<f64>()
    };
    let packets = [
        ("sent", sum(|second| second.network_written_packets), capacity.packets_up),
        ("received", sum(|second| second.network_read_packets), capacity.packets_down),
    ];
    let is_full = |(_, used, most): &(&str, f64, f64)| *most > 0.0 && *used >= PATH_FULL * most;
    let (did, used, most) = packets.into_iter().find(is_full)?;
    found(
        Limit::Network,
        format!(
            "The testers {did} {used:.0} packets a second, {} of what the network carried before the run: it takes no more.",
            percent(used / most)
        ),
    )
}
