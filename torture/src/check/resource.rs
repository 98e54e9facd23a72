//! What happened at the things protected: INV-13, 20, 21, 22, 23, 25, and the failing control.
//!
//! The one rule: a resource is judged by its own commit order, not by anybody's clock. Fenced effects are judged; the
//! unfenced ones of the same run are the control, and are judged only to see that the judge can see (10.3).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::{Case, Finding, Rules, TOKEN_MAX};
use crate::history::{Answer, Effect, History, Look, Raise, What};

/// What happened at one resource under one lease.
#[derive(Default)]
struct Traffic<'h> {
    effects: Vec<(usize, &'h Effect)>,
    raises: Vec<(usize, &'h Raise)>,
    looks: Vec<(usize, &'h Look)>,
}

/// Checks all resources, all keys and all texts.
pub(super) fn check(case: &Case<'_>, findings: &mut Vec<Finding>) {
    domain(case, findings);
    keys(case, findings);
    traffic(case, true, findings);
}

/// Judges the unfenced effects as if they were fenced. No finding means that the harness let nothing go wrong where it
/// had to, or cannot see it.
pub fn control(history: &History) -> Vec<Finding> {
    let mut findings = Vec::new();
    traffic(&Case::new(history, &Rules::default()), false, &mut findings);
    findings
}

fn traffic(case: &Case<'_>, fenced: bool, findings: &mut Vec<Finding>) {
    let mut resources: BTreeMap<(&str, &str), Traffic<'_>> = BTreeMap::new();
    for (seq, event) in case.events() {
        match &event.what {
            What::Effect(e) if e.fenced == fenced => {
                resources
                    .entry((&e.resource, &e.lease))
                    .or_default()
                    .effects
                    .push((seq, e));
            }
            What::Raise(r) if fenced => {
                resources
                    .entry((&r.resource, &r.lease))
                    .or_default()
                    .raises
                    .push((seq, r));
            }
            What::Look(l) if l.fenced == fenced => {
                resources
                    .entry((&l.resource, &l.lease))
                    .or_default()
                    .looks
                    .push((seq, l));
            }
            _ => {}
        }
    }
    for ((resource, _), traffic) in &resources {
        let mut court = Court {
            case,
            resource,
            findings: &mut *findings,
        };
        court.order(traffic);
        court.barriers(traffic);
        court.traces(traffic);
        court.appends(traffic);
        court.updates(traffic);
    }
}

struct Court<'a, 'h> {
    case: &'a Case<'h>,
    resource: &'a str,
    findings: &'a mut Vec<Finding>,
}

impl Court<'_, '_> {
    fn find(&mut self, invariant: &'static str, what: String, events: &[usize]) {
        let lines = events.iter().map(|&seq| self.case.line(seq));
        self.findings
            .push(Finding::new(invariant, self.resource, what, lines));
    }

    /// INV-20: in commit order, tokens do not go down. A barrier counts, since it is what refuses the smaller ones.
    fn order(&mut self, traffic: &Traffic<'_>) {
        let effects = traffic
            .effects
            .iter()
            .map(|(seq, e)| (e.position, e.token, *seq));
        let raises = traffic
            .raises
            .iter()
            .map(|(seq, r)| (r.position, r.token, *seq));
        let mut placed: Vec<_> = effects
            .chain(raises)
            .filter_map(|(place, token, seq)| Some((place?, token, seq)))
            .collect();
        placed.sort_unstable_by_key(|(place, _, seq)| (*place, *seq));
        for pair in placed.windows(2).filter(|pair| pair[0].0 == pair[1].0) {
            let what = format!("two were committed at position {}", pair[0].0);
            self.find("FORMAT", what, &[pair[0].2, pair[1].2]);
        }
        let mut largest: Option<(u64, usize)> = None;
        for (_, token, seq) in placed {
            match largest {
                Some((best, other)) if token < best => {
                    let what = format!("token {token} was committed after {best}");
                    self.find("INV-20", what, &[other, seq]);
                }
                Some((best, _)) if token == best => {}
                _ => largest = Some((token, seq)),
            }
        }
    }

    /// INV-21: a holder's read contains every effect of smaller tokens, and none comes later.
    fn barriers(&mut self, traffic: &Traffic<'_>) {
        let mut placed: Vec<_> = traffic
            .effects
            .iter()
            .filter_map(|(seq, e)| Some((e.token, e.position?, *seq)))
            .collect();
        placed.sort_unstable();
        // For each token, the last effect that any token up to it committed.
        let mut last: Vec<(u64, u64, usize)> = Vec::new();
        for (token, position, seq) in placed {
            let best = last.last().filter(|best| best.1 > position);
            last.push(best.map_or((token, position, seq), |best| (token, best.1, best.2)));
        }
        for (seq, look) in &traffic.looks {
            let Some(seen) = look.position else { continue };
            let smaller = last.partition_point(|(token, ..)| *token < look.token);
            let missed = smaller
                .checked_sub(1)
                .map(|i| last[i])
                .filter(|(_, at, _)| *at > seen);
            if let Some((_, position, effect)) = missed {
                let what = format!(
                    "the holder of token {} read up to position {seen}, and an effect of a smaller token is at {position}",
                    look.token
                );
                self.find("INV-21", what, &[*seq, effect]);
            }
        }
    }

    /// INV-21 and INV-22 for lists: what a read must contain, and what nothing may have left behind.
    fn traces(&mut self, traffic: &Traffic<'_>) {
        let mut refused: HashMap<&str, usize> = HashMap::new();
        let mut possible: HashSet<&str> = HashSet::new();
        let mut acked: Vec<(u64, usize, &str)> = Vec::new();
        for (seq, effect) in &traffic.effects {
            if effect.answer == Answer::Refused && effect.position.is_some() {
                self.find("INV-22", "a refused effect was committed".into(), &[*seq]);
            }
            let Some(value) = effect.value.as_deref() else {
                continue;
            };
            match effect.answer {
                Answer::Refused => _ = refused.insert(value, *seq),
                Answer::Unknown => _ = possible.insert(value),
                Answer::Accepted => {
                    possible.insert(value);
                    acked.push((effect.token, *seq, value));
                }
            }
        }
        acked.sort_unstable();
        for (seq, look) in &traffic.looks {
            let Some(saw) = &look.saw else { continue };
            let saw: HashSet<&str> = saw.iter().map(String::as_str).collect();
            for value in &saw {
                if let Some(stale) = refused.get(value).filter(|_| !possible.contains(value)) {
                    self.find(
                        "INV-22",
                        format!("refused, yet {value} is there"),
                        &[*stale, *seq],
                    );
                }
            }
            let smaller = acked.partition_point(|(token, ..)| *token < look.token);
            for (token, effect, value) in &acked[..smaller] {
                if !saw.contains(value) {
                    let what = format!(
                        "the holder of token {} did not see {value}, acknowledged to token {token}",
                        look.token
                    );
                    self.find("INV-21", what, &[*effect, *seq]);
                }
            }
        }
    }

    /// INV-23 for lists: at the end each acknowledged append is there once, each other one at most once.
    fn appends(&mut self, traffic: &Traffic<'_>) {
        let last = traffic
            .looks
            .iter()
            .rev()
            .find_map(|(seq, l)| Some((*seq, l.saw.as_ref()?)));
        let Some((seq, saw)) = last else { return };
        let mut times: BTreeMap<&str, usize> = BTreeMap::new();
        for value in saw {
            *times.entry(value).or_default() += 1;
        }
        let mut known = HashSet::new();
        let mut told = HashSet::new();
        for (effect, e) in traffic.effects.iter().filter(|(effect, _)| *effect < seq) {
            let Some(value) = e.value.as_deref() else {
                continue;
            };
            known.insert(value);
            let missing = e.answer == Answer::Accepted && !times.contains_key(value);
            if missing && told.insert(value) {
                self.find(
                    "INV-23",
                    format!("{value} was acknowledged and is lost"),
                    &[*effect, seq],
                );
            }
        }
        for (value, count) in times {
            if count > 1 {
                self.find("INV-23", format!("{value} is there {count} times"), &[seq]);
            }
            if !known.contains(value) {
                self.find(
                    "INV-23",
                    format!("{value} is there, and nobody wrote it"),
                    &[seq],
                );
            }
        }
    }

    /// INV-23 for read-modify-write: nothing was committed between the read and the write computed from it.
    fn updates(&mut self, traffic: &Traffic<'_>) {
        let committed = traffic
            .effects
            .iter()
            .filter_map(|(seq, e)| Some((e.position?, *seq)));
        let positions: BTreeMap<u64, usize> = committed.collect();
        for (seq, effect) in &traffic.effects {
            let (Some(read), Some(written)) = (effect.read_at, effect.position) else {
                continue;
            };
            if read >= written {
                self.find(
                    "FORMAT",
                    "an effect was read from its own future".into(),
                    &[*seq],
                );
                continue;
            }
            if let Some((position, other)) = positions.range(read + 1..written).next() {
                let what = format!(
                    "position {written} was computed from position {read} and overwrote {position}"
                );
                self.find("INV-23", what, &[*other, *seq]);
            }
        }
    }
}

/// INV-13: nothing takes for a token what is none.
fn domain(case: &Case<'_>, findings: &mut Vec<Finding>) {
    for (seq, event) in case.events() {
        let bad = |token: u64| token == 0 || token > TOKEN_MAX;
        let (about, token) = match &event.what {
            What::Effect(e) if e.fenced && e.answer == Answer::Accepted && bad(e.token) => {
                (&e.resource, e.token.to_string())
            }
            What::Raise(r) if r.answer == Answer::Accepted && bad(r.token) => {
                (&r.resource, r.token.to_string())
            }
            What::TokenText {
                at,
                text,
                accepted: true,
            } if !is_token(text) => (at, format!("{text:?}")),
            What::Tenure { lease, token, .. } if bad(*token) => (lease, token.to_string()),
            _ => continue,
        };
        let what = format!("{token} is no token, and was taken for one");
        findings.push(Finding::new("INV-13", about, what, [case.line(seq)]));
    }
}

/// Decimal digits of 1 to 2^63 - 1, no sign, no leading zero (1.2).
fn is_token(text: &str) -> bool {
    let canonical = text.bytes().all(|b| b.is_ascii_digit()) && !text.starts_with('0');
    canonical && text.parse::<u64>().is_ok_and(|token| token <= TOKEN_MAX)
}

/// INV-25: behind each key one effect, and nobody is told of one that was not.
fn keys(case: &Case<'_>, findings: &mut Vec<Finding>) {
    let mut effects: BTreeMap<(&str, &str), Vec<usize>> = BTreeMap::new();
    let mut replies = BTreeSet::new();
    for (seq, event) in case.events() {
        match &event.what {
            What::KeyedEffect { scope, key } => effects.entry((scope, key)).or_default().push(seq),
            What::KeyedReply { scope, key } if !effects.contains_key(&(scope.as_str(), key)) => {
                replies.insert((scope.as_str(), key.as_str(), seq));
            }
            _ => {}
        }
    }
    let mut find = |scope: &str, key: &str, what: String, events: &[usize]| {
        let lines = events.iter().map(|&seq| case.line(seq));
        findings.push(Finding::new(
            "INV-25",
            &format!("{scope}/{key}"),
            what,
            lines,
        ));
    };
    for ((scope, key), events) in effects.iter().filter(|(_, events)| events.len() > 1) {
        find(
            scope,
            key,
            format!("{} effects behind one key", events.len()),
            events,
        );
    }
    for (scope, key, seq) in replies {
        find(scope, key, "told as done before any effect".into(), &[seq]);
    }
}
