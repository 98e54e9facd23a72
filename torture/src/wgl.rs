//! A second opinion: is there any order of the calls on a lease in which a lease would have given these answers?
//!
//! The search of Wing and Gong with Lowe's memo of (calls done, state), one lease at a time. It knows the model of
//! SEMANTICS 10.2 and nothing else: no clock, so a tenure may run out at any moment. It shares no rule with
//! [`crate::check`], which is the reason to keep it. It may be slow, so it has a budget, and running out of it is no
//! verdict.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::history::{Change, History, Op, Outcome, Stamp, What};

/// What the search found for one lease.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// Some order explains every answer.
    Linearizable,
    /// None does.
    NotLinearizable {
        /// The answer after which no order was left: index in [`History::events`] of its call, and a readable line.
        culprit: (usize, String),
        /// All calls that were answered up to then, the culprit last.
        prefix: Vec<(usize, String)>,
    },
    /// Nobody knows: the search visited this many states and was not through.
    Unknown {
        /// The budget that was not enough.
        budget: usize,
    },
}

/// Searches an order for each lease of `history`; `dense` as in [`Rules::dense`](crate::check::Rules::dense). At most
/// `budget` states are visited per lease, and as many again for each halving in search of a culprit.
pub fn check(history: &History, dense: bool, budget: usize) -> BTreeMap<String, Answer> {
    let (ops, _) = history.ops();
    let mut leases: BTreeMap<&str, Vec<&Op<'_>>> = BTreeMap::new();
    for op in &ops {
        leases.entry(op.lease).or_default().push(op);
    }
    let answers = leases.into_iter().map(|(lease, ops)| {
        let loose = is_disturbed(history, lease);
        (
            lease.to_string(),
            check_lease(&ops, dense && !loose, loose, budget),
        )
    });
    answers.collect()
}

/// Whether something happened that lets tokens jump or clears the stored pair: a floor, a quarantine, an operator.
fn is_disturbed(history: &History, name: &str) -> bool {
    history.events.iter().any(|event| match &event.what {
        What::Store {
            change: Change::Deleted,
            ..
        } => true,
        What::Store {
            change: Change::Crash | Change::Restart | Change::ClockStep { .. },
            ..
        } => false,
        What::Store { lease, .. } => lease.as_deref().is_none_or(|only| only == name),
        _ => false,
    })
}

fn check_lease(ops: &[&Op<'_>], dense: bool, loose: bool, budget: usize) -> Answer {
    let search = |end| Search::new(ops, dense, loose, end).run(budget);
    match search(None) {
        Some(true) => return Answer::Linearizable,
        None => return Answer::Unknown { budget },
        Some(false) => {}
    }
    let mut answered: Vec<&Op<'_>> = ops
        .iter()
        .copied()
        .filter(|op| op.returned.is_some())
        .collect();
    answered.sort_by_key(|op| op.end());
    let (mut good, mut bad) = (0, answered.len());
    while bad - good > 1 {
        let middle = good.midpoint(bad);
        match search(Some(answered[middle - 1].end())) {
            Some(false) => bad = middle,
            _ => good = middle,
        }
    }
    let prefix: Vec<_> = answered[..bad]
        .iter()
        .map(|op| (op.invoked.seq, op.to_string()))
        .collect();
    match prefix.last().cloned() {
        Some(culprit) => Answer::NotLinearizable { culprit, prefix },
        None => Answer::Unknown { budget },
    }
}

/// A lease in the model: 10.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Lease<'h> {
    token: u64,
    /// Session and request id that have the token.
    pair: Option<Pair<'h>>,
    live: bool,
}

type Pair<'h> = (&'h str, &'h str);

impl Lease<'_> {
    fn session(&self) -> Option<&str> {
        self.pair.map(|pair| pair.0)
    }

    fn over(self) -> Self {
        Self {
            live: false,
            ..self
        }
    }
}

/// A call with its place in real time.
struct Item<'c, 'h> {
    op: &'c Op<'h>,
    end: Stamp,
    /// It may take effect at any later point, or never.
    optional: bool,
    /// No answer depends on whose it is, so it is as good as any other of these.
    plain: bool,
}

struct Search<'c, 'h> {
    items: Vec<Item<'c, 'h>>,
    dense: bool,
    loose: bool,
    /// Who is known to have been granted which token.
    granted: BTreeMap<u64, Pair<'h>>,
    /// Tokens that an answer names, but no grant.
    shown: BTreeSet<u64>,
    /// Pairs for which a grant that nobody ever heard of matters.
    silent: HashSet<Pair<'h>>,
    /// The largest token that each pair is known to have been granted.
    last: HashMap<Pair<'h>, u64>,
    largest: u64,
    done: Vec<u64>,
}

