//! Work under a lease, from its first poll to the moment when nothing of it is left.

use std::{
    any::Any,
    fmt::Display,
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::Arc,
    task::Poll,
};

use tokio::{
    select,
    sync::{mpsc::UnboundedSender, oneshot},
};
use tracing::warn;

use crate::{alarm::sleep_until, request::Request, view::View};

/// Work under a lease. Dropping it ends the renewals (O15).
pub(crate) struct Tenure<'a> {
    pub(crate) view: Arc<View>,
    pub(crate) requests: &'a UnboundedSender<Request>,
}

pub(crate) enum Ended {
    Done,
    Failed,
    Panicked(Box<dyn Any + Send>),
    Killed,
}

impl Tenure<'_> {
    /// Polls the work until it ends or its time is over. It is gone when this returns.
    pub(crate) async fn drive<E: Display>(
        &self,
        work: impl Future<Output = Result<(), E>>,
    ) -> Ended {
        let mut work = pin!(work);
        let work = poll_fn(
            |cx| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
                Ok(Poll::Pending) => Poll::Pending,
                Ok(Poll::Ready(Ok(()))) => Poll::Ready(Ended::Done),
                Ok(Poll::Ready(Err(error))) => {
                    warn!(lease = %self.view.proof.lease, %error, "the work failed");
                    Poll::Ready(Ended::Failed)
                }
                Err(panic) => Poll::Ready(Ended::Panicked(panic)),
            },
        );
        select! {
            biased;
            ended = work => ended,
            () = self.view.killed() => Ended::Killed,
        }
    }

    pub(crate) async fn end(self, ended: &Ended) {
        let failed = matches!(ended, Ended::Failed | Ended::Panicked(_));
        part(&self.view, self.requests, failed).await;
    }
}

impl Drop for Tenure<'_> {
    /// Means nothing once it was parted.
    fn drop(&mut self) {
        let token = self.view.proof.token;
        let _ = self.requests.send(Request::Dropped { token });
    }
}

/// The work has ended. Whether the store knows; `None` if the renewing thread does not answer (FB-24).
pub(crate) async fn part(
    view: &View,
    requests: &UnboundedSender<Request>,
    failed: bool,
) -> Option<bool> {
    let (done, is_done) = oneshot::channel();
    let token = view.proof.token;
    requests
        .send(Request::Drained {
            token,
            failed,
            done,
        })
        .ok()?;
    let patience = view.term().timing().attempt() * 3;
    let until = sleep_until(&view.clock, view.clock.now().plus(patience)).ok()?;
    select! {
        released = is_done => released.ok(),
        () = until => None,
    }
}
