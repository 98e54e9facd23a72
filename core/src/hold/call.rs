//! A question to the store on its way, and how long to wait before the next one.

use core::time::Duration;

use super::{Dice, Failure};
use crate::BootTime;

/// A question on its way to the store. Only the answer to the latest one counts (C4).
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) attempt: u64,
    pub(super) sent: BootTime,
    pub(super) until: BootTime,
    /// How long the store may hold it back.
    pub(super) hold_back: Duration,
}

impl Call {
    /// The call under way, if it is this attempt. An answer to an older one says nothing any more (A3).
    pub(super) fn take(call: &mut Option<Call>, attempt: u64) -> Option<Call> {
        call.take_if(|call| call.attempt == attempt)
    }

    pub(super) fn is_over(call: Option<&Call>, now: BootTime) -> bool {
        call.is_some_and(|call| now >= call.until)
    }

    pub(super) fn wake_at(call: Option<&Call>, next: BootTime) -> BootTime {
        call.map_or(next, |call| call.until)
    }

    pub(super) fn no_answer(timeout: Duration) -> Failure {
        Failure::Unknown(alloc::format!(
            "the store did not answer within {timeout:?}"
        ))
    }
}

/// `first`, doubled `tries` times, at most `most`; of that between half and all.
pub(super) fn backoff(
    tries: u32,
    first: Duration,
    most: Duration,
    dice: &mut dyn Dice,
) -> Duration {
    let whole = first.saturating_mul(1 << tries.min(20)).min(most);
    whole / 2 + part(whole / 2, dice)
}

/// A random part of a span.
pub(super) fn part(span: Duration, dice: &mut dyn Dice) -> Duration {
    let of_2_32 = dice.roll().get() & 0xffff_ffff;
    let nanos = (span.as_nanos().min(u128::from(u64::MAX)) * of_2_32) >> 32;
    Duration::from_nanos(nanos as u64)
}
