//! `leasehold run` with real processes: what the command gets, how it ends, what is done once, and who is dead when.
#![allow(clippy::disallowed_methods, reason = "tests measure")]

#[path = "../common/mod.rs"]
mod common;
mod deaths;
mod jobs;
mod once;
mod rig;
