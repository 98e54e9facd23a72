//! A request on its way to the writing thread.

use std::time::Duration;

use leasehold_core::{BootTime, Command, Op, StoreTime};
use tokio::sync::oneshot;

use super::commit::{Ask, Reply};
use crate::store::StoreError;

/// Nobody waits longer than this for another process's turn, and nobody longer than its own ttl (A8).
const PATIENCE: Duration = Duration::from_secs(5);

/// Some asks of one caller.
pub(super) struct Job {
    pub(super) asks: Vec<Ask>,
    pub(super) received: StoreTime,
    /// Until when it waits for what is in the way.
    pub(super) until: BootTime,
    pub(super) reply: oneshot::Sender<Vec<Reply>>,
}

impl Job {
    /// Made when the request comes, so that all its waiting counts (A1).
    pub(super) fn new(
        asks: Vec<Ask>,
        received: StoreTime,
        now: BootTime,
    ) -> (Self, oneshot::Receiver<Vec<Reply>>) {
        let (reply, answer) = oneshot::channel();
        let patience = asks.iter().map(patience).min().unwrap_or(PATIENCE);
        let until = now.plus(patience);
        (
            Self {
                asks,
                received,
                until,
                reply,
            },
            answer,
        )
    }

    /// A caller that has gone gets no answer; that is its loss, not ours.
    fn fail(self, error: &StoreError) {
        let replies = self.asks.iter().map(|_| Err(error.clone())).collect();
        let _ = self.reply.send(replies);
    }
}

fn patience(ask: &Ask) -> Duration {
    match ask {
        Ask::Op(Op::Lease {
            command: Command::Acquire(asked),
            ..
        }) => asked.ttl.get().min(PATIENCE),
        Ask::Op(Op::Lease {
            command: Command::Renew(asked),
            ..
        }) => asked.ttl.get().min(PATIENCE),
        _ => PATIENCE,
    }
}

/// Gives all the same error; nobody is left.
pub(super) fn fail_all(waiting: Vec<Job>, error: &StoreError) -> Vec<Job> {
    for job in waiting {
        job.fail(error);
    }
    Vec::new()
}
