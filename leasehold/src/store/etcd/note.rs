//! What the store remembers of a lease beside the key that is gone when the tenure is over: who had the last one, so
//! that a late duplicate gets nothing (L2.2) and a loss has its reason.

use std::num::NonZeroU128;

use leasehold_core::{Acquire, Holder, Info, RenewId, RequestId, Session, Token};
use serde::{Deserialize, Serialize};

use super::fault::unavailable;
use crate::StoreError;

/// Beside each lease.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Note {
    /// The key of the tenure; of a quarantine, the key that keeps everybody out.
    pub(super) key: String,
    /// When that key was made; 0: in the step that wrote this note.
    rev: i64,
    /// What is added to a revision to make it a token.
    add: u64,
    /// The part of it that belongs to this lease (T6).
    pub(super) lift: u64,
    /// The token, if it is no revision.
    burnt: Option<u64>,
    pub(super) tenure: Option<Tenure>,
    pub(super) ttl_ms: u64,
    pub(super) at_ms: u64,
    /// When this note was written; not in its text.
    #[serde(skip)]
    pub(super) written: i64,
}

/// See [`Note`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Tenure {
    session: Hex,
    request_id: Hex,
    pub(super) holder: Holder,
    pub(super) info: Option<Info>,
    pub(super) released: bool,
    pub(super) renewals: u64,
    renew_id: Option<Hex>,
}

/// 128 bits as text: JSON numbers are shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
struct Hex(NonZeroU128);

impl From<Hex> for String {
    fn from(hex: Hex) -> Self {
        format!("{:032x}", hex.0)
    }
}

impl TryFrom<String> for Hex {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let bits = u128::from_str_radix(&text, 16)
            .ok()
            .and_then(NonZeroU128::new);
        bits.map(Self).ok_or("an id is 32 hex digits, not all zero")
    }
}

fn hex(bits: u128) -> Hex {
    Hex(NonZeroU128::new(bits).expect("an id is not zero"))
}

impl Tenure {
    fn of(asked: &Acquire) -> Self {
        Self {
            session: hex(asked.session.bits()),
            request_id: hex(asked.request_id.bits()),
            holder: asked.holder.clone(),
            info: asked.info.clone(),
            released: false,
            renewals: 0,
            renew_id: None,
        }
    }

    pub(super) fn is_of(&self, session: Session) -> bool {
        self.session == hex(session.bits())
    }

    pub(super) fn is_for(&self, session: Session, request_id: RequestId) -> bool {
        self.is_of(session) && self.request_id == hex(request_id.bits())
    }

    /// Shown to tell holders of one name apart.
    pub(super) fn fingerprint(&self) -> Option<u32> {
        Session::from_bits(self.session.0.get()).map(Session::fingerprint)
    }

    /// A3; whether the number and the id fit.
    pub(super) fn count(&mut self, number: u64, renew_id: RenewId) -> bool {
        let id = Some(hex(renew_id.bits()));
        if number.checked_sub(1) == Some(self.renewals) {
            self.renewals = number;
            self.renew_id = id;
            return true;
        }
        self.renewals == number && self.renew_id == id
    }
}

impl Note {
    /// A tenure at `key`, which was made at `rev`, or is with this note.
    pub(super) fn of(asked: &Acquire, key: &str, rev: i64, (add, lift): (u64, u64)) -> Self {
        Self {
            key: key.to_owned(),
            rev,
            add,
            lift,
            burnt: None,
            tenure: Some(Tenure::of(asked)),
            ttl_ms: u64::from(asked.ttl.as_millis()),
            at_ms: 0,
            written: 0,
        }
    }

    /// Nobody's: `key` keeps everybody out as long as it is there.
    pub(super) fn nobody(key: &str, add: u64, lift: u64, burnt: Option<u64>, ttl_ms: u64) -> Self {
        Self {
            key: key.to_owned(),
            rev: 0,
            add,
            lift,
            burnt,
            tenure: None,
            ttl_ms,
            at_ms: 0,
            written: 0,
        }
    }

    /// Reads what another process wrote.
    pub(super) fn read(key: &str, text: &[u8], written: i64) -> Result<Self, StoreError> {
        let note: Self = serde_json::from_slice(text).map_err(|error| {
            unavailable(format!(
                "the note at {key} is damaged ({error}): if nobody holds the lease, delete it with `etcdctl del`"
            ))
        })?;
        Ok(Self { written, ..note })
    }

    pub(super) fn text(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a note has only strings and numbers")
    }

    /// The same tenure, to be written again: its key was made at a revision that is known now.
    pub(super) fn again(&self) -> Self {
        Self {
            rev: self.rev(),
            ..self.clone()
        }
    }

    /// When its key was made.
    pub(super) fn rev(&self) -> i64 {
        if self.rev == 0 {
            self.written
        } else {
            self.rev
        }
    }

    /// The token it stands for.
    pub(super) fn token(&self) -> Option<Token> {
        match self.burnt {
            Some(token) => Token::new(token).ok(),
            None => token(self.rev(), self.add),
        }
    }
}

/// A revision as a token; `None` if there is none so large.
pub(super) fn token(rev: i64, add: u64) -> Option<Token> {
    let number = rev.unsigned_abs().checked_add(add)?;
    Token::new(number).ok()
}

/// Which cluster wrote all this. Another one was restored from a copy (ET10, T7).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Line {
    pub(super) cluster: u64,
    /// What is added to every revision, so that tokens go on above all that were issued.
    pub(super) offset: u64,
    /// Keys that are older than this line belong to nobody.
    cuts: bool,
    #[serde(skip)]
    pub(super) written: i64,
}

impl Line {
    pub(super) fn first(cluster: u64) -> Self {
        Self {
            cluster,
            offset: 0,
            cuts: false,
            written: 0,
        }
    }

    pub(super) fn cut(cluster: u64, offset: u64) -> Self {
        Self {
            cluster,
            offset,
            cuts: true,
            written: 0,
        }
    }

    pub(super) fn read(key: &str, text: &[u8], written: i64) -> Result<Self, StoreError> {
        let line: Self = serde_json::from_slice(text).map_err(|error| {
            unavailable(format!(
                "the key {key} is damaged ({error}): put it back, or no token can be told"
            ))
        })?;
        Ok(Self { written, ..line })
    }

    pub(super) fn text(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a line has only numbers")
    }

    /// Whatever is not newer than this is over.
    pub(super) fn since(&self) -> i64 {
        if self.cuts { self.written } else { 0 }
    }
}
