//! One broken history for every promise about leases, and one next to it that is fine.
//!
//! The one rule: a broken history breaks the promise it is named for and no other, so that a finding can be trusted.

use crate::scenes::{
    Scene, acquire, free, granted, held, read, release, release_request, renew, renewed, s, tenths,
};
use leasehold_torture::check::{Rules, TOKEN_MAX, Timing, judge};
use leasehold_torture::history::{Change, Outcome, What};

pub(crate) fn rules() -> Rules {
    Rules {
        dense: true,
        timing: Some(Timing::default()),
        ..Rules::default()
    }
}

pub(crate) fn gaps() -> Rules {
    Rules {
        dense: false,
        ..rules()
    }
}

/// Asserts that exactly `expected` is broken, and that each finding can be shown to people.
#[track_caller]
pub(crate) fn breaks(expected: &str, rules: &Rules, scene: Scene) {
    let history = scene.history();
    let verdict = judge(&history, rules);
    let text = verdict.explain(&history);
    assert_eq!(
        verdict.broken().into_iter().collect::<Vec<_>>(),
        [expected],
        "{text}"
    );
    assert!(
        verdict
            .findings
            .iter()
            .all(|finding| !finding.evidence.is_empty()),
        "{text}"
    );
}

#[track_caller]
pub(crate) fn fine(rules: &Rules, scene: Scene) {
    let history = scene.history();
    let verdict = judge(&history, rules);
    assert!(verdict.is_ok(), "{}", verdict.explain(&history));
}

/// a holds token 1 from 0 to 1 for `ttl` seconds.
pub(crate) fn one(ttl: u64) -> Scene {
    Scene::default().op(s(0), s(1), "a", acquire("a1"), granted(1, s(ttl)))
}

// INV-1
#[test]
fn tokens_rise_in_real_time() {
    let five = || Scene::default().op(s(0), s(1), "a", acquire("a1"), granted(5, tenths(1)));
    breaks(
        "INV-1",
        &gaps(),
        five().op(s(2), s(3), "b", acquire("b1"), granted(3, s(1))),
    );
    fine(
        &gaps(),
        five().op(s(2), s(3), "b", acquire("b1"), granted(7, s(1))),
    );
    // Concurrent: the smaller one came first.
    fine(
        &gaps(),
        five().op(tenths(5), s(3), "b", acquire("b1"), granted(3, tenths(1))),
    );
}

// INV-2
#[test]
fn a_token_belongs_to_one_acquire() {
    breaks(
        "INV-2",
        &rules(),
        one(1).op(s(5), s(6), "b", acquire("b1"), granted(1, s(1))),
    );
    breaks(
        "INV-2",
        &rules(),
        one(1).op(s(5), s(6), "a", acquire("a2"), granted(1, s(1))),
    );
    fine(
        &rules(),
        one(9).op(s(5), s(6), "a", acquire("a1"), granted(1, s(1))),
    );
}

// INV-2
#[test]
fn a_token_that_is_shown_belongs_to_somebody() {
    breaks(
        "INV-2",
        &rules(),
        Scene::default().op(s(0), s(1), "b", acquire("b1"), held(1, "a")),
    );
    let unknown = |from| Scene::default().ask(from, "a", acquire("a1"));
    fine(
        &rules(),
        unknown(s(0)).op(s(0), s(1), "b", acquire("b1"), held(1, "a")),
    );
    // The only ask that can own it came too late, or from somebody else.
    breaks(
        "INV-2",
        &rules(),
        unknown(s(2)).op(s(0), s(1), "b", acquire("b1"), held(1, "a")),
    );
    breaks(
        "INV-2",
        &rules(),
        unknown(s(0)).op(s(0), s(1), "b", acquire("b1"), held(1, "c")),
    );
    // Nor does one that was refused because of that very token.
    let anybody = |scene: Scene| {
        let held = Outcome::Held { token: 1, by: None };
        scene.op(s(1), s(2), "a", acquire("a1"), held)
    };
    breaks("INV-2", &rules(), anybody(unknown(s(0))));
    fine(
        &rules(),
        anybody(unknown(s(0)).ask(s(0), "c", acquire("c1"))),
    );
    // One ask does not own two tokens.
    let two = |scene: Scene| {
        let scene = scene.op(s(2), s(3), "b", acquire("b1"), held(1, "a"));
        scene.op(s(4), s(5), "b", acquire("b2"), held(2, "a"))
    };
    breaks("INV-2", &rules(), two(unknown(s(0))));
    fine(&rules(), two(unknown(s(0)).ask(s(1), "a", acquire("a2"))));
    // The holder that a store names is the owner.
    breaks(
        "INV-2",
        &rules(),
        one(9).op(s(2), s(3), "b", acquire("b1"), held(1, "c")),
    );
    fine(
        &rules(),
        one(9).op(s(2), s(3), "b", acquire("b1"), held(1, "a")),
    );
}

