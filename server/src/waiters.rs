//! Who waits for which lease, in order (W3), and the long poll that does it.
//!
//! Only the first of a queue asks the store; the others are asked for when their turn comes, so many waiters cost no more
//! calls than one. A release asks for the first waiter itself: nobody gets in between. Whoever comes back soon keeps its
//! place. A grant that cannot be delivered is not given back here: the client may have come back with
//! the same request elsewhere, and a release would take away what it was granted there (A4).

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use leasehold::{
    BootTime, LeaseName, RequestId, Session, StoreError,
    core::{Acquire, Answer, Command, Held, Op, Outcome},
};
use tokio::{
    sync::mpsc::{Receiver, Sender, channel},
    time::sleep,
};

use crate::app::App;

/// The first of a queue asks at least so often, if others may use the same store.
const POLL_MAX: Duration = Duration::from_secs(1);
/// And not more often (A20).
const POLL_MIN: Duration = Duration::from_millis(50);
/// How many leases the last grants are remembered of.
const GRANTS_KEPT: usize = 100_000;

/// Tells one wish from all others.
pub(crate) type Key = (Session, RequestId);

/// What became of a wish: an answer of the store, or none.
type Told = Result<Answer, StoreError>;

/// All queues.
pub(crate) struct Waiters {
    inner: Mutex<Inner>,
    most: usize,
    /// How long the place of one who is between two polls is kept.
    kept: Duration,
}

#[derive(Default)]
struct Inner {
    queues: HashMap<LeaseName, Queue>,
    /// The wish that was granted last, so that its retry does not wait behind those who wait for it.
    granted: HashMap<LeaseName, Key>,
    waiting: usize,
    visits: u64,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Waiter>,
    /// What the store said last, and when.
    last: Option<(Answer, BootTime)>,
}

struct Waiter {
    key: Key,
    /// Which poll of it is there; a retry takes the place over from the poll before it.
    visit: u64,
    ask: Acquire,
    received: BootTime,
    /// How to reach it; `None` between two polls.
    to: Option<Sender<Word>>,
    left: BootTime,
}

/// What a waiter is told.
enum Word {
    /// Somebody asked for it, at that time.
    Answered(Told, BootTime),
    /// The store may have changed.
    Look,
    /// It may be the first now.
    Turn,
}

/// The first waiter of a queue, about to be asked for by somebody else.
pub(crate) struct Turn {
    name: LeaseName,
    ask: Acquire,
    received: BootTime,
    to: Sender<Word>,
}

impl Turn {
    pub(crate) fn op(&self) -> Op {
        Op::Lease {
            name: self.name.clone(),
            command: Command::Acquire(self.ask.clone()),
        }
    }
}

impl Waiters {
    pub(crate) fn new(most: usize, kept: Duration) -> Self {
        Self {
            inner: Mutex::default(),
            most,
            kept,
        }
    }

    /// How many wait now.
    pub(crate) fn count(&self) -> usize {
        self.inner().waiting
    }

    /// How many wait for which lease, for people.
    pub(crate) fn of(&self, name: &LeaseName) -> usize {
        let inner = self.inner();
        let queue = inner.queues.get(name);
        queue.map_or(0, |queue| {
            queue.waiting.iter().filter(|w| w.to.is_some()).count()
        })
    }

    /// The first who waits and is there.
    pub(crate) fn first(&self, name: &LeaseName) -> Option<Turn> {
        let inner = self.inner();
        let waiter = inner.queues.get(name)?.present().next()?;
        Some(Turn {
            name: name.clone(),
            ask: waiter.ask.clone(),
            received: waiter.received,
            to: waiter.to.clone()?,
        })
    }

    /// Tells the waiter what came of its turn.
    pub(crate) fn hand_over(
        &self,
        turn: Turn,
        evaluated: BootTime,
        outcome: Result<Outcome, StoreError>,
    ) {
        self.see(
            &turn.name,
            (turn.ask.session, turn.ask.request_id),
            &outcome,
        );
        let told = outcome.and_then(of_lease).map(|answer| match answer {
            Answer::Granted(mut grant) => {
                grant.waited = grant.waited.saturating_add(evaluated.since(turn.received));
                Answer::Granted(grant)
            }
            answer => answer,
        });
        // One who has just gone, or was granted by its own ask, needs no word.
        let _ = turn.to.try_send(Word::Answered(told, evaluated));
    }

    /// Remembers who was granted a lease, and who holds it for those who wait.
    pub(crate) fn see(&self, name: &LeaseName, key: Key, outcome: &Result<Outcome, StoreError>) {
        if let Ok(Outcome::Lease(Answer::Granted(_))) = outcome {
            let mut inner = self.inner();
            if inner.granted.len() >= GRANTS_KEPT {
                inner.granted.clear();
            }
            inner.granted.insert(name.clone(), key);
        }
    }

