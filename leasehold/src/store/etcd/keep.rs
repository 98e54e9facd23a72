//! Keeping a lease. A keep-alive is answered from one member's memory (ET3), so it counts only once a linearizable read
//! has found the key still there and the same leader in office; with `renew=raft` it is a step through Raft (ET4).

use std::time::Duration;

use etcd_client::{PutOptions, Txn, TxnOp};
use leasehold_core::{Answer, Lost, Renew, Session, Token, Ttl};

use super::{
    CROWDED, Inner, TRIES,
    address::Renewal,
    fault,
    keys::Keys,
    look::{Place, View},
};
use crate::StoreError;

/// No hint is shorter: zero means that somebody is dead (A20).
pub(super) const SOON: Duration = Duration::from_millis(1);

/// etcd counts in whole seconds; a lease never lasts less than was asked.
pub(super) fn seconds(ttl: Ttl) -> u64 {
    u64::from(ttl.as_millis()).div_ceil(1000)
}

/// What etcd gave, as a ttl.
pub(super) fn ttl(seconds: u64) -> Ttl {
    Ttl::new(Duration::from_secs(seconds)).unwrap_or(Ttl::MAX)
}

impl Inner {
    pub(super) async fn renew(&self, keys: &Keys, asked: &Renew) -> Result<Answer, StoreError> {
        for _ in 0..TRIES {
            let view = self.view(keys, &keys.note()).await?;
            let Some((place, note)) = view.held_by(asked.token, asked.session) else {
                return Ok(Answer::Lost(view.lost(asked.token, asked.session)));
            };
            let longer = seconds(asked.ttl) * 1000 > note.ttl_ms;
            if self.renewal == Renewal::Raft || longer {
                match self.replace(&view, place, asked).await? {
                    Some(answer) => return Ok(answer),
                    None => continue,
                }
            }
            return Ok(
                match self
                    .extend(&view, place, asked.token, asked.session)
                    .await?
                {
                    Some(seconds) => Answer::Renewed { ttl: ttl(seconds) },
                    None => {
                        let view = self.view(keys, &keys.note()).await?;
                        Answer::Lost(match view.held_by(asked.token, asked.session) {
                            // Its etcd lease is over; the key will follow.
                            Some(_) => Lost::Expired,
                            None => view.lost(asked.token, asked.session),
                        })
                    }
                },
            );
        }
        Err(fault::unknown(CROWDED))
    }

    /// Keeps the lease of `place` alive, and has it confirmed; answers for how long. `None`: it is over.
    pub(super) async fn extend(
        &self,
        view: &View,
        place: &Place,
        token: Token,
        session: Session,
    ) -> Result<Option<u64>, StoreError> {
        for _ in 0..TRIES {
            let Some(kept) = self.link.keep(place.lease).await? else {
                return Ok(None);
            };
            let after = self
                .view(&view.keys, &view.keys.note())
                .await
                .map_err(doubt)?;
            match after.held_by(token, session) {
                None => return Ok(None),
                // Its lease was replaced meanwhile, by a renewal that was longer on its way.
                Some((now, _)) if now.lease != place.lease => {
                    return Err(fault::unknown("two renewals at once"));
                }
                Some(_) if after.term == kept.term => return Ok(Some(kept.ttl)),
                // Whoever answered may have been replaced before (ET3).
                Some(_) => {}
            }
        }
        Err(fault::unknown(
            "the leader of etcd changes while a lease is kept alive",
        ))
    }

    /// ET4: the key is bound to a new etcd lease in a step that compares. `None`: the world changed, look again.
    async fn replace(
        &self,
        view: &View,
        place: &Place,
        asked: &Renew,
    ) -> Result<Option<Answer>, StoreError> {
        let Some(mut note) = view.note.as_ref().map(super::note::Note::again) else {
            return Ok(None);
        };
        let fits = note
            .tenure
            .as_mut()
            .is_some_and(|tenure| tenure.count(asked.number, asked.renew_id));
        if !fits && self.renewal == Renewal::Raft {
            return Ok(Some(Answer::Lost(Lost::SeqMismatch)));
        }
        // Never lower than what was promised (A2).
        let wanted = seconds(asked.ttl).max(note.ttl_ms / 1000);
        let id = super::random_id()?;
        let (given, _) = self.link.grant(id, wanted).await?;
        note.ttl_ms = given * 1000;
        let holder = note
            .tenure
            .as_ref()
            .map(|tenure| tenure.holder.as_str().to_owned());
        let mut when = view.unchanged(&self.prefix);
        when.extend(place.owns(&view.keys));
        let bound = PutOptions::new().with_lease(id);
        let put = TxnOp::put(place.key.clone(), holder.unwrap_or_default(), Some(bound));
        let txn = Txn::new()
            .when(when)
            .and_then([put, self.put_note(view, note)]);
        let done = self.link.write(txn).await?.succeeded();
        // What is left over holds nothing and ends by itself.
        let _ = self.link.revoke(if done { place.lease } else { id }).await;
        Ok(done.then_some(Answer::Renewed { ttl: ttl(given) }))
    }
}

/// The keep-alive went out: a read that failed after it leaves the outcome open.
fn doubt(error: StoreError) -> StoreError {
    match error {
        StoreError::Unavailable { what } => StoreError::Unknown { what },
        other => other,
    }
}
