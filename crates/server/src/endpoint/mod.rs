//! Endpoints: a route, who may call it, its parameters, and what it does; compiled from the config at start.

pub mod cached;
pub mod drops;
pub mod eval;
pub mod fronted;
pub mod guard;
pub mod out;
pub mod params;
pub mod rate;
pub mod shape;
pub mod target;
mod validated;

use crate::action::{Action, Step, run_until_answered};
use crate::handler::Call;
use crate::problem::Problem;
use cached::Cached;
use drops::Drops;
use eval::Slots;
use forebay_http::{Answer, Outcome, Reply, Request};
use fronted::Fronted;
use guard::Guard;
use out::{OwnedOut, respond_problem};
use params::Params;
use rate::Rate;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// One endpoint.
pub struct Endpoint {
    /// Who may call it.
    pub guard: Option<Guard>,
    /// How often it may be called.
    pub rate: Option<Rate>,
    /// Its parameters.
    pub params: Params,
    /// What it does.
    pub action: Action,
    /// How its answers are kept, if they are.
    pub cached: Option<Cached>,
    /// How the answers of a server behind are kept, if they are.
    pub fronted: Option<Fronted>,
    /// What its writes drop.
    pub drops: Option<Drops>,
    /// Whether answers that are not kept have a validator.
    pub etag: bool,
    /// Whether answers that are not kept are compressed.
    pub compress: bool,
    /// The longest that a request may wait.
    pub timeout: Duration,
    /// How many requests may wait at once.
    pub waiting_max: usize,
    /// How many wait.
    pub waiting: AtomicUsize,
}

thread_local! {
    /// What the parameters of this worker's requests are read into, one after the other: empty, and referred to by nobody else.
    static SPARE: Cell<Option<Arc<Slots>>> = const { Cell::new(None) };
}

/// Keeps the room of parameters that nobody needs any more.
fn put_by(mut slots: Arc<Slots>) {
    if let Some(unused) = Arc::get_mut(&mut slots) {
        unused.clear();
        SPARE.set(Some(slots));
    }
}

impl Endpoint {
    /// Answers a request, or gives the future that will.
    pub fn call(
        self: &Arc<Self>,
        request: &Request<'_>,
        path: &[(&str, &str)],
        answer: &mut Answer<'_>,
    ) -> Result<Outcome, Problem> {
        if let Some(guard) = &self.guard {
            guard.check(request)?;
        }
        // Only after the guard: who is stopped there uses up nothing of those who are not.
        if let Some(rate) = &self.rate {
            rate.check(request, path)?;
        }
        if let Action::Handler(handler) = &self.action {
            handler.call(&Call::new(request, path), answer)?;
            return Ok(Outcome::Done);
        }
        if let Action::Proxy(proxy) = &self.action {
            return match &self.fronted {
                Some(fronted) => fronted.call(self, proxy, request, path, answer),
                None => proxy.call(self, request, path),
            };
        }
        if let Some(cached) = &self.cached {
            return cached.call(self, request, path, answer);
        }
        let mut slots = SPARE.take().unwrap_or_default();
        self.params.read_into(request, path, Arc::get_mut(&mut slots).expect("nobody else refers to it"))?;
        if let Some(drops) = &self.drops {
            return drops.call(self, slots, answer);
        }
        if self.etag || self.compress {
            return self.call_validated(request, slots, answer);
        }
        match self.action.run(&slots, answer)? {
            Step::Done => {
                put_by(slots);
                Ok(Outcome::Done)
            }
            step => self.wait(slots, step),
        }
    }

    fn wait(self: &Arc<Self>, slots: Arc<Slots>, step: Step) -> Result<Outcome, Problem> {
        let place = WaitingPlace::take(self)?;
        Ok(Outcome::Later(Box::pin(async move {
            let endpoint = &place.0;
            let finished = tokio::time::timeout(endpoint.timeout, endpoint.finish(&slots, step)).await;
            match finished {
                Ok(Ok(reply)) => reply,
                Ok(Err(problem)) => problem_reply(&problem),
                Err(_) => {
                    problem_reply(&Problem::new(504, "it took too long; whether it was done is unknown"))
                }
            }
        })))
    }

    async fn finish(&self, slots: &Arc<Slots>, step: Step) -> Result<Reply, Problem> {
        match step {
            Step::Done => return Err(Problem::new(500, "the answer was lost")),
            Step::Wait(needed) => needed.await?,
            Step::Reply(reply) => return reply.await,
        }
        run_until_answered(|out| self.action.run(slots, out)).await
    }
}

/// A problem as the answer of a request that waited.
pub(crate) fn problem_reply(problem: &Problem) -> Reply {
    let mut out = OwnedOut::default();
    respond_problem(problem, &mut out);
    out.into_reply()
}

/// One of the places for waiting requests; given back when dropped.
pub struct WaitingPlace(Arc<Endpoint>);

impl WaitingPlace {
    /// Takes one; 503 when there is none.
    pub fn take(endpoint: &Arc<Endpoint>) -> Result<WaitingPlace, Problem> {
        // Taken first and looked at then, so that two cannot take the last one.
        let place = WaitingPlace(endpoint.clone());
        if endpoint.waiting.fetch_add(1, Ordering::Relaxed) < endpoint.waiting_max {
            Ok(place)
        } else {
            Err(Problem::unavailable("too many requests wait for this endpoint"))
        }
    }
}

impl Drop for WaitingPlace {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
