//! What a job asks of stores and resources, and what it makes of the answers.
//!
//! The one rule: a write whose fate is unknown ends the job, since a later write of the same token could not be told
//! from it; only a write that takes nothing for granted is simply made again.

use std::time::Duration;

use leasehold_core::{
    AttemptId, Begin, BootTime, Complete, Dice, Fingerprint, Input, Loss, Op, Outcome, Proof,
    Refusal, Token, Unfinished, Value, Verdict, Work,
};

use super::effects::shown;
use super::job::{Asked, Kind, Pending, Phase};
use super::resource::{list_name, pair_name};
use super::store::{key, pack};
use super::world::{Ask, Event, MS, Pid, Reply, SECOND, Said, World};
use crate::history::{Answer, Effect, Look, Raise, What};

/// How long a job waits for an answer.
const PATIENCE: Duration = Duration::from_secs(1);

impl World {
    /// Takes the next step, which was allowed.
    pub(super) fn act(&mut self, pid: Pid) {
        let Some(holder) = self.holder(pid) else {
            return;
        };
        let lease = holder.lease;
        let Some(job) = holder.job.as_mut() else {
            return;
        };
        job.checked = false;
        let (kind, phase, token) = (job.kind, job.phase, job.token);
        match (kind, phase) {
            (_, Phase::Raise) => self.ask(pid, Asked::Raise, Ask::Raise(lease, token)),
            (Kind::Pair, Phase::Look) => self.ask(pid, Asked::Look, Ask::Pair(lease)),
            (_, Phase::Look) => self.ask(pid, Asked::Look, Ask::Look(lease, true)),
            (Kind::List, Phase::Work) => self.write_list(pid, lease),
            (Kind::Pair, Phase::Work) => self.write_pair(pid, lease),
            (Kind::Plain, Phase::Work) => self.write_plain(pid, lease),
            (Kind::Ledger, Phase::Work) => self.work_once(pid, lease),
        }
    }

    fn ask(&mut self, pid: Pid, asked: Asked, ask: Ask) {
        let id = self.send(pid, ask, 0);
        if let Some(job) = self.job(pid) {
            job.call = Some(Pending { id, asked });
        }
        self.after(PATIENCE.as_nanos() as u64, Event::GiveUp(pid, id));
    }

    fn effect(&mut self, pid: Pid, ask: Ask, effect: Effect) {
        self.ask(pid, Asked::Effect, ask);
        if let Some(Pending { id, .. }) = self.job(pid).and_then(|job| job.call) {
            self.effect_started(id, pid, effect);
        }
    }

    fn write_list(&mut self, pid: Pid, lease: usize) {
        let value = self.number() as u32;
        let name = self.setup.leases[lease].as_str().to_owned();
        let started = self.now;
        let Some(job) = self.job(pid) else { return };
        let token = job.token;
        let (list, read_at) = (Some(job.list.clone()), Some(job.position));
        let effect = Effect {
            resource: list_name(&name, true),
            lease: name,
            token,
            fenced: true,
            started,
            value: Some(shown(value)),
            read_at,
            ..Effect::default()
        };
        job.list.push(value);
        let ask = Ask::Write {
            lease,
            fenced: true,
            token,
            value,
            list,
        };
        self.effect(pid, ask, effect);
    }

    fn write_plain(&mut self, pid: Pid, lease: usize) {
        let value = self.number() as u32;
        let name = self.setup.leases[lease].as_str().to_owned();
        let started = self.now;
        let Some(job) = self.job(pid) else { return };
        let token = job.token;
        let effect = Effect {
            resource: list_name(&name, false),
            lease: name,
            token,
            started,
            value: Some(shown(value)),
            ..Effect::default()
        };
        let (fenced, list) = (false, None);
        let ask = Ask::Write {
            lease,
            fenced,
            token,
            value,
            list,
        };
        self.effect(pid, ask, effect);
    }

    fn write_pair(&mut self, pid: Pid, lease: usize) {
        let value = self.number() as u32;
        let (name, started) = (self.setup.leases[lease].clone(), self.now);
        let Some(job) = self.job(pid) else { return };
        job.list.push(value);
        let effect = Effect {
            resource: pair_name(name.as_str(), job.line),
            lease: name.as_str().into(),
            token: job.token,
            fenced: true,
            started,
            value: Some(shown(value)),
            read_at: Some(job.position),
            ..Effect::default()
        };
        let op = Op::Put {
            key: key(&name, job.line),
            value: Value::new(&pack(&job.list)).expect("a short list"),
            proof: Some(Proof {
                lease: name,
                token: token(job.token),
            }),
        };
        self.effect(pid, Ask::Op(op), effect);
    }

    /// At most once: an entry that somebody left unfinished is left (I7).
    fn work_once(&mut self, pid: Pid, lease: usize) {
        let slot = self.now / (10 * SECOND);
        let line = self.pairs_line();
        let lease = self.setup.leases[lease].clone();
        let Some(holder) = self.holder(pid) else {
            return;
        };
        let (name, fresh) = (holder.plan.holder.clone(), holder.dice.roll());
        let Some(job) = holder.job.as_mut() else {
            return;
        };
        let token = token(job.token);
        let (work, attempt, done) = job.entry.clone().unwrap_or_else(|| {
            let key = format!("slot {slot} line {line}");
            let key = key.parse().expect("a good key");
            (Work { lease, key }, AttemptId::from(fresh), false)
        });
        job.entry = Some((work.clone(), attempt, done));
        let (asked, op) = match done {
            false => (
                Asked::Begin,
                Op::Begin(Begin {
                    work,
                    token,
                    attempt,
                    holder: name,
                    fingerprint: Fingerprint::default(),
                    unfinished: Unfinished::Leave,
                    born: None,
                }),
            ),
            true => (
                Asked::Complete,
                Op::Complete(Complete {
                    work,
                    token,
                    attempt,
                    response: Value::new(b"ok").expect("a short value"),
                }),
            ),
        };
        self.ask(pid, asked, Ask::Op(op));
    }

