//! What a worker sends to the thread that renews, and what it gets back.

use std::sync::Arc;

use leasehold_core::{GaveUp, Loss, Token, Wait};
use tokio::sync::{mpsc::UnboundedSender, oneshot};

use crate::{guard::Guard, view::View};

/// What a worker asks of the thread. What names a token does nothing to a later tenure.
#[derive(Debug)]
pub(crate) enum Request {
    /// Get the lease.
    Want(Wait, oneshot::Sender<Result<Handover, GaveUp>>),
    /// Nobody wants it any more.
    Stop,
    /// Look at the clocks.
    Look,
    Lose {
        token: Token,
        loss: Loss,
    },
    Drained {
        token: Token,
        failed: bool,
        done: oneshot::Sender<bool>,
    },
    Dropped {
        token: Token,
    },
}

/// A tenure on its way to its worker. If nobody takes it, nobody worked under it, and it is given back (FB-71).
#[derive(Debug)]
pub(crate) struct Handover(Option<(Arc<View>, UnboundedSender<Request>)>);

impl Handover {
    pub(crate) fn new(view: Arc<View>, requests: UnboundedSender<Request>) -> Self {
        Self(Some((view, requests)))
    }

    /// The tenure; `owns` as in [`Guard`].
    pub(crate) fn take(mut self, owns: bool) -> (Guard, Arc<View>) {
        let (view, requests) = self.0.take().expect("it is taken once, by value");
        (Guard::new(view.clone(), requests, owns), view)
    }
}

impl Drop for Handover {
    fn drop(&mut self) {
        if let Some((view, requests)) = self.0.take() {
            let (done, _) = oneshot::channel();
            let token = view.proof.token;
            let _ = requests.send(Request::Drained {
                token,
                failed: false,
                done,
            });
        }
    }
}
