//! Every kind of answer that a store can give, and the check that the suite has seen them all.

use leasehold_core::{Answer, Lost, Outcome, Refusal, Verdict};

use super::Suite;

/// What every store must have answered somewhere in the suite.
const LEASES: &[&str] = &[
    "granted",
    "renewed",
    "released",
    "bumped",
    "already over",
    "held",
    "quarantined",
    "already used",
    "lost: expired",
    "lost: taken",
    "lost: released",
    "lost: gone",
    "token exhausted",
];
const BUMPS: &[&str] = &["not bumped", "done"];
const CLONES: &[&str] = &["lost: sequence mismatch"];
const LOCK_DELAY: &[&str] = &["delayed"];
const PAIRS: &[&str] = &[
    "refused: stale",
    "refused: expired",
    "refused: released",
    "refused: never issued",
    "refused: fenced",
];
const FENCES: &[&str] = &["refused: other lease"];
const LEDGER: &[&str] = &[
    "begun",
    "resumed",
    "took over",
    "already done",
    "in progress",
    "not begun",
    "left unfinished",
    "mismatch",
    "too old",
    "completed",
    "abandoned",
    "ledger: refused",
];

pub(super) fn kind(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Lease(answer) => of_lease(answer),
        Outcome::Done => "done",
        Outcome::Refused(refusal) => of_refusal(refusal),
        Outcome::Ledger(verdict) => of_ledger(verdict),
        Outcome::NotBumped(_) => "not bumped",
    }
}

fn of_lease(answer: &Answer) -> &'static str {
    match answer {
        Answer::Granted(_) => "granted",
        Answer::Renewed { .. } => "renewed",
        Answer::Released => "released",
        Answer::Bumped { .. } => "bumped",
        Answer::AlreadyOver => "already over",
        Answer::Held(_) => "held",
        Answer::Delayed { .. } => "delayed",
        Answer::Quarantined { .. } => "quarantined",
        Answer::AlreadyUsed => "already used",
        Answer::Lost(Lost::Expired) => "lost: expired",
        Answer::Lost(Lost::Taken { .. }) => "lost: taken",
        Answer::Lost(Lost::Released) => "lost: released",
        Answer::Lost(Lost::SeqMismatch) => "lost: sequence mismatch",
        Answer::Lost(Lost::Gone) => "lost: gone",
        Answer::TokenExhausted => "token exhausted",
    }
}

fn of_refusal(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::Stale { .. } => "refused: stale",
        Refusal::Expired { .. } => "refused: expired",
        Refusal::Released { .. } => "refused: released",
        Refusal::NeverIssued { .. } => "refused: never issued",
        // A store compares with the lease itself; only a receiver of its own has a fence to raise and to doubt.
        Refusal::NotRaised { .. } => "refused: not raised",
        Refusal::TooFar { .. } => "refused: too far",
        Refusal::Fenced { .. } => "refused: fenced",
        Refusal::OtherLease { .. } => "refused: other lease",
    }
}

fn of_ledger(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Begun => "begun",
        Verdict::Resumed => "resumed",
        Verdict::TookOver { .. } => "took over",
        Verdict::AlreadyDone(_) => "already done",
        Verdict::InProgress => "in progress",
        Verdict::NotBegun => "not begun",
        Verdict::LeftUnfinished(_) => "left unfinished",
        Verdict::Mismatch => "mismatch",
        Verdict::TooOld { .. } => "too old",
        Verdict::Completed => "completed",
        Verdict::Abandoned => "abandoned",
        Verdict::Refused(_) => "ledger: refused",
    }
}

/// A suite that no longer reaches an answer would pass stores that give it wrongly.
pub(super) fn all_were_seen(suite: &Suite<'_>) {
    let seen = suite.seen.borrow();
    let profile = suite.profile();
    let groups = [
        (LEASES, true),
        (BUMPS, suite.store.bumps()),
        (CLONES, suite.store.counts_renewals()),
        (LOCK_DELAY, profile.lock_delay),
        (PAIRS, profile.pairs),
        (FENCES, profile.fences),
        (LEDGER, profile.ledger),
    ];
    for (kinds, _) in groups.iter().filter(|(_, wanted)| *wanted) {
        for kind in *kinds {
            assert!(seen.contains(kind), "no test made the store answer: {kind}");
        }
    }
}
