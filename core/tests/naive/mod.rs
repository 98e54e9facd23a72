//! The rules once more, from the paragraphs of the semantics and not from the code: whole numbers, lists that are
//! searched, one plain `if` after another. It shares no type with the first implementation and is far too slow to use.

#![allow(clippy::unwrap_used)] // A helper of tests, which may.

mod ledger;

use crate::random::{Ask, Said};

const LAST: u64 = i64::MAX as u64;
const DAY: u64 = 24 * 60 * 60 * 1000;

#[derive(Debug, Default)]
pub(crate) struct Naive {
    /// Milliseconds by the store's clock, and by the wall clock.
    pub(crate) now: u64,
    pub(crate) wall: u64,
    leases: Vec<Lease>,
    floor: u64,
    /// Key, value, lease.
    pairs: Vec<(u8, u8, Option<u8>)>,
    /// Place, lease, highest.
    fences: Vec<(u8, u8, u64)>,
    ledger: ledger::Ledger,
}

#[derive(Debug)]
struct Lease {
    lease: u8,
    /// Every tenure there was since the record was made; the last one may have been taken away.
    tenures: Vec<Tenure>,
    taken_away: bool,
    newest: u64,
    ends: u64,
    ttl: u64,
    delay: u64,
}

#[derive(Debug)]
struct Tenure {
    session: u64,
    request: u64,
    released: bool,
    renewals: Vec<u64>,
}

#[derive(Clone, Copy, PartialEq)]
enum Is {
    Free,
    Held,
    Delayed,
    Quarantined,
}

impl Naive {
    pub(crate) fn answer(&mut self, ask: &Ask) -> Said {
        match *ask {
            Ask::Acquire {
                lease,
                session,
                request,
                ttl,
                delay,
            } => self.acquire(lease, (session, request), ttl, delay),
            Ask::Renew {
                lease,
                token,
                session,
                number,
                id,
                ttl,
            } => self.renew(lease, token, session, (number, id), ttl),
            Ask::Release {
                lease,
                token,
                session,
            } => self.release(lease, token, session),
            Ask::Cancel {
                lease,
                session,
                request,
            } => self.cancel(lease, session, request),
            Ask::Force { lease, now } => self.force(lease, now),
            Ask::Quarantine { lease, above } => self.quarantine(lease, above),
            Ask::Put { key, value, proof } => self.write(key, Some(value), proof),
            Ask::Delete { key, proof } => self.write(key, None, proof),
            Ask::Raise {
                place,
                lease,
                token,
            } => self.raise(place, lease, token),
            Ask::Begin { work, token, .. } => {
                let refusal = self.refuses(work.0, token);
                self.ledger.begin(ask, refusal, self.wall)
            }
            Ask::Complete { .. } => self.ledger.complete(ask, self.wall),
            Ask::Abandon { .. } => self.ledger.abandon(ask),
            Ask::Bump { above } => self.bump(above),
        }
    }

    /// A21: leases that are free for a day; I9: work of 400 days ago.
    pub(crate) fn collect(&mut self) {
        let mut kept = Vec::new();
        for lease in self.leases.drain(..) {
            let since = lease.ends + if lease.given_back() { 0 } else { lease.delay };
            if self.now >= since + DAY && lease.newest <= 1 << 43 {
                self.floor = self.floor.max(lease.newest);
            } else {
                kept.push(lease);
            }
        }
        self.leases = kept;
        self.ledger.collect(self.wall.saturating_sub(400 * DAY));
    }

