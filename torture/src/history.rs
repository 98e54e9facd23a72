//! What happened in one run, as a flat list of events on one true clock: calls on leases and their answers, effects at
//! resources, steps of holders, changes of the store, faults. Any harness can write it, and it can be judged again later.
//!
//! The one rule: times are nanoseconds of the simulator's or the test host's clock, never of a party under test. A
//! harness converts a holder's deadline to that clock before it records it.
//!
//! On disk: JSON lines, one header `{"history":1,"made_by":"..."}` and one event a line, in the order they happened.

mod draw;
mod file;
mod ops;
mod show;

pub use draw::{LEGEND, View, draw};
pub use file::{EVENT_LIMIT, LINE_LIMIT, Writer};
pub use ops::{Op, Stamp};
pub use show::Seconds;

use serde::{Deserialize, Serialize};

/// One run: the command that repeats it and all its events, oldest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// The command that makes this history again, for the failure report.
    pub made_by: String,
    /// Oldest first. Among equal times the order in the list is the order in which things happened.
    pub events: Vec<Event>,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Nanoseconds on the true clock.
    pub time: u64,
    /// Who recorded it: one name per incarnation, so a restarted process has a new one.
    pub process: String,
    /// What happened.
    #[serde(flatten)]
    pub what: What,
}

/// The kinds of events.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum What {
    /// A call on a lease leaves its caller. A request that the harness delivers twice is two calls, the second without
    /// an answer.
    Invoke(Invoke),
    /// The answer to the call of this process with this id. A call that never gets one counts as [`Outcome::Unknown`].
    Return {
        /// The `id` of the call.
        id: u64,
        /// What it answered.
        #[serde(flatten)]
        outcome: Outcome,
    },
    /// A write at a resource, recorded when it was answered.
    Effect(Effect),
    /// A barrier: the fence of a resource was asked to go up to a token (F6, F10).
    Raise(Raise),
    /// A read of a resource by a holder that will decide on what it saw.
    Look(Look),
    /// The effect behind an idempotency key took place.
    KeyedEffect {
        /// The ledger's scope.
        scope: String,
        /// The key within it.
        key: String,
    },
    /// A caller was told that the effect behind this key is done, now or earlier.
    KeyedReply {
        /// The ledger's scope.
        scope: String,
        /// The key within it.
        key: String,
    },
    /// A token was presented as text at some edge (INV-13).
    TokenText {
        /// Which edge: a flag, a header, a JSON field.
        at: String,
        /// The text as given.
        text: String,
        /// Whether the edge took it for a token.
        accepted: bool,
    },
    /// A holder's step within one tenure.
    Tenure {
        /// The lease.
        lease: String,
        /// The tenure's token.
        token: u64,
        /// What the holder did or learnt.
        #[serde(flatten)]
        step: Step,
    },
    /// The process ended, so nothing of it acts any more. Children have their own [`Step::ChildDead`].
    Died,
    /// Something happened to the store itself.
    Store {
        /// The one lease it concerns; none means all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lease: Option<String>,
        /// What happened.
        #[serde(flatten)]
        change: Change,
    },
    /// The harness made a fault happen, from this event's time on.
    Fault {
        /// The fault mode, for [`Rules::required_faults`](crate::check::Rules::required_faults).
        kind: String,
        /// The process it hit; none means the store. A machine that stops as a whole is one fault for each process.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        victim: Option<String>,
        /// When it was over; none means at once.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<u64>,
        /// Whether it exceeds the bounds under which P-TIME is promised (0.2): pause over the margin, rate over rho.
        exceeds: bool,
    },
}

/// A call on a lease.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Invoke {
    /// Pairs the call with its answer; unique within the process.
    pub id: u64,
    /// The lease's name.
    pub lease: String,
    /// The caller's session.
    pub session: String,
    /// What is asked.
    #[serde(flatten)]
    pub call: Call,
}

