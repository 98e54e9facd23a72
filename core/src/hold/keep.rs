//! Keeping: renews until it is told to stop or time is up. Only a positive answer to the latest attempt moves the
//! deadline; everything else leaves it where it is (C5).

use alloc::format;
use core::{cmp::max, time::Duration};

use super::{Call, Dice, Failure, Hold, Loss, State, Tell, backoff, part};
use crate::{Answer, BootTime, Command, Renew, RenewId, Term};

/// Two attempts of one renewal are never closer.
const MIN_RETRY: Duration = Duration::from_millis(10);

#[derive(Clone, Debug)]
pub(super) struct Keeping {
    pub(super) term: Term,
    /// Some time may be missing: no effect until a round trip that began now (C13).
    pub(super) suspect: bool,
    /// When the work last said that it goes on.
    pub(super) progressed: BootTime,
    /// How many renewals the store has answered.
    renewals: u64,
    /// The id of the next one, once it was sent; the same over its retries (A3).
    renew_id: Option<RenewId>,
    call: Option<Call>,
    next: BootTime,
    tries: u32,
    failure: Option<Failure>,
}

impl Keeping {
    pub(super) fn new(term: Term, now: BootTime, dice: &mut dyn Dice) -> Self {
        Self {
            next: next_renewal(&term, now, dice),
            term,
            suspect: false,
            progressed: now,
            renewals: 0,
            renew_id: None,
            call: None,
            tries: 0,
            failure: None,
        }
    }

    pub(super) fn wake_at(&self, probe: Option<Duration>) -> BootTime {
        let stalled = probe.map_or(BootTime::MAX, |probe| self.progressed.plus(probe));
        Call::wake_at(self.call.as_ref(), self.next)
            .min(self.term.stop_at())
            .min(stalled)
    }

    /// Whether time alone has ended it (C7, H3).
    pub(super) fn lost_by(&self, now: BootTime, probe: Option<Duration>) -> Option<Loss> {
        if now >= self.term.stop_at() {
            return Some(Loss::NotRenewed(self.failure.clone()));
        }
        probe
            .is_some_and(|probe| now >= self.progressed.plus(probe))
            .then_some(Loss::Stalled)
    }
}

/// P, less up to a tenth (H2).
fn next_renewal(term: &Term, now: BootTime, dice: &mut dyn Dice) -> BootTime {
    let early = part(term.timing().renew() / 10, dice);
    max(term.renew_at().minus(early), now.plus(MIN_RETRY))
}

impl Hold {
    pub(super) fn renew_answered(
        &mut self,
        mut keeping: Keeping,
        attempt: u64,
        answer: Answer,
        dice: &mut dyn Dice,
    ) -> State {
        let Some(call) = Call::take(&mut keeping.call, attempt) else {
            return State::Keeping(keeping);
        };
        match answer {
            Answer::Renewed { ttl } => {
                keeping.term.renewed(call.sent, ttl);
                keeping.renewals += 1;
                keeping.renew_id = None;
                keeping.tries = 0;
                keeping.failure = None;
                keeping.next = next_renewal(&keeping.term, self.now, dice);
                self.tell(Tell::Renewed(keeping.term));
                if core::mem::take(&mut keeping.suspect) {
                    self.tell(Tell::Confirmed);
                }
                State::Keeping(keeping)
            }
            Answer::Lost(lost) => self.stop(&keeping, Loss::Store(lost)),
            other => {
                let what = format!("it answered a renewal with {other:?}");
                self.stop(&keeping, Loss::Refused(what))
            }
        }
    }

    pub(super) fn renew_failed(
        &mut self,
        mut keeping: Keeping,
        attempt: u64,
        failure: Failure,
        dice: &mut dyn Dice,
    ) -> State {
        match Call::take(&mut keeping.call, attempt) {
            Some(_) => self.not_renewed(keeping, failure, dice),
            None => State::Keeping(keeping),
        }
    }

    /// Tries again as long as time allows, whatever failed: the deadline counts, not the number of failures.
    fn not_renewed(
        &mut self,
        mut keeping: Keeping,
        failure: Failure,
        dice: &mut dyn Dice,
    ) -> State {
        if let Failure::Invalid(what) = failure {
            return self.stop(&keeping, Loss::Refused(what));
        }
        let longest = self.plan.timing.attempt();
        let left = keeping.term.stop_at().since(self.now);
        let rest = backoff(keeping.tries, longest / 8, longest, dice).min(left / 2);
        keeping.tries = keeping.tries.saturating_add(1);
        keeping.next = self.now.plus(max(rest, MIN_RETRY));
        keeping.failure = Some(failure);
        State::Keeping(keeping)
    }

    pub(super) fn renew_timed_out(&mut self, mut keeping: Keeping, dice: &mut dyn Dice) -> State {
        if !Call::is_over(keeping.call.as_ref(), self.now) {
            return State::Keeping(keeping);
        }
        keeping.call = None;
        let failure = Call::no_answer(self.plan.timing.attempt());
        self.not_renewed(keeping, failure, dice)
    }

    pub(super) fn renew_if_due(&mut self, keeping: &mut Keeping, dice: &mut dyn Dice) {
        if keeping.call.is_some() || self.now < keeping.next {
            return;
        }
        let renew_id = *keeping.renew_id.get_or_insert_with(|| dice.roll().into());
        keeping.call = Some(self.send(Command::Renew(Renew {
            token: keeping.term.token(),
            session: self.session,
            ttl: self.plan.timing.ttl(),
            number: keeping.renewals + 1,
            renew_id,
        })));
    }

    /// C13: what is on its way proves nothing about the time that is missing.
    pub(super) fn suspect(&mut self, mut keeping: Keeping) -> State {
        keeping.call = None;
        keeping.next = self.now;
        if !keeping.suspect {
            keeping.suspect = true;
            self.tell(Tell::Suspect);
        }
        State::Keeping(keeping)
    }
}
