//! The order of tokens: INV-1, 2, 3, 5 to 10, 13, L2, L4, L11, T2, for one lease and without time.
//!
//! A lease only moves forward: token 1 live, token 1 over, token 2 live, and so on. An answer proves how far it had come
//! by the return ([`Proof`]), and how far it had not come at the call ([`Claim`]). A history can be put in order if and
//! only if no proof returned before the call of a claim that it is ahead of; one sweep finds such pairs.

use super::owner::{Owner, Owners};
use super::place::{Claim, Course, Place, Proof, Reached};
use super::{Case, Finding, TOKEN_MAX, line, silent};
use crate::history::{Change, Op, Outcome};

/// Checks one lease and returns the owners of its tokens for the timed checks.
pub(super) fn check<'c, 'h>(
    case: &Case<'h>,
    lease: &str,
    ops: &[&'c Op<'h>],
    findings: &mut Vec<Finding>,
) -> Owners<'c, 'h> {
    let mut order = Order {
        case,
        lease,
        ops: domain(lease, ops, findings),
        found: findings,
    };
    let owners = order.owners();
    order.sessions(&owners);
    let mut proofs = order.proofs(&owners);
    let reached = Reached::new(&proofs);
    order.endings(&owners, &reached, &mut proofs);
    let claims = order.claims(&owners);
    let course = Course::new(&proofs, &claims);
    order.sweep(&owners, proofs, claims);
    let Order { ops, found, .. } = order;
    silent::check(case, lease, &ops, (&owners, &reached, &course), found);
    owners
}

/// INV-13: drops answers that carry what is no token.
fn domain<'c, 'h>(lease: &str, ops: &[&'c Op<'h>], findings: &mut Vec<Finding>) -> Vec<&'c Op<'h>> {
    let mut good = Vec::new();
    for &op in ops {
        let zero_is_fine = matches!(op.outcome, Outcome::Seen { held: false, .. });
        match named(op) {
            Some(token) if token > TOKEN_MAX || (token == 0 && !zero_is_fine) => {
                let what = format!("{token} is no token, and was taken for one");
                findings.push(Finding::new("INV-13", lease, what, [line(op)]));
            }
            _ => good.push(op),
        }
    }
    good
}

/// The token that an answer says is, or was until now, the stored one.
pub(super) fn named(op: &Op<'_>) -> Option<u64> {
    match op.outcome {
        Outcome::Granted { token, .. }
        | Outcome::Held { token, .. }
        | Outcome::Seen { token, .. } => Some(*token),
        Outcome::Renewed { .. } | Outcome::Released => op.token(),
        _ => None,
    }
}

struct Order<'a, 'c, 'h> {
    case: &'a Case<'h>,
    lease: &'a str,
    ops: Vec<&'c Op<'h>>,
    found: &'a mut Vec<Finding>,
}

