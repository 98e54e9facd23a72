//! What the callers of a `Supervised` share with the thread that watches its guard.
//!
//! The one rule: a change of plan and the message about it are one step, so that guard and supervisor see changes in the
//! same order.

use std::sync::{Mutex, PoisonError};

use leasehold::BootTime;
use tokio::sync::watch;

use super::alarm::{Alarm, now};
use super::message::{Channel, ToGuard};
use super::plan::Plan;
use super::{Cause, Deadline, Exit, Reason};

#[derive(Clone, Debug)]
pub(super) enum State {
    Starting,
    Running { pid: i32 },
    Failed { error: String },
    Ended(Exit),
}

/// What the thread shares with the callers.
pub(super) struct Shared {
    pub(super) channel: Channel,
    plan: Mutex<Plan>,
    pub(super) alarm: Alarm,
    pub(super) state: watch::Sender<State>,
}

impl Shared {
    pub(super) fn new(channel: Channel, deadline: Deadline) -> std::io::Result<Shared> {
        let (state, _) = watch::channel(State::Starting);
        Ok(Shared {
            channel,
            plan: Mutex::new(Plan::new(deadline)),
            alarm: Alarm::new()?,
            state,
        })
    }

    /// Whether an extension is in time is judged here, where it is sent: the guard may read it later.
    pub(super) fn extend(&self, deadline: Deadline) -> bool {
        let mut plan = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        if plan.is_over(now()) {
            return false;
        }
        self.tell(&ToGuard::Extend(deadline));
        plan.extend(deadline);
        let _ = self.alarm.set(plan.kill_at());
        true
    }

    /// Tells the guard and changes our plan as one step, so that both see changes in the same order.
    pub(super) fn stop(&self, reason: Reason, kill_at: BootTime) {
        let mut plan = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        self.tell(&ToGuard::Stop { reason, kill_at });
        plan.stop(reason, kill_at);
        let _ = self.alarm.set(plan.kill_at());
    }

    pub(super) fn tell(&self, message: &ToGuard) {
        // If the guard cannot be told it is dead or stopped; both are the thread's business.
        let _ = self.channel.send(message, None);
    }

    pub(super) fn fail(&self, error: &anyhow::Error) {
        let error = format!("{error:#}");
        self.state.send_replace(State::Failed { error });
    }

    /// The guard will kill the tree at once.
    pub(super) fn let_go(&self) {
        self.channel.close();
    }

    /// Sets the alarm. True: the time to kill has come.
    pub(super) fn is_overdue(&self) -> bool {
        let plan = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        now() >= plan.kill_at() || self.alarm.set(plan.kill_at()).is_err()
    }

    /// Why the tree is killed at `kill_at`.
    pub(super) fn cause(&self) -> Cause {
        let mut plan = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        plan.next(now());
        plan.stopping().unwrap_or(Cause::Deadline)
    }
}
