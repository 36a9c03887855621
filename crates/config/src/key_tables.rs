//! The keys of all sections, rendered for the documentation.

use crate::sections::action::ACTIONS;
use crate::sections::admin::ADMIN;
use crate::sections::auth::AUTH;
use crate::sections::cache::CACHE;
use crate::sections::cors::CORS;
use crate::sections::database::DATABASE;
use crate::sections::drain::DRAIN;
use crate::sections::endpoint::ENDPOINT;
use crate::sections::endpoint::cache::CACHING;
use crate::sections::endpoint::reply::REPLY;
use crate::sections::file::TOP;
use crate::sections::group::{GROUP, UPSTREAM};
use crate::sections::guard::GUARD;
use crate::sections::job::JOB;
use crate::sections::log::LOG;
use crate::sections::memory::MEMORY;
use crate::sections::server::{LIMITS, SERVER};
use crate::sections::table::TABLE;
use crate::sections::tls::TLS;
use crate::sections::trace::TRACE;
use crate::syntax::keys::{Key, Section};

/// Every key, default and unit as Markdown tables: (the section or action of the keys, the table).
/// `docs/configuration.md` contains them.
pub fn key_tables() -> Vec<(String, String)> {
    let row = |key: &Key| {
        let default = match key.default {
            "" => String::new(),
            words if words.starts_with('(') => words.trim_matches(['(', ')']).to_owned(),
            value => format!("`{value}`"),
        };
        format!("| `{}` | {} | {default} | {} |\n", key.name, key.value, key.what)
    };
    let head = "| key | value | default | meaning |\n|---|---|---|---|\n";
    let section = |section: &Section| {
        (section.name.to_owned(), head.to_owned() + &section.keys.iter().map(row).collect::<String>())
    };
    let sections = [
        &TOP, &SERVER, &LIMITS, &TLS, &DATABASE, &MEMORY, &CACHE, &DRAIN, &ADMIN, &LOG, &TRACE, &AUTH,
        &TABLE, &ENDPOINT, &CACHING, &CORS, &GROUP, &UPSTREAM, &JOB, &GUARD, &REPLY,
    ];
    let mut tables: Vec<_> = sections.into_iter().map(section).collect();
    let mut actions = "| action | with | default | meaning |\n|---|---|---|---|\n".to_owned();
    for known in ACTIONS {
        actions += &format!(
            "| **`{}`** = {} | | | {} |\n",
            known.action.name, known.action.value, known.action.what
        );
        for key in known.with {
            let row = row(key);
            actions += &row.replacen(&format!("| `{}` | ", key.name), &format!("| | `{}` = ", key.name), 1);
        }
    }
    tables.push(("actions".to_owned(), actions));
    tables
}
