//! Keeps one lease for its user: asks, renews, tells of a loss in time, gives back when the work has ended.
//!
//! ```text
//!   your thread or task            the keeper's own thread                the store
//!   work, Guard::check  ◀─ View ─  the pure machine of core/src/hold.rs  ──▶ acquire, renew, release
//! ```
//!
//! The one rule: no work, however stuck, can stop the renewals by accident, and no store, however silent, can delay the
//! news that it is over (H10, FB-24, FB-30).

use std::{fmt::Display, future::Future, panic::resume_unwind, sync::Arc, time::Duration};

use leasehold_core::{
    Blocker, BootTime, GaveUp, Holder, Info, LeaseName, LockDelay, Loss, Overrides, Plan, Term,
    Timing, Ttl, Wait,
};
use tokio::{
    select,
    sync::{mpsc::UnboundedSender, oneshot, watch},
};

use crate::{
    block::block_on,
    clock::{BootClock, Clock},
    engine,
    error::NotAcquired,
    guard::Guard,
    request::{Handover, Request},
    store::SharedStore,
    work::{Ended, Tenure},
};

/// How long a store that serves its waiters in order may hold an ask back, before it is asked whether it is still there.
const HOLD_BACK: Duration = Duration::from_secs(20);

/// Who wants a lease, and how.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use leasehold::{Keeper, store::memory::MemoryStore};
///
/// let keeper = Keeper::new(MemoryStore::new(), "nightly".parse()?);
/// keeper.run_blocking(|guard| {
///     guard.check_for(Duration::from_secs(2))?;    // enough time left for this step?
///     println!("{} with token {}", guard.lease(), guard.token());
///     Ok::<_, leasehold::NotHeld>(())
/// })?;
/// # Ok(()) }
/// ```
///
/// Every [`acquire`](Self::acquire) and every [`run`](Self::run) is a holder of its own, with
/// its own session and its own renewing thread; two of them contend like strangers.
#[derive(Debug)]
pub struct Keeper {
    store: SharedStore,
    name: LeaseName,
    holder: Holder,
    info: Option<Info>,
    ttl: Ttl,
    wait: Wait,
    lock_delay: LockDelay,
    times: Overrides,
    probe: Option<Duration>,
    poll_max: Option<Duration>,
    rest: Option<(Duration, Duration)>,
    clock: Arc<dyn Clock>,
    stop: watch::Sender<bool>,
    phase: watch::Sender<Phase>,
}

/// What a keeper is at, for people: a status line, a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It holds nothing and wants nothing.
    Idle,
    /// It waits.
    Waiting {
        /// For whom or what.
        blocker: Blocker,
        /// When it asks again, if nothing happens before.
        again: BootTime,
    },
    /// It holds; renewed with every new term.
    Held(Term),
    /// It holds, but trusts nothing until the store confirms (C13).
    Suspect,
    /// The work is to stop, for this reason.
    Stopping(Loss),
}

impl Keeper {
    /// A keeper of `name` in `store`: `host:pid` with a ttl of 15 s, waiting as long as it takes.
    pub fn new(store: SharedStore, name: LeaseName) -> Self {
        Self {
            store,
            name,
            holder: default_holder(),
            info: None,
            ttl: Ttl::DEFAULT,
            wait: Wait::Forever,
            lock_delay: LockDelay::NONE,
            times: Overrides::default(),
            probe: None,
            poll_max: None,
            rest: None,
            clock: BootClock::shared(),
            stop: watch::Sender::new(false),
            phase: watch::Sender::new(Phase::Idle),
        }
    }

    /// Who holds, as others see it. It is a name and no key: two holders with one name are still two.
    pub fn holder(mut self, holder: Holder) -> Self {
        self.holder = holder;
        self
    }

    /// A text for others, up to 1 KiB: where to find this holder, say.
    pub fn info(mut self, info: Info) -> Self {
        self.info = Some(info);
        self
    }

    /// How long the lease lasts without a renewal. Shorter is a faster take-over after a crash, and more renewals.
    pub fn ttl(mut self, ttl: Ttl) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long to wait for the lease. Default: as long as it takes.
    pub fn wait(mut self, wait: Wait) -> Self {
        self.wait = wait;
        self
    }

