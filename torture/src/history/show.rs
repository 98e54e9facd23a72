//! One readable line for each call and each event.
//!
//! The one rule: a line says who, what, which lease and token, and when, in that order of need, for the failure report.

use std::fmt::{Display, Formatter, Result};

use super::{Answer, Call, Event, Op, Outcome, Step, What};

/// Nanoseconds, shown in seconds: `1.5s`.
#[derive(Clone, Copy, Debug)]
pub struct Seconds(pub u64);

impl Display for Seconds {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let (whole, nanos) = (self.0 / 1_000_000_000, self.0 % 1_000_000_000);
        let text = format!("{nanos:09}");
        match text.trim_end_matches('0') {
            "" => write!(f, "{whole}s"),
            part => write!(f, "{whole}.{part}s"),
        }
    }
}

impl Display for Op<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let at = Seconds(self.invoked.time);
        write!(
            f,
            "{at}: {} of {} {}: ",
            self.process, self.session, self.lease
        )?;
        match self.call {
            Call::Acquire { request, .. } => write!(f, "acquire as {request}")?,
            Call::Renew { token, .. } => write!(f, "renew {token}")?,
            Call::Release {
                token: Some(token), ..
            } => write!(f, "release {token}")?,
            Call::Release { request, .. } => {
                write!(
                    f,
                    "release of request {}",
                    request.as_deref().unwrap_or("none")
                )?;
            }
            Call::Read => write!(f, "read")?,
        }
        match self.outcome {
            Outcome::Granted { token, ttl } => {
                write!(f, ": granted {token} for {}", Seconds(*ttl))?
            }
            Outcome::Held { token, .. } => write!(f, ": held, token {token}")?,
            Outcome::AlreadyUsed => write!(f, ": already used")?,
            Outcome::Renewed { ttl } => write!(f, ": renewed for {}", Seconds(*ttl))?,
            Outcome::Lost => write!(f, ": lost")?,
            Outcome::Released => write!(f, ": released")?,
            Outcome::AlreadyOver => write!(f, ": already over")?,
            Outcome::Seen { token, held, .. } => {
                write!(
                    f,
                    ": {}, token {token}",
                    if *held { "held" } else { "free" }
                )?;
            }
            Outcome::Refused { why } => write!(f, ": refused, {why}")?,
            Outcome::Failed => write!(f, ": failed")?,
            Outcome::Unknown => write!(f, ": unknown")?,
        }
        match self.returned {
            Some(at) => write!(f, " at {}", Seconds(at.time)),
            None => Ok(()),
        }
    }
}

impl Display for Event {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "{}: {}: ", Seconds(self.time), self.process)?;
        match &self.what {
            What::Invoke(invoke) => write!(f, "call {} on {}", invoke.id, invoke.lease),
            What::Return { id, outcome } => write!(f, "answer to call {id}: {outcome:?}"),
            What::Effect(e) => {
                let kind = if e.fenced { "fenced" } else { "unfenced" };
                write!(
                    f,
                    "{kind} effect on {} with {} {}",
                    e.resource, e.lease, e.token
                )?;
                if let Some(value) = &e.value {
                    write!(f, ", value {value}")?;
                }
                write!(f, ", started {}", Seconds(e.started))?;
                placed(f, e.answer, e.position)
            }
            What::Raise(raise) => {
                write!(
                    f,
                    "barrier on {} with {} {}",
                    raise.resource, raise.lease, raise.token
                )?;
                placed(f, raise.answer, raise.position)
            }
            What::Look(look) => {
                write!(
                    f,
                    "read of {} with {} {}",
                    look.resource, look.lease, look.token
                )?;
                if let Some(position) = look.position {
                    write!(f, ", up to position {position}")?;
                }
                match &look.saw {
                    Some(saw) => write!(f, ", saw {} values", saw.len()),
                    None => Ok(()),
                }
            }
            What::KeyedEffect { scope, key } => write!(f, "the effect of {scope}/{key} took place"),
            What::KeyedReply { scope, key } => write!(f, "was told that {scope}/{key} is done"),
            What::TokenText { at, text, accepted } => {
                let verb = if *accepted { "took" } else { "refused" };
                write!(f, "{at} {verb} {text:?} as a token")
            }
            What::Tenure { lease, token, step } => {
                write!(f, "{lease} {token}: ")?;
                match step {
                    Step::Held => write!(f, "held"),
                    Step::Deadline { deadline } => write!(f, "deadline {}", Seconds(*deadline)),
                    Step::Stopped => write!(f, "stopped"),
                    Step::Lost => write!(f, "lost"),
                    Step::Releasing => write!(f, "releasing"),
                    Step::ChildStarted { child } => write!(f, "child {child} started"),
                    Step::ChildDead { child } => write!(f, "child {child} dead"),
                }
            }
            What::Died => write!(f, "died"),
            What::Store { lease, change } => {
                write!(f, "store: {}", change.name())?;
                lease
                    .as_ref()
                    .map_or(Ok(()), |lease| write!(f, " of {lease}"))
            }
            What::Fault { kind, victim, .. } => {
                write!(
                    f,
                    "fault: {kind} of {}",
                    victim.as_deref().unwrap_or("the store")
                )
            }
        }
    }
}

fn placed(f: &mut Formatter<'_>, answer: Answer, position: Option<u64>) -> Result {
    match answer {
        Answer::Accepted => write!(f, ": accepted")?,
        Answer::Refused => write!(f, ": refused")?,
        Answer::Unknown => write!(f, ": answer lost")?,
    }
    position.map_or(Ok(()), |position| write!(f, " at position {position}"))
}
