//! What goes wrong between the store and the API server, by a stand-in that goes wrong on command.

use leasehold::StoreError;
use leasehold_core::{Answer, Lost};

use crate::{
    ask::{acquire, ask, granted, release, renew},
    double::{Double, Fault},
};

/// L14, L9, INV-6: the grant was written, its answer was lost, and the same request finds it again.
#[tokio::test]
async fn a_lost_answer_is_unknown_and_found_again() {
    let double = Double::start();
    let store = leasehold::connect(&double.url("")).await.unwrap();
    let token = granted(&store, "nightly", 1, 20_000).await.token;
    ask(&store, "nightly", release(1, token)).await.unwrap();
    double.fail(Fault::LoseAnswer);
    let lost = ask(&store, "nightly", acquire(2, 7, 20_000)).await;
    assert!(matches!(lost, Err(StoreError::Unknown { .. })), "{lost:?}");
    let written =
        double.lease("nightly").unwrap()["metadata"]["annotations"]["leasehold/token"].clone();
    let again = ask(&store, "nightly", acquire(2, 7, 20_000)).await.unwrap();
    let Answer::Granted(grant) = again else {
        panic!("{again:?}")
    };
    assert_eq!(written, grant.token.to_string());

    double.fail(Fault::LoseAnswer);
    let lost = ask(&store, "nightly", renew(2, grant.token, 1, 20_000)).await;
    assert!(matches!(lost, Err(StoreError::Unknown { .. })), "{lost:?}");
    let again = ask(&store, "nightly", renew(2, grant.token, 1, 20_000))
        .await
        .unwrap();
    assert!(matches!(again, Answer::Renewed { .. }), "{again:?}");
}

/// L14: what was turned away at the door is certainly not applied; what failed inside may have been.
#[tokio::test]
async fn each_refusal_is_a_clear_error() {
    let double = Double::start();
    let store = leasehold::connect(&double.url("")).await.unwrap();
    for (code, wanted, word) in [
        (429, "unavailable", "busy"),
        (500, "unknown", "500"),
        (503, "unknown", "503"),
        (504, "unknown", "504"),
        (403, "invalid", "get, list, watch"),
        (401, "invalid", "who asks"),
        (422, "invalid", "refused"),
    ] {
        double.fail(Fault::Refuse(code));
        let error = ask(&store, &format!("code-{code}"), acquire(1, 1, 9_000))
            .await
            .unwrap_err();
        let kind = match error {
            StoreError::Unavailable { .. } => "unavailable",
            StoreError::Unknown { .. } => "unknown",
            StoreError::Invalid { .. } => "invalid",
            StoreError::BlockedBy { .. } => "blocked",
        };
        assert_eq!(kind, wanted, "{code}: {error}");
        assert!(error.to_string().contains(word), "{code}: {error}");
    }
    // A conflict is no error: it is looked at again.
    double.fail(Fault::Refuse(409));
    granted(&store, "conflict", 1, 9_000).await;
}

/// K7, FB-3, FB-4, A6: the holder learns that it lost; the next token is larger; a late write brings nothing back.
#[tokio::test]
async fn a_deleted_lease_never_lowers_a_token() {
    let double = Double::start();
    let mut holder = leasehold::connect(&double.url("")).await.unwrap();
    let mut last = granted(&holder, "nightly", 1, 20_000).await.token;
    for session in 2..5 {
        double.delete("nightly");
        let lost = ask(&holder, "nightly", renew(session - 1, last, 1, 20_000)).await;
        assert_eq!(lost.unwrap(), Answer::Lost(Lost::Gone));
        assert_eq!(double.lease("nightly"), None, "a renewal brought it back");
        let wait = ask(&holder, "nightly", acquire(9, 9, 2_000)).await.unwrap();
        let knows = matches!(wait, Answer::Quarantined { .. });
        assert!(
            knows,
            "whoever knows of the promise waits for its end: {wait:?}"
        );
        holder = leasehold::connect(&double.url("")).await.unwrap();
        let next = granted(&holder, "nightly", session, 20_000).await.token;
        assert!(next > last, "{next} after {last}");
        last = next;
    }
}

/// K6, FB-7: a cluster that was brought back from a backup would give out old tokens again.
#[tokio::test]
async fn a_restored_cluster_is_found_out() {
    let double = Double::start();
    let store = leasehold::connect(&double.url("")).await.unwrap();
    let token = granted(&store, "nightly", 1, 9_000).await.token;
    let (old, version) = (double.lease("nightly").unwrap(), token.get() + 1);
    ask(&store, "nightly", renew(1, token, 1, 9_000))
        .await
        .unwrap();
    ask(&store, "nightly", release(1, token)).await.unwrap();
    double.restore(version, "nightly", old);
    let error = ask(&store, "nightly", acquire(2, 2, 9_000))
        .await
        .unwrap_err();
    assert!(matches!(error, StoreError::Invalid { .. }), "{error:?}");
    assert!(error.to_string().contains("token_offset"), "{error}");
    let offset = leasehold::connect(&double.url("&token_offset=1000"))
        .await
        .unwrap();
    double.edit("nightly", |lease| {
        lease["spec"]["holderIdentity"] = "".into()
    });
    let next = granted(&offset, "nightly", 2, 9_000).await.token;
    assert!(next.get() > 1000 + token.get(), "{next}");
}

/// FB-97, K8: a holder at rest sends one request a renewal.
#[tokio::test]
async fn a_renewal_is_one_request() {
    let double = Double::start();
    let store = leasehold::connect(&double.url("")).await.unwrap();
    let token = granted(&store, "nightly", 1, 9_000).await.token;
    let before = double.requests();
    for number in 1..=10 {
        ask(&store, "nightly", renew(1, token, number, 9_000))
            .await
            .unwrap();
    }
    assert_eq!(double.requests() - before, 10);
}
