//! The rules of leases with fencing tokens: pure functions of what is stored, what is asked and what time it is.
//!
//! No clock, no IO, no randomness, no async. A store loads rows, calls [`apply`], keeps the rows and answers; a holder
//! feeds replies and its clock to [`Term`]. The same input gives the same answer everywhere.
//!
//! | question | file |
//! |---|---|
//! | Is a lease free now, and who may have it? | `lease.rs` |
//! | How long may a holder go on? | `term.rs`, `timing.rs` |
//! | What does a holder do, from the first ask to the release? | `hold.rs` |
//! | Why was a write refused? | `fence.rs` |
//! | Was this already done? | `ledger.rs` |
//!
//! What these rules keep, and tests name (SEMANTICS 10.1): tokens only grow (INV-1, INV-9); one token belongs to one
//! grant (INV-2, INV-6); only the newest token renews (INV-3); nobody gets a lease before its promise ended (INV-4);
//! nobody else's release does anything (INV-5); what is no token is refused (INV-13).

#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod apply;
mod command;
mod event;
mod fence;
mod hold;
mod id;
mod invalid;
mod lease;
pub mod ledger;
mod name;
mod op;
mod pair;
mod snapshot;
mod status;
mod table;
mod term;
mod time;
mod timing;
mod token;

pub use apply::{Keep, Rows, apply};
pub use command::{Acquire, Answer, Command, Grant, Held, Lost, Release, Renew};
pub use event::{Event, What};
pub use fence::{Fence, Refusal, issued};
pub use hold::{Action, Blocker, Dice, Failure, GaveUp, Hold, Input, Loss, Plan, Tell, Wait};
pub use id::{AttemptId, RenewId, RequestId, Session};
pub use invalid::Invalid;
pub use lease::{Record, State, Tenure, decide};
pub use ledger::{Abandon, Begin, Complete, Done, Entry, Fingerprint, Unfinished, Verdict, Work};
pub use name::{Holder, Info, Key, LeaseName, Resource, WorkKey};
pub use op::{NotBumped, Op, Outcome, Stamp};
pub use pair::{Pair, Proof, Value};
pub use snapshot::BadSnapshot;
pub use status::Status;
pub use table::Table;
pub use term::Term;
pub use time::{BootTime, LockDelay, StoreTime, Ttl, WallTime};
pub use timing::{BadTiming, Drift, Overrides, TimeService, Timing};
pub use token::Token;
