//! How time passes in a story: on the demo's own store by hand, on a real store by itself.

use std::{sync::Arc, time::Duration};

use anyhow::Context;
use leasehold::{
    BootTime,
    clock::{BootClock, Clock},
};

use super::{actor::Actor, wire::Ask};

/// Time since the story began, on the clock that decides.
pub(crate) enum Time {
    /// The driver moves the clock of `lease_db`.
    ByHand {
        /// How far it was moved.
        passed: Duration,
    },
    /// Nobody moves it.
    Real {
        /// The clock that runs beside the store's.
        clock: Arc<BootClock>,
        /// When the story began.
        began: BootTime,
    },
}

impl Time {
    /// A clock that stands at zero until it is moved.
    pub(crate) fn by_hand() -> Self {
        Time::ByHand {
            passed: Duration::ZERO,
        }
    }

    /// Real time from now on.
    pub(crate) fn real() -> Self {
        let clock = BootClock::new();
        let began = clock.now();
        Time::Real { clock, began }
    }

    /// How much time has passed.
    pub(crate) fn passed(&self) -> Duration {
        match self {
            Time::ByHand { passed } => *passed,
            Time::Real { clock, began } => clock.now().since(*began),
        }
    }

    /// Lets it pass.
    pub(crate) async fn pass(
        &mut self,
        by: Duration,
        db: Option<&mut Actor>,
    ) -> anyhow::Result<()> {
        match self {
            Time::ByHand { passed } => {
                let db = db.context("a clock by hand needs a store")?;
                db.do_it(Ask::Advance {
                    seconds: by.as_secs(),
                })
                .await?;
                *passed += by;
            }
            Time::Real { .. } => tokio::time::sleep(by).await,
        }
        Ok(())
    }

    /// How often to ask for a lease that must be free by now: a real store may take a little longer.
    pub(crate) fn tries(&self) -> usize {
        match self {
            Time::ByHand { .. } => 1,
            Time::Real { .. } => 100,
        }
    }
}
