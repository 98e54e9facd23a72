//! The keeper over a store that goes wrong on command, on a clock that is moved by hand.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test may fail, and its patience is in real time"
)]

mod embedded;
mod ends;
mod loses;
mod network;
mod rig;
mod runs;
mod waits;
