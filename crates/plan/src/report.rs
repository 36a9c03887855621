//! A plan as text of 80 columns, with the calculation that led to it.

use crate::fleet::{self, Fleet, Resource};
use crate::odds;
use crate::prices::Prices;
use crate::scaling::Law;
use crate::shared::Tester;
use crate::wanted::{Demand, Power};
use std::fmt::Write;

/// Fleets that are shown; the others cost more.
const FLEETS: usize = 5;
/// The mark of a price that was not compared with the provider's page.
const UNVERIFIED: &str = "*";

/// Another program that does the same, with its measured cost.
#[derive(Debug, Clone, PartialEq)]
pub struct Other {
    /// What it is called.
    pub name: String,
    /// Microseconds of a core that a request takes there.
    pub cpu_us: f64,
}

/// The whole plan.
pub fn plan(wanted: &Demand, others: &[Other], prices: &Prices) -> String {
    let mut text = sums(wanted);
    let fleets = fleet::all(wanted, prices);
    let heads = ["machines", "first to run out", "$/month", "$/million", "egress"];
    let [machines, first, month, million, egress] = heads;
    line(&mut text, &format!("\n{machines:<25}{first:<19}{month:>11}{million:>10}{egress:>13}"));
    for fleet in fleets.iter().take(FLEETS) {
        text.push_str(&row(fleet));
    }
    if !others.is_empty() {
        text.push_str("\nthe same requests by others, on what is cheapest for them\n");
    }
    for other in others {
        let wanted = Demand { cpu_us: other.cpu_us, ..*wanted };
        line(&mut text, &format!("{}, {} µs a request", other.name, figure(other.cpu_us)));
        text.extend(fleet::all(&wanted, prices).first().map(row));
    }
    text.push_str("\nthe same requests, billed by the request\n");
    for rival in &prices.rival {
        let dollars = rival.dollars_a_million * wanted.millions_a_month();
        let mark = if rival.verified { "" } else { UNVERIFIED };
        line(
            &mut text,
            &format!("{:<44}{:>11}{:>10}{mark}", rival.name, whole(dollars), price(rival.dollars_a_million)),
        );
    }
    text.push_str(&notes(&fleets, prices));
    text
}

fn line(text: &mut String, what: &str) {
    text.push_str(what);
    text.push('\n');
}

/// The wanted load, in the units of machines.
fn sums(wanted: &Demand) -> String {
    let mut text = String::new();
    let peak = wanted.peak_per_s();
    let growth = match wanted.months {
        0 => String::new(),
        months => format!(
            " ({} now, {:.1} % a month for {months} months)",
            whole(wanted.rate_per_s),
            wanted.growth_a_month * 100.0
        ),
    };
    line(&mut text, &format!("requests   {}/s{growth}", whole(peak)));
    line(
        &mut text,
        &format!(
            "CPU        {} µs a request: {} cores busy, {} at {:.0} %",
            figure(wanted.cpu_us),
            figure(wanted.busy_cores()),
            figure(wanted.busy_cores() / wanted.utilisation),
            wanted.utilisation * 100.0
        ),
    );
    line(
        &mut text,
        &format!(
            "network    {} bytes an answer: {} Gb/s",
            whole(wanted.answer_bytes),
            figure(wanted.network_bits_per_s() / 1e9)
        ),
    );
    let how = match wanted.power {
        Power::Counted(_) => "counted by the processors (RAPL)".to_owned(),
        Power::Model(watts) => format!("a model: {} W a busy core", figure(watts)),
    };
    line(&mut text, &format!("energy     {} J a million requests, {how}", figure(wanted.joules_a_million())));
    text.push_str(&behind(wanted));
    if wanted.rows() > 0.0 {
        let days = figure(wanted.retention_days);
        line(&mut text, &format!("rows       {} in memory after {days} days", whole(wanted.rows())));
        let copies = match wanted.copies {
            1 => "one copy".to_owned(),
            copies => format!("{copies} copies"),
        };
        let gigabytes = odds::memory_bytes(wanted.rows(), wanted.row_bytes) * f64::from(wanted.copies) / 1e9;
        let row_bytes = whole(wanted.row_bytes);
        line(&mut text, &format!("memory     {} GB: {row_bytes} bytes a row, {copies}", figure(gigabytes)));
        let ids_per_s = peak * wanted.write_share;
        line(
            &mut text,
            &format!(
                "UUIDs      even odds of one collision after {} years",
                whole(odds::years_to_even_odds(122, ids_per_s))
            ),
        );
    }
    text
}

