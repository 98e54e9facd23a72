//! Grants that nobody heard of: INV-2, 5, 6, 10, L2, T2, for one lease and without time.
//!
//! The one rule: a token that was shown, or is missing from a dense count, without a grant that was answered belongs to
//! an acquire whose outcome is unknown, and each of those has one token at most. So tokens are matched with acquires; a
//! finding is a token that no matching reaches.

use std::collections::{BTreeMap, BTreeSet};

use super::order::named;
use super::owner::{Owners, Pair};
use super::place::{Course, Place, Reached};
use super::{Case, Finding, line};
use crate::history::{Op, Outcome, Stamp};

/// Checks the owners of one lease.
pub(super) fn check<'c, 'h>(
    case: &Case<'h>,
    lease: &str,
    ops: &[&'c Op<'h>],
    (owners, reached, course): (&Owners<'c, 'h>, &Reached, &Course),
    findings: &mut Vec<Finding>,
) {
    let unknown = ops.iter().copied().filter(|op| !op.is_known());
    let mut title = Title {
        case,
        lease,
        ops,
        owners,
        reached,
        course,
        asks: unknown
            .filter_map(|op| {
                Some(Ask {
                    at: op.invoked,
                    pair: asks(op)?,
                })
            })
            .collect(),
        losers: ops.iter().filter_map(|op| loser(op)).collect(),
        findings,
    };
    title.granted_twice();
    title.used_up();
    let mut matching = Matching::new(title.asks.len());
    title.owned_before(&mut matching);
    title.unowned(&mut matching);
    if case.rules.dense {
        title.gaps(&mut matching);
    }
}

/// An acquire whose outcome is unknown.
struct Ask<'h> {
    at: Stamp,
    pair: Pair<'h>,
}

/// A token that is in want of an owner.
#[derive(Clone, Copy)]
struct Want<'h> {
    token: u64,
    by: By<'h>,
    /// By then it had been granted.
    end: Stamp,
}

