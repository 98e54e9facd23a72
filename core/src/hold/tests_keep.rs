//! Keeping a lease: what extends trust, and what does not.

use std::vec::Vec;

use super::{driver::*, *};
use crate::{Answer, Command, Lost, Renew};

fn renew(command: &Command) -> Renew {
    match command {
        Command::Renew(asked) => asked.clone(),
        other => panic!("{other:?}"),
    }
}

/// H2: every third of the ttl, up to a tenth of it earlier.
#[test]
fn a_lease_is_renewed_every_third_of_its_ttl() {
    let mut played = Played::held();
    for _ in 0..50 {
        played.run_to_send();
        assert_eq!(played.answer(), RENEWED);
        assert_eq!(played.deadline(), played.now + 12_000);
    }
    let times = played.renewals();
    let gaps: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(
        gaps.iter().all(|gap| (4500..=5001).contains(gap)),
        "{gaps:?}"
    );
    let (short, long) = (gaps.iter().min().unwrap(), gaps.iter().max().unwrap());
    assert!(long - short > 200, "no jitter: {gaps:?}");
    assert_eq!(played.stopped_at(), None);
}

/// M3, C3: the store answered 2 s after the request was sent. Those 2 s are not trusted.
#[test]
fn trust_counts_from_when_the_renewal_was_sent() {
    let mut played = Played::held();
    played.run_to_send();
    let sent = played.now;
    played.now += 2000;
    played.answer();
    assert_eq!(played.deadline(), sent + 12_000);
    let mut slow = Played::new(plan());
    slow.hear(Input::Want(Wait::Forever));
    slow.now = 2000;
    slow.answer();
    assert_eq!(slow.deadline(), 12_000);
}

/// C5, FB-27: renewals that fail for two ttls, however they fail, keep nothing alive.
#[test]
fn a_renewal_without_an_answer_does_not_extend_trust() {
    for failure in [unknown(), unavailable(), Failure::Blocked("x".into())] {
        let mut played = Played::held();
        let deadline = played.deadline();
        played.fail_to(8_999, &failure);
        assert_eq!((played.deadline(), played.stopped_at()), (deadline, None));
        played.fail_to(30_000, &failure);
        assert_eq!(played.stopped_at(), Some(9000), "{failure:?}");
        assert_eq!(played.loss(), Some(Loss::NotRenewed(Some(failure))));
        assert_eq!(played.has_told(|tell| *tell == Tell::Kill), Some(11_000));
        assert_eq!(played.has_told(|tell| *tell == Tell::Overdue), Some(12_000));
    }
}

/// FB-24: the store takes requests and never answers.
#[test]
fn a_silent_store_delays_no_stop() {
    let mut played = Played::held();
    played.run_to(30_000);
    assert_eq!(played.stopped_at(), Some(9000));
    assert_eq!(played.has_told(|tell| *tell == Tell::Kill), Some(11_000));
}

/// FB-28: many failures fit before time is up; the next answer saves the lease.
#[test]
fn failures_are_retried_as_long_as_time_allows() {
    let mut played = Played::held();
    played.fail_to(8_500, &Failure::Blocked("a long writer".into()));
    assert!(played.renewals().len() >= 4, "{:?}", played.renewals());
    played.run_to_send();
    assert!(played.now < 9000);
    assert_eq!(played.answer(), RENEWED);
    played.run_to(9_100);
    assert!(played.hold.is_held());
    assert_eq!(played.stopped_at(), None);
}

/// A3: a retry is the same renewal, so a lost answer is not taken for a clone.
#[test]
fn the_retries_of_one_renewal_have_one_number_and_one_id() {
    let mut played = Played::held();
    played.run_to_send();
    let first = renew(&played.last().1);
    played.store(played.last().1);
    played.fail(unknown());
    played.run_to_send();
    assert_eq!(renew(&played.last().1), first);
    assert_eq!(played.answer(), RENEWED);
    played.run_to_send();
    let next = renew(&played.last().1);
    assert_eq!((first.number, next.number), (1, 2));
    assert_ne!(first.renew_id, next.renew_id);
}

/// A3: the answer to an attempt that was overtaken says nothing.
#[test]
fn a_mismatch_of_an_older_attempt_is_ignored() {
    let mut played = Played::held();
    played.run_to_send();
    let (attempt, first) = played.last();
    played.run_to(played.now + 2500);
    played.run_to_send();
    assert_eq!(played.answer(), RENEWED);
    played.run_to_send();
    assert_eq!(played.answer(), RENEWED);
    let answer = played.store(first);
    assert_eq!(answer, Answer::Lost(Lost::SeqMismatch));
    played.hear(Input::Answered { attempt, answer });
    assert!(played.hold.is_held());
}

