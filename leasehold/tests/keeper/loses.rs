//! How a holder learns that it holds no more: in time, whatever hangs, and for ever.

use std::{task::Poll, thread, time::Duration};

use leasehold::{
    Loss, Lost, NotHeld, NotReleased, Proof, Refusal, Token,
    core::{Command, Op, Outcome},
    testing::{Fault, Gate, On},
};

use crate::rig::*;

fn loss(result: Result<(), NotHeld>) -> Loss {
    match result {
        Err(NotHeld::Lost { loss, .. }) => loss,
        other => panic!("{other:?}"),
    }
}

/// FB-24, FB-27: requests are taken and never answered, or refused for ever. The work is told in time to stop, and after
/// the deadline nothing is allowed.
#[test]
fn renewals_that_get_no_answer_end_it_at_the_deadline() {
    for fault in [
        Fault::LoseRequest,
        Fault::LoseReply,
        Fault::Fail(unavailable()),
    ] {
        let rig = Rig::new();
        let guard = rig.held("a");
        rig.store.always(On::Renew, fault.clone());
        rig.clock.advance(millis(8_999));
        assert!(!guard.is_lost(), "{fault:?}");
        rig.clock.advance(millis(1));
        assert!(
            matches!(guard.lost_blocking(), Loss::NotRenewed(_)),
            "{fault:?}"
        );
        guard.check_for(millis(2_999)).unwrap();
        rig.clock.advance(millis(3_000));
        assert!(
            matches!(loss(guard.check()), Loss::NotRenewed(_)),
            "{fault:?}"
        );
        assert_eq!(guard.remaining(), Duration::ZERO);
    }
}

/// FB-24, C10: the store blocks the very thread that renews. The worker hears of its loss all the same.
#[test]
fn a_store_that_blocks_its_thread_does_not_hide_the_loss() {
    let rig = Rig::new();
    let guard = rig.held("a");
    let gate = Gate::shut();
    rig.store.next(On::Renew, Fault::BlockThread(gate.clone()));
    rig.clock.advance(seconds(5));
    eventually("the renewal is under way", || rig.renewals() == 1);
    let loss = now(async {
        let mut lost = Box::pin(guard.lost());
        let started = std::future::poll_fn(|cx| Poll::Ready(lost.as_mut().poll(cx)));
        assert!(started.await.is_pending());
        rig.clock.advance(seconds(4));
        lost.await
    });
    assert!(matches!(loss, Loss::NotRenewed(_)));
    rig.clock.advance(seconds(3));
    assert!(guard.check().is_err());
    // The renewal comes through at last, after its end was seen: that stands (INV-33).
    gate.open();
    guard.release_blocking().unwrap();
    rig.is_free_for(2);
}

/// FB-20: the renewing thread dies. No silence, no zombie.
#[test]
fn a_dead_renewing_thread_is_a_loss() {
    let rig = Rig::new();
    let guard = rig.held("a");
    rig.store.next(On::Renew, Fault::Panic);
    rig.clock.advance(seconds(5));
    assert_eq!(now(guard.lost()), Loss::Died);
    assert_eq!(loss(guard.check()), Loss::Died);
    let released = guard.release_blocking();
    assert!(
        matches!(released, Err(NotReleased::Unconfirmed { .. })),
        "{released:?}"
    );
}

/// FB-32, FB-33, INV-34: the machine slept, the process was stopped. The very first check after it fails, on the thread
/// that asks, before anybody could tell it.
#[test]
fn the_first_check_after_a_sleep_fails() {
    for slept in [12, 16, 60, 100_000] {
        let rig = Rig::new();
        let guard = rig.held("a");
        rig.clock.advance(seconds(slept));
        assert!(matches!(loss(guard.check()), Loss::NotRenewed(_)));
        assert!(guard.is_lost());
    }
}

/// C13, FB-55, INV-34: the wall clock jumped by an hour. That may be a paused machine, so nothing is allowed before the
/// store was asked; it may be a step, so the lease is not lost.
#[test]
fn a_jump_of_the_wall_clock_costs_one_renewal_and_no_lease() {
    let rig = Rig::new();
    let guard = rig.held("a");
    let jumps: [&dyn Fn(); 2] = [&|| rig.clock.pause(seconds(3600)), &|| {
        rig.clock.step_back(seconds(3600))
    }];
    for (before, jump) in jumps.into_iter().enumerate() {
        rig.store.next(On::Renew, Fault::Hold);
        jump();
        for _ in 0..3 {
            assert!(matches!(guard.check(), Err(NotHeld::Suspect { .. })));
        }
        eventually("the store is asked", || rig.renewals() == before + 1);
        assert!(matches!(guard.check(), Err(NotHeld::Suspect { .. })));
        eventually("it is held up", || match rig.store.stuck() {
            Some(stuck) => now(stuck.deliver()).is_ok(),
            None => false,
        });
        eventually("the store confirmed", || guard.check().is_ok());
    }
    assert!(!guard.is_lost());
}

