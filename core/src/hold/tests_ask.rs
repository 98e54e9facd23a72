//! Asking for a lease: one wish, one grant, nothing left behind.

use std::{vec, vec::Vec};

use super::{driver::*, *};
use crate::{Answer, Command, Grant, Held, Release, RequestId, Token, Ttl};

fn request(command: &Command) -> RequestId {
    match command {
        Command::Acquire(asked) => asked.request_id,
        other => panic!("{other:?}"),
    }
}

fn asking(wait: Wait) -> Played {
    let mut played = Played::new(plan());
    played.hear(Input::Want(wait));
    played
}

fn held_by_b(hint: u64) -> Answer {
    Answer::Held(Held {
        holder: "b".parse().unwrap(),
        info: None,
        token: Played::token(7),
        hint: ms(hint),
        yours: false,
    })
}

/// FB-71 (a), L9: the answer of a grant was lost; the same request finds it again, with the same token.
#[test]
fn a_lost_answer_is_asked_for_again_under_the_same_request() {
    let mut played = asking(Wait::Forever);
    let (_, first) = played.last();
    played.store(first.clone());
    played.fail(unknown());
    played.run_to(1000);
    let (_, second) = played.last();
    assert_eq!(first, second);
    assert!(matches!(played.answer(), Answer::Granted(grant) if grant.token == Token::FIRST));
    assert_eq!(played.hold.token(), Some(Token::FIRST));
}

/// A4: over `Held`, over silence, over failures: one wish has one request id, and only `AlreadyUsed` makes a new one.
#[test]
fn one_wish_has_one_request_id_until_it_was_used() {
    let mut played = asking(Wait::Forever);
    let (_, first) = played.last();
    for round in 0..12 {
        match round % 4 {
            0 => played.reply(held_by_b(3000)),
            1 => played.fail(unavailable()),
            2 => played.fail(unknown()),
            _ => {}
        }
        played.run_to_send();
        assert_eq!(request(&played.last().1), request(&first), "{round}");
    }
    played.reply(Answer::AlreadyUsed);
    played.run_to_send();
    assert_ne!(request(&played.last().1), request(&first));
}

/// A4: a late duplicate of an older wish was granted; nobody uses that tenure.
#[test]
fn an_orphan_is_released_by_token_and_the_same_request_is_asked_again() {
    let mut played = asking(Wait::Forever);
    let (_, asked) = played.last();
    let Command::Acquire(mut late) = asked.clone() else {
        panic!()
    };
    late.request_id = Seed(5).roll().into();
    played.store(Command::Acquire(late));
    assert!(matches!(played.answer(), Answer::Held(held) if held.yours));
    let session = played.hold.session();
    let token = Token::FIRST;
    assert_eq!(
        played.last().1,
        Command::Release(Release::Tenure { token, session })
    );
    assert_eq!(played.answer(), Answer::Released);
    played.run_to(played.now + 50);
    assert_eq!(played.last().1, asked);
    played.answer();
    assert_eq!(played.hold.token(), Some(Played::token(2)));
}

/// FB-71 (b), L9: what may have been granted, or may yet be, is released by the request that asked for it.
#[test]
fn giving_up_with_an_ask_unanswered_releases_by_request() {
    let cases: [fn(&mut Played); 3] = [
        |_| {},
        |played| played.fail(unknown()),
        |played| {
            played.fail(unknown());
            played.run_to(1000);
            played.reply(held_by_b(9000));
        },
    ];
    for (number, case) in cases.into_iter().enumerate() {
        let mut played = asking(Wait::Forever);
        let request_id = request(&played.last().1);
        played.store(played.last().1);
        case(&mut played);
        played.hear(Input::Stop);
        assert_eq!(played.gave_up(), Some(GaveUp::Stopped));
        let session = played.hold.session();
        let release = Release::Request {
            session,
            request_id,
        };
        assert_eq!(played.last().1, Command::Release(release), "case {number}");
        assert_eq!(played.answer(), Answer::Released);
        assert!(played.hold.is_idle());
    }
}

#[test]
fn giving_up_with_nothing_in_doubt_releases_nothing() {
    let cases: [fn(&mut Played); 2] = [
        |played| played.reply(held_by_b(9000)),
        |played| played.fail(unavailable()),
    ];
    for case in cases {
        let mut played = asking(Wait::Forever);
        case(&mut played);
        played.hear(Input::Stop);
        assert!(played.hold.is_idle());
        assert!(played.releases().is_empty());
    }
}

/// A1, FB-21, FB-46: the ask was held up on its way. The deadline counts from the sending, so the grant is over when it
/// comes; it is given back, and a new wish gets a token of its own.
#[test]
fn a_grant_that_comes_too_late_is_released_and_not_used() {
    let mut played = asking(Wait::Forever);
    let (attempt, first) = played.last();
    played.now = 9000;
    let answer = played.store(first.clone());
    assert!(matches!(answer, Answer::Granted(_)));
    played.hear(Input::Answered { attempt, answer });
    assert!(played.hold.term().is_none());
    assert!(matches!(
        played.last().1,
        Command::Release(Release::Tenure { .. })
    ));
    played.answer();
    played.run_to(played.now + 50);
    assert_ne!(request(&played.last().1), request(&first));
    played.answer();
    assert_eq!(played.hold.token(), Some(Played::token(2)));
}