/// C14: a clone of the whole machine renews with the same session and token.
#[test]
fn a_clone_is_told_from_a_retry() {
    let mut played = Played::held();
    played.run_to_send();
    let mut clone = renew(&played.last().1);
    clone.renew_id = Seed(8).roll().into();
    assert_eq!(played.store(Command::Renew(clone)), RENEWED);
    played.answer();
    assert_eq!(played.loss(), Some(Loss::Store(Lost::SeqMismatch)));
}

/// FB-17: A's renewals fail, B takes over, then A's renewal comes through. A's own flag fell at its own deadline, and
/// B's lease is untouched.
#[test]
fn a_loser_never_renews_the_winners_lease() {
    let mut played = Played::held();
    played.run_to_send();
    let (attempt, late) = played.last();
    played.fail_to(15_001, &unavailable());
    assert!(!played.hold.is_held());
    assert!(matches!(played.take(15_000), Answer::Granted(_)));
    let of_b = played.record.clone();
    let answer = played.store(late);
    assert!(matches!(answer, Answer::Lost(Lost::Taken { .. })));
    played.hear(Input::Answered { attempt, answer });
    assert_eq!(played.record, of_b);
    assert!(!played.hold.is_held());
}

/// C13, FB-55, INV-34: after a pause nothing is trusted before a round trip that began afterwards; the wall clock's step
/// that may have been the reason costs one renewal and no lease.
#[test]
fn after_a_pause_only_a_new_answer_restores_trust() {
    let mut played = Played::held();
    played.run_to_send();
    let (attempt, _) = played.last();
    played.hear(Input::Paused);
    assert!(!played.hold.is_held());
    played.hear(Input::Answered {
        attempt,
        answer: RENEWED,
    });
    assert!(
        !played.hold.is_held(),
        "that answer may be older than the pause"
    );
    assert_eq!(played.answer(), RENEWED);
    assert!(played.hold.is_held());
    let told: Vec<_> = played.told.iter().map(|(_, tell)| tell).collect();
    assert!(
        matches!(
            told[1..],
            [Tell::Suspect, Tell::Renewed(_), Tell::Confirmed]
        ),
        "{told:?}"
    );
    played.run_to(played.now + 4_000);
    assert_eq!(played.stopped_at(), None);
}

#[test]
fn a_pause_that_the_store_does_not_clear_up_is_a_loss() {
    let mut played = Played::held();
    played.hear(Input::Paused);
    played.fail_to(9_000, &unavailable());
    assert_eq!(played.loss(), Some(Loss::Unconfirmed));
    for order in [[Input::Stop, Input::Paused], [Input::Paused, Input::Stop]] {
        let mut leaving = Played::held();
        for input in order {
            leaving.hear(input);
        }
        assert_eq!(leaving.loss(), Some(Loss::Unconfirmed));
        assert!(!leaving.hold.allows(boot(0)));
    }
}

/// FB-32, FB-33: the process slept for ttl + 1. The first thing it learns when it wakes is that it is over.
#[test]
fn a_frozen_holder_wakes_up_to_its_loss() {
    for input in [
        Input::Tick,
        Input::Changed,
        Input::Progress(boot(16_000)),
        Input::Paused,
    ] {
        let mut played = Played::held();
        played.now = 16_000;
        played.hear(input);
        assert!(!played.hold.is_held());
        let told: Vec<_> = played.told[1..].iter().map(|(_, tell)| tell).collect();
        assert!(
            matches!(told[..3], [Tell::Stop { .. }, Tell::Kill, Tell::Overdue]),
            "{told:?}"
        );
    }
}

/// C14: whoever lost to a clone leaves the clone's tenure alone; under the old session it would be an orphan (A4).
#[test]
fn the_loser_to_a_clone_takes_a_new_session() {
    let mut played = Played::held();
    let before = played.hold.session();
    played.run_to_send();
    let mut clone = renew(&played.last().1);
    clone.renew_id = Seed(8).roll().into();
    assert_eq!(played.store(Command::Renew(clone)), RENEWED);
    played.answer();
    played.hear(Input::Drained { failed: false });
    assert_ne!(played.hold.session(), before);
    played.hear(Input::Want(Wait::Forever));
    let answer = played.answer();
    assert!(
        matches!(&answer, Answer::Held(held) if !held.yours),
        "{answer:?}"
    );
    assert_eq!(played.releases(), []);
}
