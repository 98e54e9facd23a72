//! One client of a server, speaking plain statements as psql does.

use std::time::Duration;

use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

use crate::server::Server;

/// An open connection.
#[derive(Debug)]
pub struct Session {
    /// For what plain statements cannot do.
    pub client: Client,
}

impl Session {
    /// Connects as the superuser.
    pub async fn open(server: &Server) -> Session {
        Self::at(&server.url()).await
    }

    /// Connects to a URL.
    pub async fn at(url: &str) -> Session {
        let (client, connection) = tokio_postgres::connect(url, NoTls)
            .await
            .expect("the server answers");
        tokio::spawn(connection);
        Session { client }
    }

    /// The fields of the rows, or the SQLSTATE and the message. `gone` if the connection is.
    pub async fn run(&self, sql: &str) -> Result<String, String> {
        match self.client.simple_query(sql).await {
            Ok(messages) => Ok(messages
                .iter()
                .filter_map(|message| match message {
                    SimpleQueryMessage::Row(row) => Some(
                        (0..row.len())
                            .map(|field| row.get(field).unwrap_or("-"))
                            .collect::<Vec<_>>()
                            .join(" "),
                    ),
                    _ => None,
                })
                .collect::<Vec<_>>()
                .join("\n")),
            Err(error) => Err(match error.as_db_error() {
                Some(db) => format!("{} {}", db.code().code(), db.message()),
                None => "gone".to_owned(),
            }),
        }
    }

    /// What must work.
    pub async fn must(&self, sql: &str) -> String {
        self.run(sql)
            .await
            .unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// What must be refused, with its SQLSTATE.
    pub async fn refused(&self, sql: &str, state: &str) -> String {
        match self.run(sql).await {
            Ok(rows) => panic!("{sql} was let through: {rows}"),
            Err(error) => {
                assert!(error.starts_with(state), "{sql}: {error}");
                error
            }
        }
    }

    /// Asks once; the answer and the token.
    pub async fn acquire(&self, lease: &str, who: &str, ttl_ms: u32) -> String {
        self.must(&format!(
            "SELECT answer, token FROM leasehold.acquire('{lease}', md5('{who}')::uuid, gen_random_uuid(), '{who}', NULL, {ttl_ms})"
        ))
        .await
    }

    /// Asks until it is granted; the token.
    pub async fn granted(&self, lease: &str, who: &str, ttl_ms: u32) -> i64 {
        for _ in 0..600 {
            if let Some(token) = self
                .acquire(lease, who, ttl_ms)
                .await
                .strip_prefix("granted ")
            {
                return token.parse().expect("a token");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{who} was never granted {lease}");
    }

    /// Begins a transaction that passes the fence and stays open, whatever the server thinks of idleness.
    pub async fn fenced(&self, lease: &str, token: i64) {
        self.must("BEGIN").await;
        self.must(&format!("SELECT leasehold.fence('{lease}', {token})"))
            .await;
        self.must("SET LOCAL idle_in_transaction_session_timeout = 0")
            .await;
    }
}

/// Lets time pass.
pub async fn pass(millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis)).await;
}
