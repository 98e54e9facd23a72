//! The PostgreSQL store against real servers.
#![cfg(feature = "postgres")]
#![allow(unreachable_pub)]
#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // Tests may.

mod ask;
mod clocks;
mod crash;
#[cfg(feature = "sqlx")]
mod drivers;
mod faults;
mod fences;
mod full;
mod history;
mod ledger;
#[cfg(feature = "sqlx")]
mod once;
mod outage;
mod outbox;
mod pooler;
mod protect;
mod relay;
mod restore;
mod rules;
mod server;
mod session;
mod tls;
mod wire;

use leasehold::store::{
    contract::{self, Time},
    postgres::migrate,
};
use server::{Server, Version};

#[tokio::test]
async fn every_version_keeps_the_contract() {
    for version in Version::all() {
        let server = Server::start(&version);
        assert_eq!(migrate(&server.url()).await.unwrap(), None);
        let again = migrate(&server.url()).await.unwrap();
        assert_eq!(again, Some(1), "again: changes nothing");
        let store = leasehold::connect(&server.url()).await.unwrap();
        let report = contract::all(&*store, Time::Real).await;
        println!("PostgreSQL {}: {report:#?}", version.major);
    }
}
