//! How far a call on a hot table got, and repeating a call until it is done.

use crate::error::HotError;
use crate::source::BoxFuture;
use forebay_log::Position;

/// How far a call on a hot table got.
pub enum Called<N, L = N> {
    /// It is done; an answer that depends on it waits until the log has passed this position.
    Now(N, Position),
    /// Nothing happened yet: this future must resolve first, then the same call is to be made again.
    First(BoxFuture<'static, Result<(), HotError>>),
    /// It is under way: the future resolves with the result, which waits for no position.
    Later(BoxFuture<'static, Result<L, HotError>>),
}

impl<N, L> Called<N, L> {
    /// Maps the result of a call that is done.
    pub fn map<M>(self, then: impl FnOnce(N) -> M) -> Called<M, L> {
        match self {
            Called::Now(done, mark) => Called::Now(then(done), mark),
            Called::First(needed) => Called::First(needed),
            Called::Later(result) => Called::Later(result),
        }
    }
}

/// The result of a call.
pub type HotResult<N, L = N> = Result<Called<N, L>, HotError>;

/// Makes a call until it is done; returns its result, and the position that an answer which depends on it
/// waits for.
///
/// # Errors
/// The call's.
pub async fn completed<T>(call: impl Fn() -> HotResult<T>) -> Result<(T, Position), HotError> {
    loop {
        match call()? {
            Called::Now(done, mark) => return Ok((done, mark)),
            Called::First(needed) => needed.await?,
            Called::Later(done) => return Ok((done.await?, Position(0))),
        }
    }
}
