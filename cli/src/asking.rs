//! One logical acquire over all its polls: one request id, so that one wish is granted once (A4).
//!
//! Nothing is left behind in doubt: what was granted and cannot be used (a signal, a closed output, an answer that came
//! too late or never) is given back (L9).

use std::time::Duration;

use leasehold::{
    BootTime, LeaseName, Token, Ttl,
    core::{Acquire, Answer, Command, Grant, Held, Lost, Release},
    store::{Changes, Store, StoreError},
};

use crate::{app::App, ask, exit::Failure, out, show, view::millis};

/// Between two questions to the store, at least (A20).
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
/// How long a store that serves its waiters in order may hold one back.
const HOLD_BACK: Duration = Duration::from_secs(20);
/// And at most: the store's ticks are only hints.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// See the module.
pub(crate) struct Asking<'a> {
    app: &'a App,
    store: &'a dyn Store,
    name: &'a LeaseName,
    request: Acquire,
    /// Until when to wait; `None`: not at all.
    deadline: Option<BootTime>,
    /// Whom we have said we wait for.
    waits_for: Option<String>,
    /// An answer is missing, or is a grant that nobody has been told of.
    perhaps_granted: bool,
    /// Was refused by a holder that seemed gone already (A20).
    asked_again: bool,
}

/// What the caller has now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Tenure {
    pub(crate) token: Token,
    pub(crate) ttl: Ttl,
    /// It had it before.
    pub(crate) renewed: bool,
}

/// What one question brought.
enum Turn {
    Held(Tenure),
    /// Nothing yet: how it ends if we do not wait, and how long that may last.
    Busy(Failure, Duration),
    Again,
}

impl<'a> Asking<'a> {
    pub(crate) fn new(
        app: &'a App,
        store: &'a dyn Store,
        name: &'a LeaseName,
        request: Acquire,
        wait: Option<Duration>,
    ) -> Self {
        Self {
            deadline: wait.map(|wait| app.clock.now().plus(wait)),
            waits_for: None,
            perhaps_granted: false,
            asked_again: false,
            app,
            store,
            name,
            request,
        }
    }

    /// Asks until it is granted, or the wait is over. May be dropped; then [`Self::give_up`].
    pub(crate) async fn until_held(&mut self) -> Result<Tenure, Failure> {
        loop {
            // Before asking, or a release in between would go unseen.
            let changes = self.store.changes();
            match self.ask().await? {
                Turn::Held(tenure) => return Ok(tenure),
                Turn::Busy(failure, hint) => self.pause(failure, hint, changes).await?,
                Turn::Again => {}
            }
        }
    }

    /// Gives back whatever this request was or will be granted, and says how it ended.
    pub(crate) async fn give_up(&self, failure: Failure) -> Failure {
        if !self.perhaps_granted {
            return failure;
        }
        let release = Command::Release(Release::Request {
            session: self.request.session,
            request_id: self.request.request_id,
        });
        match ask::command(self.app, self.store, self.name, release).await {
            Ok(_) => failure,
            Err(error) => failure.also(&format!(
                "a release was not confirmed ({error}): {} may be held for up to {}",
                self.name,
                show::span(self.request.ttl.get())
            )),
        }
    }

    async fn ask(&mut self) -> Result<Turn, Failure> {
        let sent = self.app.clock.now();
        let command = Command::Acquire(self.request.clone());
        // Whoever drops us in here gets no answer.
        let doubt = std::mem::replace(&mut self.perhaps_granted, true);
        let wait = self.hold_back();
        let answer = ask::command_waiting(self.app, self.store, self.name, command, wait).await;
        let unknown = matches!(answer, Err(StoreError::Unknown { .. }));
        self.perhaps_granted = doubt || unknown || matches!(answer, Ok(Answer::Granted(_)));
        Ok(match answer {
            Ok(Answer::Granted(grant)) => Turn::Held(self.in_time(grant, sent)?),
            Ok(Answer::Held(held)) if held.yours => Turn::Held(self.keep(held.token).await?),
            Ok(Answer::Held(held)) => Turn::Busy(self.held(&held), held.hint),
            Ok(Answer::Delayed { hint }) => self.empty("its lock delay runs", hint),
            Ok(Answer::Quarantined { hint }) => self.empty("it is in quarantine", hint),
            Ok(Answer::AlreadyUsed) => {
                self.request.request_id = ask::new_request_id()?;
                self.perhaps_granted = false;
                Turn::Again
            }
            Ok(Answer::TokenExhausted) => return Err(ask::exhausted(self.name)),
            Ok(other) => return Err(ask::unexpected(&other)),
            Err(error @ StoreError::Invalid { .. }) => return Err(error.into()),
            Err(error) => {
                self.say_once("the store", &error.to_string());
                Turn::Busy(error.into(), LONGEST_PAUSE)
            }
        })
    }

