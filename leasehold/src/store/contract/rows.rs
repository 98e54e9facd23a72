//! Pairs and fences: the check and the write are one step, and a refusal leaves no trace.

use leasehold_core::{Key, LeaseName, Op, Outcome, Proof, Refusal, Resource, Token};

use super::{
    Suite,
    ask::{Asker, proof},
};

pub(super) async fn plain_pairs_are_read_back(suite: &Suite<'_>) {
    let key = suite.key("plain");
    assert_eq!(suite.value(&key).await, None);
    for value in ["first", "second", ""] {
        assert_eq!(suite.put(&key, value, None).await, Outcome::Done);
        assert_eq!(suite.value(&key).await.as_deref(), Some(value));
    }
    let largest = "x".repeat(leasehold_core::Value::MAX_LEN);
    suite.put(&key, &largest, None).await;
    assert_eq!(suite.value(&key).await.as_deref(), Some(&*largest));
    assert_eq!(suite.apply(delete(&key, None)).await, Outcome::Done);
    assert_eq!(suite.value(&key).await, None);
    assert_eq!(suite.apply(delete(&key, None)).await, Outcome::Done);
}

/// PRODUCT 3: `put --lease`.
pub(super) async fn the_first_fenced_write_binds_the_key(suite: &Suite<'_>) {
    let (name, other, key) = (
        suite.lease("bind"),
        suite.lease("bind-2"),
        suite.key("bind"),
    );
    let (a, b) = (Asker::new("a"), Asker::new("b"));
    let mine = proof(&name, suite.granted(&name, &a, suite.long()).await.token);
    let others = proof(&other, suite.granted(&other, &b, suite.long()).await.token);
    assert_eq!(suite.put(&key, "plain", None).await, Outcome::Done);
    assert_eq!(
        suite.put(&key, "fenced", Some(mine.clone())).await,
        Outcome::Done
    );
    let fenced = Outcome::Refused(Refusal::Fenced {
        key: key.clone(),
        by: name.clone(),
    });
    assert_eq!(suite.put(&key, "plain again", None).await, fenced);
    assert_eq!(suite.put(&key, "other", Some(others.clone())).await, fenced);
    assert_eq!(suite.apply(delete(&key, None)).await, fenced);
    assert_eq!(suite.value(&key).await.as_deref(), Some("fenced"));
    let pair = suite
        .store
        .pair(&key)
        .await
        .expect("a pair is read")
        .expect("it is there");
    assert_eq!(pair.fence, Some(mine.clone()));
    assert_eq!(suite.apply(delete(&key, Some(mine))).await, Outcome::Done);
    assert_eq!(
        suite.put(&key, "other", Some(others)).await,
        Outcome::Done,
        "it was unbound"
    );
}

/// F7, F9, INV-20, INV-22, T2, FB-8, FB-32.
pub(super) async fn each_kind_of_stale_write_is_refused_and_leaves_no_trace(suite: &Suite<'_>) {
    let (name, key) = (suite.lease("stale"), suite.key("stale"));
    let (a, b) = (Asker::new("a"), Asker::new("b"));
    let unknown = suite.refused(&key, proof(&name, Token::FIRST)).await;
    assert!(
        matches!(unknown, Refusal::NeverIssued { .. } | Refusal::Stale { .. }),
        "the name has no record, but the store may have a floor: {unknown}"
    );

    let old = suite.granted(&name, &a, suite.short()).await.token;
    assert_eq!(
        suite.put(&key, "by a", Some(proof(&name, old))).await,
        Outcome::Done
    );
    suite.outlast(suite.short()).await;
    let expired = suite.refused(&key, proof(&name, old)).await;
    assert_eq!(expired, Refusal::Expired { token: old });

    let token = suite.granted(&name, &b, suite.long()).await.token;
    let stale = suite.refused(&key, proof(&name, old)).await;
    assert_eq!(
        stale,
        Refusal::Stale {
            token: old,
            highest: token
        }
    );
    assert_eq!(
        stale.to_string(),
        format!("token {old} is older than {token}")
    );
    for _ in 0..2 {
        let fenced = Some(proof(&name, token));
        assert_eq!(suite.put(&key, "by b", fenced).await, Outcome::Done);
    }
    let future = Token::new(token.get() + 7).expect("far below the last");
    let never = suite.refused(&key, proof(&name, future)).await;
    assert_eq!(never, Refusal::NeverIssued { token: future });
    suite.release(&name, &b, token).await;
    let released = suite.refused(&key, proof(&name, token)).await;
    assert_eq!(released, Refusal::Released { token });
    assert_eq!(suite.value(&key).await.as_deref(), Some("by b"), "INV-22");
}

/// F3, F6, T10.
pub(super) async fn a_raised_fence_never_falls(suite: &Suite<'_>) {
    let (name, other) = (suite.lease("fence"), suite.lease("fence-2"));
    let resource = Resource::new(suite.lease("receiver").as_str()).expect("it fits");
    let raise = |lease: &LeaseName, token: Token| Op::Raise {
        resource: resource.clone(),
        proof: Proof {
            lease: lease.clone(),
            token,
        },
    };
    let a = Asker::new("a");
    let first = suite.granted(&name, &a, suite.long()).await.token;
    suite.release(&name, &a, first).await;
    let second = suite.granted(&name, &a, suite.long()).await.token;
    for _ in 0..2 {
        assert_eq!(suite.apply(raise(&name, second)).await, Outcome::Done);
    }
    let refusals = [
        (
            raise(&name, first),
            Refusal::Stale {
                token: first,
                highest: second,
            },
        ),
        (
            raise(&name, Token::MAX),
            Refusal::NeverIssued { token: Token::MAX },
        ),
        (
            raise(&other, second),
            Refusal::OtherLease { by: name.clone() },
        ),
    ];
    for (op, refusal) in refusals {
        assert_eq!(suite.apply(op).await, Outcome::Refused(refusal));
    }
    let fence = suite
        .store
        .fence(&resource)
        .await
        .expect("a fence is read")
        .expect("it is there");
    assert_eq!((fence.lease, fence.highest), (name, second));
}

fn delete(key: &Key, proof: Option<Proof>) -> Op {
    let key = key.clone();
    Op::Delete { key, proof }
}
