//! `run`: a job under a lease. It waits for the lease, starts the command under a guard that kills its whole tree before
//! the lease can go to somebody else, and gives the lease back when nothing of it is left (H3 to H8).
//!
//! | file | what |
//! |---|---|
//! | `mod.rs` | what can be typed; waiting; one tenure after another |
//! | `tenure.rs` | the command while the lease is held, and its end |
//! | `once.rs` | the ledger: work that is done once |
//! | `serve.rs` | answers `leasehold check` inside the job |
//! | `probe.rs` | asks a command whether the job goes on |
//! | `say.rs` | what people and programs are told |

mod once;
mod probe;
mod say;
mod serve;
mod tenure;

use std::{ffi::OsString, time::Duration};

use clap::ValueEnum;
use leasehold::{
    Guard, Holder, Keeper, LeaseName, NotAcquired, Ttl, WorkKey,
    core::{Blocker, Overrides, Wait, Work},
    store::SharedStore,
};
use rustix::process::Signal;

use crate::{
    app::App,
    exit::{self, Exit, Failure},
    identity::{self, HolderArgs},
    parse, show,
    supervise::{Parent, Signals},
};
use once::{Ledger, Unfinished};
use say::Say;

/// Longer ttls make a crashed holder's lease useless for too long; `acquire` takes them, for scripts (O11).
const LONGEST_TTL: Duration = Duration::from_secs(3600);
/// `--repeat` rests so long after the first end, twice as long after each further one, ...
const FIRST_REST: Duration = Duration::from_secs(1);
/// ... and never longer than this. A command that lasted as long is not failing: it starts over with the first.
const LONGEST_REST: Duration = Duration::from_secs(60);

/// See the module.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The command gets LEASEHOLD_LEASE, LEASEHOLD_TOKEN, LEASEHOLD_HOLDER, LEASEHOLD_IDEMPOTENCY_KEY and \
LEASEHOLD_SOCKET (for `leasehold check` inside it). Send the token with every write: only a \
receiver that refuses smaller tokens is safe from a job that froze and wakes up late. For effects \
that check no token, use the idempotency key, and --lock-delay.

On a terminal the command has the foreground, and Ctrl-C is its own. Ctrl-Z does not stop it: a job \
that stands still would keep everybody else out.

Exit codes: the command's own, 128+N if signal N ended it; 75 busy, 77 unfinished, 124 the lease \
was lost and the command stopped, 125 Leasehold or the store failed, 126 not executable, 127 not \
found.

--once KEY does the work KEY at least once: whoever gets the lease later finds it done and exits \
with 0; a command that fails is run again by the next. --at-most-once KEY does it at most once: \
work that was begun and not finished is not run again, by anybody (77).

Examples:
  leasehold run nightly -- ./report.sh
  leasehold run nightly --once \"$(date +%F)\" -- ./report.sh
  leasehold run api-leader --repeat -- ./server
  leasehold run nightly --no-wait -- sh -c 'echo token $LEASEHOLD_TOKEN'")]
pub(crate) struct Run {
    /// The lease
    #[arg(value_parser = parse::lease_name())]
    name: LeaseName,
    /// How long the lease lasts without a renewal, 1s to 1h; a crashed holder keeps others waiting this long
    #[arg(long, default_value = "15s", allow_hyphen_values = true, value_parser = parse::ttl())]
    ttl: Ttl,
    /// Wait at most this long for whoever holds it; by default as long as it takes
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = parse::duration(), conflicts_with = "no_wait")]
    wait: Option<Duration>,
    /// Do not wait: if somebody holds it, end with 75
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    who: HolderArgs,
    /// How long the command may take to stop after SIGTERM, when the lease is lost; by default two fifteenths of the ttl,
    /// at most 2s
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = parse::duration())]
    grace: Option<Duration>,
    /// What happens to the command when the lease is lost
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = OnLost::Term)]
    on_lost: OnLost,
    /// After a loss, or the command's end, contend again, until a signal
    #[arg(long, conflicts_with_all = ["once", "at_most_once"])]
    repeat: bool,
    /// Do this work at least once: if it was done, by whomever, there is nothing to do
    #[arg(long, value_name = "KEY", value_parser = parse::work_key(), conflicts_with = "at_most_once")]
    once: Option<WorkKey>,
    /// Do this work at most once: if it was begun and not finished, leave it alone
    #[arg(long, value_name = "KEY", value_parser = parse::work_key())]
    at_most_once: Option<WorkKey>,
    /// A shell command that succeeds while the job makes progress; without success for one ttl the lease is given up
    #[arg(long, value_name = "COMMAND")]
    probe: Option<String>,
    /// Stop when the process that started us dies; not under nohup
    #[arg(long, value_name = "YES", default_value_t = true, action = clap::ArgAction::Set)]
    die_with_parent: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// What happens to the command when the lease is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum OnLost {
    /// SIGTERM, and SIGKILL when the grace is over: always before the lease can go to somebody else
    Term,
    /// SIGKILL at once
    Kill,
    /// Nothing: two may act at the same time, and only fences protect
    Ignore,
}

