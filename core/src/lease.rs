//! Is a lease free now, and who may have it? This file is the whole answer, for every store.
//!
//! [`decide`] takes one record, one command and the store's time, and returns the record to keep and the answer to give.
//! The time must be read after every wait and lock that the store needs (SEMANTICS 3), and the answer must be sent only
//! when the record is durable (L10).
//!
//! ```text
//!            Acquire: token + 1                    now >= expires
//!   Free ───────────────────────▶ Held ───────────────────────────▶ Delayed ──┐
//!    ▲                           │    │                                       │ now >= expires + lock delay
//!    │◀──────── Release ─────────┘    └── ForceRelease, Quarantine ▶ Quarantined
//!    └────────────────────────────────────────────────────────────────────────┘
//! ```

use core::{cmp::max, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    Acquire, Answer, Command, Fence, Grant, Held, Holder, Info, LockDelay, Lost, Release, Renew,
    RenewId, RequestId, Session, StoreTime, Token, Ttl,
};

/// What a store keeps of one lease. It stays when the lease ends, so that tokens only grow (L8, T1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The largest token this name ever had; the next one is larger. `None`: never granted.
    pub token: Option<Token>,
    /// Up to here the store has promised the lease to somebody, or to nobody (quarantine).
    pub expires: StoreTime,
    /// What the last grant or renewal was given.
    pub ttl: Ttl,
    /// How long after `expires` nobody gets it, unless it was released (W4).
    pub lock_delay: LockDelay,
    /// Who had `token`; `None` if nobody did (never granted, forced, or quarantined).
    pub tenure: Option<Tenure>,
}

/// One holder's time with one token, from grant to release or expiry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tenure {
    /// The key to renew and release it.
    pub session: Session,
    /// The acquire that was granted; the same one delivered again gets the same token (L2.1).
    pub request_id: RequestId,
    /// Who holds, for people.
    pub holder: Holder,
    /// What the holder wants others to know.
    pub info: Option<Info>,
    /// When it was granted.
    pub granted: StoreTime,
    /// Whether the holder has given it back.
    pub released: bool,
    /// How many renewals it had (C14).
    pub renewals: u64,
    /// The last of them (A3).
    pub renew_id: Option<RenewId>,
}

/// What a lease is at one moment (L1). Expiry is not an event: it is a property of record and time (L12).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Whoever asks next gets it.
    Free,
    /// Its holder may renew it; nobody else gets it.
    Held,
    /// It ran out unreleased; its lock delay still runs.
    Delayed,
    /// It was taken away, or its past is in doubt; an old promise may still run.
    Quarantined,
}

/// Decides one command against one record. No clock, no IO: the same input gives the same answer everywhere.
///
/// The record is changed only if [`Answer::changes`].
pub fn decide(mut record: Record, command: Command, now: StoreTime) -> (Record, Answer) {
    let answer = record.decide(command, now);
    (record, answer)
}

impl Record {
    /// How long the record of a free lease is kept at least (A21).
    pub const KEPT: Duration = Duration::from_secs(24 * 60 * 60);

    /// The whole protocol; [`decide`] for a record that stays where it is.
    pub(crate) fn decide(&mut self, command: Command, now: StoreTime) -> Answer {
        use {Command::*, State::*};
        match (self.at(now), command) {
            (Held, Acquire(asked)) if self.was_granted(&asked) => self.replay(&asked, now),
            (_, Acquire(asked)) if self.was_granted(&asked) => Answer::AlreadyUsed,
            (Free, Acquire(asked)) => self.grant(asked, now),
            (state, Acquire(asked)) => self.refuse(state, &asked, now),
            (Held, Renew(asked)) if self.belongs_to(asked.token, asked.session) => {
                self.renew(&asked, now)
            }
            (_, Renew(asked)) => Answer::Lost(self.lost(asked.token, asked.session)),
            (Held, Release(asked)) if self.is_meant_by(&asked) => self.release(now),
            (_, Release(asked)) => self.over(&asked),
            (Free, ForceRelease { .. }) => Answer::AlreadyOver,
            (_, ForceRelease { now: at_once }) => self.take_away(at_once, now),
            (_, Quarantine { above }) => self.quarantine(above, now),
        }
    }