    /// No answer came in time.
    pub(super) fn give_up(&mut self, pid: Pid, id: u64) {
        let Some(job) = self.job(pid) else { return };
        let Some(call) = job.call.take_if(|call| call.id == id) else {
            return;
        };
        self.unanswered(pid, call);
    }

    fn unanswered(&mut self, pid: Pid, call: Pending) {
        let careless = self.job(pid).is_some_and(|job| job.kind == Kind::Plain);
        if call.asked == Asked::Effect {
            self.effect_answered(call.id, Answer::Unknown);
            if !careless {
                return self.job_fails(pid);
            }
        }
        self.job_goes_on(pid);
    }

    /// An answer to the job.
    pub(super) fn job_heard(&mut self, pid: Pid, reply: Reply) {
        let Some(job) = self.job(pid) else { return };
        let Some(call) = job.call.take_if(|call| call.id == reply.id) else {
            return;
        };
        match (call.asked, reply.said) {
            (Asked::Raise, Said::Done(position)) => self.raised(pid, position),
            (Asked::Look, Said::Seen(list, position, line)) => self.seen(pid, list, position, line),
            (Asked::Effect, Said::Done(position) | Said::Outcome(Outcome::Done, position)) => {
                self.effect_answered(call.id, Answer::Accepted);
                if let Some(job) = self.job(pid) {
                    job.position = position;
                }
                self.job_goes_on(pid);
            }
            (_, Said::Refused(refusal) | Said::Outcome(Outcome::Refused(refusal), _)) => {
                self.effect_answered(call.id, Answer::Refused);
                self.fenced_out(pid, refusal);
            }
            (Asked::Begin | Asked::Complete, Said::Outcome(Outcome::Ledger(verdict), _)) => {
                self.entered(pid, verdict);
            }
            _ => self.unanswered(pid, call),
        }
    }

    fn raised(&mut self, pid: Pid, position: u64) {
        let Some(holder) = self.holder(pid) else {
            return;
        };
        let lease = holder.lease;
        let Some(job) = holder.job.as_mut() else {
            return;
        };
        job.phase = Phase::Look;
        let token = job.token;
        let name = self.setup.leases[lease].as_str().to_owned();
        let raise = Raise {
            resource: list_name(&name, true),
            lease: name,
            token,
            answer: Answer::Accepted,
            position: Some(position),
        };
        self.push(pid, What::Raise(raise));
        self.job_goes_on(pid);
    }

    fn seen(&mut self, pid: Pid, list: Vec<u32>, position: u64, line: u32) {
        let Some(holder) = self.holder(pid) else {
            return;
        };
        let lease = holder.lease;
        let Some(job) = holder.job.as_mut() else {
            return;
        };
        job.phase = Phase::Work;
        job.list = list.clone();
        (job.position, job.line) = (position, line);
        let (token, kind) = (job.token, job.kind);
        let name = self.setup.leases[lease].as_str().to_owned();
        let look = Look {
            resource: match kind {
                Kind::Pair => pair_name(&name, line),
                _ => list_name(&name, true),
            },
            lease: name,
            token,
            fenced: true,
            position: Some(position),
            saw: Some(list.into_iter().map(shown).collect()),
        };
        self.push(pid, What::Look(look));
        self.job_goes_on(pid);
    }

    /// F9: whoever is refused has lost.
    fn fenced_out(&mut self, pid: Pid, refusal: Refusal) {
        self.hear(pid, Input::Lose(Loss::FencedOut(refusal)));
        self.job_fails(pid);
    }

    fn entered(&mut self, pid: Pid, verdict: Verdict) {
        let local = BootTime::from_nanos(self.local(pid));
        let Some(holder) = self.holder(pid) else {
            return;
        };
        let allowed = holder.hold.allows(local);
        let Some(job) = holder.job.as_mut() else {
            return;
        };
        let Some((work, _, done)) = &mut job.entry else {
            return;
        };
        let (scope, key) = (work.lease.to_string(), work.key.to_string());
        match verdict {
            Verdict::Begun | Verdict::Resumed | Verdict::TookOver { .. } if allowed => {
                *done = true;
                self.push(pid, What::KeyedEffect { scope, key });
            }
            Verdict::Completed | Verdict::AlreadyDone(_) => {
                job.entry = None;
                self.push(pid, What::KeyedReply { scope, key });
            }
            Verdict::Refused(refusal) => return self.fenced_out(pid, refusal),
            _ => job.entry = None,
        }
        let number = self.job(pid).map_or(0, |job| job.number);
        let after = self.between(MS, SECOND);
        self.after(after, Event::Work(pid, number));
    }
}

fn token(number: u64) -> Token {
    Token::new(number).expect("a holder's token is a good token")
}