/// The memory tier and the database behind the servers. They are not part of the machines above,
/// and may run out before them.
fn behind(wanted: &Demand) -> String {
    let mut text = String::new();
    let (behind, percent) = (wanted.behind, wanted.utilisation * 100.0);
    if let Some(cpu_us) = behind.tier_cpu_us {
        let busy = wanted.peak_per_s() * cpu_us / 1e6;
        let masters = whole((busy / wanted.utilisation).ceil());
        let (cpu, busy) = (figure(cpu_us), figure(busy));
        line(
            &mut text,
            &format!("tier       {cpu} µs a request: {busy} masters busy, {masters} at {percent:.0} %"),
        );
    }
    let rows_per_s = wanted.rows_per_s();
    if let Some(most) = behind.database_rows_per_s {
        let used = format!("{:.0} % of {} that it takes", rows_per_s / most * 100.0, whole(most));
        line(&mut text, &format!("database   {} rows/s: {used}", whole(rows_per_s)));
        if rows_per_s > most {
            let first = whole(most / wanted.write_share);
            line(
                &mut text,
                &format!("           it runs out first: at {first} requests/s its backlog grows"),
            );
        }
    }
    if let Some(bytes) = behind.disk_row_bytes {
        let (days, gigabytes) = (figure(wanted.retention_days), figure(wanted.rows() * bytes / 1e9));
        line(
            &mut text,
            &format!("disk       {gigabytes} GB after {days} days: {} bytes a row", whole(bytes)),
        );
    }
    text
}

fn row(fleet: &Fleet<'_>) -> String {
    let (part, of_all) = fleet.by_part[0];
    let mark = if fleet.machine.verified { "" } else { UNVERIFIED };
    let used = if fleet.count > 0.0 { of_all / fleet.count * 100.0 } else { 0.0 };
    let egress = fleet.egress_dollars_a_month.map_or_else(|| "not priced".into(), whole);
    let name = format!("{} × {}", whole(fleet.count), fleet.machine.name);
    let first = format!("{part} ({used:.0} % used)");
    format!(
        "{name:<25}{first:<19}{:>11}{:>10}{:>13}{mark}\n",
        whole(fleet.dollars_a_month),
        price(fleet.dollars_a_million),
        egress
    )
}

