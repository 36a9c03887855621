//! The findings, as a config fragment whose comments are the figures.

use crate::statements::{Counted, Gain};
use crate::traffic::{LIVES_S, Route, Traffic};
use std::fmt::Write;

/// The highest number of routes, and of statements, that are shown.
const SHOWN_MAX: usize = 20;
/// A route below this share of all requests is not worth a line.
const SHARE_MIN: f64 = 0.005;
/// A cache is suggested when it answers this share of a route's requests.
const HITS_MIN: f64 = 0.1;
/// The shortest lifetime that answers this share from the cache is chosen.
const HITS_ENOUGH: f64 = 0.5;

/// The fragment. `app` is the URL of the application in front of which Forebay would stand.
pub fn advise(traffic: Option<Traffic>, statements: &[Counted], app: &str) -> String {
    let mut out = String::from(
        "# What could be gained, as `forebay advise` counted it. The fragment passes `forebay check`.\n",
    );
    if let Some(traffic) = traffic {
        of_traffic(traffic, app, &mut out);
    }
    if !statements.is_empty() {
        of_statements(statements, &mut out);
    }
    out
}

fn put(out: &mut String, line: &str) {
    out.push_str(line);
    out.push('\n');
}

fn of_traffic(traffic: Traffic, app: &str, out: &mut String) {
    let (all, others, seconds) = (traffic.requests, traffic.others, traffic.seconds());
    put(
        out,
        &format!(
            "# {all} requests in {seconds:.0} s, {:.1}/s; {others} lines are no request.",
            all as f64 / seconds
        ),
    );
    put(out, "\n[server]\nlisten = \"127.0.0.1:3000\"\n");
    put(out, "# Everything that is not named below goes to the app as it is.");
    put(out, &format!("[[endpoint]]\nroute = \"* /{{path...}}\"\nproxy = \"{app}\"\n"));
    let (mut saved, mut saved_ms, mut unnamed) = (0, 0.0, 0);
    let mut writes = Vec::new();
    for (index, (method, shown, route)) in traffic.routes().into_iter().enumerate() {
        let share = route.requests as f64 / all as f64;
        let Some(shown) = shown else {
            unnamed += route.requests;
            continue;
        };
        if index >= SHOWN_MAX || share < SHARE_MIN {
            continue;
        }
        let what = format!(
            "{method} {shown}: {} requests ({:.1} %), {}/s at the peak{}",
            route.requests,
            share * 100.0,
            route.peak_per_s,
            route.mean_ms().map_or_else(String::new, |mean| format!(", {mean:.1} ms each"))
        );
        match method.as_str() {
            "GET" => {
                put(out, &format!("# {what}."));
                let (hits, hits_ms) = cacheable(&shown, &route, app, out);
                saved += hits;
                saved_ms += hits_ms;
            }
            "POST" | "PUT" | "PATCH" | "DELETE" if route.good > 0 => writes.push(what),
            _ => put(out, &format!("# {what}: nothing to gain.\n")),
        }
    }
    of_writes(&writes, out);
    let time = if saved_ms > 0.0 { format!(", {:.1} s of its time", saved_ms / 1e3) } else { String::new() };
    put(
        out,
        &format!(
            "# Together: {saved} of {all} requests ({:.1} %) would not reach the app{time}.",
            percent(saved, all)
        ),
    );
    if unnamed > 0 {
        put(out, &format!("# {unnamed} requests are for paths that no route can name."));
    }
}

/// Writes the endpoint of a GET. Returns how many requests it saves, and how much time.
fn cacheable(shown: &str, route: &Route, app: &str, out: &mut String) -> (u64, f64) {
    let share = |hits: u64| hits as f64 / route.requests as f64;
    put(
        out,
        &format!("# {} asked for what another request of the same second asked for.", route.at_one_time),
    );
    let enough = (0..LIVES_S.len()).find(|life| share(route.hits[*life]) >= HITS_ENOUGH);
    let best = enough.or_else(|| (0..LIVES_S.len()).rev().find(|life| share(route.hits[*life]) >= HITS_MIN));
    if route.identified > 0 {
        put(out, "# Some of them name who asked: keep the answers only if they are the same for all.\n");
        return (0, 0.0);
    }
    let Some(life) = best else {
        put(
            out,
            &format!(
                "# Too few are asked for again within {} s: a cache gains nothing.\n",
                LIVES_S[LIVES_S.len() - 1]
            ),
        );
        return (0, 0.0);
    };
    let hits = route.hits[life];
    let life_s = LIVES_S[life];
    put(
        out,
        &format!(
            "# Kept for {life_s} s, {hits} of {} ({:.1} %) are answered from memory.",
            route.requests,
            percent(hits, route.requests)
        ),
    );
    put(
        out,
        &format!(
            "[[endpoint]]\nroute = \"GET {shown}\"\nproxy = \"{app}\"\ncache = {{ local = \"{life_s}s\", stale_if_error = \"10m\" }}\n"
        ),
    );
    (hits, hits as f64 * route.mean_ms().unwrap_or_default())
}

