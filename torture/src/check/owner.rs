//! Who was granted which token, as far as answers say.
//!
//! The one rule: a token belongs to one pair of session and request id, and a pair has one token, or more only if others
//! had the lease in between (A4).

use std::collections::{BTreeMap, BTreeSet};

use crate::history::{Call, Op, Outcome, Stamp};

/// A session and a request id: one logical acquire.
pub(super) type Pair<'h> = (&'h str, &'h str);

/// The owner of a token.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner<'c, 'h> {
    pub(super) session: &'h str,
    pub(super) request: &'h str,
    /// Its first ask that can have been granted this token.
    pub(super) asked: Stamp,
    /// The first answer that names the owner.
    pub(super) op: &'c Op<'h>,
}

/// The owners of all tokens whose grant was answered.
#[derive(Debug, Default)]
pub(super) struct Owners<'c, 'h> {
    tokens: BTreeMap<u64, Owner<'c, 'h>>,
    pairs: BTreeMap<Pair<'h>, Asks>,
}

/// What is known of the asks of one pair.
#[derive(Debug, Default)]
pub(super) struct Asks {
    pub(super) tokens: BTreeSet<u64>,
    /// The first that was granted.
    pub(super) granted: Option<Stamp>,
    /// The first without an answer.
    pub(super) unknown: Option<Stamp>,
    /// The first that failed.
    pub(super) failed: Option<Stamp>,
}

impl<'h> Owner<'_, 'h> {
    pub(super) fn pair(&self) -> Pair<'h> {
        (self.session, self.request)
    }
}

impl<'c, 'h> Owners<'c, 'h> {
    /// Notes what `op` says about owners; in the order of invocation.
    ///
    /// # Errors
    /// The token and the first grant, if it was granted to somebody else before.
    pub(super) fn add(&mut self, op: &'c Op<'h>) -> Result<(), (u64, &'c Op<'h>)> {
        let Call::Acquire { request, .. } = op.call else {
            return Ok(());
        };
        let asks = self.pairs.entry((op.session, request)).or_default();
        match op.outcome {
            Outcome::Granted { token, .. } => {
                let new = Owner {
                    session: op.session,
                    request,
                    asked: op.invoked,
                    op,
                };
                let owner = self.tokens.entry(*token).or_insert(new);
                if owner.pair() != new.pair() {
                    return Err((*token, owner.op));
                }
                asks.tokens.insert(*token);
                asks.granted = asks.granted.or(Some(op.invoked));
            }
            Outcome::Unknown => asks.unknown = asks.unknown.or(Some(op.invoked)),
            Outcome::Failed => asks.failed = asks.failed.or(Some(op.invoked)),
            _ => {}
        }
        Ok(())
    }

    /// Dates each token back to the first ask of its owner that can have been granted it.
    pub(super) fn date(&mut self) {
        for owner in self.tokens.values_mut() {
            if let Some(asked) = self.pairs.get(&owner.pair()).and_then(|asks| asks.unknown) {
                owner.asked = owner.asked.min(asked);
            }
        }
    }

    pub(super) fn get(&self, token: u64) -> Option<&Owner<'c, 'h>> {
        self.tokens.get(&token)
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, &Owner<'c, 'h>)> {
        self.tokens.iter().map(|(token, owner)| (*token, owner))
    }

    /// The token that is known to have been granted to this pair, if it is one.
    pub(super) fn only_token(&self, pair: Pair<'_>) -> Option<u64> {
        let tokens = &self.pairs.get(&pair)?.tokens;
        tokens.first().copied().filter(|_| tokens.len() == 1)
    }

    /// The only token that this pair can have had.
    pub(super) fn certain_token(&self, pair: Pair<'_>) -> Option<u64> {
        self.only_token(pair)
            .filter(|_| self.pairs.get(&pair).is_some_and(|a| a.unknown.is_none()))
    }

    /// The tokens whose tenure this release ends, if it is applied.
    pub(super) fn released_by(&self, op: &Op<'_>) -> Vec<u64> {
        if !matches!(op.call, Call::Release { .. }) {
            return Vec::new();
        }
        match (op.undoes(), op.token()) {
            (Some(request), _) => {
                let asks = self.pairs.get(&(op.session, request));
                asks.map_or(Vec::new(), |asks| asks.tokens.iter().copied().collect())
            }
            (None, Some(token)) => {
                let own = self
                    .get(token)
                    .is_some_and(|owner| owner.session == op.session);
                own.then_some(token).into_iter().collect()
            }
            (None, None) => Vec::new(),
        }
    }

    /// Whether an acquire of the same pair had failed by then, so that its effect shows.
    pub(super) fn failed_before(&self, op: &Op<'_>, end: Stamp) -> bool {
        let asks = op
            .request()
            .and_then(|request| self.pairs.get(&(op.session, request)));
        asks.and_then(|asks| asks.failed)
            .is_some_and(|failed| failed < end)
    }

    /// How many tokens have a known owner.
    pub(super) fn len(&self) -> usize {
        self.tokens.len()
    }

    /// What is known of all pairs.
    pub(super) fn pairs(&self) -> &BTreeMap<Pair<'h>, Asks> {
        &self.pairs
    }

    /// The next smaller or larger token whose owner is known.
    pub(super) fn neighbour(&self, token: u64, above: bool) -> Option<(u64, Pair<'h>)> {
        let found = match above {
            true => self.tokens.range(token.saturating_add(1)..).next(),
            false => self.tokens.range(..token).next_back(),
        };
        found.map(|(token, owner)| (*token, owner.pair()))
    }
}