/// How one tenure ended.
enum End {
    /// The command ended, or was ended, with this exit code.
    Code(u8),
    /// The work was done before.
    NothingToDo,
}

impl Run {
    pub(crate) async fn run(self, app: &App) -> Result<Exit, Failure> {
        let mut outside = Outside::watch(self.die_with_parent)?;
        if self.ttl.get() > LONGEST_TTL {
            return Err(Failure::usage(format!(
                "ttl {} is not allowed: run keeps a lease for 1s to 1h at a time and renews it",
                show::span(self.ttl.get())
            )));
        }
        let store = app.open().await?;
        let ledger = self.ledger(&store)?;
        let holder = self.who.holder_or(std::process::id())?;
        let keeper = self.keeper(store, holder.clone());
        keeper.timing().map_err(|error| self.failure(error))?;
        let say = Say::new(app, &self.name);
        say.where_it_counts();
        if self.on_lost == OnLost::Ignore {
            say.note(
                "ignores_loss",
                "--on-lost ignore: a lost lease does not stop the command; two may act at once",
            );
        }
        if identity::is_ours(&self.name) {
            say.note(
                "own_parent",
                &format!("this command runs under the lease {} itself, and would wait for its own parent", self.name),
            );
        }
        let mut rest = FIRST_REST;
        loop {
            let began = app.clock.now();
            let end = self
                .once_held(app, &keeper, &holder, ledger.as_ref(), &say, &mut outside)
                .await;
            if !self.repeat || outside.asked_to_stop.is_some() {
                return end.map(|end| match end {
                    End::Code(code) => Exit(code),
                    End::NothingToDo => Exit::DONE,
                });
            }
            if app.clock.now().since(began) >= LONGEST_REST {
                rest = FIRST_REST;
            }
            match end {
                Err(failure) => failure.print(app.json),
                Ok(End::Code(code)) => say.again(code, rest),
                Ok(End::NothingToDo) => {}
            }
            if outside.stopped_within(rest).await {
                return Ok(Exit(outside.code()));
            }
            rest = (rest * 2).min(LONGEST_REST);
        }
    }

    /// Waits for the lease and runs the command once.
    async fn once_held(
        &self,
        app: &App,
        keeper: &Keeper,
        holder: &Holder,
        ledger: Option<&Ledger>,
        say: &Say<'_>,
        outside: &mut Outside,
    ) -> Result<End, Failure> {
        if let Some(ledger) = ledger
            && ledger.is_done(say).await?
        {
            return Ok(End::NothingToDo);
        }
        let guard = match self.wait_for(keeper, ledger, say, outside).await? {
            Some(guard) => guard,
            None => return Ok(End::NothingToDo),
        };
        tenure::Tenure {
            run: self,
            app,
            holder,
            say,
            guard,
        }
        .live(ledger, outside)
        .await
    }

    /// The lease; nothing if the work was done meanwhile.
    async fn wait_for(
        &self,
        keeper: &Keeper,
        ledger: Option<&Ledger>,
        say: &Say<'_>,
        outside: &mut Outside,
    ) -> Result<Option<Guard>, Failure> {
        let mut acquire = std::pin::pin!(keeper.acquire());
        let (mut done, mut stopped) = (false, false);
        let end = loop {
            tokio::select! {
                end = &mut acquire => break end,
                // Whatever may have been granted meanwhile is given back before we go.
                () = outside.stop_asked(), if !stopped => {
                    stopped = true;
                    keeper.stopper().stop();
                }
                found = once::done_elsewhere(ledger, say), if !done && !stopped => {
                    done = found;
                    keeper.stopper().stop();
                }
                () = say.follow(keeper.phase()), if !stopped => {}
            }
        };
        match end {
            Ok(guard) if done || stopped => {
                // It came in the same moment. Nothing was done under it.
                let _ = guard.release().await;
                if done {
                    Ok(None)
                } else {
                    Err(Failure::silent(outside.code()))
                }
            }
            Ok(guard) => Ok(Some(guard)),
            Err(_) if done => Ok(None),
            Err(NotAcquired::Stopped { .. }) => Err(Failure::silent(outside.code())),
            Err(error) => Err(self.failure(error)),
        }
    }