    /// How long the store may hold this ask back: one who waits, and has been told for whom.
    fn hold_back(&self) -> Duration {
        let left = self.deadline.map(|at| at.since(self.app.clock.now()));
        match (left, &self.waits_for) {
            (Some(left), Some(_)) if self.store.profile().fifo => left.min(HOLD_BACK),
            _ => Duration::ZERO,
        }
    }

    /// Waits for a tick, for what the hint says, or for the end of the wait: then `failure` is how it ends.
    async fn pause(
        &mut self,
        failure: Failure,
        hint: Duration,
        mut changes: Changes,
    ) -> Result<(), Failure> {
        let left = match self.deadline {
            Some(deadline) => deadline.since(self.app.clock.now()),
            // A hint of nothing shows a holder that is gone already: asked once more before it is believed (A20).
            None if hint.is_zero() && !self.asked_again => SHORTEST_PAUSE,
            None => Duration::ZERO,
        };
        if left.is_zero() {
            return Err(failure);
        }
        self.asked_again = true;
        if self.store.profile().fifo {
            // It keeps our place while we wait there.
            tokio::time::sleep(SHORTEST_PAUSE.min(left)).await;
            return Ok(());
        }
        let pause = (hint.min(LONGEST_PAUSE) + jitter()).min(left);
        tokio::time::sleep(SHORTEST_PAUSE.min(left)).await;
        tokio::select! {
            () = changes.changed() => {}
            () = tokio::time::sleep(pause.saturating_sub(SHORTEST_PAUSE)) => {}
        }
        Ok(())
    }

    /// Our own session holds: that is a renewal.
    async fn keep(&self, token: Token) -> Result<Tenure, Failure> {
        let tenure = (token, self.request.session);
        let ttl = Some(self.request.ttl);
        Ok(Tenure {
            token,
            ttl: ask::renew(self.app, self.store, self.name, tenure, ttl).await?,
            renewed: true,
        })
    }

    /// A grant is worth what is left of it: the process may have slept since it asked (C3).
    fn in_time(&self, grant: Grant, sent: BootTime) -> Result<Tenure, Failure> {
        let since_sent = self.app.clock.now().since(sent);
        if since_sent.saturating_sub(grant.waited) >= grant.ttl.get() {
            return Err(ask::lost(grant.token, Lost::Expired));
        }
        Ok(Tenure {
            token: grant.token,
            ttl: grant.ttl,
            renewed: false,
        })
    }

    fn held(&mut self, held: &Held) -> Failure {
        let info = held.info.as_ref();
        let info = info.map_or_else(String::new, |info| format!(" ({info})"));
        let mut text = format!(
            "{} is held by {}{info} with token {}, free in {} unless renewed",
            self.name,
            held.holder,
            held.token,
            show::span(held.hint)
        );
        if held.holder == self.request.holder {
            text += "; it has your holder name but another session";
        }
        self.say_once(held.holder.as_str(), &text);
        self.busy(text, held.hint)
            .with("holder", held.holder.as_str())
            .with("token", held.token.to_string())
    }

    fn empty(&mut self, why: &str, hint: Duration) -> Turn {
        let time = show::span(hint);
        let text = format!("nobody holds {}, but {why} for {time}", self.name);
        self.say_once(why, &text);
        Turn::Busy(self.busy(text, hint), hint)
    }

    fn busy(&self, text: String, hint: Duration) -> Failure {
        Failure::busy(text)
            .with("lease", self.name.as_str())
            .with("free_in_ms", millis(hint))
    }

    /// One who waits is told for whom, once.
    fn say_once(&mut self, whom: &str, text: &str) {
        if self.deadline.is_some() && !self.app.json && self.waits_for.as_deref() != Some(whom) {
            out::note(&format!("waiting: {text}"));
            self.waits_for = Some(whom.to_owned());
        }
    }
}

/// Up to the shortest pause, so that many who wait for one do not ask at once.
fn jitter() -> Duration {
    let mut byte = [0];
    // Without random bits they may ask at once.
    let _ = getrandom::fill(&mut byte);
    SHORTEST_PAUSE * u32::from(byte[0]) / 255
}

#[cfg(test)]
mod tests;