/// F9: a refusal at a fence ends the tenure at once, for the worker and for the keeper.
#[test]
fn a_refusal_at_a_fence_is_a_loss() {
    let rig = Rig::new();
    let guard = rig.held("a");
    let token = guard.token();
    let highest = Token::new(2).unwrap();
    guard.fenced_out(Refusal::Stale { token, highest });
    assert!(matches!(loss(guard.check()), Loss::FencedOut(_)));
    rig.clock.advance(seconds(5));
    let released = guard.release_blocking();
    assert!(
        matches!(released, Err(NotReleased::Lost { .. })),
        "{released:?}"
    );
    assert_eq!((rig.renewals(), rig.releases()), (0, 0));
}

/// FB-17, FB-63: A slept, B took over. A's check, A's renewal and A's release change nothing for B, and B's writes stand.
#[test]
fn the_loser_changes_nothing_for_the_winner() {
    let rig = Rig::new();
    let a = rig.held("a");
    rig.store.next(On::Renew, Fault::Hold);
    rig.clock.advance(seconds(5));
    eventually("the renewal is under way", || rig.renewals() == 1);
    rig.clock.advance(seconds(10));
    let b = rig.held("b");
    let stuck = rig.store.stuck().expect("the renewal is held");
    let answer = now(stuck.deliver()).unwrap();
    let taken = Lost::Taken {
        by: Some("b".parse().unwrap()),
        token: b.token(),
    };
    assert_eq!(answer, Outcome::Lease(leasehold::core::Answer::Lost(taken)));
    let write = |guard: &leasehold::Guard, text: &str| Op::Put {
        key: "report".parse().unwrap(),
        value: leasehold::Value::new(text.as_bytes()).unwrap(),
        proof: Some(guard.proof()),
    };
    assert_eq!(rig.ask(write(&b, "by b")), Outcome::Done);
    assert!(matches!(
        rig.ask(write(&a, "by a")),
        Outcome::Refused(Refusal::Stale { .. })
    ));
    a.release_blocking().expect("it is over, and that is fine");
    b.check().unwrap();
    assert!(rig.is_busy());
}

/// FB-67: five leases in one process, and the store refuses one renewal for good.
#[test]
fn a_loss_is_the_loss_of_one_lease_only() {
    let rig = Rig::new();
    let guards: Vec<_> = (0..5)
        .map(|number| {
            let name = format!("lease{number}").parse().unwrap();
            let keeper = leasehold::Keeper::new(rig.store.clone(), name).clock(rig.clock.clone());
            keeper.acquire_blocking().unwrap()
        })
        .collect();
    let what = "the row is broken".to_owned();
    rig.store.next(
        On::Renew,
        Fault::Fail(leasehold::StoreError::Invalid { what }),
    );
    rig.clock.advance(seconds(5));
    let lost = || guards.iter().filter(|guard| guard.is_lost()).count();
    eventually("one is lost", || lost() == 1);
    eventually("the others are renewed", || {
        guards
            .iter()
            .filter(|guard| guard.remaining() > seconds(11))
            .count()
            == 4
    });
    assert_eq!(lost(), 1);
}

/// FB-35: the work hangs, the keeper is healthy. Without the probe it would hold for ever.
#[test]
fn work_that_hangs_loses_its_lease() {
    let rig = Rig::new();
    let guard = rig
        .keeper("a")
        .probe(seconds(20))
        .acquire_blocking()
        .unwrap();
    rig.walk(&guard, seconds(15));
    guard.progress();
    rig.walk(&guard, millis(19_500));
    assert!(!guard.is_lost());
    rig.walk(&guard, millis(500));
    assert_eq!(guard.lost_blocking(), Loss::Stalled);
    let renewals = rig.renewals();
    rig.clock.advance(seconds(5));
    assert_eq!(rig.renewals(), renewals);
}

/// A guard of an earlier tenure has no say in the next.
#[test]
fn an_old_guard_cannot_end_a_later_tenure() {
    let rig = Rig::new();
    let old = std::sync::Mutex::new(None);
    let keeper = rig.keeper("a").rest(millis(50), millis(50));
    let stopper = keeper.stopper();
    thread::scope(|scope| {
        let runs = scope.spawn(|| {
            now(keeper.run(async |guard| {
                let first = old.lock().unwrap().is_none();
                if first {
                    *old.lock().unwrap() = Some(guard);
                    return Err("once more");
                }
                let proof: Proof = guard.proof();
                let refusal = Refusal::Stale {
                    token: proof.token,
                    highest: proof.token,
                };
                if let Some(old) = &*old.lock().unwrap() {
                    old.fenced_out(refusal);
                }
                drop(old.lock().unwrap().take());
                thread::sleep(millis(50));
                assert_eq!(guard.loss(), None);
                guard.check().expect("it is held");
                stopper.stop();
                Ok(())
            }))
        });
        rig.until("it ended", || runs.is_finished());
        runs.join().unwrap().unwrap();
    });
    let acquires = rig.count(|command| matches!(command, Command::Acquire(_)));
    assert_eq!(acquires, 2);
}
