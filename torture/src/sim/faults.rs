//! Faults of machines and operators: drawn before the run, struck while it runs, and marked in the history.
//!
//! The one rule: a fault is marked as beyond the bounds exactly if P-TIME does not cover it (0.2): a pause longer than
//! the margin, a clock that is slower than rho allows, stands still or goes back, a clone. Fences know no such excuse.

use leasehold_core::Input;

use super::world::{Event, MS, Pid, Role, SECOND, World};
use super::{clocks::TRUE_RATE, holder::Holder};
use crate::history::{Step, What};

/// What must have happened over a set of seeds, or it proves nothing (10.3).
pub const REQUIRED: [&str; 29] = [
    "bump",
    "clock_jump_back",
    "clock_jump_forward",
    "clock_slow",
    "clock_step",
    "clone",
    "crash",
    "force_release",
    "force_release_now",
    "freeze_at_check_long",
    "freeze_at_check_short",
    "freeze_long",
    "freeze_short",
    "holder_crash",
    "late_duplicate",
    "late_message",
    "lost_reply",
    "lost_request",
    "partition",
    "partition_all",
    "pause",
    "pause_noticed",
    "restart",
    "restore",
    "slow_message",
    "store_pause",
    "stuck",
    "suspend",
    "told_to_stop",
];

/// One fault.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    Freeze(Pid),
    FreezeShort(Pid),
    Suspend(Pid),
    Pause(Pid),
    JumpForward(Pid),
    JumpBack(Pid),
    Slow(Pid),
    RateBack(usize),
    Partition(Pid),
    PartitionAll,
    StorePause,
    StoreCrash,
    StoreStep,
    Restore,
    ForceRelease(usize, bool),
    Crash(Pid),
    Clone(Pid),
    Stuck(Pid),
    Stop(Pid),
}

impl World {
    pub(super) fn schedule_faults(&mut self) {
        let horizon = self.setup.horizon;
        for _ in 0..self.setup.faults {
            let at = self.between(5 * SECOND, horizon - SECOND);
            let pid = self.between(0, self.setup.holders as u64 - 1) as usize;
            let lease = self.between(0, self.setup.leases.len() as u64 - 1) as usize;
            let fault = match self.between(0, 18) {
                0 => Fault::Freeze(pid),
                1 => Fault::FreezeShort(pid),
                2 => Fault::Suspend(pid),
                3 => Fault::Pause(pid),
                4 => Fault::JumpForward(pid),
                5 => Fault::JumpBack(pid),
                6 => Fault::Slow(pid),
                7 => Fault::Partition(pid),
                8 => Fault::PartitionAll,
                9 => Fault::StorePause,
                10 => Fault::StoreCrash,
                11 => Fault::StoreStep,
                12 => Fault::Restore,
                13 => Fault::ForceRelease(lease, false),
                14 => Fault::ForceRelease(lease, true),
                15 => Fault::Crash(pid),
                16 => Fault::Clone(pid),
                17 => Fault::Stuck(pid),
                _ => Fault::Stop(pid),
            };
            if let Fault::Restore = fault {
                let before = self.between(1, at);
                self.at(before, Event::Backup);
            }
            self.at(at, Event::Fault(fault));
        }
    }

    pub(super) fn strike(&mut self, fault: Fault) {
        match fault {
            Fault::Freeze(pid) => {
                let span = self.between(SECOND, 40 * SECOND);
                self.freeze(pid, span, "freeze");
            }
            Fault::FreezeShort(pid) => {
                let span = self.short(pid);
                self.freeze(pid, span, "freeze");
            }
            Fault::Suspend(pid) => {
                let span = self.between(SECOND, 40 * SECOND);
                self.suspend(pid, span);
            }
            Fault::Pause(pid) => self.pause(pid),
            Fault::JumpForward(pid) => self.jump(pid, true),
            Fault::JumpBack(pid) => self.jump(pid, false),
            Fault::Slow(pid) => self.slow(pid),
            Fault::RateBack(host) => {
                let now = self.now;
                self.hosts[host].recover(now);
                self.bent(host);
            }
            Fault::Partition(pid) => self.cut(&[pid], "partition"),
            Fault::PartitionAll => {
                let all: Vec<Pid> = (0..self.processes.len()).collect();
                self.cut(&all, "partition_all");
            }
            Fault::StorePause => {
                let span = self.between(SECOND / 5, 20 * SECOND);
                self.pause_store(span);
            }
            Fault::StoreCrash => {
                let down = self.between(SECOND / 10, 20 * SECOND);
                self.crash_store(down);
            }
            Fault::StoreStep => {
                let by = self.between(MS, 20 * SECOND) as i64;
                let by = if self.chance(500) { by } else { -by / 4 };
                self.step_store_clock(by);
            }
            Fault::Restore => self.restore(),
            Fault::ForceRelease(lease, at_once) => self.force_release(lease, at_once),
            Fault::Crash(pid) => self.crash(pid),
            Fault::Clone(pid) => self.clone_process(pid),
            Fault::Stuck(pid) => {
                if let Some(job) = self.job(pid) {
                    job.stuck = true;
                    self.fault("stuck", Some(pid), None, false);
                }
            }
            Fault::Stop(pid) if self.goes_on(pid) => {
                self.fault("told_to_stop", Some(pid), None, false);
                self.hear(pid, Input::Stop);
            }
            Fault::Stop(_) => {}
        }
    }

