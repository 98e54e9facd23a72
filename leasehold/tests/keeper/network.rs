//! A network that doubles, delays and reorders: one wish is one grant, and nothing late does harm.

use std::thread;

use leasehold::{
    Keeper, Ttl, Wait,
    clock::BootClock,
    core::{Command, Release},
    store::memory::MemoryStore,
    testing::{Fault, On},
};

use crate::rig::*;

/// INV-6, A3: every request comes twice, and the holder never notices.
#[test]
fn doubled_requests_change_nothing() {
    let rig = Rig::new();
    rig.store.always(On::Any, Fault::Duplicate);
    for token in 1..=3 {
        let guard = rig.held("a");
        assert_eq!(guard.token().get(), token);
        rig.walk(&guard, seconds(20));
        guard.check().unwrap();
        guard.release_blocking().unwrap();
    }
}

/// FB-46, A1: the ask is three seconds on its way, longer than the holder waits for one answer. It is asked again, and
/// what arrives late is the same wish.
#[test]
fn a_late_ask_is_no_second_grant() {
    let rig = Rig::new();
    rig.store.next(On::Acquire, Fault::DelayRequest(seconds(3)));
    rig.store.next(On::Acquire, Fault::DelayRequest(seconds(1)));
    let keeper = rig.keeper("a");
    let guard = thread::scope(|scope| {
        let waits = scope.spawn(|| keeper.acquire_blocking().unwrap());
        rig.until("it is granted", || waits.is_finished());
        waits.join().unwrap()
    });
    assert_eq!(guard.token().get(), 1);
    rig.walk(&guard, seconds(10));
    guard.release_blocking().unwrap();
    rig.is_free_for(2);
}

/// C3, M3: the answer was two seconds on its way. They are not trusted.
#[test]
fn a_late_answer_gives_no_more_time_than_a_fast_one() {
    let rig = Rig::new();
    let asked = leasehold::clock::Clock::now(&*rig.clock);
    rig.store.next(On::Acquire, Fault::DelayReply(seconds(2)));
    let keeper = rig.keeper("a");
    let guard = thread::scope(|scope| {
        let waits = scope.spawn(|| keeper.acquire_blocking().unwrap());
        eventually("it has asked", || !rig.store.seen().is_empty());
        rig.until("it is granted", || waits.is_finished());
        waits.join().unwrap()
    });
    assert_eq!(guard.deadline(), asked.plus(seconds(12)));
}

/// FB-63: a release that was overtaken by the next grant.
#[test]
fn a_release_that_arrives_late_hurts_nobody() {
    let rig = Rig::new();
    let a = rig.held("a");
    rig.store
        .next(On::Release, Fault::DelayRequest(seconds(60)));
    thread::scope(|scope| {
        let releases = scope.spawn(|| a.release_blocking());
        rig.until("it is sent again", || releases.is_finished());
        releases.join().unwrap().unwrap();
    });
    let b = rig.held("b");
    rig.walk(&b, seconds(60));
    b.check().unwrap();
    assert!(rig.is_busy());
    let by_token = |command: &Command| matches!(command, Command::Release(Release::Tenure { .. }));
    assert_eq!(rig.count(by_token), 2);
}

/// The same on the machine's own clock: it wakes the keeper in time, and a waiter when the lease is given back.
#[test]
fn the_machines_clock_keeps_a_lease() {
    let store = MemoryStore::with_clock(BootClock::shared());
    let keeper = |holder: &str| {
        let ttl = Ttl::from_millis(6_000).unwrap();
        let keeper = Keeper::new(store.clone(), name()).ttl(ttl);
        keeper.holder(holder.parse().unwrap())
    };
    let a = keeper("a").acquire_blocking().unwrap();
    let first = a.deadline();
    assert!(now(a.extended(first)) > first);
    a.check_for(seconds(1)).unwrap();
    assert!(keeper("b").wait(Wait::No).acquire_blocking().is_err());
    a.release_blocking().unwrap();
    assert_eq!(
        keeper("b")
            .wait(Wait::No)
            .acquire_blocking()
            .unwrap()
            .token()
            .get(),
        2
    );
}
