//! Letting a lease go: no way back, nothing released too early, nobody waits for a dead store.

use std::vec::Vec;

use super::{driver::*, *};
use crate::{Answer, Command, Lost, Refusal, Release};

/// FB-18, H1, INV-33: answers that come after the end, however good, revive nothing, and nothing is renewed any more.
#[test]
fn there_is_no_way_back_from_a_loss() {
    let mut played = Played::held();
    played.run_to(8_999);
    let (attempt, _) = played.last();
    assert_eq!(played.renewals().len(), 2);
    played.now = 9_000;
    played.hear(Input::Answered {
        attempt,
        answer: RENEWED,
    });
    assert_eq!(played.stopped_at(), Some(9_000));
    let asked = played.sent.len();
    for round in 0..100 {
        played.hear(Input::Answered {
            attempt: round,
            answer: RENEWED,
        });
        played.hear(Input::Changed);
        played.hear(Input::Want(Wait::Forever));
        played.run_to(played.now + 500);
        assert!(!played.hold.is_held());
    }
    assert_eq!((played.sent.len(), played.deadline()), (asked, 12_000));
}

#[test]
fn nothing_is_renewed_after_a_stop() {
    let mut played = Played::held();
    played.run_to(4_000);
    played.hear(Input::Stop);
    assert_eq!(played.loss(), Some(Loss::Stopped));
    played.run_to(60_000);
    assert_eq!(played.renewals(), []);
    assert_eq!(played.deadline(), 12_000);
    assert_eq!(played.has_told(|tell| *tell == Tell::Kill), Some(11_000));
}

/// FB-61, H5, INV-33: stop, drain, release; and the store hears nothing before.
#[test]
fn the_lease_is_released_only_when_the_work_has_ended() {
    let mut played = Played::held();
    played.run_to(1_000);
    played.hear(Input::Stop);
    played.run_to(4_000);
    assert_eq!(played.releases(), []);
    played.hear(Input::Drained { failed: false });
    let session = played.hold.session();
    let token = Played::token(1);
    assert_eq!(
        played.releases(),
        [(4_000, Release::Tenure { token, session })]
    );
    assert_eq!(played.answer(), Answer::Released);
    let over = Tell::Over {
        token,
        loss: Some(Loss::Stopped),
        released: true,
    };
    assert_eq!(played.told.last(), Some(&(4_000, over)));
    assert!(played.hold.is_idle());
}

/// Also after a deadline that passed: what the store still keeps is given back, but only when the work has ended.
#[test]
fn work_that_outlives_its_deadline_is_waited_for() {
    let mut played = Played::held();
    played.fail_to(20_000, &unavailable());
    assert_eq!(played.releases(), []);
    assert!(!played.hold.is_idle());
    played.hear(Input::Drained { failed: false });
    assert_eq!(played.releases().len(), 1);
}

/// FB-63: a late release of a tenure that ended is "not yours" and changes nothing.
#[test]
fn a_late_release_leaves_the_successor_alone() {
    let mut played = Played::held();
    played.fail_to(20_000, &unavailable());
    played.take(15_000);
    let of_b = played.record.clone();
    played.hear(Input::Drained { failed: false });
    assert_eq!(played.answer(), Answer::AlreadyOver);
    assert_eq!(played.record, of_b);
}

/// FB-24: nobody waits longer than two attempts for a store that does not answer a release.
#[test]
fn a_silent_store_does_not_hold_up_the_end() {
    let mut played = Played::held();
    played.hear(Input::Drained { failed: false });
    played.run_to(4_999);
    assert!(!played.hold.is_idle());
    played.run_to(5_000);
    assert!(played.hold.is_idle());
    assert!(played.releases().len() >= 2);
    let told = played.told.last().unwrap();
    assert!(
        matches!(
            told,
            (
                5_000,
                Tell::Over {
                    released: false,
                    ..
                }
            )
        ),
        "{told:?}"
    );
}

/// The store says that the lease is gone: the work gets its grace and not the time to the deadline.
#[test]
fn a_lease_that_is_certainly_lost_is_left_at_once() {
    let mut played = Played::held();
    played.run_to_send();
    played.reply(Answer::Lost(Lost::Gone));
    let kill_at = boot(played.now).plus(ms(2000));
    let loss = Loss::Store(Lost::Gone);
    assert!(loss.is_certain());
    assert_eq!(
        played.told.last(),
        Some(&(played.now, Tell::Stop { loss, kill_at }))
    );
    played.hear(Input::Drained { failed: false });
    assert!(played.hold.is_idle());
    assert_eq!(played.releases(), []);
}

