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

use crate::{Holder, Info, LockDelay, RenewId, RequestId, Session, StoreTime, Token, Ttl};

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

/// What anybody may ask of one lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Give it to me if it is free.
    Acquire(Acquire),
    /// Let me keep it.
    Renew(Renew),
    /// I am done with it.
    Release(Release),
    /// An operator takes it away. The token grows at once, so the holder's fenced writes are refused; others get the
    /// lease when the old promise ends, or at once with `now`, which risks two that act (A21).
    ForceRelease {
        /// Do not wait for the old promise to end.
        now: bool,
    },
    /// The store's past is in doubt (a restore, a failover): nobody holds for one ttl, and the next token is larger
    /// than both `above` and the stored one (T6).
    Quarantine {
        /// A number no smaller than any token that may have been issued and forgotten.
        above: Token,
    },
}

/// The fields of [`Command::Acquire`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acquire {
    /// Who asks; never two askers with one session.
    pub session: Session,
    /// Which call this is; the same over its retries.
    pub request_id: RequestId,
    /// Who asks, for people.
    pub holder: Holder,
    /// Shown to others while it is held.
    pub info: Option<Info>,
    /// How long the lease shall last without a renewal.
    pub ttl: Ttl,
    /// How long it shall stay empty if it ends without a release.
    pub lock_delay: LockDelay,
}

/// The fields of [`Command::Renew`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renew {
    /// The tenure to keep.
    pub token: Token,
    /// Its key.
    pub session: Session,
    /// How much longer, from the store's evaluation on.
    pub ttl: Ttl,
    /// The number of the renewal: 1, 2, 3, ... within a tenure; the same over its retries (A3).
    pub number: u64,
    /// The renewal's own id; the same over its retries.
    pub renew_id: RenewId,
}

/// [`Command::Release`]: by token, or by the acquire whose answer never came (A4).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Release {
    /// The tenure that the caller knows.
    Tenure {
        /// Its token.
        token: Token,
        /// Its key.
        session: Session,
    },
    /// Whatever this acquire was granted, if it was.
    Request {
        /// Its session.
        session: Session,
        /// Its id.
        request_id: RequestId,
    },
}

/// The store's answer to a command about one lease. Losing a race is an answer, not an error (L14).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// The caller holds.
    Granted(Grant),
    /// The caller still holds, for this long from the evaluation on.
    Renewed {
        /// What was given.
        ttl: Ttl,
    },
    /// The lease is free, by this call.
    Released,
    /// Taken away by an operator or put in quarantine; `token` is burnt, the next grant gets a larger one.
    Bumped {
        /// The largest token now.
        token: Token,
    },
    /// That tenure had ended before; nothing was changed (A21).
    AlreadyOver,
    /// Somebody holds.
    Held(Held),
    /// Nobody holds and nobody may yet: the lock delay runs for about `hint` more.
    Delayed {
        /// How long; only a hint.
        hint: Duration,
    },
    /// Nobody holds and nobody may yet: an old promise runs for about `hint` more.
    Quarantined {
        /// How long; only a hint.
        hint: Duration,
    },
    /// This acquire had its grant, and the tenure is over. Ask again with a new request id (L2.2).
    AlreadyUsed,
    /// The caller holds no longer; nothing was changed.
    Lost(Lost),
    /// No larger token is left (1.2).
    TokenExhausted,
}

/// A grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Send it with every write.
    pub token: Token,
    /// What was really given, from the store's evaluation on (1.3).
    pub ttl: Ttl,
    /// How long the store held the request back before it evaluated it, on its own clock (A1). Zero from [`decide`].
    pub waited: Duration,
}

/// Who holds, for a caller that does not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// Who.
    pub holder: Holder,
    /// What the holder lets others know.
    pub info: Option<Info>,
    /// With which token.
    pub token: Token,
    /// How long until it could be free; only a hint, the holder may renew.
    pub hint: Duration,
    /// It is the caller's own session under another request id: an orphan to release by token (A4).
    pub yours: bool,
}

