//! `[[job]]`: a statement that runs periodically.

use super::action::sql::{self, Statements};
use super::database::Dialect;
use super::tags;
use crate::syntax::expr::{Expr, Literal};
use crate::syntax::fields::{Cursor, milliseconds, milliseconds_or_none, name};
use crate::syntax::keys::{Section, keys};
use crate::syntax::words::is_param_name;

pub(crate) const JOB: Section = Section {
    name: "[[job]]",
    keys: keys! {
        "name" | "letters, digits and _" | "" | "the name of the job, on the admin listener and among servers"
        "every" | "time" | "" | "the time from the start of a run to the start of the next"
        "jitter" | "time" | "(a tenth of `every`)" | "each run starts up to this much later, at random"
        "sql" | "text, or { postgres = …, sqlite = … }" | "" |
            "the statement, without parameters, that runs on the database"
        "invalidates" | "array of texts" | "[]" |
            "tags of cached answers that are dropped, on every server, after each run"
    },
};

/// `[[job]]`: a statement that runs periodically.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// A unique name: letters, digits and _.
    pub name: String,
    /// From the start of a run to the start of the next, in milliseconds.
    pub every_ms: u64,
    /// The start of each run is delayed at random by up to this many milliseconds.
    pub jitter_ms: u64,
    /// The statement of each run.
    pub statements: Statements,
    /// Tags of cached answers that each run invalidates.
    pub invalidates: Vec<String>,
    /// The line of its `[[job]]`.
    pub line: usize,
}

/// Reads all jobs.
pub(crate) fn read(cursor: Option<Cursor<'_>>, dialect: Dialect) -> Vec<Job> {
    let Some(cursor) = cursor else { return Vec::new() };
    let mut jobs: Vec<Job> = Vec::new();
    for item in cursor.items("job: write [[job]] with two brackets: there may be several") {
        let Some(job) = read_job(item, dialect) else { continue };
        if let Some(other) = jobs.iter().find(|other| other.name == job.name) {
            item.wrong(format!("job: the one at line {} is called {} too", other.line, job.name));
        }
        jobs.push(job);
    }
    jobs
}

fn read_job(cursor: Cursor<'_>, dialect: Dialect) -> Option<Job> {
    let fields = cursor.section(&JOB);
    let [name_cursor, every, statements] = ["name", "every", "sql"].map(|key| fields.required("a job", key));
    let name = name_cursor.and_then(|cursor| {
        cursor.read("name", |node| {
            let name = name(node)?;
            // The name becomes part of a key on Redis.
            match is_param_name(&name) {
                true => Ok(name),
                false => Err(format!("`{name}` must be letters, digits and _, as in refresh_hot").into()),
            }
        })
    });
    let every_ms = every.and_then(|cursor| cursor.read("every", milliseconds));
    let jitter_ms = fields.read("jitter", milliseconds_or_none);
    if let (Some(every_ms), Some(jitter_ms)) = (every_ms, jitter_ms)
        && jitter_ms > every_ms
    {
        fields.wrong_at("jitter", "jitter: must not be longer than every");
    }
    let statements = statements.and_then(|cursor| {
        let statements = sql::statements(cursor)?;
        if let Err(what) = statements.check_dialect(dialect) {
            cursor.wrong(what);
        }
        Some(statements)
    });
    let invalidates = fields.get("invalidates").map(fixed_tags).unwrap_or_default();
    let every_ms = every_ms?;
    Some(Job {
        name: name?,
        every_ms,
        // A tenth: enough that servers which start together do not run the job at the same time.
        jitter_ms: jitter_ms.unwrap_or(every_ms / 10),
        statements: statements?,
        invalidates,
        line: cursor.line(),
    })
}

/// Reads tags without parameters: a job has no parameters.
fn fixed_tags(cursor: Cursor<'_>) -> Vec<String> {
    let mut fixed = Vec::new();
    for tag in tags::read("invalidates", cursor) {
        match tag {
            Expr::Literal(Literal::Text(text)) => fixed.push(text),
            _ => cursor.wrong("invalidates: a job has no parameters, since no request asks for it"),
        }
    }
    fixed
}