/// A1: the store held the request back, and says for how long.
#[test]
fn a_grant_that_the_store_held_back_is_used() {
    let mut played = asking(Wait::Forever);
    played.now = 2400;
    let grant = Grant {
        token: Token::FIRST,
        ttl: Ttl::DEFAULT,
        waited: ms(2400),
    };
    played.reply(Answer::Granted(grant));
    assert_eq!(played.deadline(), 12_000 + 2160);
}

/// C13: the machine stood still while the ask was on its way; nobody knows when its grant began.
#[test]
fn a_grant_asked_for_before_a_pause_is_asked_for_again() {
    let mut played = asking(Wait::Forever);
    let (attempt, first) = played.last();
    let answer = played.store(first.clone());
    played.now = 10;
    played.hear(Input::Paused);
    played.hear(Input::Answered { attempt, answer });
    assert!(!played.hold.is_held());
    assert_eq!(played.last().1, first);
    played.answer();
    assert_eq!(played.hold.token(), Some(Token::FIRST));
}

/// A20: 463 of 750 losers were told of a holder that was dead.
#[test]
fn a_holder_with_no_time_left_is_asked_about_once_more() {
    let mut played = asking(Wait::No);
    played.reply(held_by_b(0));
    assert_eq!((played.gave_up(), played.told.len()), (None, 0));
    played.run_to(50);
    assert_eq!(played.sent.len(), 2);
    played.reply(held_by_b(0));
    assert!(matches!(
        played.gave_up(),
        Some(GaveUp::Busy(Blocker::Held(_)))
    ));
}

/// W1, A20: not before 50 ms, not after poll_max, and not all at the same moment.
#[test]
fn a_waiter_polls_at_random_times_within_bounds() {
    let mut played = asking(Wait::Forever);
    for _ in 0..200 {
        played.reply(held_by_b(60_000));
        played.run_to_send();
    }
    let times: Vec<u64> = played.sent.iter().map(|(_, at, _)| *at).collect();
    let gaps: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.iter().all(|gap| (50..=5000).contains(gap)), "{gaps:?}");
    let (short, long) = (gaps.iter().min().unwrap(), gaps.iter().max().unwrap());
    assert!(*short < 1000 && *long > 4000, "{short} {long}");
}

/// FB-65: a hint brings the next ask forward; a hint that comes while an ask is on its way is not forgotten.
#[test]
fn a_hint_is_followed_at_once_and_never_missed() {
    let mut played = asking(Wait::Forever);
    played.reply(held_by_b(60_000));
    played.now = 10;
    played.hear(Input::Changed);
    played.run_to(110);
    assert_eq!(played.sent.len(), 2);
    played.hear(Input::Changed);
    played.reply(held_by_b(60_000));
    played.run_to(250);
    assert_eq!(played.sent.len(), 3);
}

#[test]
fn a_hint_never_brings_asks_closer_than_50_ms() {
    let mut played = asking(Wait::Forever);
    for _ in 0..100 {
        played.reply(held_by_b(60_000));
        played.hear(Input::Changed);
        played.run_to_send();
    }
    let times: Vec<u64> = played.sent.iter().map(|(_, at, _)| *at).collect();
    assert!(
        times.windows(2).all(|pair| pair[1] - pair[0] >= 50),
        "{times:?}"
    );
}

#[test]
fn a_bounded_wait_ends_in_time_and_says_for_whom_it_waited() {
    let mut played = asking(Wait::AtMost(ms(3000)));
    while played.gave_up().is_none() {
        played.reply(held_by_b(60_000));
        let wake = played.hold.wake_at().unwrap();
        played.run_to(wake.as_nanos().div_ceil(1_000_000));
    }
    assert_eq!(played.now, 3000);
    let gave_up = played.gave_up().unwrap();
    assert!(
        matches!(gave_up, GaveUp::TimedOut(Some(Blocker::Held(_)))),
        "{gave_up:?}"
    );
    assert!(played.hold.is_idle());
}

/// FB-24: a store that never answers keeps nobody.
#[test]
fn without_waiting_a_silent_store_is_given_up() {
    let mut played = asking(Wait::No);
    played.run_to(4999);
    assert_eq!(played.gave_up(), None);
    played.run_to(5000);
    assert!(matches!(
        played.gave_up(),
        Some(GaveUp::TimedOut(Some(Blocker::Store(Failure::Unknown(_)))))
    ));
    played.run_to(10_000);
    assert!(played.hold.is_idle());
}

