//! The seeds, replayed: the published figures of the documents that Forebay is based on, and the same
//! measured here, for their programs and for Forebay. `forebay-bench --seeds` writes `docs/seeds.md`; with
//! `--quick` cells are a second long. Results of quick runs and of selected sections (`--seeds codes
//! valkey`) go to `bench/results/`.
//!
//! One module for each section, each with a table of its runs; `figure` is a row of it, `page` writes the
//! page, `programs` starts the peers that are built for this. A program that cannot be started is named on
//! the page with the reason, and does not stop the others. Published figures stand beside the measured ones,
//! with the number of their source in `page::SOURCES`; an unknown figure is never guessed.

mod accounts;
mod cache;
mod clusters;
mod codes;
mod figure;
mod front;
mod page;
mod programs;
mod testers;
mod usages;
mod valkey;

use crate::machine;
use crate::process::Bench;
use crate::rows::peers::why;
use figure::Figures;
use std::error::Error;

/// A document, or a part of one.
struct Section {
    /// The name by which it is requested.
    name: &'static str,
    title: &'static str,
    /// What runs, under which conditions, and the assumptions of the extrapolation.
    about: &'static str,
    run: fn(&Bench) -> Figures,
}

const SECTIONS: &[Section] = &[
    Section {
        name: "codes",
        title: "A million requests a second: the codes routes",
        about: codes::ABOUT,
        run: codes::run,
    },
    Section {
        name: "clusters",
        title: "The same through a Redis Cluster",
        about: clusters::ABOUT,
        run: clusters::run,
    },
    Section {
        name: "valkey",
        title: "A million operations a second: the Valkey ladder",
        about: valkey::ABOUT,
        run: valkey::run,
    },
    Section { name: "cache", title: "10,000 users: an item four ways", about: cache::ABOUT, run: cache::run },
    Section {
        name: "accounts",
        title: "A single machine: the accounts",
        about: accounts::ABOUT,
        run: accounts::run,
    },
    Section {
        name: "usages",
        title: "A million posts a minute: the usages",
        about: usages::ABOUT,
        run: usages::run,
    },
    Section { name: "front", title: "In front of an application", about: front::ABOUT, run: front::run },
    Section { name: "testers", title: "The testers", about: testers::ABOUT, run: testers::run },
];

/// Whether it is the name of a section.
pub fn is_section(name: &str) -> bool {
    SECTIONS.iter().any(|section| section.name == name)
}

/// Runs these sections, or all of them, and writes the page.
pub fn replay(quick: bool, names: &[String]) -> Result<bool, Box<dyn Error>> {
    let bench = Bench::once(quick)?;
    machine::raise_file_limit();
    let mut page = page::Page::new(quick, names)?;
    let mut all_measured = true;
    let wanted = |section: &&Section| names.is_empty() || names.iter().any(|name| name == section.name);
    for section in SECTIONS.iter().filter(wanted) {
        println!("\n{}", section.title);
        let busy = machine::busy_share();
        let figures = (section.run)(&bench).map_err(|error| why(error.as_ref()));
        all_measured &= figures.is_ok();
        page.section(section.title, section.about, busy, figures);
    }
    page.keep(forebay_tests::root())?;
    Ok(all_measured)
}
