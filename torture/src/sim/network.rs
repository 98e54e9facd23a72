//! Messages: late, lost, twice, in another order, cut off after the commit and before the reply.
//!
//! The one rule: only what repeats itself harmlessly is delivered twice (commands on leases, barriers, ledger entries);
//! for a connection to a resource a lost message is lost, or late.

use leasehold_core::{Answer, Command, Op, Outcome, Release};

use super::world::{Ask, Event, MS, Pid, Reply, Request, Role, SECOND, Said, World};
use crate::history::{Call, Invoke, Outcome as Seen, What};

/// Beyond every token.
pub(super) const LAST_TOKEN: u64 = i64::MAX as u64;

impl World {
    /// Sends a question. Whether, when and how often it arrives, and whether anybody hears an answer, is drawn.
    pub(super) fn send(&mut self, pid: Pid, ask: Ask, attempt: u64) -> u64 {
        let id = self.number();
        let call = match &ask {
            Ask::Op(Op::Lease { name, command }) => {
                let process = self.processes[pid].name.clone();
                self.note_call(process, id, name.as_str(), command)
            }
            _ => None,
        };
        let mut request = Request {
            pid,
            id,
            ask,
            attempt,
            call,
            lost_reply: false,
        };
        let cut = self.processes[pid].cut_until > self.now;
        let lost = match (cut, self.setup.lost) {
            (true, _) => true,
            (false, lost) => self.chance(lost),
        };
        if lost {
            self.lose(&mut request, cut);
            if request.lost_reply {
                self.deliver(request);
            }
            return id;
        }
        if is_harmless_twice(&request.ask) && self.chance(self.setup.duplicated) {
            self.fault("late_duplicate", Some(pid), None, false);
            let late = match self.chance(500) {
                true => self.between(MS, SECOND),
                false => self.between(SECOND, 40 * SECOND),
            };
            let copy = Request {
                lost_reply: true,
                call: None,
                ..request.clone()
            };
            self.route(late, copy);
        }
        self.deliver(request);
        id
    }

    fn lose(&mut self, request: &mut Request, cut: bool) {
        request.lost_reply = self.chance(500);
        if !cut {
            let kind = match request.lost_reply {
                true => "lost_reply",
                false => "lost_request",
            };
            self.fault(kind, Some(request.pid), None, false);
        }
        if self.chance(500) {
            let after = self.between(MS, SECOND);
            let reply = Reply {
                id: request.id,
                attempt: request.attempt,
                call: request.call,
                said: Said::Reset,
            };
            self.after(after, Event::Reply(request.pid, reply));
            // The answer to the call is that nobody knows; a second one does not come.
            request.call = None;
            request.lost_reply |= self.chance(500);
        }
    }

    fn deliver(&mut self, request: Request) {
        let delay = self.delay(request.pid);
        self.route(delay, request);
    }

    fn route(&mut self, delay: u64, request: Request) {
        let event = match request.ask {
            Ask::Op(_) | Ask::Pair(_) => Event::AtStore(request),
            _ => Event::AtResource(request),
        };
        self.after(delay, event);
    }

    /// Mostly fast, at times as slow as an attempt may be, at times far too late.
    fn delay(&mut self, pid: Pid) -> u64 {
        let slow = self.setup.slow;
        if !self.chance(slow) {
            return self.between(MS, 20 * MS);
        }
        let attempt = match &self.processes[pid].role {
            Role::Holder(holder) => holder.plan.timing.attempt().as_nanos() as u64,
            Role::Script(_) => SECOND,
        };
        match self.chance(100) {
            true => {
                self.fault("late_message", Some(pid), None, false);
                self.between(attempt, 30 * SECOND)
            }
            false => {
                self.fault("slow_message", Some(pid), None, false);
                self.between(attempt / 2, attempt)
            }
        }
    }

    /// Sends an answer back.
    pub(super) fn reply(&mut self, request: &Request, said: Said) {
        let pid = request.pid;
        let process = &self.processes[pid];
        if request.lost_reply || !process.alive || process.cut_until > self.now {
            return;
        }
        let reply = Reply {
            id: request.id,
            attempt: request.attempt,
            call: request.call,
            said,
        };
        let delay = self.delay(pid);
        self.after(delay, Event::Reply(pid, reply));
    }

    /// An answer has come.
    pub(super) fn replied(&mut self, pid: Pid, reply: Reply) {
        if let Some(id) = reply.call
            && let Some(outcome) = seen(&reply.said)
        {
            self.push(pid, What::Return { id, outcome });
        }
        match &self.processes[pid].role {
            Role::Script(_) => self.script_heard(pid, reply),
            Role::Holder(_) if reply.attempt > 0 => self.holder_heard(pid, reply),
            Role::Holder(_) => self.job_heard(pid, reply),
        }
    }

    /// Notes that a command on a lease leaves its caller.
    pub(super) fn note_call(
        &mut self,
        process: String,
        id: u64,
        lease: &str,
        command: &Command,
    ) -> Option<u64> {
        let (session, call) = match command {
            Command::Acquire(asked) => {
                let request = format!("{:08x}", asked.request_id.fingerprint());
                let ttl = asked.ttl.get().as_nanos() as u64;
                (asked.session, Call::Acquire { request, ttl })
            }
            Command::Renew(asked) => {
                let (token, ttl) = (asked.token.get(), asked.ttl.get().as_nanos() as u64);
                (asked.session, Call::Renew { token, ttl })
            }
            Command::Release(Release::Tenure { token, session }) => {
                let token = Some(token.get());
                let request = None;
                (*session, Call::Release { token, request })
            }
            Command::Release(Release::Request {
                session,
                request_id,
            }) => {
                let request = Some(format!("{:08x}", request_id.fingerprint()));
                let token = None;
                (*session, Call::Release { token, request })
            }
            _ => return None,
        };
        let invoke = Invoke {
            id,
            lease: lease.into(),
            session: format!("{:08x}", session.fingerprint()),
            call,
        };
        self.history.push(self.now, process, What::Invoke(invoke));
        Some(id)
    }
}

fn is_harmless_twice(ask: &Ask) -> bool {
    match ask {
        Ask::Op(op) => matches!(op, Op::Lease { .. } | Op::Begin(_) | Op::Complete(_)),
        Ask::Raise(..) => true,
        _ => false,
    }
}

/// What an answer to a command on a lease says in the words of the history.
fn seen(said: &Said) -> Option<Seen> {
    let answer = match said {
        Said::Outcome(Outcome::Lease(answer), _) => answer,
        Said::Reset => return Some(Seen::Unknown),
        Said::Down => return Some(Seen::Failed),
        _ => return None,
    };
    let nanos = |ttl: leasehold_core::Ttl| ttl.get().as_nanos() as u64;
    Some(match answer {
        Answer::Granted(grant) => Seen::Granted {
            token: grant.token.get(),
            ttl: nanos(grant.ttl),
        },
        Answer::Renewed { ttl } => Seen::Renewed { ttl: nanos(*ttl) },
        Answer::Released => Seen::Released,
        Answer::AlreadyOver => Seen::AlreadyOver,
        Answer::AlreadyUsed => Seen::AlreadyUsed,
        Answer::Held(held) => Seen::Held {
            token: held.token.get(),
            by: None,
        },
        Answer::Lost(leasehold_core::Lost::SeqMismatch) => Seen::Refused {
            why: super::verdict::OUT_OF_SEQUENCE.into(),
        },
        Answer::Lost(_) => Seen::Lost,
        other => Seen::Refused {
            why: format!("{other:?}"),
        },
    })
}
