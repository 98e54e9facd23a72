//! Three kinds of time that do not mix (1.4), and the durations that may travel between machines (C2).

use core::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

use crate::Invalid;

macro_rules! instant {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name(u64);

        impl $name {
            /// The start of this clock.
            pub const ZERO: Self = Self(0);
            /// Later than anything that happens.
            pub const MAX: Self = Self(u64::MAX);

            /// The instant this many nanoseconds after the start of its clock.
            pub const fn from_nanos(nanos: u64) -> Self {
                Self(nanos)
            }

            /// Nanoseconds since the start of its clock.
            pub const fn as_nanos(self) -> u64 {
                self.0
            }

            /// Later by `by`; stops at [`Self::MAX`].
            pub fn plus(self, by: Duration) -> Self {
                Self(self.0.saturating_add(nanos(by)))
            }

            /// Earlier by `by`; stops at [`Self::ZERO`].
            pub fn minus(self, by: Duration) -> Self {
                Self(self.0.saturating_sub(nanos(by)))
            }

            /// How much later than `earlier`; zero if it is not.
            pub fn since(self, earlier: Self) -> Duration {
                Duration::from_nanos(self.0.saturating_sub(earlier.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:?})"), Duration::from_nanos(self.0))
            }
        }
    };
}

instant! {
    /// The store's own clock, the only one that decides who holds (C1). Never compared across stores.
    StoreTime
}
instant! {
    /// The holder's clock: boot time, which runs on while the machine sleeps (C9). Decides only when the holder stops.
    BootTime
}
instant! {
    /// Nanoseconds since 1970 on a wall clock, which steps. For people and for ages of months; decides no lease.
    WallTime
}

impl WallTime {
    /// Milliseconds since 1970.
    pub const fn as_millis(self) -> u64 {
        self.as_nanos() / 1_000_000
    }
}

/// How long a lease lasts without a renewal: 500 ms to 24 h, in whole milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Ttl(u32);

impl Ttl {
    /// Below this a loaded machine cannot renew in time.
    pub const MIN: Ttl = Ttl(500);
    /// A script may hold for a day without renewing; a keeper should stay far below (O11).
    pub const MAX: Ttl = Ttl(24 * 60 * 60 * 1000);
    /// What a lease lasts unless told otherwise (O11).
    pub const DEFAULT: Ttl = Ttl(15_000);

    /// The ttl of this many milliseconds.
    pub fn from_millis(millis: u64) -> Result<Self, Invalid> {
        u32::try_from(millis)
            .map(Ttl)
            .ok()
            .filter(|ttl| (Self::MIN..=Self::MAX).contains(ttl))
            .ok_or_else(|| Self::invalid(Duration::from_millis(millis)))
    }

    /// Rounded up to a whole millisecond (FB-48).
    pub fn new(duration: Duration) -> Result<Self, Invalid> {
        u64::try_from(duration.as_nanos().div_ceil(1_000_000))
            .ok()
            .and_then(|millis| Self::from_millis(millis).ok())
            .ok_or_else(|| Self::invalid(duration))
    }

    fn invalid(given: Duration) -> Invalid {
        Invalid::new(
            "ttl",
            alloc::format!("{given:?}"),
            "a ttl lasts from 500ms to 24h",
        )
    }

    /// As a duration.
    pub const fn get(self) -> Duration {
        Duration::from_millis(self.0 as u64)
    }

    /// Whole milliseconds.
    pub const fn as_millis(self) -> u32 {
        self.0
    }
}

impl TryFrom<u32> for Ttl {
    type Error = Invalid;

    fn try_from(millis: u32) -> Result<Self, Invalid> {
        Self::from_millis(millis.into())
    }
}

impl From<Ttl> for u32 {
    fn from(ttl: Ttl) -> u32 {
        ttl.0
    }
}

impl fmt::Debug for Ttl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

/// How long nobody gets a lease after it ran out without a release (W4): 0 to 10 min, in whole milliseconds.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct LockDelay(u32);

impl LockDelay {
    /// No delay, the default: right when every effect is fenced (O12).
    pub const NONE: LockDelay = LockDelay(0);
    /// Longer than any request in flight should live.
    pub const MAX: LockDelay = LockDelay(10 * 60 * 1000);

    /// Rounded up to a whole millisecond.
    pub fn new(duration: Duration) -> Result<Self, Invalid> {
        u32::try_from(duration.as_nanos().div_ceil(1_000_000))
            .map(LockDelay)
            .ok()
            .filter(|delay| *delay <= Self::MAX)
            .ok_or_else(|| {
                Invalid::new(
                    "lock delay",
                    alloc::format!("{duration:?}"),
                    "it lasts from 0s to 10m",
                )
            })
    }

    /// As a duration.
    pub const fn get(self) -> Duration {
        Duration::from_millis(self.0 as u64)
    }

    /// Whole milliseconds.
    pub const fn as_millis(self) -> u32 {
        self.0
    }
}

impl TryFrom<u32> for LockDelay {
    type Error = Invalid;

    fn try_from(millis: u32) -> Result<Self, Invalid> {
        Self::new(Duration::from_millis(millis.into()))
    }
}

impl From<LockDelay> for u32 {
    fn from(delay: LockDelay) -> u32 {
        delay.0
    }
}

impl fmt::Debug for LockDelay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FB-48: 999 ms never becomes 0 s, half a millisecond never shortens a promise.
    #[test]
    fn a_ttl_is_rounded_up_and_kept_in_range() {
        assert_eq!(
            Ttl::new(Duration::from_micros(999_500))
                .unwrap()
                .as_millis(),
            1000
        );
        for bad in [
            Duration::ZERO,
            Duration::from_millis(499),
            Duration::from_secs(86_401),
            Duration::MAX,
        ] {
            assert!(Ttl::new(bad).is_err(), "{bad:?}");
        }
        assert!(Ttl::from_millis(u64::MAX).is_err());
        assert!(LockDelay::new(Duration::from_secs(601)).is_err());
    }

    #[test]
    fn times_saturate() {
        assert_eq!(StoreTime::MAX.plus(Duration::MAX), StoreTime::MAX);
        assert_eq!(StoreTime::ZERO.since(StoreTime::MAX), Duration::ZERO);
        assert_eq!(BootTime::ZERO.minus(Duration::MAX), BootTime::ZERO);
    }
}
