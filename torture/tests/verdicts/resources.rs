//! One broken history for every promise about resources, holders and the harness itself, and one next to it that is fine.
//!
//! The one rule: a broken history breaks the promise it is named for and no other, so that a finding can be trusted.

use crate::scenes::{Scene, acquire, granted, release, renew, renewed, s, tenths};
use leasehold_torture::check::{Rules, TOKEN_MAX, control, judge};
use leasehold_torture::history::{Answer, Change, Effect, Look, Outcome, Raise, Step, What};

/// Asserts that exactly `expected` is broken, and that each finding can be shown to people.
#[track_caller]
fn breaks(expected: &str, scene: Scene) {
    let history = scene.history();
    let verdict = judge(&history, &Rules::default());
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
fn fine(scene: Scene) {
    let history = scene.history();
    let verdict = judge(&history, &Rules::default());
    assert!(verdict.is_ok(), "{}", verdict.explain(&history));
}

/// A fenced effect on the table `t`, accepted at `position` and leaving `v<position>`.
fn effect(token: u64, position: u64) -> Effect {
    Effect {
        resource: "t".into(),
        lease: "orders".into(),
        token,
        fenced: true,
        answer: Answer::Accepted,
        position: Some(position),
        started: s(position),
        value: Some(format!("v{position}")),
        read_at: None,
    }
}

fn refused(token: u64, value: &str) -> Effect {
    let value = Some(value.to_string());
    Effect {
        answer: Answer::Refused,
        position: None,
        value,
        ..effect(token, 99)
    }
}

fn unknown(token: u64, value: &str) -> Effect {
    let value = Some(value.to_string());
    Effect {
        answer: Answer::Unknown,
        position: None,
        value,
        ..effect(token, 99)
    }
}

fn look(token: u64, saw: &[&str]) -> Look {
    Look {
        resource: "t".into(),
        lease: "orders".into(),
        token,
        fenced: true,
        position: None,
        saw: Some(saw.iter().map(|value| value.to_string()).collect()),
    }
}

fn look_at(token: u64, position: u64) -> Look {
    Look {
        position: Some(position),
        saw: None,
        ..look(token, &[])
    }
}

fn raise(token: u64, position: u64) -> Raise {
    Raise {
        resource: "t".into(),
        lease: "orders".into(),
        token,
        answer: Answer::Accepted,
        position: Some(position),
    }
}

trait Traffic {
    fn effects(self, effects: impl IntoIterator<Item = Effect>) -> Self;
    fn look(self, look: Look) -> Self;
    fn raise(self, raise: Raise) -> Self;
}

impl Traffic for Scene {
    fn effects(self, effects: impl IntoIterator<Item = Effect>) -> Self {
        effects
            .into_iter()
            .fold(self, |scene, e| scene.at(s(50), "db", What::Effect(e)))
    }

    fn look(self, look: Look) -> Self {
        self.at(s(50), "db", What::Look(look))
    }

    fn raise(self, raise: Raise) -> Self {
        self.at(s(50), "db", What::Raise(raise))
    }
}

fn scene() -> Scene {
    Scene::default()
}

// INV-20, M1
#[test]
fn in_commit_order_tokens_do_not_go_down() {
    breaks(
        "INV-20",
        scene().effects([effect(1, 1), effect(2, 2), effect(1, 3)]),
    );
    fine(scene().effects([effect(1, 1), effect(1, 2), effect(2, 3)]));
    // The order is the resource's, not that of the answers.
    fine(scene().effects([effect(2, 2), effect(1, 1)]));
    breaks("INV-20", scene().effects([effect(1, 2), effect(2, 1)]));
    // A barrier is enough to refuse the smaller ones.
    breaks("INV-20", scene().raise(raise(2, 1)).effects([effect(1, 2)]));
    fine(scene().raise(raise(2, 2)).effects([effect(1, 1)]));
    // Other leases, other resources and unfenced effects have orders of their own.
    let other = Effect {
        lease: "other".into(),
        ..effect(1, 3)
    };
    fine(scene().effects([effect(2, 2), other]));
    let other = Effect {
        resource: "u".into(),
        ..effect(1, 3)
    };
    fine(scene().effects([effect(2, 2), other]));
    fine(scene().effects([
        effect(2, 2),
        Effect {
            fenced: false,
            ..effect(1, 3)
        },
    ]));
    // An effect whose answer got lost but which was committed is visible all the same.
    let lost = Effect {
        answer: Answer::Unknown,
        ..effect(1, 3)
    };
    breaks("INV-20", scene().effects([effect(2, 2), lost]));
    breaks("FORMAT", scene().effects([effect(1, 2), effect(2, 2)]));
}

// INV-21, M7
#[test]
fn after_the_barrier_nothing_of_smaller_tokens_appears() {
    breaks(
        "INV-21",
        scene()
            .effects([effect(1, 1), effect(1, 2)])
            .look(look_at(2, 1)),
    );
    fine(
        scene()
            .effects([effect(1, 1), effect(1, 2)])
            .look(look_at(2, 2)),
    );
    // Its own effects and those of larger tokens come later.
    fine(
        scene()
            .effects([effect(1, 1), effect(2, 2), effect(3, 3)])
            .look(look_at(2, 1)),
    );
    breaks(
        "INV-21",
        scene()
            .effects([effect(1, 1)])
            .look(look(2, &[]))
            .look(look(2, &["v1"])),
    );
    fine(scene().effects([effect(1, 1)]).look(look(2, &["v1"])));
    fine(scene().effects([unknown(1, "v1")]).look(look(2, &[])));
    fine(scene().effects([unknown(1, "v1")]).look(look(2, &["v1"])));
    let unfenced = Look {
        fenced: false,
        ..look_at(2, 1)
    };
    fine(scene().effects([effect(1, 1), effect(1, 2)]).look(unfenced));
}

// INV-22
#[test]
fn a_refused_effect_leaves_no_trace() {
    breaks(
        "INV-22",
        scene().effects([refused(1, "old")]).look(look(2, &["old"])),
    );
    fine(scene().effects([refused(1, "old")]).look(look(2, &[])));
    // The same write was tried again and accepted.
    let again = Effect {
        value: Some("old".into()),
        ..effect(2, 1)
    };
    fine(
        scene()
            .effects([refused(1, "old"), again])
            .look(look(2, &["old"])),
    );
    let committed = Effect {
        position: Some(1),
        ..refused(1, "old")
    };
    breaks("INV-22", scene().effects([committed]));
}

// INV-23
#[test]
fn no_acknowledged_append_is_lost_or_doubled() {
    let two = || scene().effects([effect(1, 1), effect(1, 2)]);
    breaks("INV-23", two().look(look(1, &["v2"])));
    breaks("INV-23", two().look(look(1, &["v1", "v2", "v1"])));
    breaks("INV-23", two().look(look(1, &["v1", "v2", "v3"])));
    fine(two().look(look(1, &["v2", "v1"])));
    fine(
        two()
            .effects([unknown(1, "v3")])
            .look(look(1, &["v1", "v2", "v3"])),
    );
    breaks(
        "INV-23",
        two()
            .effects([unknown(1, "v3")])
            .look(look(1, &["v1", "v2", "v3", "v3"])),
    );
    // The last look counts.
    fine(two().look(look(1, &["v1"])).look(look(1, &["v1", "v2"])));
}

// INV-23
#[test]
fn a_read_modify_write_overwrites_nothing_unseen() {
    let computed = |from, position| Effect {
        read_at: Some(from),
        ..effect(1, position)
    };
    breaks("INV-23", scene().effects([effect(1, 1), computed(0, 2)]));
    fine(scene().effects([effect(1, 1), computed(1, 2)]));
    breaks(
        "INV-23",
        scene().effects([effect(1, 1), computed(1, 2), computed(1, 3)]),
    );
    breaks("FORMAT", scene().effects([computed(5, 2)]));
}

// INV-25
#[test]
fn behind_each_key_there_is_one_effect() {
    let took = |key: &str| What::KeyedEffect {
        scope: "bill".into(),
        key: key.into(),
    };
    let told = |key: &str| What::KeyedReply {
        scope: "bill".into(),
        key: key.into(),
    };
    breaks(
        "INV-25",
        scene()
            .at(s(1), "a", took("4711"))
            .at(s(2), "b", took("4711")),
    );
    breaks("INV-25", scene().at(s(1), "a", told("4711")));
    breaks(
        "INV-25",
        scene()
            .at(s(1), "a", told("4711"))
            .at(s(2), "b", took("4711")),
    );
    let twice = scene()
        .at(s(1), "a", took("4711"))
        .at(s(2), "a", told("4711"));
    fine(
        twice
            .at(s(3), "b", told("4711"))
            .at(s(4), "b", took("4712")),
    );
}

// INV-13
#[test]
fn a_fence_refuses_what_is_no_token() {
    for token in [0, TOKEN_MAX + 1] {
        breaks("INV-13", scene().effects([effect(token, 1)]));
        breaks("INV-13", scene().raise(raise(token, 1)));
        breaks("INV-13", scene().step(s(1), "a", token, Step::Held));
        fine(scene().effects([refused(token, "x")]));
        fine(scene().raise(Raise {
            answer: Answer::Refused,
            position: None,
            ..raise(token, 1)
        }));
    }
    fine(scene().effects([effect(TOKEN_MAX, 1)]));
}

/// a may act with token 1 from 1 to 5, b with token 2 from `from` on.
fn tenures(from: u64) -> Scene {
    let a = scene()
        .step(s(1), "a", 1, Step::Held)
        .step(s(5), "a", 1, Step::Stopped);
    a.step(from, "b", 2, Step::Held)
        .step(s(9), "b", 2, Step::Stopped)
}

// INV-30
#[test]
fn two_tokens_are_not_held_at_once() {
    breaks("INV-30", tenures(s(4)));
    fine(tenures(s(6)));
    let open = || {
        scene()
            .step(s(1), "a", 1, Step::Held)
            .step(s(6), "b", 2, Step::Held)
    };
    breaks("INV-30", open());
    fine(open().at(s(5), "a", What::Died));
    breaks("INV-30", open().at(s(5), "b2", What::Died));
}

// INV-30: its excuses
#[test]
fn a_fault_beyond_the_bounds_excuses_an_overlap() {
    fine(tenures(s(4)).fault(s(3), Some("a"), s(4), true));
    breaks("INV-30", tenures(s(4)).fault(s(3), Some("a"), s(4), false));
    breaks("INV-30", tenures(s(4)).fault(s(3), Some("b"), s(4), true));
    breaks("INV-30", tenures(s(4)).fault(s(6), Some("a"), s(8), true));
    fine(tenures(s(4)).fault(s(3), None, s(3), true));
    fine(tenures(s(4)).store(s(3), Change::ClockStep { by: 1 }));
    breaks(
        "INV-30",
        tenures(s(4)).store(s(3), Change::ClockStep { by: -1 }),
    );
    // A renewal after the fault shows that it was over.
    let acquired = |scene: Scene| scene.op(s(0), s(1), "a", acquire("a1"), granted(1, s(10)));
    let kept = |scene: Scene| acquired(scene).op(s(3), tenths(35), "a", renew(1), renewed(s(1)));
    let early = || tenures(s(4)).fault(s(1), Some("a"), s(2), true);
    fine(acquired(early()));
    breaks("INV-30", kept(early()));
}

// INV-31, M3, M4
#[test]
fn no_effect_starts_after_the_deadline() {
    let deadline = |at, deadline| {
        scene()
            .step(s(1), "a", 1, Step::Held)
            .step(at, "a", 1, Step::Deadline { deadline })
    };
    let acts = |scene: Scene, started| {
        scene.at(
            s(20),
            "a",
            What::Effect(Effect {
                started,
                ..effect(1, 1)
            }),
        )
    };
    breaks("INV-31", acts(deadline(s(1), s(8)), s(9)));
    // It may end later.
    fine(acts(deadline(s(1), s(8)), s(8)));
    // A deadline that was computed later did not hold yet.
    let later = |at| deadline(s(1), s(8)).step(at, "a", 1, Step::Deadline { deadline: s(12) });
    fine(acts(later(s(7)), s(9)));
    breaks("INV-31", acts(later(s(10)), s(9)));
    // An attempt that was refused was an attempt.
    let attempt = Effect {
        started: s(9),
        ..refused(1, "x")
    };
    breaks(
        "INV-31",
        deadline(s(1), s(8)).at(s(20), "a", What::Effect(attempt)),
    );
    fine(acts(deadline(s(1), s(8)), s(9)).fault(s(7), Some("a"), s(9), true));
    breaks(
        "INV-31",
        acts(deadline(s(1), s(8)), s(9)).fault(s(7), Some("a"), s(9), false),
    );
    breaks(
        "INV-31",
        acts(deadline(s(1), s(8)), s(9)).fault(s(7), None, s(9), true),
    );
}

// INV-32
#[test]
fn no_child_is_alive_after_the_deadline() {
    let child = |step: fn(String) -> Step| step("77".into());
    let started = || {
        let scene = scene().step(s(1), "a", 1, Step::Deadline { deadline: s(8) });
        scene.step(s(2), "a", 1, child(|child| Step::ChildStarted { child }))
    };
    let dead = |at| started().step(at, "a", 1, child(|child| Step::ChildDead { child }));
    breaks("INV-32", dead(s(9)));
    fine(dead(s(8)));
    breaks("INV-32", started().at(s(9), "a", What::Died));
    fine(started().at(s(7), "a", What::Died));
    fine(dead(s(9)).fault(s(7), Some("77"), s(9), true));
    breaks("INV-32", dead(s(9)).fault(s(7), Some("a"), s(9), false));
}

// INV-33, H1
#[test]
fn lost_is_final() {
    let lost = || {
        scene()
            .step(s(1), "a", 1, Step::Held)
            .step(s(5), "a", 1, Step::Lost)
    };
    breaks("INV-33", lost().step(s(6), "a", 1, Step::Held));
    fine(
        lost()
            .step(s(6), "a", 2, Step::Held)
            .step(s(5), "a", 1, Step::Stopped),
    );
    let acts = |scene: Scene, started| {
        scene.at(
            s(20),
            "a",
            What::Effect(Effect {
                started,
                ..refused(1, "x")
            }),
        )
    };
    breaks("INV-33", acts(lost(), s(6)));
    fine(acts(lost(), s(4)));
    let stopped = || {
        scene()
            .step(s(1), "a", 1, Step::Held)
            .step(s(5), "a", 1, Step::Stopped)
    };
    breaks("INV-33", acts(stopped(), s(6)));
    fine(acts(stopped(), s(4)));
}

// INV-33, H5
#[test]
fn a_release_comes_after_the_death_of_the_children() {
    let child = || "77".to_string();
    let holds = || scene().op(s(0), s(1), "a", acquire("a1"), granted(1, s(10)));
    let started = || holds().step(s(2), "a", 1, Step::ChildStarted { child: child() });
    let dead = |at| started().step(at, "a", 1, Step::ChildDead { child: child() });
    let released = |scene: Scene| scene.op(s(5), s(6), "a", release(1), Outcome::Released);
    breaks("INV-33", released(started()));
    breaks("INV-33", released(dead(s(7))));
    fine(released(dead(s(4))));
    breaks("INV-33", dead(s(7)).step(s(6), "a", 1, Step::Releasing));
    fine(dead(s(7)).step(s(8), "a", 1, Step::Releasing));
}

// 10.3: a fault mode that never happened was not survived.
#[test]
fn a_required_fault_that_never_happened_is_a_finding() {
    let rules = |kinds: &[&str]| Rules {
        required_faults: kinds.iter().map(|kind| kind.to_string()).collect(),
        ..Rules::default()
    };
    let scene = scene()
        .fault(s(1), Some("a"), s(2), false)
        .store(s(3), Change::Crash);
    let history = scene.history();
    assert!(judge(&history, &rules(&["freeze", "crash"])).is_ok());
    let verdict = judge(&history, &rules(&["freeze", "restore", "partition"]));
    let missing: Vec<_> = verdict
        .findings
        .iter()
        .map(|f| (f.invariant, f.about.as_str()))
        .collect();
    assert_eq!(missing, [("FAULT", "restore"), ("FAULT", "partition")]);
}

// 10.3: the unfenced effects must have broken something that the harness can see.
#[test]
fn a_control_that_breaks_nothing_is_a_finding() {
    let rules = Rules {
        control: true,
        ..Rules::default()
    };
    let unfenced = |effect: Effect| Effect {
        fenced: false,
        ..effect
    };
    let broken = scene().effects([effect(2, 5), unfenced(effect(2, 1)), unfenced(effect(1, 2))]);
    let history = broken.history();
    assert!(judge(&history, &rules).is_ok());
    assert_eq!(
        control(&history)
            .iter()
            .map(|f| f.invariant)
            .collect::<Vec<_>>(),
        ["INV-20"]
    );

    let blind = scene().effects([effect(1, 5), unfenced(effect(1, 1)), unfenced(effect(2, 2))]);
    let history = blind.history();
    assert_eq!(
        judge(&history, &rules)
            .broken()
            .into_iter()
            .collect::<Vec<_>>(),
        ["CONTROL"]
    );
    assert!(judge(&history, &Rules::default()).is_ok());
    assert_eq!(control(&history), []);
    assert_eq!(judge(&scene().history(), &rules).broken().len(), 1);
}

#[test]
fn a_verdict_says_how_much_it_saw_and_shows_the_place() {
    let scene = tenures(s(4))
        .effects([effect(1, 1), refused(1, "x")])
        .fault(s(6), None, s(7), false);
    let mut history = scene
        .op(s(0), s(1), "a", acquire("a1"), granted(1, s(3)))
        .history();
    history.made_by = "torture sim --seed 7".into();
    let verdict = judge(&history, &Rules::default());
    let counts = verdict.counts;
    assert_eq!((counts.ops, counts.grants, counts.unknown), (1, 1, 0));
    assert_eq!(
        (counts.fenced, counts.refused, counts.tenures, counts.faults),
        (2, 1, 2, 1)
    );
    let text = verdict.explain(&history);
    let expected = "INV-30 orders: a with token 1 and b with token 2 could both act from 4s on
    1s: a: orders 1: held
    4s: b: orders 2: held
    5s: a: orders 1: stopped
";
    assert!(text.contains(expected), "{text}");
    assert!(
        text.contains("  a         ") && text.contains("1="),
        "{text}"
    );
    assert!(text.ends_with("made by: torture sim --seed 7\n"), "{text}");
}
