//! What work under a lease has in hand. It asks the clock at every check, so no timer, thread or runtime that hangs can
//! make it go on too long; and it does nothing by itself: dropping it releases nothing (O15).

use std::{sync::Arc, time::Duration};

use leasehold_core::{BootTime, LeaseName, Loss, Proof, Refusal, Timing, Token};
use tokio::sync::mpsc::UnboundedSender;

use crate::{
    block::block_on,
    error::{NotHeld, NotReleased},
    request::Request,
    view::View,
    work::part,
};

/// A held lease. There is one for each tenure, and it cannot be cloned; share it by reference or in an `Arc`.
///
/// ```compile_fail
/// fn twice(guard: leasehold::Guard) -> (leasehold::Guard, leasehold::Guard) {
///     (guard.clone(), guard)
/// }
/// ```
///
/// Work checks it before every step that others will see, and gives its [`proof`](Self::proof) to whatever it writes to:
/// the check keeps the promise in time, the fence keeps it always.
///
/// A guard that is dropped ends the renewals and nothing else, since the work may go on: the lease runs out by itself. To
/// hand it over at once, end the work, then [`release`](Self::release) it. A guard that [`Keeper::run`] gave is watched
/// over by `run`: dropping it does nothing at all.
///
/// [`Keeper::run`]: crate::Keeper::run
#[derive(Debug)]
pub struct Guard {
    view: Arc<View>,
    requests: UnboundedSender<Request>,
    /// Nobody else ends the tenure.
    owns: bool,
}

impl Guard {
    pub(crate) fn new(view: Arc<View>, requests: UnboundedSender<Request>, owns: bool) -> Self {
        Self {
            view,
            requests,
            owns,
        }
    }

    /// The name of the lease.
    pub fn lease(&self) -> &LeaseName {
        &self.view.proof.lease
    }

    /// The number to send with every write.
    pub fn token(&self) -> Token {
        self.view.proof.token
    }

    /// Lease and token, as fences want them.
    pub fn proof(&self) -> Proof {
        self.view.proof.clone()
    }

    /// The times it is kept by.
    pub fn timing(&self) -> Timing {
        *self.view.term().timing()
    }

    /// From this boot time on nothing may be done under the lease. It moves with every renewal.
    pub fn deadline(&self) -> BootTime {
        self.view.term().deadline()
    }

    /// When the work must begin to stop, if no renewal comes.
    pub fn stop_at(&self) -> BootTime {
        self.view.term().stop_at()
    }

    /// When work that does not stop must be killed, if no renewal comes, and after a loss for good.
    pub fn kill_at(&self) -> BootTime {
        self.view.kill_at()
    }

    /// Comes back with the deadline as soon as it is later than `known`; never after a loss. Cancel-safe.
    pub async fn extended(&self, known: BootTime) -> BootTime {
        self.view.extended(known).await
    }

    /// How long work may go on if no renewal comes; zero if it must not.
    pub fn remaining(&self) -> Duration {
        match self.check() {
            Ok(()) => self.view.term().remaining(self.view.clock.now()),
            Err(_) => Duration::ZERO,
        }
    }

    /// Whether work may do its next step now. It reads the clock; what it answers is true for an instant, so a step that
    /// takes time wants [`check_for`](Self::check_for).
    ///
    /// After a loss that leaves time, such as a stop, it goes on to allow steps until the deadline, so that work can end
    /// well. After a loss that is [certain](Loss::is_certain) it allows nothing.
    pub fn check(&self) -> Result<(), NotHeld> {
        self.check_for(Duration::ZERO)
    }

    /// Whether a step that takes up to `budget` will end before the deadline (C8).
    pub fn check_for(&self, budget: Duration) -> Result<(), NotHeld> {
        let result = self.view.check_for(budget);
        if let Err(NotHeld::Suspect { .. }) = result {
            let _ = self.requests.send(Request::Look);
        }
        result
    }

    /// Comes back when the work must stop, with the reason; at the latest [`stop_at`](Self::stop_at), in time to end the
    /// work before the deadline. It does not depend on the renewing thread. Cancel-safe, and final.
    pub async fn lost(&self) -> Loss {
        self.view.lost().await
    }

    /// [`lost`](Self::lost), blocking this thread.
    pub fn lost_blocking(&self) -> Loss {
        block_on(self.lost())
    }

    /// Whether the work must stop. Once true, always true.
    pub fn is_lost(&self) -> bool {
        self.loss().is_some()
    }

    /// Why the work must stop, if it must.
    pub fn loss(&self) -> Option<Loss> {
        self.view.loss()
    }

    /// Says that the work goes on. Cheap; call it as often as you like. With [`Keeper::probe`] a lease whose work does
    /// not say so in time is given up (FB-35).
    ///
    /// [`Keeper::probe`]: crate::Keeper::probe
    pub fn progress(&self) {
        self.view.progress();
    }

    /// A fence refused this token: the tenure is over at once (F9).
    pub fn fenced_out(&self, refusal: Refusal) {
        let loss = Loss::FencedOut(refusal);
        let term = self.view.term();
        let grace = self.view.clock.now().plus(term.timing().grace());
        self.view.lose(loss.clone(), grace);
        let token = self.token();
        let _ = self.requests.send(Request::Lose { token, loss });
    }

    /// Gives the lease back. Call it when all work has ended and nothing of it is on its way any more (H5). It comes
    /// back within a few attempts' time, also if the store does not answer; then the lease runs out by itself.
    pub async fn release(mut self) -> Result<(), NotReleased> {
        self.owns = false;
        let proof = self.proof();
        match part(&self.view, &self.requests, false).await {
            Some(true) => Ok(()),
            answer => match self.loss() {
                Some(loss) if answer.is_some() && loss != Loss::Stopped => {
                    Err(NotReleased::Lost { proof, loss })
                }
                _ => {
                    let ttl = self.view.term().ttl().get();
                    Err(NotReleased::Unconfirmed { proof, ttl })
                }
            },
        }
    }

    /// [`release`](Self::release), blocking this thread.
    pub fn release_blocking(self) -> Result<(), NotReleased> {
        block_on(self.release())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.owns {
            let token = self.token();
            let _ = self.requests.send(Request::Dropped { token });
        }
    }
}
