//! What a simulated run must keep: the checker's invariants, its second opinion on short runs, and three rules that only
//! a history of this simulation can show.
//!
//! The one rule: everything is judged from the history alone, so a file can be judged again years later.

use std::collections::{BTreeMap, BTreeSet};

use crate::check::{Finding, Rules, Timing, Verdict, judge as check};
use crate::history::{Call, History, Invoke, Outcome, Step, What};
use crate::wgl;

/// The machine noticed that it stood still.
pub(super) const NOTICED: &str = "pause_noticed";
/// Another process renews with the same session.
pub(super) const OUT_OF_SEQUENCE: &str = "out of sequence";

/// Runs with at most so many events are also given to the search.
const SHORT: usize = 300;
/// What the search may spend on one lease.
const BUDGET: usize = 30_000;

/// What every run promises. The clock of the store runs up to 4 % fast.
pub fn rules() -> Rules {
    Rules {
        dense: true,
        timing: Some(Timing {
            clock_error: 0,
            rate_error: 40_000,
        }),
        ..Rules::default()
    }
}

/// Judges a run.
pub fn judge(history: &History) -> Verdict {
    let mut verdict = check(history, &rules());
    holders(history, &mut verdict.findings);
    if history.events.len() <= SHORT {
        for (lease, answer) in wgl::check(history, true, BUDGET) {
            if let wgl::Answer::NotLinearizable { culprit, .. } = answer {
                let what = "no order of the calls explains this answer".to_owned();
                verdict
                    .findings
                    .push(finding("WGL", &lease, what, vec![culprit]));
            }
        }
    }
    verdict
}

fn finding(
    invariant: &'static str,
    about: &str,
    what: String,
    evidence: Vec<(usize, String)>,
) -> Finding {
    Finding {
        invariant,
        about: about.into(),
        what,
        evidence,
    }
}

/// What was seen of one process so far.
#[derive(Default)]
struct Seen<'h> {
    /// Tokens whose work was stopped, and where.
    stopped: BTreeMap<(&'h str, u64), usize>,
    /// Calls that were sent: renewals since the last notice, and the session of each.
    renewals: BTreeSet<u64>,
    sessions: BTreeMap<u64, &'h str>,
    /// Noticed that it stood still, and has no confirmation yet.
    noticed: Option<(u64, usize)>,
    /// The latest renewal, and when it was answered as out of sequence.
    latest: Option<u64>,
    mismatch: Option<(u64, usize)>,
    /// Sessions that were lost to another process that uses them too.
    shared: BTreeMap<&'h str, usize>,
}

fn holders(history: &History, findings: &mut Vec<Finding>) {
    let mut all: BTreeMap<&str, Seen<'_>> = BTreeMap::new();
    for (seq, event) in history.events.iter().enumerate() {
        let line = |seq: usize| (seq, history.events[seq].to_string());
        if let What::Fault {
            kind,
            victim: Some(victim),
            ..
        } = &event.what
            && kind == NOTICED
        {
            let seen = all.entry(victim).or_default();
            seen.noticed = Some((event.time, seq));
            seen.renewals.clear();
            continue;
        }
        if let What::Fault { kind, .. } = &event.what
            && kind == "endless"
        {
            let what = "the run did not come to its end: something spins".to_owned();
            findings.push(finding("ENDLESS", "run", what, vec![line(seq)]));
        }
        let seen = all.entry(&event.process).or_default();
        let found = seen.hear(event.time, seq, &event.what);
        if let Some((name, about, what, before)) = found {
            findings.push(finding(name, about, what, vec![line(before), line(seq)]));
        }
    }
}

type Found<'h> = (&'static str, &'h str, String, usize);

impl<'h> Seen<'h> {
    fn hear(&mut self, time: u64, seq: usize, what: &'h What) -> Option<Found<'h>> {
        match what {
            What::Tenure { lease, token, step } => self.stepped(lease, *token, step, time, seq),
            What::Invoke(invoke) => return self.invoked(invoke),
            What::Return { id, outcome } => self.returned(*id, outcome, time, seq),
            What::Effect(effect) => {
                let (noticed, before) = self.noticed?;
                if effect.started > noticed {
                    let what = "acted after it had stood still, before the store confirmed";
                    return Some(("INV-34", &effect.lease, what.into(), before));
                }
            }
            _ => {}
        }
        None
    }

    fn stepped(&mut self, lease: &'h str, token: u64, step: &Step, time: u64, seq: usize) {
        match step {
            Step::Stopped | Step::Lost => _ = self.stopped.entry((lease, token)).or_insert(seq),
            _ => {}
        }
        // It took the answer to heart.
        let (Step::Lost, Some((at, seen))) = (step, self.mismatch) else {
            return;
        };
        if at == time
            && let Some(session) = self.latest.and_then(|id| self.sessions.get(&id))
        {
            self.shared.insert(session, seen);
        }
    }

    fn invoked(&mut self, invoke: &'h Invoke) -> Option<Found<'h>> {
        self.sessions.insert(invoke.id, &invoke.session);
        if let Call::Renew { token, .. } = invoke.call {
            self.renewals.insert(invoke.id);
            self.latest = Some(invoke.id);
            if let Some(stopped) = self.stopped.get(&(invoke.lease.as_str(), token)) {
                let what = format!("token {token} was renewed after its work was stopped");
                return Some(("H1", &invoke.lease, what, *stopped));
            }
        }
        let shared = self.shared.get(invoke.session.as_str())?;
        let what = "went on with a session that another process uses".to_owned();
        Some(("C14", &invoke.lease, what, *shared))
    }

    fn returned(&mut self, id: u64, outcome: &Outcome, time: u64, seq: usize) {
        match outcome {
            // A new grant, asked for later, is as good as a renewal.
            Outcome::Renewed { .. } if self.renewals.contains(&id) => self.noticed = None,
            Outcome::Granted { .. } => self.noticed = None,
            Outcome::Refused { why } if why == OUT_OF_SEQUENCE && self.latest == Some(id) => {
                self.mismatch = Some((time, seq));
            }
            _ => {}
        }
    }
}
