//! Asking for a lease. Who finds it free takes it; who asks again is given a place in the queue, and holds when its key
//! is the oldest, but only once a step through Raft has shown that its key is still there (ET8).

use etcd_client::{Compare, CompareOp, PutOptions, Txn, TxnOp};
use leasehold_core::{Acquire, Answer, Grant, Held, Token};

use super::{
    CROWDED, Inner, TRIES, fault, keep,
    keys::{self, Keys},
    look::{Place, Standing, View},
    note::{self, Note},
};
use crate::StoreError;

impl Inner {
    pub(super) async fn acquire(&self, keys: &Keys, asked: &Acquire) -> Result<Answer, StoreError> {
        let id = keys::id(asked.session, asked.request_id);
        let own = keys.place(id);
        for _ in 0..TRIES {
            let view = self.view(keys, &own).await?;
            if let Some(answer) = self.again(&view, asked).await? {
                return Ok(answer);
            }
            let next = match (view.standing(), &view.own) {
                (Standing::Free, _) => self.take(&view, asked, id).await?,
                (Standing::Foreign(first), Some(own)) if first.key == own.key => {
                    self.claim(&view, own, asked).await?
                }
                (Standing::Quarantined(lease), _) => {
                    let hint = self.link.remaining(lease).await?;
                    Some(Answer::Quarantined { hint })
                }
                (Standing::Held(first, note), place) => {
                    self.queue(&view, place.as_ref(), first, asked, id).await?;
                    Some(self.held(&view, first, Some(note), asked).await?)
                }
                (Standing::Foreign(first), place) => {
                    self.queue(&view, place.as_ref(), first, asked, id).await?;
                    Some(self.held(&view, first, None, asked).await?)
                }
            };
            if let Some(answer) = next {
                return Ok(answer);
            }
        }
        Err(fault::unavailable(CROWDED))
    }

    /// L2.1, L2.2: this acquire had its grant before. `None`: it had not.
    async fn again(&self, view: &View, asked: &Acquire) -> Result<Option<Answer>, StoreError> {
        let is_it = |note: &Note| {
            let tenure = note.tenure.as_ref();
            tenure.is_some_and(|tenure| tenure.is_for(asked.session, asked.request_id))
        };
        if !view.note.as_ref().is_some_and(is_it) {
            return Ok(None);
        }
        let Standing::Held(place, note) = view.standing() else {
            return Ok(Some(Answer::AlreadyUsed));
        };
        let Some(token) = note.token().filter(|_| is_it(note)) else {
            return Ok(Some(Answer::AlreadyUsed));
        };
        Ok(Some(
            match self.extend(view, place, token, asked.session).await? {
                Some(seconds) => granted(token, seconds),
                None => Answer::AlreadyUsed,
            },
        ))
    }

    /// Nobody is there: key and note in one step. `None`: somebody was faster, or the world changed.
    async fn take(
        &self,
        view: &View,
        asked: &Acquire,
        id: i64,
    ) -> Result<Option<Answer>, StoreError> {
        let add = view.add();
        if note::token(view.revision + 1, add.0).is_none() {
            return Ok(Some(Answer::TokenExhausted));
        }
        let (seconds, by) = self.link.grant(id, keep::seconds(asked.ttl)).await?;
        let key = view.keys.place(id);
        let empty = Compare::create_revision(view.keys.folder(), CompareOp::Equal, 0)
            .with_range(view.keys.end());
        let mut when = view.unchanged(&self.prefix);
        when.push(empty);
        let place = TxnOp::put(
            key.clone(),
            asked.holder.as_str(),
            Some(PutOptions::new().with_lease(id)),
        );
        let mut note = Note::of(asked, &key, 0, add);
        note.ttl_ms = seconds * 1000;
        let note = self.put_note(view, note);
        let txn = Txn::new().when(when).and_then([place, note]);
        let answer = self.link.write(txn).await?;
        if !answer.succeeded() {
            // A place of ours that came meanwhile is bound to this lease, and stays.
            return Ok(None);
        }
        let (rev, term) = answer
            .header()
            .map_or((0, 0), |header| (header.revision(), header.raft_term()));
        match note::token(rev, add.0) {
            // An older etcd lease that was only kept alive, by one who may have been replaced: it is confirmed anew.
            Some(_) if by.is_some_and(|by| by != term) => Ok(None),
            Some(token) => {
                self.forget_place(id);
                Ok(Some(granted(token, seconds)))
            }
            None => {
                self.link.revoke(id).await?;
                Ok(Some(Answer::TokenExhausted))
            }
        }
    }

