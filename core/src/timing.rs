//! When a holder renews, how long it waits for an answer, and how long before the end it stops. All of it follows from
//! the ttl unless it is set (A15), and a set of times that leaves no room for one full retry cannot be made (C16).
//!
//! ```text
//!  sent            renew                                stop        kill    D                       expiry
//!   ├── P ───────────┼── A ──┼── A ──┤ ...               ├─ grace ───┼─ slack ┼── m ──┼── ρ · ttl ────┤
//! ```

use alloc::{string::String, vec::Vec};
use core::{fmt, time::Duration};

use crate::{Invalid, Ttl};

/// By how much the rates of two clocks may differ: store rate / holder rate ≤ 1 / (1 − ρ) (A17).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Drift(u32);

impl Drift {
    /// Both are one clock.
    pub const NONE: Drift = Drift(0);
    /// 0.1 %: the kernel slews by 500 ppm at most under ntpd and systemd-timesyncd (C11).
    pub const NTP: Drift = Drift(1_000);
    /// 10 %: enough for hosts nobody knows, together with a margin of ttl/10 (C11, A17).
    pub const UNKNOWN: Drift = Drift(100_000);
    /// 16 %: chrony slews by up to 8.3 % in either direction on both hosts.
    pub const CHRONY: Drift = Drift(160_000);
    /// Half: no real clock is that wrong.
    pub const MAX: Drift = Drift(500_000);

    /// So many parts in a million, up to [`Drift::MAX`].
    pub fn from_ppm(ppm: u32) -> Result<Self, Invalid> {
        if ppm > Self::MAX.0 {
            let allowed = "it is 0 to 500000 parts in a million";
            return Err(Invalid::new("drift", ppm, allowed));
        }
        Ok(Drift(ppm))
    }

    /// This part of a duration, rounded up.
    pub fn of(self, duration: Duration) -> Duration {
        let nanos = (duration.as_nanos() * u128::from(self.0)).div_ceil(1_000_000);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

impl fmt::Debug for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:04}%", self.0 / 10_000, self.0 % 10_000)
    }
}

/// What keeps the clocks of *both* hosts, the store's and the holder's, at their rate. Only who runs them can know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeService {
    /// Store and holder read the clock of one machine: [`Drift::NONE`].
    SameClock,
    /// ntpd or systemd-timesyncd: [`Drift::NTP`].
    Ntp,
    /// chrony with its own limits: [`Drift::CHRONY`].
    Chrony,
}

impl TimeService {
    fn drift(self) -> Drift {
        match self {
            TimeService::SameClock => Drift::NONE,
            TimeService::Ntp => Drift::NTP,
            TimeService::Chrony => Drift::CHRONY,
        }
    }
}

/// What a user sets; everything else follows from the ttl.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// P: how long after a renewal was sent the next one is. Default ttl/3, at least 50 ms.
    pub renew: Option<Duration>,
    /// A: how long to wait for an answer. Default ttl/6, at least 10 ms.
    pub attempt: Option<Duration>,
    /// m: for scheduling and delays on the way. Default ttl/10, at least 200 ms.
    pub margin: Option<Duration>,
    /// ρ. Default 10 %, or what the time service keeps.
    pub drift: Option<Drift>,
    /// What keeps the clocks; states that it is so on both hosts.
    pub time_service: Option<TimeService>,
    /// How long work may take to stop by itself. Default ttl/5, at most 3 s, of which two thirds.
    pub grace: Option<Duration>,
    /// How long it may take to die when killed. Default the other third.
    pub kill_slack: Option<Duration>,
}

/// All times of one holder; cannot hold a set that does not work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    ttl: Ttl,
    renew: Duration,
    attempt: Duration,
    margin: Duration,
    drift: Drift,
    grace: Duration,
    kill_slack: Duration,
}

impl Timing {
    /// Never more often, or a store drowns (A20).
    pub const MIN_RENEW: Duration = Duration::from_millis(50);
    /// Sooner no answer can come.
    pub const MIN_ATTEMPT: Duration = Duration::from_millis(10);
    const MIN_MARGIN: Duration = Duration::from_millis(200);
    const MAX_GRACE: Duration = Duration::from_secs(3);

    /// The defaults for a ttl; refused for a ttl of 1 s and less, which leaves no time for a retry.
    pub fn new(ttl: Ttl) -> Result<Self, BadTiming> {
        Self::with(ttl, &Overrides::default())
    }

    /// The defaults for a ttl, except what was set.
    pub fn with(ttl: Ttl, set: &Overrides) -> Result<Self, BadTiming> {
        let timing = Self::fill(ttl, set);
        timing.check_each(set)?;
        if timing.needs() >= ttl.get() {
            return Err(BadTiming::NoRoom {
                timing,
                set: names(set),
                smallest: smallest_ttl(set),
            });
        }
        Ok(timing)
    }

    fn fill(ttl: Ttl, set: &Overrides) -> Self {
        let whole = ttl.get();
        let stopping = Self::MAX_GRACE.min(whole / 5);
        let drift = set.time_service.map_or(Drift::UNKNOWN, TimeService::drift);
        Self {
            ttl,
            renew: set.renew.unwrap_or(whole / 3),
            attempt: set.attempt.unwrap_or(whole / 6),
            margin: set.margin.unwrap_or(Self::MIN_MARGIN.max(whole / 10)),
            drift: set.drift.unwrap_or(drift),
            grace: set.grace.unwrap_or(stopping * 2 / 3),
            kill_slack: set.kill_slack.unwrap_or(stopping / 3),
        }
    }