    /// The store may have changed by somebody else's hand: the first of each queue looks.
    pub(crate) fn look(&self) {
        let inner = self.inner();
        for waiter in inner.queues.values().filter_map(|q| q.present().next()) {
            if let Some(to) = &waiter.to {
                let _ = to.try_send(Word::Look);
            }
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place, or the one that was kept. `None`: there are too many.
    fn enter(
        &self,
        name: &LeaseName,
        ask: &Acquire,
        now: BootTime,
    ) -> Option<(u64, Receiver<Word>)> {
        let mut inner = self.inner();
        if inner.waiting >= self.most {
            return None;
        }
        inner.waiting += 1;
        inner.visits += 1;
        let visit = inner.visits;
        let (to, words) = channel(4);
        let queue = inner.queues.entry(name.clone()).or_default();
        queue.forget_the_gone(now, self.kept);
        let key = (ask.session, ask.request_id);
        match queue.waiting.iter_mut().find(|w| w.key == key) {
            Some(waiter) => {
                (waiter.to, waiter.received, waiter.visit) = (Some(to), now, visit);
                waiter.ask = ask.clone();
            }
            None => queue.waiting.push_back(Waiter {
                key,
                visit,
                ask: ask.clone(),
                received: now,
                to: Some(to),
                left: now,
            }),
        }
        Some((visit, words))
    }

    /// Gives the place up, or keeps it for a while.
    fn leave(&self, name: &LeaseName, visit: u64, now: BootTime, keep: bool) {
        let mut inner = self.inner();
        inner.waiting = inner.waiting.saturating_sub(1);
        let Some(queue) = inner.queues.get_mut(name) else {
            return;
        };
        if let Some(waiter) = queue.waiting.iter_mut().find(|w| w.visit == visit) {
            (waiter.to, waiter.left) = (None, now);
        }
        if !keep {
            queue.waiting.retain(|w| w.visit != visit);
        }
        queue.forget_the_gone(now, self.kept);
        if let Some(to) = queue.present().next().and_then(|w| w.to.as_ref()) {
            let _ = to.try_send(Word::Turn);
        }
        if queue.waiting.is_empty() {
            inner.queues.remove(name);
        }
    }

    /// What to do now for this waiter.
    fn role(&self, name: &LeaseName, key: Key, now: BootTime) -> Role {
        let inner = self.inner();
        let Some(queue) = inner.queues.get(name) else {
            return Role::Ask;
        };
        let first = queue.present().next().is_some_and(|w| w.key == key);
        match (&queue.last, first) {
            _ if inner.granted.get(name) == Some(&key) => Role::Ask,
            (Some((last, at)), true) => {
                let free_in = hint(last).saturating_sub(now.since(*at));
                let since = now.since(*at);
                match free_in.is_zero() || since >= POLL_MAX {
                    true if since >= POLL_MIN => Role::Ask,
                    true => Role::Wait(POLL_MIN.saturating_sub(since)),
                    false => Role::Wait(free_in.min(POLL_MAX.saturating_sub(since))),
                }
            }
            (None, true) => Role::Ask,
            (_, false) => Role::Wait(POLL_MAX * 5),
        }
    }

    /// What the store said of a lease that others wait for too.
    fn note(&self, name: &LeaseName, answer: &Answer, now: BootTime) {
        if let Some(queue) = self.inner().queues.get_mut(name) {
            queue.last = Some((answer.clone(), now));
        }
    }

    /// A wish that was granted before is not any more, or the store would have said so again.
    fn not_granted(&self, name: &LeaseName, key: Key) {
        let mut inner = self.inner();
        if inner.granted.get(name) == Some(&key) {
            inner.granted.remove(name);
        }
    }

    /// The next ask comes at once.
    fn stale(&self, name: &LeaseName) {
        if let Some(queue) = self.inner().queues.get_mut(name) {
            queue.last = None;
        }
    }

    /// What one who waited in vain is told.
    fn last(&self, name: &LeaseName, now: BootTime) -> Option<Answer> {
        let inner = self.inner();
        let (answer, at) = inner.queues.get(name)?.last.as_ref()?;
        Some(aged(answer.clone(), now.since(*at)))
    }
}

enum Role {
    Ask,
    Wait(Duration),
}

impl Queue {
    fn present(&self) -> impl Iterator<Item = &Waiter> {
        self.waiting.iter().filter(|waiter| waiter.to.is_some())
    }

    fn forget_the_gone(&mut self, now: BootTime, kept: Duration) {
        self.waiting
            .retain(|waiter| waiter.to.is_some() || now.since(waiter.left) < kept);
    }
}

/// Asks for a lease and waits for it, at most `wait`; then the answer is who holds it.
pub(crate) async fn acquire(
    app: &Arc<App>,
    name: &LeaseName,
    ask: Acquire,
    wait: Duration,
) -> Result<Told, TooMany> {
    let received = app.clock.now();
    let until = received.plus(wait);
    let key = (ask.session, ask.request_id);
    let (visit, words) = app.waiters.enter(name, &ask, received).ok_or(TooMany)?;
    let mut place = Place {
        app,
        name,
        key,
        visit,
        words,
        keep: true,
    };
    let mut draining = app.draining.clone();
    let mut failed = None;
    loop {
        let now = app.clock.now();
        let role = app.waiters.role(name, key, now);
        let over = now >= until || *draining.borrow();
        let pause = match role {
            _ if over && (place.was_told() || failed.is_some()) => break,
            Role::Ask => match place.ask(&ask, received).await {
                Ok(answer) if is_final(&answer) => return Ok(place.end(answer)),
                Ok(_) => {
                    failed = None;
                    continue;
                }
                Err(error @ StoreError::Invalid { .. }) => return Ok(Err(error)),
                Err(error) => {
                    failed = Some(error);
                    POLL_MIN * 4
                }
            },
            // The end of the wait, and the store was never asked: it is asked once.
            Role::Wait(_) if over => match place.ask(&ask, received).await {
                Ok(answer) if is_final(&answer) => return Ok(place.end(answer)),
                told => return Ok(told),
            },
            Role::Wait(pause) => pause,
        };
        let pause = pause.min(until.since(now));
        tokio::select! {
            word = place.words.recv() => match word {
                Some(Word::Answered(Ok(answer), _)) if is_final(&answer) => return Ok(place.end(answer)),
                Some(Word::Answered(Ok(answer), at)) => app.waiters.note(name, &answer, at),
                Some(Word::Answered(Err(_), _) | Word::Look) => app.waiters.stale(name),
                Some(Word::Turn) => {}
                None => break,
            },
            () = sleep(pause) => {}
            _ = draining.wait_for(|draining| *draining) => {}
        }
    }
    Ok(match failed {
        Some(error) => Err(error),
        None => place.told(),
    })
}

/// More wait than the server allows.
pub(crate) struct TooMany;

/// A place in a queue. Its end, whatever the reason, tells the next one.
struct Place<'a> {
    app: &'a Arc<App>,
    name: &'a LeaseName,
    key: Key,
    visit: u64,
    words: Receiver<Word>,
    keep: bool,
}

impl Place<'_> {
    async fn ask(&self, ask: &Acquire, received: BootTime) -> Told {
        let op = Op::Lease {
            name: self.name.clone(),
            command: Command::Acquire(ask.clone()),
        };
        let evaluated = self.app.clock.now();
        let mut answer = self.app.apply(op).await.and_then(of_lease)?;
        match &mut answer {
            Answer::Granted(grant) => {
                grant.waited = grant.waited.saturating_add(evaluated.since(received));
            }
            answer => {
                self.app.waiters.not_granted(self.name, self.key);
                self.app.waiters.note(self.name, answer, evaluated);
            }
        }
        Ok(answer)
    }

