//! Waiting for a lease, and settings that cannot work.

use std::thread;

use leasehold::{
    Blocker, Drift, Keeper, NotAcquired, Overrides, Phase, StoreError, TimeService, Ttl, Wait,
    core::Command,
    store::Store,
    testing::{Fault, On},
};

use crate::rig::*;

#[test]
fn a_holder_that_does_not_wait_is_told_who_holds() {
    let rig = Rig::new();
    let _a = rig.held("a");
    let error = rig
        .keeper("b")
        .wait(Wait::No)
        .acquire_blocking()
        .unwrap_err();
    assert_eq!(error.to_string(), "lease nightly is busy: held by a");
    let NotAcquired::Busy {
        blocker: Blocker::Held(held),
        ..
    } = error
    else {
        panic!("{error:?}")
    };
    assert_eq!((held.token.get(), held.hint), (1, seconds(15)));
}

#[test]
fn a_bounded_wait_ends_and_says_for_whom() {
    let rig = Rig::new();
    let _a = rig.held("a");
    let keeper = rig.keeper("b").wait(Wait::AtMost(seconds(3)));
    let phase = keeper.phase();
    let error = thread::scope(|scope| {
        let waits = scope.spawn(|| keeper.acquire_blocking().unwrap_err());
        eventually("it waits", || {
            matches!(*phase.borrow(), Phase::Waiting { .. })
        });
        rig.until("it gave up", || waits.is_finished());
        waits.join().unwrap()
    });
    assert_eq!(
        error.to_string(),
        "lease nightly did not come in time: held by a"
    );
}

/// FB-56, FB-59: a name is no key. A twin with the same name, or the same one started anew, waits and gets a new token.
#[test]
fn the_same_name_is_another_holder() {
    let rig = Rig::new();
    let first = rig.held("twin");
    let keeper = rig.keeper("twin");
    thread::scope(|scope| {
        let waits = scope.spawn(|| keeper.acquire_blocking().unwrap());
        eventually("it has asked", || {
            rig.count(|command| matches!(command, Command::Acquire(_))) >= 2
        });
        assert!(!waits.is_finished());
        drop(first);
        rig.until("the lease ran out", || waits.is_finished());
        assert_eq!(waits.join().unwrap().token().get(), 2);
    });
}

/// FB-69, FB-71: the store is down when it is asked first, then answers and the answer is lost. One grant comes of it.
#[test]
fn a_lease_is_asked_for_until_the_store_answers() {
    let rig = Rig::new();
    for fault in [
        Fault::Fail(unavailable()),
        Fault::LoseRequest,
        Fault::LoseReply,
    ] {
        rig.store.next(On::Acquire, fault);
    }
    let keeper = rig.keeper("a");
    thread::scope(|scope| {
        let waits = scope.spawn(|| keeper.acquire_blocking().unwrap());
        rig.until("it is granted", || waits.is_finished());
        assert_eq!(waits.join().unwrap().token().get(), 1);
    });
    assert_eq!(
        rig.count(|command| matches!(command, Command::Acquire(_))),
        4
    );
}

#[test]
fn a_store_that_refuses_for_good_is_not_asked_again() {
    let rig = Rig::new();
    rig.all_fail(
        On::Acquire,
        StoreError::Invalid {
            what: "it is a folder".into(),
        },
    );
    let error = rig.keeper("a").acquire_blocking().unwrap_err();
    assert_eq!(error.to_string(), "it is a folder");
    assert_eq!(rig.store.seen().len(), 1);
}

/// FB-20: also while it waits.
#[test]
fn a_dead_thread_is_an_error_for_who_waits() {
    let rig = Rig::new();
    rig.store.next(On::Acquire, Fault::Panic);
    let error = rig.keeper("a").acquire_blocking().unwrap_err();
    assert!(matches!(error, NotAcquired::Died { .. }), "{error:?}");
}

/// C16, A17, FB-24: what cannot work is refused before the store is asked, with what would do.
#[test]
fn settings_that_cannot_work_are_refused() {
    let rig = Rig::new();
    let times = |times: Overrides| rig.keeper("a").times(times);
    let call_longer_than_the_lease = Overrides {
        attempt: Some(seconds(20)),
        ..Overrides::default()
    };
    let grace = Overrides {
        grace: Some(seconds(30)),
        ..Overrides::default()
    };
    let sloppy = Overrides {
        drift: Some(Drift::NONE),
        ..Overrides::default()
    };
    let keepers: [(Keeper, &str); 6] = [
        (
            times(call_longer_than_the_lease),
            "the smallest ttl that would do is",
        ),
        (times(grace), "the smallest ttl that would do is"),
        (times(sloppy), "state the time service"),
        (
            rig.keeper("a").ttl(Ttl::MIN),
            "the smallest ttl that would do is 1s",
        ),
        (rig.keeper("a").probe(millis(1)), "probe 1ms is not allowed"),
        (
            rig.keeper("a").poll_max(millis(1)),
            "poll limit 1ms is not allowed",
        ),
    ];
    for (keeper, said) in keepers {
        assert!(keeper.timing().is_err());
        let error = keeper.acquire_blocking().unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
    assert!(rig.store.seen().is_empty());
    let stated = Overrides {
        time_service: Some(TimeService::SameClock),
        ..sloppy
    };
    assert!(times(stated).timing().is_ok());
}

#[test]
fn a_stopped_keeper_acquires_nothing() {
    let rig = Rig::new();
    let keeper = rig.keeper("a");
    let _b = rig.held("b");
    thread::scope(|scope| {
        let waits = scope.spawn(|| keeper.acquire_blocking().unwrap_err());
        eventually("it waits", || {
            matches!(*keeper.phase().borrow(), Phase::Waiting { .. })
        });
        keeper.stopper().stop();
        assert!(matches!(waits.join().unwrap(), NotAcquired::Stopped { .. }));
    });
    assert!(matches!(
        keeper.acquire_blocking(),
        Err(NotAcquired::Stopped { .. })
    ));
    now(keeper.run(async |_| Ok::<_, String>(()))).unwrap_err();
}

/// T6: an old backup is restored under a running holder. It learns that its token is gone.
#[test]
fn a_restored_backup_is_a_loss_and_not_a_second_token() {
    let rig = Rig::new();
    let guard = rig.held("a");
    let empty = leasehold::store::memory::MemoryStore::with_clock(rig.clock.clone());
    let before = rig.store.replace(empty);
    rig.clock.advance(seconds(5));
    let loss = guard.lost_blocking();
    assert_eq!(loss, leasehold::Loss::Store(leasehold::Lost::Gone));
    rig.store.replace(before);
    let status = now(rig.store.status(&name())).unwrap().unwrap();
    assert_eq!(status.token, Some(guard.token()));
}

/// H6 needs it: a guard process is told of every new deadline.
#[test]
fn a_new_deadline_is_told() {
    let rig = Rig::new();
    let guard = rig.held("a");
    let first = now(guard.extended(leasehold::BootTime::ZERO));
    assert_eq!(first, guard.deadline());
    thread::scope(|scope| {
        let waits = scope.spawn(|| now(guard.extended(first)));
        rig.clock.advance(seconds(5));
        assert_eq!(waits.join().unwrap(), first.plus(seconds(5)));
    });
    assert_eq!(guard.kill_at(), guard.deadline().minus(seconds(1)));
    assert_eq!(guard.stop_at(), guard.deadline().minus(seconds(3)));
}