// INV-2
#[test]
fn a_token_is_not_shown_before_it_was_asked_for() {
    let shown = || Scene::default().op(s(0), s(1), "b", read(), held_by_anybody(1));
    breaks(
        "INV-2",
        &rules(),
        shown().op(s(2), s(3), "a", acquire("a1"), granted(1, s(1))),
    );
    fine(
        &rules(),
        shown().op(tenths(5), s(3), "a", acquire("a1"), granted(1, s(1))),
    );
    let scene = shown().ask(s(0), "a", acquire("a1"));
    fine(
        &rules(),
        scene.op(s(2), s(3), "a", acquire("a1"), granted(1, s(1))),
    );
}

fn held_by_anybody(token: u64) -> Outcome {
    Outcome::Seen {
        token,
        held: true,
        by: None,
    }
}

/// a had token 1, b has token 2.
fn two() -> Scene {
    one(1).op(s(5), s(6), "b", acquire("b1"), granted(2, s(20)))
}

// INV-3, M2
#[test]
fn a_renewal_does_not_outlive_a_larger_token() {
    breaks(
        "INV-3",
        &rules(),
        two().op(s(7), s(8), "a", renew(1), renewed(s(1))),
    );
    fine(&rules(), two().op(s(7), s(8), "a", renew(1), Outcome::Lost));
    // Sent before the other grant was answered, so it may have come first.
    let late = Scene::default().op(s(0), s(1), "a", acquire("a1"), granted(1, s(4)));
    let late = late.op(s(3), s(30), "a", renew(1), renewed(s(4)));
    fine(
        &rules(),
        late.op(s(5), s(10), "b", acquire("b1"), granted(2, s(20))),
    );
}

// L4
#[test]
fn only_the_owner_renews_and_only_while_it_is_valid() {
    breaks(
        "L4",
        &rules(),
        one(9).op(s(2), s(3), "b", renew(1), renewed(s(1))),
    );
    fine(
        &rules(),
        one(9).op(s(2), s(3), "b", renew(1), Outcome::Lost),
    );
    let released = || one(9).op(s(2), s(3), "a", release(1), Outcome::Released);
    breaks(
        "L4",
        &rules(),
        released().op(s(4), s(5), "a", renew(1), renewed(s(1))),
    );
    let lost = || one(1).op(s(2), s(3), "a", renew(1), Outcome::Lost);
    breaks(
        "L4",
        &rules(),
        lost().op(s(4), s(5), "a", renew(1), renewed(s(1))),
    );
    let untimed = Rules {
        timing: None,
        ..rules()
    };
    fine(
        &untimed,
        lost().op(tenths(25), s(5), "a", renew(1), renewed(s(1))),
    );
    // Told as over though nothing ended it.
    breaks(
        "L4",
        &rules(),
        one(9).op(s(2), s(3), "a", renew(1), Outcome::Lost),
    );
    breaks("L4", &rules(), one(9).op(s(2), s(3), "b", read(), free(1)));
    let over = |call| one(9).op(s(2), s(3), "a", call, Outcome::AlreadyOver);
    breaks("L4", &rules(), over(release(1)));
    breaks("L4", &rules(), over(release_request("a1")));
    fine(&rules(), over(release_request("a2")));
    fine(
        &rules(),
        one(9).op(s(2), s(3), "b", release(1), Outcome::Lost),
    );
    fine(
        &rules(),
        one(9).op(s(2), s(9), "a", renew(1), Outcome::Lost),
    );
}