    fn acquire(&mut self, lease: u8, (session, request): (u64, u64), ttl: u64, delay: u64) -> Said {
        let now = self.now;
        let found = self.find(lease);
        let is = found.is(now);
        if let Some(tenure) = found.tenure()
            && tenure.session == session
            && tenure.request == request
        {
            if is != Is::Held {
                return Said::Used;
            }
            if now + ttl > found.ends {
                found.ends = now + ttl;
            }
            return Said::Granted(found.newest);
        }
        let hint = (found.ends + found.delay).saturating_sub(now);
        match is {
            Is::Held => {
                let tenure = found.tenure().unwrap();
                return Said::Held {
                    by: tenure.session % 2,
                    token: found.newest,
                    hint,
                    yours: tenure.session == session,
                };
            }
            Is::Delayed => return Said::Delayed(hint),
            Is::Quarantined => return Said::Quarantined(hint),
            Is::Free => {}
        }
        if found.newest == LAST {
            return Said::Exhausted;
        }
        found.newest += 1;
        found.ends = now + ttl;
        found.ttl = ttl;
        found.delay = delay;
        found.taken_away = false;
        found.tenures.push(Tenure {
            session,
            request,
            released: false,
            renewals: Vec::new(),
        });
        Said::Granted(found.newest)
    }

    fn renew(
        &mut self,
        lease: u8,
        token: u64,
        session: u64,
        (number, id): (u64, u64),
        ttl: u64,
    ) -> Said {
        let now = self.now;
        let found = self.find(lease);
        if let Some(lost) = found.loses(token, session, now) {
            return lost;
        }
        let renewals = &mut found.tenures.last_mut().unwrap().renewals;
        let last = renewals.len() as u64;
        if number == last + 1 {
            renewals.push(id);
            found.ttl = ttl;
        } else if number != last || renewals.last() != Some(&id) {
            return Said::LostSequence;
        }
        if now + ttl > found.ends {
            found.ends = now + ttl;
        }
        Said::Renewed
    }

    fn release(&mut self, lease: u8, token: u64, session: u64) -> Said {
        let now = self.now;
        let found = self.find(lease);
        match found.loses(token, session, now) {
            None => {
                found.tenures.last_mut().unwrap().released = true;
                found.ends = now;
                Said::Released
            }
            Some(Said::LostExpired | Said::LostReleased) => Said::Over,
            Some(_) if token < found.newest => Said::Over,
            Some(_) if token == found.newest && found.tenure().is_none() => Said::Over,
            Some(lost) => lost,
        }
    }

    fn cancel(&mut self, lease: u8, session: u64, request: u64) -> Said {
        let found = self.find(lease);
        let token = found.newest;
        match found.tenure() {
            Some(tenure) if tenure.session == session && tenure.request == request => {
                self.release(lease, token, session)
            }
            _ => Said::Over,
        }
    }

    fn force(&mut self, lease: u8, at_once: bool) -> Said {
        let now = self.now;
        let found = self.find(lease);
        if found.is(now) == Is::Free {
            return Said::Over;
        }
        if found.newest == LAST {
            return Said::Exhausted;
        }
        found.newest += 1;
        found.taken_away = true;
        if at_once {
            found.ends = found.ends.min(now);
            found.delay = 0;
        }
        Said::Bumped(found.newest)
    }

    fn quarantine(&mut self, lease: u8, above: u64) -> Said {
        let now = self.now;
        let found = self.find(lease);
        if found.newest == LAST {
            return Said::Exhausted;
        }
        found.newest = above.max(found.newest + 1);
        found.ends = found.ends.max(now + found.ttl);
        found.taken_away = true;
        Said::Bumped(found.newest)
    }

    fn bump(&mut self, above: u64) -> Said {
        if above > self.wall + DAY {
            return Said::TooLarge(self.wall + DAY);
        }
        let mut newest = self.floor;
        for lease in &self.leases {
            if lease.newest != LAST && lease.known() {
                newest = newest.max(lease.newest);
            }
        }
        if above <= newest {
            return Said::TooSmall(newest);
        }
        self.floor = above;
        let known: Vec<u8> = self
            .leases
            .iter()
            .filter(|l| l.known())
            .map(|l| l.lease)
            .collect();
        self.leases.retain(Lease::known);
        for lease in known {
            self.quarantine(lease, above);
        }
        Said::Done
    }

