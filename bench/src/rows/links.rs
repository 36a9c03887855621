//! Row 20: links are created and followed.

use super::hot::TAKEN_AHEAD;
use crate::measure::{Cost, Drive, Sample, beside_system, cpu, raw, sample};
use crate::process::{Bench, Pinning};
use crate::report::Lines;
use crate::report::{Bar, Line};
use forebay_load::{Fixed, Generated};
use forebay_tests::{Folder, Server};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::error::Error;

const LINKS: usize = 10_000;

/// A server that does not drain, with reserved memory.
fn start(bench: &Bench, folder: &Folder) -> Server {
    bench.start("links.toml", folder, Pinning::Free).set("drain.paused=true").set(TAKEN_AHEAD).start()
}

/// The codes of some links.
fn make_links(server: &Server) -> Result<Vec<String>, Box<dyn Error>> {
    let mut client = server.client();
    (0..LINKS)
        .map(|i| {
            let made = client
                .post_json("/links", &format!("{{\"url\":\"https://example.com/some/path/{i}\"}}"))
                .expect(201);
            made["code"].as_str().map(str::to_owned).ok_or_else(|| format!("no code: {made}").into())
        })
        .collect()
}

/// Row 20. Each sample has its own server.
pub fn shorten_and_follow(bench: &Bench) -> Lines {
    let body = br#"{"url":"https://example.com/a/rather/usual/path?with=a&query=too"}"#;
    let mut samples: [Vec<Sample>; 2] = Default::default();
    for _ in 0..bench.turns() {
        let folder = Folder::new();
        let server = start(bench, &folder);
        let mut post = Fixed::new("POST", "/links", Some(body));
        samples[0].push(sample(
            bench,
            Drive::new(server.address, None),
            Cost::System(server.pid()),
            &mut post,
        )?);
        server.kill();

        let folder = Folder::new();
        let server = start(bench, &folder);
        let codes = make_links(&server)?;
        let mut random = SmallRng::seed_from_u64(7);
        let mut follow = Generated(move |_: usize, out: &mut Vec<u8>| {
            out.extend_from_slice(b"GET /");
            out.extend_from_slice(codes[random.random_range(0..codes.len())].as_bytes());
            out.extend_from_slice(b" HTTP/1.1\r\nHost: localhost\r\n\r\n");
        });
        samples[1].push(sample(
            bench,
            Drive::new(server.address, None),
            Cost::System(server.pid()),
            &mut follow,
        )?);
    }
    let [made, followed] = samples;
    Ok(vec![
        Line::new("POST /links", cpu(&made), "cores/Mrps", Bar::AtMost(11.0), "")
            .beside(beside_system(&made))
            .samples(raw(&made)),
        Line::new("GET /{code} with its click", cpu(&followed), "cores/Mrps", Bar::AtMost(8.0), "")
            .beside(beside_system(&followed))
            .samples(raw(&followed)),
    ])
}
