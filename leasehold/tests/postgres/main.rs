//! The PostgreSQL store against real servers.
#![cfg(feature = "postgres")]
#![allow(unreachable_pub)]

mod server;

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
        assert_eq!(
            migrate(&server.url()).await.unwrap(),
            Some(1),
            "again: changes nothing"
        );
        let store = leasehold::connect(&server.url()).await.unwrap();
        let report = contract::all(&*store, Time::Real).await;
        println!("PostgreSQL {}: {report:#?}", version.major);
    }
}