// INV-5, M5
#[test]
fn a_release_by_somebody_else_changes_nothing() {
    breaks(
        "INV-5",
        &rules(),
        one(9).op(s(2), s(3), "b", release(1), Outcome::Released),
    );
    let refused = || Outcome::Refused {
        why: "not yours".into(),
    };
    fine(&rules(), one(9).op(s(2), s(3), "b", release(1), refused()));
    let next = |scene: Scene| scene.op(s(6), s(7), "c", acquire("c1"), granted(2, s(1)));
    breaks(
        "INV-5",
        &rules(),
        next(one(9).op(s(2), s(3), "b", release(1), refused())),
    );
    breaks(
        "INV-5",
        &rules(),
        next(one(9).op(s(2), s(3), "b", release(1), Outcome::AlreadyOver)),
    );
    fine(
        &rules(),
        next(one(5).op(s(2), s(3), "b", release(1), Outcome::AlreadyOver)),
    );
    // The holder's renewal is refused, for no other reason.
    let scene = one(9).ask(s(2), "b", release_request("b1"));
    breaks(
        "INV-5",
        &rules(),
        scene.op(s(4), s(5), "a", renew(1), Outcome::Lost),
    );
    // An old tenure is not released once more, and none that never was.
    breaks(
        "INV-5",
        &rules(),
        two().op(s(7), s(8), "a", release(1), Outcome::Released),
    );
    fine(
        &rules(),
        two().op(s(7), s(8), "a", release(1), Outcome::AlreadyOver),
    );
    let released =
        |scene: Scene| scene.op(s(7), s(8), "c", release_request("c1"), Outcome::Released);
    breaks("INV-5", &rules(), released(Scene::default()));
    fine(
        &rules(),
        released(Scene::default().ask(s(5), "c", acquire("c1"))),
    );
}

// INV-6, A4
#[test]
fn one_request_has_one_token() {
    let again =
        |scene: Scene, token| scene.op(s(9), s(10), "a", acquire("a1"), granted(token, s(1)));
    breaks("INV-6", &rules(), again(one(1), 2));
    fine(&rules(), again(one(10), 1));
    // A late delivery, after somebody else was stored, costs one orphan tenure.
    fine(
        &rules(),
        again(
            one(1).op(s(5), s(6), "b", acquire("b1"), granted(2, s(1))),
            3,
        ),
    );
    breaks("INV-6", &gaps(), again(one(1), 7));
    fine(&gaps(), again(one(1).ask(s(2), "b", acquire("b1")), 7));
    // L2.2: the same request again, after its tenure.
    let released = || one(9).op(s(2), s(3), "a", release(1), Outcome::Released);
    breaks("INV-6", &rules(), again(released(), 1));
    fine(
        &rules(),
        released().op(s(9), s(10), "a", acquire("a1"), Outcome::AlreadyUsed),
    );
}

// INV-7, M8
#[test]
fn a_crash_forgets_no_token() {
    let crash = |token| {
        let scene = Scene::default().op(s(0), s(1), "a", acquire("a1"), granted(5, s(1)));
        let scene = scene
            .store(s(3), Change::Crash)
            .store(s(4), Change::Restart);
        scene.op(s(5), s(6), "b", acquire("b1"), granted(token, s(1)))
    };
    breaks("INV-7", &gaps(), crash(4));
    breaks("INV-7", &gaps(), crash(5));
    fine(&gaps(), crash(6));
    let read_after = |token| crash(6).op(s(10), s(11), "c", read(), free(token));
    breaks("L11", &gaps(), read_after(5));
    let scene = one(1)
        .store(s(3), Change::Crash)
        .op(s(5), s(6), "c", read(), free(0));
    breaks("INV-7", &rules(), scene);
}

