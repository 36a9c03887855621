//! Row 27: TLS 1.3 and HTTP/2 beside nginx, with the same certificate, cipher and body.

use super::yardsticks::{Yardstick, certificate, simple_by_tls};
use crate::machine;
use crate::measure::{Cost, Drive, Sample, beside, cpu, median, raw, sample};
use crate::process::{Bench, Pinning, succeeded};
use crate::report::{Bar, Line, Lines};
use forebay_load::{Fixed, Tls};
use forebay_tests::{Folder, Server, request_bytes};
use serde_json::json;
use std::error::Error;
use std::net::SocketAddr;

const CONFIG: &str = r#"
[server.tls]
certificate = "cert.pem"
key = "key.pem"
[[endpoint]]
route = "GET /simple"
constant = { message = "hi" }
"#;

/// Forebay, and its addresses with TLS and without.
fn start(bench: &Bench, folder: &Folder) -> Result<(Server, [SocketAddr; 2]), Box<dyn Error>> {
    let config = folder.write("tls.toml", CONFIG);
    let start = bench.start_file(&config, folder, Pinning::Apart);
    let server = start.listen("https://127.0.0.1:0,127.0.0.1:0").start();
    let address = |scheme: &str| server.address_behind(&format!("listening on {scheme}://"));
    let both = address("https").zip(address("http")).ok_or("it does not listen on both addresses")?;
    Ok((server, both.into()))
}

/// The cipher that a client with OpenSSL's order gets.
fn cipher(bench: &Bench, address: SocketAddr) -> Result<String, Box<dyn Error>> {
    let output = bench
        .pinned("openssl", None)
        .args(["s_client", "-connect", &address.to_string(), "-tls1_3", "-brief"])
        .output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().find_map(|line| line.strip_prefix("Ciphersuite: "));
    Ok(line.ok_or_else(|| format!("openssl: {text}"))?.trim().to_owned())
}

/// TLS 1.3: requests on persistent connections, and each on a new connection with a full handshake.
pub fn by_tls(bench: &Bench) -> Lines {
    let folder = Folder::new();
    certificate(folder.path())?;
    let (server, [address, _]) = start(bench, &folder)?;
    let nginx = Yardstick::nginx(bench, bench.server_core(), |_, address| {
        Ok(simple_by_tls(folder.path(), &format!("listen {address} ssl; ssl_protocols TLSv1.3;")))
    })?;
    let sides = [("nginx", nginx.address, nginx.pid()), ("Forebay", address, server.pid())];
    let ciphers = [cipher(bench, nginx.address)?, cipher(bench, address)?];
    if ciphers[0] != ciphers[1] {
        return Err(format!("nginx and Forebay chose {ciphers:?}").into());
    }
    let tls = || Tls::new("localhost", true, &[]).map(Tls::without_resumption);
    let kept = Fixed::new("GET", "/simple", None);
    let closed = Fixed::raw(request_bytes("GET", "/simple", &[("Connection", "close")], None));
    let mut lines = Vec::new();
    for (what, request) in [("kept connections", kept), ("a full handshake each", closed)] {
        let mut samples: [Vec<Sample>; 2] = Default::default();
        for _ in 0..bench.turns() {
            for ((name, address, pid), samples) in sides.iter().zip(&mut samples) {
                let drive = Drive::new(*address, bench.core(Pinning::Apart)).by_tls(tls()?);
                let sampled = sample(bench, drive, Cost::Server(*pid), &mut request.clone());
                samples.push(sampled.map_err(|error| format!("{name}, {what}: {error}"))?);
            }
        }
        let [nginx, forebay] = samples;
        lines.extend(both(what, &nginx, &forebay, &ciphers[0]));
    }
    Ok(lines)
}

