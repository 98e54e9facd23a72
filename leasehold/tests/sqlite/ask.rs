//! Short ways to ask a store, and to make one.

use std::{path::PathBuf, sync::Arc, time::Duration};

use leasehold::{
    Holder, Key, LeaseName, LockDelay, RenewId, RequestId, Session, Store, StoreError, Token, Ttl,
    Value,
    core::{Acquire, Answer, Command, Op, Outcome, Release, Renew},
    store::sqlite::{HostClock, SqliteStore},
    testing::VirtualClock,
};
use tempfile::TempDir;

/// A folder of its own, and a store file in it.
pub(crate) fn place() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leases.db");
    (folder, path)
}

pub(crate) fn name(name: &str) -> LeaseName {
    LeaseName::new(name).unwrap()
}

pub(crate) fn ttl(millis: u64) -> Ttl {
    Ttl::from_millis(millis).unwrap()
}

pub(crate) fn random() -> u128 {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).unwrap();
    u128::from_le_bytes(bytes) | 1
}

/// A request by a holder of this name; always the same session and request for the same `id`.
pub(crate) fn acquire(lease: &str, holder: &str, id: u128, time: Ttl) -> Op {
    Op::Lease {
        name: name(lease),
        command: Command::Acquire(Acquire {
            session: Session::from_bits(id).unwrap(),
            request_id: RequestId::from_bits(id).unwrap(),
            holder: Holder::new(holder).unwrap(),
            info: None,
            ttl: time,
            lock_delay: LockDelay::NONE,
        }),
    }
}

pub(crate) fn renew(lease: &str, token: Token, id: u128, number: u64, time: Ttl) -> Op {
    Op::Lease {
        name: name(lease),
        command: Command::Renew(Renew {
            token,
            session: Session::from_bits(id).unwrap(),
            ttl: time,
            number,
            renew_id: RenewId::from_bits(random()).unwrap(),
        }),
    }
}

pub(crate) fn release(lease: &str, token: Token, id: u128) -> Op {
    Op::Lease {
        name: name(lease),
        command: Command::Release(Release::Tenure {
            token,
            session: Session::from_bits(id).unwrap(),
        }),
    }
}

pub(crate) fn put(key: &str, value: &str) -> Op {
    Op::Put {
        key: Key::new(key).unwrap(),
        value: Value::new(value.as_bytes()).unwrap(),
        proof: None,
    }
}

pub(crate) fn answer(outcome: Result<Outcome, StoreError>) -> Answer {
    match outcome {
        Ok(Outcome::Lease(answer)) => answer,
        other => panic!("a command to a lease was answered {other:?}"),
    }
}

/// A new holder's request, which must be granted.
pub(crate) async fn granted(store: &dyn Store, lease: &str, id: u128, time: Ttl) -> Token {
    match answer(store.apply(acquire(lease, "someone", id, time)).await) {
        Answer::Granted(grant) => grant.token,
        other => panic!("not granted: {other:?}"),
    }
}

/// Asks again and again until it is granted; panics after `within`.
pub(crate) async fn granted_within(
    store: &dyn Store,
    lease: &str,
    time: Ttl,
    within: Duration,
) -> Token {
    let id = random();
    let asking = async {
        loop {
            if let Ok(Outcome::Lease(Answer::Granted(grant))) =
                store.apply(acquire(lease, "someone", id, time)).await
            {
                return grant.token;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(within, asking)
        .await
        .expect("nobody was granted the lease")
}

/// A clock that is moved by hand, so many seconds after the others.
pub(crate) fn clock_at(seconds: u64) -> Arc<VirtualClock> {
    let clock = VirtualClock::new();
    clock.advance(Duration::from_secs(seconds));
    clock
}

/// A store whose boot and time the test decides.
pub(crate) async fn store_of(
    path: &PathBuf,
    clock: &Arc<VirtualClock>,
    boot: &str,
) -> Arc<SqliteStore> {
    let host = HostClock::with(clock.clone(), boot);
    SqliteStore::open_with(path, host).await.unwrap()
}

/// Tells past the capture of the test harness that a test cannot run here.
pub(crate) fn skipped(why: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
}
