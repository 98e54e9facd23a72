//! `run`: work under a lease, tenure after tenure.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
};

use leasehold::{
    Loss, NotAcquired, Wait,
    core::Command,
    testing::{Fault, On},
};

use crate::rig::*;

#[test]
fn work_that_is_done_gives_the_lease_back_and_ends_the_run() {
    let rig = Rig::new();
    let tokens = Mutex::new(Vec::new());
    for _ in 0..3 {
        let work = |guard: &leasehold::Guard| {
            tokens.lock().unwrap().push(guard.token().get());
            Ok::<_, String>(())
        };
        rig.keeper("a").run_blocking(work).unwrap();
    }
    assert_eq!(*tokens.lock().unwrap(), [1, 2, 3]);
    assert_eq!(rig.releases(), 3);
}

/// FB-30: the work blocks the only thread of its runtime for three ttls. The lease is kept by another.
#[test]
fn work_that_blocks_its_runtime_keeps_its_lease() {
    let rig = Rig::new();
    let keeper = rig.keeper("a");
    now(keeper.run(async |guard| {
        rig.walk(&guard, seconds(45));
        guard.check().map_err(|error| error.to_string())
    }))
    .unwrap();
    assert!(rig.renewals() >= 7, "{}", rig.renewals());
    assert_eq!(
        rig.count(|command| matches!(command, Command::Acquire(_))),
        1
    );
}

/// FB-39: the renewals fail and the job goes on and on. It is told, it is ended before the deadline, and then the keeper
/// contends again (FB-69).
#[test]
fn a_job_that_outlives_its_lease_is_ended_before_the_deadline() {
    let rig = Rig::new();
    let keeper = rig.keeper("a");
    let ended_at = Mutex::new(None);
    struct Ends<'a>(&'a Rig, &'a Mutex<Option<leasehold::BootTime>>);
    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            *self.1.lock().unwrap() = Some(leasehold::clock::Clock::now(&*self.0.clock));
        }
    }
    let tenures = AtomicUsize::new(0);
    let deadline = Mutex::new(None);
    thread::scope(|scope| {
        let runs = scope.spawn(|| {
            now(keeper.run(async |guard| {
                if tenures.fetch_add(1, SeqCst) == 1 {
                    return Ok::<_, String>(());
                }
                *deadline.lock().unwrap() = Some(guard.deadline());
                rig.store.always(On::Renew, Fault::LoseRequest);
                let _ends = Ends(&rig, &ended_at);
                std::future::pending::<()>().await;
                Ok(())
            }))
        });
        eventually("it works", || deadline.lock().unwrap().is_some());
        rig.until("it is ended", || ended_at.lock().unwrap().is_some());
        rig.store.heal();
        rig.until("it contends again", || runs.is_finished());
        runs.join().unwrap().unwrap();
    });
    let (ended_at, deadline) = (
        ended_at.lock().unwrap().unwrap(),
        deadline.lock().unwrap().unwrap(),
    );
    assert!(ended_at < deadline, "{ended_at:?} {deadline:?}");
    assert_eq!(tenures.load(SeqCst), 2);
}

/// FB-61, FB-62: stop, drain, release, in this order; the next one starts after the last write.
#[test]
fn a_stop_drains_the_work_before_the_release() {
    let rig = Rig::new();
    let keeper = rig.keeper("a");
    let (working, drained) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        let runs = scope.spawn(|| {
            now(keeper.run(async |guard| {
                working.store(1, SeqCst);
                assert_eq!(guard.lost().await, Loss::Stopped);
                working.store(2, SeqCst);
                while drained.load(SeqCst) == 0 {
                    tokio::task::yield_now().await;
                }
                guard.check().map_err(|error| error.to_string())
            }))
        });
        eventually("it works", || working.load(SeqCst) == 1);
        keeper.stopper().stop();
        eventually("it is told", || working.load(SeqCst) == 2);
        rig.clock.advance(seconds(3));
        thread::sleep(millis(50));
        assert_eq!(rig.releases(), 0, "INV-33");
        assert!(rig.is_busy());
        drained.store(1, SeqCst);
        runs.join().unwrap().unwrap();
    });
    assert_eq!(rig.releases(), 1);
    rig.is_free_for(2);
}

/// FB-24: nothing the store does not answer keeps a stop from ending.
#[test]
fn a_silent_store_does_not_hold_up_a_stop() {
    let rig = Rig::new();
    let keeper = rig.keeper("a");
    thread::scope(|scope| {
        let runs = scope.spawn(|| {
            now(keeper.run(async |guard| {
                rig.store.always(On::Any, Fault::LoseRequest);
                keeper.stopper().stop();
                guard.lost().await;
                Ok::<_, String>(())
            }))
        });
        rig.until("it ended", || runs.is_finished());
        runs.join().unwrap().unwrap();
    });
}

