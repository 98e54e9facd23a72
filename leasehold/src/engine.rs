//! The thread that keeps one holder's lease: its own, with its own runtime, so that no work can starve it (H10). It
//! carries messages between the pure machine ([`Hold`]), the store and the worker, and decides nothing itself.

use std::{
    future::{Future, pending},
    io,
    pin::Pin,
    sync::Arc,
    thread,
    time::Duration,
};

use leasehold_core::{
    Action, BootTime, Failure, GaveUp, Hold, Input, Loss, Op, Outcome, Plan, Session, Tell, Token,
};
use tokio::{
    runtime, select,
    sync::{
        mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
        oneshot, watch,
    },
};
use tracing::{debug, info, warn};

use crate::{
    alarm::sleep_until,
    clock::Clock,
    dice::Kernel,
    keeper::Phase,
    pause::Pauses,
    request::{Handover, Request},
    store::{Changes, SharedStore, StoreError},
    view::View,
};

/// What the thread needs to begin.
pub(crate) struct Parts {
    pub(crate) plan: Plan,
    pub(crate) store: SharedStore,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) stop: watch::Receiver<bool>,
    pub(crate) phase: watch::Sender<Phase>,
}

/// Starts the thread. It ends when nobody can send any more and nothing is left to give back.
pub(crate) fn start(parts: Parts) -> io::Result<UnboundedSender<Request>> {
    let (sender, requests) = unbounded_channel();
    let mut dice = Kernel;
    let session = Session::from(dice.try_roll()?);
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    parts.clock.alarms()?;
    let threshold = parts.plan.timing.margin() / 2;
    let pauses = Arc::new(Pauses::new(parts.clock.clone(), threshold));
    let engine = Engine {
        changes: parts.store.changes(),
        hold: Hold::new(parts.plan.clone(), session),
        pauses_seen: pauses.count(),
        pauses,
        sender: sender.downgrade(),
        requests,
        parts,
        dice,
        call: None,
        wanted: None,
        done: None,
        view: None,
        progressed: BootTime::ZERO,
    };
    thread::Builder::new()
        .name("lease-keeper".into())
        .spawn(move || runtime.block_on(engine.run()))?;
    Ok(sender)
}

type Call = Pin<Box<dyn Future<Output = Input> + Send>>;

struct Engine {
    parts: Parts,
    hold: Hold,
    dice: Kernel,
    pauses: Arc<Pauses>,
    pauses_seen: u64,
    changes: Changes,
    sender: tokio::sync::mpsc::WeakUnboundedSender<Request>,
    requests: UnboundedReceiver<Request>,
    call: Option<Call>,
    wanted: Option<oneshot::Sender<Result<Handover, GaveUp>>>,
    done: Option<oneshot::Sender<bool>>,
    view: Option<Arc<View>>,
    progressed: BootTime,
}

impl Engine {
    /// A clock that wakes nobody any more ends it; the worker learns that as a death.
    async fn run(mut self) -> io::Result<()> {
        let mut open = true;
        while open || !self.hold.is_idle() {
            let input = self.next(&mut open).await?;
            self.look();
            if let Some(input) = input {
                self.step(input);
            }
        }
        Ok(())
    }

    /// Whatever comes first. The machine is told of time at every turn, so nothing here has to come in time.
    async fn next(&mut self, open: &mut bool) -> io::Result<Option<Input>> {
        let wake = self.hold.wake_at().unwrap_or(BootTime::MAX);
        let sleep = sleep_until(&self.parts.clock, wake)?;
        let call = async {
            match &mut self.call {
                Some(call) => call.await,
                None => pending().await,
            }
        };
        let waiting = self.hold.is_waiting();
        let input = select! {
            biased;
            request = self.requests.recv(), if *open => match request {
                Some(request) => self.translate(request),
                None => {
                    *open = false;
                    Some(Input::Dropped)
                }
            },
            Ok(()) = self.parts.stop.changed(), if *open => Some(Input::Stop),
            input = call => {
                self.call = None;
                Some(input)
            }
            () = self.changes.changed(), if waiting => Some(Input::Changed),
            () = sleep => Some(Input::Tick),
        };
        Ok(input)
    }

    fn translate(&mut self, request: Request) -> Option<Input> {
        let current = self.hold.token();
        match request {
            Request::Want(wait, wanted) => {
                self.wanted = Some(wanted);
                Some(Input::Want(wait))
            }
            Request::Stop => Some(Input::Stop),
            Request::Look => None,
            Request::Lose { token, loss } => (Some(token) == current).then_some(Input::Lose(loss)),
            Request::Drained {
                token,
                failed,
                done,
            } => (Some(token) == current).then(|| {
                self.done = Some(done);
                Input::Drained { failed }
            }),
            Request::Dropped { token } => (Some(token) == current).then_some(Input::Dropped),
        }
    }

    /// What the clocks and the worker show, before anything else is heard.
    fn look(&mut self) {
        let progressed = self.view.as_ref().map(|view| view.progressed());
        if let Some(at) = progressed.filter(|at| *at > self.progressed) {
            self.progressed = at;
            self.step(Input::Progress(at));
        }
        let pauses = self.pauses.count();
        if pauses != self.pauses_seen {
            self.pauses_seen = pauses;
            warn!(lease = %self.parts.plan.name, "the wall clock jumped: the machine may have stood still");
            self.step(Input::Paused);
        }
    }