impl<'c, 'h> Order<'_, 'c, 'h> {
    fn find(&mut self, invariant: &'static str, what: String, ops: &[&Op<'h>]) {
        self.found.push(Finding::new(
            invariant,
            self.lease,
            what,
            ops.iter().map(|op| line(op)),
        ));
    }

    /// INV-2: who has which token. A second owner is a finding, and is then left out.
    fn owners(&mut self) -> Owners<'c, 'h> {
        let (mut owners, mut kept) = (Owners::default(), Vec::new());
        for op in std::mem::take(&mut self.ops) {
            match owners.add(op) {
                Ok(()) => kept.push(op),
                Err((token, first)) => {
                    let name = self.cause(first, op, "INV-2");
                    self.find(
                        name,
                        format!("token {token} was granted to two"),
                        &[first, op],
                    );
                }
            }
        }
        self.ops = kept;
        owners.date();
        owners
    }

    /// Every answer about a token fits the session that owns it: L2, L4, INV-2, INV-5.
    fn sessions(&mut self, owners: &Owners<'c, 'h>) {
        let mut kept = Vec::new();
        for op in std::mem::take(&mut self.ops) {
            let owner = named(op).and_then(|token| owners.get(token));
            let Some((name, what)) = owner.and_then(|owner| wrong_session(op, owner)) else {
                kept.push(op);
                continue;
            };
            let granted = owner.map_or(op, |owner| owner.op);
            self.find(name, what, &[granted, op]);
        }
        self.ops = kept;
    }

    /// What each answer proves about the time of its return.
    fn proofs(&self, owners: &Owners<'c, 'h>) -> Vec<Proof<'c, 'h>> {
        let mut proofs = Vec::new();
        for &op in &self.ops {
            if let (Some(at), Some(place)) = (op.returned, self.place(op, owners)) {
                proofs.push(Proof { at, place, op });
            }
        }
        proofs
    }

    /// Adds the proofs of those who were told that their own tenure is over. They hold only from the moment on when the
    /// token was known to exist: before, it was over because it had not begun.
    fn endings(&self, owners: &Owners<'c, 'h>, reached: &Reached, proofs: &mut Vec<Proof<'c, 'h>>) {
        for &op in &self.ops {
            let Some(at) = op.returned else { continue };
            let token = match op.outcome {
                Outcome::Lost | Outcome::AlreadyOver => match op.undoes() {
                    Some(request) => owners.only_token((op.session, request)),
                    None => op.token(),
                },
                _ => None,
            };
            if let Some(token) = token
                && owners
                    .get(token)
                    .is_some_and(|owner| owner.session == op.session)
                && reached.by(token).is_some_and(|known| known < op.invoked)
            {
                proofs.push(Proof {
                    at,
                    place: Place { token, over: true },
                    op,
                });
            }
        }
    }

    /// What each answer says about the time of its call, and from when on each token can have been granted.
    fn claims(&self, owners: &Owners<'c, 'h>) -> Vec<Claim<'c, 'h>> {
        let mut claims = Vec::new();
        for (token, owner) in owners.iter() {
            let place = Place {
                token: token - 1,
                over: true,
            };
            claims.push(Claim {
                at: owner.asked,
                place,
                op: owner.op,
                first: true,
            });
        }
        for &op in &self.ops {
            let first = matches!(op.outcome, Outcome::Granted { token, .. }
                if owners.get(*token).is_some_and(|owner| owner.asked == op.invoked));
            if let (false, Some(place)) = (first, self.place(op, owners)) {
                claims.push(Claim {
                    at: op.invoked,
                    place,
                    op,
                    first: false,
                });
            }
        }
        claims
    }

    /// Where an answer was given, if it could only be given there.
    fn place(&self, op: &Op<'h>, owners: &Owners<'c, 'h>) -> Option<Place> {
        let certain = |request| owners.certain_token((op.session, request));
        let (token, over) = match op.outcome {
            // A collected record may show as one that never was; its floor is what counts (T5).
            Outcome::Seen { token: 0, .. } if self.case.is_disturbed(self.lease, op.end()) => {
                return None;
            }
            Outcome::Seen { token, held, .. } => (*token, !held),
            Outcome::Released if op.undoes().is_some() => (certain(op.undoes()?)?, true),
            Outcome::Released => (named(op)?, true),
            Outcome::AlreadyUsed => (certain(op.request()?)?, true),
            _ => (named(op)?, false),
        };
        Some(Place { token, over })
    }

    /// Finds every claim that some proof refutes.
    fn sweep(
        &mut self,
        owners: &Owners<'c, 'h>,
        mut proofs: Vec<Proof<'c, 'h>>,
        mut claims: Vec<Claim<'c, 'h>>,
    ) {
        proofs.sort_by_key(|proof| proof.at);
        claims.sort_by_key(|claim| claim.at);
        let mut proofs = proofs.into_iter().peekable();
        let mut furthest: Option<Proof<'_, '_>> = None;
        for claim in claims {
            while let Some(proof) = proofs.next_if(|proof| proof.at < claim.at) {
                if furthest
                    .as_ref()
                    .is_none_or(|best| proof.place > best.place)
                {
                    furthest = Some(proof);
                }
            }
            if let Some(proof) = furthest.as_ref().filter(|proof| proof.place > claim.place) {
                let name = self.name(owners, proof, &claim);
                self.find(name, sentence(proof, &claim), &[proof.op, claim.op]);
            }
        }
    }

    /// Which promise is broken if `proof` returned before the call of `claim`.
    fn name(
        &self,
        owners: &Owners<'_, '_>,
        proof: &Proof<'_, 'h>,
        claim: &Claim<'_, 'h>,
    ) -> &'static str {
        let same = !claim.first && proof.place.token == claim.place.token;
        let name = match claim.op.outcome {
            Outcome::Granted { token, .. } if claim.first && proof.place.token == *token => {
                if owners.failed_before(claim.op, proof.at) {
                    "INV-10"
                } else {
                    "INV-2"
                }
            }
            Outcome::Granted { .. } if same => "INV-6",
            Outcome::Granted { .. } => "INV-1",
            Outcome::Renewed { .. } if same => "L4",
            Outcome::Renewed { .. } => "INV-3",
            Outcome::Released => "INV-5",
            Outcome::AlreadyUsed => "L2",
            _ => "L11",
        };
        if same {
            name
        } else {
            self.cause(proof.op, claim.op, name)
        }
    }

    /// The name of the promise for what happened to the store between two answers, else `otherwise`: INV-7 after a
    /// crash, INV-8 after a restore or a failover, INV-9 after a deletion.
    fn cause(&self, one: &Op<'h>, other: &Op<'h>, otherwise: &'static str) -> &'static str {
        let from = one.invoked.min(other.invoked);
        let to = one.returned.max(other.returned);
        let between = self
            .case
            .changes(self.lease)
            .filter(|(at, _)| from < *at && Some(*at) < to);
        let names = between.filter_map(|(_, change)| match change {
            Change::Restore | Change::Failover | Change::Bump { .. } => Some("INV-8"),
            Change::Deleted => Some("INV-9"),
            Change::Crash => Some("INV-7"),
            Change::Restart | Change::ClockStep { .. } | Change::ForceRelease { .. } => None,
        });
        names.last().unwrap_or(otherwise)
    }
}

