//! The defaults, what is refused, and what the refusal says.

use super::*;
use alloc::string::ToString;
use proptest::prelude::*;

fn ttl(millis: u64) -> Ttl {
    Ttl::from_millis(millis).unwrap()
}

const SECOND: Duration = Duration::from_secs(1);

/// A15, and the example of H3.
#[test]
fn the_defaults_follow_from_the_ttl() {
    let ms = Duration::from_millis;
    let rows = [
        (15_000, ms(5000), ms(2500), ms(1500), ms(2000), ms(1000)),
        (60_000, ms(20_000), ms(10_000), ms(6000), ms(2000), ms(1000)),
        (6_000, ms(2000), ms(1000), ms(600), ms(800), ms(400)),
        (1_200, ms(400), ms(200), ms(200), ms(160), ms(80)),
    ];
    for (millis, renew, attempt, margin, grace, kill_slack) in rows {
        let timing = Timing::new(ttl(millis)).unwrap();
        assert_eq!(timing.renew(), renew);
        assert_eq!(timing.attempt(), attempt);
        assert_eq!(timing.margin(), margin);
        assert_eq!(timing.grace(), grace);
        assert_eq!(timing.kill_slack(), kill_slack);
        assert_eq!(timing.drift(), Drift::UNKNOWN);
    }
}

/// C16, A15: what was set is named, and so is the way out.
#[test]
fn a_grace_that_does_not_fit_is_told_the_ttl_it_needs() {
    let set = Overrides {
        grace: Some(10 * SECOND),
        ..Overrides::default()
    };
    let error = Timing::with(Ttl::DEFAULT, &set).unwrap_err();
    let text = error.to_string();
    let BadTiming::NoRoom { smallest, .. } = error else {
        panic!("{error:?}")
    };
    let smallest = smallest.unwrap();
    assert!(Timing::with(smallest, &set).is_ok());
    let below = ttl(u64::from(smallest.as_millis()) - 1);
    assert!(Timing::with(below, &set).is_err());
    assert!(text.contains("ttl 15s with this grace"), "{text}");
    assert!(text.ends_with(&alloc::format!("is {smallest:?}")), "{text}");
}

/// FB-24: a call may not take longer than the lease lasts.
#[test]
fn a_call_timeout_near_the_ttl_is_refused() {
    for attempt in [8 * SECOND, 14 * SECOND, 60 * SECOND, Duration::MAX] {
        let set = Overrides {
            attempt: Some(attempt),
            ..Overrides::default()
        };
        let error = Timing::with(Ttl::DEFAULT, &set).unwrap_err();
        assert!(matches!(error, BadTiming::NoRoom { .. }), "{error}");
    }
}

#[test]
fn a_ttl_that_leaves_no_time_for_a_retry_is_refused() {
    for millis in [500, 999] {
        let error = Timing::new(ttl(millis)).unwrap_err().to_string();
        assert!(error.ends_with("would do is 1s"), "{error}");
    }
    let set = Overrides {
        grace: Some(Duration::MAX),
        ..Overrides::default()
    };
    let error = Timing::with(Ttl::MAX, &set).unwrap_err().to_string();
    assert!(error.ends_with("no ttl up to 86400s would do"), "{error}");
    let set = Overrides {
        margin: Some(Duration::from_millis(50)),
        ..Overrides::default()
    };
    assert!(Timing::with(Ttl::MIN, &set).is_ok());
}

/// A17.
#[test]
fn a_thin_margin_needs_a_word_for_the_clocks() {
    let thin = Overrides {
        margin: Some(Duration::from_millis(100)),
        ..Overrides::default()
    };
    let steady = Overrides {
        drift: Some(Drift::NTP),
        ..Overrides::default()
    };
    for set in [thin, steady] {
        let error = Timing::with(Ttl::DEFAULT, &set).unwrap_err();
        assert!(matches!(error, BadTiming::ClocksUnknown { .. }), "{error}");
        for time_service in [
            TimeService::SameClock,
            TimeService::Ntp,
            TimeService::Chrony,
        ] {
            let time_service = Some(time_service);
            assert!(
                Timing::with(
                    Ttl::DEFAULT,
                    &Overrides {
                        time_service,
                        ..set
                    }
                )
                .is_ok()
            );
        }
    }
    let drift = Some(Drift::CHRONY);
    assert!(Timing::with(Ttl::DEFAULT, &Overrides { drift, ..thin }).is_ok());
}

#[test]
fn a_time_of_zero_is_refused() {
    let zero = Some(Duration::ZERO);
    let renew = Overrides {
        renew: zero,
        ..Overrides::default()
    };
    let attempt = Overrides {
        attempt: zero,
        ..Overrides::default()
    };
    for set in [renew, attempt] {
        let error = Timing::with(Ttl::DEFAULT, &set).unwrap_err();
        assert!(matches!(error, BadTiming::TooShort { .. }), "{error}");
    }
    assert!(Drift::from_ppm(500_001).is_err());
}

fn some_time() -> impl Strategy<Value = Option<Duration>> {
    proptest::option::of((1..100_000u64).prop_map(Duration::from_millis))
}

proptest! {
    /// A15: the defaults are never refused from 2 s on.
    #[test]
    fn the_defaults_fit_into_every_usual_ttl(millis in 2_000..=86_400_000u64) {
        prop_assert!(Timing::new(ttl(millis)).is_ok());
    }

    /// The ttl that an error names is the smallest that would do, and every longer one does as well.
    #[test]
    fn the_named_ttl_is_the_smallest(
        renew in some_time(), attempt in some_time(), margin in some_time(), grace in some_time(),
        drift in proptest::option::of((0..=500_000u32).prop_map(Drift)), more in 1..1_000_000u64,
    ) {
        let set = Overrides { renew, attempt, margin, drift, grace, ..Overrides::default() };
        let fits = |millis: u64| Timing::fill(ttl(millis), &set).needs() < ttl(millis).get();
        match smallest_ttl(&set).map(|ttl| u64::from(ttl.as_millis())) {
            Some(smallest) => {
                prop_assert!(fits(smallest));
                prop_assert!(smallest == 500 || !fits(smallest - 1));
                prop_assert!(fits((smallest + more).min(86_400_000)));
            }
            None => prop_assert!(!fits(500 + more) && !fits(86_400_000)),
        }
    }
}
