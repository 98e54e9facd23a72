//! One lease when its holder is not well: expiry, takeover, lock delay, force, quarantine, forgetting.

use std::time::Duration;

use leasehold_core::{Answer, Command, LockDelay, Lost, Op, Outcome, State, Token, Ttl};

use super::{
    Suite,
    ask::{Asker, proof, renewal, request},
};
use crate::clock::{BootClock, Clock};

/// INV-3, L5, FB-17.
pub(super) async fn a_late_renewal_is_refused(suite: &Suite<'_>) {
    let (name, a) = (suite.lease("late"), Asker::new("a"));
    let asked = a.acquire(request(), suite.short());
    let Answer::Granted(grant) = suite.acquire(&name, asked.clone()).await else {
        panic!("not granted")
    };
    suite.outlast(suite.short()).await;
    let late = suite
        .renew(&name, &a, grant.token, 1, renewal(), suite.long())
        .await;
    assert_eq!(
        late,
        Answer::Lost(Lost::Expired),
        "nobody took it, and still it is over"
    );
    assert_eq!(suite.acquire(&name, asked).await, Answer::AlreadyUsed);
    let next = suite.granted(&name, &a, suite.long()).await;
    assert!(next.token > grant.token, "FB-6: {next:?}");
}

/// L6, INV-5, FB-17, FB-18, FB-63.
pub(super) async fn an_expired_holder_touches_nothing_of_its_successor(suite: &Suite<'_>) {
    let (name, a, b) = (suite.lease("takeover"), Asker::new("a"), Asker::new("b"));
    let old = suite.granted(&name, &a, suite.short()).await.token;
    suite.outlast(suite.short()).await;
    let between = Ttl::new(suite.short().get() * 40).expect("below a day");
    let new = suite.granted(&name, &b, between).await.token;
    if suite.profile().dense {
        assert_eq!(Some(new), old.next());
    }
    let lost = Answer::Lost(Lost::Taken {
        by: Some(b.holder.clone()),
        token: new,
    });
    for number in 1..100 {
        let answer = suite
            .renew(&name, &a, old, number, renewal(), suite.long())
            .await;
        assert_eq!(answer, lost);
    }
    assert_eq!(suite.release(&name, &a, old).await, Answer::AlreadyOver);
    let status = suite
        .store
        .status(&name)
        .await
        .expect("a status")
        .expect("a lease");
    assert_eq!((status.state, status.token), (State::Held, Some(new)));
    assert!(
        status.remaining <= between.get(),
        "extended by a stranger: {status:?}"
    );
}

/// W4.
pub(super) async fn the_lock_delay_follows_an_unclean_end(suite: &Suite<'_>) {
    let (name, a, b) = (suite.lease("delay"), Asker::new("a"), Asker::new("b"));
    let mut asked = a.acquire(request(), suite.short());
    // Longer than the store may be late.
    let delay = suite.short().get() * 4 + suite.profile().extension;
    asked.lock_delay = LockDelay::new(delay).expect("short enough");
    suite.acquire(&name, asked).await;
    suite.outlast(suite.short()).await;
    let answer = suite
        .acquire(&name, b.acquire(request(), suite.long()))
        .await;
    assert!(matches!(answer, Answer::Delayed { .. }), "{answer:?}");
    suite.pass(delay).await;
    let token = suite.granted(&name, &b, suite.long()).await.token;

    suite.release(&name, &b, token).await;
    let mut asked = a.acquire(request(), suite.long());
    asked.lock_delay = LockDelay::MAX;
    let Answer::Granted(grant) = suite.acquire(&name, asked).await else {
        panic!("not granted")
    };
    suite.release(&name, &a, grant.token).await;
    suite.granted(&name, &b, suite.long()).await;
}

/// A21.
pub(super) async fn force_release_burns_a_token_and_keeps_the_promise(suite: &Suite<'_>) {
    let (name, a, b) = (suite.lease("force"), Asker::new("a"), Asker::new("b"));
    let force = |now| Command::ForceRelease { now };
    let token = suite.granted(&name, &a, suite.short()).await.token;
    let Answer::Bumped { token: burnt } = suite.command(&name, force(false)).await else {
        panic!("not forced")
    };
    assert!(burnt > token);
    let lost = suite
        .renew(&name, &a, token, 1, renewal(), suite.short())
        .await;
    assert_eq!(
        lost,
        Answer::Lost(Lost::Taken {
            by: None,
            token: burnt
        })
    );
    let answer = suite
        .acquire(&name, b.acquire(request(), suite.long()))
        .await;
    assert!(
        matches!(answer, Answer::Quarantined { .. }),
        "a may still act: {answer:?}"
    );
    suite.outlast(suite.short()).await;
    assert_eq!(suite.command(&name, force(true)).await, Answer::AlreadyOver);
    let next = suite.granted(&name, &b, suite.long()).await.token;
    assert!(next > burnt);
    suite.command(&name, force(true)).await;
    suite.granted(&name, &a, suite.long()).await;
}

