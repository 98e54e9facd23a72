//! Leases with fencing tokens, replicated by a consensus log among three or five machines, or on one.
//!
//! [`RaftStore`] is a [`leasehold::Store`] inside your own program: no other service is needed, and it moves only while a
//! majority is up. The rules are those of `leasehold-core`; the consensus is openraft's; this crate is the log between
//! them, the time in it, and the calls between members.
//!
//! | question | file |
//! |---|---|
//! | What time is it in the log? | `reign.rs`, `machine.rs` |
//! | When is something answered? | `node.rs` |
//! | When is it durable? | `writer.rs`, `disk.rs` |

mod answers;
mod codec;
mod config;
mod disk;
mod log;
mod look;
mod machine;
mod member;
mod members;
mod network;
mod node;
mod reign;
mod restore;
#[cfg(test)]
mod sim;
mod snapshot;
mod store;
mod tcp;
mod transport;
mod types;
mod wire;
mod writer;

pub use config::Config;
pub use restore::restore;
pub use store::RaftStore;
pub use wire::{Member, Report};
