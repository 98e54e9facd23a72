//! What `run` tells on standard error: a line for people, an object with `--json`. Standard output is the command's.
//!
//! On a terminal it tells more, and while it waits it shows a line that moves. While the command runs the terminal is the
//! command's, so only what changes is told.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use leasehold::{
    Guard, LeaseName, Phase,
    core::{Blocker, Loss},
};
use serde_json::json;
use tokio::sync::watch;

use crate::{app::App, exit, out, show};

/// How often the line of one who waits moves.
const TICK: Duration = Duration::from_millis(200);

/// See the module.
pub(super) struct Say<'a> {
    app: &'a App,
    name: &'a LeaseName,
}

impl<'a> Say<'a> {
    pub(super) fn new(app: &'a App, name: &'a LeaseName) -> Self {
        Self { app, name }
    }

    /// Something worth a line, whoever reads it.
    pub(super) fn note(&self, event: &str, text: &str) {
        if self.app.json {
            out::complain(
                &json!({ "event": event, "lease": self.name.as_str(), "message": text })
                    .to_string(),
            );
        } else {
            out::note(text);
        }
    }

    /// Something worth a line only to a person who watches, or to a program.
    fn detail(&self, event: &str, text: &str) {
        if self.app.json || out::has_a_person() {
            self.note(event, text);
        }
    }

    /// The default store is one user's on one machine; that is said once.
    pub(super) fn where_it_counts(&self) {
        if let Some(path) = self.app.first_use_of_the_default() {
            self.note(
                "default_store",
                &format!(
                    "the leases are in {path}: they exclude only processes of this user on this machine; \
                     for more, name a store with --store or LEASEHOLD_STORE (said once)"
                ),
            );
        }
    }

    pub(super) fn held(&self, guard: &Guard) {
        let text = format!("{} is held, token {}", self.name, guard.token());
        self.detail("held", &text);
    }

    /// No renewal was answered lately; `left` is what remains until the command must stop.
    pub(super) fn late(&self, left: Duration) {
        let left = show::span(left);
        let text = format!(
            "{}: renewing, the store does not answer; the command is stopped in {left}",
            self.name
        );
        self.detail("late", &text);
    }

    /// It was renewed after all.
    pub(super) fn in_time(&self, late: &mut bool) {
        if std::mem::take(late) {
            self.detail("renewed", &format!("{}: renewed", self.name));
        }
    }

    pub(super) fn lost(&self, guard: &Guard, why: &Loss) {
        let text = format!("{} with token {} is lost: {why}", self.name, guard.token());
        self.detail("lost", &text);
    }

    /// The command ended, and is to be run again after `rest`. An end that it chose well is nothing special.
    pub(super) fn again(&self, code: u8, rest: Duration) {
        let text = format!(
            "the command ended with {code}; {} is asked for again in {}",
            self.name,
            show::span(rest)
        );
        if code == exit::DONE {
            self.detail("again", &text);
        } else {
            self.note("again", &text);
        }
    }

    /// Says for whom we wait, as long as we wait. Never comes back.
    pub(super) async fn follow(&self, mut phase: watch::Receiver<Phase>) {
        let line = (out::has_a_person() && !self.app.json).then(waiting_line);
        let mut told = String::new();
        loop {
            let blocker = match &*phase.borrow_and_update() {
                Phase::Waiting { blocker, .. } => Some(blocker.clone()),
                _ => None,
            };
            if let Some(blocker) = blocker {
                let text = self.waiting(&blocker);
                match &line {
                    Some(line) => line.set_message(text),
                    None if whom(&blocker) != told => self.note("waiting", &text),
                    None => {}
                }
                told = whom(&blocker);
            }
            if phase.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    fn waiting(&self, blocker: &Blocker) -> String {
        match blocker {
            Blocker::Held(held) => {
                let info = held
                    .info
                    .as_ref()
                    .map_or_else(String::new, |info| format!(" ({info})"));
                format!(
                    "waiting: {} is held by {}{info} with token {}, free in {} unless renewed",
                    self.name,
                    held.holder,
                    held.token,
                    show::span(held.hint)
                )
            }
            other => format!("waiting for {}: {other}", self.name),
        }
    }
}

/// What a wait is about, without what changes all the time.
fn whom(blocker: &Blocker) -> String {
    match blocker {
        Blocker::Held(held) => format!("{} {}", held.holder, held.token),
        Blocker::Delayed(_) => "delayed".to_owned(),
        Blocker::Quarantined(_) => "quarantined".to_owned(),
        other => other.to_string(),
    }
}

/// Gone from the terminal when dropped.
fn waiting_line() -> ProgressBar {
    let line = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg} {elapsed}") {
        line.set_style(style);
    }
    line.enable_steady_tick(TICK);
    line
}
