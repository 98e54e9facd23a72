//! The command while the lease is held: started with the token, extended with every renewal, stopped at a loss, and
//! dead, verified, before the lease is given back (H5).

use std::ffi::OsString;

use leasehold::{Guard, Holder, core::Loss};
use rustix::process::Signal;

use super::{
    End, OnLost, Outside, Run,
    once::{Begun, Ledger},
    probe,
    say::Say,
    serve,
};
use crate::{
    app::App,
    exit::{self, Failure},
    identity,
    supervise::{Cause, Deadline, Exit, Job, Reason, Supervised},
};

/// One holding of the lease.
pub(super) struct Tenure<'a> {
    pub(super) run: &'a Run,
    pub(super) app: &'a App,
    pub(super) holder: &'a Holder,
    pub(super) say: &'a Say<'a>,
    pub(super) guard: Guard,
}

impl Tenure<'_> {
    /// Runs the command to its end and gives the lease back.
    pub(super) async fn live(
        self,
        ledger: Option<&Ledger>,
        outside: &mut Outside,
    ) -> Result<End, Failure> {
        self.say.held(&self.guard);
        if let Some(ledger) = ledger {
            match ledger
                .begin(self.guard.token(), self.holder, self.say)
                .await
            {
                Ok(Begun::Yes) => {}
                Ok(Begun::NothingToDo) => {
                    self.give_back().await;
                    return Ok(End::NothingToDo);
                }
                Err(failure) => {
                    self.give_back().await;
                    return Err(failure);
                }
            }
        }
        let ended = self.work(outside).await;
        let done = ended.as_ref().map_or(Some(false), finished);
        let recorded = match ledger {
            Some(ledger) => ledger.end(self.guard.token(), done).await,
            None => Ok(()),
        };
        let exit = match ended {
            Ok(exit) => exit,
            Err(failure) => {
                self.give_back().await;
                return Err(failure);
            }
        };
        let code = self.judge(&exit);
        if !exit.verified {
            return Err(Failure::failed(format!(
                "processes of the command are still alive ({:?}): the lease is not given back, it runs out by itself",
                exit.survivors
            )));
        }
        self.give_back().await;
        recorded.and(code.map(End::Code))
    }

    /// The command's exit code, or why it is not the command's.
    fn judge(&self, exit: &Exit) -> Result<u8, Failure> {
        match exit.cause {
            Cause::Child | Cause::Stop(Reason::Asked | Reason::ParentDied) => {
                Ok(exit.status.exit_code())
            }
            Cause::Stop(Reason::Lost) | Cause::Deadline => {
                let why = self.guard.loss().unwrap_or(Loss::NotRenewed(None));
                Err(Failure::lost_and_stopped(format!(
                    "the lease {} with token {} was lost and the command was stopped: {why}",
                    self.run.name,
                    self.guard.token()
                )))
            }
            Cause::GuardDied => Err(Failure::failed(
                "the guard process was killed, so the command was too",
            )),
            Cause::SupervisorDied => Err(Failure::failed(
                "the channel to the guard broke, so the command was killed",
            )),
        }
    }

    async fn work(&self, outside: &mut Outside) -> Result<Exit, Failure> {
        let server = serve::Server::start().map_err(|error| {
            Failure::failed(format!(
                "cannot make the socket for `leasehold check`: {error}"
            ))
        })?;
        let job = Job {
            command: self.run.command.clone(),
            env: self.environment(&server),
            cgroup: true,
        };
        let mut deadline = self.guard.deadline();
        let job = Supervised::start(&job, self.until())
            .await
            .map_err(|error| Failure::failed(format!("the command was not started: {error:#}")))?;
        let (mut lost, mut late) = (false, false);
        let mut renewal = std::pin::pin!(self.overdue());
        let mut probe = std::pin::pin!(probe::watch(self.run.probe.as_deref(), &self.guard));
        loop {
            tokio::select! {
                exit = job.wait() => return Ok(exit),
                later = self.guard.extended(deadline), if !lost => {
                    deadline = later;
                    job.extend(self.until());
                    self.say.in_time(&mut late);
                    renewal.set(self.overdue());
                }
                () = &mut renewal, if !lost && !late => {
                    late = true;
                    self.say.late(self.guard.stop_at().since(self.app.clock.now()));
                }
                why = self.guard.lost(), if !lost => {
                    lost = true;
                    self.lose(&job, &why);
                }
                signal = outside.next() => self.pass_on(&job, signal, outside),
                () = server.answer(&self.guard) => {}
                () = &mut probe => {}
            }
        }
    }

    /// A renewal was sent, its answer did not come in time, and so the first retry is on its way.
    fn overdue(&self) -> tokio::time::Sleep {
        let timing = self.guard.timing();
        tokio::time::sleep(timing.renew() + timing.attempt())
    }

    /// The moments of H3 as they are now.
    fn until(&self) -> Deadline {
        let kill_at = self.guard.kill_at();
        match self.run.on_lost {
            OnLost::Term => Deadline {
                stop_at: self.guard.stop_at(),
                kill_at,
            },
            OnLost::Kill => Deadline {
                stop_at: self.guard.stop_at(),
                kill_at: self.guard.stop_at(),
            },
            OnLost::Ignore => Deadline::NEVER,
        }
    }

    fn lose(&self, job: &Supervised, why: &Loss) {
        match self.run.on_lost {
            OnLost::Term => job.stop(Reason::Lost, self.guard.kill_at()),
            OnLost::Kill => job.stop(Reason::Lost, self.app.clock.now()),
            OnLost::Ignore => {}
        }
        self.say.lost(&self.guard, why);
    }

    /// The command decides what a signal means. Without a parent there is nobody left to decide for.
    fn pass_on(&self, job: &Supervised, signal: Signal, outside: &Outside) {
        if outside.orphan {
            self.say.note(
                "orphan",
                "the process that started us has ended, so the command is stopped; --die-with-parent false keeps it",
            );
            let kill_at = self.app.clock.now().plus(self.guard.timing().grace());
            job.stop(Reason::ParentDied, kill_at);
        } else {
            job.signal(signal);
        }
    }

    fn environment(&self, server: &serve::Server) -> Vec<(OsString, Option<OsString>)> {
        let set = |name: &str, value: OsString| (OsString::from(name), Some(value));
        let key = match self.run.once.as_ref().or(self.run.at_most_once.as_ref()) {
            Some(key) => format!("{}:{key}", self.run.name),
            None => format!("{}:{}", self.run.name, self.guard.token()),
        };
        vec![
            set(identity::LEASE, self.run.name.as_str().into()),
            set(identity::TOKEN, self.guard.token().to_string().into()),
            set(identity::HOLDER, self.holder.as_str().into()),
            set(identity::IDEMPOTENCY_KEY, key.into()),
            set(identity::SOCKET, server.path().into()),
            // Whoever has it can renew and release.
            (identity::SESSION.into(), None),
        ]
    }

    /// Nothing of the command is left: the next one may begin.
    async fn give_back(self) {
        let (say, lost) = (self.say, self.guard.is_lost());
        if let Err(error) = self.guard.release().await
            && !lost
        {
            say.note("not_released", &error.to_string());
        }
    }
}

/// Whether the work was done: only if the command ended by itself, well; `None` if nobody can tell.
fn finished(exit: &Exit) -> Option<bool> {
    match exit.cause {
        Cause::Child => Some(exit.status.exit_code() == exit::DONE),
        _ => None,
    }
}
