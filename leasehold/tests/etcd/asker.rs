//! Whoever asks in these tests, in short.

use std::time::Duration;

use leasehold::{
    Holder, LeaseName, LockDelay, RenewId, RequestId, Session, SharedStore, StoreError, Token, Ttl,
    core::{Acquire, Answer, Command, Op, Outcome, Release, Renew},
};

pub fn lease(name: &str) -> LeaseName {
    LeaseName::new(name).unwrap()
}

pub fn ttl(seconds: u64) -> Ttl {
    Ttl::new(Duration::from_secs(seconds)).unwrap()
}

/// One session with one wish.
#[derive(Clone, Debug)]
pub struct Asker {
    pub store: SharedStore,
    pub name: LeaseName,
    pub session: Session,
    pub request_id: RequestId,
    pub ttl: Ttl,
}

impl Asker {
    pub fn new(store: &SharedStore, name: &str, seconds: u64) -> Self {
        let mut bits = [0; 16];
        getrandom::fill(&mut bits).unwrap();
        let bits = u128::from_le_bytes(bits) | 1;
        Self {
            store: store.clone(),
            name: lease(name),
            session: Session::from_bits(bits).unwrap(),
            request_id: RequestId::from_bits(bits ^ 2).unwrap(),
            ttl: ttl(seconds),
        }
    }

    pub async fn say(&self, command: Command) -> Result<Answer, StoreError> {
        let op = Op::Lease {
            name: self.name.clone(),
            command,
        };
        match self.store.apply(op).await? {
            Outcome::Lease(answer) => Ok(answer),
            other => panic!("{other:?}"),
        }
    }

    fn wish(&self) -> Command {
        Command::Acquire(Acquire {
            session: self.session,
            request_id: self.request_id,
            holder: Holder::new("ours").unwrap(),
            info: None,
            ttl: self.ttl,
            lock_delay: LockDelay::NONE,
        })
    }

    pub async fn ask(&self) -> Result<Answer, StoreError> {
        self.say(self.wish()).await
    }

    /// The same, and lets the store hold it back.
    pub async fn ask_for(&self, wait: Duration) -> Result<Answer, StoreError> {
        let (name, command) = (self.name.clone(), self.wish());
        match self
            .store
            .apply_waiting(Op::Lease { name, command }, wait)
            .await?
        {
            Outcome::Lease(answer) => Ok(answer),
            other => panic!("{other:?}"),
        }
    }

    /// Asks until it is granted, a minute at most.
    pub async fn take(&self) -> Token {
        for _ in 0..600 {
            match self.ask().await {
                Ok(Answer::Granted(grant)) => return grant.token,
                Ok(Answer::AlreadyUsed | Answer::TokenExhausted) => panic!("not to be granted"),
                _ => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
        panic!("not granted within a minute")
    }

    pub async fn renew(&self, token: Token, number: u64) -> Result<Answer, StoreError> {
        self.say(Command::Renew(Renew {
            token,
            session: self.session,
            ttl: self.ttl,
            number,
            renew_id: RenewId::from_bits(u128::from(number) + 7).unwrap(),
        }))
        .await
    }

    pub async fn release(&self, token: Token) -> Answer {
        let session = self.session;
        self.say(Command::Release(Release::Tenure { token, session }))
            .await
            .unwrap()
    }
}
