//! The contract suite, on a stand-in for an API server.

use leasehold::store::contract::{self, Time};

use crate::double::Double;

#[tokio::test]
async fn a_stand_in_keeps_the_contract() {
    let double = Double::start();
    for options in ["", "&token_offset=1000000"] {
        let store = leasehold::connect(&double.url(options)).await.unwrap();
        let report = contract::all(&*store, Time::Real).await;
        println!("{report:#?}");
        assert!(report.passed.len() > 15, "{report:#?}");
    }
}

#[tokio::test]
async fn a_stand_in_keeps_the_contract_with_transitions_for_tokens() {
    let double = Double::start();
    let url = double.url("&token_source=transitions");
    let store = leasehold::connect(&url).await.unwrap();
    contract::all(&*store, Time::Real).await;
}
