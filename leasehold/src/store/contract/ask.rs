//! Whoever asks in the tests, and short ways to ask.

use leasehold_core::{
    Abandon, Acquire, Answer, AttemptId, Begin, Command, Complete, Fingerprint, Grant, Holder,
    Info, Key, LeaseName, LockDelay, Op, Outcome, Proof, Refusal, Release, Renew, RenewId,
    RequestId, Session, Token, Ttl, Unfinished, Value, Verdict, Work, WorkKey,
};

use super::Suite;

/// Random bits, never all zero.
pub(super) fn random() -> u128 {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the kernel has random bytes");
    u128::from_le_bytes(bytes) | 1
}

pub(super) fn request() -> RequestId {
    RequestId::from_bits(random()).expect("not zero")
}

pub(super) fn renewal() -> RenewId {
    RenewId::from_bits(random()).expect("not zero")
}

pub(super) fn attempt() -> AttemptId {
    AttemptId::from_bits(random()).expect("not zero")
}

/// A holder, or one who would be.
#[derive(Clone)]
pub(super) struct Asker {
    pub(super) session: Session,
    pub(super) holder: Holder,
}

impl Asker {
    pub(super) fn new(name: &str) -> Self {
        Self {
            session: Session::from_bits(random()).expect("not zero"),
            holder: Holder::new(name).expect("a test's name is plain"),
        }
    }

    pub(super) fn acquire(&self, request_id: RequestId, ttl: Ttl) -> Acquire {
        Acquire {
            session: self.session,
            request_id,
            holder: self.holder.clone(),
            info: Info::new(&format!("{} is here", self.holder)).ok(),
            ttl,
            lock_delay: LockDelay::NONE,
        }
    }
}

impl Suite<'_> {
    pub(super) async fn command(&self, name: &LeaseName, command: Command) -> Answer {
        let op = Op::Lease {
            name: name.clone(),
            command,
        };
        match self.apply(op).await {
            Outcome::Lease(answer) => answer,
            other => panic!("a command to a lease was answered {other:?}"),
        }
    }

    pub(super) async fn acquire(&self, name: &LeaseName, asked: Acquire) -> Answer {
        self.command(name, Command::Acquire(asked)).await
    }

    /// A new request that must be granted.
    pub(super) async fn granted(&self, name: &LeaseName, who: &Asker, ttl: Ttl) -> Grant {
        match self.acquire(name, who.acquire(request(), ttl)).await {
            Answer::Granted(grant) => grant,
            other => panic!("{} of {name} was not granted: {other:?}", who.holder),
        }
    }

    pub(super) async fn renew(
        &self,
        name: &LeaseName,
        who: &Asker,
        token: Token,
        number: u64,
        renew_id: RenewId,
        ttl: Ttl,
    ) -> Answer {
        let session = who.session;
        let asked = Renew {
            token,
            session,
            ttl,
            number,
            renew_id,
        };
        self.command(name, Command::Renew(asked)).await
    }

    pub(super) async fn release(&self, name: &LeaseName, who: &Asker, token: Token) -> Answer {
        let session = who.session;
        let asked = Release::Tenure { token, session };
        self.command(name, Command::Release(asked)).await
    }

    pub(super) async fn put(&self, key: &Key, value: &str, proof: Option<Proof>) -> Outcome {
        let (key, value) = (key.clone(), text(value));
        self.apply(Op::Put { key, value, proof }).await
    }

    /// A fenced write that must be refused; says why it was.
    pub(super) async fn refused(&self, key: &Key, proof: Proof) -> Refusal {
        match self.put(key, "stale", Some(proof)).await {
            Outcome::Refused(refusal) => refusal,
            other => panic!("a stale write to {key} was answered {other:?}"),
        }
    }

    pub(super) async fn value(&self, key: &Key) -> Option<String> {
        let pair = self.store.pair(key).await.expect("a pair is read");
        pair.map(|pair| String::from_utf8_lossy(pair.value.as_bytes()).into_owned())
    }

    pub(super) async fn begin(&self, asked: Begin) -> Verdict {
        verdict(self.apply(Op::Begin(asked)).await)
    }

    pub(super) async fn complete(&self, asked: &Begin, token: Token, response: &str) -> Verdict {
        let complete = Complete {
            work: asked.work.clone(),
            token,
            attempt: asked.attempt,
            response: text(response),
        };
        verdict(self.apply(Op::Complete(complete)).await)
    }

    pub(super) async fn abandon(&self, asked: &Begin) -> Verdict {
        let abandon = Abandon {
            work: asked.work.clone(),
            token: asked.token,
            attempt: asked.attempt,
        };
        verdict(self.apply(Op::Abandon(abandon)).await)
    }

    pub(super) fn key(&self, key: &str) -> Key {
        Key::new(self.lease(key).as_str()).expect("a lease name fits a key")
    }
}

pub(super) fn begin(lease: &LeaseName, key: &str, who: &Asker, token: Token) -> Begin {
    Begin {
        work: Work {
            lease: lease.clone(),
            key: WorkKey::new(key).expect("a test's key is plain"),
        },
        token,
        attempt: attempt(),
        holder: who.holder.clone(),
        fingerprint: Fingerprint([1; 32]),
        unfinished: Unfinished::TakeOver,
        born: None,
    }
}

pub(super) fn proof(lease: &LeaseName, token: Token) -> Proof {
    Proof {
        lease: lease.clone(),
        token,
    }
}

pub(super) fn text(value: &str) -> Value {
    Value::new(value.as_bytes()).expect("a test's value is short")
}

fn verdict(outcome: Outcome) -> Verdict {
    match outcome {
        Outcome::Ledger(verdict) => verdict,
        other => panic!("the ledger answered {other:?}"),
    }
}
