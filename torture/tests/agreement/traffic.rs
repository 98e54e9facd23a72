//! A tiny honest lease under random traffic, and ways to be dishonest.
//!
//! It is written without a look at the checkers: one record, one function, a queue of events by time.

use std::collections::BinaryHeap;

use leasehold_torture::history::{Call, History, Outcome};
use rand::Rng;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

/// What is wrong with the lease.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Bug {
    None,
    /// M2: a renewal looks at the time only.
    RenewWithoutToken,
    /// L5: a renewal brings an expired tenure back.
    LateRenewal,
    /// M5: a release by anybody.
    ReleaseByName,
    /// M6: a release forgets the token.
    ReleaseResets,
    /// A grant does not increment the token.
    TokenStands,
    /// L2.2: a late duplicate gets the lease again.
    NoAlreadyUsed,
    /// L3: a request delivered twice gets two tokens.
    NoReplay,
    /// INV-4: free after half the ttl.
    HalfTtl,
    /// INV-10: `Failed` is sometimes a lie.
    FailedApplies,
    /// A read shows the token before.
    StaleRead,
    /// T2: a grant skips a number.
    Gap,
}

/// How much traffic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) clients: usize,
    pub(crate) calls: usize,
    /// Percentage of calls whose answer gets lost.
    pub(crate) lost: u32,
}

/// Nanoseconds of one unit of time here; a ttl has 10 to 30 of them.
pub(crate) const UNIT: u64 = 1_000_000;

#[derive(Default)]
struct Record {
    token: u64,
    pair: Option<(String, String)>,
    expires: u64,
    released: bool,
}

/// Ordered by time, earliest first, then by number.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct At(std::cmp::Reverse<(u64, usize)>, What);

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Next { client: usize },
    Evaluate { call: usize },
    Answer { call: usize },
}

struct Pending {
    client: usize,
    id: u64,
    session: String,
    call: Call,
    outcome: Option<Outcome>,
    waited_for: bool,
}

#[derive(Default)]
struct Client {
    session: String,
    requests: usize,
    request: String,
    token: Option<u64>,
    last: u64,
    busy: bool,
}

struct World {
    rng: ChaCha8Rng,
    size: Size,
    bug: Bug,
    record: Record,
    history: History,
    clients: Vec<Client>,
    pending: Vec<Pending>,
    queue: BinaryHeap<At>,
    numbers: usize,
    calls: usize,
}

/// A history of one lease called `orders`, the same for the same arguments.
pub(crate) fn traffic(seed: u64, size: Size, bug: Bug) -> History {
    let clients = (0..size.clients).map(|i| Client {
        session: format!("s{i}"),
        ..Client::default()
    });
    let mut world = World {
        rng: ChaCha8Rng::seed_from_u64(seed),
        size,
        bug,
        record: Record::default(),
        history: History::new(format!("traffic seed {seed} {size:?} {bug:?}")),
        clients: clients.collect(),
        pending: Vec::new(),
        queue: BinaryHeap::new(),
        numbers: 0,
        calls: 0,
    };
    for client in 0..size.clients {
        world.later(0, 10, What::Next { client });
    }
    while let Some(At(std::cmp::Reverse((now, _)), what)) = world.queue.pop() {
        match what {
            What::Next { client } => world.next(now, client),
            What::Evaluate { call } => {
                let outcome = world.evaluate(now, call);
                world.pending[call].outcome = Some(outcome);
            }
            What::Answer { call } => world.answer(now, call),
        }
    }
    world.history
}

impl World {
    fn later(&mut self, now: u64, within: u64, what: What) {
        let time = now + self.rng.random_range(0..=within * UNIT);
        self.numbers += 1;
        self.queue
            .push(At(std::cmp::Reverse((time, self.numbers)), what));
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.rng.random_range(0..100) < percent
    }

    fn next(&mut self, now: u64, client: usize) {
        if self.calls >= self.size.calls || self.clients[client].busy {
            return;
        }
        let (holds, ttl) = (
            self.clients[client].token,
            self.rng.random_range(10..30) * UNIT,
        );
        let call = match (holds, self.rng.random_range(0..100)) {
            (Some(token), 0..60) => Call::Renew { token, ttl },
            (Some(token), 60..75) => Call::Release {
                token: Some(token),
                request: None,
            },
            (Some(_), 75..80) => self.release_by_request(client),
            (None, 0..10) => self.release_by_request(client),
            (None, 10..15) => Call::Release {
                token: Some(self.record.token.max(1)),
                request: None,
            },
            (None, 15..20) => Call::Renew {
                token: self.clients[client].last.max(1),
                ttl,
            },
            (_, 80..85) => Call::Read,
            (_, 85..95) => self.acquire(client, false, ttl),
            _ => self.acquire(client, true, ttl),
        };
        self.send(now, client, call, true);
    }

    fn release_by_request(&self, client: usize) -> Call {
        Call::Release {
            token: None,
            request: Some(self.clients[client].request.clone()),
        }
    }

    fn acquire(&mut self, client: usize, new: bool, ttl: u64) -> Call {
        let client = &mut self.clients[client];
        if new || client.requests == 0 {
            client.requests += 1;
            client.token = None;
            client.request = format!("{}-{}", client.session, client.requests);
        }
        Call::Acquire {
            request: client.request.clone(),
            ttl,
        }
    }

