//! How a lease stands, read in one linearizable step, and what that means. Nothing here changes anything.

use etcd_client::{
    Compare, CompareOp, GetOptions, KeyValue, SortOrder, SortTarget, Txn, TxnOp, TxnOpResponse,
};
use leasehold_core::{Holder, Info, Lost, Refusal, Session, State, Token};

use super::{
    fault,
    keys::{self, Keys},
    link::Link,
    note::{self, Line, Note},
};
use crate::StoreError;

/// One lease at one revision.
#[derive(Debug)]
pub(super) struct View {
    pub(super) keys: Keys,
    pub(super) line: Line,
    pub(super) note: Option<Note>,
    /// The oldest of all who hold or wait: it holds.
    pub(super) first: Option<Place>,
    /// The one that was asked for.
    pub(super) own: Option<Place>,
    /// Nobody may have anything: the lease of this key keeps all out.
    pub(super) closed: Option<i64>,
    pub(super) revision: i64,
    pub(super) term: u64,
}

/// A key of one who holds or waits.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) key: String,
    pub(super) rev: i64,
    /// The etcd lease that it is bound to.
    pub(super) lease: i64,
    value: Vec<u8>,
}

/// Whose it is.
#[derive(Debug)]
pub(super) enum Standing<'a> {
    Free,
    /// A tenure that this store granted.
    Held(&'a Place, &'a Note),
    /// Another program's, or one that is next and does not know yet.
    Foreign(&'a Place),
    /// Nobody's, until this etcd lease ends.
    Quarantined(i64),
}

impl View {
    /// Reads it; `own` is the key to look at beside the oldest. `None`: the line is that of another cluster.
    pub(super) async fn read(
        link: &Link,
        prefix: &str,
        keys: &Keys,
        own: &str,
    ) -> Result<Option<Self>, StoreError> {
        let get = |key: String| TxnOp::get(key, None);
        let oldest = GetOptions::new()
            .with_range(keys.end())
            .with_sort(SortTarget::Create, SortOrder::Ascend)
            .with_limit(1);
        let txn = Txn::new().and_then([
            get(keys::line(prefix)),
            get(keys::quarantine(prefix)),
            get(keys.note()),
            get(own.to_owned()),
            TxnOp::get(keys.folder(), Some(oldest)),
        ]);
        let mut client = link.client();
        let answer = link.read(client.txn(txn)).await?;
        let header = answer
            .header()
            .ok_or_else(|| fault::unavailable("etcd answered without a header"))?;
        let mut found = answer
            .op_responses()
            .into_iter()
            .map(|response| match response {
                TxnOpResponse::Get(mut got) => got.take_kvs().into_iter().next(),
                _ => None,
            });
        let mut next = || found.next().flatten();
        let (line, closed, note, own, first) = (next(), next(), next(), next(), next());
        let line = match line {
            Some(kv) => Line::read(&keys::line(prefix), kv.value(), kv.mod_revision())?,
            None => Line::first(header.cluster_id()),
        };
        if line.cluster != header.cluster_id() {
            return Ok(None);
        }
        Ok(Some(Self {
            keys: keys.clone(),
            line,
            note: note
                .map(|kv| Note::read(&keys.note(), kv.value(), kv.mod_revision()))
                .transpose()?,
            first: first.map(Place::of),
            own: own.map(Place::of),
            closed: closed.map(|kv| kv.lease()),
            revision: header.revision(),
            term: header.raft_term(),
        }))
    }

