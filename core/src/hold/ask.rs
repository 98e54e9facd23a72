//! Asking: one request id over all polls, over `Held` and over unknown outcomes, so that one wish is granted once (A4).

use alloc::format;
use core::{cmp::max, time::Duration};

use super::{
    Blocker, Call, Dice, Failure, GaveUp, Hold, Loss, MIN_POLL, State, Tell, Wait, Wanted, backoff,
    keep::Keeping, leave::Parting, part,
};
use crate::{Acquire, Answer, BootTime, Command, Grant, Release, RequestId, Term, Token};

/// Retries after the first failure come so soon.
const FIRST_RETRY: Duration = Duration::from_millis(100);
/// A hint wakes all waiters; they come back spread over this (W2).
const SPREAD: Duration = Duration::from_millis(50);

#[derive(Clone, Debug)]
pub(super) struct Asking {
    request_id: RequestId,
    wanted: Wanted,
    call: Option<Call>,
    /// A tenure of this session that nobody uses, to be released before the next ask.
    orphan: Option<Token>,
    next: BootTime,
    asked: BootTime,
    /// An ask under this request id may have been granted, or may yet be.
    doubt: bool,
    /// Failures in a row.
    tries: u32,
    /// Was refused with hint 0: it may be a dead holder's (A20).
    asked_again: bool,
    /// Something changed while an ask was on its way: its answer may be older than the change.
    changed: bool,
    blocker: Option<Blocker>,
}

impl Asking {
    pub(super) fn new(wanted: Wanted, now: BootTime, dice: &mut dyn Dice) -> Self {
        Self {
            request_id: dice.roll().into(),
            wanted,
            call: None,
            orphan: None,
            next: now,
            asked: BootTime::ZERO,
            doubt: false,
            tries: 0,
            asked_again: false,
            changed: false,
            blocker: None,
        }
    }

    pub(super) fn wake_at(&self) -> BootTime {
        Call::wake_at(self.call.as_ref(), self.next).min(self.wanted.give_up_at)
    }

    /// A new wish, since the old one had its grant.
    fn renew_wish(&mut self, dice: &mut dyn Dice) {
        self.request_id = dice.roll().into();
        self.doubt = false;
    }

    /// What must be undone so that nothing of this wish lives on (L9).
    fn leftover(&self, session: crate::Session) -> Option<Release> {
        let asked = self.doubt || self.call.is_some();
        match self.orphan {
            Some(token) => Some(Release::Tenure { token, session }),
            None => asked.then_some(Release::Request {
                session,
                request_id: self.request_id,
            }),
        }
    }
}

impl Hold {
    pub(super) fn ask_answered(
        &mut self,
        mut asking: Asking,
        attempt: u64,
        answer: Answer,
        dice: &mut dyn Dice,
    ) -> State {
        let Some(call) = Call::take(&mut asking.call, attempt) else {
            return State::Asking(asking);
        };
        match answer {
            Answer::Released | Answer::AlreadyOver | Answer::Lost(_) if asking.orphan.is_some() => {
                asking.orphan = None;
                asking.next = max(self.now, asking.asked.plus(MIN_POLL));
                State::Asking(asking)
            }
            Answer::Granted(grant) => self.granted(asking, &grant, call.sent, dice),
            Answer::Held(held) if held.yours => {
                asking.orphan = Some(held.token);
                asking.next = self.now;
                State::Asking(asking)
            }
            Answer::Held(held) => {
                let hint = held.hint;
                self.blocked(asking, &call, Blocker::Held(held), hint, dice)
            }
            Answer::Delayed { hint } => {
                self.blocked(asking, &call, Blocker::Delayed(hint), hint, dice)
            }
            Answer::Quarantined { hint } => {
                self.blocked(asking, &call, Blocker::Quarantined(hint), hint, dice)
            }
            Answer::AlreadyUsed => {
                asking.renew_wish(dice);
                asking.next = self.now.plus(MIN_POLL);
                State::Asking(asking)
            }
            Answer::TokenExhausted => self.give_up(asking, GaveUp::TokenExhausted),
            other => {
                let what = format!("the store answered an acquire with {other:?}");
                self.not_answered(asking, Failure::Unknown(what), dice)
            }
        }
    }

    /// A grant that leaves no time to work is given back, not used (A1).
    fn granted(
        &mut self,
        mut asking: Asking,
        grant: &Grant,
        sent: BootTime,
        dice: &mut dyn Dice,
    ) -> State {
        let term = Term::granted(grant, sent, self.now, &self.plan.timing);
        if self.now >= term.stop_at() {
            asking.renew_wish(dice);
            asking.orphan = Some(grant.token);
            asking.next = self.now;
            return State::Asking(asking);
        }
        self.tell(Tell::Held(term));
        State::Keeping(Keeping::new(term, self.now, dice))
    }

    fn blocked(
        &mut self,
        mut asking: Asking,
        call: &Call,
        blocker: Blocker,
        hint: Duration,
        dice: &mut dyn Dice,
    ) -> State {
        asking.tries = 0;
        if hint.is_zero() && !asking.asked_again {
            asking.asked_again = true;
            asking.next = self.now.plus(MIN_POLL);
            return State::Asking(asking);
        }
        asking.asked_again = false;
        if asking.wanted.wait == Wait::No {
            return self.give_up(asking, GaveUp::Busy(blocker));
        }
        let span = hint.min(self.plan.poll_max);
        let poll = max(MIN_POLL, part(span, dice));
        asking.next = match core::mem::take(&mut asking.changed) {
            true => self.soon(&asking, dice),
            false if self.waits_at_store(call) => self.now.plus(MIN_POLL),
            false => self.now.plus(poll),
        };
        self.wait_for(asking, blocker)
    }

