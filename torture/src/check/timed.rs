//! Promises of time, for one lease: INV-4, and INV-5 and INV-10 where a release shows that should have done nothing.
//!
//! The one rule: a store cannot have evaluated a request before it was sent, nor after its answer came. So a promise
//! runs at least from the call that got it, and had ended at the latest when an answer shows that it had.
//!
//! A restore or a failover excuses nothing here, since quarantine is there to keep promises (PG9); a harness that lets
//! the store forget one marks that as a fault beyond the bounds. A step of the store's clock forward does excuse.

use std::collections::BTreeMap;

use super::owner::Owners;
use super::{Case, Finding, line};
use crate::history::{Call, Change, Op, Outcome, Seconds, Stamp};

/// A promise that the holder of a token was given.
#[derive(Clone, Copy)]
struct Promise<'c, 'h> {
    op: &'c Op<'h>,
    /// Renewals succeed at least until here.
    ends: u64,
    /// Nobody else gets the lease before this, without a release.
    free: u64,
}

/// What ended a tenure before its time.
struct End<'c, 'h> {
    op: &'c Op<'h>,
    at: Stamp,
    /// Somebody else had it, so that two could act.
    taken: bool,
    promise: Promise<'c, 'h>,
    promised: u64,
}

/// The answers that can end a promise, or excuse its end, by token.
#[derive(Default)]
struct Endings<'c, 'h> {
    /// The first answer that shows this token valid.
    valid: BTreeMap<u64, &'c Op<'h>>,
    /// The first that shows its tenure over.
    over: BTreeMap<u64, &'c Op<'h>>,
    /// When the first release was sent that can have ended it.
    released: BTreeMap<u64, Stamp>,
    /// The first release that certainly did not.
    failed: BTreeMap<u64, &'c Op<'h>>,
}