fn notes(fleets: &[Fleet<'_>], prices: &Prices) -> String {
    let mut text = format!("\nprices of {}, in dollars before tax", prices.date);
    let has_unverified = prices.machine.iter().any(|machine| !machine.verified)
        || prices.rival.iter().any(|rival| !rival.verified);
    if has_unverified {
        text.push_str(&format!(
            "; {UNVERIFIED} from memory, not compared\nwith the provider's page: check them before you decide"
        ));
    }
    text.push('\n');
    text.push_str("egress: dollars a month if every answer leaves the provider; not in $/month\n");
    if fleets.first().is_some_and(|fleet| fleet.count > 1.0) {
        text.push_str("more than one machine serves one table only with the memory tier on Redis or\nValkey, whose machines count through memory and copies alone here\n");
    }
    if fleets.first().is_some_and(|fleet| fleet.by_part[0].0 == Resource::Network) {
        text.push_str("the network is the limit: compression or smaller answers save machines, a\nfaster program does not\n");
    }
    text
}

/// A fitted sweep: the measured range and, separately, the extrapolated figures. If the tester ran on the
/// server's machine, also the rate of that machine with both.
pub fn scaling(law: &Law, tester: Option<Tester>, wanted: &[f64]) -> String {
    let mut text = format!(
        "one worker {}/s, serial part {:.2} %, pairs {:.4} %\nmeasured from {} to {} workers",
        whole(law.lambda_per_s),
        law.sigma * 100.0,
        law.kappa * 100.0,
        whole(law.measured.0),
        whole(law.measured.1)
    );
    match law.peak_workers() {
        Some(peak) => writeln!(text, "; most is done by {}", whole(peak)),
        None => writeln!(text, "; each more does more"),
    }
    .unwrap_or_default();
    for &workers in wanted {
        let word = if law.is_extrapolated(workers) { "extrapolated" } else { "within the range" };
        line(
            &mut text,
            &format!("{:>6} workers {:>14}/s  {word}", whole(workers), whole(law.rate_per_s(workers))),
        );
    }
    if let Some(tester) = tester.filter(|_| !wanted.is_empty()) {
        beside_tester(&mut text, law, tester, wanted);
    }
    text
}

fn beside_tester(text: &mut String, law: &Law, tester: Tester, wanted: &[f64]) {
    let (cores, cpu) = (whole(tester.cores), figure(tester.cpu_us));
    line(text, &format!("on the same {cores} cores as the tester, which takes {cpu} µs a request"));
    for &workers in wanted {
        let (rate_per_s, are_cores_full) = tester.rate_per_s(law, workers);
        let first = if are_cores_full { "the cores run out" } else { "the workers run out" };
        line(text, &format!("{:>6} workers {:>14}/s  {first}", whole(workers), whole(rate_per_s)));
    }
}

/// A whole number with thousands separators.
fn whole(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number with three significant digits.
fn figure(number: f64) -> String {
    match number {
        _ if number >= 100.0 => whole(number),
        _ if number >= 10.0 => format!("{number:.1}"),
        _ if number >= 1.0 => format!("{number:.2}"),
        _ => format!("{number:.3}"),
    }
}

fn price(dollars: f64) -> String {
    if dollars >= 0.01 { format!("{dollars:.3}") } else { format!("{dollars:.5}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scaling::Point;
    use crate::wanted::Behind;

    const CODES: Demand = Demand {
        rate_per_s: 1_000_000.0,
        growth_a_month: 0.0,
        months: 0,
        answer_bytes: 32_499.0,
        cpu_us: 134.4,
        utilisation: 0.7,
        write_share: 0.0,
        row_bytes: 0.0,
        retention_days: 0.0,
        copies: 1,
        spare: 0,
        behind: Behind { tier_cpu_us: None, database_rows_per_s: None, disk_row_bytes: None },
        power: Power::Model(5.0),
    };

    #[test]
    fn known_arithmetic() {
        assert_eq!((CODES.network_bits_per_s() / 1e9).round(), 260.0);
        assert_eq!(fleet::per_core_per_s(1e6, 192.0, 0.7).floor(), 7_440.0);
        // 134.4 µs a request is 7,440 requests a second for each core.
        let prices = Prices::read(None).expect("the built-in prices");
        let large = prices.machine.iter().find(|machine| machine.cores == 192.0).expect("192 cores");
        let fleet = fleet::of(&CODES, large, &prices);
        let cpu = fleet.by_part.iter().find(|(part, _)| *part == Resource::Cpu).expect("CPU");
        assert!((cpu.1 - 1.0).abs() < 0.001, "{cpu:?}");
        assert_eq!(fleet.by_part[0].0, Resource::Network, "its network runs out first");
        // 260 Gb/s over 50 Gb/s at 70 %.
        assert_eq!(fleet.count, 8.0);
        assert_eq!((fleet.dollars_a_month * 100.0).round() / 100.0, 8.0 * large.dollars_a_month);
    }

    #[test]
    fn growth_rows_copies_and_spares_count() {
        let wanted = Demand {
            rate_per_s: 1_000.0,
            growth_a_month: 0.1,
            months: 12,
            write_share: 0.1,
            row_bytes: 500.0,
            retention_days: 30.0,
            copies: 2,
            spare: 1,
            cpu_us: 10.0,
            answer_bytes: 200.0,
            ..CODES
        };
        let peak = 1_000.0 * 1.1f64.powi(12);
        assert!((wanted.peak_per_s() - peak).abs() < 1e-6);
        assert!((wanted.rows() - peak * 0.1 * 30.0 * 86_400.0).abs() < 1.0);
        assert!((wanted.memory_bytes() - wanted.rows() * 1_000.0).abs() < 1.0);
        let prices = Prices::read(None).expect("the built-in prices");
        for fleet in fleet::all(&wanted, &prices) {
            assert_eq!(fleet.by_part[0].0, Resource::Memory, "{fleet:?}");
            assert_eq!(fleet.count, fleet.by_part[0].1.ceil() + 1.0, "{fleet:?}");
        }
    }

    #[test]
    fn a_plan_fits_80_columns_and_says_what_is_unverified() {
        let prices = Prices::read(None).expect("the built-in prices");
        let behind = Behind {
            tier_cpu_us: Some(15.8),
            database_rows_per_s: Some(350_000.0),
            disk_row_bytes: Some(617.0),
        };
        let rows = Demand { write_share: 1.0, row_bytes: 500.0, retention_days: 1.0, copies: 3, ..CODES };
        let wanted = Demand { behind, power: Power::Counted(1_234.5), ..rows };
        let others = [Other { name: "Express on one core".into(), cpu_us: 61.1 }];
        for wanted in [CODES, wanted] {
            let text = plan(&wanted, &others, &prices);
            for line in text.lines() {
                assert!(line.chars().count() <= 80, "{line}");
            }
            assert!(text.contains("260 Gb/s") && text.contains("from memory, not compared"), "{text}");
        }
        let text = plan(&wanted, &others, &prices);
        for line in [
            "UUIDs      even odds of one collision after 86,0",
            "energy     1,234 J a million requests, counted by the processors (RAPL)\n",
            "tier       15.8 µs a request: 15.8 masters busy, 23 at 70 %\n",
            "database   1,000,000 rows/s: 286 % of 350,000 that it takes\n",
            "           it runs out first: at 350,000 requests/s its backlog grows\n",
            "disk       53,309 GB after 1.00 days: 617 bytes a row\n",
            "Express on one core, 61.1 µs a request\n",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        // 134.4 s of a core at 5 W.
        assert!(plan(&CODES, &[], &prices).contains("energy     672 J a million requests, a model: 5.00 W"));
    }

    #[test]
    fn a_sweep_says_what_is_extrapolated() {
        let points =
            [(1.0, 1_000.0), (2.0, 1_900.0)].map(|(workers, rate_per_s)| Point { workers, rate_per_s });
        let law = Law::fit(&points).expect("a sweep");
        let text = scaling(&law, None, &[2.0, 4.0]);
        assert!(text.contains("2 workers          1,900/s  within the range"), "{text}");
        assert!(
            text.lines().any(|line| line.contains(" 4 workers") && line.ends_with("extrapolated")),
            "{text}"
        );
    }

    #[test]
    fn a_sweep_beside_its_tester_says_what_both_do_on_one_machine() {
        let law = Law::fit(&[Point { workers: 1.0, rate_per_s: 100_000.0 }]).expect("a point");
        let text = scaling(&law, Some(Tester { cores: 2.0, cpu_us: 9.0 }), &[1.0, 2.0]);
        for line in [
            "     2 workers        200,000/s  extrapolated",
            "on the same 2 cores as the tester, which takes 9.00 µs a request",
            "     1 workers        100,000/s  the workers run out",
            "     2 workers        105,263/s  the cores run out",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
    }

    #[test]
    fn prices_with_a_mistake_are_refused() {
        let built_in = include_str!("../prices.toml");
        for (from, to) in
            [("cores = 2\n", "cores = 0\n"), ("cores = 2\n", "croes = 2\n"), ("date = 2026-11-22", "")]
        {
            assert!(Prices::read(Some(&built_in.replacen(from, to, 1))).is_err(), "{to}");
        }
    }
}