    /// How long nobody gets the lease after it ended without a release: for effects that no fence protects, at least
    /// as long as a request may be on its way (W4). `Invalid` on stores that cannot do it.
    pub fn lock_delay(mut self, lock_delay: LockDelay) -> Self {
        self.lock_delay = lock_delay;
        self
    }

    /// Other times than those that follow from the ttl. A set that cannot work is refused by [`acquire`](Self::acquire).
    pub fn times(mut self, times: Overrides) -> Self {
        self.times = times;
        self
    }

    /// Gives the lease up if the work does not call [`Guard::progress`] at least this often.
    pub fn probe(mut self, probe: Duration) -> Self {
        self.probe = Some(probe);
        self
    }

    /// The longest time between two asks while waiting. Default: a third of the ttl, at most 5 s.
    pub fn poll_max(mut self, poll_max: Duration) -> Self {
        self.poll_max = Some(poll_max);
        self
    }

    /// How long [`run`](Self::run) rests after work failed: `first`, doubled each time, at most `longest`. Default 1 s to 60 s.
    pub fn rest(mut self, first: Duration, longest: Duration) -> Self {
        self.rest = Some((first, longest));
        self
    }

    /// Another clock, for tests. It must wake sleepers.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// The times it will keep; an error names what cannot work and what would.
    pub fn timing(&self) -> Result<Timing, NotAcquired> {
        Ok(self.plan()?.timing)
    }

    /// What it is at. With several calls at once, what one of them is at.
    pub fn phase(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }

    /// Something that stops this keeper from elsewhere: a signal handler, another thread.
    pub fn stopper(&self) -> Stopper {
        Stopper(self.stop.clone())
    }

    /// Waits for the lease and holds it until the guard is released, dropped or lost.
    ///
    /// Dropping the future asks no more and gives back what may have been granted meanwhile (FB-71).
    pub async fn acquire(&self) -> Result<Guard, NotAcquired> {
        let requests = self.start()?;
        let (guard, _) = self.want(&requests).await?.take(true);
        Ok(guard)
    }

    /// [`acquire`](Self::acquire), blocking this thread.
    pub fn acquire_blocking(&self) -> Result<Guard, NotAcquired> {
        block_on(self.acquire())
    }

    /// Does `work` whenever the lease is held, until it is done or the keeper is stopped.
    ///
    /// - `Ok(())` from work that was not told to stop: it is done. The lease is released, and `run` comes back.
    /// - An error: the lease is released, others get their chance for a while, and then it contends again (FB-68).
    /// - A loss: [`Guard::lost`] tells the work, which has until [`Guard::kill_at`] to end; then its future is dropped.
    ///   Whatever it returns, the keeper contends again (FB-69).
    /// - A stop: the same, but then `run` comes back with `Ok`.
    /// - A panic: the lease is released, and the panic goes on.
    ///
    /// The lease is released only when the future of the work is gone (FB-61); end what it spawned before it ends.
    /// Dropping the future of `run` drops the work and releases nothing.
    pub async fn run<W, F, E>(&self, mut work: W) -> Result<(), NotAcquired>
    where
        W: FnMut(Guard) -> F,
        F: Future<Output = Result<(), E>>,
        E: Display,
    {
        let requests = self.start()?;
        loop {
            let handover = match self.want(&requests).await {
                Err(NotAcquired::Stopped { .. }) => return Ok(()),
                handover => handover?,
            };
            let (guard, view) = handover.take(false);
            let tenure = Tenure {
                view,
                requests: &requests,
            };
            let ended = tenure.drive(async { work(guard).await }).await;
            let told = tenure.view.told();
            tenure.end(&ended).await;
            match ended {
                Ended::Panicked(panic) => resume_unwind(panic),
                Ended::Done if told.is_none() => return Ok(()),
                _ if *self.stop.borrow() => return Ok(()),
                _ => {}
            }
        }
    }

    /// [`run`](Self::run) with work that blocks this thread. A loss cannot end such work: it must look at
    /// [`Guard::check`] and [`Guard::is_lost`] itself.
    pub fn run_blocking<W, E>(&self, mut work: W) -> Result<(), NotAcquired>
    where
        W: FnMut(&Guard) -> Result<(), E>,
        E: Display,
    {
        block_on(self.run(|guard| std::future::ready(work(&guard))))
    }