/// What is known of the owner of such a token.
#[derive(Clone, Copy)]
enum By<'h> {
    Anybody,
    Session(&'h str),
    /// All is known but which of its asks was granted: one that went unheard, since the token was shown before it asked
    /// again and was told.
    Pair(Pair<'h>),
}

struct Title<'a, 'c, 'h> {
    case: &'a Case<'h>,
    lease: &'a str,
    ops: &'a [&'c Op<'h>],
    owners: &'a Owners<'c, 'h>,
    reached: &'a Reached,
    course: &'a Course,
    /// By the time of their call.
    asks: Vec<Ask<'h>>,
    /// Who was refused because of a token, and so does not have it.
    losers: BTreeSet<(u64, Pair<'h>)>,
    findings: &'a mut Vec<Finding>,
}

impl<'h> Title<'_, '_, 'h> {
    fn find(&mut self, invariant: &'static str, what: String, ops: &[&Op<'h>]) {
        let lines = ops.iter().map(|op| line(op));
        self.findings
            .push(Finding::new(invariant, self.lease, what, lines));
    }

    /// By when a token is known to have been granted.
    fn end(&self, token: u64) -> Stamp {
        self.reached.by(token).unwrap_or(Stamp {
            time: u64::MAX,
            seq: usize::MAX,
        })
    }

    fn is_disturbed(&self, end: Stamp) -> bool {
        self.case.is_disturbed(self.lease, end)
    }

    /// INV-6 with A4: a pair gets a second token only after another pair was stored.
    fn granted_twice(&mut self) {
        for (pair, asks) in self.owners.pairs() {
            for (&one, &two) in asks.tokens.iter().zip(asks.tokens.iter().skip(1)) {
                let (Some(first), Some(second)) = (self.owners.get(one), self.owners.get(two))
                else {
                    continue;
                };
                if !self.is_parted(*pair, one, two) {
                    let what = format!("one request was granted both {one} and {two}");
                    self.find("INV-6", what, &[first.op, second.op]);
                }
            }
        }
    }

    /// Whether somebody else can have had a token between two of one pair.
    fn is_parted(&self, pair: Pair<'_>, one: u64, two: u64) -> bool {
        let (one, two) = (one.min(two), one.max(two));
        let end = self.end(two);
        let others = || self.asks.iter().any(|ask| ask.pair != pair && ask.at < end);
        let between = self.case.rules.dense || self.reached.tokens_between(one, two) || others();
        (two - one > 1 && between) || self.is_disturbed(end)
    }

    /// L2.2, INV-5, INV-10: a tenure can only be used up or released if an earlier delivery was applied.
    fn used_up(&mut self) {
        for &op in self.ops {
            let Some(pair) = ended(op) else { continue };
            let asks = self.owners.pairs().get(&pair);
            let before = |asked: Option<Stamp>| asked.is_some_and(|asked| asked < op.end());
            let granted = asks.is_some_and(|a| before(a.granted) || before(a.unknown));
            let failed = asks.is_some_and(|a| before(a.failed));
            let certain = self.owners.certain_token(pair).is_some();
            if granted && (certain || self.is_disturbed(op.end()) || self.can_have(pair, op)) {
                continue;
            }
            let (name, what) = match op.outcome {
                _ if failed && !granted => ("INV-10", "a failed acquire shows"),
                Outcome::Released => ("INV-5", "released what it cannot have been granted"),
                _ => ("L2", "used up what it cannot have been granted"),
            };
            self.find(name, what.into(), &[op]);
        }
    }

    /// Whether the pair can have had a token that was over when `op` was answered.
    fn can_have(&self, pair: Pair<'h>, op: &Op<'h>) -> bool {
        let (from, to) = self.course.during(op);
        let fits = |token: u64| (from..=to).contains(&Place { token, over: true });
        let Some(asks) = self.owners.pairs().get(&pair) else {
            return false;
        };
        if asks.tokens.iter().any(|token| fits(*token)) {
            return true;
        }
        // The larger the number, the later it can have been granted; and all but these many are free.
        let last = to.token.min(self.reached.largest() + 1);
        let numbers = (from.token.max(1)..=last)
            .rev()
            .take(self.owners.len() + self.losers.len() + 2);
        let mut free = numbers.filter(|n| {
            fits(*n) && self.owners.get(*n).is_none() && !self.losers.contains(&(*n, pair))
        });
        free.any(|number| {
            let end = self.end(number).min(op.end());
            asks.unknown.is_some_and(|asked| asked < end)
        })
    }

    /// INV-2: a token that was shown before any call that was told of it came by one that was not.
    fn owned_before(&mut self, matching: &mut Matching<'h>) {
        for (token, owner) in self.owners.iter() {
            let want = Want {
                token,
                by: By::Pair(owner.pair()),
                end: self.end(token),
            };
            let dated = owner.asked < want.end && want.end < owner.op.invoked;
            if dated && !self.is_disturbed(want.end) && !matching.add(self, want) {
                let what = format!("token {token} was shown, but nobody can have been granted it");
                self.find("INV-2", what, &[owner.op]);
            }
        }
    }

    /// INV-2 and INV-10: a token that was shown belongs to somebody.
    fn unowned(&mut self, matching: &mut Matching<'h>) {
        let mut shown: BTreeMap<u64, (&Op<'h>, Option<&'h str>)> = BTreeMap::new();
        for &op in self.ops {
            let Some(token) = named(op).filter(|t| *t > 0 && self.owners.get(*t).is_none()) else {
                continue;
            };
            let session = match op.outcome {
                Outcome::Renewed { .. } | Outcome::Released => Some(op.session),
                Outcome::Held { by, .. } | Outcome::Seen { by, held: true, .. } => by.as_deref(),
                _ => None,
            };
            let (first, known) = shown.entry(token).or_insert((op, session));
            let first = *first;
            match (*known, session) {
                (Some(one), Some(other)) if one != other => {
                    self.find(
                        "INV-2",
                        format!("token {token} is used by two"),
                        &[first, op],
                    );
                }
                _ => *known = known.or(session),
            }
        }
        for (token, (op, session)) in shown {
            let by = session.map_or(By::Anybody, By::Session);
            let want = Want {
                token,
                by,
                end: self.end(token),
            };
            if !self.is_disturbed(want.end) && !matching.add(self, want) {
                let name = if self.has_failed(&want) {
                    "INV-10"
                } else {
                    "INV-2"
                };
                let what = format!("token {token} was shown, but nobody can have been granted it");
                self.find(name, what, &[op]);
            }
        }
    }

    /// T2: with dense tokens a number that is missing was granted to somebody who never heard of it.
    fn gaps(&mut self, matching: &mut Matching<'h>) {
        let mut last = 0;
        for token in self.reached.tokens() {
            let end = self.end(token);
            // A long gap is found out by its first numbers: there are not enough asks.
            let missing = (last + 1..token).take(self.asks.len() + 1);
            let mut missing = missing.map(|token| Want {
                token,
                by: By::Anybody,
                end,
            });
            last = token;
            if self.is_disturbed(end) {
                return;
            }
            if let Some(want) = missing.find(|want| !matching.add(self, *want)) {
                let name = if self.has_failed(&want) {
                    "INV-10"
                } else {
                    "T2"
                };
                let what = format!("token {} is missing before {token}", want.token);
                let op = self.ops.iter().find(|op| named(op) == Some(token)).copied();
                self.find(name, what, op.as_slice());
            }
        }
    }

    /// Whether this acquire, if it came in time, can have been granted this token.
    fn suits(&self, want: &Want<'_>, ask: &Ask<'h>) -> bool {
        let token = want.token;
        let fits = match want.by {
            By::Pair(pair) => return pair == ask.pair,
            By::Session(session) => session == ask.pair.0,
            By::Anybody => true,
        };
        let near = [
            self.owners.neighbour(token, false),
            self.owners.neighbour(token, true),
        ];
        let mut own = near
            .into_iter()
            .flatten()
            .filter(|(_, pair)| *pair == ask.pair);
        fits && !self.losers.contains(&(token, ask.pair))
            && own.all(|(other, pair)| self.is_parted(pair, token, other))
    }

    /// Whether an acquire that failed would account for a token.
    fn has_failed(&self, want: &Want<'_>) -> bool {
        self.ops.iter().any(|op| {
            *op.outcome == Outcome::Failed
                && op.request().is_some()
                && !matches!(want.by, By::Session(session) if session != op.session)
                && op.invoked < want.end
        })
    }
}