/// What a caller can ask of a lease.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "call", rename_all = "snake_case")]
pub enum Call {
    /// Take the lease.
    Acquire {
        /// The request id, the same over all retries of one logical acquire.
        request: String,
        /// The time asked for, in nanoseconds.
        ttl: u64,
    },
    /// Keep it.
    Renew {
        /// The token to keep.
        token: u64,
        /// The time asked for, in nanoseconds.
        ttl: u64,
    },
    /// Give it back, by token or by the request id of the acquire (A4).
    Release {
        /// The token, if the caller knows it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        token: Option<u64>,
        /// Else the request id of the acquire to undo.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        request: Option<String>,
    },
    /// Look who holds it (L11).
    Read,
}

/// The answer to a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// Acquire: yours, now or since an earlier delivery of the same request.
    Granted {
        /// The tenure's token.
        token: u64,
        /// The time really granted, in nanoseconds.
        ttl: u64,
    },
    /// Acquire: somebody else's.
    Held {
        /// The holder's token.
        token: u64,
        /// The holder's session, where the store tells.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    /// Acquire: this request had its tenure and it is over (L2.2).
    AlreadyUsed,
    /// Renew: kept.
    Renewed {
        /// The time really granted, in nanoseconds.
        ttl: u64,
    },
    /// Renew, and release of what is not the caller's: the caller does not hold. Not for an attempt that was merely out of
    /// sequence: that is `Refused`.
    Lost,
    /// Release: the caller's tenure was the stored one, and it is over now.
    Released,
    /// Release: nothing of the caller's was live (L7, A21).
    AlreadyOver,
    /// Read: the stored token, 0 if there never was one.
    Seen {
        /// The stored token.
        token: u64,
        /// Whether the lease is valid now.
        held: bool,
        /// The holder's session, where the store tells.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    /// Any call: refused for a reason that says nothing about the tenure (quarantine, blocked, out of sequence, invalid).
    Refused {
        /// The reason.
        why: String,
    },
    /// Any call: certainly not applied, now or later.
    Failed,
    /// Any call: it may take effect at any later time, or never.
    Unknown,
}

/// A write at a resource.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    /// The thing written.
    pub resource: String,
    /// The lease that protects it.
    pub lease: String,
    /// The token it carried.
    pub token: u64,
    /// Whether the resource checked the token. Unfenced effects are the failing control (10.3).
    pub fenced: bool,
    /// What the writer was told.
    pub answer: Answer,
    /// Its place in the resource's own commit order, if it was committed; unique within the resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    /// When the writer started it, in nanoseconds on the true clock (INV-31).
    pub started: u64,
    /// What it left behind, unique within the resource, for resources that are lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Read-modify-write: the last position that was visible to the read it was computed from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_at: Option<u64>,
}

/// A fence asked to go up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Raise {
    /// The thing protected.
    pub resource: String,
    /// The lease that protects it.
    pub lease: String,
    /// The token it is raised to.
    pub token: u64,
    /// What the caller was told.
    pub answer: Answer,
    /// Its place in the resource's own commit order, if it was committed and has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
}

/// A read of a resource.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Look {
    /// The thing read.
    pub resource: String,
    /// The lease that protects it.
    pub lease: String,
    /// The reader's token.
    pub token: u64,
    /// Whether the reader raised the fence first, or acquiring does that here (F14).
    pub fenced: bool,
    /// The last position whose effect was visible; 0 for none, if positions start at 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    /// All values in it, for resources that are lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saw: Option<Vec<String>>,
}

/// What a resource answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Done, and told so.
    Accepted,
    /// Not done: stale, not raised, malformed.
    Refused,
    /// The answer got lost.
    #[default]
    Unknown,
}

/// A holder's step within one tenure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum Step {
    /// From now on effects are allowed.
    Held,
    /// The holder computed a deadline D.
    Deadline {
        /// D in nanoseconds on the true clock.
        deadline: u64,
    },
    /// From now on no effect of the tenure starts.
    Stopped,
    /// The holder learnt or decided that the tenure is over.
    Lost,
    /// The holder is about to release.
    Releasing,
    /// A process started that acts for the tenure.
    ChildStarted {
        /// Its pid or name.
        child: String,
    },
    /// It is dead, verified.
    ChildDead {
        /// Its pid or name.
        child: String,
    },
}