    fn start(&self) -> Result<UnboundedSender<Request>, NotAcquired> {
        let parts = engine::Parts {
            plan: self.plan()?,
            store: self.store.clone(),
            clock: self.clock.clone(),
            stop: self.stop.subscribe(),
            phase: self.phase.clone(),
        };
        if *parts.stop.borrow() {
            return Err(self.stopped());
        }
        Ok(engine::start(parts)?)
    }

    fn plan(&self) -> Result<Plan, NotAcquired> {
        let timing = Timing::with(self.ttl, &self.times)?;
        let mut plan = Plan::new(self.name.clone(), self.holder.clone(), timing);
        plan.info = self.info.clone();
        plan.lock_delay = self.lock_delay;
        plan.probe = self.probe;
        plan.poll_max = self.poll_max.unwrap_or(plan.poll_max);
        if self.store.profile().fifo {
            plan.hold_back = HOLD_BACK;
        }
        (plan.rest_min, plan.rest_max) = self.rest.unwrap_or((plan.rest_min, plan.rest_max));
        self.check(&plan).map_err(NotAcquired::Invalid)?;
        Ok(plan)
    }

    /// Asking for what the store cannot do is an error, never ignored (A16).
    fn check(&self, plan: &Plan) -> Result<(), String> {
        let profile = self.store.profile();
        let least = Timing::MIN_RENEW;
        if self.ttl < profile.min_ttl {
            let (ttl, scheme, least) = (self.ttl, profile.scheme, profile.min_ttl);
            return Err(format!(
                "ttl {ttl:?} is not allowed: a {scheme} store grants {least:?} and more"
            ));
        }
        if self.lock_delay != LockDelay::NONE && !profile.lock_delay {
            return Err(format!(
                "a {} store has no lock delay: leave it out",
                profile.scheme
            ));
        }
        for (what, given) in [
            ("probe", plan.probe.unwrap_or(least)),
            ("poll limit", plan.poll_max),
        ] {
            if given < least {
                return Err(format!(
                    "{what} {given:?} is not allowed: it is {least:?} or longer"
                ));
            }
        }
        Ok(())
    }

    async fn want(&self, requests: &UnboundedSender<Request>) -> Result<Handover, NotAcquired> {
        let (sender, receiver) = oneshot::channel();
        let lease = || self.name.clone();
        if requests.send(Request::Want(self.wait, sender)).is_err() {
            return Err(NotAcquired::Died { lease: lease() });
        }
        let wish = Wish(requests);
        let mut stop = self.stop.subscribe();
        let answer = select! {
            answer = receiver => answer,
            _ = stop.wait_for(|stop| *stop) => return Err(self.stopped()),
        };
        std::mem::forget(wish);
        match answer {
            Ok(Ok(handover)) => Ok(handover),
            Ok(Err(why)) => Err(self.gave_up(why)),
            Err(_) => Err(NotAcquired::Died { lease: lease() }),
        }
    }

    fn gave_up(&self, why: GaveUp) -> NotAcquired {
        let lease = self.name.clone();
        match why {
            GaveUp::Busy(blocker) => NotAcquired::Busy { lease, blocker },
            GaveUp::TimedOut(blocker) => NotAcquired::TimedOut { lease, blocker },
            GaveUp::Stopped => NotAcquired::Stopped { lease },
            GaveUp::Refused(what) => NotAcquired::Invalid(what),
            GaveUp::TokenExhausted => NotAcquired::TokenExhausted { lease },
        }
    }

    fn stopped(&self) -> NotAcquired {
        NotAcquired::Stopped {
            lease: self.name.clone(),
        }
    }
}

/// Stops a keeper. See [`Keeper::stopper`].
#[derive(Clone, Debug)]
pub struct Stopper(watch::Sender<bool>);

impl Stopper {
    /// Ends the keeper's calls: waiting ends at once, work is told to stop and its lease is released when it has ended.
    /// It stays stopped.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

/// A wish that is not fulfilled: dropping it takes it back.
struct Wish<'a>(&'a UnboundedSender<Request>);

impl Drop for Wish<'_> {
    fn drop(&mut self) {
        let _ = self.0.send(Request::Stop);
    }
}

/// `host:pid`.
fn default_holder() -> Holder {
    let pid = std::process::id();
    let host = rustix::system::uname();
    let named = format!("{}:{pid}", host.nodename().to_string_lossy());
    Holder::new(&named)
        .or_else(|_| Holder::new(&format!("pid:{pid}")))
        .expect("a short text of letters and digits is a holder's name")
}
