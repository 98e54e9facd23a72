//! What other programs and people write into a Lease: nothing of it lets two hold, lowers a token or panics.

use std::time::Duration;

use leasehold_core::{Answer, LeaseName, Lost, State};
use serde_json::{Value, json};

use crate::{
    ask::{acquire, ask, granted, renew},
    double::Double,
};

fn taken_by(who: Value, seconds: Value) -> impl FnOnce(&mut Value) {
    move |lease| {
        lease["spec"]["holderIdentity"] = who;
        lease["spec"]["leaseDurationSeconds"] = seconds;
        lease["spec"]["renewTime"] = json!("2090-01-01T00:00:00.000000Z");
    }
}

/// A6, K1: a stranger's Lease is waited for; its takeover ends our tenure although our annotations are still there.
#[tokio::test]
async fn a_stranger_is_waited_for_and_takes_over() {
    let double = Double::start();
    let store = leasehold::connect(&double.url("")).await.unwrap();
    let first = granted(&store, "nightly", 1, 9_000).await.token;
    double.edit("nightly", taken_by(json!("go-1"), json!(1)));
    let lost = ask(&store, "nightly", renew(1, first, 1, 9_000))
        .await
        .unwrap();
    let Answer::Lost(Lost::Taken { by: Some(by), .. }) = lost else {
        panic!("{lost:?}")
    };
    assert_eq!(by.as_str(), "go-1");
    let status = store
        .status(&LeaseName::new("nightly").unwrap())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (status.state, status.token),
        (State::Held, None),
        "its token is not known"
    );
    // Each sign of life begins the wait anew.
    for turn in 0..3 {
        tokio::time::sleep(Duration::from_millis(400)).await;
        double.edit("nightly", |lease| {
            lease["spec"]["renewTime"] = json!(format!("2026-01-01T00:00:0{turn}.000000Z"))
        });
        let busy = ask(&store, "nightly", acquire(2, 2, 9_000)).await.unwrap();
        assert!(
            matches!(&busy, Answer::Held(held) if held.holder.as_str() == "go-1"),
            "{busy:?}"
        );
    }
    tokio::time::sleep(Duration::from_millis(1_150)).await;
    let next = granted(&store, "nightly", 2, 9_000).await.token;
    assert!(next > first, "{next} after {first}");
    let spec = double.lease("nightly").unwrap()["spec"].clone();
    assert_eq!(spec["leaseDurationSeconds"], 9, "{spec}");
}

/// K1, C2: what stands in the Lease as a time decides nothing; a fresh contender waits the whole duration.
#[tokio::test]
async fn a_contender_counts_from_what_it_saw_itself() {
    let double = Double::start();
    double.edit("nightly", taken_by(json!("go-1"), json!(2)));
    double.edit("nightly", |lease| {
        lease["spec"]["renewTime"] = json!("2001-01-01T00:00:00.000000Z")
    });
    let store = leasehold::connect(&double.url("")).await.unwrap();
    let first = ask(&store, "nightly", acquire(1, 1, 9_000)).await.unwrap();
    assert!(
        matches!(first, Answer::Held(_)),
        "it may be alive: {first:?}"
    );
    tokio::time::sleep(Duration::from_millis(2_250)).await;
    granted(&store, "nightly", 1, 9_000).await;
}

/// FB-11, FB-45, FB-58: negative, huge, missing, empty, of another type.
#[tokio::test]
async fn a_malformed_lease_is_no_panic_and_nobodys_gift() {
    let double = Double::start();
    let store = leasehold::connect(&double.url("")).await.unwrap();
    let odd = [
        json!(-1),
        json!(0),
        json!(i64::MAX),
        json!(2_147_483_647),
        json!("9"),
        json!(null),
        json!([1]),
        json!(1.5),
    ];
    for (number, value) in odd.iter().enumerate() {
        let name = format!("odd-{number}");
        double.edit(&name, taken_by(json!("somebody"), value.clone()));
        let held = ask(&store, &name, acquire(1, 1, 9_000)).await.unwrap();
        let Answer::Held(held) = held else {
            panic!("{value}: {held:?}")
        };
        assert!(
            held.hint <= Duration::from_secs(3600),
            "FB-45, {value}: {held:?}"
        );

        let name = format!("free-{number}");
        double.edit(&name, |lease| {
            lease["spec"] =
                json!({"leaseTransitions": value, "acquireTime": value, "holderIdentity": ""});
            lease["metadata"]["annotations"] =
                json!({"leasehold/record": "{\"token\":\"99\"}", "leasehold/token": "-4"});
        });
        let grant = granted(&store, &name, 1, 9_000).await;
        let transitions = double.lease(&name).unwrap()["spec"]["leaseTransitions"].clone();
        assert!(
            transitions
                .as_i64()
                .is_some_and(|it| (1..=i32::MAX.into()).contains(&it)),
            "{transitions}"
        );
        assert!(grant.token.get() > 1000);
    }
    for spec in [json!(null), json!("x"), json!({"holderIdentity": 7})] {
        double.edit("no-spec", |lease| lease["spec"] = spec.clone());
        let name = LeaseName::new("no-spec").unwrap();
        store.status(&name).await.unwrap();
    }
    store.list("", 100).await.unwrap();
    store.examine().await.unwrap();
}

/// A21: who may read a Lease learns no key.
#[tokio::test]
async fn a_session_is_not_in_the_lease() {
    let double = Double::start();
    let store = leasehold::connect(&double.url("")).await.unwrap();
    let session = 0x1234_5678_9abc_def0_1234_5678_9abc_def0_u128;
    ask(&store, "nightly", acquire(session, 1, 9_000))
        .await
        .unwrap();
    let text = double.lease("nightly").unwrap().to_string();
    assert!(!text.contains(&format!("{session:032x}")), "{text}");
}

/// K10.
#[tokio::test]
async fn a_lease_of_the_coordinated_election_is_left_alone() {
    let double = Double::start();
    let store = leasehold::connect(&double.url("")).await.unwrap();
    let marks: [fn(&mut Value); 3] = [
        |lease| lease["spec"]["strategy"] = json!("OldestEmulationVersion"),
        |lease| lease["spec"]["preferredHolder"] = json!("x"),
        |lease| lease["metadata"]["annotations"] = json!({"coordination.k8s.io/elected-by": "x"}),
    ];
    for (number, mark) in marks.into_iter().enumerate() {
        let name = format!("elected-{number}");
        double.edit(&name, mark);
        let error = ask(&store, &name, acquire(1, 1, 9_000)).await.unwrap_err();
        assert!(error.to_string().contains("K10"), "{error}");
    }
}

/// 1.3, K11, FB-48, A16: rounded up, never down; what cannot be had is refused.
#[tokio::test]
async fn seconds_are_rounded_up() {
    let double = Double::start();
    let store = leasehold::connect(&double.url("")).await.unwrap();
    granted(&store, "nightly", 1, 1_001).await;
    assert_eq!(
        double.lease("nightly").unwrap()["spec"]["leaseDurationSeconds"],
        2
    );
    let error = ask(&store, "other", acquire(1, 1, 999)).await.unwrap_err();
    assert!(error.to_string().contains("at least 1s"), "{error}");
    let error = ask(&store, "Upper", acquire(1, 1, 9_000))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("a-z, 0-9"), "{error}");
}
