//! Short ways to ask the store.

use leasehold::{SharedStore, StoreError};
use leasehold_core::{
    Acquire, Answer, Command, Grant, Holder, LeaseName, LockDelay, Op, Outcome, Release, Renew,
    RenewId, RequestId, Session, Token, Ttl,
};

pub fn ttl(millis: u64) -> Ttl {
    Ttl::from_millis(millis).unwrap()
}

pub fn acquire(session: u128, request: u128, millis: u64) -> Command {
    Command::Acquire(Acquire {
        session: Session::from_bits(session).unwrap(),
        request_id: RequestId::from_bits(request).unwrap(),
        holder: Holder::new("worker").unwrap(),
        info: None,
        ttl: ttl(millis),
        lock_delay: LockDelay::NONE,
    })
}

pub fn renew(session: u128, token: Token, number: u64, millis: u64) -> Command {
    Command::Renew(Renew {
        token,
        session: Session::from_bits(session).unwrap(),
        ttl: ttl(millis),
        number,
        renew_id: RenewId::from_bits(number.into()).unwrap(),
    })
}

pub fn release(session: u128, token: Token) -> Command {
    let session = Session::from_bits(session).unwrap();
    Command::Release(Release::Tenure { token, session })
}

pub async fn ask(store: &SharedStore, name: &str, command: Command) -> Result<Answer, StoreError> {
    let name = LeaseName::new(name).unwrap();
    match store.apply(Op::Lease { name, command }).await? {
        Outcome::Lease(answer) => Ok(answer),
        other => panic!("{other:?}"),
    }
}

pub async fn granted(store: &SharedStore, name: &str, session: u128, millis: u64) -> Grant {
    match ask(store, name, acquire(session, session, millis))
        .await
        .unwrap()
    {
        Answer::Granted(grant) => grant,
        other => panic!("{session} was answered {other:?}"),
    }
}
