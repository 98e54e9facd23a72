//! How long a holder may go on. It counts on its own clock, from before the request was sent, and only a positive answer
//! moves the end: doubt keeps nothing alive (C3 to C8).
//!
//! ```text
//! D = max(D, sent + waited · (1 − ρ) + granted · (1 − ρ) − m)      stop = D − grace − kill slack      kill = D − kill slack
//! ```

use core::{cmp::max, time::Duration};

use crate::{BootTime, Grant, Timing, Token, Ttl};

/// One holder's trust in one token. A new token makes a new term; nothing is carried over (C6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term {
    token: Token,
    renewed: BootTime,
    granted: Ttl,
    deadline: BootTime,
    timing: Timing,
}

impl Term {
    /// The term of a grant. `sent` was read before the request was handed to anything that can queue (C3), `now` when
    /// the answer came: a store's word about how long it waited never carries past it (A1).
    ///
    /// The deadline may have passed already; then the grant is to be released, not used.
    pub fn granted(grant: &Grant, sent: BootTime, now: BootTime, timing: &Timing) -> Self {
        let waited = grant.waited.saturating_sub(timing.drift().of(grant.waited));
        let counted_from = sent.plus(waited).min(max(sent, now));
        Self {
            token: grant.token,
            renewed: counted_from,
            granted: grant.ttl,
            deadline: trusted_until(counted_from, grant.ttl, timing),
            timing: *timing,
        }
    }

    /// A renewal was answered. `sent` is the send time of the very attempt that the answer belongs to (C4), `ttl` what
    /// the store gave.
    pub fn renewed(&mut self, sent: BootTime, ttl: Ttl) {
        self.renewed = max(self.renewed, sent);
        self.granted = ttl;
        self.deadline = max(self.deadline, trusted_until(sent, ttl, &self.timing));
    }

    /// The token of this term.
    pub fn token(&self) -> Token {
        self.token
    }

    /// What the store gave last.
    pub fn ttl(&self) -> Ttl {
        self.granted
    }

    /// The holder's times.
    pub fn timing(&self) -> &Timing {
        &self.timing
    }

    /// D: from here on the holder does nothing any more.
    pub fn deadline(&self) -> BootTime {
        self.deadline
    }

    /// Whether the holder may act at `now`, which must have been read just now (C7).
    pub fn check(&self, now: BootTime) -> bool {
        now < self.deadline
    }

    /// Whether it may begin something that takes up to `budget` (C8).
    pub fn check_for(&self, now: BootTime, budget: Duration) -> bool {
        budget < self.remaining(now)
    }

    /// What is left at `now`; zero if nothing is.
    pub fn remaining(&self, now: BootTime) -> Duration {
        self.deadline.since(now)
    }

    /// When work that was not renewed must begin to stop (H3).
    pub fn stop_at(&self) -> BootTime {
        self.kill_at().minus(self.timing.grace())
    }

    /// When work that has not stopped must be killed (H3).
    pub fn kill_at(&self) -> BootTime {
        self.deadline.minus(self.timing.kill_slack())
    }

    /// When to renew at the latest. Sooner than P if the store gave less than it was asked for.
    pub fn renew_at(&self) -> BootTime {
        let third = self.granted.get() / 3;
        let period = match self.granted < self.timing.ttl() {
            true => third.min(self.timing.renew()),
            false => self.timing.renew(),
        };
        self.renewed.plus(period)
    }
}

