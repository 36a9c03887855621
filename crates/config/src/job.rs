//! `[[job]]`: what runs by itself.

use super::cache::tags;
use super::endpoint::is_param_name;
use super::fields::{Fields, milliseconds, name};
use super::keys::JOB;
use super::model::{Dialect, Expr, Literal, Statements};
use super::read::{Data, Mistakes, Node};
use super::size;
use super::sql;

/// `[[job]]`: a statement that runs by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// What it is called: letters, digits and _; no two are called the same.
    pub name: String,
    /// From the beginning of a run to that of the next, in milliseconds.
    pub every_ms: u64,
    /// Each run begins up to so many milliseconds later, at random.
    pub jitter_ms: u64,
    /// The statement.
    pub statements: Statements,
    /// Tags of kept answers that each run drops.
    pub invalidates: Vec<String>,
    /// The line of its `[[job]]`.
    pub line: usize,
}

/// All jobs.
pub(super) fn jobs(node: Option<&Node>, dialect: Dialect, mistakes: &Mistakes<'_>) -> Vec<Job> {
    let Some(node) = node else { return Vec::new() };
    let Data::Array(items) = &node.data else {
        mistakes.add(node.at, "job: write [[job]] with two brackets: there may be several");
        return Vec::new();
    };
    let mut jobs: Vec<Job> = Vec::new();
    for item in items {
        let Some(job) = job(item, dialect, mistakes) else { continue };
        if let Some(other) = jobs.iter().find(|other| other.name == job.name) {
            mistakes.add(item.at, format!("job: the one at line {} is called {} too", other.line, job.name));
        }
        jobs.push(job);
    }
    jobs
}

fn job(node: &Node, dialect: Dialect, mistakes: &Mistakes<'_>) -> Option<Job> {
    let fields = Fields::open(node, &JOB, mistakes);
    let required = |key: &str| {
        if fields.get(key).is_none() {
            mistakes.add(node.at, format!("a job needs `{key}`"));
        }
        fields.get(key)
    };
    required("name");
    let name = fields.read("name", mistakes, |node| {
        let name = name(node)?;
        // It becomes part of a key on Redis.
        match is_param_name(&name) {
            true => Ok(name),
            false => Err(format!("`{name}` must be letters, digits and _, as in refresh_hot")),
        }
    });
    required("every");
    let every_ms = fields.read("every", mistakes, milliseconds);
    let jitter_ms = fields.read("jitter", mistakes, |node| match &node.data {
        Data::Text(text) => size::milliseconds(text),
        _ => Err(format!("must be a time such as \"2s\", not {}", node.kind())),
    });
    if let (Some(every_ms), Some(jitter_ms), Some(at)) = (every_ms, jitter_ms, fields.get("jitter"))
        && jitter_ms > every_ms
    {
        mistakes.add(at.at, "jitter: must not be longer than every");
    }
    let statements = required("sql").and_then(|node| {
        let statements = sql::statements(node, mistakes)?;
        if statements.in_dialect(dialect).is_none() {
            let dialect = dialect.key();
            let what =
                format!("sql: there is no statement for {dialect}, the database that [database] names");
            mistakes.add(node.at, what);
        }
        Some(statements)
    });
    let invalidates = fields.get("invalidates").map(|node| fixed_tags(node, mistakes)).unwrap_or_default();
    let every_ms = every_ms?;
    Some(Job {
        name: name?,
        every_ms,
        // A tenth: enough that servers which start together do not ask together.
        jitter_ms: jitter_ms.unwrap_or(every_ms / 10),
        statements: statements?,
        invalidates,
        line: mistakes.line(node.at),
    })
}

/// Tags without parameters: nobody gives a job any.
fn fixed_tags(node: &Node, mistakes: &Mistakes<'_>) -> Vec<String> {
    let mut fixed = Vec::new();
    for tag in tags("invalidates", node, mistakes) {
        match tag {
            Expr::Literal(Literal::Text(text)) => fixed.push(text),
            _ => mistakes.add(node.at, "invalidates: a job has no parameters, since nobody asks for it"),
        }
    }
    fixed
}
