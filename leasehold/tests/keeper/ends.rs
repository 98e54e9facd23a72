//! How a tenure ends without a loss: released, dropped, leaked, panicked.

use std::{panic, thread};

use leasehold::{
    Loss, NotReleased, Phase,
    core::{Command, Release},
    testing::{Fault, Gate, On},
};

use crate::rig::*;

/// FB-65: a waiter gets a released lease at once, not when it would have expired.
#[test]
fn a_released_lease_goes_to_the_next_at_once() {
    let rig = Rig::new();
    let a = rig.held("a");
    let keeper = rig.keeper("b");
    thread::scope(|scope| {
        let waits = scope.spawn(|| keeper.acquire_blocking().unwrap());
        eventually("b has asked", || {
            rig.count(|command| matches!(command, Command::Acquire(_))) >= 2
        });
        a.release_blocking().unwrap();
        eventually("the hint arrived", || {
            rig.clock.advance(millis(1));
            waits.is_finished()
        });
        assert_eq!(waits.join().unwrap().token().get(), 2);
    });
}

/// O15, FB-38: dropping a guard releases nothing, also on a runtime that is closing; the lease runs out by itself.
#[test]
fn a_dropped_guard_only_ends_the_renewals() {
    let rig = Rig::new();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let guard = runtime.block_on(rig.keeper("a").acquire()).unwrap();
    runtime.spawn(async move {
        let _guard = guard;
        std::future::pending::<()>().await
    });
    runtime.shutdown_background();
    rig.clock.advance(millis(14_999));
    assert!(rig.is_busy());
    assert_eq!((rig.renewals(), rig.releases()), (0, 0));
    rig.clock.advance(millis(1));
    rig.is_free_for(2);
}

/// FB-36: the work panics, its guard is leaked. It is given back, and the panic goes on.
#[test]
fn work_that_panics_gives_its_lease_back() {
    let rig = Rig::new();
    let keeper = rig.keeper("a");
    let result = panic::catch_unwind(panic::AssertUnwindSafe(|| {
        now(keeper.run(|guard| {
            std::mem::forget(guard);
            async {
                if true {
                    panic!("the work panics");
                }
                Ok::<_, String>(())
            }
        }))
    }));
    let panic = result.expect_err("it goes on");
    assert_eq!(panic.downcast_ref(), Some(&"the work panics"));
    rig.is_free_for(2);
}

/// FB-36, in a thread of one's own: the guard goes with the thread, and nothing renews for the dead.
#[test]
fn a_thread_that_panics_takes_its_renewals_along() {
    let rig = Rig::new();
    let guard = rig.held("a");
    let dies = thread::spawn(move || {
        let _guard = guard;
        panic!("the thread panics");
    });
    assert!(dies.join().is_err());
    rig.clock.advance(seconds(15));
    rig.is_free_for(2);
    assert_eq!(rig.renewals(), 0);
}

/// FB-24: the store does not answer the release. The worker does not wait for ever, and knows.
#[test]
fn a_release_without_an_answer_comes_back() {
    let rig = Rig::new();
    let guard = rig.held("a");
    rig.store.always(On::Release, Fault::LoseRequest);
    let result = thread::scope(|scope| {
        let releases = scope.spawn(|| guard.release_blocking());
        rig.until("the release came back", || releases.is_finished());
        releases.join().unwrap()
    });
    assert!(
        matches!(result, Err(NotReleased::Unconfirmed { .. })),
        "{result:?}"
    );
    assert!(rig.releases() >= 1);
}

/// L9, FB-71: a release whose answer was lost is sent again, and is fine the second time.
#[test]
fn a_release_with_a_lost_answer_is_sent_again() {
    let rig = Rig::new();
    let guard = rig.held("a");
    rig.store.next(On::Release, Fault::LoseReply);
    thread::scope(|scope| {
        let releases = scope.spawn(|| guard.release_blocking());
        rig.until("the release came back", || releases.is_finished());
        releases.join().unwrap().unwrap();
    });
    assert_eq!(rig.releases(), 2);
    rig.is_free_for(2);
}

/// FB-71 (a), (b): the future of an acquire is dropped with its answer under way. What may have been granted is given
/// back by the request that asked for it.
#[test]
fn a_dropped_acquire_leaves_nothing_behind() {
    let rig = Rig::new();
    rig.store.next(On::Acquire, Fault::LoseReply);
    let keeper = rig.keeper("a");
    now(async {
        let acquire = keeper.acquire();
        tokio::pin!(acquire);
        let asked = async {
            while rig.store.seen().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            biased;
            _ = &mut acquire => panic!("its answer is lost"),
            () = asked => {}
        }
    });
    eventually("it is given back", || {
        rig.count(|command| matches!(command, Command::Release(Release::Request { .. }))) == 1
    });
    eventually("it is free", || !rig.is_busy());
}

/// FB-71: it was granted in the moment in which nobody waited any more.
#[test]
fn a_grant_that_nobody_took_is_given_back() {
    let rig = Rig::new();
    // It comes while this thread waits, and not before.
    let gate = Gate::shut();
    rig.store
        .next(On::Acquire, Fault::BlockThread(gate.clone()));
    let keeper = rig.keeper("a");
    now(async {
        let mut acquire = Box::pin(keeper.acquire());
        let started = std::future::poll_fn(|cx| std::task::Poll::Ready(acquire.as_mut().poll(cx)));
        assert!(started.await.is_pending());
        gate.open();
        let mut phase = keeper.phase();
        phase
            .wait_for(|phase| matches!(phase, Phase::Held(_)))
            .await
            .unwrap();
        thread::sleep(millis(20));
        drop(acquire);
    });
    eventually("it is given back", || rig.releases() == 1);
    rig.is_free_for(2);
}

/// A4, INV-6: the request of a dropped acquire arrives after its release. It costs one ttl at most.
#[test]
fn a_request_that_overtakes_its_release_costs_one_ttl_at_most() {
    let rig = Rig::new();
    rig.store.next(On::Acquire, Fault::Hold);
    let keeper = rig.keeper("a").wait(leasehold::Wait::No);
    thread::scope(|scope| {
        let asks = scope.spawn(|| keeper.acquire_blocking());
        eventually("it has asked", || !rig.store.seen().is_empty());
        keeper.stopper().stop();
        assert!(asks.join().unwrap().is_err());
    });
    eventually("it is given back", || rig.releases() == 1);
    let stuck = rig.store.stuck().expect("the request is held");
    now(stuck.deliver()).unwrap();
    assert!(rig.is_busy());
    rig.clock.advance(seconds(15));
    rig.is_free_for(2);
}

/// FB-61: a stop tells the work; the lease is held until it is released, and renewed no more.
#[test]
fn a_stopped_keeper_still_holds_until_its_work_has_ended() {
    let rig = Rig::new();
    let keeper = rig.keeper("a");
    let guard = keeper.acquire_blocking().unwrap();
    keeper.stopper().stop();
    assert_eq!(guard.lost_blocking(), Loss::Stopped);
    guard.check().unwrap();
    rig.clock.advance(seconds(8));
    assert!(rig.is_busy());
    guard.check().unwrap();
    guard.release_blocking().unwrap();
    assert_eq!(rig.renewals(), 0);
    rig.is_free_for(2);
}