fn trusted_until(counted_from: BootTime, ttl: Ttl, timing: &Timing) -> BootTime {
    let trusted = ttl.get().saturating_sub(timing.drift().of(ttl.get()));
    counted_from.plus(trusted).minus(timing.margin())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Overrides;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> BootTime {
        BootTime::ZERO.plus(seconds as u32 * SECOND)
    }

    fn grant(seconds: u64, waited: u64) -> Grant {
        Grant {
            token: Token::FIRST,
            ttl: Ttl::from_millis(seconds * 1000).unwrap(),
            waited: waited as u32 * SECOND,
        }
    }

    fn timing() -> Timing {
        Timing::new(Ttl::DEFAULT).unwrap()
    }

    /// H3's example, and M3: a slow answer gives no more time than a fast one.
    #[test]
    fn the_deadline_counts_from_the_sending_and_not_from_the_answer() {
        for answered in [100, 101, 107] {
            let term = Term::granted(&grant(15, 0), at(100), at(answered), &timing());
            assert_eq!(term.deadline(), at(112));
            assert_eq!(term.kill_at(), at(111));
            assert_eq!(term.stop_at(), at(109));
            assert_eq!(term.renew_at(), at(105));
        }
    }

    /// C7, C8: the clock is asked, not a timer; at the deadline it is over.
    #[test]
    fn nothing_is_allowed_from_the_deadline_on() {
        let term = Term::granted(&grant(15, 0), at(100), at(100), &timing());
        let rows = [
            (100, 11, true),
            (100, 12, false),
            (111, 0, true),
            (112, 0, false),
            (900, 0, false),
        ];
        for (now, budget, allowed) in rows {
            assert_eq!(
                term.check_for(at(now), budget * SECOND),
                allowed,
                "{now} {budget}"
            );
        }
        assert!(term.check(at(111)) && !term.check(at(112)));
        assert!(!term.check_for(at(100), Duration::MAX));
        assert_eq!(term.remaining(at(900)), Duration::ZERO);
    }

    /// A1: sent at 0, granted at 25 s with a ttl of 15 s. But no word of a store carries past the answer.
    #[test]
    fn a_grant_that_was_waited_for_is_not_dead_on_arrival() {
        let term = Term::granted(&grant(15, 25), at(0), at(25), &timing());
        assert_eq!(term.deadline(), at(12).plus(25 * SECOND * 9 / 10));
        let liar = Term::granted(&grant(15, 9_000), at(0), at(2), &timing());
        assert_eq!(liar.deadline(), at(14));
    }

    /// C6.
    #[test]
    fn a_late_answer_to_an_early_attempt_does_not_shorten_the_term() {
        let mut term = Term::granted(&grant(15, 0), at(100), at(100), &timing());
        term.renewed(at(106), Ttl::DEFAULT);
        let before = term;
        term.renewed(at(105), Ttl::DEFAULT);
        assert_eq!(term, before);
        term.renewed(at(106), Ttl::from_millis(2000).unwrap());
        assert_eq!(term.deadline(), at(118));
    }

    /// FB-48: what the store gave counts, not what it was asked for.
    #[test]
    fn the_deadline_counts_what_the_store_gave() {
        let less = Term::granted(&grant(6, 0), at(100), at(100), &timing());
        assert_eq!(less.deadline(), at(100).plus(3_900 * SECOND / 1000));
        assert_eq!(less.renew_at(), at(102));
        let more = Term::granted(&grant(30, 0), at(100), at(100), &timing());
        assert_eq!(more.deadline(), at(100).plus(25_500 * SECOND / 1000));
        assert_eq!(more.renew_at(), at(105));
    }

    #[derive(Clone, Debug)]
    struct Step {
        sent: u64,
        answered: u64,
        evaluated: u64,
    }

    /// When, in nanoseconds of true time, a request was sent, evaluated and answered.
    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = (0..20_000_000_000u64, 0..=1000u64, 0..20_000_000_000u64).prop_map(
            |(sent, part, delay)| Step {
                sent,
                answered: sent + delay,
                evaluated: sent + delay / 1000 * part,
            },
        );
        proptest::collection::vec(step, 1..8)
    }

    use std::vec::Vec;

    proptest! {
        /// P-TIME: as long as the rates of the two clocks keep within ρ, D comes before the store's expiry, whenever the
        /// requests were sent, evaluated and answered.
        #[test]
        fn the_deadline_comes_before_the_expiry(
            ppm in 0..=500_000u32, share in 0..=1000u64, fast in any::<bool>(), millis in 2_000..60_000u64, steps in steps(),
        ) {
            let drift = crate::Drift::from_ppm(ppm).unwrap();
            let set = Overrides {
                drift: Some(drift), time_service: Some(crate::TimeService::Ntp),
                renew: Some(Timing::MIN_RENEW), attempt: Some(Timing::MIN_ATTEMPT), grace: Some(Duration::ZERO),
                margin: Some(Duration::from_millis(1)), ..Overrides::default()
            };
            let ttl = Ttl::from_millis(millis).unwrap();
            let timing = Timing::with(ttl, &set).unwrap();
            // Of the allowed ratio, a share; either the store's clock is fast or the holder's is slow.
            let off = u128::from(ppm) * u128::from(share) / 1000;
            let (holder_slow, store_fast) = if fast { (0, off) } else { (off, 0) };
            let holder = |time: u64| BootTime::from_nanos(
                (u128::from(time) * (1_000_000 - holder_slow) / 1_000_000) as u64);
            // store rate / holder rate = 1 / (1 - off)
            let true_ttl = ttl.get().as_nanos() * (1_000_000 - store_fast) / 1_000_000;
            let mut term: Option<Term> = None;
            let mut expiry = 0u128;
            for step in steps {
                expiry = expiry.max(u128::from(step.evaluated) + true_ttl);
                let sent = holder(step.sent);
                match &mut term {
                    None => term = Some(Term::granted(
                        &Grant { token: Token::FIRST, ttl, waited: Duration::ZERO }, sent, holder(step.answered), &timing)),
                    Some(term) => {
                        let before = term.deadline();
                        term.renewed(sent, ttl);
                        prop_assert!(term.deadline() >= before);
                    }
                }
                let expiry = holder(expiry as u64);
                let deadline = term.unwrap().deadline();
                prop_assert!(deadline < expiry, "{deadline:?} {expiry:?}");
            }
        }

        /// A1 with P-TIME: what the store says it waited, on its own clock, never carries D past its expiry.
        #[test]
        fn a_wait_at_the_store_keeps_the_deadline_before_the_expiry(
            ppm in 0..=400_000u32, sent in 0..1_000_000_000u64, before in 0..3_000_000_000u64,
            wait in 0..100_000_000_000u64, after in 0..3_000_000_000u64,
        ) {
            let set = Overrides {
                drift: Some(crate::Drift::from_ppm(ppm).unwrap()), time_service: Some(crate::TimeService::Ntp),
                renew: Some(Timing::MIN_RENEW), attempt: Some(Timing::MIN_ATTEMPT), grace: Some(Duration::ZERO),
                margin: Some(Duration::from_millis(1)), ..Overrides::default()
            };
            let timing = Timing::with(Ttl::DEFAULT, &set).unwrap();
            // The store's clock is as fast as it may be: it measures more than was waited.
            let rate = |time: u64| u128::from(time) * 1_000_000 / u128::from(1_000_000 - ppm);
            let waited = Duration::from_nanos(rate(wait) as u64);
            let evaluated = sent + before + wait;
            let expiry = evaluated + (Ttl::DEFAULT.get().as_nanos() as u64 / 1_000_000) * u64::from(1_000_000 - ppm);
            let term = Term::granted(
                &Grant { token: Token::FIRST, ttl: Ttl::DEFAULT, waited },
                BootTime::from_nanos(sent), BootTime::from_nanos(evaluated + after), &timing);
            prop_assert!(term.deadline() < BootTime::from_nanos(expiry));
        }
    }
}
