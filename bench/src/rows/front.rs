//! Row 29: a proxied request, beside HAProxy and nginx; a cached upstream answer, beside nginx with its cache
//! in memory, and Varnish where it is installed.
//!
//! The upstream runs on the driver's core, so that the proxy has the server's core to itself. The upstream
//! is the floor, which costs less than any proxy.

use super::yardsticks::Yardstick;
use crate::machine;
use crate::measure::{Cost, Drive, Sample, beside, cpu, raw, sample};
use crate::process::{Bench, Pinning};
use crate::report::{Bar, Line, Lines};
use forebay_load::{Fixed, Settings, Stop, Traffic, run};
use forebay_tests::{Client, Folder, request_bytes};
use std::error::Error;
use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::process::Command;

/// A body of a kilobyte.
const BODY_BYTES: usize = 1_000;

/// Different targets in the last line.
const KEYS: usize = 10_000;

/// A proxy: its name, where it listens, and the process whose time counts.
type Side = (&'static str, SocketAddr, u32);

/// Samples of every side, in turns.
fn in_turns(
    bench: &Bench,
    sides: &[Side],
    mut traffic: impl Traffic + Send + Clone,
) -> Result<Vec<Vec<Sample>>, Box<dyn Error>> {
    let mut samples: Vec<Vec<Sample>> = sides.iter().map(|_| Vec::new()).collect();
    for _ in 0..bench.turns() {
        for ((name, address, pid), samples) in sides.iter().zip(&mut samples) {
            let drive = Drive::new(*address, bench.core(Pinning::Apart));
            let sampled = sample(bench, drive, Cost::Server(*pid), &mut traffic);
            samples.push(sampled.map_err(|error| format!("{name}: {error}"))?);
        }
    }
    Ok(samples)
}

/// A line for each side. Forebay is the last; its bar is `share` of the named sides.
fn lines(what: &str, sides: &[Side], samples: &[Vec<Sample>], share: f64, bars: &[&str]) -> Vec<Line> {
    let line = |name: &str, samples: &[Sample], bar: Bar, from: String| {
        Line::new(format!("{what}, {name}"), cpu(samples), "cores/Mrps", bar, from)
            .beside(beside(samples))
            .samples(raw(samples))
    };
    let Some((ours, others)) = samples.split_last() else { return Vec::new() };
    let mut lines = Vec::new();
    for ((name, ..), theirs) in sides.iter().zip(others) {
        lines.push(line(name, theirs, Bar::None, String::new()));
    }
    for ((name, ..), theirs) in sides.iter().zip(others).filter(|((name, ..), _)| bars.contains(name)) {
        let bar = Bar::AtMost(share * cpu(theirs));
        lines.push(line("Forebay", ours, bar, format!("{share:.1} × {name}")));
    }
    lines
}

/// An nginx location that adds the same fields as Forebay to a request.
fn nginx_location(upstream: &str, more: &str) -> String {
    format!(
        "location / {{ proxy_pass http://{upstream}; proxy_http_version 1.1; proxy_set_header Connection '';
        proxy_set_header Host $http_host; proxy_set_header Via '1.1 nginx';
        proxy_set_header X-Forwarded-For $remote_addr; proxy_set_header X-Forwarded-Host $http_host;
        proxy_set_header X-Forwarded-Proto $scheme;
        proxy_set_header Forwarded 'for=$remote_addr;host=\"$http_host\";proto=$scheme'; {more} }}"
    )
}

fn haproxy(bench: &Bench, behind: SocketAddr) -> Result<Yardstick, Box<dyn Error>> {
    Yardstick::start(bench, "haproxy", bench.server_core(), |folder, address| {
        let file = folder.join("haproxy.cfg");
        let config = format!(
            "global
    nbthread 1
    maxconn 4096
defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
    option http-keep-alive
    http-reuse always
listen bench
    bind {address}
    http-request set-header X-Forwarded-For %[src]
    http-request set-header X-Forwarded-Host %[req.hdr(host)]
    http-request set-header X-Forwarded-Proto http
    http-request set-header Forwarded \"for=%[src];host=\\\"%[req.hdr(host)]\\\";proto=http\"
    http-request add-header Via \"1.1 haproxy\"
    server behind {behind}
"
        );
        fs::write(&file, config)?;
        Ok(vec!["-db".into(), "-f".into(), file.display().to_string()])
    })
}

/// A proxied request, without a cache, on persistent connections on both sides.
pub fn passed_on(bench: &Bench) -> Lines {
    let floor =
        bench.peer_on("forebay-peer-floor", &["--size", &BODY_BYTES.to_string()], bench.driver_core)?;
    let behind = floor.address;
    let folder = Folder::new();
    let config = format!("[[endpoint]]\nroute = 'GET /item/{{id}}'\nproxy = 'http://{behind}'\n");
    let config = folder.write("passed.toml", &config);
    let server = bench.start_file(&config, &folder, Pinning::Apart).start();
    let nginx = Yardstick::nginx(bench, bench.server_core(), |_, address| {
        let location = nginx_location("behind", "");
        Ok(format!(
            "upstream behind {{ server {behind}; keepalive 256; keepalive_requests 1000000000; }}
            server {{ listen {address}; {location} }}"
        ))
    })?;
    let haproxy = haproxy(bench, behind)?;
    let sides = [
        ("HAProxy", haproxy.address, haproxy.pid()),
        ("nginx", nginx.address, nginx.pid()),
        ("Forebay", server.address, server.pid()),
    ];
    let samples = in_turns(bench, &sides, Fixed::new("GET", "/item/7", None))?;
    Ok(lines("passed on", &sides, &samples, 1.0, &["HAProxy", "nginx"]))
}