    /// A17: a thin margin or a small drift needs somebody's word for the clocks.
    fn check_each(&self, set: &Overrides) -> Result<(), BadTiming> {
        let least = [
            ("renew period", self.renew, Self::MIN_RENEW),
            ("attempt timeout", self.attempt, Self::MIN_ATTEMPT),
        ];
        for (what, given, least) in least {
            if given < least {
                return Err(BadTiming::TooShort { what, given, least });
            }
        }
        if set.time_service.is_some() || self.drift >= Drift::CHRONY {
            return Ok(());
        }
        if self.margin < self.ttl.get() / 10 || self.drift < Drift::UNKNOWN {
            return Err(BadTiming::ClocksUnknown { timing: *self });
        }
        Ok(())
    }

    /// C16: what must fit into the ttl.
    fn needs(&self) -> Duration {
        [
            self.attempt,
            self.margin,
            self.drift.of(self.ttl.get()),
            self.grace,
            self.kill_slack,
        ]
        .into_iter()
        .fold(self.renew, Duration::saturating_add)
    }

    /// What to ask the store for.
    pub fn ttl(&self) -> Ttl {
        self.ttl
    }

    /// P: from one renewal to the next.
    pub fn renew(&self) -> Duration {
        self.renew
    }

    /// A: how long to wait for one answer.
    pub fn attempt(&self) -> Duration {
        self.attempt
    }

    /// m: kept between the deadline and the expiry.
    pub fn margin(&self) -> Duration {
        self.margin
    }

    /// ρ.
    pub fn drift(&self) -> Drift {
        self.drift
    }

    /// How long work may take to stop by itself.
    pub fn grace(&self) -> Duration {
        self.grace
    }

    /// How long it may take to die when killed.
    pub fn kill_slack(&self) -> Duration {
        self.kill_slack
    }
}

/// The smallest ttl that `set` fits into. Where one fits every longer one does: of what grows with the ttl, all parts
/// together grow slower than it does.
fn smallest_ttl(set: &Overrides) -> Option<Ttl> {
    let fits = |millis: u32| {
        Ttl::from_millis(millis.into())
            .ok()
            .filter(|ttl| Timing::fill(*ttl, set).needs() < ttl.get())
    };
    let (mut low, mut high) = (Ttl::MIN.as_millis(), Ttl::MAX.as_millis());
    let mut best = fits(high)?;
    while low <= high {
        let middle = low + (high - low) / 2;
        match fits(middle) {
            Some(ttl) => {
                best = ttl;
                high = middle - 1;
            }
            None => low = middle + 1,
        }
    }
    Some(best)
}

fn names(set: &Overrides) -> Vec<&'static str> {
    let all = [
        (set.renew.is_some(), "renew period"),
        (set.attempt.is_some(), "attempt timeout"),
        (set.margin.is_some(), "margin"),
        (set.drift.is_some() || set.time_service.is_some(), "drift"),
        (set.grace.is_some(), "grace"),
        (set.kill_slack.is_some(), "kill slack"),
    ];
    all.into_iter()
        .filter_map(|(is_set, name)| is_set.then_some(name))
        .collect()
}

/// Why a set of times cannot work. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadTiming {
    /// A time is too short by itself.
    TooShort {
        /// Which.
        what: &'static str,
        /// As it was set.
        given: Duration,
        /// What is allowed.
        least: Duration,
    },
    /// Thin margins for clocks that nobody vouches for (A17).
    ClocksUnknown {
        /// With the margin and the drift.
        timing: Timing,
    },
    /// No time is left for a full retry before the holder has to stop (C16).
    NoRoom {
        /// All times.
        timing: Timing,
        /// Which of them were set.
        set: Vec<&'static str>,
        /// The smallest ttl that would do, if there is one.
        smallest: Option<Ttl>,
    },
}

impl fmt::Display for BadTiming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadTiming::TooShort { what, given, least } => {
                write!(
                    f,
                    "{what} {given:?} is not allowed: it is {least:?} or longer"
                )
            }
            BadTiming::ClocksUnknown { timing } => write!(
                f,
                "margin {:?} with drift {:?} is not allowed: clocks that nobody vouches for need a margin of ttl/10 ({:?}) \
                 and a drift of {:?}; or set a drift of {:?}, or state the time service of both hosts",
                timing.margin,
                timing.drift,
                timing.ttl.get() / 10,
                Drift::UNKNOWN,
                Drift::CHRONY,
            ),
            BadTiming::NoRoom {
                timing,
                set,
                smallest,
            } => write_no_room(f, timing, set, *smallest),
        }
    }
}

fn write_no_room(
    f: &mut fmt::Formatter<'_>,
    timing: &Timing,
    set: &[&'static str],
    smallest: Option<Ttl>,
) -> fmt::Result {
    let set = match set {
        [] => String::new(),
        set => alloc::format!(" with this {}", set.join(", ")),
    };
    write!(
        f,
        "ttl {:?}{set} is not allowed: renew period {:?}, attempt timeout {:?}, margin {:?}, drift {:?}, grace {:?} and \
         kill slack {:?} leave no time for a retry; ",
        timing.ttl,
        timing.renew,
        timing.attempt,
        timing.margin,
        timing.drift.of(timing.ttl.get()),
        timing.grace,
        timing.kill_slack,
    )?;
    match smallest {
        Some(ttl) => write!(f, "the smallest ttl that would do is {ttl:?}"),
        None => write!(f, "no ttl up to {:?} would do", Ttl::MAX),
    }
}

impl core::error::Error for BadTiming {}

#[cfg(test)]
mod tests;