fn of_writes(writes: &[String], out: &mut String) {
    if writes.is_empty() {
        return;
    }
    put(
        out,
        "# Write-behind: what these insert or count can be acknowledged from Forebay's log and written in batches, when its table is",
    );
    put(
        out,
        "# a hot one (`forebay init postgres://…` writes those). Writes through the app drop kept answers by `invalidates`.",
    );
    writes.iter().for_each(|what| put(out, &format!("#   {what}")));
    out.push('\n');
}

fn of_statements(statements: &[Counted], out: &mut String) {
    let all_ms: f64 = statements.iter().map(|counted| counted.total_ms).sum();
    put(
        out,
        &format!(
            "\n# The database spent {:.1} s on its {} most expensive statements:",
            all_ms / 1e3,
            statements.len()
        ),
    );
    let mut memory_ms = 0.0;
    for (index, counted) in statements.iter().enumerate() {
        let Some((table, gain)) = counted.gain() else { continue };
        let use_ = match gain {
            Gain::Memory(action) => format!("from memory: {action} = \"{table}\""),
            Gain::Behind(action) => format!("written behind: {action} = \"{table}\""),
            Gain::Cached => "its answer kept: sql = …, cache = { local = \"1s\" }".to_owned(),
        };
        if matches!(gain, Gain::Memory(_)) {
            memory_ms += counted.total_ms;
        }
        if index < SHOWN_MAX {
            let share = counted.total_ms / all_ms.max(f64::MIN_POSITIVE) * 100.0;
            let mean = counted.total_ms / counted.calls.max(1) as f64;
            let query = counted.query.split_whitespace().collect::<Vec<_>>().join(" ");
            let mut short: String = query.chars().take(80).collect();
            if short.len() < query.len() {
                short.push_str(" …");
            }
            writeln!(
                out,
                "#   {share:>5.1} %, {} runs of {mean:.2} ms: {short}\n#            {use_}",
                counted.calls
            )
            .expect("a String takes everything");
        }
    }
    put(
        out,
        &format!(
            "# Rows in memory would save {:.1} s of that ({:.0} %).",
            memory_ms / 1e3,
            memory_ms / all_ms.max(f64::MIN_POSITIVE) * 100.0
        ),
    );
}

fn percent(part: u64, all: u64) -> f64 {
    part as f64 / all.max(1) as f64 * 100.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_config::{Overrides, parse};

    fn line(second: u32, user: &str, request: &str, status: u16) -> String {
        format!(
            "::1 - {user} [10/Oct/2000:13:55:{second:02} +0000] \"{request} HTTP/1.1\" {status} 100 \"-\" \"x\" 0.010"
        )
    }

    #[test]
    fn the_fragment_is_a_config_with_what_it_saves() {
        let mut traffic = Traffic::default();
        for turn in 0..40 {
            traffic.add(&line(turn / 4, "-", "GET /items/7", 200));
            traffic.add(&line(turn / 4, "-", &format!("GET /reports/{turn}"), 200));
            traffic.add(&line(turn / 4, "ann", "GET /me", 200));
            traffic.add(&line(turn / 4, "-", "POST /orders", 201));
        }
        let counted = |query: &str, calls: u64, total_ms: f64| Counted {
            query: query.into(),
            calls,
            total_ms,
            rows: calls,
        };
        let statements = [
            counted("SELECT * FROM items WHERE id = $1", 1_000, 6_000.0),
            counted("INSERT INTO orders (n) VALUES ($1)", 100, 4_000.0),
        ];
        let text = advise(Some(traffic), &statements, "http://127.0.0.1:8080");
        let config = parse("advise.toml", &text, &Overrides::default(), &|_| None);
        let config = config.unwrap_or_else(|errors| panic!("{errors}\n{text}"));
        let routes: Vec<_> = config.endpoints.iter().map(|endpoint| endpoint.route.as_str()).collect();
        assert_eq!(routes, ["/{path...}", "/items/{id}"]);
        for expected in [
            "# 160 requests in 9 s, 17.8/s; 0 lines are no request.",
            "# GET /items/{id}: 40 requests (25.0 %), 4/s at the peak, 10.0 ms each.",
            "# Kept for 1 s, 30 of 40 (75.0 %) are answered from memory.",
            "# Some of them name who asked",
            "#   POST /orders: 40 requests (25.0 %), 4/s at the peak, 10.0 ms each",
            "# Together: 30 of 160 requests (18.8 %) would not reach the app, 0.3 s of its time.",
            "#    60.0 %, 1000 runs of 6.00 ms: SELECT * FROM items WHERE id = $1\n#            from memory: get = \"items\"",
            "written behind: insert = \"orders\"",
            "# Rows in memory would save 6.0 s of that (60 %).",
        ] {
            assert!(text.contains(expected), "{expected}\n{text}");
        }
    }
}