fn both(what: &str, nginx: &[Sample], forebay: &[Sample], cipher: &str) -> [Line; 2] {
    let line = |name: &str, samples: &[Sample], bar: Bar, from: &str| {
        let beside = format!("{}, {cipher}", beside(samples));
        Line::new(format!("{what}, {name}"), cpu(samples), "cores/Mrps", bar, from)
            .beside(beside)
            .samples(raw(samples))
    };
    [line("nginx", nginx, Bar::None, ""), line("Forebay", forebay, Bar::AtMost(cpu(nginx)), "1.0 × nginx")]
}

/// HTTP/2 by h2load: 16 connections of 32 streams, over TLS and without.
pub fn by_http2(bench: &Bench) -> Lines {
    let folder = Folder::new();
    certificate(folder.path())?;
    let (server, addresses) = start(bench, &folder)?;
    let nginx = |scheme: &str| {
        Yardstick::nginx(bench, bench.server_core(), |_, address| {
            let listen = format!("listen {address} {} http2;", if scheme == "https" { "ssl" } else { "" });
            Ok(simple_by_tls(folder.path(), &listen))
        })
    };
    let mut lines = Vec::new();
    for (scheme, address) in ["https", "http"].into_iter().zip(addresses) {
        let nginx = nginx(scheme)?;
        let (mut others, mut ours) = (Vec::new(), Vec::new());
        for _ in 0..bench.turns() {
            others.push(h2load(bench, nginx.pid(), &format!("{scheme}://{}/simple", nginx.address))?);
            ours.push(h2load(bench, server.pid(), &format!("{scheme}://{address}/simple"))?);
        }
        let middle = |turns: &[Turn]| median(turns.iter().map(|turn| turn.cpu_us).collect());
        let line = |name: &str, turns: &[Turn], bar: Bar, from: &str| {
            let rate = median(turns.iter().map(|turn| turn.rate_per_s).collect());
            let raw: Vec<_> = turns.iter().map(|turn| json!([turn.cpu_us, turn.rate_per_s])).collect();
            Line::new(format!("HTTP/2 by {scheme}, {name}"), middle(turns), "cores/Mrps", bar, from)
                .beside(format!("{rate:.0}/s"))
                .samples(raw.into())
        };
        lines.push(line("nginx", &others, Bar::None, ""));
        lines.push(line("Forebay", &ours, Bar::AtMost(middle(&others)), "1.0 × nginx"));
    }
    Ok(lines)
}

/// The rate that h2load reached, and the server's cost.
struct Turn {
    cpu_us: f64,
    rate_per_s: f64,
}

fn h2load(bench: &Bench, pid: u32, url: &str) -> Result<Turn, Box<dyn Error>> {
    // h2load only takes whole seconds.
    let run = |seconds: u64| -> Result<String, Box<dyn Error>> {
        let output = bench
            .pinned("h2load", Some(bench.driver_core))
            .args(["-c", "16", "-m", "32", "-D", &seconds.to_string(), url])
            .output()
            .map_err(|error| format!("h2load: {error}; install it to measure with it"))?;
        succeeded(&output)?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    run(bench.warm_up().as_secs().max(1))?;
    let seconds = bench.sample().as_secs();
    let before = machine::process_cpu_us(pid)?;
    let text = run(seconds)?;
    let spent_us = machine::process_cpu_us(pid)? - before;
    let requests = text.lines().find_map(|line| line.strip_prefix("requests: "));
    // `1 total, 2 started, 3 done, 4 succeeded, 5 failed, 6 errored, 7 timeout`
    let count = |name: &str| {
        let mut parts = requests?.split(", ");
        parts.find_map(|part| part.strip_suffix(name)?.trim().parse::<f64>().ok())
    };
    match (count("succeeded"), count("failed")) {
        (Some(succeeded), Some(0.0)) if succeeded > 0.0 => {
            Ok(Turn { cpu_us: spent_us / succeeded, rate_per_s: succeeded / seconds as f64 })
        }
        _ => Err(format!("h2load: {text}").into()),
    }
}