/// Checks one lease.
pub(super) fn check(
    case: &Case<'_>,
    lease: &str,
    ops: &[&Op<'_>],
    owners: &Owners<'_, '_>,
    findings: &mut Vec<Finding>,
) {
    let endings = Endings::new(ops, owners);
    let mut successor: Option<&Op<'_>> = None;
    let mut later = endings.valid.iter().rev().peekable();
    for (token, promises) in promises(case, ops).into_iter().rev() {
        while let Some((_, op)) = later.next_if(|(other, _)| **other > token) {
            successor = successor.into_iter().chain([*op]).min_by_key(|op| op.end());
        }
        let over = endings.over.get(&token).copied();
        let taken = End::new(successor, &promises, true);
        let Some(end) = taken.or(End::new(over, &promises, false)) else {
            continue;
        };
        // Whose release ended it, nobody can tell if the owner is not known.
        let released = endings
            .released
            .get(&token)
            .is_some_and(|sent| *sent < end.at);
        if owners.get(token).is_some() && !released && !is_excused(case, lease, &end) {
            findings.push(finding(lease, ops, owners, &endings, token, &end));
        }
    }
}

impl<'c, 'h> End<'c, 'h> {
    /// The end by `op`, if it broke the longest promise that was asked for before.
    fn new(op: Option<&'c Op<'h>>, promises: &[Promise<'c, 'h>], taken: bool) -> Option<Self> {
        let (op, at) = (op?, op?.returned?);
        let given = promises.iter().filter(|promise| promise.op.invoked < at);
        let promise = *given.max_by_key(|promise| promise.ends)?;
        let promised = if taken { promise.free } else { promise.ends };
        (at.time < promised).then_some(Self {
            op,
            at,
            taken,
            promise,
            promised,
        })
    }
}

impl<'c, 'h> Endings<'c, 'h> {
    fn new(ops: &[&'c Op<'h>], owners: &Owners<'_, '_>) -> Self {
        let mut endings = Self::default();
        for &op in ops {
            if let Some(token) = valid(op) {
                first(&mut endings.valid, token, op);
            }
            if let Some(token) = over(op, owners) {
                first(&mut endings.over, token, op);
            }
            for token in owners.released_by(op) {
                match op.outcome {
                    Outcome::Released | Outcome::Unknown => {
                        endings.released.entry(token).or_insert(op.invoked);
                    }
                    Outcome::Failed => first(&mut endings.failed, token, op),
                    _ => {}
                }
            }
        }
        endings
    }
}

/// Keeps the operation that returned first.
fn first<'c, 'h>(map: &mut BTreeMap<u64, &'c Op<'h>>, token: u64, op: &'c Op<'h>) {
    let kept = map.entry(token).or_insert(op);
    if op.end() < kept.end() {
        *kept = op;
    }
}

/// The token that an answer shows to be valid.
fn valid(op: &Op<'_>) -> Option<u64> {
    match op.outcome {
        Outcome::Granted { token, .. } | Outcome::Held { token, .. } => Some(*token),
        Outcome::Seen {
            token, held: true, ..
        } => Some(*token),
        Outcome::Renewed { .. } => op.token(),
        _ => None,
    }
}

/// The token whose tenure an answer shows to be over, though it is known to have begun.
fn over(op: &Op<'_>, owners: &Owners<'_, '_>) -> Option<u64> {
    let token = match op.outcome {
        Outcome::Seen {
            token, held: false, ..
        } => return Some(*token),
        Outcome::AlreadyUsed => owners.certain_token((op.session, op.request()?))?,
        Outcome::Lost | Outcome::AlreadyOver => match op.undoes() {
            Some(request) => owners.certain_token((op.session, request))?,
            None => op.token()?,
        },
        _ => return None,
    };
    let owner = owners.get(token)?;
    let began = owner
        .op
        .returned
        .is_some_and(|granted| granted < op.invoked);
    (owner.session == op.session && began).then_some(token)
}

/// All promises, by token.
fn promises<'c, 'h>(case: &Case<'_>, ops: &[&'c Op<'h>]) -> BTreeMap<u64, Vec<Promise<'c, 'h>>> {
    let mut promises: BTreeMap<u64, Vec<_>> = BTreeMap::new();
    let Some(timing) = &case.rules.timing else {
        return promises;
    };
    for &op in ops {
        let (token, ttl) = match (op.outcome, op.token()) {
            (Outcome::Granted { token, ttl }, _) => (*token, *ttl),
            (Outcome::Renewed { ttl }, Some(token)) => (token, *ttl),
            _ => continue,
        };
        let end = |lasts: u64| {
            let fast = u128::from(lasts) * u128::from(timing.rate_error.min(1_000_000)) / 1_000_000;
            let sure = lasts - u64::try_from(fast).unwrap_or(lasts);
            op.invoked
                .time
                .saturating_add(sure)
                .saturating_sub(timing.clock_error)
        };
        let free = end(ttl.saturating_add(case.rules.lock_delay));
        promises.entry(token).or_default().push(Promise {
            op,
            ends: end(ttl),
            free,
        });
    }
    promises
}

/// Whether something happened between the promise and its end that takes it back.
fn is_excused(case: &Case<'_>, lease: &str, end: &End<'_, '_>) -> bool {
    let takes_back = |change: &Change| match change {
        Change::ForceRelease { now } => *now || !end.taken,
        Change::Restore | Change::Failover | Change::Bump { .. } | Change::Deleted => !end.taken,
        Change::Crash | Change::Restart | Change::ClockStep { .. } => false,
    };
    let from = end.promise.op.invoked;
    case.changes(lease)
        .any(|(at, change)| from < at && at < end.at && takes_back(change))
        || case.is_excused(None, from.time, end.at.time)
}

/// Names the promise: it was broken by somebody else's release, by a release that failed, or for no reason to be seen.
fn finding(
    lease: &str,
    ops: &[&Op<'_>],
    owners: &Owners<'_, '_>,
    endings: &Endings<'_, '_>,
    token: u64,
    end: &End<'_, '_>,
) -> Finding {
    let foreign = ops.iter().copied().find(|op| {
        matches!(op.call, Call::Release { .. })
            && *op.outcome != Outcome::Failed
            && (end.promise.op.invoked..end.at).contains(&op.invoked)
            && !owners.released_by(op).contains(&token)
    });
    let failed = endings
        .failed
        .get(&token)
        .copied()
        .filter(|op| op.invoked < end.at);
    let (name, suspect) = match (foreign, failed) {
        (Some(foreign), _) => ("INV-5", Some(foreign)),
        (None, Some(failed)) => ("INV-10", Some(failed)),
        (None, None) if end.taken => ("INV-4", None),
        (None, None) => ("L4", None),
    };
    let how = if end.taken {
        "somebody else had the lease"
    } else {
        "it was over"
    };
    let what = format!(
        "token {token} was promised until {}, but {how}",
        Seconds(end.promised)
    );
    let lines = [Some(end.promise.op), suspect, Some(end.op)]
        .into_iter()
        .flatten()
        .map(line);
    Finding::new(name, lease, what, lines)
}
