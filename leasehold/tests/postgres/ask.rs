//! What the tests ask a store: one lease at a time, by numbered holders.

use std::{sync::Arc, time::Duration};

use leasehold::{
    Holder, LeaseName, LockDelay, RenewId, RequestId, Session as Key, Store, StoreError, Token,
    Ttl,
    core::{Acquire, Answer, Command, Op, Outcome, Release, Renew},
};

/// A store that others may have as well.
pub type Shared = Arc<dyn Store>;

pub fn name(name: &str) -> LeaseName {
    LeaseName::new(name).unwrap()
}

pub fn of(lease: &str, command: Command) -> Op {
    let name = name(lease);
    Op::Lease { name, command }
}

/// Holder `who` asks; always the same request.
pub fn acquire(lease: &str, who: u128, ttl: u64) -> Op {
    let command = Command::Acquire(Acquire {
        session: Key::from_bits(who).unwrap(),
        request_id: RequestId::from_bits(who + 1000).unwrap(),
        holder: Holder::new(&format!("holder-{who}")).unwrap(),
        info: None,
        ttl: Ttl::from_millis(ttl).unwrap(),
        lock_delay: LockDelay::NONE,
    });
    of(lease, command)
}

pub fn renew(lease: &str, who: u128, token: u64, number: u64, ttl: u64) -> Op {
    let command = Command::Renew(Renew {
        token: Token::new(token).unwrap(),
        session: Key::from_bits(who).unwrap(),
        ttl: Ttl::from_millis(ttl).unwrap(),
        number,
        renew_id: RenewId::from_bits(u128::from(number) + 1).unwrap(),
    });
    of(lease, command)
}

pub fn release(lease: &str, who: u128, token: u64) -> Op {
    let (token, session) = (Token::new(token).unwrap(), Key::from_bits(who).unwrap());
    of(lease, Command::Release(Release::Tenure { token, session }))
}

/// The answer to one of these.
pub async fn answer(store: &Shared, op: Op) -> Result<Answer, StoreError> {
    match store.apply(op).await? {
        Outcome::Lease(answer) => Ok(answer),
        other => panic!("{other:?}"),
    }
}

/// The token of an acquire that must be granted.
pub async fn granted(store: &Shared, lease: &str, who: u128, ttl: u64) -> u64 {
    match answer(store, acquire(lease, who, ttl)).await {
        Ok(Answer::Granted(grant)) => grant.token.get(),
        other => panic!("{who} was not granted {lease}: {other:?}"),
    }
}

/// The token of an acquire that is asked until it is granted, at most for a minute, whatever goes wrong meanwhile.
pub async fn granted_at_last(store: &Shared, lease: &str, who: u128, ttl: u64) -> u64 {
    let mut last = None;
    for _ in 0..600 {
        match answer(store, acquire(lease, who, ttl)).await {
            Ok(Answer::Granted(grant)) => return grant.token.get(),
            other => last = Some(other),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{who} was never granted {lease}: {last:?}");
}