/// T6.
pub(super) async fn quarantine_lets_nobody_in_for_one_ttl(suite: &Suite<'_>) {
    let (name, a, b) = (suite.lease("quarantine"), Asker::new("a"), Asker::new("b"));
    let token = suite.granted(&name, &a, suite.short()).await.token;
    let above = Token::new(token.get() + 1_000_000).expect("far below the last");
    let answer = suite.command(&name, Command::Quarantine { above }).await;
    assert_eq!(answer, Answer::Bumped { token: above });
    for asker in [&a, &b] {
        let answer = suite
            .acquire(&name, asker.acquire(request(), suite.long()))
            .await;
        assert!(matches!(answer, Answer::Quarantined { .. }), "{answer:?}");
    }
    suite.outlast(suite.short()).await;
    assert!(suite.granted(&name, &b, suite.long()).await.token > above);
}

/// 1.2: never wraps, never repeats.
pub(super) async fn the_last_token_is_the_last(suite: &Suite<'_>) {
    let (name, a) = (suite.lease("exhausted"), Asker::new("a"));
    suite.granted(&name, &a, suite.short()).await;
    let above = Token::MAX;
    suite.command(&name, Command::Quarantine { above }).await;
    suite.outlast(suite.short()).await;
    let answer = suite
        .acquire(&name, a.acquire(request(), suite.short()))
        .await;
    assert_eq!(answer, Answer::TokenExhausted);
}

/// INV-9, FB-1, FB-2, FB-12.
pub(super) async fn a_forgotten_name_never_repeats_a_token(suite: &Suite<'_>) {
    let (name, kept, a) = (
        suite.lease("forgotten"),
        suite.lease("kept"),
        Asker::new("a"),
    );
    let mut last = None;
    for _ in 0..3 {
        let token = suite.granted(&name, &a, suite.short()).await.token;
        assert!(Some(token) > last);
        last = Some(token);
        suite.release(&name, &a, token).await;
    }
    suite.pass(Duration::from_secs(23 * 3600)).await;
    suite.store.collect().await.expect("collected");
    assert!(
        suite.store.status(&name).await.expect("a status").is_some(),
        "free for 23 h only"
    );
    let held = suite.granted(&kept, &a, suite.long()).await.token;
    suite.renew(&kept, &a, held, 1, renewal(), Ttl::MAX).await;
    suite.pass(Duration::from_secs(2 * 3600)).await;
    assert!(suite.store.collect().await.expect("collected") > 0);
    assert_eq!(suite.store.status(&name).await.expect("a status"), None);
    assert!(
        suite.store.status(&kept).await.expect("a status").is_some(),
        "it is held"
    );
    assert!(Some(suite.granted(&name, &a, suite.short()).await.token) > last);
}

/// T6, A10. Quarantines everything in the store.
pub(super) async fn a_bump_puts_every_lease_in_quarantine(suite: &Suite<'_>) {
    let (name, a, b) = (suite.lease("bump"), Asker::new("a"), Asker::new("b"));
    let token = suite.granted(&name, &a, suite.short()).await.token;
    for above in [token, Token::MAX] {
        let outcome = suite.apply(Op::Bump { above }).await;
        assert!(matches!(outcome, Outcome::NotBumped(_)), "{outcome:?}");
    }
    let above = bumped(suite, token).await;
    let answer = suite
        .acquire(&name, b.acquire(request(), suite.short()))
        .await;
    assert!(matches!(answer, Answer::Quarantined { .. }), "{answer:?}");
    suite.outlast(suite.short()).await;
    assert!(suite.granted(&name, &b, suite.long()).await.token > above);
    let new = suite.lease("bump-later");
    assert!(
        suite.granted(&new, &a, suite.long()).await.token > above,
        "the floor holds"
    );
    if suite.profile().pairs {
        let key = suite.key("bump");
        suite.refused(&key, proof(&name, token)).await;
    }
}

/// Bumps to the unix time, or, where time is virtual and may be any, to somewhat above `token`.
async fn bumped(suite: &Suite<'_>, token: Token) -> Token {
    let unix_ms = BootClock::new().wall().as_millis();
    for number in [unix_ms, token.get() + 2_000_000] {
        let above = Token::new(number).expect("far below the last");
        if suite.apply(Op::Bump { above }).await == Outcome::Done {
            return above;
        }
    }
    panic!("no bump was taken")
}
