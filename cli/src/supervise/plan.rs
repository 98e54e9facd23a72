//! When to ask the tree to stop and when to kill it: pure, no clock, no process.
//!
//! The one rule: a lease whose `stop_at` was seen to pass is over for good; no later extension revives it (H1).
//! Guard and supervisor each keep a plan of their own, so either can act alone.

use leasehold::BootTime;
use serde::{Deserialize, Serialize};

/// The two moments of H3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Deadline {
    /// From here on the tree is asked to stop (SIGTERM). Not before `kill_at` means: no asking, only the kill.
    pub(crate) stop_at: BootTime,
    /// From here on the tree is killed (SIGKILL). It lies `kill_slack` before the lease's deadline.
    pub(crate) kill_at: BootTime,
}

impl Deadline {
    /// Nothing is ever stopped by time: for `--on-lost ignore`.
    pub(crate) const NEVER: Deadline = Deadline {
        stop_at: BootTime::MAX,
        kill_at: BootTime::MAX,
    };
}

/// Why the caller asked for the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Reason {
    /// The lease was lost before its deadline passed.
    Lost,
    /// Somebody asked: a signal, or the end of the program.
    Asked,
    /// The parent of the supervisor died (FB-85).
    ParentDied,
}

/// Why the tree ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Cause {
    /// The child ended by itself.
    Child,
    /// The caller asked for it.
    Stop(Reason),
    /// The deadline came and nobody had extended it.
    Deadline,
    /// The guard was killed, so the supervisor killed the tree at once.
    GuardDied,
    /// The supervisor was killed or gave up its end of the channel, so the guard killed the tree at once.
    SupervisorDied,
}

/// What is to be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing before this moment.
    Wait(BootTime),
    /// Ask the tree to stop; said once.
    Term,
    /// Kill the tree; said from then on.
    Kill(Cause),
}

#[derive(Debug)]
pub(super) struct Plan {
    lease: Deadline,
    /// The lease's `stop_at` was seen to pass.
    over: bool,
    asked: Option<(Reason, BootTime)>,
    stopping: Option<Cause>,
}

impl Plan {
    pub(super) fn new(lease: Deadline) -> Plan {
        Plan {
            lease,
            over: false,
            asked: None,
            stopping: None,
        }
    }

    /// Takes the deadline of a renewed lease, unless the old one is known to be over. Answers whether it did.
    pub(super) fn extend(&mut self, lease: Deadline) -> bool {
        if !self.over {
            self.lease = lease;
        }
        !self.over
    }

    /// Whether the lease is over, now or since an earlier look.
    pub(super) fn is_over(&mut self, now: BootTime) -> bool {
        self.over |= now >= self.lease.stop_at || now >= self.lease.kill_at;
        self.over
    }

    /// Stop now, kill at `kill_at` or when the lease says so, whichever is first. A second request can only hasten it.
    pub(super) fn stop(&mut self, reason: Reason, kill_at: BootTime) {
        let (reason, earlier) = self.asked.unwrap_or((reason, BootTime::MAX));
        self.asked = Some((reason, kill_at.min(earlier)));
    }

    /// The moment of the kill as things stand.
    pub(super) fn kill_at(&self) -> BootTime {
        self.asked
            .map_or(self.lease.kill_at, |(_, at)| at.min(self.lease.kill_at))
    }

    /// Why the tree is being stopped; None while it is not.
    pub(super) fn stopping(&self) -> Option<Cause> {
        self.stopping
    }

    pub(super) fn next(&mut self, now: BootTime) -> Step {
        let why = match (self.asked, self.is_over(now)) {
            (Some((reason, _)), _) => Some(Cause::Stop(reason)),
            (None, true) => Some(Cause::Deadline),
            (None, false) => None,
        };
        let first = self.stopping.is_none();
        self.stopping = self.stopping.or(why);
        match self.stopping {
            Some(cause) if now >= self.kill_at() => Step::Kill(cause),
            Some(_) if first => Step::Term,
            _ if self.over => Step::Wait(self.kill_at()),
            _ => Step::Wait(self.kill_at().min(self.lease.stop_at)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Deadline = lease(9, 11);

    const fn at(nanos: u64) -> BootTime {
        BootTime::from_nanos(nanos)
    }

    const fn lease(stop_at: u64, kill_at: u64) -> Deadline {
        Deadline {
            stop_at: at(stop_at),
            kill_at: at(kill_at),
        }
    }

    #[test]
    fn asks_at_stop_at_and_kills_at_kill_at() {
        // H3
        let mut plan = Plan::new(LEASE);
        assert_eq!(plan.next(at(8)), Step::Wait(at(9)));
        assert_eq!(plan.next(at(9)), Step::Term);
        assert_eq!(plan.next(at(10)), Step::Wait(at(11)));
        assert_eq!(plan.next(at(11)), Step::Kill(Cause::Deadline));
    }

    #[test]
    fn an_extension_in_time_moves_both_moments() {
        let mut plan = Plan::new(LEASE);
        plan.extend(lease(14, 16));
        assert_eq!(plan.next(at(11)), Step::Wait(at(14)));
        assert_eq!(plan.next(at(14)), Step::Term);
    }

    #[test]
    fn an_extension_after_stop_at_revives_nothing() {
        // H1, INV-33
        let mut plan = Plan::new(LEASE);
        assert_eq!(plan.next(at(9)), Step::Term);
        assert!(!plan.extend(lease(14, 16)));
        assert_eq!(plan.next(at(11)), Step::Kill(Cause::Deadline));
    }

    #[test]
    fn waking_after_both_moments_kills_without_asking() {
        // C7, A14
        assert_eq!(Plan::new(LEASE).next(at(99)), Step::Kill(Cause::Deadline));
    }

    #[test]
    fn a_stop_is_killed_at_its_own_time_or_the_leases_whichever_is_first() {
        let mut plan = Plan::new(LEASE);
        plan.stop(Reason::Asked, at(5));
        assert_eq!(plan.next(at(1)), Step::Term);
        assert_eq!(plan.next(at(2)), Step::Wait(at(5)));
        assert_eq!(plan.next(at(5)), Step::Kill(Cause::Stop(Reason::Asked)));

        let mut plan = Plan::new(LEASE);
        plan.stop(Reason::Asked, at(50));
        assert_eq!(plan.next(at(1)), Step::Term);
        assert_eq!(plan.next(at(10)), Step::Wait(at(11)));
        assert_eq!(plan.next(at(11)), Step::Kill(Cause::Stop(Reason::Asked)));
    }

    #[test]
    fn renewals_go_on_while_a_requested_stop_takes_its_time() {
        let mut plan = Plan::new(LEASE);
        plan.stop(Reason::Asked, at(50));
        assert_eq!(plan.next(at(1)), Step::Term);
        plan.extend(lease(60, 62));
        assert_eq!(plan.next(at(11)), Step::Wait(at(50)));
    }

    #[test]
    fn a_second_stop_only_hastens() {
        let mut plan = Plan::new(Deadline::NEVER);
        plan.stop(Reason::Asked, at(20));
        plan.stop(Reason::Lost, at(30));
        assert_eq!(plan.kill_at(), at(20));
        plan.stop(Reason::Lost, at(3));
        assert_eq!(plan.next(at(3)), Step::Kill(Cause::Stop(Reason::Asked)));
    }

    #[test]
    fn never_is_never() {
        assert_eq!(
            Plan::new(Deadline::NEVER).next(at(u64::MAX - 1)),
            Step::Wait(BootTime::MAX)
        );
    }
}
