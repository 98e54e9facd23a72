//! One lease while its holder is well: grant, replay, renewal, release.

use leasehold_core::{Answer, Command, Held, Lost, Op, Outcome, Release, Token, Ttl};

use super::{
    Suite,
    ask::{Asker, renewal, request},
    race::together,
};

/// L2.3, 1.3.
pub(super) async fn a_free_lease_is_granted_for_the_ttl_asked(suite: &Suite<'_>) {
    let (name, a) = (suite.lease("grant"), Asker::new("a"));
    let grant = suite.granted(&name, &a, suite.long()).await;
    assert_eq!(grant.ttl, suite.long());
    suite.release(&name, &a, grant.token).await;
    let next = suite.granted(&name, &a, suite.long()).await;
    assert!(next.token > grant.token, "INV-1: {next:?} after {grant:?}");
    if suite.profile().dense {
        assert_eq!(Some(next.token), grant.token.next());
    }
}

/// L2.4, A4.
pub(super) async fn whoever_comes_second_learns_who_holds(suite: &Suite<'_>) {
    let (name, a, b) = (suite.lease("held"), Asker::new("a"), Asker::new("b"));
    let grant = suite.granted(&name, &a, suite.long()).await;
    for (asker, yours) in [(&b, false), (&a, true)] {
        let answer = suite
            .acquire(&name, asker.acquire(request(), suite.short()))
            .await;
        let Answer::Held(held) = answer else {
            panic!("{} was answered {answer:?}", asker.holder)
        };
        let Held {
            holder,
            info,
            token,
            hint,
            ..
        } = &held;
        assert_eq!((holder, *token), (&a.holder, grant.token));
        assert_eq!(info.as_ref().map(|info| info.as_str()), Some("a is here"));
        assert!(
            *hint <= suite.long().get() + suite.profile().extension,
            "{hint:?}"
        );
        assert_eq!(held.yours, yours);
    }
    let same_name = Asker::new("a");
    let answer = suite
        .acquire(&name, same_name.acquire(request(), suite.short()))
        .await;
    assert!(
        matches!(&answer, Answer::Held(held) if !held.yours),
        "L3, FB-56: the same holder name is not the same holder: {answer:?}"
    );
}

/// INV-6, L2.1, L2.2.
pub(super) async fn the_same_request_gets_the_same_token(suite: &Suite<'_>) {
    let (name, a, b) = (suite.lease("replay"), Asker::new("a"), Asker::new("b"));
    let asked = a.acquire(request(), suite.long());
    let first = suite.acquire(&name, asked.clone()).await;
    let Answer::Granted(grant) = first else {
        panic!("{first:?}")
    };
    for _ in 0..3 {
        let again = suite.acquire(&name, asked.clone()).await;
        assert!(
            matches!(&again, Answer::Granted(same) if same.token == grant.token),
            "{again:?}"
        );
    }
    suite.release(&name, &a, grant.token).await;
    let late = suite.acquire(&name, asked).await;
    assert_eq!(
        late,
        Answer::AlreadyUsed,
        "a late duplicate of a released acquire"
    );
    let next = suite.granted(&name, &b, suite.long()).await;
    assert!(next.token > grant.token);
}

/// A2.
pub(super) async fn a_duplicate_never_shortens_a_promise(suite: &Suite<'_>) {
    let (name, a, b) = (suite.lease("shorten"), Asker::new("a"), Asker::new("b"));
    let id = request();
    let short = a.acquire(id, suite.short());
    let Answer::Granted(grant) = suite.acquire(&name, short.clone()).await else {
        panic!("not granted")
    };
    let renewed = suite
        .renew(&name, &a, grant.token, 1, renewal(), suite.long())
        .await;
    assert_eq!(renewed, Answer::Renewed { ttl: suite.long() });
    suite.acquire(&name, short).await;
    suite.outlast(suite.short()).await;
    let answer = suite
        .acquire(&name, b.acquire(request(), suite.short()))
        .await;
    assert!(
        matches!(answer, Answer::Held(_)),
        "a stranger was let in: {answer:?}"
    );
}

/// L4, A3.
pub(super) async fn a_renewal_extends_and_its_retry_is_harmless(suite: &Suite<'_>) {
    let (name, a, b) = (suite.lease("renew"), Asker::new("a"), Asker::new("b"));
    let token = suite.granted(&name, &a, suite.short()).await.token;
    for number in 1..=3 {
        let id = renewal();
        for _ in 0..2 {
            let answer = suite
                .renew(&name, &a, token, number, id, suite.long())
                .await;
            assert_eq!(answer, Answer::Renewed { ttl: suite.long() });
        }
    }
    suite.outlast(suite.short()).await;
    let answer = suite
        .acquire(&name, b.acquire(request(), suite.short()))
        .await;
    assert!(matches!(answer, Answer::Held(_)), "{answer:?}");
}

