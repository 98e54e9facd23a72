//! The rules against a second, naive implementation, on random histories; and snapshots, good and bad.

mod naive;
mod random;

use std::collections::BTreeMap;

use leasehold_core::{Entry, Stamp, StoreTime, Table, WallTime};
use naive::Naive;
use proptest::{
    prelude::*,
    strategy::ValueTree,
    test_runner::{TestCaseError, TestRunner},
};
use random::{Clients, Moment, START, Watch, Wish, play, steps};

/// Holds each answer against that of the naive implementation.
impl Watch for Naive {
    fn asked(&mut self, moment: &Moment<'_>) -> Result<(), TestCaseError> {
        (self.now, self.wall) = (moment.now, START + moment.now);
        let (said, ask) = (random::said(moment.outcome), moment.ask);
        prop_assert_eq!(said, self.answer(ask), "to {:?} at {} ms", ask, moment.now);
        Ok(())
    }

    fn collected(&mut self, now: u64) {
        (self.now, self.wall) = (now, START + now);
        self.collect();
    }
}

/// Remembers the kinds of answers.
#[derive(Default)]
struct Kinds(BTreeMap<String, u32>);

impl Watch for Kinds {
    fn asked(&mut self, moment: &Moment<'_>) -> Result<(), TestCaseError> {
        let kind = format!("{:?}", random::said(moment.outcome));
        let end = kind.find(|c: char| !c.is_alphanumeric());
        let kind = kind[..end.unwrap_or(kind.len())].to_owned();
        *self.0.entry(kind).or_default() += 1;
        Ok(())
    }
}

proptest! {
    #![proptest_config(random::cases(1_000))]

    /// L1 to L14, T1 to T6, F3 to F9, I5, I6, I9, A2 to A4, A10, A21. Restarts in between change nothing (FB-53).
    #[test]
    fn two_implementations_answer_alike(steps in steps()) {
        play(steps, &mut Naive::default())?;
    }

}

proptest! {
    #![proptest_config(random::cases(200))]

    /// A replicated store depends on it.
    #[test]
    fn the_same_history_makes_the_same_table(steps in steps()) {
        let (one, events) = play(steps.clone(), &mut Kinds::default())?;
        let (other, again) = play(steps, &mut Kinds::default())?;
        prop_assert_eq!(one.snapshot(), other.snapshot());
        prop_assert_eq!(events, again);
    }

    #[test]
    fn bytes_that_are_no_snapshot_are_refused_without_a_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        survive(&bytes);
        survive(&[&[1], &bytes[..]].concat());
    }

    /// Cut short, changed, or longer: an error, or a table that answers.
    #[test]
    fn a_damaged_snapshot_never_panics(
        steps in steps(),
        at in any::<usize>(),
        byte in any::<u8>(),
        tail in proptest::collection::vec(any::<u8>(), 1..4),
    ) {
        let whole = play(steps, &mut Kinds::default())?.0.snapshot();
        let at = at % whole.len();
        let mut changed = whole.clone();
        changed[at] = byte;
        survive(&changed);
        prop_assert!(Table::restore(&whole[..at]).is_err(), "cut short at {}", at);
        let longer = [&whole[..], &tail[..]].concat();
        prop_assert!(Table::restore(&longer).is_err(), "bytes left over");
    }
}

/// Whatever can be restored can be asked everything, at any time.
fn survive(bytes: &[u8]) {
    let Ok(mut table) = Table::restore(bytes) else {
        return;
    };
    assert_eq!(Table::restore(&table.snapshot()).as_ref(), Ok(&table));
    let (mut clients, mut events) = (Clients::new(), Vec::new());
    for kind in 0..=u8::MAX {
        let wish = Wish {
            kind,
            client: kind % random::CLIENTS as u8,
            lease: kind % random::LEASES,
            object: kind % 2,
            luck: kind,
            ttl: 500,
        };
        let late = u64::MAX - u64::from(kind);
        let now = if kind < 128 { u64::from(kind) } else { late };
        let stamp = Stamp {
            now: StoreTime::from_nanos(now),
            wall: WallTime::from_nanos(now),
        };
        table.apply(random::op(&clients.ask(wish, 1)), stamp, &mut events);
        table.list("", 10, stamp.now);
    }
    let end = Stamp {
        now: StoreTime::MAX,
        wall: WallTime::MAX,
    };
    table.collect(end, Entry::KEPT);
    table.snapshot();
}

/// A generator that never gets there would prove nothing: every kind of answer must occur.
#[test]
fn the_random_histories_reach_every_answer() {
    let mut runner = TestRunner::deterministic();
    let mut kinds = Kinds::default();
    for _ in 0..1_000 {
        let steps = steps().new_tree(&mut runner).expect("it makes one");
        play(steps.current(), &mut kinds).expect("nothing is compared");
    }
    let all = [
        "Granted",
        "Renewed",
        "Released",
        "Bumped",
        "Over",
        "Held",
        "Delayed",
        "Quarantined",
        "Used",
        "Exhausted",
        "LostExpired",
        "LostTaken",
        "LostReleased",
        "LostSequence",
        "LostGone",
        "Done",
        "Stale",
        "Expired",
        "WasReleased",
        "NeverIssued",
        "Fenced",
        "OtherLease",
        "Begun",
        "Resumed",
        "TookOver",
        "AlreadyDone",
        "InProgress",
        "NotBegun",
        "LeftUnfinished",
        "Mismatch",
        "TooOld",
        "Completed",
        "Abandoned",
        "TooSmall",
        "TooLarge",
    ];
    let missing: Vec<_> = all
        .iter()
        .filter(|kind| !kinds.0.contains_key(**kind))
        .collect();
    assert!(missing.is_empty(), "never answered: {missing:?}");
}
