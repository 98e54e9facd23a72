//! What travels comes back as it was, and no bytes make a reader panic.

use std::time::Duration;

use leasehold_core::{
    Abandon, Acquire, Answer, Begin, Command, Complete, Done, Entry, Fingerprint, Grant, Held,
    Holder, Info, Key, LeaseName, LockDelay, Lost, NotBumped, Op, Outcome, Proof, Refusal, Release,
    Renew, Token, Ttl, Unfinished, Value, Verdict, WallTime, Work, WorkKey,
};
use proptest::{collection::vec, option, prelude::*};

use super::{
    ask::Ask,
    reply::Reply,
    view::{Batch, EventView, LeaseView, Replies},
};

fn millis(most: u64) -> impl Strategy<Value = Duration> {
    (0..most).prop_map(Duration::from_millis)
}

fn wall() -> impl Strategy<Value = WallTime> {
    (0..4_000_000_000_000_u64).prop_map(|millis| WallTime::from_nanos(millis * 1_000_000))
}

fn name<T: std::str::FromStr + std::fmt::Debug>(pattern: &'static str) -> impl Strategy<Value = T> {
    pattern.prop_filter_map("no name", |text| text.parse().ok())
}

const NAME: &str = "[a-zäß日/%?#\"\\\\ .:-]{1,12}";

fn lease() -> impl Strategy<Value = LeaseName> {
    name(NAME)
}

fn holder() -> impl Strategy<Value = Holder> {
    name(NAME)
}

fn token() -> impl Strategy<Value = Token> {
    (1..=i64::MAX as u64).prop_filter_map("no token", |number| Token::new(number).ok())
}

fn id<T>(of: fn(u128) -> Option<T>) -> impl Strategy<Value = T>
where
    T: std::fmt::Debug,
{
    any::<u128>().prop_filter_map("zero", of)
}

fn session() -> impl Strategy<Value = leasehold_core::Session> {
    id(leasehold_core::Session::from_bits)
}

fn request() -> impl Strategy<Value = leasehold_core::RequestId> {
    id(leasehold_core::RequestId::from_bits)
}

fn attempt() -> impl Strategy<Value = leasehold_core::AttemptId> {
    id(leasehold_core::AttemptId::from_bits)
}

fn ttl() -> impl Strategy<Value = Ttl> {
    (500..=86_400_000_u64).prop_filter_map("no ttl", |millis| Ttl::from_millis(millis).ok())
}

fn value() -> impl Strategy<Value = Value> {
    let text = "[ -~äö\n]{0,40}".prop_map(String::into_bytes);
    prop_oneof![vec(any::<u8>(), 0..40), text]
        .prop_filter_map("too long", |bytes| Value::new(&bytes).ok())
}

fn proof() -> impl Strategy<Value = Proof> {
    (lease(), token()).prop_map(|(lease, token)| Proof { lease, token })
}

fn work() -> impl Strategy<Value = Work> {
    (lease(), name::<WorkKey>(NAME)).prop_map(|(lease, key)| Work { lease, key })
}

fn fingerprint() -> impl Strategy<Value = Fingerprint> {
    any::<[u8; 32]>().prop_map(Fingerprint)
}

