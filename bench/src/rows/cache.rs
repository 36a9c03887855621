//! Rows 12 and 13: cached answers.

use crate::measure::{Cost, Drive, Sample, beside, cpu, raw, sample};
use crate::process::{Bench, Pinning};
use crate::report::Lines;
use crate::report::{Bar, Line};
use forebay_load::Fixed;
use forebay_tests::{Client, Folder, Server, request_bytes};
use std::error::Error;

/// The same bytes from a constant and from the cache, and a statement that takes a while.
const CONFIG: &str = r#"
[[endpoint]]
route = "GET /simple"
constant = '{"message":"TEXT"}'

[[endpoint]]
route = "GET /cached/{id}"
params = { id = "bigint" }
sql = "SELECT 'TEXT' AS message WHERE $id > 0"
cache = { local = "10m" }

[[endpoint]]
route = "GET /slow/{id}"
params = { id = "bigint" }
sql = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) SELECT $id AS id, count(*) AS count FROM n"
concurrency = 5000
cache = { local = "10m" }
"#;

/// A body of a kilobyte, as an item has.
const TEXT_BYTES: usize = 1_000;

fn start(bench: &Bench, folder: &Folder, pinning: Pinning) -> Server {
    let config = folder.write("cache.toml", &CONFIG.replace("TEXT", &"x".repeat(TEXT_BYTES)));
    bench.start_file(&config, folder, pinning).start()
}

/// Row 12.
pub fn hit(bench: &Bench) -> Lines {
    let folder = Folder::new();
    let server = start(bench, &folder, Pinning::Apart);
    let mut client = server.client();
    let kept = client.get("/cached/1");
    if kept.body != client.get("/simple").body {
        return Err("the two bodies are not the same".into());
    }
    let etag = kept.header("etag").ok_or("no ETag")?.to_owned();
    let requests = [
        Fixed::new("GET", "/simple", None),
        Fixed::new("GET", "/cached/1", None),
        Fixed::raw(request_bytes("GET", "/cached/1", &[("If-None-Match", &etag)], None)),
    ];
    let mut samples: [Vec<Sample>; 3] = Default::default();
    for _ in 0..bench.turns() {
        for (request, samples) in requests.iter().zip(&mut samples) {
            let drive = Drive::new(server.address, bench.core(Pinning::Apart));
            samples.push(sample(bench, drive, Cost::Server(server.pid()), &mut request.clone())?);
        }
    }
    let [simple, hit, unchanged] = samples;
    let bar = || Bar::AtMost(1.15 * cpu(&simple));
    let line = |what: &str, samples: &[Sample], bar: Bar, from: &str| {
        Line::new(what, cpu(samples), "cores/Mrps", bar, from).beside(beside(samples)).samples(raw(samples))
    };
    Ok(vec![
        line("GET /simple of a kilobyte", &simple, Bar::None, ""),
        line("a hit", &hit, bar(), "1.15 × GET /simple"),
        line("304", &unchanged, bar(), "1.15 × GET /simple"),
    ])
}

/// How often the database was queried when a thousand clients sent the same request at once.
fn fills(server: &Server, target: impl Fn(usize) -> String) -> Result<f64, Box<dyn Error>> {
    let counted = || server.admin("GET", "/cache").expect(200)["fills"].as_f64().unwrap_or(f64::NAN);
    let before = counted();
    let mut clients = Vec::new();
    for index in 0..1000 {
        let mut client = Client::connect(server.address)?;
        client.send(&request_bytes("GET", &target(index), &[], None))?;
        clients.push(client);
    }
    for mut client in clients {
        client.receive(false)?.expect(200);
    }
    Ok(counted() - before)
}

/// Row 13.
pub fn stampede(bench: &Bench) -> Lines {
    let folder = Folder::new();
    let server = start(bench, &folder, Pinning::Free);
    let one = fills(&server, |_| "/slow/1".to_owned())?;
    let thousand = fills(&server, |index| format!("/slow/{}", 1000 + index))?;
    Ok(vec![
        Line::new("1,000 misses of one key", one, "queries", Bar::AtMost(1.0), ""),
        Line::new("1,000 misses of 1,000 keys", thousand, "queries", Bar::AtMost(1000.0), ""),
    ])
}