    /// The record of a name that has none: its first token will be larger than `floor`, which stands for every record
    /// that was collected (T5).
    pub fn new(floor: Option<Token>) -> Self {
        Self {
            token: floor,
            expires: StoreTime::ZERO,
            ttl: Ttl::DEFAULT,
            lock_delay: LockDelay::NONE,
            tenure: None,
        }
    }

    /// What the lease is at `now` (L1).
    pub fn at(&self, now: StoreTime) -> State {
        let empty = now >= self.free_from();
        match &self.tenure {
            Some(tenure) if tenure.released => State::Free,
            Some(_) if now < self.expires => State::Held,
            Some(_) if empty => State::Free,
            Some(_) => State::Delayed,
            None if empty => State::Free,
            None => State::Quarantined,
        }
    }

    /// From when on anybody gets the lease, if nothing else happens to it.
    pub fn free_from(&self) -> StoreTime {
        match &self.tenure {
            Some(tenure) if tenure.released => self.expires,
            _ => self.expires.plus(self.lock_delay.get()),
        }
    }

    fn was_granted(&self, asked: &Acquire) -> bool {
        self.tenure.as_ref().is_some_and(|tenure| {
            tenure.session == asked.session && tenure.request_id == asked.request_id
        })
    }

    /// L2.3: a new pair of session and request id, and so a new token (L3).
    fn grant(&mut self, asked: Acquire, now: StoreTime) -> Answer {
        let Some(token) = Token::after(self.token) else {
            return Answer::TokenExhausted;
        };
        *self = Self {
            token: Some(token),
            expires: now.plus(asked.ttl.get()),
            ttl: asked.ttl,
            lock_delay: asked.lock_delay,
            tenure: Some(Tenure {
                session: asked.session,
                request_id: asked.request_id,
                holder: asked.holder,
                info: asked.info,
                granted: now,
                released: false,
                renewals: 0,
                renew_id: None,
            }),
        };
        Answer::Granted(Grant {
            token,
            ttl: asked.ttl,
            waited: Duration::ZERO,
        })
    }

    /// L2.1 with A2: the reply was lost and the request came again. It never shortens what was promised.
    fn replay(&mut self, asked: &Acquire, now: StoreTime) -> Answer {
        self.expires = max(self.expires, now.plus(asked.ttl.get()));
        match self.token {
            Some(token) => Answer::Granted(Grant {
                token,
                ttl: asked.ttl,
                waited: Duration::ZERO,
            }),
            None => Answer::AlreadyUsed,
        }
    }

    /// L2.4.
    fn refuse(&self, state: State, asked: &Acquire, now: StoreTime) -> Answer {
        let hint = self.free_from().since(now);
        match (state, self.token, &self.tenure) {
            (State::Held, Some(token), Some(tenure)) => Answer::Held(Held {
                holder: tenure.holder.clone(),
                info: tenure.info.clone(),
                token,
                hint,
                yours: tenure.session == asked.session,
            }),
            (State::Quarantined, ..) => Answer::Quarantined { hint },
            _ => Answer::Delayed { hint },
        }
    }

    /// L4 with A2, A3. A retry extends again, since its sender counts from the retry's own send time (C3).
    fn renew(&mut self, asked: &Renew, now: StoreTime) -> Answer {
        let Some(tenure) = &mut self.tenure else {
            return Answer::Lost(Lost::Gone);
        };
        if asked.number.checked_sub(1) == Some(tenure.renewals) {
            tenure.renewals = asked.number;
            tenure.renew_id = Some(asked.renew_id);
            self.ttl = asked.ttl;
        } else if tenure.renewals != asked.number || tenure.renew_id != Some(asked.renew_id) {
            return Answer::Lost(Lost::SeqMismatch);
        }
        self.expires = max(self.expires, now.plus(asked.ttl.get()));
        Answer::Renewed { ttl: asked.ttl }
    }