/// F9: a refusal at a fence ends the tenure, and the holder does not come back at once to be refused again.
#[test]
fn a_refusal_at_a_fence_ends_the_tenure() {
    let token = Played::token(1);
    let refusal = Refusal::Stale {
        token,
        highest: Played::token(2),
    };
    for stop_first in [false, true] {
        let mut played = Played::held();
        if stop_first {
            played.hear(Input::Stop);
        }
        played.hear(Input::Lose(Loss::FencedOut(refusal.clone())));
        assert_eq!(played.loss(), Some(Loss::FencedOut(refusal.clone())));
        played.hear(Input::Drained { failed: false });
        played.hear(Input::Want(Wait::Forever));
        played.run_to(499);
        assert_eq!(played.sent.len(), 1, "it rests");
        played.run_to(1_000);
        assert_eq!(played.sent.len(), 2);
    }
}

/// FB-35: a renewing zombie blocks everybody.
#[test]
fn work_that_makes_no_progress_loses_the_lease() {
    let mut plan = plan();
    plan.probe = Some(ms(20_000));
    let mut played = Played::held_with(plan);
    let renew_to = |played: &mut Played, to: u64| {
        while played.now < to && played.hold.is_held() {
            played.run_to_send_or(to);
            if played.renewals().last() == Some(&played.now) {
                played.answer();
            }
        }
    };
    renew_to(&mut played, 15_000);
    played.hear(Input::Progress(boot(15_000)));
    renew_to(&mut played, 34_999);
    assert!(played.hold.is_held());
    renew_to(&mut played, 40_000);
    assert_eq!(played.loss(), Some(Loss::Stalled));
    assert_eq!(played.stopped_at(), Some(35_000));
    assert_eq!(played.releases(), [], "it is stuck, not drained");
}

/// FB-68: failed work gives the lease back and rests, longer each time; work that ended well starts afresh.
#[test]
fn failed_work_rests_before_the_next_try() {
    let mut played = Played::held();
    let mut rests = Vec::new();
    for round in 0..9 {
        played.hear(Input::Drained { failed: round != 7 });
        assert_eq!(played.answer(), Answer::Released);
        played.hear(Input::Want(Wait::Forever));
        let from = played.now;
        if matches!(played.last().1, Command::Release(_)) {
            played.run_to_send();
        }
        rests.push(played.now - from);
        played.answer();
        assert!(played.hold.is_held());
    }
    let within = |rest: u64, most: u64| (most / 2..=most).contains(&rest);
    for (rest, most) in rests[..7]
        .iter()
        .zip([1000, 2000, 4000, 8000, 16_000, 32_000, 60_000])
    {
        assert!(within(*rest, most), "{rests:?}");
    }
    assert!(rests[7] == 0 && within(rests[8], 1000), "{rests:?}");
}

/// FB-69: after a loss the holder contends again, without a rest and without an end.
#[test]
fn after_a_loss_the_holder_contends_again() {
    let mut played = Played::held();
    for round in 1..=3 {
        played.fail_to(played.now + 26_000, &unavailable());
        assert!(matches!(played.loss(), Some(Loss::NotRenewed(_))));
        played.hear(Input::Drained { failed: false });
        played.fail_to(played.now + 10_000, &unavailable());
        played.hear(Input::Want(Wait::Forever));
        let from = played.now;
        played.fail_to(from + 16_000, &unavailable());
        played.run_to_send();
        played.answer();
        assert_eq!(played.hold.token(), Some(Played::token(round + 1)));
        assert!(played.now - from < 16_000 + 5_100);
    }
}

/// O15, FB-38: nothing is implicit. The lease runs out, and whoever asks next is a stranger to the lost tenure.
#[test]
fn a_dropped_guard_releases_nothing() {
    let mut played = Played::held();
    let session = played.hold.session();
    played.run_to_send();
    played.hear(Input::Dropped);
    assert!(played.hold.is_idle());
    played.run_to(60_000);
    assert_eq!(
        (played.releases(), played.renewals().len()),
        (Vec::new(), 1)
    );
    assert_ne!(played.hold.session(), session);
    played.now = 10_000;
    let mut again = Played::held();
    again.hear(Input::Dropped);
    again.hear(Input::Want(Wait::Forever));
    assert!(matches!(again.answer(), Answer::Held(held) if !held.yours));
}

#[test]
fn a_renewal_that_the_store_refuses_for_good_is_a_loss() {
    let mut invalid = Played::held();
    invalid.run_to_send();
    invalid.fail(Failure::Invalid("the file was replaced".into()));
    let mut odd = Played::held();
    odd.run_to_send();
    odd.reply(Answer::AlreadyUsed);
    for played in [invalid, odd] {
        assert!(matches!(played.loss(), Some(Loss::Refused(_))));
    }
}

/// FB-68: what is said while it rests is heard.
#[test]
fn a_stop_during_a_rest_ends_it() {
    let mut played = Played::held();
    played.hear(Input::Drained { failed: true });
    played.answer();
    played.hear(Input::Want(Wait::Forever));
    assert!(!played.hold.is_idle());
    played.hear(Input::Stop);
    assert_eq!(played.gave_up(), Some(GaveUp::Stopped));
    assert!(played.hold.is_idle());
    played.hear(Input::Want(Wait::AtMost(ms(100))));
    played.run_to(100);
    assert_eq!(played.gave_up(), Some(GaveUp::TimedOut(None)));
}