impl<'c, 'h> Search<'c, 'h> {
    /// All calls up to `cut`. What was under way then has an unknown outcome.
    fn new(ops: &[&'c Op<'h>], dense: bool, loose: bool, cut: Option<Stamp>) -> Self {
        let mut search = Self {
            items: Vec::new(),
            dense,
            loose,
            granted: BTreeMap::new(),
            shown: BTreeSet::new(),
            silent: HashSet::new(),
            last: HashMap::new(),
            largest: 0,
            done: Vec::new(),
        };
        for &op in ops
            .iter()
            .filter(|op| cut.is_none_or(|cut| op.invoked < cut))
        {
            let answered = op.is_known() && cut.is_none_or(|cut| op.end() <= cut);
            let acquire = pair(op).is_some();
            let idle = matches!(op.outcome, Outcome::Failed | Outcome::Refused { .. });
            if (answered && idle) || (!answered && !acquire) {
                continue;
            }
            let end = if answered {
                op.end()
            } else {
                Stamp {
                    time: u64::MAX,
                    seq: usize::MAX,
                }
            };
            search.items.push(Item {
                op,
                end,
                optional: !answered,
                plain: false,
            });
            match (op.outcome, pair(op)) {
                (Outcome::Granted { token, .. }, Some(pair)) if answered => {
                    search.granted.entry(*token).or_insert(pair);
                    let last = search.last.entry(pair).or_default();
                    *last = (*last).max(*token);
                }
                (Outcome::AlreadyUsed, Some(pair)) if answered => _ = search.silent.insert(pair),
                (Outcome::Released, None) if answered => {
                    search.silent.extend(undone(op));
                    search.shown.extend(shown(op));
                }
                _ if answered => search.shown.extend(shown(op)),
                _ => {}
            }
        }
        let last = [
            search.granted.keys().next_back(),
            search.shown.iter().next_back(),
        ];
        search.largest = last.into_iter().flatten().max().copied().unwrap_or(0);
        search.mark_plain();
        search.items.sort_by_key(|item| item.op.invoked);
        search.done = vec![0; search.items.len().div_ceil(64)];
        search
    }

    /// Finds the acquires of unknown outcome that nobody can tell apart: the pair asked once, and no answer that names a
    /// token without a known owner comes from its session or names it.
    fn mark_plain(&mut self) {
        let mut asked: HashMap<Pair<'_>, usize> = HashMap::new();
        let mut sessions: HashSet<&str> = HashSet::new();
        for item in &self.items {
            if let Some(pair) = pair(item.op) {
                *asked.entry(pair).or_default() += 1;
            }
            if shown(item.op).is_none_or(|token| self.granted.contains_key(&token)) {
                continue;
            }
            sessions.extend(match item.op.outcome {
                Outcome::Held { by, .. } | Outcome::Seen { by, .. } => by.as_deref(),
                _ => Some(item.op.session),
            });
        }
        for item in &mut self.items {
            item.plain = item.optional
                && pair(item.op).is_some_and(|pair| {
                    asked.get(&pair) == Some(&1)
                        && !self.silent.contains(&pair)
                        && !sessions.contains(pair.0)
                });
        }
    }

