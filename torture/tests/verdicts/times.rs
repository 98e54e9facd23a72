//! Histories that break a promise of time, and fine ones close by: INV-4, INV-11.

use leasehold_torture::check::{Liveness, Rules, Timing};
use leasehold_torture::history::{Change, Outcome};

use crate::leases::{breaks, fine, gaps, one, rules};
use crate::scenes::{
    Scene, acquire, granted, held, release, release_request, renew, renewed, s, tenths,
};

// INV-4
#[test]
fn nobody_else_gets_it_before_the_ttl_is_over() {
    let next = |scene: Scene, from, to| scene.op(from, to, "b", acquire("b1"), granted(2, s(1)));
    breaks("INV-4", &rules(), next(one(10), s(4), s(9)));
    fine(&rules(), next(one(10), s(4), s(10)));
    let kept = || one(10).op(s(6), s(7), "a", renew(1), renewed(s(10)));
    breaks("INV-4", &rules(), next(kept(), s(12), s(15)));
    fine(&rules(), next(kept(), s(12), s(16)));
    // An unknown renewal promises nothing.
    fine(
        &rules(),
        next(one(10).ask(s(6), "a", renew(1)), s(12), s(15)),
    );
    // It is enough that somebody saw it held.
    let seen = |at| next(one(10), s(4), s(30)).op(s(5), at, "c", acquire("c1"), held(2, "b"));
    breaks("INV-4", &rules(), seen(s(9)));
    fine(&rules(), seen(s(10)));
    let untimed = Rules {
        timing: None,
        ..rules()
    };
    fine(&untimed, next(one(10), s(4), s(9)));
}

// INV-4
#[test]
fn a_release_excuses_an_early_grant() {
    let next = |scene: Scene| scene.op(s(6), s(7), "b", acquire("b1"), granted(2, s(1)));
    fine(
        &rules(),
        next(one(10).op(s(2), s(3), "a", release(1), Outcome::Released)),
    );
    fine(
        &rules(),
        next(one(10).op(s(2), s(3), "a", release_request("a1"), Outcome::Released)),
    );
    fine(&rules(), next(one(10).ask(s(2), "a", release(1))));
    fine(
        &rules(),
        next(one(10).op(s(2), s(20), "a", release(1), Outcome::Released)),
    );
    breaks(
        "INV-4",
        &rules(),
        next(one(10)).op(s(8), s(9), "a", release(1), Outcome::AlreadyOver),
    );
    breaks("INV-4", &rules(), next(one(10)).ask(s(8), "a", release(1)));
}

// INV-4: clock error, rate error, lock delay (W4), operators (A21), steps of the clock (PG8)
#[test]
fn the_ttl_is_measured_as_exactly_as_the_rules_say() {
    let next = |to| one(10).op(s(4), to, "b", acquire("b1"), granted(2, s(1)));
    let timing = |clock_error, rate_error| Rules {
        timing: Some(Timing {
            clock_error,
            rate_error,
        }),
        ..rules()
    };
    fine(&timing(s(1), 0), next(s(9)));
    breaks("INV-4", &timing(s(1), 0), next(tenths(89)));
    fine(&timing(0, 100_000), next(s(9)));
    breaks("INV-4", &timing(0, 100_000), next(tenths(89)));
    let delay = Rules {
        lock_delay: s(5),
        ..rules()
    };
    breaks("INV-4", &delay, next(s(14)));
    fine(&delay, next(s(15)));
    let change = |change| next(s(5)).store(s(3), change);
    fine(&gaps(), change(Change::ForceRelease { now: true }));
    breaks(
        "INV-4",
        &gaps(),
        change(Change::ForceRelease { now: false }),
    );
    fine(
        &rules(),
        change(Change::ClockStep {
            by: 3_600_000_000_000,
        }),
    );
    breaks("INV-4", &rules(), change(Change::ClockStep { by: -1 }));
    breaks("INV-4", &gaps(), change(Change::Failover));
    fine(
        &gaps(),
        change(Change::Failover).fault(s(3), None, s(3), true),
    );
    breaks(
        "INV-4",
        &gaps(),
        change(Change::Failover).fault(s(3), None, s(3), false),
    );
    // What happens afterwards excuses nothing.
    let late = next(s(5)).store(s(6), Change::ForceRelease { now: true });
    breaks("INV-4", &gaps(), late);
}

// INV-11
#[test]
fn a_waiter_gets_it_in_time() {
    let bound = Liveness {
        extension: s(1),
        slack: s(2),
    };
    let live = Rules {
        liveness: Some(bound),
        lock_delay: s(3),
        ..rules()
    };
    // a holds to 10; with delay, extension and slack the bound is 1 + 10 + 3 + 1 + 2.
    let polls = |to| {
        (4..=to).fold(one(10), |scene, at| {
            scene.op(s(at), s(at) + tenths(5), "b", acquire("b1"), held(1, "a"))
        })
    };
    fine(&live, polls(16));
    breaks("INV-11", &live, polls(17));
    fine(&rules(), polls(17));
    // A holder that renews lets one wait.
    fine(
        &live,
        polls(25).op(s(9), s(10), "a", renew(1), renewed(s(10))),
    );
    // A wait begins anew after a pause, and a store that is down grants nothing.
    let pause = |scene: Scene| scene.op(s(40), s(41), "b", acquire("b2"), held(1, "a"));
    fine(
        &Rules {
            timing: None,
            ..live.clone()
        },
        pause(polls(16)),
    );
    fine(&live, polls(40).store(s(11), Change::Crash));
    fine(
        &live,
        polls(30)
            .store(s(11), Change::Crash)
            .store(s(15), Change::Restart),
    );
    breaks(
        "INV-11",
        &live,
        polls(40)
            .store(s(11), Change::Crash)
            .store(s(15), Change::Restart),
    );
    fine(&live, polls(30).fault(s(11), Some("b"), s(15), false));
    breaks(
        "INV-11",
        &live,
        polls(30).fault(s(11), Some("a"), s(15), true),
    );
    // That somebody got it in the end comes too late.
    let late = polls(19).op(s(18), s(20), "c", acquire("c1"), granted(2, s(10)));
    breaks("INV-11", &live, late);
}
