//! Actions: what an endpoint does. One file a kind; each is compiled at start and run with the request's parameters.
//!
//! An action either answers at once, through [`Out`], or says what it waits for ([`Step`]). It promises that an answer is held
//! until everything that it shows or denies is durable. Reading parameters and guarding are done before it is called.

pub mod any_of;
pub mod generate;
pub mod hot;
pub mod list;
pub mod proxy;
pub mod proxy_fill;
pub mod read;
pub mod redirect;
pub mod sql;
pub mod write;

use crate::endpoint::eval::{Eval, Scope, Slots};
use crate::endpoint::out::{Out, OwnedOut};
use crate::endpoint::shape::Shape;
use crate::handler::Handler;
use crate::problem::Problem;
use forebay_http::{Head, Reply};
use forebay_value::{Type, Value};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// A future that an endpoint waits for.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// How far an action got.
pub enum Step {
    /// It has answered.
    Done,
    /// It needs something first; then it is to be run again with the same parameters.
    Wait(BoxFuture<Result<(), Problem>>),
    /// Somebody else works on it and will give the whole answer.
    Reply(BoxFuture<Result<Reply, Problem>>),
}

impl Step {
    /// The whole answer, by a future.
    fn reply(reply: impl Future<Output = Result<Reply, Problem>> + Send + 'static) -> Step {
        Step::Reply(Box::pin(reply))
    }
}

/// What an endpoint does.
pub enum Action {
    /// Always the same body.
    Constant { head: Arc<Head>, body: Vec<u8> },
    /// A Rust function.
    Handler(Arc<dyn Handler>),
    /// A statement on the database.
    Sql(Arc<sql::SqlAction>),
    /// Reads one row of a hot table by key.
    Get(Arc<read::Get>),
    /// Reads a random row of a hot table.
    Random(Arc<read::Random>),
    /// Counts rows of a hot table.
    Count(Arc<read::Count>),
    /// Reads rows of a hot table in the order of their keys.
    List(Arc<list::List>),
    /// Inserts or upserts a row of a hot table.
    Insert(Arc<write::Insert>),
    /// Changes columns of a row.
    Update(Arc<write::Update>),
    /// Adds to a column of a row.
    Increment(Arc<write::Increment>),
    /// Deletes a row.
    Delete(Arc<write::Delete>),
    /// Answers with the place that a row names.
    Redirect(Arc<redirect::Redirect>),
    /// One of several, at random.
    AnyOf(Vec<Action>),
    /// Starts a job that fills a table.
    Generate(Arc<generate::Generate>),
    /// Passes requests on.
    Proxy(Arc<proxy::ProxyAction>),
}

impl Action {
    /// Runs it.
    pub fn run(&self, slots: &Arc<Slots>, out: &mut impl Out) -> Result<Step, Problem> {
        match self {
            Action::Constant { head, body } => {
                out.respond_whole(head, body);
                Ok(Step::Done)
            }
            // The endpoint calls these itself: they want the request.
            Action::Handler(_) | Action::Proxy(_) => {
                Err(Problem::new(500, "a handler or a proxy cannot be one of several actions"))
            }
            Action::Sql(action) => Ok(action.run(slots)),
            Action::Get(action) => action.run(slots, out),
            Action::Random(action) => action.run(slots, out),
            Action::Count(action) => action.run(slots, out),
            Action::List(action) => action.run(slots, out),
            Action::Insert(action) => action.run(slots, out),
            Action::Update(action) => action.run(slots, out),
            Action::Increment(action) => action.run(slots, out),
            Action::Delete(action) => action.run(slots, out),
            Action::Redirect(action) => action.run(slots, out),
            Action::AnyOf(actions) => any_of::choose(actions).run(slots, out),
            Action::Generate(action) => action.run(slots, out),
        }
    }
}

/// How a successful action answers.
pub struct Answering {
    /// Status and content type.
    pub head: Arc<Head>,
    /// The body; `None`: there is none (204).
    pub shape: Option<Shape>,
    /// What a 404 says.
    pub missing: String,
}

impl Answering {
    /// The 404 of this endpoint.
    pub fn not_found(&self) -> Problem {
        Problem::not_found(&self.missing)
    }
}

/// A key, compiled: its expression and the column that gives its type and name.
pub struct KeyOf {
    /// The expression.
    pub eval: Eval,
    /// The key column's type.
    pub ty: Type,
    /// The name that errors use.
    pub name: String,
}

impl KeyOf {
    /// The key of this request; 400 when it is missing or malformed.
    pub fn of(&self, slots: &Slots) -> Result<Value, Problem> {
        match self.eval.evaluate_as(self.ty, &self.name, &Scope::new(slots))? {
            Value::Null => Err(Problem::parameter(&self.name, "is required")),
            key => Ok(key),
        }
    }
}

/// How often an action may need something first before it is given up: each time it was given what it asked for.
const ROUNDS_MAX: u32 = 16;

/// Runs an action for a request that does not hold up its connection any more, again whenever what it needed is there.
pub async fn run_until_answered(
    run: impl Fn(&mut OwnedOut) -> Result<Step, Problem>,
) -> Result<Reply, Problem> {
    for _ in 0..ROUNDS_MAX {
        let mut out = OwnedOut::default();
        match run(&mut out)? {
            Step::Done => return Ok(out.into_reply()),
            Step::Wait(needed) => needed.await?,
            Step::Reply(reply) => return reply.await,
        }
    }
    Err(Problem::unavailable("the rows asked for do not stay in memory long enough"))
}