/// C14, A3.
pub(super) async fn a_clone_of_the_holder_is_found_out(suite: &Suite<'_>) {
    let (name, a) = (suite.lease("clone"), Asker::new("a"));
    let token = suite.granted(&name, &a, suite.long()).await.token;
    let ttl = suite.long();
    suite.renew(&name, &a, token, 1, renewal(), ttl).await;
    let lost = Answer::Lost(Lost::SeqMismatch);
    for number in [0, 1, 3, u64::MAX >> 1] {
        let answer = suite.renew(&name, &a, token, number, renewal(), ttl).await;
        assert_eq!(answer, lost, "renewal {number} with an id of its own");
    }
    let answer = suite.renew(&name, &a, token, 2, renewal(), ttl).await;
    assert_eq!(
        answer,
        Answer::Renewed { ttl },
        "the refusals changed nothing"
    );
}

/// INV-5, L7, A21.
pub(super) async fn only_the_holder_releases(suite: &Suite<'_>) {
    let (name, a, b) = (suite.lease("release"), Asker::new("a"), Asker::new("b"));
    let old = suite.granted(&name, &a, suite.long()).await.token;
    assert_eq!(suite.release(&name, &a, old).await, Answer::Released);
    assert_eq!(suite.release(&name, &a, old).await, Answer::AlreadyOver);
    let token = suite.granted(&name, &b, suite.long()).await.token;
    assert_eq!(
        suite.release(&name, &a, old).await,
        Answer::AlreadyOver,
        "FB-63"
    );
    let by = Some(b.holder.clone());
    let stolen = suite.release(&name, &a, token).await;
    assert_eq!(stolen, Answer::Lost(Lost::Taken { by, token }));
    let never = Token::new(token.get() + 1_000).expect("far below the last");
    assert_eq!(
        suite.release(&name, &b, never).await,
        Answer::Lost(Lost::Gone)
    );
    let still = suite
        .renew(&name, &b, token, 1, renewal(), suite.long())
        .await;
    assert_eq!(still, Answer::Renewed { ttl: suite.long() });
    suite.release(&name, &b, token).await;
    let late = suite
        .renew(&name, &b, token, 2, renewal(), suite.long())
        .await;
    assert_eq!(late, Answer::Lost(Lost::Released));
}

/// L9, A4, FB-71.
pub(super) async fn a_lost_acquire_is_released_by_its_request(suite: &Suite<'_>) {
    let (name, a, b) = (suite.lease("orphan"), Asker::new("a"), Asker::new("b"));
    let request_id = request();
    let session = a.session;
    let release = || {
        Command::Release(Release::Request {
            session,
            request_id,
        })
    };
    assert_eq!(
        suite.command(&name, release()).await,
        Answer::AlreadyOver,
        "before it came"
    );
    suite
        .acquire(&name, a.acquire(request_id, suite.long()))
        .await;
    assert_eq!(suite.command(&name, release()).await, Answer::Released);
    suite.granted(&name, &b, suite.long()).await;
    assert_eq!(
        suite.command(&name, release()).await,
        Answer::AlreadyOver,
        "b's is untouched"
    );
    let answer = suite
        .acquire(&name, a.acquire(request(), suite.short()))
        .await;
    assert!(matches!(answer, Answer::Held(_)), "{answer:?}");
}

/// W8: each op its own answer; a refusal hides no success.
pub(super) async fn many_ops_get_an_answer_each(suite: &Suite<'_>) {
    let a = Asker::new("a");
    let acquire = |name: &str, ttl: Ttl| Op::Lease {
        name: suite.lease(name),
        command: Command::Acquire(a.acquire(request(), ttl)),
    };
    let long = suite.long();
    let ops = vec![
        acquire("batch-0", long),
        acquire("batch-1", long),
        acquire("batch-0", long),
        acquire("batch-2", long),
    ];
    let answers = suite.store.apply_all(ops).await;
    let granted: Vec<bool> = answers
        .iter()
        .map(|answer| match answer {
            Ok(Outcome::Lease(Answer::Granted(_))) => true,
            Ok(Outcome::Lease(Answer::Held(held))) if held.yours => false,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(granted, [true, true, false, true]);
}

pub(super) async fn of_many_at_once_one_wins(suite: &Suite<'_>) {
    let name = suite.lease("crowd");
    let askers: Vec<Asker> = (0..20).map(|n| Asker::new(&format!("asker {n}"))).collect();
    let asking = askers
        .iter()
        .map(|asker| suite.acquire(&name, asker.acquire(request(), suite.long())));
    let answers = together(asking).await;
    let winners = answers
        .iter()
        .filter(|answer| matches!(answer, Answer::Granted(_)))
        .count();
    assert_eq!(winners, 1, "{answers:?}");
}