    fn raise(&mut self, place: u8, lease: u8, token: u64) -> Said {
        let newest = self.find(lease).newest;
        let found = self.fences.iter().position(|fence| fence.0 == place);
        let (of, highest) = match found {
            Some(at) => (self.fences[at].1, self.fences[at].2),
            None => (lease, newest),
        };
        if of != lease {
            return Said::OtherLease(of);
        }
        if token < highest {
            return Said::Stale { token, highest };
        }
        if token > newest {
            return Said::NeverIssued(token);
        }
        self.fences.retain(|fence| fence.0 != place);
        self.fences.push((place, lease, token));
        Said::Done
    }

    fn write(&mut self, key: u8, value: Option<u8>, proof: Option<(u8, u64)>) -> Said {
        let bound = self
            .pairs
            .iter()
            .find(|pair| pair.0 == key)
            .and_then(|pair| pair.2);
        if let Some(lease) = bound
            && proof.map(|(lease, _)| lease) != Some(lease)
        {
            return Said::Fenced(lease);
        }
        if let Some((lease, token)) = proof
            && let Some(refusal) = self.refuses(lease, token)
        {
            return refusal;
        }
        self.pairs.retain(|pair| pair.0 != key);
        if let Some(value) = value {
            self.pairs.push((key, value, proof.map(|(lease, _)| lease)));
        }
        Said::Done
    }

    /// What a fence in the store says to a token that is not the valid one (F7).
    fn refuses(&mut self, lease: u8, token: u64) -> Option<Said> {
        let now = self.now;
        let found = self.find(lease);
        if token < found.newest {
            return Some(Said::Stale {
                token,
                highest: found.newest,
            });
        }
        if token > found.newest || found.tenure().is_none() {
            return Some(Said::NeverIssued(token));
        }
        if found.tenure().unwrap().released {
            return Some(Said::WasReleased(token));
        }
        (now >= found.ends).then_some(Said::Expired(token))
    }

    /// The lease, or a new one that starts above the floor.
    fn find(&mut self, lease: u8) -> &mut Lease {
        let at = match self.leases.iter().position(|each| each.lease == lease) {
            Some(at) if self.leases[at].known() => at,
            found => {
                found.map(|at| self.leases.remove(at));
                self.leases.push(Lease {
                    lease,
                    tenures: Vec::new(),
                    taken_away: false,
                    newest: self.floor,
                    ends: 0,
                    ttl: 15_000,
                    delay: 0,
                });
                self.leases.len() - 1
            }
        };
        &mut self.leases[at]
    }
}

impl Lease {
    /// Whether anything was ever decided about it, or it was only looked for.
    fn known(&self) -> bool {
        !self.tenures.is_empty() || self.taken_away
    }

    fn tenure(&self) -> Option<&Tenure> {
        if self.taken_away {
            None
        } else {
            self.tenures.last()
        }
    }

    fn given_back(&self) -> bool {
        self.tenure().is_some_and(|tenure| tenure.released)
    }

    fn is(&self, now: u64) -> Is {
        if self.given_back() || now >= self.ends + self.delay {
            return Is::Free;
        }
        match self.tenure() {
            None => Is::Quarantined,
            Some(_) if now < self.ends => Is::Held,
            Some(_) => Is::Delayed,
        }
    }

    /// Why whoever shows this does not hold now, if so (L4 to L6).
    fn loses(&self, token: u64, session: u64, now: u64) -> Option<Said> {
        let by = self.tenure().map(|tenure| tenure.session % 2);
        if token < self.newest {
            return Some(Said::LostTaken {
                by,
                token: self.newest,
            });
        }
        if token > self.newest || self.tenure().is_none() {
            return Some(Said::LostGone);
        }
        let tenure = self.tenure().unwrap();
        if tenure.session != session {
            return Some(Said::LostTaken { by, token });
        }
        if tenure.released {
            return Some(Said::LostReleased);
        }
        (now >= self.ends).then_some(Said::LostExpired)
    }
}
