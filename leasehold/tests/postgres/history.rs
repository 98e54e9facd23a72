//! A real concurrent history, judged from outside: holders who ask, renew, write and give back while lines are cut and
//! the server crashes. Torture's checker and its search know nothing of SQL; what they find is proven (10.2).

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Instant,
};

use leasehold::{
    Holder, LockDelay, RenewId, RequestId, Session as Key, StoreError, Token, Ttl,
    core::{Acquire, Answer, Command, Lost, Release, Renew},
};
use leasehold_torture::{
    check::{Rules, Timing, judge},
    history::{Answer as Told, Call, Change, Effect, History, Outcome, What},
    wgl,
};

use crate::{
    ask::{self, Shared, answer},
    relay::{Relay, Rule},
    server::Server,
    session::{Session, pass},
};

const HOLDERS: u64 = 8;
const LEASES: u64 = 3;
const TTL: u64 = 500;

/// What came up so far, so that a slow machine plays for longer.
#[derive(Debug, Default)]
struct Tally {
    grants: AtomicU64,
    unknown: AtomicU64,
    refused: AtomicU64,
}

impl Tally {
    fn is_enough(&self) -> bool {
        let count = |what: &AtomicU64| what.load(Ordering::Relaxed);
        count(&self.grants) > 20 && count(&self.unknown) > 5 && count(&self.refused) > 2
    }
}

/// One holder and what it saw.
struct Party {
    who: u64,
    lease: String,
    store: Shared,
    /// Of the server itself: the writes of the holder go another way than its lease.
    url: String,
    began: Instant,
    tally: Arc<Tally>,
    seen: History,
    wishes: u64,
    renewals: u64,
    dice: u64,
}

impl Party {
    fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    fn name(&self) -> String {
        format!("holder-{}", self.who)
    }

    fn throw(&mut self, sides: u64) -> u64 {
        self.dice = self
            .dice
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(1);
        (self.dice >> 33) % sides
    }

    /// Sends it, and notes call and answer.
    async fn send(&mut self, call: Call, command: Command) -> Outcome {
        let (name, lease) = (self.name(), self.lease.clone());
        let session = format!("{:032x}", self.who + 1);
        let now = self.now();
        let id = self.seen.invoke(now, &name, &lease, session, call);
        let outcome = said(answer(&self.store, ask::of(&lease, command)).await);
        self.seen.answer(self.now(), name, id, outcome.clone());
        match outcome {
            Outcome::Granted { .. } => self.tally.grants.fetch_add(1, Ordering::Relaxed),
            Outcome::Unknown => self.tally.unknown.fetch_add(1, Ordering::Relaxed),
            _ => 0,
        };
        outcome
    }

    fn key(&self) -> Key {
        Key::from_bits(u128::from(self.who) + 1).unwrap()
    }

    async fn ask(&mut self) -> Outcome {
        let request = u128::from(self.who + 1) << 64 | u128::from(self.wishes + 1);
        let call = Call::Acquire {
            request: format!("{request:032x}"),
            ttl: TTL * 1_000_000,
        };
        let command = Command::Acquire(Acquire {
            session: self.key(),
            request_id: RequestId::from_bits(request).unwrap(),
            holder: Holder::new(&self.name()).unwrap(),
            info: None,
            ttl: Ttl::from_millis(TTL).unwrap(),
            lock_delay: LockDelay::NONE,
        });
        self.send(call, command).await
    }

    /// One renewal, asked again with the same number after a doubt (A3).
    async fn renew(&mut self, token: u64) -> Outcome {
        self.renewals += 1;
        let command = Command::Renew(Renew {
            token: Token::new(token).unwrap(),
            session: self.key(),
            ttl: Ttl::from_millis(TTL).unwrap(),
            number: self.renewals,
            renew_id: RenewId::from_bits(u128::from(self.throw(1 << 30)) + 1).unwrap(),
        });
        let ttl = TTL * 1_000_000;
        for _ in 0..3 {
            let call = Call::Renew { token, ttl };
            let outcome = self.send(call, command.clone()).await;
            if !matches!(outcome, Outcome::Unknown | Outcome::Failed) {
                return outcome;
            }
        }
        Outcome::Unknown
    }

