//! Fenced pairs of the lease store.

use std::{cell::Cell, time::Duration};

use leasehold::{
    Holder, Key, LeaseName, LockDelay, Refusal, RequestId, Session, Store, Token, Ttl, Value,
    core::{Acquire, Answer, Command, Op, Outcome, Proof},
    fence::{
        FenceError,
        kv::{delete, put},
    },
    store::{memory::MemoryStore, sqlite::SqliteStore},
};

use crate::Told;

async fn take(store: &dyn Store, id: u128, ttl: u64) -> Proof {
    let lease = LeaseName::new("nightly").unwrap();
    let command = Command::Acquire(Acquire {
        session: Session::from_bits(id).unwrap(),
        request_id: RequestId::from_bits(id).unwrap(),
        holder: Holder::new("someone").unwrap(),
        info: None,
        ttl: Ttl::from_millis(ttl).unwrap(),
        lock_delay: LockDelay::NONE,
    });
    match store
        .apply(Op::Lease {
            name: lease.clone(),
            command,
        })
        .await
        .unwrap()
    {
        Outcome::Lease(Answer::Granted(grant)) => Proof {
            lease,
            token: grant.token,
        },
        other => panic!("not granted: {other:?}"),
    }
}

async fn a_stale_write_is_refused(store: &dyn Store) {
    let key = Key::new("report").unwrap();
    let value = |text: &str| Value::new(text.as_bytes()).unwrap();
    let a = take(store, 1, 500).await;
    put(store, &key, value("by a"), &a).await.unwrap();
    tokio::time::sleep(Duration::from_millis(600)).await;
    let b = take(store, 2, 60_000).await;
    put(store, &key, value("by b"), &b).await.unwrap();

    let told = Told(a, Cell::default());
    let refused = put(store, &key, value("by a"), &told).await.unwrap_err();
    assert_eq!(refused.to_string(), "refused: token 1 is older than 2");
    let stale = Refusal::Stale {
        token: Token::FIRST,
        highest: b.token,
    };
    assert_eq!(
        told.1.take(),
        Some(stale),
        "the bearer learns that its tenure is over"
    );
    assert!(matches!(
        delete(store, &key, &told).await,
        Err(FenceError::Refused(_))
    ));
    let pair = store.pair(&key).await.unwrap().unwrap();
    assert_eq!(pair.value, value("by b"), "INV-22");
    delete(store, &key, &b).await.unwrap();
    assert_eq!(store.pair(&key).await.unwrap(), None);
}

#[tokio::test]
async fn in_memory_a_stale_write_is_refused() {
    a_stale_write_is_refused(&*MemoryStore::new()).await;
}

#[tokio::test]
async fn in_sqlite_a_stale_write_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("leases.db"))
        .await
        .unwrap();
    a_stale_write_is_refused(&*store).await;
}
