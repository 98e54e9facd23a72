//! Two opinions on random histories: the quick checks and the search agree wherever the search decides.
//!
//! The honest lease is accepted by both, every dishonest one is caught, and of histories with one random change both
//! say the same.

mod traffic;

use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

use leasehold_torture::check::{Rules, Timing, judge};
use leasehold_torture::history::{Call, Event, History, Outcome, What};
use leasehold_torture::wgl::{self, Answer};
use proptest::prelude::*;
use rand::Rng;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use traffic::{Bug, Size, traffic};

const BUDGET: usize = 200_000;

fn rules(dense: bool) -> Rules {
    Rules {
        dense,
        ..Rules::default()
    }
}

fn timed() -> Rules {
    Rules {
        dense: true,
        timing: Some(Timing::default()),
        ..Rules::default()
    }
}

/// What the search says of the one lease; nothing if it did not finish.
fn searched(history: &History, dense: bool) -> Option<bool> {
    match wgl::check(history, dense, BUDGET).remove("orders") {
        Some(Answer::Linearizable) | None => Some(true),
        Some(Answer::NotLinearizable { .. }) => Some(false),
        Some(Answer::Unknown { .. }) => None,
    }
}

fn size() -> impl Strategy<Value = Size> {
    (1usize..7, 1usize..120, 0u32..40).prop_map(|(clients, calls, lost)| Size {
        clients,
        calls,
        lost,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_honest_lease_is_accepted_by_both(seed: u64, size in size()) {
        let history = traffic(seed, size, Bug::None);
        let verdict = judge(&history, &timed());
        prop_assert!(verdict.is_ok(), "{}", verdict.explain(&history));
        for dense in [true, false] {
            let searched = searched(&history, dense);
            prop_assert_ne!(searched, Some(false), "dense {}\n{}", dense, listing(&history));
        }
    }

    #[test]
    fn of_a_changed_history_both_say_the_same(seed: u64, size in size(), change: u64, dense: bool) {
        let mut history = traffic(seed, size, Bug::None);
        let what = mutate(&mut history, change);
        let verdict = judge(&history, &rules(dense));
        if verdict.broken().contains("FORMAT") {
            return Ok(());
        }
        match searched(&history, dense) {
            Some(true) => prop_assert!(verdict.is_ok(), "{:?}\n{}\n{}", what, verdict, listing(&history)),
            Some(false) if !is_guess(&history) => {
                prop_assert!(!verdict.is_ok(), "{:?}\n{}\n{}", what, verdict, listing(&history));
            }
            _ => {}
        }
    }
}

/// Whether only the search can decide, because it matters which of the requests that went unheard has a token without an
/// owner: an answer says that the tenure of such a request is over, or one of them went unheard twice and cannot have two
/// tokens in a row.
fn is_guess(history: &History) -> bool {
    let (ops, _) = history.ops();
    let mut unheard: HashMap<_, usize> = HashMap::new();
    let (mut owned, mut largest) = (BTreeSet::new(), 0);
    for op in &ops {
        match (op.outcome, op.request()) {
            (Outcome::Unknown, Some(request)) => {
                *unheard.entry((op.session, request)).or_default() += 1;
            }
            (Outcome::Granted { token, .. }, _) => _ = owned.insert(*token),
            _ => {}
        }
        if let Outcome::Granted { token, .. }
        | Outcome::Held { token, .. }
        | Outcome::Seen { token, .. } = op.outcome
        {
            largest = largest.max(*token);
        }
    }
    let ownerless = (largest as usize).saturating_sub(owned.len());
    let twice = ownerless > 1 && unheard.values().any(|times| *times > 1);
    let ended = ops.iter().any(|op| match (op.outcome, op.call) {
        (Outcome::AlreadyUsed, Call::Acquire { request, .. })
        | (
            Outcome::Released,
            Call::Release {
                token: None,
                request: Some(request),
            },
        ) => unheard.contains_key(&(op.session, request.as_str())),
        (
            Outcome::AlreadyOver,
            Call::Release {
                token: None,
                request: Some(request),
            },
        ) => ownerless > 0 && unheard.contains_key(&(op.session, request.as_str())),
        (Outcome::Lost, Call::Renew { token, .. })
        | (
            Outcome::AlreadyOver,
            Call::Release {
                token: Some(token), ..
            },
        ) => !owned.contains(token) && *token <= largest,
        _ => false,
    });
    twice || ended
}

fn listing(history: &History) -> String {
    let mut lines = String::new();
    for op in history.ops().0 {
        lines += &format!("{op}\n");
    }
    for (lease, answer) in wgl::check(history, true, BUDGET) {
        if let Answer::NotLinearizable { culprit, .. } = answer {
            lines += &format!("culprit in {lease}: {}\n", culprit.1);
        }
    }
    lines
}

/// One change somewhere, and what it was.
fn mutate(history: &mut History, seed: u64) -> Option<String> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let answers: Vec<usize> = places(history, |e| matches!(e.what, What::Return { .. }));
    let calls: Vec<usize> = places(history, |e| matches!(e.what, What::Invoke(_)));
    if answers.is_empty() {
        return None;
    }
    let any = |rng: &mut ChaCha8Rng, of: &[usize]| of[rng.random_range(0..of.len())];
    let (one, other) = (any(&mut rng, &answers), any(&mut rng, &answers));
    let call = any(&mut rng, &calls);
    match rng.random_range(0..8) {
        0 => swap_tokens(history, one, other),
        1 | 2 => shift_token(history, one, rng.random_range(0..4)),
        3 => move_event(history, one, rng.random_range(0..history.events.len())),
        4 => move_event(history, call, rng.random_range(0..history.events.len())),
        5 | 6 => replace(history, one, &mut rng),
        _ => drop_call(history, call),
    }
}

fn places(history: &History, wanted: impl Fn(&Event) -> bool) -> Vec<usize> {
    (0..history.events.len())
        .filter(|&i| wanted(&history.events[i]))
        .collect()
}

fn token_of(outcome: &mut Outcome) -> Option<&mut u64> {
    match outcome {
        Outcome::Granted { token, .. } | Outcome::Held { token, .. } => Some(token),
        Outcome::Seen { token, .. } => Some(token),
        _ => None,
    }
}

fn outcome_at(history: &mut History, at: usize) -> Option<&mut Outcome> {
    match &mut history.events[at].what {
        What::Return { outcome, .. } => Some(outcome),
        _ => None,
    }
}

fn swap_tokens(history: &mut History, one: usize, other: usize) -> Option<String> {
    let first = *token_of(outcome_at(history, one)?)?;
    let second = *token_of(outcome_at(history, other)?)?;
    *token_of(outcome_at(history, one)?)? = second;
    *token_of(outcome_at(history, other)?)? = first;
    Some(format!("swapped the tokens of events {one} and {other}"))
}

fn shift_token(history: &mut History, at: usize, how: u64) -> Option<String> {
    let token = token_of(outcome_at(history, at)?)?;
    *token = match how {
        0 => *token + 1,
        1 => *token + 2,
        2 => token.checked_sub(2)? + 1,
        _ => token.checked_sub(3)? + 1,
    };
    Some(format!("changed the token of event {at}"))
}

/// Moves an answer or a call to another moment, between its call and the end or the start and its answer.
fn move_event(history: &mut History, from: usize, to: usize) -> Option<String> {
    let time = history.events[to].time;
    let mut event = history.events.remove(from);
    event.time = time;
    history.events.insert(to, event);
    Some(format!("moved event {from} to {to}"))
}

fn replace(history: &mut History, at: usize, rng: &mut ChaCha8Rng) -> Option<String> {
    let largest = history.events.iter().filter_map(|e| match e.what {
        What::Return {
            outcome: Outcome::Granted { token, .. },
            ..
        } => Some(token),
        _ => None,
    });
    let token = rng.random_range(1..=largest.max().unwrap_or(1) + 1);
    let unsure = [Outcome::Unknown, Outcome::Failed];
    let others = match outcome_at(history, at)? {
        Outcome::Granted { .. } | Outcome::Held { .. } | Outcome::AlreadyUsed => vec![
            Outcome::Granted { token, ttl: 1 },
            Outcome::Held { token, by: None },
            Outcome::AlreadyUsed,
        ],
        Outcome::Renewed { .. } | Outcome::Lost => {
            vec![Outcome::Renewed { ttl: 1 }, Outcome::Lost]
        }
        Outcome::Released | Outcome::AlreadyOver => vec![Outcome::Released, Outcome::AlreadyOver],
        Outcome::Seen { held, .. } => {
            vec![Outcome::Seen {
                token,
                held: !*held,
                by: None,
            }]
        }
        Outcome::Unknown | Outcome::Failed | Outcome::Refused { .. } => Vec::new(),
    };
    let all: Vec<_> = others.into_iter().chain(unsure).collect();
    let new = all[rng.random_range(0..all.len())].clone();
    let text = format!("changed the answer at event {at} to {new:?}");
    *outcome_at(history, at)? = new;
    Some(text)
}

fn drop_call(history: &mut History, at: usize) -> Option<String> {
    let What::Invoke(invoke) = &history.events[at].what else {
        return None;
    };
    let (process, id) = (history.events[at].process.clone(), invoke.id);
    history.events.retain(|event| {
        event.process != process
            || !matches!(&event.what, What::Return { id: other, .. } if *other == id)
    });
    history.events.remove(at);
    Some(format!("dropped call {id}"))
}

/// Each dishonest lease is caught, by the promise that it breaks and, where that is about order, by the search too.
#[test]
fn every_dishonest_lease_is_caught() {
    let expected = [
        (Bug::RenewWithoutToken, "INV-3", true),
        (Bug::LateRenewal, "L4", true),
        (Bug::ReleaseByName, "INV-5", false),
        (Bug::ReleaseResets, "INV-2", true),
        (Bug::TokenStands, "INV-2", true),
        (Bug::NoAlreadyUsed, "INV-6", true),
        (Bug::NoReplay, "INV-6", true),
        (Bug::HalfTtl, "INV-4", false),
        (Bug::FailedApplies, "INV-10", true),
        (Bug::StaleRead, "L11", true),
        (Bug::Gap, "T2", true),
    ];
    for (bug, invariant, order) in expected {
        let (mut named, mut found, mut refused, mut undecided) = (0, 0, 0, 0);
        for seed in 0..40 {
            let history = traffic(
                seed,
                Size {
                    clients: 4,
                    calls: 100,
                    lost: 10,
                },
                bug,
            );
            let verdict = judge(&history, &timed());
            named += u32::from(verdict.broken().contains(invariant));
            found += u32::from(!verdict.is_ok());
            match searched(&history, true) {
                Some(fine) => {
                    refused += u32::from(!fine);
                    let order_fine = judge(&history, &rules(true)).is_ok();
                    assert_eq!(
                        order_fine,
                        fine,
                        "{bug:?} {seed}\n{}",
                        verdict.explain(&history)
                    );
                }
                None => undecided += 1,
            }
        }
        println!(
            "{bug:?}: {found} of 40 found, {named} as {invariant}; search: {refused} refused, {undecided} undecided"
        );
        assert!(named > 0, "{bug:?} is never called {invariant}");
        assert!(!order || refused > 0, "{bug:?} passes the search");
    }
}

/// The quick checks are quick: far more calls than a run of the simulation makes.
#[test]
#[allow(clippy::disallowed_methods, reason = "a test measures itself")]
fn many_calls_are_judged_quickly() {
    let history = traffic(
        1,
        Size {
            clients: 20,
            calls: 20_000,
            lost: 10,
        },
        Bug::None,
    );
    let start = Instant::now();
    let verdict = judge(&history, &timed());
    println!(
        "{} calls judged in {:?}",
        verdict.counts.ops,
        start.elapsed()
    );
    assert!(verdict.is_ok(), "{}", verdict.explain(&history));
    assert!(verdict.counts.ops >= 20_000);
    assert!(
        verdict.counts.grants > 200 && verdict.counts.unknown > 500,
        "{:?}",
        verdict.counts
    );
}

/// The search stays within its budget on 200 calls, broken or not, and decides.
#[test]
#[allow(clippy::disallowed_methods, reason = "a test measures itself")]
fn the_search_does_not_blow_up() {
    let start = Instant::now();
    let (mut decided, mut all) = (0, 0);
    for seed in 0..60 {
        let size = Size {
            clients: 6,
            calls: 200,
            lost: 15,
        };
        for bug in [
            Bug::None,
            Bug::TokenStands,
            Bug::RenewWithoutToken,
            Bug::Gap,
        ] {
            for dense in [true, false] {
                all += 1;
                decided += usize::from(searched(&traffic(seed, size, bug), dense).is_some());
            }
        }
    }
    println!(
        "{decided} of {all} histories of 200 calls decided in {:?}",
        start.elapsed()
    );
    assert!(decided * 100 >= all * 99, "{decided} of {all}");
}
