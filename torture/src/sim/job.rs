//! The work under a lease: barrier, first read, then effects, each after a check; it stops when told, or is killed.
//!
//! The one rule: before each effect it asks whether it may, with the time that it may be held up in between (C8). A
//! process that is frozen between the check and the effect goes on with the effect: that is what fences are for.

use leasehold_core::{AttemptId, BootTime, Input, Loss, Work};

use super::world::{Event, MS, Pid, SECOND, World};
use crate::history::{Answer, Step};

/// What a job spends its time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A fenced list that it reads, changes and writes.
    List,
    /// The store's own pair, the same way.
    Pair,
    /// An unfenced list: the control.
    Plain,
    /// Work that is done once, by the ledger.
    Ledger,
}

/// The work of one tenure.
pub(super) struct Job {
    pub(super) number: u64,
    pub(super) token: u64,
    pub(super) kind: Kind,
    /// A process of its own, which can be killed.
    child: Option<String>,
    /// Does not stop before it must.
    stubborn: bool,
    /// Says nothing any more, and does nothing.
    pub(super) stuck: bool,
    period: u64,
    ends_at: u64,
    stopping: bool,
    stopped: bool,
    /// Was frozen after its check: the effect comes next.
    pub(super) checked: bool,
    pub(super) call: Option<Pending>,
    /// How far it is: the barrier, the first read, effects.
    pub(super) phase: Phase,
    /// What it read and wrote last, and where that stood.
    pub(super) list: Vec<u32>,
    pub(super) position: u64,
    pub(super) line: u32,
    /// The piece of work in the ledger, and whether its effect has happened.
    pub(super) entry: Option<(Work, AttemptId, bool)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Raise,
    Look,
    Work,
}

/// A question of the job on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub(super) id: u64,
    pub(super) asked: Asked,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Raise,
    Look,
    Effect,
    Begin,
    Complete,
}

impl World {
    pub(super) fn job(&mut self, pid: Pid) -> Option<&mut Job> {
        self.holder(pid)?.job.as_mut()
    }

    pub(super) fn begin_job(&mut self, pid: Pid, token: u64) {
        let number = self.number();
        let kinds = [
            Kind::List,
            Kind::List,
            Kind::Pair,
            Kind::Plain,
            Kind::Ledger,
        ];
        let kind = kinds[self.between(0, kinds.len() as u64 - 1) as usize];
        let cloned = self.holder(pid).is_some_and(|holder| holder.cloned);
        // What a twin releases is none of its own children (INV-33).
        let child = (!cloned && self.chance(400)).then(|| format!("child {number}"));
        let phase = match kind {
            Kind::List => Phase::Raise,
            Kind::Pair => Phase::Look,
            Kind::Plain | Kind::Ledger => Phase::Work,
        };
        let job = Job {
            number,
            token,
            // Nothing tells the writes of a clone from those of its original, so it writes where that is no harm (C14).
            kind: if cloned { Kind::Plain } else { kind },
            child: child.clone(),
            stubborn: self.chance(400),
            stuck: false,
            period: self.between(50 * MS, 2 * SECOND),
            ends_at: self.now + self.between(SECOND, 90 * SECOND),
            stopping: false,
            stopped: false,
            checked: false,
            call: None,
            phase: if cloned { Phase::Work } else { phase },
            list: Vec::new(),
            position: 0,
            line: 0,
            entry: None,
        };
        if let Some(holder) = self.holder(pid) {
            holder.job = Some(job);
        }
        if let Some(child) = child {
            self.step(pid, token, Step::ChildStarted { child });
        }
        self.after(MS, Event::Work(pid, number));
    }

    /// The job's next step.
    pub(super) fn work(&mut self, pid: Pid, number: u64) {
        let (now, local) = (self.now, BootTime::from_nanos(self.local(pid)));
        let Some(holder) = self.holder(pid) else {
            return;
        };
        let (margin, probed) = (holder.plan.timing.margin(), holder.plan.probe.is_some());
        let term = holder.hold.term().copied();
        let allowed =
            holder.hold.allows(local) && term.is_some_and(|term| term.check_for(local, margin));
        let Some(job) = holder.job.as_mut().filter(|job| job.number == number) else {
            return;
        };
        let idle = job.stuck || (job.stopping && !job.stubborn) || job.stopped;
        if idle || job.call.is_some() {
            return;
        }
        if now >= job.ends_at && !job.stopping {
            return self.job_ends(pid);
        }
        let period = job.period;
        if !allowed {
            self.after(period, Event::Work(pid, number));
            return;
        }
        if probed {
            self.hear(pid, Input::Progress(local));
        }
        if self.chance(self.setup.freezes) {
            if let Some(job) = self.job(pid) {
                job.checked = true;
            }
            return self.freeze_at_check(pid);
        }
        self.act(pid);
    }

