//! Leaving: no renewal any more, the work stops, at the latest at the deadline. Only when it has ended is the store told
//! (H5).

use alloc::{vec, vec::Vec};
use core::time::Duration;

use super::{Call, Dice, Failure, Hold, Loss, Plan, State, Tell, backoff, keep::Keeping};
use crate::{Answer, BootTime, Command, Lost, Release, Term, Token};

/// The work is to stop.
#[derive(Clone, Debug)]
pub(super) struct Leaving {
    pub(super) term: Term,
    pub(super) loss: Loss,
    kill_at: BootTime,
    killed: bool,
    overdue: bool,
}

impl Leaving {
    pub(super) fn wake_at(&self) -> Option<BootTime> {
        match (self.killed, self.overdue) {
            (false, _) => Some(self.kill_at),
            (true, false) => Some(self.term.deadline()),
            (true, true) => None,
        }
    }

    pub(super) fn see_time(&mut self, now: BootTime) -> Vec<Tell> {
        let mut told = vec![];
        if !self.killed && now >= self.kill_at {
            self.killed = true;
            told.push(Tell::Kill);
        }
        if !self.overdue && now >= self.term.deadline() {
            self.overdue = true;
            told.push(Tell::Overdue);
        }
        told
    }
}

/// Nothing is used any more; the store is told, for a while.
#[derive(Clone, Debug)]
pub(super) struct Parting {
    release: Release,
    /// The tenure that ends with it, if there was one.
    over: Option<(Token, Option<Loss>)>,
    call: Option<Call>,
    next: BootTime,
    until: BootTime,
    tries: u32,
}

impl Parting {
    /// Tries for two attempts' time: after that the lease runs out by itself, and nobody waits for a dead store.
    pub(super) fn new(
        release: Release,
        over: Option<(Token, Option<Loss>)>,
        now: BootTime,
        plan: &Plan,
    ) -> Self {
        Self {
            release,
            over,
            call: None,
            next: now,
            until: now.plus(plan.timing.attempt() * 2),
            tries: 0,
        }
    }

    pub(super) fn wake_at(&self) -> BootTime {
        Call::wake_at(self.call.as_ref(), self.next).min(self.until)
    }
}

impl Hold {
    /// From here there is no way back to this token (H1).
    pub(super) fn stop(&mut self, keeping: &Keeping, loss: Loss) -> State {
        let term = keeping.term;
        let loss = match keeping.suspect && !loss.is_certain() {
            true => Loss::Unconfirmed,
            false => loss,
        };
        let kill_at = self.kill_at(&term, &loss);
        self.tell(Tell::Stop {
            loss: loss.clone(),
            kill_at,
        });
        State::Leaving(Leaving {
            term,
            loss,
            kill_at,
            killed: false,
            overdue: false,
        })
    }

    /// Somebody else may act already: then work gets its grace and no more.
    fn kill_at(&self, term: &Term, loss: &Loss) -> BootTime {
        match loss.is_certain() {
            true => term.kill_at().min(self.now.plus(self.plan.timing.grace())),
            false => term.kill_at(),
        }
    }

    /// It was stopping already, and now it is certain that the lease is gone.
    pub(super) fn stop_harder(&mut self, mut leaving: Leaving, loss: Loss) -> State {
        if loss.is_certain() && !leaving.loss.is_certain() {
            leaving.kill_at = leaving.kill_at.min(self.kill_at(&leaving.term, &loss));
            self.tell(Tell::Stop {
                loss: loss.clone(),
                kill_at: leaving.kill_at,
            });
            leaving.loss = loss;
        }
        State::Leaving(leaving)
    }

    /// The work has ended: the lease is given back, if there is something to give.
    pub(super) fn part(
        &mut self,
        token: Token,
        loss: Option<Loss>,
        failed: bool,
        dice: &mut dyn Dice,
    ) -> State {
        self.rest(failed || loss.as_ref().is_some_and(Loss::is_failure), dice);
        if loss == Some(Loss::Store(Lost::SeqMismatch)) {
            // The clone has the lease. Under the old session it would be taken for an orphan of ours, and released.
            self.session = dice.roll().into();
        }
        if !loss.as_ref().is_none_or(Loss::leaves_something) {
            self.tell(Tell::Over {
                token,
                loss,
                released: false,
            });
            return State::Idle;
        }
        let session = self.session;
        let release = Release::Tenure { token, session };
        State::Parting(Parting::new(
            release,
            Some((token, loss)),
            self.now,
            &self.plan,
        ))
    }

    pub(super) fn release_answered(
        &mut self,
        mut parting: Parting,
        attempt: u64,
        answer: &Answer,
    ) -> State {
        if Call::take(&mut parting.call, attempt).is_none() {
            return State::Parting(parting);
        }
        let released = matches!(answer, Answer::Released | Answer::AlreadyOver);
        self.parted(parting, released)
    }

    pub(super) fn release_failed(
        &mut self,
        mut parting: Parting,
        attempt: u64,
        failure: &Failure,
        dice: &mut dyn Dice,
    ) -> State {
        if Call::take(&mut parting.call, attempt).is_none() {
            return State::Parting(parting);
        }
        if matches!(failure, Failure::Invalid(_)) {
            return self.parted(parting, false);
        }
        let longest = self.plan.timing.attempt();
        parting.next = self
            .now
            .plus(backoff(parting.tries, longest / 8, longest, dice));
        parting.tries = parting.tries.saturating_add(1);
        State::Parting(parting)
    }

    pub(super) fn release_timed_out(&mut self, parting: Parting, dice: &mut dyn Dice) -> State {
        if self.now >= parting.until {
            return self.parted(parting, false);
        }
        match parting.call {
            Some(call) if self.now >= call.until => {
                let failure = Call::no_answer(Duration::ZERO);
                self.release_failed(parting, call.attempt, &failure, dice)
            }
            _ => State::Parting(parting),
        }
    }

    pub(super) fn release_if_due(&mut self, parting: &mut Parting) {
        if parting.call.is_none() && self.now >= parting.next {
            parting.call = Some(self.send(Command::Release(parting.release.clone())));
        }
    }

    fn parted(&mut self, parting: Parting, released: bool) -> State {
        if let Some((token, loss)) = parting.over {
            self.tell(Tell::Over {
                token,
                loss,
                released,
            });
        }
        State::Idle
    }
}
