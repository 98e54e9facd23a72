//! Reboots, containers and clocks that go back: a promise made on another clock is kept in full and never for ever (A7).

use std::{process::Command, time::Duration};

use leasehold::{
    LockDelay, Store, Token,
    core::{Answer, Op, State},
    store::sqlite::SqliteStore,
};

use crate::{
    ask::{
        acquire, answer, clock_at, granted, granted_within, name, place, release, renew, skipped,
        store_of, ttl,
    },
    child::Process,
};

const SECOND: Duration = Duration::from_secs(1);

fn is_held(now: &Answer) -> bool {
    matches!(now, Answer::Held(_))
}

/// FB-53, FB-42: whatever the new clock says, the old holder's ttl runs once more from the first question on.
#[tokio::test]
async fn after_a_reboot_a_lease_is_kept_for_its_ttl_and_no_longer() {
    for (before, after) in [(1_000_000, 5), (5, 1_000_000), (500, 500)] {
        let (_folder, path) = place();
        let store = store_of(&path, &clock_at(before), "before").await;
        granted(&*store, "a", 1, ttl(10_000)).await;
        drop(store);
        let clock = clock_at(after);
        let store = store_of(&path, &clock, "after").await;
        let ask = || async { answer(store.apply(acquire("a", "b", 2, ttl(10_000))).await) };
        for elapsed in 0..11 {
            let now = ask().await;
            assert!(is_held(&now), "after {elapsed} s: {now:?}");
            let status = store.status(&name("a")).await.unwrap().unwrap();
            assert!(status.remaining <= SECOND * 11, "{status:?}");
            clock.advance(SECOND);
        }
        let Answer::Granted(grant) = ask().await else {
            panic!("not granted after ttl and a tenth")
        };
        assert_eq!(grant.token.get(), 2, "tokens stay dense over a reboot");
    }
}

#[tokio::test]
async fn after_a_reboot_a_released_lease_is_free_at_once() {
    let (_folder, path) = place();
    let store = store_of(&path, &clock_at(1_000_000), "before").await;
    let token = granted(&*store, "a", 1, ttl(10_000)).await;
    store.apply(release("a", token, 1)).await.unwrap();
    let store = store_of(&path, &clock_at(5), "after").await;
    granted(&*store, "a", 2, ttl(10_000)).await;
}

/// A7's [X]: several containers that ask in turn do not push the expiry before them for ever.
#[tokio::test]
async fn many_clocks_that_ask_do_not_extend_a_lease() {
    let (_folder, path) = place();
    let store = store_of(&path, &clock_at(77), "gone").await;
    granted(&*store, "a", 1, ttl(10_000)).await;
    drop(store);
    let mut others = Vec::new();
    for (number, at) in [3, 50_000, 900].into_iter().enumerate() {
        let clock = clock_at(at);
        let store = store_of(&path, &clock, &format!("container {number}")).await;
        others.push((clock, store, 100 + number as u128));
    }
    for elapsed in 0..11 {
        for (clock, store, id) in &others {
            let now = answer(store.apply(acquire("a", "b", *id, ttl(10_000))).await);
            assert!(is_held(&now), "after {elapsed} s: {now:?}");
            clock.advance(SECOND);
        }
    }
    let (_, store, id) = &others[1];
    let now = answer(store.apply(acquire("a", "b", *id, ttl(10_000))).await);
    assert!(matches!(now, Answer::Granted(_)), "{now:?}");
    let (_, store, id) = &others[0];
    let now = answer(store.apply(acquire("a", "c", *id, ttl(10_000))).await);
    assert!(is_held(&now), "a new promise, a new wait: {now:?}");
}

/// The holder lives, on a clock that the contender cannot compare with.
#[tokio::test]
async fn a_holder_on_another_clock_that_renews_keeps_its_lease() {
    let (_folder, path) = place();
    let (here, there) = (clock_at(1_000), clock_at(9_000_000));
    let holder = store_of(&path, &there, "there").await;
    let contender = store_of(&path, &here, "here").await;
    let ask = || async { answer(contender.apply(acquire("a", "b", 2, ttl(10_000))).await) };
    let token = granted(&*holder, "a", 1, ttl(10_000)).await;
    for number in 1..=20_u64 {
        for _ in 0..5 {
            let now = ask().await;
            assert!(is_held(&now), "renewal {number}: {now:?}");
            here.advance(SECOND);
            there.advance(SECOND);
        }
        // By a renewal, or by a duplicate of its acquire: both are promises.
        let again = match number % 2 {
            0 => acquire("a", "someone", 1, ttl(10_000)),
            _ => renew("a", token, 1, number.div_ceil(2), ttl(10_000)),
        };
        let kept = answer(holder.apply(again).await);
        assert!(
            matches!(kept, Answer::Renewed { .. } | Answer::Granted(_)),
            "{kept:?}"
        );
    }
    for _ in 0..12 {
        assert!(is_held(&ask().await));
        here.advance(SECOND);
        if matches!(ask().await, Answer::Granted(_)) {
            return;
        }
    }
    panic!("the holder has stopped, and its lease is never free");
}