    /// It has done what it wanted.
    fn job_ends(&mut self, pid: Pid) {
        let Some(job) = self.job(pid) else { return };
        let number = job.number;
        let failed = self.chance(100);
        match self.chance(50) {
            true => {
                self.job_over(pid);
                self.hear(pid, Input::Dropped);
            }
            false => self.drained(pid, number, failed, false),
        }
    }

    /// The holder says that it has to stop.
    pub(super) fn job_stops(&mut self, pid: Pid, loss: &Loss) {
        let certain = loss.is_certain();
        let grace = match self.holder(pid) {
            Some(holder) => holder.plan.timing.grace().as_nanos() as u64,
            None => return,
        };
        let Some(job) = self.job(pid) else { return };
        let (token, number, was_stopped) = (job.token, job.number, job.stopped);
        let ends = !job.stubborn && !job.stopping;
        job.stopping = true;
        job.stopped |= !job.stubborn || certain;
        let stopped = job.stopped && !was_stopped;
        if certain {
            self.step(pid, token, Step::Lost);
        }
        if stopped {
            self.step(pid, token, Step::Stopped);
        }
        if ends {
            let after = self.between(0, grace * 8 / 10);
            self.drain_after(pid, after, number, false);
        }
    }

    /// The time to stop by itself is over. Only a child can be killed.
    pub(super) fn job_killed(&mut self, pid: Pid) {
        let Some(holder) = self.holder(pid) else {
            return;
        };
        let slack = holder.plan.timing.kill_slack().as_nanos() as u64;
        let Some(job) = holder.job.as_ref() else {
            return;
        };
        let number = job.number;
        if job.child.is_some() {
            let after = self.between(0, slack / 2);
            self.drain_after(pid, after, number, true);
        }
    }

    /// At the deadline the check fails for good, so work in the process itself has stopped too.
    pub(super) fn job_overdue(&mut self, pid: Pid) {
        let Some(job) = self.job(pid) else { return };
        let (token, number) = (job.token, job.number);
        if !std::mem::replace(&mut job.stopped, true) {
            self.step(pid, token, Step::Stopped);
        }
        let after = self.between(0, SECOND);
        self.drain_after(pid, after, number, false);
    }

    fn drain_after(&mut self, pid: Pid, after: u64, job: u64, killed: bool) {
        let failed = killed;
        self.after(
            after,
            Event::Drained {
                pid,
                job,
                failed,
                killed,
            },
        );
    }

    /// The job has ended, unless something of it is still on its way and nobody killed it (H5).
    pub(super) fn drained(&mut self, pid: Pid, number: u64, failed: bool, killed: bool) {
        let Some(job) = self.job(pid).filter(|job| job.number == number) else {
            return;
        };
        if job.call.is_some() && !killed {
            return self.drain_after(pid, 50 * MS, number, false);
        }
        self.job_over(pid);
        self.hear(pid, Input::Drained { failed });
    }

    /// Nothing of the job acts any more.
    pub(super) fn job_over(&mut self, pid: Pid) {
        let Some(job) = self.holder(pid).and_then(|holder| holder.job.take()) else {
            return;
        };
        if let Some(call) = job.call {
            self.effect_answered(call.id, Answer::Unknown);
        }
        if let Some(child) = job.child {
            self.step(pid, job.token, Step::ChildDead { child });
        }
        if !job.stopped {
            self.step(pid, job.token, Step::Stopped);
        }
    }

    /// It fails: an effect's fate is unknown, or a fence refused it.
    pub(super) fn job_fails(&mut self, pid: Pid) {
        if let Some(job) = self.job(pid) {
            let number = job.number;
            job.stuck = true;
            self.after(
                MS,
                Event::Drained {
                    pid,
                    job: number,
                    failed: true,
                    killed: false,
                },
            );
        }
    }

    /// After an answer the job goes on.
    pub(super) fn job_goes_on(&mut self, pid: Pid) {
        let Some(job) = self.job(pid) else { return };
        let (number, period) = (job.number, job.period);
        let soon = match job.phase {
            Phase::Work => period,
            _ => MS,
        };
        self.after(soon, Event::Work(pid, number));
    }

    pub(super) fn is_child(&mut self, pid: Pid) -> bool {
        self.job(pid).is_some_and(|job| job.child.is_some())
    }
}
