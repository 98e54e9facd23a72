//! A server over real stores, on loopback, stopped at the end of each test.

#![allow(unreachable_pub)]
#![allow(clippy::unwrap_used)] // Tests may.
#![allow(clippy::disallowed_methods, reason = "tests measure")]

mod bad;
mod client;
mod contract;
mod described;
mod rig;
mod rights;
mod routes;
mod waiting;
mod watching;
