//! A holder from the first ask to the release, as a pure machine: it hears what happened and what time it is, and says
//! what to do. No clock, no IO, no dice of its own (H1 to H5, W1).
//!
//! ```text
//!          Want           Granted          stop, loss, deadline          Drained           answered
//!   Idle ───────▶ Asking ─────────▶ Keeping ───────────────────▶ Leaving ─────────▶ Parting ───────▶ Idle
//!                                      └─────────────── Drained ─────────────────────▲
//! ```
//!
//! There is no way back from Leaving: a token that was lost, even in doubt, is never held again. Time is looked at
//! before anything else, so an answer that comes too late revives nothing (C7).

mod ask;
mod call;
mod keep;
mod leave;
mod say;

pub use say::{Action, Blocker, Dice, Failure, GaveUp, Input, Loss, Plan, Tell, Wait};

use alloc::vec::Vec;
use core::{cmp::max, mem, time::Duration};

use crate::{BootTime, Command, Op, Session, Term, Token};
use ask::Asking;
use call::{Call, backoff, part};
use keep::Keeping;
use leave::{Leaving, Parting};

/// Two asks of one holder are never closer (A20).
const MIN_POLL: Duration = Duration::from_millis(50);

/// One holder's hold on one lease, tenure after tenure.
#[derive(Clone, Debug)]
pub struct Hold {
    plan: Plan,
    session: Session,
    /// The latest time it was told.
    now: BootTime,
    attempts: u64,
    /// What it shall get, once it is Idle.
    wanted: Option<Wanted>,
    /// Tenures in a row that failed.
    failures: u32,
    rest_until: BootTime,
    state: State,
    actions: Vec<Action>,
}

#[derive(Clone, Debug)]
enum State {
    Idle,
    /// Asks until it is granted.
    Asking(Asking),
    /// Held: renews.
    Keeping(Keeping),
    /// The work is to stop; no renewal any more.
    Leaving(Leaving),
    /// Nothing is held or used any more; the store is told.
    Parting(Parting),
}

#[derive(Clone, Copy, Debug)]
struct Wanted {
    wait: Wait,
    give_up_at: BootTime,
}

impl Hold {
    /// A holder that wants nothing yet. No two holders ever share a session.
    pub fn new(plan: Plan, session: Session) -> Self {
        Self {
            plan,
            session,
            now: BootTime::ZERO,
            attempts: 0,
            wanted: None,
            failures: 0,
            rest_until: BootTime::ZERO,
            state: State::Idle,
            actions: Vec::new(),
        }
    }

    /// Hears `input` at `now`, which was read just before, and says what to do, in this order.
    pub fn step(&mut self, now: BootTime, input: Input, dice: &mut dyn Dice) -> Vec<Action> {
        self.now = max(self.now, now);
        if let (Input::Progress(at), State::Keeping(keeping)) = (&input, &mut self.state) {
            keeping.progressed = max(keeping.progressed, *at);
        }
        self.see_time();
        let state = mem::replace(&mut self.state, State::Idle);
        self.state = self.hear(state, input, dice);
        self.see_time();
        self.time_out(dice);
        self.begin(dice);
        self.send_due(dice);
        mem::take(&mut self.actions)
    }

    /// When to call [`step`](Self::step) with [`Input::Tick`], if nothing happens before. Perhaps in the past: then now.
    pub fn wake_at(&self) -> Option<BootTime> {
        match &self.state {
            State::Idle => self
                .wanted
                .map(|wanted| self.rest_until.min(wanted.give_up_at)),
            State::Asking(asking) => Some(asking.wake_at()),
            State::Keeping(keeping) => Some(keeping.wake_at(self.plan.probe)),
            State::Leaving(leaving) => leaving.wake_at(),
            State::Parting(parting) => Some(parting.wake_at()),
        }
    }

    /// Nothing is held, wanted or on its way.
    pub fn is_idle(&self) -> bool {
        matches!(self.state, State::Idle) && self.wanted.is_none()
    }

