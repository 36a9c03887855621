//! Posts of usages on the smallest machine: Spring Boot and Go beside Forebay, each row in PostgreSQL.

use super::figure::{Cell, Figure, Figures, cell};
use super::programs;
use crate::machine::ControlGroup;
use crate::measure::{Cost, Drive, sample};
use crate::process::{Bench, Pinning, start_loaded};
use crate::rows::peers::stores::Postgres;
use crate::rows::peers::{Side, why};
use crate::rows::usages::BODY;
use forebay_load::Fixed;
use forebay_tests::Folder;

pub const ABOUT: &str = "\
`POST /api/usages`, closed model, 64 connections; application and PostgreSQL together in a control group of 1 CPU and 2 GiB. Theirs \
insert a row a request and answer when it is committed; Forebay answers when it is synced to its log, and \
writes it into PostgreSQL meanwhile, which is in the CPU time. The document asks for 1,000,000 a minute, \
16,667 a second; its program in Node, which stores nothing, reached 194,004 a minute on 8 CPUs at first and 383,392 in the end [4].";

const WANTED_PER_S: f64 = 1_000_000.0 / 60.0;

fn driven(bench: &Bench, group: &ControlGroup, side: Result<Side, String>) -> Cell {
    let side = side?;
    group.add_family(side.pid).map_err(|error| error.to_string())?;
    let mut request = Fixed::new("POST", "/api/usages", Some(BODY));
    side.warm(bench, &mut request).map_err(|error| why(error.as_ref()))?;
    cell(sample(bench, Drive::new(side.address, None), Cost::System(side.pid), &mut request))
}

pub fn run(bench: &Bench) -> Figures {
    // Created first and so dropped last, when the group is empty.
    let group = ControlGroup::new(1, 2 << 30)?;
    let (postgres, folder) = (Postgres::start()?, Folder::new());
    group.add_family(postgres.pid()?)?;
    let theirs = [programs::SPRING, programs::GO].map(|program| {
        let peer = program.start(&postgres.url()).map_err(|error| why(error.as_ref()));
        (program.name, driven(bench, &group, peer.as_ref().map(Side::from).map_err(Clone::clone)))
    });
    // An existing table would be followed, and the peers' rows would be loaded first.
    postgres.run("DROP TABLE IF EXISTS usages")?;
    let start = bench.start("usages.toml", &folder, Pinning::Free).workers(1).database(&postgres.url());
    let server = start_loaded(&start.set("memory.limit=1GiB")).map_err(|error| why(error.as_ref()));
    let ours = driven(bench, &group, server.as_ref().map(Side::from).map_err(Clone::clone));
    let figure = |(name, theirs): (&str, Cell)| Figure {
        what: format!("POST /api/usages, {name}"),
        published: "3,233/s, then 6,390/s, by Node, which stores nothing [4]",
        theirs,
        ours: ours.clone(),
        wanted_per_s: WANTED_PER_S,
    };
    Ok(theirs.into_iter().map(figure).collect())
}