/// A2: the last renewal was short, the promise before it long.
#[tokio::test]
async fn on_another_clock_the_longest_promise_counts_and_the_lock_delay_follows() {
    let (_folder, path) = place();
    let store = store_of(&path, &clock_at(9), "before").await;
    let Op::Lease {
        name: lease,
        command: leasehold::core::Command::Acquire(mut asked),
    } = acquire("a", "a", 1, ttl(60_000))
    else {
        unreachable!()
    };
    asked.lock_delay = LockDelay::new(SECOND * 5).unwrap();
    let command = leasehold::core::Command::Acquire(asked);
    answer(
        store
            .apply(Op::Lease {
                name: lease,
                command,
            })
            .await,
    );
    let renewed = answer(
        store
            .apply(renew("a", Token::FIRST, 1, 1, ttl(2_000)))
            .await,
    );
    assert!(matches!(renewed, Answer::Renewed { .. }));
    let clock = clock_at(5);
    let store = store_of(&path, &clock, "after").await;
    let ask = || async { answer(store.apply(acquire("a", "b", 2, ttl(10_000))).await) };
    assert!(is_held(&ask().await));
    clock.advance(SECOND * 65);
    assert!(is_held(&ask().await), "60 s and a tenth were promised");
    clock.advance(SECOND * 3);
    assert!(matches!(ask().await, Answer::Delayed { .. }));
    clock.advance(SECOND * 4);
    assert!(matches!(ask().await, Answer::Granted(_)));
}

/// A virtual machine that was set back: the same boot, an earlier time.
#[tokio::test]
async fn a_clock_that_went_back_does_not_hold_a_lease_for_ever() {
    let (_folder, path) = place();
    let store = store_of(&path, &clock_at(1_000_000), "boot").await;
    granted(&*store, "a", 1, ttl(10_000)).await;
    drop(store);
    let clock = clock_at(1_000);
    let store = store_of(&path, &clock, "boot").await;
    let ask = || async { answer(store.apply(acquire("a", "b", 2, ttl(10_000))).await) };
    assert!(is_held(&ask().await));
    clock.advance(SECOND * 11);
    assert!(matches!(ask().await, Answer::Granted(_)));
}

/// Looking at a lease does not start the wait for it, and changes nothing.
#[tokio::test]
async fn a_status_on_another_clock_shows_the_whole_promise() {
    let (_folder, path) = place();
    let store = store_of(&path, &clock_at(9), "before").await;
    granted(&*store, "a", 1, ttl(10_000)).await;
    let clock = clock_at(5);
    let store = store_of(&path, &clock, "after").await;
    for _ in 0..3 {
        let status = store.status(&name("a")).await.unwrap().unwrap();
        assert_eq!((status.state, status.remaining), (State::Held, SECOND * 11));
        clock.advance(SECOND * 60);
    }
}

/// The age of a foreign record is unknown, so it counts from the first collection that saw it.
#[tokio::test]
async fn a_foreign_record_is_forgotten_a_day_after_it_was_seen() {
    let (_folder, path) = place();
    let store = store_of(&path, &clock_at(9), "before").await;
    let token = granted(&*store, "a", 1, ttl(10_000)).await;
    store.apply(release("a", token, 1)).await.unwrap();
    let clock = clock_at(9_000_000);
    let store = store_of(&path, &clock, "after").await;
    assert_eq!(store.collect().await.unwrap(), 0);
    clock.advance(SECOND * 86_401);
    assert_eq!(store.collect().await.unwrap(), 1);
    assert_eq!(
        granted(&*store, "a", 2, ttl(10_000)).await.get(),
        2,
        "the floor remembers"
    );
}

/// C12: the same boot in another time namespace is the same clock, whatever its boot time says.
#[tokio::test]
async fn a_time_namespace_is_the_same_clock() {
    let (_folder, path) = place();
    let mut unshare = Command::new("unshare");
    unshare.args(["-T", "--boottime", "100000"]);
    let works = Command::new("unshare")
        .args(["-T", "--boottime", "100000", "true"])
        .status();
    if !works.is_ok_and(|status| status.success()) {
        return skipped("no time namespace can be made here (root and util-linux are needed)");
    }
    unshare.arg(std::env::current_exe().unwrap());
    let store = SqliteStore::open(&path).await.unwrap();
    let mine = granted(&*store, "mine", 1, ttl(60_000)).await;
    let child = Process::with(unshare, "hold a", &path);
    assert_eq!(child.line(), "ready");
    assert!(child.line().contains("Granted"));
    let status = store.status(&name("a")).await.unwrap().unwrap();
    assert!(
        status.remaining <= SECOND,
        "read as a time of another clock: {status:?}"
    );
    assert!(status.since.unwrap() < SECOND * 100, "{status:?}");
    granted_within(&*store, "a", ttl(1_000), SECOND * 30).await;
    assert_eq!(
        store.status(&name("mine")).await.unwrap().unwrap().token,
        Some(mine)
    );
}