/// Why a holder holds no longer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lost {
    /// It ran out. A late renewal is refused even if nobody took the lease (L5).
    Expired,
    /// A larger token was issued, to `by` or to nobody.
    Taken {
        /// The holder of that token.
        by: Option<Holder>,
        /// That token.
        token: Token,
    },
    /// It was released.
    Released,
    /// Somebody else renews with the same session and token: a clone of this holder (C14).
    SeqMismatch,
    /// The store never issued that token, or has forgotten it.
    Gone,
}

/// Decides one command against one record. No clock, no IO: the same input gives the same answer everywhere.
///
/// The record is changed only if [`Answer::changes`].
pub fn decide(mut record: Record, command: Command, now: StoreTime) -> (Record, Answer) {
    let answer = match (record.at(now), command) {
        (State::Held, Command::Acquire(asked)) if record.was_granted(&asked) => {
            record.replay(&asked, now)
        }
        (_, Command::Acquire(asked)) if record.was_granted(&asked) => Answer::AlreadyUsed,
        (State::Free, Command::Acquire(asked)) => record.grant(asked, now),
        (state, Command::Acquire(asked)) => record.refuse(state, &asked, now),
        (state, Command::Renew(asked)) => record.renew(state, &asked, now),
        (_, Command::Release(asked)) => record.release(&asked, now),
        (State::Free, Command::ForceRelease { .. }) => Answer::AlreadyOver,
        (_, Command::ForceRelease { now: at_once }) => record.take_away(at_once, now),
        (_, Command::Quarantine { above }) => record.quarantine(above, now),
    };
    (record, answer)
}

impl Record {
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

    /// L4 to L6 with A2, A3. A retry extends again, since its sender counts from the retry's own send time (C3).
    fn renew(&mut self, state: State, asked: &Renew, now: StoreTime) -> Answer {
        if let Err(lost) = self.belongs(asked.token, asked.session) {
            return Answer::Lost(lost);
        }
        let Some(tenure) = self.tenure.as_mut().filter(|_| state == State::Held) else {
            let released = self.tenure.as_ref().is_some_and(|tenure| tenure.released);
            return Answer::Lost(if released {
                Lost::Released
            } else {
                Lost::Expired
            });
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

    /// L7 with A4, A21: only its own tenure, and as often as it likes.
    fn release(&mut self, asked: &Release, now: StoreTime) -> Answer {
        let belongs = match *asked {
            Release::Tenure { token, session } => self.belongs(token, session),
            Release::Request {
                session,
                request_id,
            } => match &self.tenure {
                Some(tenure) if (tenure.session, tenure.request_id) == (session, request_id) => {
                    Ok(())
                }
                _ => return Answer::AlreadyOver,
            },
        };
        match (belongs, &mut self.tenure) {
            (Ok(()), Some(tenure)) if !tenure.released => {
                tenure.released = true;
                self.expires = self.expires.min(now);
                Answer::Released
            }
            (Ok(()), _) => Answer::AlreadyOver,
            (Err(Lost::Taken { token, .. }), _) if asked.is_before(token) => Answer::AlreadyOver,
            (Err(lost), _) => Answer::Lost(lost),
        }
    }

    /// Whether `token` is the stored one and `session` its key (L6).
    fn belongs(&self, token: Token, session: Session) -> Result<(), Lost> {
        let Some(stored) = self.token.filter(|stored| token <= *stored) else {
            return Err(Lost::Gone);
        };
        match &self.tenure {
            Some(tenure) if token == stored && tenure.session == session => Ok(()),
            tenure => {
                let by = tenure.as_ref().map(|tenure| tenure.holder.clone());
                Err(Lost::Taken { by, token: stored })
            }
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

    fn quarantine(&mut self, above: Token, now: StoreTime) -> Answer {
        let Some(token) = Token::after(self.token) else {
            return Answer::TokenExhausted;
        };
        let token = max(token, above);
        self.token = Some(token);
        self.expires = now.plus(self.ttl.get());
        self.tenure = None;
        Answer::Bumped { token }
    }
}

impl Release {
    fn is_before(&self, stored: Token) -> bool {
        matches!(self, Release::Tenure { token, .. } if *token < stored)
    }
}

impl Answer {
    /// Whether the record that came with this answer differs from the one that went in, and so must be kept.
    pub fn changes(&self) -> bool {
        matches!(
            self,
            Answer::Granted(_) | Answer::Renewed { .. } | Answer::Released | Answer::Bumped { .. }
        )
    }
}
