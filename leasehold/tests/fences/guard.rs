//! A guard at the fence: a stale token ends its tenure at once, whatever its deadline says (F9).

use leasehold::{
    Keeper, Key, LeaseName, Loss, Refusal, Resource, Token, Value,
    core::{Op, Outcome},
    fence::{
        FenceError,
        kv::put,
        sqlite::{barrier, check, raise},
    },
    store::memory::MemoryStore,
    testing::VirtualClock,
};

use crate::{begin, database, open, proof, reports};

fn keeper(clock: &std::sync::Arc<VirtualClock>) -> Keeper {
    let store = MemoryStore::with_clock(clock.clone());
    Keeper::new(store, LeaseName::new("nightly").unwrap()).clock(clock.clone())
}

#[test]
fn a_stale_check_ends_the_tenure_of_its_guard() {
    let (_folder, path) = database();
    let (mut a, mut b) = (open(&path), open(&path));
    let guard = keeper(&VirtualClock::new()).acquire_blocking().unwrap();
    barrier(&mut a, &reports(), &guard).unwrap();
    let tx = begin(&mut a);
    check(&tx, &reports(), &guard).unwrap();
    // A mistake of the caller is refused and says nothing about the lease.
    let other = Resource::new("never raised").unwrap();
    assert!(matches!(
        check(&tx, &other, &guard),
        Err(FenceError::NotRaised(_))
    ));
    tx.commit().unwrap();
    assert!(!guard.is_lost() && guard.check().is_ok());

    barrier(&mut b, &reports(), &proof(2)).unwrap();
    let tx = begin(&mut a);
    let stale = Refusal::Stale {
        token: guard.token(),
        highest: Token::new(2).unwrap(),
    };
    let refused = check(&tx, &reports(), &guard);
    assert!(
        matches!(&refused, Err(FenceError::Refused(why)) if *why == stale),
        "{refused:?}"
    );
    assert_eq!(guard.loss(), Some(Loss::FencedOut(stale)));
    assert!(
        guard.check().is_err(),
        "its deadline is far, and still nothing is allowed"
    );
    assert!(raise(&tx, &reports(), &guard).is_err());
}

#[tokio::test]
async fn a_pair_refused_by_the_store_ends_the_tenure_of_its_guard() {
    let clock = VirtualClock::new();
    let store: leasehold::SharedStore = MemoryStore::with_clock(clock.clone());
    let name = LeaseName::new("nightly").unwrap();
    let keeper = Keeper::new(store.clone(), name.clone()).clock(clock.clone());
    let guard = keeper.acquire().await.unwrap();
    let (key, value) = (Key::new("report").unwrap(), Value::new(b"by a").unwrap());
    put(&*store, &key, value.clone(), &guard).await.unwrap();
    let force = Op::Lease {
        name,
        command: leasehold::core::Command::ForceRelease { now: true },
    };
    assert!(matches!(store.apply(force).await, Ok(Outcome::Lease(_))));
    assert!(guard.check().is_ok(), "it has not heard of it");
    let refused = put(&*store, &key, value, &guard).await;
    assert!(
        matches!(&refused, Err(FenceError::Refused(Refusal::Stale { .. }))),
        "{refused:?}"
    );
    assert!(guard.check().is_err() && guard.is_lost());
}