    /// Whose the lease is.
    pub(super) fn standing(&self) -> Standing<'_> {
        if let Some(lease) = self.closed {
            return Standing::Quarantined(lease);
        }
        let Some(first) = &self.first else {
            return Standing::Free;
        };
        if first.rev <= self.line.since() {
            return Standing::Quarantined(first.lease);
        }
        match self.note() {
            Some(note) if note.key == first.key && note.rev() == first.rev => match &note.tenure {
                Some(_) => Standing::Held(first, note),
                None => Standing::Quarantined(first.lease),
            },
            _ => Standing::Foreign(first),
        }
    }

    /// The note, unless it is from before a restore or a bump.
    fn note(&self) -> Option<&Note> {
        self.note
            .as_ref()
            .filter(|note| note.written > self.line.since())
    }

    /// What is added to a revision to make it a token of this lease, and the lease's own part of it.
    pub(super) fn add(&self) -> (u64, u64) {
        let lift = self.note.as_ref().map_or(0, |note| note.lift);
        (self.line.offset.saturating_add(lift), lift)
    }

    pub(super) fn token(&self, rev: i64) -> Option<Token> {
        note::token(rev, self.add().0)
    }

    /// The largest token that somebody was told, and who.
    pub(super) fn newest(&self) -> (Option<Token>, Option<Holder>) {
        match self.standing() {
            Standing::Foreign(place) => (self.token(place.rev), Some(place.holder())),
            _ => match (&self.note, self.note()) {
                (_, Some(note)) => (
                    note.token(),
                    note.tenure.as_ref().map(|tenure| tenure.holder.clone()),
                ),
                (Some(_), None) => (note::token(self.line.since(), self.line.offset), None),
                (None, None) => (None, None),
            },
        }
    }

    /// Why whoever shows this token and session does not hold (L4, L5).
    pub(super) fn lost(&self, token: Token, session: Session) -> Lost {
        let (stored, by) = self.newest();
        let Some(stored) = stored else {
            return Lost::Gone;
        };
        if token != stored {
            return match token < stored {
                true => Lost::Taken { by, token: stored },
                false => Lost::Gone,
            };
        }
        match self.note().and_then(|note| note.tenure.as_ref()) {
            Some(tenure) if !tenure.is_of(session) => Lost::Taken { by, token },
            Some(tenure) if tenure.released => Lost::Released,
            Some(_) => Lost::Expired,
            None => Lost::Gone,
        }
    }

    /// Whether this token and session hold; at which place.
    pub(super) fn held_by(&self, token: Token, session: Session) -> Option<(&Place, &Note)> {
        match self.standing() {
            Standing::Held(place, note)
                if note.token() == Some(token)
                    && note
                        .tenure
                        .as_ref()
                        .is_some_and(|tenure| tenure.is_of(session)) =>
            {
                Some((place, note))
            }
            _ => None,
        }
    }

    /// What a transaction of the holder of `token` compares (F24), or why it does not hold.
    pub(super) fn proof(&self, token: Token) -> Result<Vec<Compare>, Refusal> {
        if let Standing::Held(place, note) = self.standing()
            && note.token() == Some(token)
        {
            return Ok(place.owns(&self.keys).to_vec());
        }
        let tenure = self.note().and_then(|note| note.tenure.as_ref());
        Err(match self.newest().0 {
            Some(highest) if token < highest => Refusal::Stale { token, highest },
            Some(highest) if token == highest && tenure.is_some_and(|tenure| tenure.released) => {
                Refusal::Released { token }
            }
            Some(highest) if token == highest => Refusal::Expired { token },
            _ => Refusal::NeverIssued { token },
        })
    }

    /// That nothing which was read here has changed but who waits.
    pub(super) fn unchanged(&self, prefix: &str) -> Vec<Compare> {
        let same = |key: String, rev| Compare::mod_revision(key, CompareOp::Equal, rev);
        vec![
            same(keys::line(prefix), self.line.written),
            same(
                self.keys.note(),
                self.note.as_ref().map_or(0, |note| note.written),
            ),
            Compare::create_revision(keys::quarantine(prefix), CompareOp::Equal, 0),
        ]
    }

    pub(super) fn state(&self) -> State {
        match self.standing() {
            Standing::Free => State::Free,
            Standing::Held(..) | Standing::Foreign(_) => State::Held,
            Standing::Quarantined(_) => State::Quarantined,
        }
    }
}

impl Place {
    fn of(kv: KeyValue) -> Self {
        Self {
            rev: kv.create_revision(),
            lease: kv.lease(),
            key: String::from_utf8_lossy(kv.key()).into_owned(),
            value: kv.value().to_vec(),
        }
    }

    /// What an Election's candidate says of itself; a Mutex says nothing, and is known by its key.
    pub(super) fn holder(&self) -> Holder {
        let said = std::str::from_utf8(&self.value).ok();
        said.and_then(|text| Holder::new(text).ok())
            .or_else(|| Holder::new(self.key.rsplit('/').next()?).ok())
            .unwrap_or_else(|| Holder::new("another program").expect("a plain text"))
    }

    /// Where a foreign holder was found.
    pub(super) fn info(&self) -> Option<Info> {
        Info::new(&format!("etcd key {}", self.key)).ok()
    }

    /// That it is the same key still.
    pub(super) fn is_there(&self) -> Compare {
        Compare::create_revision(self.key.clone(), CompareOp::Equal, self.rev)
    }

    /// F24, A11: true for the owner, false for one who waits and for one whose key is gone.
    pub(super) fn owns(&self, keys: &Keys) -> [Compare; 2] {
        owns(&self.key, self.rev, keys)
    }
}

/// See [`Place::owns`].
pub(super) fn owns(key: &str, rev: i64, keys: &Keys) -> [Compare; 2] {
    [
        Compare::create_revision(key, CompareOp::Equal, rev),
        Compare::create_revision(keys.folder(), CompareOp::Greater, rev - 1).with_range(keys.end()),
    ]
}