    /// Our key is the oldest. The lease is kept alive first, so that the ttl counts from a moment after this ask; then
    /// a step through Raft finds the key still there, or not (ET8).
    async fn claim(
        &self,
        view: &View,
        own: &Place,
        asked: &Acquire,
    ) -> Result<Option<Answer>, StoreError> {
        let Some(kept) = self.link.keep(own.lease).await? else {
            return Ok(None);
        };
        let add = view.add();
        let Some(token) = note::token(own.rev, add.0) else {
            self.link.revoke(own.lease).await?;
            return Ok(Some(Answer::TokenExhausted));
        };
        let mut when = view.unchanged(&self.prefix);
        when.extend(own.owns(&view.keys));
        let mut note = Note::of(asked, &own.key, own.rev, add);
        note.ttl_ms = kept.ttl * 1000;
        let txn = Txn::new().when(when).and_then([self.put_note(view, note)]);
        let answer = self.link.write(txn).await?;
        let term = answer.header().map_or(0, |header| header.raft_term());
        if !answer.succeeded() || term != kept.term {
            // With another leader the keep-alive may have been that of one who had been replaced.
            return Ok(None);
        }
        self.forget_place(own.lease);
        Ok(Some(granted(token, kept.ttl)))
    }

    /// Who asks a second time waits: it is given a place behind all others, and every further ask keeps that alive.
    async fn queue(
        &self,
        view: &View,
        place: Option<&Place>,
        first: &Place,
        asked: &Acquire,
        id: i64,
    ) -> Result<(), StoreError> {
        let before = match place {
            // From before a restore: it is worth nothing.
            Some(place) if place.rev <= view.line.since() => {
                return self.link.revoke(place.lease).await;
            }
            Some(place) => {
                if self.is_time_to_keep(place.lease, asked.ttl) {
                    self.link.keep(place.lease).await?;
                }
                self.before(view, place).await?
            }
            None if self.asks_again(id) => {
                self.link.grant(id, keep::seconds(asked.ttl)).await?;
                let key = view.keys.place(id);
                let none = Compare::create_revision(key.clone(), CompareOp::Equal, 0);
                let put = TxnOp::put(
                    key,
                    asked.holder.as_str(),
                    Some(PutOptions::new().with_lease(id)),
                );
                self.link
                    .write(Txn::new().when([none]).and_then([put]))
                    .await?;
                self.is_time_to_keep(id, asked.ttl);
                None
            }
            None => None,
        };
        self.watch(before.unwrap_or_else(|| first.key.clone()), view.revision);
        Ok(())
    }

    async fn held(
        &self,
        view: &View,
        first: &Place,
        note: Option<&Note>,
        asked: &Acquire,
    ) -> Result<Answer, StoreError> {
        let tenure = note.and_then(|note| note.tenure.as_ref());
        let token = note.map_or_else(|| view.token(first.rev), Note::token);
        let holder = tenure.map_or_else(|| first.holder(), |tenure| tenure.holder.clone());
        let info = tenure.map_or_else(|| first.info(), |tenure| tenure.info.clone());
        let hint = self.link.remaining(first.lease).await?;
        Ok(Answer::Held(Held {
            holder,
            info,
            token: token.unwrap_or(Token::MAX),
            hint: hint.max(keep::SOON),
            yours: tenure.is_some_and(|tenure| tenure.is_of(asked.session)),
        }))
    }
}

/// What etcd really gave, up to what a ttl can be.
fn granted(token: Token, seconds: u64) -> Answer {
    let ttl = keep::ttl(seconds);
    Answer::Granted(Grant {
        token,
        ttl,
        waited: std::time::Duration::ZERO,
    })
}
