//! What every handler has at hand, and the one way to the store: all operations of all routes go through [`App::apply_all`].
//!
//! A call goes on when its client has gone: somebody else's hand-over may be in it.

use std::{sync::Arc, time::Duration};

use leasehold::{
    LeaseName, SharedStore, StoreError,
    clock::Clock,
    core::{Command, Op, Outcome},
};
use tokio::{sync::watch, task::JoinError, time::timeout};

use crate::{
    Config,
    admissions::Admissions,
    feed::Feed,
    metrics::Metrics,
    waiters::{Turn, Waiters},
};

/// A store that did not answer in this time is one of whose outcome nobody knows.
const CALL_LIMIT: Duration = Duration::from_secs(30);

/// See the module.
pub(crate) struct App {
    pub(crate) store: SharedStore,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) config: Config,
    pub(crate) waiters: Waiters,
    pub(crate) admissions: Admissions,
    pub(crate) feed: Feed,
    pub(crate) metrics: Metrics,
    /// Becomes true when the server is to end.
    pub(crate) draining: watch::Receiver<bool>,
}

impl App {
    /// Does one thing; see [`Self::apply_all`].
    pub(crate) async fn apply(self: &Arc<Self>, op: Op) -> Result<Outcome, StoreError> {
        match self.apply_all(vec![op]).await.pop() {
            Some(outcome) => outcome,
            None => Err(unknown("the store gave no answer")),
        }
    }

    /// Does many things, each a step of its own with an answer of its own. Whoever waits first for a lease that one of
    /// them releases is asked for in the same breath, so that nobody gets in between (W2).
    pub(crate) async fn apply_all(
        self: &Arc<Self>,
        ops: Vec<Op>,
    ) -> Vec<Result<Outcome, StoreError>> {
        let (app, count) = (self.clone(), ops.len());
        let task = tokio::spawn(async move { app.apply_now(ops).await });
        task.await.unwrap_or_else(|error: JoinError| {
            tracing::error!(%error, "a call to the store broke");
            vec![Err(unknown("the call broke")); count]
        })
    }

    async fn apply_now(&self, asked: Vec<Op>) -> Vec<Result<Outcome, StoreError>> {
        let mut ops = Vec::with_capacity(asked.len());
        let mut turns: Vec<Option<Turn>> = Vec::with_capacity(asked.len());
        let notes: Vec<_> = asked.iter().map(|op| self.note(op)).collect();
        for op in asked {
            let turn = freed(&op).and_then(|name| self.waiters.first(name));
            ops.push(op);
            turns.push(None);
            if let Some(turn) = turn {
                ops.push(turn.op());
                turns.push(Some(turn));
            }
        }
        let (evaluated, count) = (self.clock.now(), ops.len());
        let outcomes = timeout(CALL_LIMIT, self.store.apply_all(ops)).await;
        let outcomes =
            outcomes.unwrap_or_else(|_| vec![Err(unknown("the store did not answer")); count]);
        self.feed.poke();
        let mut answers = Vec::with_capacity(notes.len());
        for (outcome, turn) in outcomes.into_iter().zip(turns) {
            match turn {
                Some(turn) => self.waiters.hand_over(turn, evaluated, outcome),
                None => answers.push(outcome),
            }
        }
        let took = self.clock.now().since(evaluated);
        for (note, outcome) in notes.into_iter().zip(&answers) {
            self.see(note, outcome, took);
        }
        answers
    }

    /// What must be remembered of an operation to judge its outcome.
    fn note(&self, op: &Op) -> Note {
        match op {
            Op::Lease {
                name,
                command: Command::Acquire(asked),
            } => Note::Acquire(name.clone(), asked.session, asked.request_id),
            Op::Lease {
                command: Command::Renew(_),
                ..
            } => Note::Renew,
            _ => Note::Other,
        }
    }

    fn see(&self, note: Note, outcome: &Result<Outcome, StoreError>, took: Duration) {
        match note {
            Note::Acquire(name, session, request_id) => {
                self.waiters.see(&name, (session, request_id), outcome);
            }
            Note::Renew => self.metrics.renewed(took),
            Note::Other => {}
        }
        if outcome.is_err() {
            self.metrics.failed();
        }
    }

    /// Whether the server is to end.
    pub(crate) fn is_draining(&self) -> bool {
        *self.draining.borrow()
    }
}

enum Note {
    Acquire(LeaseName, leasehold::Session, leasehold::RequestId),
    Renew,
    Other,
}

/// The lease that may be free after this.
fn freed(op: &Op) -> Option<&LeaseName> {
    match op {
        Op::Lease {
            name,
            command: Command::Release(_) | Command::ForceRelease { now: true },
        } => Some(name),
        _ => None,
    }
}

fn unknown(what: &str) -> StoreError {
    StoreError::Unknown {
        what: what.to_owned(),
    }
}
