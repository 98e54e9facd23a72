//! Reading. The leader asks a majority whether it still leads before it answers (ReadIndex, R5); its own clock is not
//! enough for that. `peek` reads what this member has, however old.

use std::time::Duration;

use leasehold_core::{LeaseName, Status, StoreTime};
use openraft::ReadPolicy;
use tokio::time::{Instant, sleep, timeout_at};

use crate::{
    machine::State,
    node::{Node, Place, left},
    transport::NoAnswer,
    wire::{Failed, Question, Reading, Request, Response},
};

/// How long to wait before a question is asked again.
const SOON: Duration = Duration::from_millis(20);

impl Node {
    /// Asked anew until it is answered or time is up; a question changes nothing. `None`: this member does not lead, and
    /// the one that asks should know.
    pub(crate) async fn read(
        &self,
        question: Question,
        until: Instant,
        forwarded: bool,
    ) -> Option<Result<Reading, Failed>> {
        loop {
            let why = match self.place() {
                Place::Here { term, now } => match self.look(&question, term, now, until).await {
                    Ok(reading) => return Some(Ok(reading)),
                    Err(why) => why,
                },
                _ if forwarded => return None,
                Place::There(leader) => {
                    let patience = self.try_for.min(left(until));
                    let request = Request::Read {
                        question: question.clone(),
                        patience_ms: u64::try_from(patience.as_millis()).unwrap_or(u64::MAX),
                    };
                    match self.transport.call(&leader, &request, patience).await {
                        Ok(Response::Read(result)) => return Some(*result),
                        Ok(_) => "the leader has changed".into(),
                        Err(NoAnswer::NotSent(why) | NoAnswer::Lost(why)) => why,
                    }
                }
                Place::Nowhere => "no member leads".into(),
            };
            let stopped = self.failure();
            if left(until) <= SOON || stopped.is_some() {
                return Some(Err(Failed::Unavailable(stopped.unwrap_or(why))));
            }
            sleep(SOON).await;
        }
    }

    /// `now` was read before the majority confirmed that this member leads, so nobody else's time had begun.
    async fn look(
        &self,
        question: &Question,
        term: u64,
        now: StoreTime,
        until: Instant,
    ) -> Result<Reading, String> {
        let confirmed = self.engine.ensure_linearizable(ReadPolicy::ReadIndex);
        match timeout_at(until, confirmed).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return Err(error.to_string()),
            Err(_) => return Err("no majority has confirmed who leads in time".into()),
        }
        let reading = self.machine.state().read(question, now);
        if reading.1 {
            return Ok(reading.0);
        }
        // What is seen to have ended must have ended for whoever leads next, too (L5): that time goes into the log.
        if !self.tick(term, now, until).await {
            return Err("the leader has changed".into());
        }
        Ok(self.machine.state().read(question, StoreTime::ZERO).0)
    }
}

impl State {
    /// What is there at `now`, and whether the log tells the same story: nothing ended since its last entry.
    pub(crate) fn read(&self, question: &Question, now: StoreTime) -> (Reading, bool) {
        let table = &self.table;
        match question {
            Question::Status(name) => {
                let status = self.status(name, now);
                let known = state_of(&status) == state_of(&self.status(name, StoreTime::ZERO));
                (Reading::Status(status), known)
            }
            Question::List { prefix, limit } => {
                let list = table.list(prefix, *limit, now);
                let known = (list.iter()).all(|status| {
                    Some(status.state) == state_of(&self.status(&status.name, StoreTime::ZERO))
                });
                (Reading::List(list), known)
            }
            Question::Pair(key) => (Reading::Pair(table.pair(key).cloned()), true),
            Question::Fence(resource) => (Reading::Fence(table.fence(resource).cloned()), true),
            Question::Entry(work) => (Reading::Entry(table.entry(work).cloned()), true),
            Question::History { name, after, limit } => {
                let wanted = self.history.iter().filter(|recorded| {
                    recorded.number > *after
                        && name
                            .as_ref()
                            .is_none_or(|name| *name == recorded.event.lease)
                });
                let wanted = wanted.map(|recorded| (recorded.number, recorded.event.clone()));
                (Reading::History(wanted.take(*limit).collect()), true)
            }
        }
    }

    fn status(&self, name: &LeaseName, now: StoreTime) -> Option<Status> {
        self.table.status(name, now)
    }
}

fn state_of(status: &Option<Status>) -> Option<leasehold_core::State> {
    status.as_ref().map(|status| status.state)
}