    /// Wants to know when something changes in the store.
    pub fn is_waiting(&self) -> bool {
        matches!(self.state, State::Asking(_))
    }

    /// The tenure that its work goes on under, until the work is drained.
    pub fn term(&self) -> Option<&Term> {
        match &self.state {
            State::Keeping(keeping) => Some(&keeping.term),
            State::Leaving(leaving) => Some(&leaving.term),
            _ => None,
        }
    }

    /// Held, and nothing speaks against going on.
    pub fn is_held(&self) -> bool {
        matches!(&self.state, State::Keeping(keeping) if !keeping.suspect)
    }

    /// Whether the work may act at `now`, which was read just now (C7): to go on, or to finish what it must stop.
    pub fn allows(&self, now: BootTime) -> bool {
        match &self.state {
            State::Keeping(keeping) => !keeping.suspect && keeping.term.check(now),
            State::Leaving(leaving) => !leaving.loss.is_certain() && leaving.term.check(now),
            _ => false,
        }
    }

    /// The key of this holder; a new one after a guard was dropped, or a clone was found to use it too.
    pub fn session(&self) -> Session {
        self.session
    }

    /// The protocol: one line per thing that can happen in a state. What is not listed changes nothing.
    fn hear(&mut self, state: State, input: Input, dice: &mut dyn Dice) -> State {
        match (state, input) {
            (State::Asking(asking), Input::Answered { attempt, answer }) => {
                self.ask_answered(asking, attempt, answer, dice)
            }
            (State::Asking(asking), Input::Failed { attempt, failure }) => {
                self.ask_failed(asking, attempt, failure, dice)
            }
            (State::Asking(asking), Input::Changed) => self.hint(asking, dice),
            (State::Asking(asking), Input::Paused) => self.ask_anew(asking),
            (State::Asking(asking), Input::Stop | Input::Dropped) => {
                self.give_up(asking, GaveUp::Stopped)
            }

            (State::Keeping(keeping), Input::Answered { attempt, answer }) => {
                self.renew_answered(keeping, attempt, answer, dice)
            }
            (State::Keeping(keeping), Input::Failed { attempt, failure }) => {
                self.renew_failed(keeping, attempt, failure, dice)
            }
            (State::Keeping(keeping), Input::Paused) => self.suspect(keeping),
            (State::Keeping(keeping), Input::Lose(loss)) => self.stop(&keeping, loss),
            (State::Keeping(keeping), Input::Stop) => self.stop(&keeping, Loss::Stopped),
            (State::Keeping(keeping), Input::Drained { failed }) => {
                self.part(keeping.term.token(), None, failed, dice)
            }
            (State::Keeping(keeping), Input::Dropped) => self.forsake(keeping.term.token(), dice),

            (State::Leaving(leaving), Input::Lose(loss)) => self.stop_harder(leaving, loss),
            (State::Leaving(leaving), Input::Paused) => {
                self.stop_harder(leaving, Loss::Unconfirmed)
            }
            (State::Leaving(leaving), Input::Drained { failed }) => {
                self.part(leaving.term.token(), Some(leaving.loss), failed, dice)
            }
            (State::Leaving(leaving), Input::Dropped) => self.forsake(leaving.term.token(), dice),

            (State::Parting(parting), Input::Answered { attempt, answer }) => {
                self.release_answered(parting, attempt, &answer)
            }
            (State::Parting(parting), Input::Failed { attempt, failure }) => {
                self.release_failed(parting, attempt, &failure, dice)
            }

            (state @ (State::Idle | State::Parting(_)), Input::Want(wait)) => {
                self.want(state, wait)
            }
            (state @ (State::Idle | State::Parting(_)), Input::Stop | Input::Dropped) => {
                if self.wanted.take().is_some() {
                    self.tell(Tell::GaveUp(GaveUp::Stopped));
                }
                state
            }
            (state, _) => state,
        }
    }