fn wrong_session(op: &Op<'_>, owner: &Owner<'_, '_>) -> Option<(&'static str, String)> {
    let foreign = op.session != owner.session;
    match op.outcome {
        Outcome::Renewed { .. } if foreign => Some((
            "L4",
            format!("{} renewed the token of {}", op.session, owner.session),
        )),
        Outcome::Released if foreign => Some((
            "INV-5",
            format!("{} released the token of {}", op.session, owner.session),
        )),
        Outcome::Held { .. }
            if (op.session, op.request()) == (owner.session, Some(owner.request)) =>
        {
            Some(("L2", "the holder's own request was refused as held".into()))
        }
        Outcome::Held { by: Some(by), .. }
        | Outcome::Seen {
            by: Some(by),
            held: true,
            ..
        } if by != owner.session => Some((
            "INV-2",
            format!("the token of {} was shown as held by {by}", owner.session),
        )),
        _ => None,
    }
}

fn sentence(proof: &Proof<'_, '_>, claim: &Claim<'_, '_>) -> String {
    let Place { token, over } = proof.place;
    let seen = format!(
        "token {token} was known {}",
        if over { "to be over" } else { "to be granted" }
    );
    match claim.first {
        true => format!(
            "{seen} before token {} was asked for",
            claim.place.token + 1
        ),
        false => format!(
            "{seen} before this answer about token {} was asked for",
            claim.place.token
        ),
    }
}
