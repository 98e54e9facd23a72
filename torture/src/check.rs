//! Judges a history: every promise of SEMANTICS 10.1 that it can show to be broken is one named finding.
//!
//! The one rule: a finding is a proof. Each check holds for every correct store, whatever was concurrent, lost or
//! delayed; so a finding is a defect of what was tested, or of the harness. Because tokens are unique no search is
//! needed (10.2): intervals are compared in O(n log n). What the checks do not decide is left to [`crate::wgl`].
//!
//! A finding is named by the invariant, or by the paragraph (`L2`) where no invariant has a number. `FORMAT` is a
//! broken history, `FAULT` a fault mode that never happened, `CONTROL` a harness that cannot see.

mod holder;
mod order;
mod owner;
mod place;
mod resource;
mod silent;
mod timed;
mod waiting;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Display, Formatter};

use serde::{Deserialize, Serialize};

use crate::history::{Change, Event, History, LEGEND, Op, Stamp, View, What, draw};

pub use resource::control;

/// Largest token there is (1.2).
pub const TOKEN_MAX: u64 = i64::MAX as u64;

/// Most findings that a report prints in full.
const SHOWN: usize = 20;

/// What the judged system promised.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rules {
    /// Each grant's token is the last one plus one, from 1 on, but for changes of the store (T2).
    pub dense: bool,
    /// Check what depends on ttl and time (INV-4); none for stores without a clock of their own.
    pub timing: Option<Timing>,
    /// Check that waiters get the lease in time (INV-11).
    pub liveness: Option<Liveness>,
    /// Time in nanoseconds for which nobody gets a lease that ended without a release (W4).
    pub lock_delay: u64,
    /// Fault modes that must have happened, by kind of [`What::Fault`] or by name of a [`Change`].
    pub required_faults: Vec<String>,
    /// Unfenced effects are a failing control: the harness must have seen them break something (10.3).
    pub control: bool,
}

/// How exactly the store measures a ttl on the true clock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Timing {
    /// Nanoseconds by which any recorded time may be wrong.
    pub clock_error: u64,
    /// Parts per million by which the store's clock may run fast.
    pub rate_error: u32,
}

/// How long a waiter may have to wait after the last sign of life of the holder: the granted ttl, the lock delay, and
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Liveness {
    /// what the store may add to a ttl, in nanoseconds (ET2), and
    pub extension: u64,
    /// polling, round trips and scheduling, in nanoseconds. A caller that asks again within this time is still waiting.
    pub slack: u64,
}

/// One broken promise.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The invariant or paragraph.
    pub invariant: &'static str,
    /// The lease, resource or key it concerns.
    pub about: String,
    /// What is wrong, in one sentence.
    pub what: String,
    /// The events that prove it: index in [`History::events`] and a readable line.
    pub evidence: Vec<(usize, String)>,
}

/// How much a history gave to judge. A pass with zeros proves nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls on leases.
    pub ops: usize,
    /// Different tokens granted.
    pub grants: usize,
    /// Calls whose outcome nobody knows.
    pub unknown: usize,
    /// Fenced effects, accepted or not.
    pub fenced: usize,
    /// Fenced effects and barriers that were refused.
    pub refused: usize,
    /// Tenures that holders recorded.
    pub tenures: usize,
    /// Faults and changes of the store.
    pub faults: usize,
}

/// What came out.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// Every violation, by the place of its first evidence.
    pub findings: Vec<Finding>,
    /// What was judged.
    pub counts: Counts,
}

/// Judges `history` by `rules`.
pub fn judge(history: &History, rules: &Rules) -> Verdict {
    let case = Case::new(history, rules);
    let mut findings = Vec::new();
    for problem in &case.problems {
        findings.push(Finding::new("FORMAT", "history", problem.clone(), []));
    }
    for (lease, ops) in case.by_lease() {
        let owners = order::check(&case, lease, &ops, &mut findings);
        timed::check(&case, lease, &ops, &owners, &mut findings);
        waiting::check(&case, lease, &ops, &mut findings);
    }
    resource::check(&case, &mut findings);
    holder::check(&case, &mut findings);
    required(&case, &mut findings);
    findings.sort_by_key(|f| f.evidence.iter().map(|e| e.0).min());
    Verdict {
        findings,
        counts: case.counts(),
    }
}