/// FB-59: the same holder name after a restart is a stranger. It waits, and gets a new token.
#[test]
fn a_restarted_holder_waits_for_its_earlier_self_and_gets_a_new_token() {
    let mut played = Played::held();
    let session = crate::Session::from_bits(MINE + 1).unwrap();
    played.hold = Hold::new(plan(), session);
    played.hear(Input::Want(Wait::Forever));
    assert!(matches!(played.answer(), Answer::Held(held) if !held.yours));
    while !played.hold.is_held() {
        played.run_to_send();
        played.answer();
    }
    assert!((15_000..15_100).contains(&played.now), "{}", played.now);
    assert_eq!(played.hold.token(), Some(Played::token(2)));
}

#[test]
fn what_the_store_never_grants_is_not_asked_for_again() {
    let mut refused = asking(Wait::Forever);
    refused.fail(Failure::Invalid("no such folder".into()));
    assert_eq!(
        refused.gave_up(),
        Some(GaveUp::Refused("no such folder".into()))
    );
    let mut exhausted = asking(Wait::Forever);
    exhausted.reply(Answer::TokenExhausted);
    assert_eq!(exhausted.gave_up(), Some(GaveUp::TokenExhausted));
    for mut played in [refused, exhausted] {
        played.run_to(100_000);
        assert_eq!((played.sent.len(), played.hold.is_idle()), (1, true));
    }
}

/// An answer that makes no sense is no answer.
#[test]
fn an_answer_that_fits_no_ask_grants_nothing() {
    let mut played = asking(Wait::Forever);
    played.reply(Answer::Renewed { ttl: Ttl::DEFAULT });
    assert!(played.hold.term().is_none());
    played.hear(Input::Stop);
    assert_eq!(played.releases().len(), 1);
}

/// W1: somebody who stands in the store's way is waited for, and named.
#[test]
fn whoever_stands_in_the_way_is_named() {
    let mut played = asking(Wait::Forever);
    played.fail(Failure::Blocked("process 17".into()));
    let said: Vec<_> = played.told.iter().map(|(_, tell)| tell).collect();
    assert!(
        matches!(
            said[..],
            [Tell::Waiting {
                blocker: Blocker::Store(_),
                ..
            }]
        ),
        "{said:?}"
    );
    let mut busy = asking(Wait::No);
    busy.fail(Failure::Blocked("process 17".into()));
    let blocker = Blocker::Store(Failure::Blocked("process 17".into()));
    assert_eq!(busy.gave_up(), Some(GaveUp::Busy(blocker)));
    assert_eq!(vec![busy.releases().len()], [0]);
}

fn at_a_store_that_holds_back(wait: Wait) -> Played {
    let mut plan = plan();
    plan.hold_back = ms(20_000);
    let mut played = Played::new(plan);
    played.hear(Input::Want(wait));
    played
}

/// W3, A1: the first ask is answered at once, so that one who does not wait learns who holds; then the store keeps our
/// place, and its answer says how long it held us back, so that the grant is not dead on arrival.
#[test]
fn a_waiter_is_held_back_at_a_store_that_can() {
    let mut played = at_a_store_that_holds_back(Wait::Forever);
    assert_eq!(played.held_back, ms(0));
    played.reply(held_by_b(15_000));
    played.run_to_send();
    assert_eq!((played.now, played.held_back), (50, ms(20_000)));
    played.run_to(20_050);
    played.reply(held_by_b(15_000));
    played.run_to_send();
    assert_eq!((played.now, played.held_back), (20_100, ms(20_000)));
    played.run_to(38_100);
    let waited = ms(18_000);
    played.reply(Answer::Granted(Grant {
        token: Played::token(8),
        ttl: Ttl::DEFAULT,
        waited,
    }));
    let term = played.hold.term().expect("it is held");
    assert_eq!(term.deadline(), boot(20_100 + 16_200 + 12_000));
}

/// One who waits for a bounded time leaves time for the answer; a store that is silent for longer is not waited for.
#[test]
fn a_store_that_holds_back_is_not_waited_for_without_limit() {
    let mut played = at_a_store_that_holds_back(Wait::AtMost(ms(10_000)));
    played.reply(held_by_b(15_000));
    played.run_to_send();
    assert_eq!(played.held_back, ms(10_000 - 50 - 1_250));
    let mut played = at_a_store_that_holds_back(Wait::Forever);
    played.reply(held_by_b(15_000));
    played.run_to_send();
    let sent = played.sent.len();
    played.run_to(50 + 22_500);
    assert!(matches!(
        played.told.last(),
        Some((
            _,
            Tell::Waiting {
                blocker: Blocker::Store(Failure::Unknown(_)),
                ..
            }
        ))
    ));
    played.run_to_send();
    assert_eq!(played.sent.len(), sent + 1);
    assert_eq!(played.held_back, ms(0), "it is asked whether it is there");
}

/// A store that could hold us back and does not is asked no more often than any other (W1).
#[test]
fn a_store_that_does_not_hold_back_is_polled_politely() {
    let mut played = at_a_store_that_holds_back(Wait::Forever);
    let mut sent = 0;
    while played.now < 60_000 {
        played.reply(held_by_b(15_000));
        played.run_to_send();
        sent += 1;
    }
    assert!(sent < 60, "{sent} asks in a minute");
}
