//! Actions: what an endpoint does. Each kind has its own file, is compiled at start and runs with the
//! request's parameters.
//!
//! An action either answers at once, through [`Out`], or returns what it waits for ([`Step`]). It promises
//! that an answer is held until everything that it shows or denies is durable. Parameters are read and guards
//! are checked before an action is called.

mod answering;
pub mod any_of;
pub mod forms;
pub mod generate;
pub mod get_many;
pub mod hot;
pub mod list;
pub mod proxy;
pub mod proxy_fill;
pub mod read;
pub mod redirect;
pub mod row_plan;
pub mod sql;
mod step;
pub mod write;

pub use answering::{Answering, KeyOf};
pub use step::{BoxFuture, Pending, Step, run_until_answered};

use crate::endpoint::answer_sink::Out;
use crate::endpoint::eval::Slots;
use crate::problem::Problem;
use forebay_http::Head;
use std::sync::Arc;

/// What an endpoint does with its parameters. Handlers and proxies need the request itself: they are modes of
/// an endpoint, not actions.
pub enum Action {
    /// Always the same body.
    Constant { head: Arc<Head>, body: Vec<u8> },
    /// A statement on the database.
    Sql(Arc<sql::SqlAction>),
    /// Reads one row of a hot table by key.
    Get(Arc<read::Get>),
    /// Reads several rows of a hot table by their keys.
    GetMany(Arc<get_many::GetMany>),
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
    /// Redirects to the location that a row contains.
    Redirect(Arc<redirect::Redirect>),
    /// One of several, at random.
    AnyOf(Vec<Action>),
    /// Starts a job that fills a table.
    Generate(Arc<generate::Generate>),
}

impl Action {
    pub fn run(&self, slots: &Arc<Slots>, out: &mut impl Out) -> Result<Step, Problem> {
        match self {
            Action::Constant { head, body } => {
                out.respond_whole(head, body);
                Ok(Step::Done)
            }
            Action::Sql(action) => Ok(action.run(slots)),
            Action::Get(action) => action.run(slots, out),
            Action::GetMany(action) => action.run(slots, out),
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
