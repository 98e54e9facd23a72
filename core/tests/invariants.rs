//! The invariants of the state machine (SEMANTICS 10.1) on random histories, told by what the store answered alone.

mod random;

use std::collections::{BTreeMap, BTreeSet};

use leasehold_core::{Answer, Outcome, Table};
use proptest::{
    prelude::*,
    strategy::ValueTree,
    test_runner::{TestCaseError, TestRunner},
};
use random::{Ask, LEASES, Moment, Said, Watch, play, steps};

/// What was promised about one lease so far.
#[derive(Debug, Default)]
struct Past {
    /// The largest token that was granted or burnt.
    newest: u64,
    /// Whose each token is.
    owners: BTreeMap<u64, (u64, u64)>,
    /// The pairs of session and request that may not be granted another token: they are what is stored.
    stored: Option<(u64, u64)>,
    /// Up to here somebody may trust a promise, the lock delay not counted; in milliseconds.
    promised: u64,
    delay: u64,
    released: bool,
    forgotten: bool,
}

/// Counts what was held against the invariants, so that a history in which nothing happens is seen.
#[derive(Debug, Default)]
struct Seen {
    hand_overs: u32,
    replays: u32,
    renewals: u32,
    refused_releases: u32,
    grants_after_forgetting: u32,
    orphans: u32,
}

#[derive(Debug)]
struct Invariants {
    past: Vec<Past>,
    seen: Seen,
}

impl Invariants {
    fn new(seen: Seen) -> Self {
        Self {
            past: (0..LEASES).map(|_| Past::default()).collect(),
            seen,
        }
    }

    fn granted(&mut self, moment: &Moment<'_>, token: u64) -> Result<(), TestCaseError> {
        let &Ask::Acquire {
            lease,
            session,
            request,
            ttl,
            delay,
        } = moment.ask
        else {
            return Err(TestCaseError::fail("nobody asked for a grant"));
        };
        let (past, now) = (&mut self.past[lease as usize], moment.now);
        let pair = (session, request);
        if past.stored == Some(pair) {
            prop_assert_eq!(past.newest, token, "INV-6: a second token for one request");
            prop_assert_eq!(past.owners.get(&token), Some(&pair), "INV-2");
            prop_assert!(
                !past.released,
                "INV-6: a duplicate revived what was given back"
            );
            past.promised = past.promised.max(now + ttl);
            self.seen.replays += 1;
            return Ok(());
        }
        prop_assert!(
            token > past.newest,
            "INV-1, INV-9: {} after {}",
            token,
            past.newest
        );
        let delay_before = if past.released { 0 } else { past.delay };
        prop_assert!(
            now >= past.promised + delay_before,
            "INV-4: before its time"
        );
        self.seen.hand_overs += u32::from(past.newest > 0);
        self.seen.grants_after_forgetting += u32::from(past.forgotten);
        self.seen.orphans += u32::from(past.owners.values().any(|owner| *owner == pair));
        prop_assert_eq!(past.owners.insert(token, pair), None, "INV-2");
        *past = Past {
            newest: token,
            owners: std::mem::take(&mut past.owners),
            stored: Some(pair),
            promised: now + ttl,
            delay,
            released: false,
            forgotten: false,
        };
        Ok(())
    }

    fn renewed(&mut self, moment: &Moment<'_>) -> Result<(), TestCaseError> {
        let &Ask::Renew {
            lease,
            token,
            session,
            ttl,
            ..
        } = moment.ask
        else {
            return Err(TestCaseError::fail("nobody asked for a renewal"));
        };
        let (past, now) = (&mut self.past[lease as usize], moment.now);
        prop_assert_eq!(past.newest, token, "INV-3");
        let owner = past.owners.get(&token).map(|owner| owner.0);
        prop_assert_eq!(owner, Some(session), "INV-2: renewed by a stranger");
        prop_assert!(now < past.promised && !past.released, "L5: a late renewal");
        past.promised = past.promised.max(now + ttl);
        self.seen.renewals += 1;
        Ok(())
    }

    fn released(&mut self, moment: &Moment<'_>) -> Result<(), TestCaseError> {
        let (lease, mine) = match *moment.ask {
            Ask::Release {
                lease,
                token,
                session,
            } => (lease, (Some(token), session, None)),
            Ask::Cancel {
                lease,
                session,
                request,
            } => (lease, (None, session, Some(request))),
            _ => return Err(TestCaseError::fail("nobody asked for a release")),
        };
        let past = &mut self.past[lease as usize];
        let (token, session, request) = mine;
        prop_assert!(token.is_none_or(|token| token == past.newest), "INV-5");
        prop_assert!(
            past.stored.is_some_and(|stored| {
                stored.0 == session && request.is_none_or(|request| stored.1 == request)
            }),
            "INV-5: released by a stranger"
        );
        (past.released, past.promised) = (true, moment.now);
        Ok(())
    }