/// FB-68: work that fails gives the lease back and rests, so that another gets its chance.
#[test]
fn failed_work_leaves_the_lease_to_others_for_a_while() {
    let rig = Rig::new();
    let keeper = rig.keeper("a").rest(seconds(4), seconds(60));
    let tries = AtomicUsize::new(0);
    thread::scope(|scope| {
        let runs = scope.spawn(|| {
            now(keeper.run(async |_| match tries.fetch_add(1, SeqCst) {
                0 => Err("the start-up hook failed"),
                _ => Ok(()),
            }))
        });
        eventually("it gave up the lease", || rig.releases() == 1);
        rig.is_free_for(2);
        rig.clock.advance(seconds(1));
        thread::sleep(millis(50));
        assert_eq!(tries.load(SeqCst), 1, "it rests");
        rig.until("it tries again", || runs.is_finished());
        runs.join().unwrap().unwrap();
    });
    assert_eq!(tries.load(SeqCst), 2);
}

/// FB-69: three replicas, and the store is down for more than a ttl, more often than there are replicas. All contend
/// again, and one holds each time.
#[test]
fn after_an_outage_all_contend_again() {
    let rig = Rig::new();
    let keepers: Vec<_> = ["a", "b", "c"].map(|holder| rig.keeper(holder)).into();
    let tokens = Mutex::new(Vec::new());
    let acting = AtomicUsize::new(0);
    thread::scope(|scope| {
        for keeper in &keepers {
            scope.spawn(|| {
                now_or_longer(keeper.run(async |guard| {
                    assert_eq!(acting.fetch_add(1, SeqCst), 0, "two act at once");
                    tokens.lock().unwrap().push(guard.token().get());
                    guard.lost().await;
                    acting.fetch_sub(1, SeqCst);
                    Ok::<_, String>(())
                }))
                .unwrap();
            });
        }
        for round in 1..=5 {
            rig.until("somebody holds", || tokens.lock().unwrap().len() >= round);
            if round < 5 {
                rig.all_fail(On::Any, unavailable());
                rig.until("it is lost", || acting.load(SeqCst) == 0);
                for _ in 0..320 {
                    rig.clock.advance(millis(50));
                    thread::sleep(millis(1));
                }
                rig.store.heal();
            }
        }
        keepers.iter().for_each(|keeper| keeper.stopper().stop());
        // Those that rest or wait for a store's answer do so on the rig's clock.
        rig.until("all ended", || acting.load(SeqCst) == 0);
        for _ in 0..400 {
            rig.clock.advance(millis(50));
            thread::sleep(millis(1));
        }
    });
    let tokens = tokens.into_inner().unwrap();
    assert!(tokens.is_sorted() && tokens.len() >= 5, "{tokens:?}");
}

/// FB-20: `run` does not go on as if nothing had happened.
#[test]
fn a_dead_renewing_thread_ends_the_run_with_an_error() {
    let rig = Rig::new();
    let keeper = rig.keeper("a");
    let result = now(keeper.run(async |guard| {
        rig.store.next(On::Renew, Fault::Panic);
        rig.clock.advance(seconds(5));
        assert_eq!(guard.lost().await, Loss::Died);
        Ok::<_, String>(())
    }));
    assert!(
        matches!(result, Err(NotAcquired::Died { .. })),
        "{result:?}"
    );
}

#[test]
fn a_run_that_does_not_wait_says_who_holds() {
    let rig = Rig::new();
    let _a = rig.held("a");
    let keeper = rig.keeper("b").wait(Wait::No);
    let result = keeper.run_blocking(|_| Ok::<_, String>(()));
    assert!(
        matches!(result, Err(NotAcquired::Busy { .. })),
        "{result:?}"
    );
}

/// O15: whoever drops a run drops its work; nothing is released for it.
#[test]
fn a_dropped_run_releases_nothing() {
    let rig = Rig::new();
    let keeper = rig.keeper("a");
    now(async {
        let started = tokio::sync::Notify::new();
        let run = keeper.run(async |_| {
            started.notify_one();
            std::future::pending::<Result<(), String>>().await
        });
        tokio::select! {
            _ = run => panic!("it never ends"),
            () = started.notified() => {}
        }
    });
    rig.clock.advance(millis(14_999));
    assert!(rig.is_busy());
    assert_eq!((rig.renewals(), rig.releases()), (0, 0));
    rig.clock.advance(millis(1));
    rig.is_free_for(2);
}

fn now_or_longer<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        tokio::time::timeout(seconds(120), future)
            .await
            .expect("it ends")
    })
}
