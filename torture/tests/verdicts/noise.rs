//! Whatever a file holds, the judges answer: a history comes from outside, and nothing in it makes them panic or hang.

use leasehold_torture::check::{Liveness, Rules, Timing, control, judge};
use leasehold_torture::history::{
    Answer, Call, Change, Effect, Event, History, Invoke, Look, Outcome, Raise, Step, View, What,
    draw,
};
use leasehold_torture::wgl;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

/// Numbers that meet, and numbers at the ends.
fn number() -> BoxedStrategy<u64> {
    prop_oneof![8 => 0..6u64, 1 => Just(u64::MAX), 1 => Just(1 << 63), 1 => any::<u64>()].boxed()
}

fn name() -> BoxedStrategy<String> {
    prop_oneof![Just("a"), Just("b"), Just(""), Just("é")]
        .prop_map(String::from)
        .boxed()
}

fn call() -> BoxedStrategy<Call> {
    prop_oneof![
        (name(), number()).prop_map(|(request, ttl)| Call::Acquire { request, ttl }),
        (number(), number()).prop_map(|(token, ttl)| Call::Renew { token, ttl }),
        (option::of(number()), option::of(name()))
            .prop_map(|(token, request)| Call::Release { token, request }),
        Just(Call::Read),
    ]
    .boxed()
}

fn outcome() -> BoxedStrategy<Outcome> {
    prop_oneof![
        (number(), number()).prop_map(|(token, ttl)| Outcome::Granted { token, ttl }),
        (number(), option::of(name())).prop_map(|(token, by)| Outcome::Held { token, by }),
        number().prop_map(|ttl| Outcome::Renewed { ttl }),
        (number(), any::<bool>(), option::of(name())).prop_map(|(token, held, by)| Outcome::Seen {
            token,
            held,
            by
        }),
        prop_oneof![
            Just(Outcome::AlreadyUsed),
            Just(Outcome::Lost),
            Just(Outcome::Released),
            Just(Outcome::AlreadyOver),
            Just(Outcome::Failed),
            Just(Outcome::Unknown),
        ],
    ]
    .boxed()
}

fn answer() -> BoxedStrategy<Answer> {
    prop_oneof![
        Just(Answer::Accepted),
        Just(Answer::Refused),
        Just(Answer::Unknown)
    ]
    .boxed()
}

fn resource() -> BoxedStrategy<What> {
    let effect = (
        name(),
        number(),
        any::<bool>(),
        answer(),
        option::of(number()),
        number(),
    );
    let more = (option::of(name()), option::of(number()));
    prop_oneof![
        (effect, more).prop_map(
            |((lease, token, fenced, answer, position, started), more)| {
                let (value, read_at) = more;
                let resource = "t".into();
                What::Effect(Effect {
                    resource,
                    lease,
                    token,
                    fenced,
                    answer,
                    position,
                    started,
                    value,
                    read_at,
                })
            }
        ),
        (name(), number(), answer(), option::of(number())).prop_map(
            |(lease, token, answer, position)| {
                What::Raise(Raise {
                    resource: "t".into(),
                    lease,
                    token,
                    answer,
                    position,
                })
            }
        ),
        (
            name(),
            number(),
            option::of(number()),
            option::of(vec(name(), 0..4))
        )
            .prop_map(|(lease, token, position, saw)| {
                let (resource, fenced) = ("t".into(), true);
                What::Look(Look {
                    resource,
                    lease,
                    token,
                    fenced,
                    position,
                    saw,
                })
            }),
        (name(), name()).prop_map(|(scope, key)| What::KeyedEffect { scope, key }),
        (name(), name()).prop_map(|(scope, key)| What::KeyedReply { scope, key }),
    ]
    .boxed()
}

fn step() -> BoxedStrategy<Step> {
    prop_oneof![
        Just(Step::Held),
        number().prop_map(|deadline| Step::Deadline { deadline }),
        Just(Step::Stopped),
        Just(Step::Lost),
        Just(Step::Releasing),
        name().prop_map(|child| Step::ChildStarted { child }),
        name().prop_map(|child| Step::ChildDead { child }),
    ]
    .boxed()
}

fn change() -> BoxedStrategy<Change> {
    prop_oneof![
        Just(Change::Crash),
        Just(Change::Restart),
        Just(Change::Restore),
        number().prop_map(|floor| Change::Bump { floor }),
        any::<i64>().prop_map(|by| Change::ClockStep { by }),
        any::<bool>().prop_map(|now| Change::ForceRelease { now }),
        Just(Change::Deleted),
    ]
    .boxed()
}

fn what() -> BoxedStrategy<What> {
    prop_oneof![
        6 => (0..9u64, name(), name(), call()).prop_map(|(id, lease, session, call)| {
            What::Invoke(Invoke { id, lease, session, call })
        }),
        6 => (0..9u64, outcome()).prop_map(|(id, outcome)| What::Return { id, outcome }),
        3 => resource(),
        3 => (name(), number(), step())
            .prop_map(|(lease, token, step)| What::Tenure { lease, token, step }),
        1 => Just(What::Died),
        1 => (option::of(name()), change())
            .prop_map(|(lease, change)| What::Store { lease, change }),
        1 => (option::of(name()), option::of(number()), any::<bool>()).prop_map(
            |(victim, until, exceeds)| {
                What::Fault { kind: "freeze".into(), victim, until, exceeds }
            }
        ),
    ]
    .boxed()
}

fn history() -> BoxedStrategy<History> {
    vec((number(), name(), what()), 0..60)
        .prop_map(|events| {
            let events = events.into_iter().map(|(time, process, what)| Event {
                time,
                process,
                what,
            });
            History {
                made_by: String::new(),
                events: events.collect(),
            }
        })
        .boxed()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_history_makes_a_judge_panic(history in history(), sorted: bool, dense: bool) {
        let history = if sorted { History::merge([history]) } else { history };
        let rules = Rules {
            dense,
            timing: Some(Timing { clock_error: 1, rate_error: u32::MAX }),
            liveness: Some(Liveness { extension: u64::MAX, slack: 1 }),
            lock_delay: 1,
            required_faults: vec!["freeze".into()],
            control: true,
        };
        let verdict = judge(&history, &rules);
        let timely = Rules { liveness: Some(Liveness::default()), ..rules };
        judge(&history, &timely);
        verdict.explain(&history);
        control(&history);
        wgl::check(&history, dense, 500);
        draw(&history, &View { lease: None, from: 5, to: 0 });
        let mut bytes = Vec::new();
        history.write(&mut bytes).expect("a vector takes every byte");
        prop_assert_eq!(History::read(&bytes[..]).expect("it was written by us"), history);
    }

    #[test]
    fn no_text_makes_the_reader_panic(lines in vec(".{0,60}", 0..6)) {
        let header = "{\"history\":1,\"made_by\":\"\"}\n";
        let _ = History::read(lines.join("\n").as_bytes());
        let _ = History::read((header.to_owned() + &lines.join("\n")).as_bytes());
    }
}
