//! Fresh random ids from the kernel.

use std::{io, num::NonZeroU128};

use leasehold_core::Dice;

/// Dice of the kernel, which no clone of this process shares (A3).
pub(crate) struct Kernel;

impl Kernel {
    pub(crate) fn try_roll(&mut self) -> io::Result<NonZeroU128> {
        let mut bytes = [0; 16];
        loop {
            getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
            if let Some(bits) = NonZeroU128::new(u128::from_ne_bytes(bytes)) {
                return Ok(bits);
            }
        }
    }
}

impl Dice for Kernel {
    fn roll(&mut self) -> NonZeroU128 {
        self.try_roll()
            .expect("the kernel has dice: it gave some when this keeper started")
    }
}