    fn keeper(&self, store: SharedStore, holder: Holder) -> Keeper {
        let wait = match (self.wait, self.no_wait) {
            (Some(wait), _) => Wait::AtMost(wait),
            (None, true) => Wait::No,
            (None, false) => Wait::Forever,
        };
        let times = Overrides {
            grace: self.grace,
            ..Overrides::default()
        };
        let mut keeper = Keeper::new(store, self.name.clone())
            .holder(holder)
            .ttl(self.ttl);
        keeper = keeper
            .wait(wait)
            .lock_delay(self.who.lock_delay)
            .times(times);
        if let Some(info) = &self.who.info {
            keeper = keeper.info(info.clone());
        }
        match self.probe {
            Some(_) => keeper.probe(self.ttl.get()),
            None => keeper,
        }
    }

    fn ledger(&self, store: &SharedStore) -> Result<Option<Ledger>, Failure> {
        let (key, unfinished) = match (&self.once, &self.at_most_once) {
            (Some(key), _) => (key, Unfinished::TakeOver),
            (None, Some(key)) => (key, Unfinished::Leave),
            (None, None) => return Ok(None),
        };
        if !store.profile().ledger {
            return Err(Failure::usage(format!(
                "--once needs a ledger, and a store of the kind {}: has none; use sqlite:PATH",
                store.profile().scheme
            )));
        }
        let work = Work {
            lease: self.name.clone(),
            key: key.clone(),
        };
        Ledger::new(store.clone(), work, unfinished).map(Some)
    }

    fn failure(&self, error: NotAcquired) -> Failure {
        let text = error.to_string();
        match error {
            // Nobody holds it as far as we know: the store gave no answer.
            NotAcquired::Busy {
                blocker: Blocker::Store(_),
                ..
            }
            | NotAcquired::TimedOut {
                blocker: Some(Blocker::Store(_)),
                ..
            } => Failure::failed(text),
            NotAcquired::Busy { .. } | NotAcquired::TimedOut { .. } => {
                Failure::busy(text).busy_code(self.who.busy_exit_code)
            }
            NotAcquired::Timing(_) | NotAcquired::Invalid(_) => Failure::usage(text),
            _ => Failure::failed(text),
        }
    }
}

/// Who may ask us to stop: signals, and the death of the process that started us.
struct Outside {
    signals: Signals,
    parent: Option<Parent>,
    /// The process that started us has died.
    orphan: bool,
    /// The first of them.
    asked_to_stop: Option<Signal>,
}

impl Outside {
    fn watch(die_with_parent: bool) -> Result<Self, Failure> {
        let fail =
            |error: std::io::Error| Failure::failed(format!("cannot listen for signals: {error}"));
        // Whoever started us with hang-ups ignored wants us to outlive it.
        let parent = die_with_parent && !crate::supervise::hangups_are_ignored();
        let parent = parent.then(Parent::watch).transpose().map_err(fail)?;
        Ok(Self {
            signals: Signals::listen().map_err(fail)?,
            parent,
            orphan: false,
            asked_to_stop: None,
        })
    }

    /// The next signal; a dead parent counts as SIGTERM, once.
    async fn next(&mut self) -> Signal {
        let signal = match &self.parent {
            Some(parent) => tokio::select! {
                signal = self.signals.next() => signal,
                () = parent.died() => {
                    self.parent = None;
                    self.orphan = true;
                    Signal::TERM
                }
            },
            None => self.signals.next().await,
        };
        if [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT].contains(&signal) {
            self.asked_to_stop.get_or_insert(signal);
        }
        signal
    }

    async fn stop_asked(&mut self) {
        while self.asked_to_stop.is_none() {
            self.next().await;
        }
    }

    async fn stopped_within(&mut self, time: Duration) -> bool {
        tokio::time::timeout(time, self.stop_asked()).await.is_ok()
    }

    /// The exit code for having been asked to stop.
    fn code(&self) -> u8 {
        let signal = self.asked_to_stop.unwrap_or(Signal::TERM).as_raw();
        u8::try_from(128 + signal).unwrap_or(exit::FAILED)
    }
}