    /// Whether an order exists; nothing if the budget ran out.
    fn run(mut self, budget: usize) -> Option<bool> {
        let mut seen: HashSet<(Box<[u64]>, Lease<'h>)> = HashSet::new();
        let start = Lease {
            token: 0,
            pair: None,
            live: false,
        };
        let mut left = self.items.iter().filter(|item| !item.optional).count();
        let mut stack = vec![(None, self.choices(start))];
        loop {
            if left == 0 {
                return Some(true);
            }
            let Some((taken, choices)) = stack.last_mut() else {
                return Some(false);
            };
            let Some((next, lease)) = choices.pop() else {
                if let Some(item) = *taken {
                    self.flip(item);
                    left += usize::from(!self.items[item].optional);
                }
                stack.pop();
                continue;
            };
            self.flip(next);
            if !seen.insert((self.done.clone().into(), lease)) {
                self.flip(next);
                continue;
            }
            if seen.len() > budget {
                return None;
            }
            left -= usize::from(!self.items[next].optional);
            stack.push((Some(next), self.choices(lease)));
        }
    }

    fn flip(&mut self, item: usize) {
        self.done[item / 64] ^= 1 << (item % 64);
    }

    /// What can come next, the best guess last: every call that no call still to be placed has to precede. A call that
    /// changes nothing is placed at once, since it would only stand in the way.
    fn choices(&self, lease: Lease<'h>) -> Vec<(usize, Lease<'h>)> {
        let mut choices = Vec::new();
        let mut plain = false;
        let mut end = Stamp {
            time: u64::MAX,
            seq: usize::MAX,
        };
        for (i, item) in self.items.iter().enumerate() {
            if self.done[i / 64] & (1 << (i % 64)) != 0 {
                continue;
            }
            if item.op.invoked > end {
                break;
            }
            if item.optional {
                if item.plain && std::mem::replace(&mut plain, true) {
                    continue;
                }
                choices.extend(
                    self.silent_grants(lease, item.op)
                        .into_iter()
                        .map(|next| (i, next)),
                );
                continue;
            }
            end = end.min(item.end);
            match self.step(lease, item.op) {
                Some(next) if next == lease => return vec![(i, next)],
                next => choices.extend(next.map(|next| (i, next))),
            }
        }
        choices.reverse();
        choices
    }

    /// What a lease becomes by giving this answer, if it can give it. It may run out just before.
    fn step(&self, lease: Lease<'h>, op: &Op<'h>) -> Option<Lease<'h>> {
        let own = match undone(op) {
            Some(pair) => lease.pair == Some(pair),
            None => op.token() == Some(lease.token) && lease.session() == Some(op.session),
        };
        let names = |by: &Option<String>| by.is_none() || by.as_deref() == lease.session();
        let asks = pair(op);
        match op.outcome {
            Outcome::Granted { token, .. } if lease.pair == asks && lease.token == *token => {
                lease.live.then_some(lease)
            }
            Outcome::Granted { token, .. } => {
                let next = match self.dense {
                    true => *token == lease.token.saturating_add(1),
                    false => *token > lease.token,
                };
                let other = lease.pair != asks || self.loose;
                (next && other).then_some(Lease {
                    token: *token,
                    pair: asks,
                    live: true,
                })
            }
            Outcome::Held { token, by } => {
                let other = lease.live && lease.pair != asks;
                (other && lease.token == *token && names(by)).then_some(lease)
            }
            Outcome::AlreadyUsed => (lease.pair == asks).then_some(lease.over()),
            Outcome::Renewed { .. } => (lease.live && own).then_some(lease),
            Outcome::Released => own.then_some(lease.over()),
            Outcome::Lost | Outcome::AlreadyOver => Some(if own { lease.over() } else { lease }),
            Outcome::Seen { token, held, by } => self.seen(lease, *token, *held, names(by)),
            Outcome::Refused { .. } | Outcome::Failed | Outcome::Unknown => None,
        }
    }

    fn seen(&self, lease: Lease<'h>, token: u64, held: bool, named: bool) -> Option<Lease<'h>> {
        match held {
            true => (lease.live && lease.token == token && named).then_some(lease),
            false if lease.token == token => Some(lease.over()),
            false if self.loose && token == 0 => Some(lease),
            false if self.loose && token > lease.token => Some(Lease {
                token,
                pair: None,
                live: false,
            }),
            false => None,
        }
    }

    /// The grants that an acquire of unknown outcome can have been given here, as far as they explain anything.
    fn silent_grants(&self, lease: Lease<'h>, op: &Op<'h>) -> Vec<Lease<'h>> {
        let Some(asks) = pair(op).filter(|asks| lease.pair != Some(*asks) || self.loose) else {
            return Vec::new();
        };
        let next = lease.token.saturating_add(1);
        let named = |token: &u64| self.granted.contains_key(token) || self.shown.contains(token);
        let mut tokens: Vec<u64> = if self.dense {
            let useful = next <= self.largest || self.silent.contains(&asks);
            let free = self.granted.get(&next).is_none_or(|owner| *owner == asks);
            (useful && free).then_some(next).into_iter().collect()
        } else {
            let shown = self
                .shown
                .range(next..)
                .filter(|token| !self.granted.contains_key(token));
            let own = self
                .granted
                .range(next..)
                .filter(|(_, owner)| **owner == asks);
            shown.chain(own.map(|(token, _)| token)).copied().collect()
        };
        // A grant that no answer names stands between two tokens of one pair, or was told as used up.
        let parts = lease
            .pair
            .and_then(|pair| self.last.get(&pair))
            .is_some_and(|last| *last > next)
            || self
                .shown
                .range(next..)
                .any(|token| !self.granted.contains_key(token));
        let useful = parts || self.silent.contains(&asks);
        if !self.dense && useful && !named(&next) {
            tokens.push(next);
        }
        let grants = tokens.into_iter().map(|token| Lease {
            token,
            pair: Some(asks),
            live: true,
        });
        grants.collect()
    }
}

fn pair<'h>(op: &Op<'h>) -> Option<Pair<'h>> {
    op.request().map(|request| (op.session, request))
}

/// The acquire that a release without a token is about.
fn undone<'h>(op: &Op<'h>) -> Option<Pair<'h>> {
    op.undoes().map(|request| (op.session, request))
}

/// The token that an answer names as stored.
fn shown(op: &Op<'_>) -> Option<u64> {
    match op.outcome {
        Outcome::Held { token, .. } | Outcome::Seen { token, .. } => Some(*token),
        Outcome::Renewed { .. } | Outcome::Released => op.token(),
        _ => None,
    }
}