    fn goes_on(&self, pid: Pid) -> bool {
        self.processes[pid].alive && self.processes[pid].frozen_until <= self.now
    }

    /// A pause that the margin covers; with a child to be killed in time, one that the kill slack covers.
    fn short(&mut self, pid: Pid) -> u64 {
        let most = self.bearable(pid);
        self.between(most / 8, most)
    }

    fn bearable(&mut self, pid: Pid) -> u64 {
        let child = self.is_child(pid);
        let Some(holder) = self.holder(pid) else {
            return MS;
        };
        let timing = holder.plan.timing;
        let margin = timing.margin().as_nanos() as u64 * 8 / 10;
        match child {
            true => margin.min(timing.kill_slack().as_nanos() as u64 / 3),
            false => margin,
        }
    }

    /// The process stops for a while and its clock runs on.
    fn freeze(&mut self, pid: Pid, span: u64, kind: &str) {
        if !self.goes_on(pid) {
            return;
        }
        let until = self.now + span;
        let exceeds = span > self.bearable(pid);
        let kind = match (kind, exceeds) {
            ("freeze", true) => "freeze_long",
            ("freeze", false) => "freeze_short",
            ("freeze_at_check", true) => "freeze_at_check_long",
            ("freeze_at_check", false) => "freeze_at_check_short",
            (kind, _) => kind,
        };
        self.fault(kind, Some(pid), Some(until), exceeds);
        self.processes[pid].frozen_until = until;
        self.at(until, Event::Thaw(pid, until));
    }

    /// After a check, before its effect: the classic.
    pub(super) fn freeze_at_check(&mut self, pid: Pid) {
        let span = match self.chance(500) {
            true => self.short(pid),
            false => self.between(SECOND, 40 * SECOND),
        };
        self.freeze(pid, span, "freeze_at_check");
    }

    /// First it does what it was about to do; then it sees what happened.
    pub(super) fn thaw(&mut self, pid: Pid, until: u64) {
        if !self.processes[pid].alive || self.processes[pid].frozen_until != until {
            return;
        }
        if self.job(pid).is_some_and(|job| job.checked) {
            self.act(pid);
        }
        // What it does may freeze it again.
        while self.goes_on(pid)
            && let Some(event) = self.processes[pid].inbox.pop_front()
        {
            self.happen(event);
        }
    }

    fn on_host(&self, host: usize) -> Vec<Pid> {
        let all = 0..self.processes.len();
        all.filter(|pid| self.processes[*pid].host == host)
            .collect()
    }

    /// The machine sleeps; its boot clock runs on (C9).
    fn suspend(&mut self, pid: Pid, span: u64) {
        for pid in self.on_host(self.processes[pid].host) {
            self.freeze(pid, span, "suspend");
        }
    }

    /// The machine stands still, and with it its clock; soon after it goes on it notices (C13).
    fn pause(&mut self, pid: Pid) {
        let host = self.processes[pid].host;
        let span = self.between(SECOND / 5, 30 * SECOND);
        let notice = self.between(MS, 300 * MS);
        self.hosts[host].stand_still(self.now, span);
        for pid in self.on_host(host) {
            if !self.processes[pid].alive {
                continue;
            }
            let until = self.processes[pid].frozen_until.max(self.now + span);
            self.processes[pid].frozen_until = until;
            self.at(until, Event::Thaw(pid, until));
            self.fault("pause", Some(pid), Some(until + notice), true);
            self.at(until + notice, Event::Noticed(pid));
        }
        self.bent(host);
    }

    fn jump(&mut self, pid: Pid, forward: bool) {
        let by = self.between(MS, 30 * SECOND) as i64;
        let host = self.processes[pid].host;
        self.hosts[host].jump(self.now, if forward { by } else { -by });
        if forward {
            for pid in self.on_host(host) {
                self.fault("clock_jump_forward", Some(pid), None, false);
            }
        }
        self.bent(host);
    }

