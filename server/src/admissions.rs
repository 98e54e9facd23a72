//! Fences for receivers that have no database: `raise`, and `admit` … `done` around each write (A12).
//!
//! A raise is stored first, so that no smaller token is admitted any more; then it waits for those that were admitted
//! before, or says who is in the way. An admission ends by `done` or by its time, and after an end by time only the
//! promise in time is left: hence *advisory*. Admissions live in this process: one server in front of one receiver.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use leasehold::{
    AttemptId, BootTime, Resource, StoreError, Token,
    core::{Op, Outcome},
};
use tokio::{
    sync::{Mutex as Turn, Notify},
    time::timeout,
};

use crate::app::App;

/// How many receivers may have writes on their way at a time.
const MOST_RECEIVERS: usize = 10_000;
/// And how many writes each.
const MOST_WRITES: usize = 1_000;

/// All writes that were admitted and are not done.
#[derive(Default)]
pub(crate) struct Admissions {
    receivers: Mutex<HashMap<Resource, Arc<Receiver>>>,
}

#[derive(Default)]
struct Receiver {
    writes: Turn<Vec<Admitted>>,
    ended: Notify,
}

/// One write on its way.
#[derive(Clone, Debug)]
pub(crate) struct Admitted {
    pub(crate) attempt: AttemptId,
    pub(crate) token: Token,
    pub(crate) until: BootTime,
}

impl Admissions {
    fn receiver(&self, resource: &Resource) -> Option<Arc<Receiver>> {
        let mut receivers = self
            .receivers
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if receivers.len() >= MOST_RECEIVERS {
            // Those that nobody uses and that have nothing on its way.
            receivers.retain(|_, receiver| {
                Arc::strong_count(receiver) > 1
                    || receiver
                        .writes
                        .try_lock()
                        .map_or(true, |writes| !writes.is_empty())
            });
        }
        match receivers.len() < MOST_RECEIVERS || receivers.contains_key(resource) {
            true => Some(receivers.entry(resource.clone()).or_default().clone()),
            false => None,
        }
    }

    /// Says that a write is done. `false`: there was none such, or its time was over.
    pub(crate) async fn done(&self, app: &App, resource: &Resource, attempt: AttemptId) -> bool {
        let Some(receiver) = self.receiver(resource) else {
            return false;
        };
        let mut writes = receiver.writes.lock().await;
        end_by_time(&mut writes, app.clock.now());
        let before = writes.len();
        writes.retain(|write| write.attempt != attempt);
        let found = writes.len() < before;
        drop(writes);
        receiver.ended.notify_waiters();
        found
    }

    /// Raises the fence, waits for smaller tokens that were admitted before, at most `wait`, and admits `write`, if there
    /// is one. Repeating it with the same attempt is fine.
    pub(crate) async fn raise(
        &self,
        app: &Arc<App>,
        op: Op,
        write: Option<Admitted>,
        wait: Duration,
    ) -> Result<Outcome, StoreError> {
        let Some((resource, token)) = raise_of(&op) else {
            return Err(invalid("this is no raise"));
        };
        let receiver = self
            .receiver(&resource)
            .ok_or_else(|| StoreError::Unavailable {
                what: format!(
                    "{MOST_RECEIVERS} receivers have writes on their way, as many as are allowed"
                ),
            })?;
        let mut writes = receiver.writes.lock().await;
        let outcome = app.apply(op).await?;
        if outcome != Outcome::Done {
            return Ok(outcome);
        }
        let until = app.clock.now().plus(wait);
        loop {
            let now = app.clock.now();
            end_by_time(&mut writes, now);
            let Some(older) = writes.iter().find(|write| write.token < token).cloned() else {
                break;
            };
            if now >= until {
                return Err(in_the_way(&resource, &older, now));
            }
            let ended = receiver.ended.notified();
            tokio::pin!(ended);
            ended.as_mut().enable();
            drop(writes);
            let pause = older.until.min(until).since(now);
            let _ = timeout(pause, ended).await;
            writes = receiver.writes.lock().await;
        }
        if let Some(write) = write {
            // While this one waited, a larger token may have come.
            let fence = app.store.fence(&resource).await?;
            if let Some(highest) = fence.map(|fence| fence.highest).filter(|h| *h > token) {
                return Ok(Outcome::Refused(leasehold::Refusal::Stale {
                    token,
                    highest,
                }));
            }
            if writes.len() >= MOST_WRITES {
                return Err(StoreError::Unavailable {
                    what: format!(
                        "{MOST_WRITES} writes are on their way to {resource}, as many as are allowed"
                    ),
                });
            }
            writes.retain(|other| other.attempt != write.attempt);
            writes.push(write);
        }
        Ok(Outcome::Done)
    }

    /// The outcome of a raise that was done as one of many: blocked, if a smaller token is still at it.
    pub(crate) async fn drained(
        &self,
        app: &App,
        (resource, token): (Resource, Token),
        outcome: Result<Outcome, StoreError>,
    ) -> Result<Outcome, StoreError> {
        let receivers = || {
            self.receivers
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
        };
        let receiver = receivers().get(&resource).cloned();
        let (Some(receiver), Ok(Outcome::Done)) = (receiver, &outcome) else {
            return outcome;
        };
        let now = app.clock.now();
        let mut writes = receiver.writes.lock().await;
        end_by_time(&mut writes, now);
        match writes.iter().find(|write| write.token < token) {
            Some(older) => Err(in_the_way(&resource, older, now)),
            None => outcome,
        }
    }
}

/// What a raise raises.
pub(crate) fn raise_of(op: &Op) -> Option<(Resource, Token)> {
    match op {
        Op::Raise { resource, proof } => Some((resource.clone(), proof.token)),
        _ => None,
    }
}

fn end_by_time(writes: &mut Vec<Admitted>, now: BootTime) {
    writes.retain(|write| now < write.until);
}

fn in_the_way(resource: &Resource, older: &Admitted, now: BootTime) -> StoreError {
    StoreError::BlockedBy {
        who: format!(
            "a write with token {} that was admitted to {resource} and is not done; its time is over in {} ms",
            older.token,
            older.until.since(now).as_millis()
        ),
    }
}

fn invalid(what: &str) -> StoreError {
    StoreError::Invalid {
        what: what.to_owned(),
    }
}