/// An acquire, and the place of the path to it that it goes on from.
type Path = (usize, Option<usize>);

/// Which acquire accounts for which token.
struct Matching<'h> {
    /// What each acquire was given.
    given: Vec<Option<Want<'h>>>,
    /// Acquires that were tried since the last success: none of them can be freed.
    tried: Vec<bool>,
}

impl<'h> Matching<'h> {
    fn new(asks: usize) -> Self {
        Self {
            given: vec![None; asks],
            tried: vec![false; asks],
        }
    }

    /// Finds an acquire for one more token, if need be by giving others to the tokens that have theirs.
    fn add(&mut self, title: &Title<'_, '_, 'h>, want: Want<'h>) -> bool {
        let mut paths = Vec::new();
        let mut free = self.reach(title, &want, None, &mut paths);
        for next in 0.. {
            if let Some(last) = free {
                self.shift(&paths, last, want);
                self.tried.fill(false);
                return true;
            }
            let Some(moved) = paths.get(next).and_then(|path| self.given[path.0]) else {
                break;
            };
            free = self.reach(title, &moved, Some(next), &mut paths);
        }
        false
    }

    /// Notes the acquires that suit `want`, the latest first, since the others suit smaller tokens too. Returns the place
    /// of one that is free.
    fn reach(
        &mut self,
        title: &Title<'_, '_, 'h>,
        want: &Want<'h>,
        from: Option<usize>,
        paths: &mut Vec<Path>,
    ) -> Option<usize> {
        let in_time = title.asks.partition_point(|ask| ask.at < want.end);
        for (i, ask) in title.asks[..in_time].iter().enumerate().rev() {
            if !self.tried[i] && title.suits(want, ask) {
                self.tried[i] = true;
                paths.push((i, from));
                if self.given[i].is_none() {
                    return Some(paths.len() - 1);
                }
            }
        }
        None
    }

    /// Moves every token on the path one acquire on, and gives the first of them to `want`.
    fn shift(&mut self, paths: &[Path], last: usize, want: Want<'h>) {
        let mut at = last;
        while let Some(before) = paths[at].1 {
            self.given[paths[at].0] = self.given[paths[before].0];
            at = before;
        }
        self.given[paths[at].0] = Some(want);
    }
}

/// The pair of an acquire.
fn asks<'h>(op: &Op<'h>) -> Option<Pair<'h>> {
    op.request().map(|request| (op.session, request))
}

/// The pair that an answer shows to have had a tenure, now over, without naming its token.
fn ended<'h>(op: &Op<'h>) -> Option<Pair<'h>> {
    match op.outcome {
        Outcome::AlreadyUsed => asks(op),
        Outcome::Released => op.undoes().map(|request| (op.session, request)),
        _ => None,
    }
}

/// The pair that was refused because of a token.
fn loser<'h>(op: &Op<'h>) -> Option<(u64, Pair<'h>)> {
    match op.outcome {
        Outcome::Held { token, .. } => Some((*token, asks(op)?)),
        _ => None,
    }
}