    /// Sends a call; `waited_for` is false for the second delivery of one.
    fn send(&mut self, now: u64, client: usize, call: Call, waited_for: bool) {
        let session = self.clients[client].session.clone();
        let name = format!("p{client}");
        let id = self
            .history
            .invoke(now, name, "orders", session.as_str(), call.clone());
        self.calls += 1;
        self.clients[client].busy |= waited_for;
        let number = self.pending.len();
        let twice = waited_for && self.chance(5);
        let again = call.clone();
        self.pending.push(Pending {
            client,
            id,
            session,
            call,
            outcome: None,
            waited_for,
        });
        if !waited_for || self.chance(self.size.lost) {
            if self.chance(70) {
                self.later(now, 40, What::Evaluate { call: number });
            }
            self.later(now, 10, What::Answer { call: number });
        } else if self.chance(3) {
            self.pending[number].outcome = Some(Outcome::Failed);
            if self.bug == Bug::FailedApplies {
                self.evaluate(now, number);
            }
            self.later(now, 10, What::Answer { call: number });
        } else {
            let arrives = now + self.rng.random_range(0..4 * UNIT);
            self.numbers += 2;
            let evaluate = What::Evaluate { call: number };
            self.queue
                .push(At(std::cmp::Reverse((arrives, self.numbers - 1)), evaluate));
            self.later(arrives, 4, What::Answer { call: number });
        }
        if twice {
            self.send(now, client, again, false);
        }
    }

    fn answer(&mut self, now: u64, call: usize) {
        let lost = !self.pending[call].waited_for;
        let silent = self.chance(30);
        let Pending {
            client,
            id,
            outcome,
            ..
        } = &self.pending[call];
        let (client, id) = (*client, *id);
        if lost {
            return;
        }
        let outcome = outcome.clone().unwrap_or(Outcome::Unknown);
        match &outcome {
            Outcome::Granted { token, .. } => {
                self.clients[client].token = Some(*token);
                self.clients[client].last = *token;
            }
            Outcome::Lost | Outcome::Released | Outcome::AlreadyOver => {
                self.clients[client].token = None;
            }
            _ => {}
        }
        if outcome != Outcome::Unknown || !silent {
            self.history.answer(now, format!("p{client}"), id, outcome);
        }
        self.clients[client].busy = false;
        self.later(now, 15, What::Next { client });
    }

    /// The lease itself.
    fn evaluate(&mut self, now: u64, call: usize) -> Outcome {
        let Pending { session, call, .. } = &self.pending[call];
        let (record, bug) = (&mut self.record, self.bug);
        let valid = record.pair.is_some() && !record.released && now < record.expires;
        let stored = record.pair.clone().unwrap_or_default();
        let own = |token: u64| record.token == token && stored.0 == *session;
        match call {
            Call::Acquire { request, ttl } => {
                let same = stored == (session.clone(), request.clone());
                let free = !valid || (bug == Bug::HalfTtl && now + ttl / 2 >= record.expires);
                if same && valid && bug != Bug::NoReplay {
                    record.expires = record.expires.max(now + ttl);
                    return Outcome::Granted {
                        token: record.token,
                        ttl: *ttl,
                    };
                }
                if same && !valid && bug != Bug::NoAlreadyUsed {
                    return Outcome::AlreadyUsed;
                }
                if !free && !same {
                    return Outcome::Held {
                        token: record.token,
                        by: Some(stored.0),
                    };
                }
                record.token += match bug {
                    Bug::TokenStands if record.token > 0 => 0,
                    Bug::Gap => 2,
                    _ => 1,
                };
                record.pair = Some((session.clone(), request.clone()));
                record.expires = now + ttl;
                record.released = false;
                Outcome::Granted {
                    token: record.token,
                    ttl: *ttl,
                }
            }
            Call::Renew { token, ttl } => {
                let own = own(*token) || bug == Bug::RenewWithoutToken;
                if !own || (!valid && bug != Bug::LateRenewal) {
                    return Outcome::Lost;
                }
                record.released = false;
                record.expires = record.expires.max(now + ttl);
                Outcome::Renewed { ttl: *ttl }
            }
            Call::Release { token, request } => {
                let by_request = Some(&stored.1) == request.as_ref() && stored.0 == *session;
                let own = token.map_or(by_request, own) && record.pair.is_some();
                let live_foreign = valid && *token == Some(record.token) && !own;
                if bug == Bug::ReleaseByName || (own && !record.released) {
                    record.released = true;
                    if bug == Bug::ReleaseResets {
                        *record = Record::default();
                    }
                }
                match (own, live_foreign) {
                    (true, _) => Outcome::Released,
                    (_, true) => Outcome::Refused {
                        why: "not yours".into(),
                    },
                    _ => Outcome::AlreadyOver,
                }
            }
            Call::Read => {
                let token = match bug {
                    Bug::StaleRead => record.token.saturating_sub(1),
                    _ => record.token,
                };
                let held = valid && bug != Bug::StaleRead;
                let by = held.then_some(stored.0);
                Outcome::Seen { token, held, by }
            }
        }
    }
}
