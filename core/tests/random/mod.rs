//! Random histories: what a few clients with bad luck ask of a store. Plain data, so that a second implementation can
//! answer it without sharing a type with the first.
//!
//! Requests are duplicated, delivered late and out of order; clients guess tokens; time jumps; the store restarts.

#![allow(dead_code, unused_imports)] // Each test file uses its part of it.
#![allow(clippy::unwrap_used)] // A helper of tests, which may.

mod clients;
mod play;
mod translate;

use proptest::prelude::*;

pub(crate) use clients::Clients;
pub(crate) use play::{Moment, Watch, play, stamp};
pub(crate) use translate::{key, name, op, place, said, work};

/// What a store is asked. Times are milliseconds; leases, keys, works and places are small numbers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Ask {
    Acquire {
        lease: u8,
        session: u64,
        request: u64,
        ttl: u64,
        delay: u64,
    },
    Renew {
        lease: u8,
        token: u64,
        session: u64,
        number: u64,
        id: u64,
        ttl: u64,
    },
    Release {
        lease: u8,
        token: u64,
        session: u64,
    },
    Cancel {
        lease: u8,
        session: u64,
        request: u64,
    },
    Force {
        lease: u8,
        now: bool,
    },
    Quarantine {
        lease: u8,
        above: u64,
    },
    Put {
        key: u8,
        value: u8,
        proof: Option<(u8, u64)>,
    },
    Delete {
        key: u8,
        proof: Option<(u8, u64)>,
    },
    Raise {
        place: u8,
        lease: u8,
        token: u64,
    },
    Begin {
        work: Work,
        token: u64,
        attempt: u64,
        session: u64,
        what: u8,
        leave: bool,
        born: Option<u64>,
    },
    Complete {
        work: Work,
        token: u64,
        attempt: u64,
        value: u8,
    },
    Abandon {
        work: Work,
        token: u64,
        attempt: u64,
    },
    Bump {
        above: u64,
    },
}

/// A lease and a key of its ledger.
pub(crate) type Work = (u8, u8);

/// What a store says. A holder is a small number.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Said {
    Granted(u64),
    Renewed,
    Released,
    Bumped(u64),
    Over,
    Held {
        by: u64,
        token: u64,
        hint: u64,
        yours: bool,
    },
    Delayed(u64),
    Quarantined(u64),
    Used,
    Exhausted,
    LostExpired,
    LostTaken {
        by: Option<u64>,
        token: u64,
    },
    LostReleased,
    LostSequence,
    LostGone,
    Done,
    Stale {
        token: u64,
        highest: u64,
    },
    Expired(u64),
    WasReleased(u64),
    NeverIssued(u64),
    Fenced(u8),
    OtherLease(u8),
    Begun,
    Resumed,
    TookOver(u64),
    AlreadyDone {
        token: u64,
        by: u64,
        value: u8,
    },
    InProgress,
    NotBegun,
    LeftUnfinished {
        token: u64,
        by: u64,
    },
    Mismatch,
    TooOld(u64),
    Completed,
    Abandoned,
    TooSmall(u64),
    TooLarge(u64),
}

/// One thing that happens.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// A client asks and is heard at once.
    Now(Wish),
    /// A client asks; the network keeps it for later.
    Later(Wish),
    /// A request that the network kept arrives.
    Arrive(usize),
    /// A request that arrived before arrives again.
    Again(usize),
    /// Time passes, in milliseconds.
    Pass(u64),
    /// The store forgets what it may.
    Collect,
    /// The store goes down and comes back from its snapshot.
    Restart,
}

/// What a client wants; what that is in tokens and numbers depends on what it has been told by then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    pub(crate) kind: u8,
    pub(crate) client: u8,
    pub(crate) lease: u8,
    pub(crate) object: u8,
    pub(crate) luck: u8,
    pub(crate) ttl: u64,
}

/// A history begins on 1 January 2026 by the wall clock, in milliseconds, and at 0 by the store's.
pub(crate) const START: u64 = 1_767_225_600_000;
pub(crate) const CLIENTS: u64 = 3;
pub(crate) const LEASES: u8 = 2;
const DAY: u64 = 24 * 60 * 60 * 1000;

/// That many histories, or as many as `PROPTEST_CASES` says. A failure prints the history, and leaves no file.
pub(crate) fn cases(usual: u32) -> ProptestConfig {
    let told = std::env::var("PROPTEST_CASES").ok();
    ProptestConfig {
        cases: told.and_then(|text| text.parse().ok()).unwrap_or(usual),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

pub(crate) fn steps() -> impl Strategy<Value = Vec<Step>> {
    proptest::collection::vec(step(), 1..80)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => wish().prop_map(Step::Now),
        3 => wish().prop_map(Step::Later),
        2 => any::<usize>().prop_map(Step::Arrive),
        3 => any::<usize>().prop_map(Step::Again),
        6 => span().prop_map(Step::Pass),
        1 => Just(Step::Collect),
        1 => Just(Step::Restart),
    ]
}

fn wish() -> impl Strategy<Value = Wish> {
    let ttl = prop_oneof![1 => Just(500), 2 => Just(2_000), 4 => Just(10_000), 1 => Just(DAY)];
    (
        any::<u8>(),
        0..CLIENTS as u8,
        0..LEASES,
        0..2u8,
        any::<u8>(),
        ttl,
    )
        .prop_map(|(kind, client, lease, object, luck, ttl)| Wish {
            kind,
            client,
            lease,
            object,
            luck,
            ttl,
        })
}

fn span() -> impl Strategy<Value = u64> {
    prop_oneof![
        16 => 1..600u64,
        6 => Just(2_000),
        6 => Just(10_000),
        2 => Just(DAY),
        1 => Just(400 * DAY),
    ]
}
