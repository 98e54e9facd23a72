//! What holders did: INV-30, 31, 32, 33.
//!
//! The one rule: INV-30 to INV-32 are promises about time (P-TIME), so a fault beyond the stated bounds excuses them:
//! at the holder for its deadline, at the holder or the store for an overlap. Nothing excuses INV-33.

use std::collections::BTreeMap;

use super::{Case, Finding};
use crate::history::{Call, Effect, Outcome, Seconds, Stamp, Step, What};

/// All that was done under one token of one lease.
#[derive(Default)]
struct Tenure<'h> {
    /// Who held it; two only if a process was cloned.
    spans: BTreeMap<&'h str, Span>,
    deadlines: Vec<(Stamp, u64)>,
    children: BTreeMap<&'h str, Child>,
    /// By its process, with the place of the event.
    effects: Vec<(&'h str, usize, &'h Effect)>,
    /// Places and moments at which somebody began to release it.
    releases: Vec<(&'h str, Stamp)>,
    /// When the calls were sent that got or kept it.
    kept: Vec<u64>,
}

/// One process's part in a tenure.
#[derive(Default)]
struct Span {
    held: Vec<Stamp>,
    stopped: Option<Stamp>,
    lost: Option<Stamp>,
    died: Option<Stamp>,
}

struct Child {
    started: Stamp,
    dead: Option<Stamp>,
}

type Tenures<'h> = BTreeMap<(&'h str, u64), Tenure<'h>>;

/// Checks all tenures.
pub(super) fn check(case: &Case<'_>, findings: &mut Vec<Finding>) {
    let tenures = tenures(case);
    for (&(lease, token), tenure) in &tenures {
        let mut bench = Bench {
            case,
            lease,
            token,
            tenure,
            findings: &mut *findings,
        };
        bench.effects_in_time();
        bench.children_in_time();
        bench.lost_is_final();
        bench.released_last();
    }
    overlaps(case, &tenures, findings);
}

fn tenures<'h>(case: &Case<'h>) -> Tenures<'h> {
    let mut tenures = Tenures::new();
    let mut died: BTreeMap<&str, Stamp> = BTreeMap::new();
    for (seq, event) in case.events() {
        let (at, process) = (
            Stamp {
                time: event.time,
                seq,
            },
            event.process.as_str(),
        );
        match &event.what {
            What::Tenure { lease, token, step } => {
                tenures
                    .entry((lease, *token))
                    .or_default()
                    .step(process, at, step);
            }
            What::Effect(e) => {
                let tenure = tenures.entry((&e.lease, e.token)).or_default();
                tenure.effects.push((process, seq, e));
            }
            What::Died => _ = died.entry(process).or_insert(at),
            _ => {}
        }
    }
    for op in &case.ops {
        let (token, kept) = match (op.outcome, op.call) {
            (Outcome::Granted { token, .. }, _) => (Some(*token), true),
            (Outcome::Renewed { .. }, _) => (op.token(), true),
            (_, Call::Release { .. }) => (op.token(), false),
            _ => continue,
        };
        let Some(token) = token else { continue };
        let tenure = tenures.entry((op.lease, token)).or_default();
        match kept {
            true => tenure.kept.push(op.invoked.time),
            false => tenure.releases.push((op.process, op.invoked)),
        }
    }
    for tenure in tenures.values_mut() {
        for (process, span) in &mut tenure.spans {
            span.died = died.get(process).copied();
        }
    }
    tenures
}

impl<'h> Tenure<'h> {
    fn step(&mut self, process: &'h str, at: Stamp, step: &'h Step) {
        let span = self.spans.entry(process).or_default();
        match step {
            Step::Held => span.held.push(at),
            Step::Stopped => span.stopped = span.stopped.or(Some(at)),
            Step::Lost => span.lost = span.lost.or(Some(at)),
            Step::Deadline { deadline } => self.deadlines.push((at, *deadline)),
            Step::Releasing => self.releases.push((process, at)),
            Step::ChildStarted { child } => {
                self.children.insert(
                    child,
                    Child {
                        started: at,
                        dead: None,
                    },
                );
            }
            Step::ChildDead { child } => {
                if let Some(child) = self.children.get_mut(child.as_str()) {
                    child.dead = child.dead.or(Some(at));
                }
            }
        }
    }

    /// The deadline in force at `time`, and when it was computed. It only grows within a tenure (C6).
    fn deadline(&self, time: u64) -> Option<(Stamp, u64)> {
        let known = self.deadlines.iter().take_while(|(at, _)| at.time <= time);
        known.max_by_key(|(_, deadline)| *deadline).copied()
    }
}

impl Span {
    /// From when to when this process could act.
    fn interval(&self) -> Option<(Stamp, Stamp)> {
        let never = Stamp {
            time: u64::MAX,
            seq: usize::MAX,
        };
        let end = self
            .stopped
            .into_iter()
            .chain(self.died)
            .min()
            .unwrap_or(never);
        self.held.first().map(|from| (*from, end))
    }
}