/// All that the checks share.
struct Case<'h> {
    history: &'h History,
    rules: &'h Rules,
    ops: Vec<Op<'h>>,
    problems: Vec<String>,
    store: Vec<(Stamp, Option<&'h str>, &'h Change)>,
    excesses: Vec<Excess<'h>>,
}

/// A fault beyond the bounds under which P-TIME is promised.
struct Excess<'h> {
    victim: Option<&'h str>,
    from: u64,
    to: u64,
}

impl Excess<'_> {
    fn meets(&self, from: u64, to: u64) -> bool {
        self.from <= to && from <= self.to
    }
}

impl<'h> Case<'h> {
    fn new(history: &'h History, rules: &'h Rules) -> Self {
        let (ops, problems) = history.ops();
        let (mut store, mut excesses) = (Vec::new(), Vec::new());
        for (seq, event) in history.events.iter().enumerate() {
            match &event.what {
                What::Store { lease, change } => {
                    store.push((
                        Stamp {
                            time: event.time,
                            seq,
                        },
                        lease.as_deref(),
                        change,
                    ));
                }
                What::Fault {
                    victim,
                    until,
                    exceeds: true,
                    ..
                } => excesses.push(Excess {
                    victim: victim.as_deref(),
                    from: event.time,
                    to: until.unwrap_or(event.time),
                }),
                _ => {}
            }
        }
        Self {
            history,
            rules,
            ops,
            problems,
            store,
            excesses,
        }
    }

    fn by_lease(&self) -> BTreeMap<&'h str, Vec<&Op<'h>>> {
        let mut leases: BTreeMap<&str, Vec<_>> = BTreeMap::new();
        for op in &self.ops {
            leases.entry(op.lease).or_default().push(op);
        }
        leases
    }

    /// All events with their index.
    fn events(&self) -> impl Iterator<Item = (usize, &'h Event)> {
        self.history.events.iter().enumerate()
    }

    /// The changes of the store that concern `lease`, oldest first.
    fn changes(&self, lease: &str) -> impl Iterator<Item = (Stamp, &'h Change)> {
        let own = self
            .store
            .iter()
            .filter(move |s| s.1.is_none_or(|only| only == lease));
        own.map(|s| (s.0, s.2))
    }

    /// Whether before `end` something happened that lets tokens of `lease` jump, or clears its stored pair.
    fn is_disturbed(&self, lease: &str, end: Stamp) -> bool {
        self.store.iter().any(|(at, only, change)| {
            *at < end
                && match change {
                    // The floor that a collected record leaves behind counts for all names (T5).
                    Change::Deleted => true,
                    Change::Crash | Change::Restart | Change::ClockStep { .. } => false,
                    _ => only.is_none_or(|only| only == lease),
                }
        })
    }

    /// Whether a fault beyond the bounds, or a step forward of its clock, hit the store in the time span, or a fault
    /// `process`.
    fn is_excused(&self, process: Option<&str>, from: u64, to: u64) -> bool {
        process.is_some_and(|process| self.is_hit(process, from, to))
            || self
                .excesses
                .iter()
                .any(|excess| excess.victim.is_none() && excess.meets(from, to))
            || self.store.iter().any(|(at, _, change)| {
                matches!(change, Change::ClockStep { by: 1.. }) && (from..=to).contains(&at.time)
            })
    }

    /// Whether a fault beyond the bounds fell into the time span at `process`.
    fn is_hit(&self, process: &str, from: u64, to: u64) -> bool {
        self.excesses
            .iter()
            .any(|excess| excess.victim == Some(process) && excess.meets(from, to))
    }

    /// The line of an event.
    fn line(&self, seq: usize) -> (usize, String) {
        (seq, self.history.events[seq].to_string())
    }

