//! The SQLite store under the faults of one machine: killed, stopped, rebooted, restored, full, locked, and badly named.

#![allow(clippy::unwrap_used)] // Helpers of tests, which may.

mod ask;
mod busy;
mod child;
mod clocks;
mod contract;
mod crash;
mod files;
mod full;
mod restore;
mod stopped;
