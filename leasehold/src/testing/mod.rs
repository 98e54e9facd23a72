//! For tests of programs that hold leases: time that is moved by hand, and a store that goes wrong on command.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use leasehold::{Keeper, store::memory::MemoryStore, testing::{Fault, On, ScriptedStore, VirtualClock}};
//!
//! let clock = VirtualClock::new();
//! let store = ScriptedStore::new(MemoryStore::with_clock(clock.clone()), clock.clone());
//! let keeper = Keeper::new(store.clone(), "nightly".parse()?).clock(clock.clone());
//! let guard = keeper.acquire_blocking()?;
//!
//! store.always(On::Renew, Fault::LoseReply);      // from here on no renewal is answered
//! clock.advance(Duration::from_secs(15));
//! assert!(guard.check().is_err());                // so nothing is allowed any more
//! # Ok(()) }
//! ```

mod clock;
mod gate;
mod script;

pub use crate::store::contract;
pub use clock::VirtualClock;
pub use gate::Gate;
pub use script::{Fault, On, ScriptedStore, Stuck};
