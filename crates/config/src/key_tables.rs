//! The list of keys as the documentation shows it.

use super::keys::{
    ACTIONS, ADMIN, CACHE, CACHING, DRAIN, ENDPOINT, GUARD, JOB, Key, LIMITS, MEMORY, RECORD, REPLY, SERVER,
    Section, TABLE, TOP,
};

/// Every key, default and unit as Markdown tables: (what the keys are of, the table). `docs/configuration.md` holds them.
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
        &TOP, &SERVER, &LIMITS, &RECORD, &MEMORY, &CACHE, &DRAIN, &ADMIN, &TABLE, &ENDPOINT, &CACHING, &JOB,
        &GUARD, &REPLY,
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