/// Something that happened to the store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum Change {
    /// It stopped without warning.
    Crash,
    /// It answers again.
    Restart,
    /// An older state was put back, with the bump or quarantine that belongs to it (T6).
    Restore,
    /// Another node's state took over.
    Failover,
    /// The floor of the tokens was raised (T5, T6).
    Bump {
        /// Tokens granted from now on are larger.
        floor: u64,
    },
    /// Its clock jumped.
    ClockStep {
        /// By how many nanoseconds, forward or backward.
        by: i64,
    },
    /// An operator ended a tenure (A21).
    ForceRelease {
        /// Whether the old promise was cut short.
        now: bool,
    },
    /// The record of the lease was deleted or collected (T5, INV-9).
    Deleted,
}

impl History {
    /// An empty history that names the command which makes it again.
    pub fn new(made_by: impl Into<String>) -> Self {
        Self {
            made_by: made_by.into(),
            events: Vec::new(),
        }
    }

    /// Appends one event.
    pub fn push(&mut self, time: u64, process: impl Into<String>, what: What) {
        self.events.push(Event {
            time,
            process: process.into(),
            what,
        });
    }

    /// Records that a call leaves its caller, and returns the id for [`History::answer`].
    pub fn invoke(
        &mut self,
        time: u64,
        process: impl Into<String>,
        lease: impl Into<String>,
        session: impl Into<String>,
        call: Call,
    ) -> u64 {
        let id = self.events.len() as u64;
        let invoke = Invoke {
            id,
            lease: lease.into(),
            session: session.into(),
            call,
        };
        self.push(time, process, What::Invoke(invoke));
        id
    }

    /// Records the answer to a call of the same process.
    pub fn answer(&mut self, time: u64, process: impl Into<String>, id: u64, outcome: Outcome) {
        self.push(time, process, What::Return { id, outcome });
    }

    /// One history out of those of several processes. At equal times calls come before answers, so that what may have
    /// been concurrent counts as concurrent.
    pub fn merge(parts: impl IntoIterator<Item = History>) -> History {
        let mut whole = History::default();
        for part in parts {
            if whole.made_by.is_empty() {
                whole.made_by = part.made_by;
            }
            whole.events.extend(part.events);
        }
        whole.events.sort_by_key(|event| {
            let late = match event.what {
                What::Invoke(_) => 0,
                What::Return { .. } => 2,
                _ => 1,
            };
            (event.time, late)
        });
        whole
    }
}

impl Outcome {
    /// Whether this can be the answer to `call`.
    pub fn fits(&self, call: &Call) -> bool {
        match self {
            Outcome::Granted { .. } | Outcome::Held { .. } | Outcome::AlreadyUsed => {
                matches!(call, Call::Acquire { .. })
            }
            Outcome::Renewed { .. } => matches!(call, Call::Renew { .. }),
            Outcome::Lost => matches!(call, Call::Renew { .. } | Call::Release { .. }),
            Outcome::Released | Outcome::AlreadyOver => matches!(call, Call::Release { .. }),
            Outcome::Seen { .. } => matches!(call, Call::Read),
            Outcome::Refused { .. } | Outcome::Failed | Outcome::Unknown => true,
        }
    }
}

impl Change {
    /// Its name as on disk, which can also be required as a fault mode.
    pub fn name(&self) -> &'static str {
        match self {
            Change::Crash => "crash",
            Change::Restart => "restart",
            Change::Restore => "restore",
            Change::Failover => "failover",
            Change::Bump { .. } => "bump",
            Change::ClockStep { .. } => "clock_step",
            Change::ForceRelease { .. } => "force_release",
            Change::Deleted => "deleted",
        }
    }
}