    /// L7: free at once, without the lock delay.
    fn release(&mut self, now: StoreTime) -> Answer {
        if let Some(tenure) = &mut self.tenure {
            tenure.released = true;
        }
        self.expires = self.expires.min(now);
        Answer::Released
    }

    /// A release that finds nothing to release: its tenure is over, or never was its own (A21).
    ///
    /// It does not cut a lock delay short: whoever ran out may still have requests on the way (W4).
    fn over(&self, asked: &Release) -> Answer {
        let Release::Tenure { token, session } = *asked else {
            return Answer::AlreadyOver;
        };
        let nobodys = self.tenure.is_none() && self.token == Some(token);
        match self.lost(token, session) {
            Lost::Expired | Lost::Released => Answer::AlreadyOver,
            _ if nobodys || self.token > Some(token) => Answer::AlreadyOver,
            lost => Answer::Lost(lost),
        }
    }

    /// Whether `token` is the stored one and `session` its key (L6).
    fn belongs_to(&self, token: Token, session: Session) -> bool {
        self.token == Some(token)
            && self
                .tenure
                .as_ref()
                .is_some_and(|tenure| tenure.session == session)
    }

    fn is_meant_by(&self, asked: &Release) -> bool {
        match *asked {
            Release::Tenure { token, session } => self.belongs_to(token, session),
            Release::Request {
                session,
                request_id,
            } => self
                .tenure
                .as_ref()
                .is_some_and(|tenure| (tenure.session, tenure.request_id) == (session, request_id)),
        }
    }

    /// Why whoever shows this token and session does not hold (L4, L5).
    fn lost(&self, token: Token, session: Session) -> Lost {
        match (self.token, &self.tenure) {
            (Some(stored), tenure) if token < stored => Lost::Taken {
                by: tenure.as_ref().map(|tenure| tenure.holder.clone()),
                token: stored,
            },
            (Some(stored), Some(tenure)) if token == stored => match tenure {
                tenure if tenure.session != session => Lost::Taken {
                    by: Some(tenure.holder.clone()),
                    token,
                },
                tenure if tenure.released => Lost::Released,
                _ => Lost::Expired,
            },
            _ => Lost::Gone,
        }
    }

    fn take_away(&mut self, at_once: bool, now: StoreTime) -> Answer {
        let Some(token) = Token::after(self.token) else {
            return Answer::TokenExhausted;
        };
        self.token = Some(token);
        self.tenure = None;
        if at_once {
            self.expires = self.expires.min(now);
            self.lock_delay = LockDelay::NONE;
        }
        Answer::Bumped { token }
    }

    /// T6. Whoever may still trust an old promise is waited for; none was ever longer than [`Ttl::MAX`].
    fn quarantine(&mut self, above: Token, now: StoreTime) -> Answer {
        let Some(token) = Token::after(self.token) else {
            return Answer::TokenExhausted;
        };
        let token = max(token, above);
        let promised = self.expires.min(now.plus(Ttl::MAX.get()));
        self.token = Some(token);
        self.expires = max(promised, now.plus(self.ttl.get()));
        self.tenure = None;
        Answer::Bumped { token }
    }

    /// Whether nobody needs this record any more: free for [`Record::KEPT`] (A21). Whoever deletes it raises the floor
    /// to its token in the same step (L8, T5).
    ///
    /// A token beyond any unix time is a mistake with one name. Its record stays, so that the floor does not make it a
    /// mistake with every name.
    pub fn collectable(&self, now: StoreTime) -> bool {
        let plausible = self
            .token
            .is_none_or(|token| token.get() <= Fence::MAX_JUMP);
        plausible && self.at(now) == State::Free && now.since(self.free_from()) >= Self::KEPT
    }
}