    async fn release(&mut self, token: u64) {
        let call = Call::Release {
            token: Some(token),
            request: None,
        };
        let (session, token) = (self.key(), Token::new(token).unwrap());
        let command = Command::Release(Release::Tenure { token, session });
        self.send(call, command).await;
    }

    /// A fenced write, with its place in the order of commits.
    async fn write(&mut self, token: u64) {
        let started = self.now();
        let (answer, position) = write(&self.url, &self.lease, token).await;
        if answer == Told::Refused {
            self.tally.refused.fetch_add(1, Ordering::Relaxed);
        }
        let effect = Effect {
            resource: format!("effect of {}", self.lease),
            lease: self.lease.clone(),
            token,
            fenced: true,
            answer,
            position,
            started,
            ..Effect::default()
        };
        let (now, name) = (self.now(), self.name());
        self.seen.push(now, name, What::Effect(effect));
    }

    /// Asks, holds for a while and gives back, or forgets to.
    async fn live(mut self, over: Arc<AtomicBool>) -> History {
        while !over.load(Ordering::Relaxed) {
            match self.ask().await {
                Outcome::Granted { token, .. } => self.hold(token).await,
                Outcome::AlreadyUsed => self.wishes += 1,
                _ => {}
            }
            pass(10 + self.throw(60)).await;
        }
        self.seen
    }

    async fn hold(&mut self, token: u64) {
        self.renewals = 0;
        for _ in 0..self.throw(4) {
            self.write(token).await;
            pass(self.throw(TTL / 2)).await;
            if matches!(self.renew(token).await, Outcome::Lost) {
                break;
            }
        }
        // A late one tries once more, whatever it was told.
        if self.throw(4) == 0 {
            pass(TTL + self.throw(TTL)).await;
            self.write(token).await;
            self.renew(token).await;
        }
        if self.throw(4) != 0 {
            self.release(token).await;
        }
        self.wishes += 1;
    }
}

fn said(answer: Result<Answer, StoreError>) -> Outcome {
    let nanos = |ttl: Ttl| u64::from(ttl.as_millis()) * 1_000_000;
    match answer {
        Ok(Answer::Granted(grant)) => Outcome::Granted {
            token: grant.token.get(),
            ttl: nanos(grant.ttl),
        },
        Ok(Answer::Held(held)) => Outcome::Held {
            token: held.token.get(),
            by: None,
        },
        Ok(Answer::AlreadyUsed) => Outcome::AlreadyUsed,
        Ok(Answer::Renewed { ttl }) => Outcome::Renewed { ttl: nanos(ttl) },
        Ok(Answer::Lost(Lost::SeqMismatch)) => Outcome::Refused {
            why: "out of sequence".to_owned(),
        },
        Ok(Answer::Lost(_)) => Outcome::Lost,
        Ok(Answer::Released) => Outcome::Released,
        Ok(Answer::AlreadyOver) => Outcome::AlreadyOver,
        Ok(other) => Outcome::Refused {
            why: format!("{other:?}"),
        },
        Err(StoreError::Unknown { .. }) => Outcome::Unknown,
        Err(StoreError::Unavailable { .. } | StoreError::BlockedBy { .. }) => Outcome::Failed,
        Err(other) => panic!("{other:?}"),
    }
}

