//! The keys of `[[job]]`.

use super::{Section, key};

pub(in super::super) const JOB: Section = Section {
    name: "[[job]]",
    keys: &[
        key(
            "name",
            "letters, digits and _",
            "",
            "what it is called, on the admin listener and among servers",
        ),
        key("every", "time", "", "from the beginning of a run to that of the next"),
        key("jitter", "time", "(a tenth of `every`)", "each run begins up to this much later, at random"),
        key(
            "sql",
            "text, or { postgres = …, sqlite = … }",
            "",
            "the statement, without parameters, run on the database",
        ),
        key(
            "invalidates",
            "array of texts",
            "[]",
            "tags of kept answers that are dropped, on every server, after each run",
        ),
    ],
};