    fn step(&mut self, input: Input) {
        let now = self.parts.clock.now();
        for action in self.hold.step(now, input, &mut self.dice) {
            match action {
                Action::Send {
                    attempt,
                    op,
                    hold_back,
                    ..
                } => self.send(attempt, op, hold_back),
                Action::Tell(tell) => self.tell(tell),
            }
        }
    }

    /// The call before it is dropped; to the store that is an outcome nobody knows.
    fn send(&mut self, attempt: u64, op: Op, hold_back: Duration) {
        let store = self.parts.store.clone();
        self.call = Some(Box::pin(async move {
            let outcome = match hold_back.is_zero() {
                true => store.apply(op).await,
                false => store.apply_waiting(op, hold_back).await,
            };
            match outcome {
                Ok(Outcome::Lease(answer)) => Input::Answered { attempt, answer },
                Ok(other) => {
                    let what = format!("the store answered a lease command with {other:?}");
                    Input::Failed {
                        attempt,
                        failure: Failure::Invalid(what),
                    }
                }
                Err(error) => Input::Failed {
                    attempt,
                    failure: failure(error),
                },
            }
        }));
    }

    fn tell(&mut self, tell: Tell) {
        let lease = &self.parts.plan.name;
        match tell {
            Tell::Waiting { blocker, again } => {
                debug!(%lease, %blocker, "waiting");
                self.phase(Phase::Waiting { blocker, again });
            }
            Tell::Held(term) => {
                info!(%lease, token = %term.token(), ttl = ?term.ttl(), "held");
                self.phase(Phase::Held(term));
                self.hand_over(term);
            }
            Tell::Renewed(term) => {
                debug!(%lease, token = %term.token(), "renewed");
                self.phase(Phase::Held(term));
                self.renewed(term);
            }
            Tell::Suspect => self.phase(Phase::Suspect),
            Tell::Confirmed => {
                info!(%lease, "the store confirmed the lease");
                if let Some(view) = &self.view {
                    view.confirmed(self.pauses_seen);
                }
            }
            Tell::Stop { loss, kill_at } => {
                warn!(%lease, reason = %loss, "the work must stop");
                self.phase(Phase::Stopping(loss.clone()));
                if let Some(view) = &self.view {
                    view.lose(loss, kill_at);
                }
            }
            Tell::Kill => warn!(%lease, "the work has not stopped in time"),
            Tell::Overdue => {
                warn!(%lease, "the deadline passed with work going on: only fences protect now")
            }
            Tell::Over {
                token,
                loss,
                released,
            } => self.over(token, loss.as_ref(), released),
            Tell::GaveUp(why) => {
                debug!(%lease, ?why, "gave up");
                self.phase(Phase::Idle);
                if let Some(wanted) = self.wanted.take() {
                    let _ = wanted.send(Err(why));
                }
            }
        }
    }

    fn hand_over(&mut self, term: leasehold_core::Term) {
        let view = Arc::new(View::new(
            self.parts.plan.name.clone(),
            term,
            self.parts.clock.clone(),
            (self.pauses.clone(), self.pauses_seen),
            self.parts.stop.clone(),
        ));
        self.progressed = view.progressed();
        self.view = Some(view.clone());
        let handover = self
            .sender
            .upgrade()
            .map(|sender| Handover::new(view, sender));
        if let (Some(handover), Some(wanted)) = (handover, self.wanted.take()) {
            // If nobody waits any more, it comes back by itself.
            let _ = wanted.send(Ok(handover));
        }
    }

    /// The worker may have seen the end on its own clock before this renewal was known. Then that stands.
    fn renewed(&mut self, term: leasehold_core::Term) {
        let lost = match &self.view {
            Some(view) if !view.renewed(term) => view.loss(),
            _ => None,
        };
        if let (Some(loss), Some(sender)) = (lost, self.sender.upgrade()) {
            let token = term.token();
            let _ = sender.send(Request::Lose { token, loss });
        }
    }

    fn over(&mut self, token: Token, loss: Option<&Loss>, released: bool) {
        let lease = &self.parts.plan.name;
        match loss {
            Some(loss) => info!(%lease, %token, released, reason = %loss, "over"),
            None => info!(%lease, %token, released, "over"),
        }
        self.phase(Phase::Idle);
        self.view = None;
        if let Some(done) = self.done.take() {
            let _ = done.send(released);
        }
    }

    fn phase(&self, phase: Phase) {
        self.parts.phase.send_replace(phase);
    }
}

impl Drop for Engine {
    /// Also when a store panics: the worker learns that nobody renews any more (FB-20).
    fn drop(&mut self) {
        if let Some(view) = self.view.take() {
            let grace = view.term().timing().grace();
            view.lose(Loss::Died, view.clock.now().plus(grace));
        }
    }
}

fn failure(error: StoreError) -> Failure {
    match error {
        StoreError::Unknown { what } => Failure::Unknown(what),
        StoreError::Unavailable { what } => Failure::Unavailable(what),
        StoreError::BlockedBy { who } => Failure::Blocked(who),
        StoreError::Invalid { what } => Failure::Invalid(what),
    }
}