// INV-8
#[test]
fn a_restore_or_a_failover_reissues_no_token() {
    for change in [Change::Restore, Change::Failover, Change::Bump { floor: 3 }] {
        let after = |token| {
            let scene = Scene::default().op(s(0), s(1), "a", acquire("a1"), granted(5, s(1)));
            let scene = scene.store(s(3), change.clone());
            scene.op(s(5), s(6), "b", acquire("b1"), granted(token, s(1)))
        };
        breaks("INV-8", &gaps(), after(4));
        breaks("INV-8", &gaps(), after(5));
        fine(&gaps(), after(1_796_031_988_382));
    }
    // With dense tokens a bump may jump, but nothing else may.
    let jump = |scene: Scene| scene.op(s(5), s(6), "b", acquire("b1"), granted(1000, s(1)));
    fine(
        &rules(),
        jump(one(1).store(s(3), Change::Bump { floor: 999 })),
    );
    breaks("T2", &rules(), jump(one(1)));
    let late = jump(one(1)).store(s(8), Change::Bump { floor: 999 });
    breaks("T2", &rules(), late);
}

// INV-9, M6
#[test]
fn a_deleted_name_keeps_its_tokens() {
    let again = |token| {
        let scene = two().store(s(40), Change::Deleted);
        scene.op(s(50), s(51), "c", acquire("c1"), granted(token, s(1)))
    };
    breaks("INV-9", &rules(), again(1));
    fine(&rules(), again(3));
    fine(
        &rules(),
        two()
            .store(s(40), Change::Deleted)
            .op(s(50), s(51), "c", read(), free(0)),
    );
    breaks(
        "L11",
        &rules(),
        two().op(s(50), s(51), "c", read(), free(0)),
    );
}

// INV-10
#[test]
fn what_failed_is_never_seen() {
    let used = |scene: Scene| scene.op(s(5), s(6), "a", acquire("a1"), Outcome::AlreadyUsed);
    let failed = || Scene::default().op(s(0), s(1), "a", acquire("a1"), Outcome::Failed);
    breaks("INV-10", &rules(), used(failed()));
    breaks("L2", &rules(), used(Scene::default()));
    fine(
        &rules(),
        used(Scene::default().op(s(0), s(1), "a", acquire("a1"), Outcome::Unknown)),
    );
    let shown = |scene: Scene| scene.op(s(2), s(3), "b", acquire("b1"), held(1, "a"));
    breaks("INV-10", &rules(), shown(failed()));
    let again = |scene: Scene| scene.op(s(5), s(6), "a", acquire("a1"), granted(1, s(1)));
    breaks("INV-10", &rules(), again(shown(failed())));
    fine(
        &rules(),
        again(shown(Scene::default().ask(s(0), "a", acquire("a1")))),
    );
    // A number is missing, and only a failed acquire can have had it.
    let next = |scene: Scene| scene.op(s(5), s(6), "b", acquire("b1"), granted(2, s(1)));
    breaks("INV-10", &rules(), next(failed()));
    fine(
        &rules(),
        next(Scene::default().ask(s(0), "a", acquire("a1"))),
    );
    // A release that failed ended the tenure.
    let release = |outcome| one(10).op(s(2), s(3), "a", release(1), outcome);
    let next = |scene: Scene| scene.op(s(5), s(6), "b", acquire("b1"), granted(2, s(1)));
    breaks("INV-10", &rules(), next(release(Outcome::Failed)));
    fine(&rules(), next(release(Outcome::Unknown)));
}

// INV-13
#[test]
fn what_is_no_token_is_refused_everywhere() {
    let grant = |token| Scene::default().op(s(0), s(1), "a", acquire("a1"), granted(token, s(1)));
    breaks("INV-13", &gaps(), grant(0));
    breaks("INV-13", &gaps(), grant(TOKEN_MAX + 1));
    fine(&gaps(), grant(TOKEN_MAX));
    breaks(
        "INV-13",
        &rules(),
        one(9).op(s(2), s(3), "a", renew(0), renewed(s(1))),
    );
    fine(
        &rules(),
        one(9).op(s(2), s(3), "a", renew(0), Outcome::Lost),
    );
    breaks(
        "INV-13",
        &rules(),
        Scene::default().op(s(0), s(1), "a", read(), held_by_anybody(0)),
    );
    fine(
        &rules(),
        Scene::default().op(s(0), s(1), "a", read(), free(0)),
    );
    let text = |text: &str, accepted| {
        let text = text.to_string();
        Scene::default().at(
            s(0),
            "cli",
            What::TokenText {
                at: "--token".into(),
                text,
                accepted,
            },
        )
    };
    for bad in [
        "",
        "0",
        "+5",
        "05",
        "-1",
        " 5",
        "5.0",
        "1e3",
        "9223372036854775808",
        "٥",
    ] {
        breaks("INV-13", &rules(), text(bad, true));
        fine(&rules(), text(bad, false));
    }
    fine(&rules(), text("9223372036854775807", true));
}

