//! Work that is done once: begun in the ledger after the grant, completed after exit 0 (I5 to I7, A21).

use std::time::Duration;

use leasehold::{
    AttemptId, Fingerprint, Holder, StoreError, Token, Value,
    core::{Abandon, Begin, Complete, Entry, Op, Outcome, Verdict, Work},
    store::SharedStore,
};

pub(super) use leasehold::core::Unfinished;

use super::say::Say;
use crate::{ask, exit::Failure, show};

/// How long the ledger is asked again when it gives no answer.
const PATIENCE: u32 = 20;
const PAUSE: Duration = Duration::from_millis(500);
/// While waiting for the lease, how often the ledger is looked at, besides at every change.
const LOOK: Duration = Duration::from_secs(2);

/// One piece of work.
pub(super) struct Ledger {
    store: SharedStore,
    work: Work,
    attempt: AttemptId,
    unfinished: Unfinished,
}

/// Whether to do it.
pub(super) enum Begun {
    Yes,
    NothingToDo,
}

impl Ledger {
    pub(super) fn new(
        store: SharedStore,
        work: Work,
        unfinished: Unfinished,
    ) -> Result<Self, Failure> {
        Ok(Self {
            store,
            work,
            attempt: ask::new_attempt_id()?,
            unfinished,
        })
    }

    /// Whether it was done before; says by whom.
    pub(super) async fn is_done(&self, say: &Say<'_>) -> Result<bool, Failure> {
        Ok(match self.store.entry(&self.work).await? {
            Some(entry) if entry.done.is_some() => {
                self.tell_done(&entry, say);
                true
            }
            _ => false,
        })
    }

    /// Enters the work under our token, if it is ours to do.
    pub(super) async fn begin(
        &self,
        token: Token,
        holder: &Holder,
        say: &Say<'_>,
    ) -> Result<Begun, Failure> {
        let op = Op::Begin(Begin {
            work: self.work.clone(),
            token,
            attempt: self.attempt,
            holder: holder.clone(),
            fingerprint: Fingerprint::default(),
            unfinished: self.unfinished,
            born: None,
        });
        let work = &self.work;
        match self.ask(op).await? {
            Verdict::Begun | Verdict::Resumed => Ok(Begun::Yes),
            Verdict::TookOver { from } => {
                let text = format!(
                    "{work} was begun under token {from} and not finished: it is run again"
                );
                say.note("took_over", &text);
                Ok(Begun::Yes)
            }
            Verdict::AlreadyDone(entry) => {
                self.tell_done(&entry, say);
                Ok(Begun::NothingToDo)
            }
            Verdict::LeftUnfinished(entry) => Err(Failure::unfinished(format!(
                "{work} was begun by {} under token {} and did not end well: whether it was done is unknown, and \
                 --at-most-once does not run it again",
                entry.holder, entry.token
            ))),
            Verdict::Refused(refusal) => Err(refusal.into()),
            other => Err(Failure::failed(format!(
                "the ledger does not begin {work}: {other:?}"
            ))),
        }
    }

    /// Enters the end: done, failed without effect worth keeping, or unknown, which stays as it is.
    pub(super) async fn end(&self, token: Token, done: Option<bool>) -> Result<(), Failure> {
        let (work, attempt) = (self.work.clone(), self.attempt);
        let op = match (done, self.unfinished) {
            (Some(true), _) => {
                let response = Value::new(b"")?;
                Op::Complete(Complete {
                    work,
                    token,
                    attempt,
                    response,
                })
            }
            (Some(false), Unfinished::TakeOver) => Op::Abandon(Abandon {
                work,
                token,
                attempt,
            }),
            // At most once: a failure may have had effects, so it is not tried again.
            (Some(false), Unfinished::Leave) | (None, _) => return Ok(()),
        };
        let not_recorded = |why: String| {
            Failure::failed(format!(
                "the command ended well, but that {} is done was not recorded: {why}",
                self.work
            ))
        };
        match (done, self.ask(op).await) {
            (Some(true), Ok(Verdict::Completed)) => Ok(()),
            (Some(true), Ok(Verdict::Refused(refusal))) => Err(not_recorded(refusal.to_string())),
            (Some(true), Ok(other)) => Err(not_recorded(format!("{other:?}"))),
            (Some(true), Err(error)) => Err(not_recorded(error.to_string())),
            // It stays unfinished, and the next one runs it again all the same.
            _ => Ok(()),
        }
    }

    /// The same operation with the same attempt happens once, however often it is sent (A21).
    async fn ask(&self, op: Op) -> Result<Verdict, Failure> {
        let mut left = PATIENCE;
        loop {
            match self.store.apply(op.clone()).await {
                Ok(Outcome::Ledger(verdict)) => return Ok(verdict),
                Ok(other) => {
                    return Err(Failure::failed(format!(
                        "the store answered something else: {other:?}"
                    )));
                }
                Err(StoreError::Unavailable { .. } | StoreError::Unknown { .. }) if left > 0 => {
                    left -= 1
                }
                Err(error) => return Err(error.into()),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn tell_done(&self, entry: &Entry, say: &Say<'_>) {
        let when = entry
            .done
            .as_ref()
            .map_or_else(String::new, |done| format!(" at {}", show::moment(done.at)));
        let text = format!(
            "{} was done by {}{when} under token {}: nothing to do",
            self.work, entry.holder, entry.token
        );
        say.note("already_done", &text);
    }
}

/// Comes back when the work is done elsewhere, while we wait for the lease. Never without a ledger.
pub(super) async fn done_elsewhere(ledger: Option<&Ledger>, say: &Say<'_>) -> bool {
    let Some(ledger) = ledger else {
        return std::future::pending().await;
    };
    loop {
        let mut changes = ledger.store.changes();
        if let Ok(true) = ledger.is_done(say).await {
            return true;
        }
        // A store that gives no answer is the keeper's business.
        let _ = tokio::time::timeout(LOOK, changes.changed()).await;
        tokio::time::sleep(PAUSE).await;
    }
}