    /// Slower than any drift that a plan allows for.
    fn slow(&mut self, pid: Pid) {
        let host = self.processes[pid].host;
        let span = self.between(SECOND, 60 * SECOND);
        let rate = self.between(TRUE_RATE / 5, TRUE_RATE / 2);
        self.hosts[host].slow(self.now, rate, self.now + span);
        self.after(span, Event::Fault(Fault::RateBack(host)));
        self.bent(host);
    }

    /// The clock of a host goes another way from now on.
    fn bent(&mut self, host: usize) {
        for pid in self.on_host(host) {
            if let Some(until) = self.hosts[host].behind_until(self.now) {
                self.fault("clock_jump_back", Some(pid), Some(until), true);
            }
            self.slowed(pid);
            self.arm(pid);
        }
    }

    /// Whoever is on a slow machine has a slow clock, from its start on.
    fn slowed(&mut self, pid: Pid) {
        if let Some(until) = self.clock(pid).slow_until(self.now) {
            self.fault("clock_slow", Some(pid), Some(until), true);
        }
    }

    fn cut(&mut self, pids: &[Pid], kind: &str) {
        let span = self.between(SECOND / 2, 40 * SECOND);
        for &pid in pids {
            self.processes[pid].cut_until = self.now + span;
            self.fault(kind, Some(pid), Some(self.now + span), false);
        }
    }

    /// Killed, and started again some time later under the same name.
    fn crash(&mut self, pid: Pid) {
        if !self.processes[pid].alive {
            return;
        }
        self.fault("holder_crash", Some(pid), None, false);
        self.end_process(pid);
        let after = self.between(SECOND / 10, 20 * SECOND);
        self.after(after, Event::Restart(pid));
    }

    /// Nothing of the process acts any more, and nobody waits for answers.
    pub(super) fn end_process(&mut self, pid: Pid) {
        self.job_over(pid);
        self.effects_forgotten(pid);
        self.push(pid, What::Died);
        self.processes[pid].alive = false;
        self.processes[pid].inbox.clear();
    }

    pub(super) fn restart(&mut self, old: Pid) {
        // Nothing begins on a machine that stands still.
        if let Some(until) = self.clock(old).stands_until(self.now) {
            return self.at(until, Event::Restart(old));
        }
        let seed = self.between(0, u64::MAX);
        let Some(holder) = self.holder(old) else {
            return;
        };
        let fresh = Holder::new(holder.plan.clone(), holder.lease, seed);
        let host = self.processes[old].host;
        let name = self.next_name(old);
        self.add(name, host, Role::Holder(Box::new(fresh)));
        let new = self.processes.len() - 1;
        self.slowed(new);
        self.after(MS, Event::Want(new));
    }

    fn next_name(&mut self, pid: Pid) -> String {
        let name = &self.processes[pid].name;
        let base = name.split('.').next().unwrap_or(name);
        format!("{base}.{}", self.processes.len())
    }

    /// The whole machine goes on twice. Both have the session and, if it holds, the token (C14).
    fn clone_process(&mut self, pid: Pid) {
        let seed = self.between(0, u64::MAX);
        let free = self.job(pid).is_some_and(|job| job.call.is_none()) && !self.is_child(pid);
        if !self.goes_on(pid) || !free {
            return;
        }
        let Some(holder) = self.holder(pid) else {
            return;
        };
        holder.cloned = true;
        if let Some(job) = &mut holder.job {
            job.kind = super::job::Kind::Plain;
        }
        let (copy, token) = (holder.copy(seed), holder.hold.token());
        let held = holder.hold.is_held();
        let deadline = holder.hold.term().map(|term| term.deadline());
        self.hosts.push(*self.clock(pid));
        let name = self.next_name(pid);
        self.add(name, self.hosts.len() - 1, Role::Holder(Box::new(copy)));
        let twin = self.processes.len() - 1;
        for pid in [pid, twin] {
            self.fault("clone", Some(pid), Some(self.setup.horizon), true);
        }
        if let (Some(token), Some(deadline)) = (token, deadline) {
            let deadline = self.clock(twin).when(deadline.as_nanos());
            self.step(twin, token.get(), Step::Deadline { deadline });
            if held {
                self.step(twin, token.get(), Step::Held);
            }
            self.begin_job(twin, token.get());
        }
        match self.holder(twin).is_some_and(|twin| twin.hold.is_idle()) {
            true => self.after(MS, Event::Want(twin)),
            false => self.arm(twin),
        }
    }
}