/// The origin server of the caches: a cacheable file of a kilobyte under every path.
fn origin(bench: &Bench) -> Result<Yardstick, Box<dyn Error>> {
    Yardstick::nginx(bench, bench.driver_core, |folder, address| {
        fs::write(folder.join("item"), "x".repeat(BODY_BYTES))?;
        Ok(format!(
            "server {{ listen {address}; root {}; location / {{ try_files /item =404; default_type text/plain;
            add_header Cache-Control max-age=3600; }} }}",
            folder.display()
        ))
    })
}

/// A folder in memory; removed when dropped.
struct InMemory(std::path::PathBuf);

impl Drop for InMemory {
    fn drop(&mut self) {
        // An error leaves the folder behind in the machine's memory.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn caching_nginx(bench: &Bench, behind: SocketAddr, kept: &InMemory) -> Result<Yardstick, Box<dyn Error>> {
    Yardstick::nginx(bench, bench.server_core(), |_, address| {
        let location = nginx_location("behind", "proxy_cache kept; proxy_cache_valid 200 1h;");
        Ok(format!(
            "upstream behind {{ server {behind}; keepalive 64; }}
            proxy_cache_path {} levels=1:2 keys_zone=kept:32m max_size=1g inactive=1h use_temp_path=off;
            open_file_cache max=20000 inactive=1h; open_file_cache_min_uses 1; open_file_cache_valid 1h;
            server {{ listen {address}; {location} }}",
            kept.0.display()
        ))
    })
}

fn varnish(bench: &Bench, behind: SocketAddr) -> Result<Option<Yardstick>, Box<dyn Error>> {
    if !Command::new("varnishd").arg("-V").output().is_ok_and(|output| output.status.success()) {
        return Ok(None);
    }
    let varnish = Yardstick::start(bench, "varnishd", bench.server_core(), |folder, address| {
        let at = folder.join("varnish").display().to_string();
        let (address, behind) = (address.to_string(), behind.to_string());
        Ok(["-F", "-n", &at, "-a", &address, "-b", &behind, "-s", "malloc,512m"].map(str::to_owned).to_vec())
    });
    varnish.map(Some)
}

/// Cached answers of a kilobyte: a hit, a 304, and hits of many targets.
pub fn kept(bench: &Bench) -> Lines {
    let origin = origin(bench)?;
    let behind = origin.address;
    let folder = Folder::new();
    let config = format!(
        "[[endpoint]]\nroute = 'GET /item/{{id}}'\nproxy = 'http://{behind}'\ncache = {{ local = '1h' }}\n"
    );
    let config = folder.write("kept.toml", &config);
    let server = bench.start_file(&config, &folder, Pinning::Apart).start();
    let memory = InMemory(format!("/dev/shm/forebay-bench-{}", std::process::id()).into());
    fs::create_dir_all(&memory.0)?;
    let nginx = caching_nginx(bench, behind, &memory)?;
    let varnish = varnish(bench, behind)?;
    let mut sides = vec![("nginx", nginx.address, nginx.pid())];
    if let Some(varnish) = &varnish {
        sides.push(("Varnish", varnish.address, varnish.child_pid()?));
    }
    sides.push(("Forebay", server.address, server.pid()));
    let mut etags = Vec::new();
    for (name, address, _) in &sides {
        fill(bench, *address).map_err(|error| format!("{name}: {error}"))?;
        let answer = Client::connect(*address)?.get("/item/7");
        etags.push(answer.header("etag").ok_or_else(|| format!("{name}: no ETag: {answer:?}"))?.to_owned());
    }
    if etags.iter().any(|etag| *etag != etags[0]) {
        return Err(format!("not the same answers: {etags:?}").into());
    }
    let unchanged = request_bytes("GET", "/item/7", &[("If-None-Match", &etags[0])], None);
    let mut all = Vec::new();
    for (what, traffic) in [("a hit", Fixed::new("GET", "/item/7", None)), ("304", Fixed::raw(unchanged))] {
        let samples = in_turns(bench, &sides, traffic)?;
        all.extend(lines(what, &sides, &samples, 0.5, &["nginx"]));
    }
    let samples = in_turns(bench, &sides, Items::default())?;
    all.extend(lines("hits of 10,000 questions", &sides, &samples, 0.5, &["nginx"]));
    Ok(all)
}

/// Asks for every item once.
fn fill(bench: &Bench, address: SocketAddr) -> Result<(), Box<dyn Error>> {
    let settings = Settings::new(address, Stop::Amount(2 * KEYS as u64));
    let filled = machine::on_core(Some(bench.driver_core), || run(&settings, &mut Items::default()))??;
    crate::measure::clean(filled)?;
    Ok(())
}

/// A GET of each item in turn.
#[derive(Clone, Default)]
struct Items(usize);

impl Traffic for Items {
    fn request(&mut self, _: usize, out: &mut Vec<u8>) {
        self.0 = (self.0 + 1) % KEYS;
        let _written = write!(out, "GET /item/{} HTTP/1.1\r\nHost: localhost\r\n\r\n", self.0);
    }

    fn reads_answers(&self) -> bool {
        false
    }
}
