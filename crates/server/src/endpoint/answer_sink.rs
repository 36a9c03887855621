//! Where an answer goes: straight into the connection ([`Answer`]) when the endpoint could answer at once,
//! or into an owned [`Reply`] when it had to wait. Actions are written once, against [`Out`].

use crate::problem::Problem;
use forebay_http::{Answer, Head, HeaderLines, Reply};
use forebay_log::Position;
use std::sync::{Arc, LazyLock};

/// A receiver of exactly one answer.
pub trait Out {
    /// Holds the answer back until the log is durable up to this position.
    fn hold_until(&mut self, position: Position);

    /// Writes the answer: its head, further header lines, and a body that is written in place. `length_hint`
    /// is the expected length of the body in bytes.
    fn respond(
        &mut self,
        head: &Arc<Head>,
        extra: impl FnOnce(&mut HeaderLines<'_>),
        length_hint: usize,
        write: impl FnOnce(&mut Vec<u8>),
    );

    /// Writes the answer: its head and a complete body.
    fn respond_whole(&mut self, head: &Arc<Head>, body: &[u8]);
}

impl Out for Answer<'_> {
    fn hold_until(&mut self, position: Position) {
        Answer::hold_until(self, position.0);
    }

    fn respond(
        &mut self,
        head: &Arc<Head>,
        extra: impl FnOnce(&mut HeaderLines<'_>),
        length_hint: usize,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        self.respond_with_extra(head, extra, length_hint, write);
    }

    fn respond_whole(&mut self, head: &Arc<Head>, body: &[u8]) {
        Answer::respond(self, head, body);
    }
}

/// An answer to a request whose connection is no longer borrowed.
#[derive(Default)]
pub struct OwnedOut {
    reply: Option<Reply>,
    mark: u64,
}

impl OwnedOut {
    /// The answer.
    ///
    /// # Panics
    /// When the action wrote no answer; a completed action has written one.
    pub fn into_reply(self) -> Reply {
        Reply { mark: self.mark, ..self.reply.expect("an action that is done has answered") }
    }
}

impl Out for OwnedOut {
    fn hold_until(&mut self, position: Position) {
        self.mark = self.mark.max(position.0);
    }

    fn respond(
        &mut self,
        head: &Arc<Head>,
        extra: impl FnOnce(&mut HeaderLines<'_>),
        length_hint: usize,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let mut reply =
            Reply { head: head.clone(), extra: Vec::new(), body: Vec::with_capacity(length_hint), mark: 0 };
        extra(&mut HeaderLines::new(&mut reply.extra));
        write(&mut reply.body);
        self.reply = Some(reply);
    }

    fn respond_whole(&mut self, head: &Arc<Head>, body: &[u8]) {
        self.respond(head, |_| {}, body.len(), |buffer| buffer.extend_from_slice(body));
    }
}

/// The heads of problem documents, one for each status that occurs.
static PROBLEM_HEADS: LazyLock<Vec<(u16, Arc<Head>)>> = LazyLock::new(|| {
    let statuses = [400, 401, 403, 404, 405, 408, 409, 410, 413, 422, 429, 431, 500, 501, 502, 503, 504];
    statuses.map(|status| (status, Arc::new(problem_head(status)))).into()
});

fn problem_head(status: u16) -> Head {
    Head::new(status).content_type("application/problem+json")
}

/// Answers with a problem document.
pub fn respond_problem(problem: &Problem, out: &mut impl Out) {
    let known = PROBLEM_HEADS.iter().find(|(status, _)| *status == problem.status);
    let head = known.map_or_else(|| Arc::new(problem_head(problem.status)), |(_, head)| head.clone());
    out.hold_until(Position(problem.mark));
    let extra = |lines: &mut HeaderLines<'_>| {
        for (name, value) in &problem.headers {
            lines.add(name, value).expect("problems carry plain header values");
        }
    };
    out.respond(&head, extra, 256, |body| problem.write(body));
}
