//! What is answered when a try was lost on its way.

use leasehold_core::{Key, Release, Session, Token, Value};

use super::*;

const LOST: &str = "it was lost";

/// One act whose first try was lost; what its caller hears when the second comes to `came`.
fn second_try(act: Act, came: Answer) -> Result1 {
    let (reply, mut answer) = oneshot::channel();
    let job = Job {
        acts: vec![act],
        received: BootTime::ZERO,
        until: Instant::now(),
        forwarded: false,
        reply,
    };
    let mut load = Load::new(vec![job]);
    load.doubt(LOST);
    if !load.open().is_empty() {
        load.fill(
            vec![Ok(Came::Outcome(Outcome::Lease(came)))],
            BootTime::ZERO,
        );
    }
    load.answer();
    answer.try_recv().unwrap().unwrap().remove(0)
}

fn lease(command: Command) -> Act {
    let name = "nightly".parse().unwrap();
    Act::Op(Op::Lease { name, command })
}

fn acquire() -> Act {
    lease(Command::Acquire(leasehold_core::Acquire {
        session: Session::from_bits(1).unwrap(),
        request_id: leasehold_core::RequestId::from_bits(1).unwrap(),
        holder: leasehold_core::Holder::new("a").unwrap(),
        info: None,
        ttl: leasehold_core::Ttl::DEFAULT,
        lock_delay: leasehold_core::LockDelay::NONE,
    }))
}

fn is_unknown(result: &Result1) -> bool {
    matches!(result, Err(Failed::Unknown(_)))
}

/// L14, INV-10: a no to the second try says nothing about the first, which may yet be granted; a yes is a yes.
#[test]
fn only_a_yes_counts_after_a_try_that_was_lost() {
    let hint = Duration::from_secs(1);
    for no in [
        Answer::Quarantined { hint },
        Answer::Delayed { hint },
        Answer::AlreadyUsed,
    ] {
        let heard = second_try(acquire(), no);
        assert!(is_unknown(&heard), "{heard:?}");
    }
    let grant = leasehold_core::Grant {
        token: Token::new(1).unwrap(),
        ttl: leasehold_core::Ttl::DEFAULT,
        waited: Duration::ZERO,
    };
    assert!(second_try(acquire(), Answer::Granted(grant)).is_ok());
}

/// L14: what has no id by which the rules know it again is not done a second time.
#[test]
fn what_could_be_done_twice_is_not_tried_twice() {
    let (token, session) = (Token::new(1).unwrap(), Session::from_bits(1).unwrap());
    let put = Op::Put {
        key: Key::new("k").unwrap(),
        value: Value::new(b"v").unwrap(),
        proof: None,
    };
    for act in [
        Act::Op(put),
        lease(Command::Release(Release::Tenure { token, session })),
        lease(Command::ForceRelease { now: true }),
    ] {
        let heard = second_try(act, Answer::Released);
        assert!(is_unknown(&heard), "{heard:?}");
    }
}