    fn burnt(&mut self, lease: u8, token: u64) -> Result<(), TestCaseError> {
        let past = &mut self.past[lease as usize];
        prop_assert!(
            token > past.newest,
            "INV-1: {} after {}",
            token,
            past.newest
        );
        past.newest = token;
        (past.stored, past.released) = (None, false);
        Ok(())
    }
}

impl Watch for Invariants {
    fn asked(&mut self, moment: &Moment<'_>) -> Result<(), TestCaseError> {
        let said = random::said(moment.outcome);
        if !changes(moment.outcome) {
            for (what, before, after) in rows(moment.before, moment.after) {
                prop_assert_eq!(before, after, "{:?} changed the {}", said, what);
            }
            let release = matches!(moment.ask, Ask::Release { .. } | Ask::Cancel { .. });
            self.seen.refused_releases += u32::from(release);
        }
        match (moment.ask, said) {
            (_, Said::Granted(token)) => self.granted(moment, token),
            (_, Said::Renewed) => self.renewed(moment),
            (_, Said::Released) => self.released(moment),
            (Ask::Force { lease, now }, Said::Bumped(token)) => {
                self.burnt(*lease, token)?;
                let past = &mut self.past[*lease as usize];
                if *now {
                    (past.promised, past.delay) = (past.promised.min(moment.now), 0);
                }
                Ok(())
            }
            (Ask::Quarantine { lease, .. }, Said::Bumped(token)) => self.burnt(*lease, token),
            (Ask::Bump { above }, Said::Done) => {
                for past in &mut self.past {
                    past.newest = past.newest.max(*above);
                    (past.stored, past.released) = (None, false);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn collected(&mut self, now: u64) {
        for past in &mut self.past {
            let free = past.promised + if past.released { 0 } else { past.delay };
            if now >= free + 86_400_000 {
                past.stored = None;
                past.forgotten = past.newest > 0;
            }
        }
    }
}

/// Whether an answer says that something is now another.
fn changes(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Lease(answer) => answer.changes(),
        Outcome::Ledger(_) => matches!(
            random::said(outcome),
            Said::Begun | Said::TookOver(_) | Said::Completed | Said::Abandoned
        ),
        Outcome::Done => true,
        Outcome::Refused(_) | Outcome::NotBumped(_) => false,
    }
}

/// Every row before and after, for comparison.
fn rows(before: &Table, after: &Table) -> Vec<(String, String, String)> {
    let show = |table: &Table| {
        let mut rows = Vec::new();
        for n in 0..LEASES {
            rows.push((
                format!("lease {n}"),
                format!("{:?}", table.record(&random::name(n))),
            ));
            rows.push((
                format!("pair {n}"),
                format!("{:?}", table.pair(&random::key(n))),
            ));
            rows.push((
                format!("fence {n}"),
                format!("{:?}", table.fence(&random::place(n))),
            ));
            for work in 0..2 {
                let entry = table.entry(&random::work((n, work)));
                rows.push((format!("work {work} of lease {n}"), format!("{entry:?}")));
            }
        }
        rows
    };
    let after = show(after).into_iter().map(|(_, row)| row);
    let pairs = show(before).into_iter().zip(after);
    pairs
        .map(|((what, before), after)| (what, before, after))
        .collect()
}

proptest! {
    #![proptest_config(random::cases(700))]

    /// INV-1 to INV-6, INV-9, and: what is refused changes nothing.
    #[test]
    fn the_invariants_hold_on_random_histories(steps in steps()) {
        play(steps, &mut Invariants::new(Seen::default()))?;
    }
}

/// The same on fixed histories, of which enough must happen.
#[test]
fn the_invariants_are_put_to_the_test() {
    let mut runner = TestRunner::deterministic();
    let mut seen = Seen::default();
    for _ in 0..700 {
        let steps = steps().new_tree(&mut runner).expect("it makes one");
        let mut invariants = Invariants::new(seen);
        play(steps.current(), &mut invariants).expect("the invariants hold");
        seen = invariants.seen;
    }
    let least = [
        seen.hand_overs,
        seen.replays,
        seen.renewals,
        seen.refused_releases,
        seen.grants_after_forgetting,
        seen.orphans,
    ];
    assert!(
        least.iter().all(|count| *count >= 20),
        "too little happened: {seen:?}"
    );
}

/// INV-2 across leases means nothing: tokens are counted for each lease (T2).
#[test]
fn each_lease_counts_for_itself() {
    let mut tokens = BTreeSet::new();
    let mut table = Table::new();
    for lease in 0..LEASES {
        let ask = Ask::Acquire {
            lease,
            session: 1,
            request: 1,
            ttl: 500,
            delay: 0,
        };
        let outcome = table.apply(random::op(&ask), random::stamp(0), &mut Vec::new());
        let Outcome::Lease(Answer::Granted(grant)) = outcome else {
            panic!("{outcome:?}")
        };
        tokens.insert(grant.token.get());
    }
    assert_eq!(tokens, BTreeSet::from([1]));
}