    /// The wish is over. The next one knows who holds now, and for how long.
    fn end(&mut self, answer: Answer) -> Told {
        self.keep = false;
        if let Answer::Granted(grant) = &answer {
            let ask = self.app.waiters.ask_of(self.name, self.key);
            if let Some(ask) = ask {
                let held = Answer::Held(Held {
                    holder: ask.holder,
                    info: ask.info,
                    token: grant.token,
                    hint: grant.ttl.get(),
                    yours: false,
                });
                self.app
                    .waiters
                    .note(self.name, &held, self.app.clock.now());
            }
        }
        Ok(answer)
    }

    fn was_told(&self) -> bool {
        let now = self.app.clock.now();
        self.app.waiters.last(self.name, now).is_some()
    }

    fn told(&self) -> Told {
        let now = self.app.clock.now();
        let last = self.app.waiters.last(self.name, now);
        last.ok_or_else(|| StoreError::Unavailable {
            what: "the server is about to end".to_owned(),
        })
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let now = self.app.clock.now();
        self.app
            .waiters
            .leave(self.name, self.visit, now, self.keep);
    }
}

impl Waiters {
    fn ask_of(&self, name: &LeaseName, key: Key) -> Option<Acquire> {
        let inner = self.inner();
        let queue = inner.queues.get(name)?;
        let waiter = queue.waiting.iter().find(|waiter| waiter.key == key)?;
        Some(waiter.ask.clone())
    }
}

fn of_lease(outcome: Outcome) -> Told {
    match outcome {
        Outcome::Lease(answer) => Ok(answer),
        other => Err(StoreError::Unknown {
            what: format!("the store answered an acquire with {other:?}"),
        }),
    }
}

/// Nothing that waiting would change.
fn is_final(answer: &Answer) -> bool {
    match answer {
        Answer::Held(held) => held.yours,
        Answer::Delayed { .. } | Answer::Quarantined { .. } => false,
        _ => true,
    }
}

fn hint(answer: &Answer) -> Duration {
    match answer {
        Answer::Held(held) => held.hint,
        Answer::Delayed { hint } | Answer::Quarantined { hint } => *hint,
        _ => Duration::ZERO,
    }
}

/// The same answer, told later.
fn aged(answer: Answer, by: Duration) -> Answer {
    match answer {
        Answer::Held(held) => Answer::Held(Held {
            hint: held.hint.saturating_sub(by),
            ..held
        }),
        Answer::Delayed { hint } => Answer::Delayed {
            hint: hint.saturating_sub(by),
        },
        Answer::Quarantined { hint } => Answer::Quarantined {
            hint: hint.saturating_sub(by),
        },
        answer => answer,
    }
}