    /// The store keeps our place while we wait there, so we come back at once; unless it did not hold us back when it could.
    fn waits_at_store(&self, call: &Call) -> bool {
        !self.plan.hold_back.is_zero() && self.now.since(call.sent) >= call.hold_back / 2
    }

    /// How long the store may hold the next ask back: one who waits, and knows for whom, leaves time for the answer.
    fn hold_back(&self, asking: &Asking) -> Duration {
        let waits = asking.wanted.wait != Wait::No
            && !matches!(asking.blocker, None | Some(Blocker::Store(_)));
        let left = asking.wanted.give_up_at.since(self.now);
        match waits {
            true => self
                .plan
                .hold_back
                .min(left.saturating_sub(self.plan.timing.attempt() / 2)),
            false => Duration::ZERO,
        }
    }

    fn wait_for(&mut self, mut asking: Asking, blocker: Blocker) -> State {
        self.tell(Tell::Waiting {
            blocker: blocker.clone(),
            again: asking.next,
        });
        asking.blocker = Some(blocker);
        State::Asking(asking)
    }

    pub(super) fn ask_failed(
        &mut self,
        mut asking: Asking,
        attempt: u64,
        failure: Failure,
        dice: &mut dyn Dice,
    ) -> State {
        match Call::take(&mut asking.call, attempt) {
            Some(_) => self.not_answered(asking, failure, dice),
            None => State::Asking(asking),
        }
    }

    /// An unknown outcome may be a grant: the request id stays, and giving up will undo it (L9).
    fn not_answered(&mut self, mut asking: Asking, failure: Failure, dice: &mut dyn Dice) -> State {
        if asking.orphan.take().is_none() {
            asking.doubt |= matches!(failure, Failure::Unknown(_));
        }
        if let Failure::Invalid(what) = failure {
            return self.give_up(asking, GaveUp::Refused(what));
        }
        let blocker = Blocker::Store(failure);
        if asking.wanted.wait == Wait::No && matches!(blocker, Blocker::Store(Failure::Blocked(_)))
        {
            return self.give_up(asking, GaveUp::Busy(blocker));
        }
        let rest = backoff(
            asking.tries,
            FIRST_RETRY,
            max(self.plan.poll_max, FIRST_RETRY),
            dice,
        );
        asking.tries = asking.tries.saturating_add(1);
        asking.next = self.now.plus(rest);
        self.wait_for(asking, blocker)
    }

    pub(super) fn ask_timed_out(&mut self, mut asking: Asking, dice: &mut dyn Dice) -> State {
        if self.now >= asking.wanted.give_up_at {
            let blocker = asking.blocker.take();
            return self.give_up(asking, GaveUp::TimedOut(blocker));
        }
        if Call::is_over(asking.call.as_ref(), self.now) {
            let call = asking.call.take();
            let timeout = call.map_or(Duration::ZERO, |call| call.until.since(call.sent));
            let failure = Call::no_answer(timeout);
            return self.not_answered(asking, failure, dice);
        }
        State::Asking(asking)
    }

    /// Something may have changed: asks soon, but not all waiters at once.
    pub(super) fn hint(&mut self, mut asking: Asking, dice: &mut dyn Dice) -> State {
        match asking.call {
            Some(_) => asking.changed = true,
            None => asking.next = asking.next.min(self.soon(&asking, dice)),
        }
        State::Asking(asking)
    }

    fn soon(&self, asking: &Asking, dice: &mut dyn Dice) -> BootTime {
        let spread = self.now.plus(part(SPREAD, dice));
        max(spread, asking.asked.plus(MIN_POLL))
    }

    /// The machine may have stood still: an answer that is on its way may count from a time nobody knows (C13).
    pub(super) fn ask_anew(&mut self, mut asking: Asking) -> State {
        if asking.call.take().is_some() {
            asking.doubt = true;
            asking.next = self.now;
        }
        State::Asking(asking)
    }

    pub(super) fn ask_if_due(&mut self, asking: &mut Asking) {
        if asking.call.is_some() || self.now < asking.next {
            return;
        }
        let session = self.session;
        let mut hold_back = Duration::ZERO;
        let command = match asking.orphan {
            Some(token) => Command::Release(Release::Tenure { token, session }),
            None => {
                asking.asked = self.now;
                hold_back = self.hold_back(asking);
                Command::Acquire(Acquire {
                    session,
                    request_id: asking.request_id,
                    holder: self.plan.holder.clone(),
                    info: self.plan.info.clone(),
                    ttl: self.plan.timing.ttl(),
                    lock_delay: self.plan.lock_delay,
                })
            }
        };
        asking.call = Some(self.send_waiting(command, hold_back));
    }

    pub(super) fn give_up(&mut self, asking: Asking, why: GaveUp) -> State {
        self.tell(Tell::GaveUp(why));
        match asking.leftover(self.session) {
            Some(release) => State::Parting(Parting::new(release, None, self.now, &self.plan)),
            None => State::Idle,
        }
    }

    /// The work may go on without us: nothing is released, and what is left of this session is no orphan of the next
    /// one (O15). The lease runs out by itself.
    pub(super) fn forsake(&mut self, token: Token, dice: &mut dyn Dice) -> State {
        self.session = dice.roll().into();
        self.tell(Tell::Over {
            token,
            loss: Some(Loss::Dropped),
            released: false,
        });
        State::Idle
    }
}