struct Bench<'a, 'h> {
    case: &'a Case<'h>,
    lease: &'a str,
    token: u64,
    tenure: &'a Tenure<'h>,
    findings: &'a mut Vec<Finding>,
}

impl Bench<'_, '_> {
    fn find(&mut self, invariant: &'static str, what: String, events: &[usize]) {
        let lines = events.iter().map(|&seq| self.case.line(seq));
        self.findings
            .push(Finding::new(invariant, self.lease, what, lines));
    }

    /// Whether a fault beyond the bounds hit `process` or a holder of the tenure.
    fn is_hit(&self, process: &str, from: u64, to: u64) -> bool {
        let mut holders = self.tenure.spans.keys().copied().chain([process]);
        holders.any(|holder| self.case.is_hit(holder, from, to))
    }

    /// INV-31: no effect starts after D.
    fn effects_in_time(&mut self) {
        for &(process, seq, effect) in &self.tenure.effects {
            let Some((at, deadline)) = self.tenure.deadline(effect.started) else {
                continue;
            };
            let late = effect.started > deadline;
            if late && !self.is_hit(process, at.time, effect.started) {
                let what = format!("an effect started after the deadline {}", Seconds(deadline));
                self.find("INV-31", what, &[at.seq, seq]);
            }
        }
    }

    /// INV-32: no child is alive after D.
    fn children_in_time(&mut self) {
        let Some((at, deadline)) = self.tenure.deadline(u64::MAX) else {
            return;
        };
        let last = self
            .case
            .history
            .events
            .last()
            .map_or(0, |event| event.time);
        for (name, child) in &self.tenure.children {
            let dead = child.dead.map_or(last, |dead| dead.time);
            if dead > deadline && !self.is_hit(name, at.time, dead) {
                let what = format!(
                    "child {name} was alive after the deadline {}",
                    Seconds(deadline)
                );
                let end = child.dead.map(|dead| dead.seq);
                let events: Vec<_> = [at.seq, child.started.seq].into_iter().chain(end).collect();
                self.find("INV-32", what, &events);
            }
        }
    }

    /// INV-33: after Lost, Stopped or a release, the tenure does not come back and its process does not act for it.
    fn lost_is_final(&mut self) {
        for (process, span) in &self.tenure.spans {
            let released = self
                .tenure
                .releases
                .iter()
                .filter(|r| r.0 == *process)
                .map(|r| r.1);
            let ends = span.lost.into_iter().chain(span.stopped).chain(released);
            let Some(end) = ends.min() else { continue };
            if let Some(back) = span.held.iter().find(|held| **held > end) {
                self.find(
                    "INV-33",
                    "held again after it was over".into(),
                    &[end.seq, back.seq],
                );
            }
            for &(_, seq, effect) in self.tenure.effects.iter().filter(|e| e.0 == *process) {
                if effect.started > end.time {
                    self.find("INV-33", "acted after it was over".into(), &[end.seq, seq]);
                }
            }
        }
    }

    /// INV-33: a release never precedes the death of a child.
    fn released_last(&mut self) {
        for &(_, released) in &self.tenure.releases {
            for (name, child) in &self.tenure.children {
                let alive = child.dead.is_none_or(|dead| dead > released);
                if child.started < released && alive {
                    let what = format!("token {} was released while {name} lived", self.token);
                    self.find("INV-33", what, &[child.started.seq, released.seq]);
                }
            }
        }
    }
}

/// INV-30: tenures of different tokens of one lease do not overlap.
fn overlaps(case: &Case<'_>, tenures: &Tenures<'_>, findings: &mut Vec<Finding>) {
    let mut spans = Vec::new();
    for (&(lease, token), tenure) in tenures {
        for (process, span) in &tenure.spans {
            if let Some((from, to)) = span.interval() {
                spans.push((lease, from, to, token, *process, tenure));
            }
        }
    }
    spans.sort_by_key(|span| (span.0, span.1));
    let mut open: Vec<(&str, Stamp, Stamp, u64, &str, &Tenure<'_>)> = Vec::new();
    for span in spans {
        open.retain(|other| other.0 == span.0 && other.2 > span.1);
        for other in open.iter().filter(|other| other.3 != span.3) {
            let (older, newer) = if other.3 < span.3 {
                (other, &span)
            } else {
                (&span, other)
            };
            let end = older.2.min(newer.2).time;
            let sent = older
                .5
                .kept
                .iter()
                .filter(|sent| **sent <= span.1.time)
                .max();
            let from = sent.copied().unwrap_or(older.1.time);
            if case.is_excused(Some(older.4), from, end) {
                continue;
            }
            let what = format!(
                "{} with token {} and {} with token {} could both act from {} on",
                older.4,
                older.3,
                newer.4,
                newer.3,
                Seconds(span.1.time)
            );
            let events = [older.1.seq, newer.1.seq, older.2.seq];
            let lines = events.into_iter().filter(|seq| *seq != usize::MAX);
            findings.push(Finding::new(
                "INV-30",
                span.0,
                what,
                lines.map(|seq| case.line(seq)),
            ));
        }
        open.push(span);
    }
}
