//! A store at hand: a table, a clock that a test moves, and short ways to ask. Ids are small numbers.
#![allow(dead_code)] // Each test file uses its part of it.
#![allow(clippy::unwrap_used)] // A helper of tests, which may.

use std::time::Duration;

use leasehold_core::{
    Acquire, Answer, Command, Event, Holder, Info, Key, LeaseName, LockDelay, Lost, Op, Outcome,
    Proof, Refusal, Release, Renew, RenewId, RequestId, Session, Stamp, Status, StoreTime, Table,
    Token, Ttl, Value, WallTime,
};

pub(crate) const TTL: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(crate) struct Desk {
    pub(crate) table: Table,
    pub(crate) now: StoreTime,
    pub(crate) wall: WallTime,
    pub(crate) events: Vec<Event>,
    pub(crate) requests: u128,
}

/// One process: a name that others may share, and a session that they may not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Process {
    pub(crate) name: &'static str,
    pub(crate) session: u128,
}

pub(crate) const A: Process = Process {
    name: "a",
    session: 0xa,
};
pub(crate) const B: Process = Process {
    name: "b",
    session: 0xb,
};
pub(crate) const C: Process = Process {
    name: "c",
    session: 0xc,
};

impl Process {
    pub(crate) fn session(self) -> Session {
        Session::from_bits(self.session).unwrap()
    }

    pub(crate) fn acquire(self, request: u128) -> Acquire {
        Acquire {
            session: self.session(),
            request_id: RequestId::from_bits(request).unwrap(),
            holder: Holder::new(self.name).unwrap(),
            info: None::<Info>,
            ttl: Ttl::new(TTL).unwrap(),
            lock_delay: LockDelay::NONE,
        }
    }

    pub(crate) fn renew(self, token: Token, number: u64) -> Renew {
        Renew {
            token,
            session: self.session(),
            ttl: Ttl::new(TTL).unwrap(),
            number,
            renew_id: RenewId::from_bits(self.session << 64 | u128::from(number)).unwrap(),
        }
    }

    pub(crate) fn release(self, token: Token) -> Release {
        Release::Tenure {
            token,
            session: self.session(),
        }
    }
}

impl Desk {
    /// The store's clock and the wall clock go on alike.
    pub(crate) fn pass(&mut self, time: Duration) {
        self.now = self.now.plus(time);
        self.wall = self.wall.plus(time);
    }

    pub(crate) fn apply(&mut self, op: Op) -> Outcome {
        let stamp = self.stamp();
        self.table.apply(op, stamp, &mut self.events)
    }

    pub(crate) fn stamp(&self) -> Stamp {
        Stamp {
            now: self.now,
            wall: self.wall,
        }
    }

    pub(crate) fn command(&mut self, lease: &str, command: Command) -> Answer {
        let name = name(lease);
        match self.apply(Op::Lease { name, command }) {
            Outcome::Lease(answer) => answer,
            other => panic!("no answer about a lease: {other:?}"),
        }
    }

    /// A new request of this process.
    pub(crate) fn acquire(&mut self, lease: &str, by: Process) -> Answer {
        self.requests += 1;
        let command = Command::Acquire(by.acquire(self.requests));
        self.command(lease, command)
    }

    /// The same, which must succeed.
    pub(crate) fn granted(&mut self, lease: &str, by: Process) -> Token {
        match self.acquire(lease, by) {
            Answer::Granted(grant) => grant.token,
            other => panic!("{} did not get {lease}: {other:?}", by.name),
        }
    }

    pub(crate) fn renew(&mut self, lease: &str, by: Process, token: Token, number: u64) -> Answer {
        self.command(lease, Command::Renew(by.renew(token, number)))
    }

    pub(crate) fn release(&mut self, lease: &str, by: Process, token: Token) -> Answer {
        self.command(lease, Command::Release(by.release(token)))
    }

    /// A fenced write.
    pub(crate) fn write(&mut self, lease: &str, token: Token) -> Result<(), Refusal> {
        let op = Op::Put {
            key: Key::new("report").unwrap(),
            value: Value::new(token.to_string().as_bytes()).unwrap(),
            proof: Some(Proof {
                lease: name(lease),
                token,
            }),
        };
        match self.apply(op) {
            Outcome::Done => Ok(()),
            Outcome::Refused(refusal) => Err(refusal),
            other => panic!("no answer to a write: {other:?}"),
        }
    }

    pub(crate) fn status(&self, lease: &str) -> Option<Status> {
        self.table.status(&name(lease), self.now)
    }
}

pub(crate) fn name(lease: &str) -> LeaseName {
    LeaseName::new(lease).unwrap()
}

pub(crate) fn token(number: u64) -> Token {
    Token::new(number).unwrap()
}

/// What a holder learns that lost to `by` with `token`.
pub(crate) fn taken(by: Process, token: Token) -> Answer {
    let by = Some(Holder::new(by.name).unwrap());
    Answer::Lost(Lost::Taken { by, token })
}
