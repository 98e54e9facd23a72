//! Liveness, for one lease: INV-11.
//!
//! The one rule: while somebody asks again and again, somebody gets the lease, at the latest some bound after the last
//! sign of life of its holder or of a fault. A waiter is a session whose calls follow each other closely.

use std::collections::BTreeMap;

use super::{Case, Finding, Liveness, line};
use crate::history::{Call, Change, Op, Outcome, Seconds, What};

/// Something that lets a lease be out of reach from one moment to another.
struct Busy<'h> {
    from: u64,
    to: u64,
    /// It concerns only this process; none means all.
    process: Option<&'h str>,
}

/// One session's uninterrupted wish for the lease.
struct Wait<'c, 'h> {
    first: &'c Op<'h>,
    last: &'c Op<'h>,
    to: u64,
}

/// Checks one lease.
pub(super) fn check(case: &Case<'_>, lease: &str, ops: &[&Op<'_>], findings: &mut Vec<Finding>) {
    let Some(rule) = &case.rules.liveness else {
        return;
    };
    let busy = busy(case, lease, ops, rule);
    for wait in waits(ops, rule.slack) {
        let from = wait.first.invoked.time;
        let mut free = from.saturating_add(rule.slack);
        let concerned = |b: &&Busy<'_>| b.process.is_none_or(|p| p == wait.first.process);
        for busy in busy.iter().filter(concerned) {
            if busy.from > free.min(wait.to) {
                break;
            }
            free = free.max(busy.to);
        }
        if free < wait.to {
            let what = format!(
                "nobody got the lease until {}, though it was asked for from {} to {}",
                Seconds(free),
                Seconds(from),
                Seconds(wait.to)
            );
            findings.push(Finding::new(
                "INV-11",
                lease,
                what,
                [line(wait.first), line(wait.last)],
            ));
        }
    }
}

/// Tenures by their signs of life, outages and faults, by their beginning.
fn busy<'h>(case: &Case<'h>, lease: &str, ops: &[&Op<'h>], rule: &Liveness) -> Vec<Busy<'h>> {
    let more = |ttl: u64| {
        ttl.saturating_add(case.rules.lock_delay)
            .saturating_add(rule.extension)
            .saturating_add(rule.slack)
    };
    let mut busy = Vec::new();
    let mut longest = 0;
    for op in ops {
        let ttl = match (op.outcome, op.call) {
            (Outcome::Granted { ttl, .. } | Outcome::Renewed { ttl }, _) => *ttl,
            (Outcome::Unknown, Call::Acquire { ttl, .. } | Call::Renew { ttl, .. }) => *ttl,
            _ => continue,
        };
        longest = longest.max(ttl);
        let last = op.returned.unwrap_or(op.invoked).time;
        let to = last.saturating_add(more(ttl));
        busy.push(Busy {
            from: op.invoked.time,
            to,
            process: None,
        });
    }
    let after = |time: u64| time.saturating_add(more(longest));
    let mut down = None;
    for (at, change) in case.changes(lease) {
        match change {
            Change::Crash => down = down.or(Some(at.time)),
            Change::Restart => {
                let from = down.take().unwrap_or(at.time);
                busy.push(Busy {
                    from,
                    to: after(at.time),
                    process: None,
                });
            }
            _ => busy.push(Busy {
                from: at.time,
                to: after(at.time),
                process: None,
            }),
        }
    }
    busy.extend(down.map(|from| Busy {
        from,
        to: u64::MAX,
        process: None,
    }));
    for (_, event) in case.events() {
        if let What::Fault { victim, until, .. } = &event.what {
            let to = after(until.unwrap_or(event.time));
            busy.push(Busy {
                from: event.time,
                to,
                process: victim.as_deref(),
            });
        }
    }
    busy.sort_by_key(|busy| busy.from);
    busy
}

/// The waits of all sessions. A call without any answer ends a wait, since its caller may be gone.
fn waits<'c, 'h>(ops: &[&'c Op<'h>], slack: u64) -> Vec<Wait<'c, 'h>> {
    let mut open: BTreeMap<&str, Wait<'_, '_>> = BTreeMap::new();
    let mut done = Vec::new();
    for &op in ops.iter().filter(|op| op.request().is_some()) {
        let to = op.returned.unwrap_or(op.invoked).time;
        let wait = match open.remove(op.session) {
            Some(wait) if op.invoked.time <= wait.to.saturating_add(slack) => Wait {
                last: op,
                to: to.max(wait.to),
                ..wait
            },
            other => {
                done.extend(other);
                Wait {
                    first: op,
                    last: op,
                    to,
                }
            }
        };
        let ended = op.returned.is_none() || matches!(op.outcome, Outcome::Granted { .. });
        if ended {
            done.push(wait);
        } else {
            open.insert(op.session, wait);
        }
    }
    done.extend(open.into_values());
    done
}
