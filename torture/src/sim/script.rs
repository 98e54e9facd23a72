//! A script: takes a lease with a short ttl, keeps it with a long one, and gives it back, without the holder's machine.
//!
//! The one rule: it does what the commands `acquire`, `renew` and `release` do, one after the other. Its ttls differ,
//! so a late copy of its acquire asks for less than was promised since (A2).

use leasehold_core::{
    Acquire, Answer, BootTime, Command, Dice, LockDelay, Op, Outcome, Release, Renew, RequestId,
    Session, Term, Timing, Ttl,
};
use rand::RngCore;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

use super::world::{Ask, Event, Pid, Reply, Role, SECOND, Said, World};
use crate::history::Step;

const SHORT: u64 = 2_000;
const LONG: u64 = 30_000;

pub(super) struct Script {
    pub(super) lease: usize,
    rng: ChaCha8Rng,
    session: Option<Session>,
    request: Option<RequestId>,
    /// What it waits for, and when it was sent.
    sent: u64,
    attempt: u64,
    term: Option<Term>,
    renewals: u64,
    /// A step of an older number is not taken.
    number: u64,
}

impl Dice for Script {
    fn roll(&mut self) -> std::num::NonZeroU128 {
        let bits = (u128::from(self.rng.next_u64()) << 64) | u128::from(self.rng.next_u64());
        std::num::NonZeroU128::new(bits).unwrap_or(std::num::NonZeroU128::MIN)
    }
}

fn ttl(millis: u64) -> Ttl {
    Ttl::from_millis(millis).expect("a good ttl")
}

impl Script {
    pub(super) fn new(lease: usize, seed: u64) -> Self {
        Self {
            lease,
            rng: ChaCha8Rng::seed_from_u64(seed),
            session: None,
            request: None,
            sent: 0,
            attempt: 0,
            term: None,
            renewals: 0,
            number: 0,
        }
    }

    /// What it does next: ask, renew, or give back after a few renewals.
    fn command(&mut self) -> Command {
        let fresh: Session = self.roll().into();
        let session = *self.session.get_or_insert(fresh);
        let fresh = self.roll();
        let Some(term) = self.term else {
            return Command::Acquire(Acquire {
                session,
                request_id: *self.request.get_or_insert(fresh.into()),
                holder: "script".parse().expect("a good name"),
                info: None,
                ttl: ttl(SHORT),
                lock_delay: LockDelay::NONE,
            });
        };
        match self.renewals < 3 {
            true => Command::Renew(Renew {
                token: term.token(),
                session,
                ttl: ttl(LONG),
                number: self.renewals + 1,
                renew_id: fresh.into(),
            }),
            false => Command::Release(Release::Tenure {
                token: term.token(),
                session,
            }),
        }
    }
}

impl World {
    fn script(&mut self, pid: Pid) -> Option<&mut Script> {
        match &mut self.processes[pid].role {
            Role::Script(script) => Some(script),
            Role::Holder(_) => None,
        }
    }

    /// Sends the next command; the same step is also the time after which it is given up.
    pub(super) fn script_step(&mut self, pid: Pid, number: u64) {
        let local = self.local(pid);
        let lease = self.setup.leases[0].clone();
        let Some(script) = self.script(pid).filter(|script| script.number == number) else {
            return;
        };
        let over = script
            .term
            .filter(|term| !term.check(BootTime::from_nanos(local)) || script.attempt > 0);
        if let Some(term) = over {
            return self.script_stops(pid, term.token().get());
        }
        let command = script.command();
        if let Command::Release(_) = command {
            let token = script.term.map_or(0, |term| term.token().get());
            self.step(pid, token, Step::Stopped);
        }
        let name = lease;
        let Some(script) = self.script(pid) else {
            return;
        };
        (script.sent, script.number) = (local, script.number + 1);
        let number = script.number;
        let attempt = self.send(pid, Ask::Op(Op::Lease { name, command }), 1);
        let Some(script) = self.script(pid) else {
            return;
        };
        script.attempt = attempt;
        // What has no answer by the deadline, or after a while, has none.
        let patience = self.now + 2 * SECOND;
        let until = match self.script(pid).and_then(|script| script.term) {
            Some(term) => patience.min(self.clock(pid).when(term.deadline().as_nanos())),
            None => patience,
        };
        self.at(until, Event::Script(pid, number));
    }

    /// It acts no more, forgets everything and begins anew later.
    fn script_stops(&mut self, pid: Pid, token: u64) {
        self.step(pid, token, Step::Stopped);
        let pause = self.between(SECOND, 20 * SECOND);
        let Some(script) = self.script(pid) else {
            return;
        };
        *script = Script {
            session: None,
            request: None,
            term: None,
            renewals: 0,
            attempt: 0,
            sent: 0,
            number: script.number + 1,
            rng: script.rng.clone(),
            lease: script.lease,
        };
        let number = script.number;
        self.after(pause, Event::Script(pid, number));
    }

    pub(super) fn script_heard(&mut self, pid: Pid, reply: Reply) {
        let now = BootTime::from_nanos(self.local(pid));
        let pause = self.between(SECOND / 10, 2 * SECOND);
        let Some(script) = self.script(pid) else {
            return;
        };
        let Said::Outcome(Outcome::Lease(answer), _) = reply.said else {
            return;
        };
        if script.attempt != reply.id {
            return;
        }
        let sent = BootTime::from_nanos(script.sent);
        match (answer, script.term) {
            (Answer::Granted(grant), None) => {
                let timing = Timing::new(ttl(SHORT)).expect("the defaults fit");
                let term = Term::granted(&grant, sent, now, &timing);
                if !term.check(now) {
                    return;
                }
                script.term = Some(term);
                self.script_noted(pid, &term, true);
            }
            (Answer::Renewed { ttl }, Some(mut term)) => {
                term.renewed(sent, ttl);
                script.term = Some(term);
                script.renewals += 1;
                self.script_noted(pid, &term, false);
            }
            (Answer::AlreadyUsed, None) => script.request = None,
            _ => return,
        }
        let Some(script) = self.script(pid) else {
            return;
        };
        (script.number, script.attempt) = (script.number + 1, 0);
        let (number, end) = (script.number, script.term.map(|term| term.deadline()));
        let end = end.map_or(u64::MAX, |end| self.clock(pid).when(end.as_nanos()));
        self.at((self.now + pause).min(end), Event::Script(pid, number));
    }

    fn script_noted(&mut self, pid: Pid, term: &Term, held: bool) {
        let deadline = self.clock(pid).when(term.deadline().as_nanos());
        let token = term.token().get();
        self.step(pid, token, Step::Deadline { deadline });
        if held {
            self.step(pid, token, Step::Held);
        }
    }
}