async fn write(url: &str, lease: &str, token: u64) -> (Told, Option<u64>) {
    let Ok((mut client, connection)) = tokio_postgres::connect(url, tokio_postgres::NoTls).await
    else {
        return (Told::Refused, None);
    };
    tokio::spawn(connection);
    let Ok(step) = client.transaction().await else {
        return (Told::Refused, None);
    };
    let fence = format!("SELECT leasehold.fence('{lease}', {token})");
    if step.batch_execute(&fence).await.is_err() {
        return (Told::Refused, None);
    }
    let insert = "INSERT INTO effect(lease) VALUES ($1) RETURNING id";
    let Ok(row) = step.query_one(insert, &[&lease]).await else {
        return (Told::Refused, None);
    };
    let position = u64::try_from(row.get::<_, i64>(0)).ok();
    match step.commit().await {
        Ok(()) => (Told::Accepted, position),
        Err(_) => (Told::Unknown, None),
    }
}

/// Cuts lines at random bytes, and crashes the server once in a while.
async fn trouble(server: &Server, relay: &Relay, began: Instant, tally: &Tally) -> History {
    let mut seen = History::new("leasehold/tests/postgres/history.rs");
    for round in 0..20 {
        if round >= 3 && tally.is_enough() {
            break;
        }
        for cut in [0, 40, 90, 150, 200, 260] {
            pass(250).await;
            relay.set(Rule::Cut(cut + round * 17));
            pass(100).await;
            relay.set(Rule::Pass);
        }
        for change in [Change::Crash, Change::Restart] {
            match change {
                Change::Crash => server.stop("immediate"),
                _ => server.run(),
            }
            let now = began.elapsed().as_nanos() as u64;
            let lease = None;
            seen.push(now, "server", What::Store { lease, change });
        }
    }
    pass(1000).await;
    seen
}

/// INV-1 to INV-8, INV-10, INV-20, L2, L5 to L7, L14, FB-51, FB-73, FB-74.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_history_of_many_holders_is_one_that_leases_allow() {
    let Some(server) = Server::ready().await else {
        return;
    };
    Session::open(&server)
        .await
        .must("CREATE TABLE effect(id bigserial PRIMARY KEY, lease text)")
        .await;
    let relay = Relay::to(&server).await;
    let (began, over) = (Instant::now(), Arc::new(AtomicBool::new(false)));
    let tally = Arc::new(Tally::default());
    let stores = [
        leasehold::connect(&relay.url()).await.unwrap(),
        server.store().await,
    ];
    let holders: Vec<_> = (0..HOLDERS)
        .map(|who| {
            let party = Party {
                who,
                lease: format!("job-{}", who % LEASES),
                store: stores[(who / LEASES % 2) as usize].clone(),
                url: server.url(),
                began,
                tally: tally.clone(),
                seen: History::new("leasehold/tests/postgres/history.rs"),
                wishes: 0,
                renewals: 0,
                dice: who,
            };
            tokio::spawn(party.live(over.clone()))
        })
        .collect();
    let mut parts = vec![trouble(&server, &relay, began, &tally).await];
    over.store(true, Ordering::Relaxed);
    for holder in holders {
        parts.push(holder.await.unwrap());
    }
    let history = History::merge(parts);
    let rules = Rules {
        dense: true,
        timing: Some(Timing {
            // The server's clock may be set a little by a time service.
            clock_error: 50_000_000,
            rate_error: 1000,
        }),
        ..Rules::default()
    };
    let verdict = judge(&history, &rules);
    println!("{:?}", verdict.counts);
    if let Some(finding) = verdict.findings.first() {
        let evidence: Vec<_> = finding.evidence.iter().map(|(_, line)| &**line).collect();
        panic!(
            "{} of {}: {}\n{}",
            finding.invariant,
            finding.about,
            finding.what,
            evidence.join("\n")
        );
    }
    for (lease, answer) in wgl::check(&history, true, 200_000) {
        if let wgl::Answer::NotLinearizable { culprit, .. } = answer {
            panic!("{lease}: no order of the calls explains {}", culprit.1);
        }
    }
    assert!(tally.is_enough(), "{tally:?}");
}
