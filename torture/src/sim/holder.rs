//! A holder: drives exactly the machine that the keeper drives, `Hold`, and does what it says.
//!
//! The one rule: nothing here decides about leases. What the machine sends is sent, what it tells is told to the job.

use std::num::NonZeroU128;

use leasehold_core::{
    Action, BootTime, Dice, Failure, Hold, Input, Outcome, Plan, Tell, Term, Wait,
};
use rand::RngCore;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

use super::job::Job;
use super::world::{Ask, Event, MS, Pid, Reply, Role, SECOND, Said, World};
use crate::history::{Step, What};

pub(super) struct Holder {
    pub(super) plan: Plan,
    pub(super) lease: usize,
    pub(super) hold: Hold,
    pub(super) dice: Seeded,
    pub(super) job: Option<Job>,
    /// Whether another process shares its session: a clone (C14).
    pub(super) cloned: bool,
    timer: u64,
}

/// Random bits of one process.
pub(super) struct Seeded(ChaCha8Rng);

impl Dice for Seeded {
    fn roll(&mut self) -> NonZeroU128 {
        let bits = (u128::from(self.0.next_u64()) << 64) | u128::from(self.0.next_u64());
        NonZeroU128::new(bits).unwrap_or(NonZeroU128::MIN)
    }
}

impl Holder {
    pub(super) fn new(plan: Plan, lease: usize, seed: u64) -> Self {
        let mut dice = Seeded(ChaCha8Rng::seed_from_u64(seed));
        let hold = Hold::new(plan.clone(), dice.roll().into());
        Self {
            plan,
            lease,
            hold,
            dice,
            job: None,
            cloned: false,
            timer: 0,
        }
    }

    /// A copy of the whole process in which only the kernel's random bits differ (A3).
    pub(super) fn copy(&self, seed: u64) -> Self {
        Self {
            plan: self.plan.clone(),
            lease: self.lease,
            hold: self.hold.clone(),
            dice: Seeded(ChaCha8Rng::seed_from_u64(seed)),
            job: None,
            cloned: true,
            timer: 0,
        }
    }
}

impl World {
    pub(super) fn holder(&mut self, pid: Pid) -> Option<&mut Holder> {
        match &mut self.processes[pid].role {
            Role::Holder(holder) => Some(holder),
            Role::Script(_) => None,
        }
    }

    /// The machine hears something and is obeyed.
    pub(super) fn hear(&mut self, pid: Pid, input: Input) {
        let now = BootTime::from_nanos(self.local(pid));
        let Some(holder) = self.holder(pid) else {
            return;
        };
        for action in holder.hold.step(now, input, &mut holder.dice) {
            match action {
                Action::Send { attempt, op, .. } => _ = self.send(pid, Ask::Op(op), attempt),
                Action::Tell(tell) => self.told(pid, tell),
            }
        }
        self.arm(pid);
    }

    /// Sets the timer anew; also after its clock was bent.
    pub(super) fn arm(&mut self, pid: Pid) {
        let Some(holder) = self.holder(pid) else {
            return;
        };
        holder.timer += 1;
        let (number, wake) = (holder.timer, holder.hold.wake_at());
        if let Some(wake) = wake.filter(|wake| *wake < BootTime::MAX) {
            let time = self.clock(pid).when(wake.as_nanos());
            self.at(time, Event::Wake(pid, number));
        }
    }

    pub(super) fn wake(&mut self, pid: Pid, number: u64) {
        if self.holder(pid).is_some_and(|h| h.timer == number) {
            self.hear(pid, Input::Tick);
        }
    }

    pub(super) fn want(&mut self, pid: Pid) {
        let wait = match self.between(0, 9) {
            0 => Wait::No,
            1 | 2 => Wait::AtMost(std::time::Duration::from_nanos(
                self.between(SECOND, 30 * SECOND),
            )),
            _ => Wait::Forever,
        };
        self.hear(pid, Input::Want(wait));
    }

    pub(super) fn noticed(&mut self, pid: Pid) {
        self.fault(super::verdict::NOTICED, Some(pid), None, false);
        self.hear(pid, Input::Paused);
    }

    /// An answer to the machine's own question.
    pub(super) fn holder_heard(&mut self, pid: Pid, reply: Reply) {
        let attempt = reply.attempt;
        let failure = match reply.said {
            Said::Outcome(Outcome::Lease(answer), _) => {
                return self.hear(pid, Input::Answered { attempt, answer });
            }
            Said::Down => Failure::Unavailable("it is down".into()),
            _ => Failure::Unknown("the connection broke".into()),
        };
        self.hear(pid, Input::Failed { attempt, failure });
    }

    fn told(&mut self, pid: Pid, tell: Tell) {
        match tell {
            Tell::Held(term) => {
                self.note_deadline(pid, &term);
                self.step(pid, term.token().get(), Step::Held);
                self.begin_job(pid, term.token().get());
            }
            Tell::Renewed(term) => self.note_deadline(pid, &term),
            Tell::Stop { loss, .. } => self.job_stops(pid, &loss),
            Tell::Kill => self.job_killed(pid),
            Tell::Overdue => self.job_overdue(pid),
            Tell::Over { .. } | Tell::GaveUp(_) => {
                let after = self.between(MS, 8 * SECOND);
                self.after(after, Event::Want(pid));
            }
            Tell::Waiting { .. } | Tell::Suspect | Tell::Confirmed => {}
        }
    }

    fn note_deadline(&mut self, pid: Pid, term: &Term) {
        let deadline = self.clock(pid).when(term.deadline().as_nanos());
        self.step(pid, term.token().get(), Step::Deadline { deadline });
    }

    /// Notes a step of a tenure.
    pub(super) fn step(&mut self, pid: Pid, token: u64, step: Step) {
        let lease = match &self.processes[pid].role {
            Role::Holder(holder) => holder.lease,
            Role::Script(script) => script.lease,
        };
        let lease = self.setup.leases[lease].as_str().into();
        self.push(pid, What::Tenure { lease, token, step });
    }
}