    fn counts(&self) -> Counts {
        let mut counts = Counts {
            ops: self.ops.len(),
            ..Counts::default()
        };
        let mut tokens = BTreeSet::new();
        for op in &self.ops {
            counts.unknown += usize::from(!op.is_known());
            if let crate::history::Outcome::Granted { token, .. } = op.outcome {
                tokens.insert((op.lease, token));
            }
        }
        counts.grants = tokens.len();
        for (_, event) in self.events() {
            use crate::history::{Answer, Step};
            match &event.what {
                What::Effect(effect) if effect.fenced => {
                    counts.fenced += 1;
                    counts.refused += usize::from(effect.answer == Answer::Refused);
                }
                What::Raise(raise) => {
                    counts.refused += usize::from(raise.answer == Answer::Refused);
                }
                What::Tenure {
                    step: Step::Held, ..
                } => counts.tenures += 1,
                What::Store { .. } | What::Fault { .. } => counts.faults += 1,
                _ => {}
            }
        }
        counts
    }
}

/// A fault mode that never happened was not survived (10.3), and a control that broke nothing controls nothing.
fn required(case: &Case<'_>, findings: &mut Vec<Finding>) {
    let happened: BTreeSet<&str> = case
        .events()
        .filter_map(|(_, event)| match &event.what {
            What::Fault { kind, .. } => Some(kind.as_str()),
            What::Store { change, .. } => Some(change.name()),
            _ => None,
        })
        .collect();
    for kind in case
        .rules
        .required_faults
        .iter()
        .filter(|kind| !happened.contains(kind.as_str()))
    {
        let what = format!("the fault {kind} was required and never happened");
        findings.push(Finding::new("FAULT", kind, what, []));
    }
    if case.rules.control && control(case.history).is_empty() {
        let what = "the unfenced effects broke nothing: this harness would not see a violation";
        findings.push(Finding::new("CONTROL", "unfenced effects", what.into(), []));
    }
}

impl Finding {
    fn new(
        invariant: &'static str,
        about: &str,
        what: String,
        evidence: impl IntoIterator<Item = (usize, String)>,
    ) -> Self {
        let evidence = evidence.into_iter().collect();
        Self {
            invariant,
            about: about.into(),
            what,
            evidence,
        }
    }
}

/// The line of a call.
fn line(op: &Op<'_>) -> (usize, String) {
    (op.invoked.seq, op.to_string())
}

impl Display for Finding {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}: {}", self.invariant, self.about, self.what)?;
        self.evidence
            .iter()
            .try_for_each(|(_, line)| write!(f, "\n    {line}"))
    }
}

impl Verdict {
    /// Whether nothing was found.
    pub fn is_ok(&self) -> bool {
        self.findings.is_empty()
    }

    /// The names of the broken promises, each once.
    pub fn broken(&self) -> BTreeSet<&'static str> {
        self.findings.iter().map(|f| f.invariant).collect()
    }

    /// The verdict for people: findings, the time line around the first one, and how to make the history again.
    pub fn explain(&self, history: &History) -> String {
        let mut out = format!("{self}\n");
        let mut times = Vec::new();
        let (ops, _) = history.ops();
        for (seq, _) in self.findings.iter().take(1).flat_map(|f| &f.evidence) {
            times.extend(history.events.get(*seq).map(|e| e.time));
            let op = ops.binary_search_by_key(seq, |op| op.invoked.seq);
            times.extend(op.ok().and_then(|i| ops[i].returned).map(|at| at.time));
        }
        if let (Some(&from), Some(&to)) = (times.iter().min(), times.iter().max()) {
            let all = View::all(history);
            let air = ((to - from) / 2).max((all.to - all.from) / 50);
            let view = View {
                from: from.saturating_sub(air).max(all.from),
                to: to.saturating_add(air).min(all.to),
                ..all
            };
            out += &format!("\n{LEGEND}\n{}", draw(history, &view));
        }
        if !history.made_by.is_empty() {
            out += &format!("\nmade by: {}\n", history.made_by);
        }
        out
    }
}

impl Display for Verdict {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let c = &self.counts;
        write!(
            f,
            "{} findings in {} calls ({} unknown), {} grants, {} fenced effects, {} refusals, {} tenures, {} faults",
            self.findings.len(),
            c.ops,
            c.unknown,
            c.grants,
            c.fenced,
            c.refused,
            c.tenures,
            c.faults
        )?;
        self.findings
            .iter()
            .take(SHOWN)
            .try_for_each(|finding| write!(f, "\n{finding}"))?;
        match self.findings.len().checked_sub(SHOWN) {
            Some(more @ 1..) => write!(f, "\nand {more} more"),
            _ => Ok(()),
        }
    }
}
