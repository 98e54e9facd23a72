//! Giving a lease back, and taking it away. Both compare before they delete: what has a new holder is not touched (ET7).

use etcd_client::{DeleteOptions, PutOptions, Txn, TxnOp};
use leasehold_core::{Answer, Lost, Release, Token};

use super::{
    CROWDED, Inner, TRIES, fault,
    keys::{self, Keys},
    look::{Place, Standing, View},
    note::Note,
};
use crate::StoreError;

impl Inner {
    pub(super) async fn release(&self, keys: &Keys, asked: &Release) -> Result<Answer, StoreError> {
        for _ in 0..TRIES {
            let own = match *asked {
                Release::Tenure { .. } => keys.note(),
                Release::Request {
                    session,
                    request_id,
                } => keys.place(keys::id(session, request_id)),
            };
            let view = self.view(keys, &own).await?;
            let held = match *asked {
                Release::Tenure { token, session } => {
                    view.held_by(token, session).map(|(place, _)| place)
                }
                Release::Request {
                    session,
                    request_id,
                } => match view.standing() {
                    Standing::Held(place, note)
                        if note
                            .tenure
                            .as_ref()
                            .is_some_and(|tenure| tenure.is_for(session, request_id)) =>
                    {
                        Some(place)
                    }
                    _ => None,
                },
            };
            let Some(place) = held else {
                return self.nothing_held(&view, asked).await;
            };
            if self.give_back(&view, place).await? {
                return Ok(Answer::Released);
            }
        }
        Err(fault::unavailable(CROWDED))
    }

    /// Whether nothing changed in between.
    async fn give_back(&self, view: &View, place: &Place) -> Result<bool, StoreError> {
        let Some(mut note) = view.note.as_ref().map(Note::again) else {
            return Ok(false);
        };
        if let Some(tenure) = &mut note.tenure {
            tenure.released = true;
        }
        let mut when = view.unchanged(&self.prefix);
        when.extend(place.owns(&view.keys));
        let txn = Txn::new().when(when).and_then([
            TxnOp::delete(place.key.clone(), None),
            self.put_note(view, note),
        ]);
        match self.link.write(txn).await {
            Ok(answer) if !answer.succeeded() => return Ok(false),
            Ok(_) => {
                let _ = self.link.revoke(place.lease).await;
            }
            // A full etcd takes no notes, but it can end the lease, and with it the key (ET11).
            Err(StoreError::Unavailable { .. }) => self.link.revoke(place.lease).await?,
            Err(error) => return Err(error),
        }
        self.freed();
        Ok(true)
    }

    async fn nothing_held(&self, view: &View, asked: &Release) -> Result<Answer, StoreError> {
        let (token, session) = match *asked {
            Release::Tenure { token, session } => (token, session),
            Release::Request { .. } => {
                if let Some(own) = &view.own {
                    self.link.revoke(own.lease).await?;
                    self.forget_place(own.lease);
                }
                return Ok(Answer::AlreadyOver);
            }
        };
        let newest = view.newest().0;
        Ok(match view.lost(token, session) {
            Lost::Expired | Lost::Released => Answer::AlreadyOver,
            _ if newest > Some(token) => Answer::AlreadyOver,
            Lost::Gone if newest == Some(token) => Answer::AlreadyOver,
            lost => Answer::Lost(lost),
        })
    }

    /// A21: the token is burnt at once; others get the lease when the old promise is over, or with `now` at once.
    pub(super) async fn force(&self, keys: &Keys, now: bool) -> Result<Answer, StoreError> {
        for _ in 0..TRIES {
            let view = self.view(keys, &keys.note()).await?;
            let first = match (view.standing(), &view.first) {
                (Standing::Free, _) => return Ok(Answer::AlreadyOver),
                (_, None) => {
                    return Err(fault::unavailable(
                        "etcd was restored, and every lease is in quarantine",
                    ));
                }
                (_, Some(first)) => first,
            };
            let wait = match now {
                true => None,
                false => Some(self.link.remaining(first.lease).await?.as_secs() + 1),
            };
            if let Some(answer) = self.take_away(&view, wait, None).await? {
                return Ok(answer);
            }
        }
        Err(fault::unavailable(CROWDED))
    }

    /// T6, for one lease.
    pub(super) async fn quarantine(&self, keys: &Keys, above: Token) -> Result<Answer, StoreError> {
        for _ in 0..TRIES {
            let view = self.view(keys, &keys.note()).await?;
            let promised = match &view.first {
                Some(first) => self.link.remaining(first.lease).await?.as_secs() + 1,
                None => 0,
            };
            let stored = view.note.as_ref().map_or(15_000, |note| note.ttl_ms);
            let wait = promised.max(stored.div_ceil(1000));
            if let Some(answer) = self.take_away(&view, Some(wait), Some(above)).await? {
                return Ok(answer);
            }
        }
        Err(fault::unavailable(CROWDED))
    }

    /// Everybody's key goes, those of the waiting too: their tokens would be smaller than the burnt one. For `wait`
    /// seconds a key that is nobody's keeps all others out. `None`: the world changed.
    async fn take_away(
        &self,
        view: &View,
        wait: Option<u64>,
        above: Option<Token>,
    ) -> Result<Option<Answer>, StoreError> {
        let (add, lift) = view.add();
        let natural = view.token(view.revision + 1);
        let Some(natural) = natural else {
            return Ok(Some(Answer::TokenExhausted));
        };
        let above = above.filter(|above| *above > natural);
        let lifted = above.map_or(0, |above| above.get() - natural.get());
        let (folder, end) = (view.keys.folder(), view.keys.end());
        let (mut ops, mut key) = (Vec::new(), String::new());
        let erase = |from: String, to: String| {
            TxnOp::delete(from, Some(DeleteOptions::new().with_range(to)))
        };
        match wait {
            Some(wait) => {
                let id = super::random_id()?;
                self.link.grant(id, wait).await?;
                key = view.keys.place(id);
                ops.push(erase(folder, key.clone()));
                ops.push(erase(format!("{key}\0"), end));
                ops.push(TxnOp::put(
                    key.clone(),
                    "",
                    Some(PutOptions::new().with_lease(id)),
                ));
            }
            None => ops.push(erase(folder, end)),
        }
        let ttl_ms = view.note.as_ref().map_or(15_000, |note| note.ttl_ms);
        let burnt = above.map(Token::get);
        let note = Note::nobody(&key, add + lifted, lift + lifted, burnt, ttl_ms);
        ops.push(self.put_note(view, note));
        let mut when = view.unchanged(&self.prefix);
        // Whoever came meanwhile is not meant.
        when.extend(view.first.as_ref().map(Place::is_there));
        let answer = self.link.write(Txn::new().when(when).and_then(ops)).await?;
        if !answer.succeeded() {
            return Ok(None);
        }
        self.freed();
        let rev = answer.header().map_or(0, |header| header.revision());
        let token = above
            .or_else(|| super::note::token(rev, add))
            .unwrap_or(Token::MAX);
        Ok(Some(Answer::Bumped { token }))
    }
}