fn command() -> impl Strategy<Value = Command> {
    let delay = (0..600_000_u64).prop_filter_map("no delay", |millis| {
        LockDelay::new(Duration::from_millis(millis)).ok()
    });
    let acquire = (
        session(),
        request(),
        holder(),
        option::of(name::<Info>(NAME)),
        ttl(),
        delay,
    );
    let renew_id = id(leasehold_core::RenewId::from_bits);
    let renew = (token(), session(), ttl(), any::<u64>(), renew_id);
    prop_oneof![
        acquire.prop_map(|(session, request_id, holder, info, ttl, lock_delay)| {
            Command::Acquire(Acquire {
                session,
                request_id,
                holder,
                info,
                ttl,
                lock_delay,
            })
        }),
        renew.prop_map(|(token, session, ttl, number, renew_id)| {
            Command::Renew(Renew {
                token,
                session,
                ttl,
                number,
                renew_id,
            })
        }),
        (token(), session())
            .prop_map(|(token, session)| Command::Release(Release::Tenure { token, session })),
        (session(), request()).prop_map(|(session, request_id)| Command::Release(
            Release::Request {
                session,
                request_id
            }
        )),
        any::<bool>().prop_map(|now| Command::ForceRelease { now }),
        token().prop_map(|above| Command::Quarantine { above }),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let begin = (
        work(),
        token(),
        attempt(),
        holder(),
        fingerprint(),
        any::<bool>(),
        option::of(wall()),
    );
    let key = || name::<Key>(NAME);
    prop_oneof![
        (lease(), command()).prop_map(|(name, command)| Op::Lease { name, command }),
        (key(), value(), option::of(proof())).prop_map(|(key, value, proof)| Op::Put {
            key,
            value,
            proof
        }),
        (key(), option::of(proof())).prop_map(|(key, proof)| Op::Delete { key, proof }),
        (name(NAME), proof()).prop_map(|(resource, proof)| Op::Raise { resource, proof }),
        begin.prop_map(|(work, token, attempt, holder, fingerprint, leave, born)| {
            let unfinished = if leave {
                Unfinished::Leave
            } else {
                Unfinished::TakeOver
            };
            Op::Begin(Begin {
                work,
                token,
                attempt,
                holder,
                fingerprint,
                unfinished,
                born,
            })
        }),
        (work(), token(), attempt(), value()).prop_map(|(work, token, attempt, response)| {
            Op::Complete(Complete {
                work,
                token,
                attempt,
                response,
            })
        }),
        (work(), token(), attempt()).prop_map(|(work, token, attempt)| Op::Abandon(Abandon {
            work,
            token,
            attempt
        })),
        token().prop_map(|above| Op::Bump { above }),
    ]
}

fn refusal() -> impl Strategy<Value = Refusal> {
    prop_oneof![
        (token(), token()).prop_map(|(token, highest)| Refusal::Stale { token, highest }),
        token().prop_map(|token| Refusal::Expired { token }),
        token().prop_map(|token| Refusal::Released { token }),
        token().prop_map(|token| Refusal::NeverIssued { token }),
        (token(), token()).prop_map(|(token, highest)| Refusal::NotRaised { token, highest }),
        (token(), token()).prop_map(|(token, highest)| Refusal::TooFar { token, highest }),
        (name(NAME), lease()).prop_map(|(key, by)| Refusal::Fenced { key, by }),
        lease().prop_map(|by| Refusal::OtherLease { by }),
    ]
}

fn answer() -> impl Strategy<Value = Answer> {
    let held = (
        holder(),
        option::of(name::<Info>(NAME)),
        token(),
        millis(1 << 40),
        any::<bool>(),
    );
    prop_oneof![
        (token(), ttl(), millis(1 << 40)).prop_map(|(token, ttl, waited)| Answer::Granted(Grant {
            token,
            ttl,
            waited
        })),
        ttl().prop_map(|ttl| Answer::Renewed { ttl }),
        Just(Answer::Released),
        Just(Answer::AlreadyOver),
        Just(Answer::AlreadyUsed),
        Just(Answer::TokenExhausted),
        token().prop_map(|token| Answer::Bumped { token }),
        held.prop_map(|(holder, info, token, hint, yours)| Answer::Held(Held {
            holder,
            info,
            token,
            hint,
            yours
        })),
        millis(1 << 40).prop_map(|hint| Answer::Delayed { hint }),
        millis(1 << 40).prop_map(|hint| Answer::Quarantined { hint }),
        (option::of(holder()), token())
            .prop_map(|(by, token)| Answer::Lost(Lost::Taken { by, token })),
        proptest::sample::select(vec![
            Lost::Expired,
            Lost::Released,
            Lost::SeqMismatch,
            Lost::Gone
        ])
        .prop_map(Answer::Lost),
    ]
}

fn entry() -> impl Strategy<Value = Entry> {
    let done = option::of((wall(), value()).prop_map(|(at, response)| Done { at, response }));
    (token(), attempt(), holder(), fingerprint(), wall(), done).prop_map(
        |(token, attempt, holder, fingerprint, begun, done)| Entry {
            token,
            attempt,
            holder,
            fingerprint,
            begun,
            done,
        },
    )
}

fn verdict() -> impl Strategy<Value = Verdict> {
    use Verdict as V;
    prop_oneof![
        token().prop_map(|from| V::TookOver { from }),
        entry().prop_map(V::AlreadyDone),
        entry().prop_map(V::LeftUnfinished),
        wall().prop_map(|kept_from| V::TooOld { kept_from }),
        refusal().prop_map(V::Refused),
        proptest::sample::select(vec![
            V::Begun,
            V::Resumed,
            V::InProgress,
            V::NotBegun,
            V::Mismatch,
            V::Completed,
            V::Abandoned,
        ]),
    ]
}

/// An operation and something that may come of it.
fn end() -> impl Strategy<Value = (Op, Outcome)> {
    let bump = token().prop_map(|above| Op::Bump { above });
    let why = prop_oneof![
        (token(), token()).prop_map(|(above, newest)| NotBumped::TooSmall { above, newest }),
        (token(), any::<u64>()).prop_map(|(above, most)| NotBumped::TooLarge { above, most }),
        (wall(), wall()).prop_map(|(wall, newest)| NotBumped::ClockBehind { wall, newest }),
    ];
    let raise =
        || (name(NAME), proof()).prop_map(|(resource, proof)| Op::Raise { resource, proof });
    let abandon = (work(), token(), attempt()).prop_map(|(work, token, attempt)| {
        Op::Abandon(Abandon {
            work,
            token,
            attempt,
        })
    });
    prop_oneof![
        (lease(), command(), answer()).prop_map(|(name, command, answer)| (
            Op::Lease { name, command },
            Outcome::Lease(answer)
        )),
        (bump, why).prop_map(|(op, why)| (op, Outcome::NotBumped(why))),
        (raise(), refusal()).prop_map(|(op, refusal)| (op, Outcome::Refused(refusal))),
        raise().prop_map(|op| (op, Outcome::Done)),
        (abandon, verdict()).prop_map(|(op, verdict)| (op, Outcome::Ledger(verdict))),
    ]
}

proptest! {
    #[test]
    fn every_operation_arrives_as_it_was_sent(op in op()) {
        let sent = serde_json::to_string(&Ask::from(op.clone())).unwrap();
        let came: Ask = serde_json::from_str(&sent).unwrap();
        prop_assert_eq!(Op::try_from(came), Ok(op), "{}", sent);
    }

    #[test]
    fn every_answer_arrives_as_it_was_given((op, outcome) in end()) {
        let sent = serde_json::to_string(&Reply::from(outcome.clone())).unwrap();
        let came: Reply = serde_json::from_str(&sent).unwrap();
        let came = came.into_outcome(&op);
        prop_assert!(matches!(&came, Ok(came) if *came == outcome), "{} {:?}", sent, came);
    }

    /// A byte of what is right is made another, or the rest is cut off: refused or read, never a panic.
    #[test]
    fn what_was_spoilt_on_the_way_makes_nobody_panic(op in op(), at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<bool>()) {
        let mut sent = format!("{{\"ops\":[{}]}}", serde_json::to_string(&Ask::from(op)).unwrap()).into_bytes();
        let at = at.index(sent.len());
        if cut { sent.truncate(at) } else { sent[at] = byte }
        if let Ok(batch) = serde_json::from_slice::<Batch>(&sent) {
            for ask in batch.ops {
                let _ = Op::try_from(ask);
            }
        }
        let _ = serde_json::from_slice::<Replies>(&sent);
    }

    #[test]
    fn no_bytes_make_a_reader_panic(bytes in vec(any::<u8>(), 0..200)) {
        let _ = serde_json::from_slice::<Batch>(&bytes);
        let _ = serde_json::from_slice::<Reply>(&bytes);
        let _ = serde_json::from_slice::<LeaseView>(&bytes);
        let _ = serde_json::from_slice::<EventView>(&bytes);
    }
}