// L2
#[test]
fn the_holder_itself_is_not_refused() {
    breaks(
        "L2",
        &rules(),
        one(9).op(s(2), s(3), "a", acquire("a1"), held(1, "a")),
    );
    // A new request of the same session is (O2).
    fine(
        &rules(),
        one(9).op(s(2), s(3), "a", acquire("a2"), held(1, "a")),
    );
    // Used up, but meanwhile somebody else's.
    let used = |scene: Scene| scene.op(s(7), s(8), "a", acquire("a1"), Outcome::AlreadyUsed);
    breaks("L2", &rules(), used(two()));
    fine(&rules(), used(one(1)));
    // The only number that is free had been passed before the request was sent.
    let passed = |asked| {
        let scene = one(1).op(s(5), s(6), "b", acquire("b1"), granted(5, s(1)));
        let scene = scene.ask(asked, "c", acquire("c1"));
        let scene = scene.op(tenths(15), s(20), "c", acquire("c1"), Outcome::AlreadyUsed);
        scene.op(s(21), s(22), "d", acquire("d1"), held(5, "b"))
    };
    let untimed = Rules {
        timing: None,
        ..gaps()
    };
    breaks("L2", &untimed, passed(s(10)));
    fine(&untimed, passed(s(4)));
}

// L11
#[test]
fn a_read_is_not_stale() {
    breaks(
        "L11",
        &rules(),
        two().op(s(7), s(8), "c", read(), held_by_anybody(1)),
    );
    breaks(
        "L11",
        &rules(),
        two().op(s(7), s(8), "c", acquire("c1"), held(1, "a")),
    );
    fine(
        &rules(),
        two().op(s(7), s(8), "c", read(), held_by_anybody(2)),
    );
    fine(&rules(), two().op(s(5), s(8), "c", read(), free(1)));
    let released = || one(9).op(s(2), s(3), "a", release(1), Outcome::Released);
    breaks(
        "L11",
        &rules(),
        released().op(s(4), s(5), "c", read(), held_by_anybody(1)),
    );
    fine(&rules(), released().op(s(4), s(5), "c", read(), free(1)));
}

// T2
#[test]
fn dense_tokens_skip_no_number() {
    let third = |scene: Scene| scene.op(s(5), s(6), "b", acquire("b1"), granted(3, s(1)));
    breaks("T2", &rules(), third(one(1)));
    fine(&gaps(), third(one(1)));
    fine(&rules(), third(one(1).ask(s(2), "c", acquire("c1"))));
    breaks("T2", &rules(), third(one(1).ask(s(7), "c", acquire("c1"))));
    // One ask does not account for two numbers, nor for a number next to its own.
    let fourth = |scene: Scene| scene.op(s(5), s(6), "b", acquire("b1"), granted(4, s(1)));
    breaks("T2", &rules(), fourth(one(1).ask(s(2), "c", acquire("c1"))));
    breaks("T2", &rules(), third(one(1).ask(s(2), "a", acquire("a1"))));
}

// FORMAT
#[test]
fn a_history_that_contradicts_itself_is_not_judged_fine() {
    let scene = one(1).at(
        s(2),
        "a",
        What::Return {
            id: 99,
            outcome: Outcome::Lost,
        },
    );
    let verdict = judge(&scene.history(), &rules());
    assert_eq!(verdict.broken().into_iter().collect::<Vec<_>>(), ["FORMAT"]);
}

#[test]
fn leases_are_judged_one_by_one() {
    let other = crate::scenes::on("other", one(1)).history();
    let both = leasehold_torture::history::History::merge([one(1).history(), other]);
    let verdict = judge(&both, &rules());
    assert!(verdict.is_ok(), "{verdict}");
    assert_eq!(verdict.counts.grants, 2);
}
