//! Everything between clients and actions: rates and concurrency, jobs, and proxied upstreams.
//!
//! `upstream` contains the upstreams: real nginx, and sockets that send the bytes that a test chooses.

mod acme;
mod auth;
mod behind_tls;
mod bodies;
mod browsers;
mod changes;
mod clients;
mod codings;
mod files;
mod foreign_pages;
mod heads_first;
mod jobs;
mod kept;
mod limits;
mod logs;
mod metrics;
mod openapi;
mod owners;
mod passed_fields;
mod patience;
mod poisoning;
mod private;
mod proxy;
mod reload;
mod shared;
mod shared_rates;
mod shares;
mod smuggling;
mod spellings;
mod status;
mod takeover;
mod tls;
mod traces;
mod upgrades;
mod upstream;

use forebay_tests::{Folder, Server, Start, Stores, binary};

/// A server of a config, with a folder and stores that exist as long as the server.
struct Front {
    server: Server,
    folder: Folder,
    stores: Stores,
}

impl Front {
    #[track_caller]
    fn start(config: &str) -> Front {
        Front::start_with(config, |start| start)
    }

    #[track_caller]
    fn start_with(config: &str, change: impl FnOnce(Start) -> Start) -> Front {
        let (folder, stores) = (Folder::new(), Stores::new());
        let file = folder.write("front.toml", config);
        let start = change(Start::new(binary(), &folder, &file).stores(&stores, &folder));
        Front { server: start.start(), folder, stores }
    }
}
