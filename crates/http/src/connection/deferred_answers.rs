//! Deferred answers: each is put into its place in the connection's order when its future has finished.
//!
//! Promises that a future that panicked is answered with 500, and that nothing is read as HTTP after an
//! answer that ends HTTP. Leaves when the answers leave to [`crate::output`].

use super::{Connection, Ending, NO_TUNNEL, PANICKED, Phase};
use crate::Service;
use crate::answer::{Answer, Persistence};
use crate::exchange::respond_error;
use crate::local::WorkerState;
use crate::output::{Closes, SlotId};
use crate::stage::Stage;
use crate::streamed::ServiceAnswer;
use crate::transport::Transport;
use crate::upgraded::Upgraded;
use std::task::Context;

impl<S: Service, T: Transport> Connection<S, T> {
    #[inline(never)]
    pub(super) fn collect_deferred(&mut self, cx: &mut Context<'_>, local: &mut WorkerState) {
        let Some(mut deferred) = self.deferred.take() else { return };
        // A client that does not read gets no further answers ready: when it has read, this is polled again.
        while !(self.output.is_front_ready()
            && self.output.pending_bytes() >= self.shared.limits.output_bytes)
            && let Some((id, given)) = deferred.poll_next(cx)
        {
            self.place_deferred(id, given, local);
        }
        // The list is returned when no deferred answer is left.
        match deferred.is_empty() && !self.output.is_streaming() {
            true => local.give_list(deferred),
            false => self.deferred = Some(deferred),
        }
    }

    /// Writes a deferred answer into its place.
    fn place_deferred(&mut self, id: SlotId, given: Option<ServiceAnswer>, local: &mut WorkerState) {
        if self.stage.is_abandoned() {
            // Answered before its body has arrived; the rest of the body is not read.
            self.finish_serving();
        }
        let may_tunnel = self.phase == Phase::Deciding(id);
        if may_tunnel {
            self.serve_on();
        }
        let closes = self.phase == Phase::Finishing(Ending::Server) && self.output.is_last(id);
        let (stamp, service) = (&local.stamp, &self.shared.service);
        let given = match given {
            Some(ServiceAnswer::Upgraded(upgraded)) if may_tunnel => {
                return self.begin_tunnel(id, upgraded, local);
            }
            // The request could not switch protocols, or the server is stopping.
            Some(ServiceAnswer::Upgraded(_)) => Err(NO_TUNNEL),
            Some(ServiceAnswer::Streamed(streamed)) => {
                let closes = self.output.fill_streamed(id, &mut local.pool, |out, mut form| {
                    if closes {
                        form.persistence = Persistence::Close;
                    }
                    streamed.write_head(form, stamp, out)
                });
                if closes == Closes::Yes {
                    self.end_after_answer();
                }
                return;
            }
            Some(ServiceAnswer::Whole(reply)) => Ok(reply),
            None => Err(PANICKED),
        };
        self.output.fill(id, &mut local.pool, |out, mut form| {
            if closes {
                form.persistence = Persistence::Close;
            }
            let mut answer = Answer::new(out, stamp, form);
            match &given {
                Ok(reply) => answer.respond_reply(reply),
                Err(reject) => respond_error(&mut answer, &**service, *reject),
            }
            answer.mark()
        });
    }

    /// Reads requests again after a request that could have ended HTTP.
    fn serve_on(&mut self) {
        (self.phase, self.stage) = (Phase::Serving, Stage::default());
        self.unparsed = !self.input.is_empty();
    }

    /// Answers 101; the client's further bytes are not HTTP.
    #[cold]
    fn begin_tunnel(&mut self, id: SlotId, upgraded: Box<Upgraded>, local: &mut WorkerState) {
        self.output.fill(id, &mut local.pool, |out, _| {
            upgraded.write_head(out);
            0
        });
        (self.phase, self.stage, self.unparsed) = (Phase::Tunnel, Stage::Tunnel(upgraded), false);
    }

    /// Ends the connection after the answer that is being sent. A request body that is still arriving is
    /// read to its end.
    fn end_after_answer(&mut self) {
        match &mut self.stage {
            Stage::Body(intake) => intake.closes = true,
            _ if self.phase == Phase::Serving => self.finish_serving(),
            _ => {}
        }
    }
}