    fn want(&mut self, state: State, wait: Wait) -> State {
        let patience = match wait {
            Wait::Forever => Duration::MAX,
            Wait::AtMost(patience) => patience,
            Wait::No => self.plan.timing.attempt() * 2,
        };
        self.wanted = Some(Wanted {
            wait,
            give_up_at: self.now.plus(patience),
        });
        state
    }

    /// Idle and wanted: asks, unless it has to rest.
    fn begin(&mut self, dice: &mut dyn Dice) {
        let (State::Idle, Some(wanted)) = (&self.state, self.wanted) else {
            return;
        };
        if self.now >= self.rest_until {
            self.wanted = None;
            self.state = State::Asking(Asking::new(wanted, self.now, dice));
        } else if self.now >= wanted.give_up_at {
            self.wanted = None;
            self.tell(Tell::GaveUp(GaveUp::TimedOut(None)));
        }
    }

    /// What time alone decides.
    fn see_time(&mut self) {
        self.state = match mem::replace(&mut self.state, State::Idle) {
            State::Keeping(keeping) => match keeping.lost_by(self.now, self.plan.probe) {
                Some(loss) => self.stop(&keeping, loss),
                None => State::Keeping(keeping),
            },
            state => state,
        };
        let told = match &mut self.state {
            State::Leaving(leaving) => leaving.see_time(self.now),
            _ => Vec::new(),
        };
        self.actions.extend(told.into_iter().map(Action::Tell));
    }

    /// Gives up calls and waits that took too long.
    fn time_out(&mut self, dice: &mut dyn Dice) {
        let state = mem::replace(&mut self.state, State::Idle);
        self.state = match state {
            State::Asking(asking) => self.ask_timed_out(asking, dice),
            State::Keeping(keeping) => self.renew_timed_out(keeping, dice),
            State::Parting(parting) => self.release_timed_out(parting, dice),
            state => state,
        };
    }

    fn send_due(&mut self, dice: &mut dyn Dice) {
        let mut state = mem::replace(&mut self.state, State::Idle);
        match &mut state {
            State::Asking(asking) => self.ask_if_due(asking),
            State::Keeping(keeping) => self.renew_if_due(keeping, dice),
            State::Parting(parting) => self.release_if_due(parting),
            _ => {}
        }
        self.state = state;
    }

    /// The send time is now: nothing has queued yet (C3).
    fn send(&mut self, command: Command) -> Call {
        self.send_waiting(command, Duration::ZERO)
    }

    /// The same, for an ask that the store may hold back.
    fn send_waiting(&mut self, command: Command, hold_back: Duration) -> Call {
        self.attempts += 1;
        let timeout = self.plan.timing.attempt().saturating_add(hold_back);
        self.actions.push(Action::Send {
            attempt: self.attempts,
            op: Op::Lease {
                name: self.plan.name.clone(),
                command,
            },
            hold_back,
            timeout,
        });
        Call {
            attempt: self.attempts,
            sent: self.now,
            hold_back,
            until: self.now.plus(timeout),
        }
    }

    fn tell(&mut self, tell: Tell) {
        self.actions.push(Action::Tell(tell));
    }

    /// A tenure ended. A holder whose work fails leaves the lease to others for a while (FB-68).
    fn rest(&mut self, failed: bool, dice: &mut dyn Dice) {
        self.failures = if failed {
            self.failures.saturating_add(1)
        } else {
            0
        };
        let rest = match self.failures {
            0 => Duration::ZERO,
            n => backoff(n - 1, self.plan.rest_min, self.plan.rest_max, dice),
        };
        self.rest_until = self.now.plus(rest);
    }

    /// The token whose holder this is, for messages that must not hit a later tenure.
    pub fn token(&self) -> Option<Token> {
        self.term().map(Term::token)
    }
}

#[cfg(test)]
mod driver;
#[cfg(test)]
mod tests_ask;
#[cfg(test)]
mod tests_keep;
#[cfg(test)]
mod tests_leave;
