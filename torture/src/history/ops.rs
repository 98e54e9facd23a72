//! Calls paired with their answers.
//!
//! The one rule: an answer that is missing is unknown, and one that does not fit is a fault of the history, said so.

use std::collections::HashMap;

use super::{Call, History, Outcome, What};

/// A moment: by time, then by place in the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp {
    /// Nanoseconds on the true clock.
    pub time: u64,
    /// The index of the event in [`History::events`].
    pub seq: usize,
}

/// One call with its answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Op<'h> {
    /// Who called.
    pub process: &'h str,
    /// The lease's name.
    pub lease: &'h str,
    /// The caller's session.
    pub session: &'h str,
    /// What was asked.
    pub call: &'h Call,
    /// When it was asked.
    pub invoked: Stamp,
    /// When it was answered, if it was.
    pub returned: Option<Stamp>,
    /// What was answered; `Unknown` if nothing was.
    pub outcome: &'h Outcome,
}

impl History {
    /// All calls with their answers in the order of invocation, and what is wrong with the history itself: an answer
    /// without a call, two answers, an id used twice, an answer that does not fit the call, time that runs backwards.
    pub fn ops(&self) -> (Vec<Op<'_>>, Vec<String>) {
        let mut ops: Vec<Op<'_>> = Vec::new();
        let mut problems = Vec::new();
        let mut by_id: HashMap<(&str, u64), usize> = HashMap::new();
        let mut last = 0;
        for (seq, event) in self.events.iter().enumerate() {
            let at = Stamp {
                time: event.time,
                seq,
            };
            if event.time < last {
                problems.push(format!(
                    "event {seq}: time {} comes after {last}",
                    event.time
                ));
            }
            last = event.time;
            match &event.what {
                What::Invoke(invoke) => {
                    if by_id
                        .insert((&event.process, invoke.id), ops.len())
                        .is_some()
                    {
                        problems.push(format!("event {seq}: id {} used twice", invoke.id));
                    }
                    ops.push(Op {
                        process: &event.process,
                        lease: &invoke.lease,
                        session: &invoke.session,
                        call: &invoke.call,
                        invoked: at,
                        returned: None,
                        outcome: &Outcome::Unknown,
                    });
                }
                What::Return { id, outcome } => {
                    let op = by_id
                        .get(&(event.process.as_str(), *id))
                        .map(|&i| &mut ops[i]);
                    if let Err(problem) = pair(op, at, outcome) {
                        problems.push(format!("event {seq}: answer to id {id}: {problem}"));
                    }
                }
                _ => {}
            }
        }
        (ops, problems)
    }
}

fn pair<'h>(op: Option<&mut Op<'h>>, at: Stamp, outcome: &'h Outcome) -> Result<(), String> {
    let op = op.ok_or("there is no such call of this process")?;
    if op.returned.is_some() {
        return Err("it was answered before".into());
    }
    if at < op.invoked {
        return Err("it comes before the call".into());
    }
    if !outcome.fits(op.call) {
        return Err(format!("{outcome:?} does not answer {:?}", op.call));
    }
    op.returned = Some(at);
    op.outcome = outcome;
    Ok(())
}

impl<'h> Op<'h> {
    /// The request id of an acquire.
    pub fn request(&self) -> Option<&'h str> {
        match self.call {
            Call::Acquire { request, .. } => Some(request),
            _ => None,
        }
    }

    /// The token that a renewal or a release names.
    pub fn token(&self) -> Option<u64> {
        match self.call {
            Call::Renew { token, .. } => Some(*token),
            Call::Release { token, .. } => *token,
            Call::Acquire { .. } | Call::Read => None,
        }
    }

    /// The request id of the acquire that a release without a token is to undo.
    pub fn undoes(&self) -> Option<&'h str> {
        match self.call {
            Call::Release {
                token: None,
                request,
            } => request.as_deref(),
            _ => None,
        }
    }

    /// When it was answered, or the end of all time.
    pub fn end(&self) -> Stamp {
        self.returned.unwrap_or(Stamp {
            time: u64::MAX,
            seq: usize::MAX,
        })
    }

    /// Whether it was answered, and the answer was not [`Outcome::Unknown`].
    pub fn is_known(&self) -> bool {
        *self.outcome != Outcome::Unknown
    }
}
