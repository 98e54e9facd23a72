//! How far a lease has come, and what answers say about it.
//!
//! The one rule: an answer speaks of some moment between its call and its return, so what it shows to have happened had
//! happened by the return, and what it shows not to have happened had not happened at the call.

use crate::history::{Op, Stamp};

/// How far a lease has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) token: u64,
    pub(super) over: bool,
}

/// By `at` the lease had come to `place`.
pub(super) struct Proof<'c, 'h> {
    pub(super) at: Stamp,
    pub(super) place: Place,
    pub(super) op: &'c Op<'h>,
}

/// At `at` the lease had not yet come past `place`.
pub(super) struct Claim<'c, 'h> {
    pub(super) at: Stamp,
    pub(super) place: Place,
    pub(super) op: &'c Op<'h>,
    /// It is about the first moment the token can have been granted.
    pub(super) first: bool,
}

/// By when each token is known to have been granted.
pub(super) struct Reached(Vec<(u64, Stamp)>);

impl Reached {
    pub(super) fn new(proofs: &[Proof<'_, '_>]) -> Self {
        let mut times: Vec<_> = proofs
            .iter()
            .map(|proof| (proof.place.token, proof.at))
            .collect();
        times.sort_unstable();
        let mut earliest = Stamp {
            time: u64::MAX,
            seq: usize::MAX,
        };
        for (_, at) in times.iter_mut().rev() {
            earliest = earliest.min(*at);
            *at = earliest;
        }
        Self(times)
    }

    /// The first return that proves that `token` or a larger one had been granted.
    pub(super) fn by(&self, token: u64) -> Option<Stamp> {
        let next = self.0.partition_point(|&(other, _)| other < token);
        self.0.get(next).map(|entry| entry.1)
    }

    /// The largest token that some answer names.
    pub(super) fn largest(&self) -> u64 {
        self.0.last().map_or(0, |entry| entry.0)
    }

    /// The tokens that some answer names, smallest first.
    pub(super) fn tokens(&self) -> impl Iterator<Item = u64> {
        let mut tokens: Vec<_> = self
            .0
            .iter()
            .map(|entry| entry.0)
            .filter(|&t| t > 0)
            .collect();
        tokens.dedup();
        tokens.into_iter()
    }

    /// Whether some answer names a token strictly between the two.
    pub(super) fn tokens_between(&self, one: u64, two: u64) -> bool {
        let next = self.0.partition_point(|&(other, _)| other <= one);
        self.0.get(next).is_some_and(|entry| entry.0 < two)
    }
}

/// Where a lease can have been at each moment.
pub(super) struct Course {
    /// By the moment, at least there; later ones say more.
    proofs: Vec<(Stamp, Place)>,
    /// At the moment, at most there; earlier ones say more.
    claims: Vec<(Stamp, Place)>,
}

impl Course {
    pub(super) fn new(proofs: &[Proof<'_, '_>], claims: &[Claim<'_, '_>]) -> Self {
        let mut proofs: Vec<_> = proofs.iter().map(|p| (p.at, p.place)).collect();
        proofs.sort_unstable();
        let mut furthest = Place {
            token: 0,
            over: true,
        };
        for (_, place) in &mut proofs {
            furthest = furthest.max(*place);
            *place = furthest;
        }
        let mut claims: Vec<_> = claims.iter().map(|c| (c.at, c.place)).collect();
        claims.sort_unstable();
        let mut nearest = Place {
            token: u64::MAX,
            over: true,
        };
        for (_, place) in claims.iter_mut().rev() {
            nearest = nearest.min(*place);
            *place = nearest;
        }
        Self { proofs, claims }
    }

    /// From where to where the lease can have been when this was answered.
    pub(super) fn during(&self, op: &Op<'_>) -> (Place, Place) {
        let before = self.proofs.partition_point(|(at, _)| *at < op.invoked);
        let after = self.claims.partition_point(|(at, _)| *at < op.end());
        let from = before.checked_sub(1).map_or(
            Place {
                token: 0,
                over: true,
            },
            |i| self.proofs[i].1,
        );
        let to = self.claims.get(after).map_or(
            Place {
                token: u64::MAX,
                over: true,
            },
            |c| c.1,
        );
        (from, to)
    }
}
