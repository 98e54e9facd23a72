//! The search on histories made by hand: what it explains, what it cannot, and which answer it blames.

use leasehold_torture::history::{Change, History, Outcome};
use leasehold_torture::wgl::{Answer, check};

use crate::scenes::{
    Scene, acquire, free, granted, held, on, read, release, release_request, renew, renewed, s,
};

const BUDGET: usize = 10_000;

fn search(scene: Scene, dense: bool) -> Answer {
    let answer = check(&scene.history(), dense, BUDGET).remove("orders");
    answer.expect("the scene has the lease orders")
}

#[track_caller]
fn explains(scene: Scene) {
    assert_eq!(search(scene, true), Answer::Linearizable);
}

/// Asserts that no order is left after the answer whose line begins with `line`.
#[track_caller]
fn blames(line: &str, scene: Scene) {
    match search(scene, true) {
        Answer::NotLinearizable { culprit, prefix } => {
            assert!(culprit.1.starts_with(line), "{}", culprit.1);
            assert_eq!(prefix.last(), Some(&culprit));
        }
        other => panic!("{other:?}"),
    }
}

fn one() -> Scene {
    Scene::default().op(s(0), s(1), "a", acquire("a1"), granted(1, s(9)))
}

/// a holds 1, then b holds 2.
fn two() -> Scene {
    one().op(s(5), s(6), "b", acquire("b1"), granted(2, s(9)))
}

#[test]
fn a_tenure_may_run_out_at_any_moment_and_does_not_come_back() {
    explains(two());
    explains(one().op(s(2), s(3), "a", renew(1), Outcome::Lost));
    explains(one().op(s(2), s(3), "b", read(), free(1)));
    explains(two().op(s(2), s(9), "a", renew(1), renewed(s(1))));
    blames("7s: a", two().op(s(7), s(8), "a", renew(1), renewed(s(1))));
    let lost = || one().op(s(2), s(3), "a", renew(1), Outcome::Lost);
    blames("4s: a", lost().op(s(4), s(5), "a", renew(1), renewed(s(1))));
    blames(
        "4s: c",
        lost().op(s(4), s(5), "c", acquire("c1"), held(1, "a")),
    );
}

#[test]
fn grants_follow_the_count_and_the_requests() {
    let next = |token| one().op(s(5), s(6), "b", acquire("b1"), granted(token, s(1)));
    blames("5s: b", next(1));
    blames("5s: b", next(3));
    assert_eq!(search(next(3), false), Answer::Linearizable);
    explains(one().op(s(5), s(6), "a", acquire("a1"), granted(1, s(1))));
    blames(
        "5s: a",
        one().op(s(5), s(6), "a", acquire("a1"), granted(2, s(1))),
    );
    explains(one().op(s(5), s(6), "a", acquire("a1"), Outcome::AlreadyUsed));
    blames(
        "5s: b",
        one().op(s(5), s(6), "b", acquire("b1"), Outcome::AlreadyUsed),
    );
    blames(
        "5s: a",
        one().op(s(5), s(6), "a", acquire("a1"), held(1, "a")),
    );
    explains(two().op(s(7), s(8), "a", acquire("a1"), granted(3, s(1))));
}

#[test]
fn a_release_ends_its_own_tenure_only() {
    let released = |call| one().op(s(2), s(3), "a", call, Outcome::Released);
    for call in [release(1), release_request("a1")] {
        explains(released(call.clone()));
        blames(
            "4s: a",
            released(call).op(s(4), s(5), "a", renew(1), renewed(s(1))),
        );
    }
    blames("2s: a", released(release_request("a2")));
    blames(
        "2s: b",
        one().op(s(2), s(3), "b", release(1), Outcome::Released),
    );
    blames(
        "7s: a",
        two().op(s(7), s(8), "a", release(1), Outcome::Released),
    );
    let over = two().op(s(7), s(8), "a", release(1), Outcome::AlreadyOver);
    explains(over.op(s(9), s(10), "b", renew(2), renewed(s(1))));
}

#[test]
fn what_is_unknown_may_happen_late_or_never_and_what_failed_does_not() {
    let third = |scene: Scene| scene.op(s(9), s(10), "c", acquire("c1"), held(2, "b"));
    let ask = |from| one().ask(from, "b", acquire("b1"));
    explains(ask(s(2)));
    explains(third(ask(s(2))));
    // Long after its caller was told that nobody knows.
    explains(third(one().op(
        s(2),
        s(3),
        "b",
        acquire("b1"),
        Outcome::Unknown,
    )));
    blames("9s: c", third(ask(s(11))));
    blames(
        "9s: c",
        third(one().op(s(2), s(3), "b", acquire("b1"), Outcome::Failed)),
    );
    // Once, not twice.
    let fourth = third(ask(s(2))).op(s(11), s(12), "c", acquire("c2"), held(3, "b"));
    blames("11s: c", fourth);
}

#[test]
fn after_a_restore_tokens_may_jump() {
    let jump = || one().op(s(5), s(6), "b", acquire("b1"), granted(1000, s(1)));
    blames("5s: b", jump());
    explains(jump().store(s(3), Change::Restore));
    let back = Scene::default().op(s(0), s(1), "a", acquire("a1"), granted(5, s(1)));
    let back = back.store(s(3), Change::Restore);
    blames(
        "5s: b",
        back.op(s(5), s(6), "b", acquire("b1"), granted(5, s(1))),
    );
    // Quarantine: a token that nobody has.
    explains(
        one()
            .store(s(3), Change::Failover)
            .op(s(5), s(6), "b", read(), free(7)),
    );
}

#[test]
fn leases_are_searched_one_by_one() {
    let broken = two().op(s(7), s(8), "a", renew(1), renewed(s(1)));
    let both = History::merge([broken.history(), on("other", two()).history()]);
    let answers = check(&both, true, BUDGET);
    assert_eq!(answers.len(), 2);
    assert_eq!(answers["other"], Answer::Linearizable);
    assert!(matches!(answers["orders"], Answer::NotLinearizable { .. }));
}

#[test]
fn a_budget_that_runs_out_is_no_verdict() {
    let answer = check(&two().history(), true, 1).remove("orders");
    assert_eq!(answer, Some(Answer::Unknown { budget: 1 }));
}
