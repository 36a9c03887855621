//! Requests that are passed on to an upstream, each with its own body.

use super::intake::Intake;
use super::invalidation::Drops;
use super::matched_request::Matched;
use crate::action::proxy::ProxyAction;
use crate::problem::Problem;
use forebay_http::{Outcome, Request};
use forebay_proxy::Proxy;
use std::sync::Arc;

/// How requests are passed on.
pub struct PassThrough {
    /// The upstream, and how it is called.
    pub proxy: Arc<ProxyAction>,
    /// What requests that may write drop from the cache.
    pub drops: Option<Drops>,
}

impl PassThrough {
    /// Passes a request on. Its place is released when the answer's body has ended.
    pub fn call(
        &self,
        intake: &Intake,
        request: &Request<'_>,
        matched: Matched<'_>,
    ) -> Result<Outcome, Problem> {
        if request.body().len() as u64 > self.proxy.body_bytes_max {
            return Err(Problem::body_too_large());
        }
        let dropping = match &self.drops {
            Some(drops) => drops.of_passed(intake, request, matched)?,
            None => None,
        };
        let place = intake.waiting.take(request.client().network())?;
        let own = self.proxy.own_fields(intake, request, matched)?;
        let mut outbound = self.proxy.outbound(request, matched.identity, own)?;
        let (proxy, worker) = (self.proxy.clone(), request.worker());
        let protocols = request.upgrade().and_then(Proxy::protocols);
        Ok(Outcome::Streamed(Box::pin(async move {
            match (dropping, protocols) {
                (Some(dropping), _) => proxy.pass_and_drop(worker, outbound, dropping, place).await,
                (None, Some(protocols)) => proxy.upgrade(worker, &mut outbound, protocols, place).await,
                (None, None) => proxy.pass(worker, &mut outbound, place).await,
            }
        })))
    }
}
