//! The etcd store against real servers: Debian's and the newest, and etcd's own clients as opponents.
#![cfg(feature = "etcd")]
#![allow(unreachable_pub)]
#![allow(clippy::unwrap_used)] // Tests may.

mod access;
mod asker;
mod faults;
mod fences;
mod opponents;
mod restore;
mod server;
mod tenures;

use leasehold::store::contract::{self, Time};
use server::{Server, Version};

async fn contract(version: Option<Version>) {
    let Some(version) = version else { return };
    let server = Server::start(&version).await;
    let store = leasehold::connect(&server.url()).await.unwrap();
    let report = contract::all(&*store, Time::Real).await;
    println!("{version:?}: {report:#?}");
}

#[tokio::test]
async fn the_etcd_of_debian_keeps_the_contract() {
    contract(Version::debian()).await;
}

#[tokio::test]
async fn the_newest_etcd_keeps_the_contract() {
    contract(Version::newest()).await;
}

/// ET4, C14: with renewals through Raft a clone of the holder is found out too.
#[tokio::test]
async fn renewals_through_raft_keep_the_contract() {
    let Some(version) = Version::newest() else {
        return;
    };
    let server = Server::start(&version).await;
    let store = leasehold::connect(&format!("{}?renew=raft", server.url()))
        .await
        .unwrap();
    let report = contract::all(&*store, Time::Real).await;
    assert!(
        report
            .passed
            .contains(&"a_clone_of_the_holder_is_found_out"),
        "{report:#?}"
    );
}
