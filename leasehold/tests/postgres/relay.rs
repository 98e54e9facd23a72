//! Something between store and server: it passes everything on, says nothing more, or cuts the line at a chosen byte of
//! what the server says.

use std::sync::Arc;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
};

use crate::server::Server;

/// What becomes of the bytes from the server, from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// They arrive.
    Pass,
    /// So many arrive, then the line is cut.
    Cut(usize),
    /// None arrives, and nothing is cut.
    Silent,
}

/// A running relay.
#[derive(Debug)]
pub struct Relay {
    port: u16,
    rule: Arc<watch::Sender<Rule>>,
}

impl Relay {
    pub async fn to(server: &Server) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let rule = Arc::new(watch::Sender::new(Rule::Pass));
        tokio::spawn(accept(listener, server.port(), rule.clone()));
        Relay { port, rule }
    }

    pub fn set(&self, rule: Rule) {
        self.rule.send_replace(rule);
    }

    /// How many bytes will still arrive before the cut.
    pub fn left(&self) -> usize {
        match *self.rule.borrow() {
            Rule::Cut(left) => left,
            _ => 0,
        }
    }

    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }
}

async fn accept(listener: TcpListener, to: u16, rule: Arc<watch::Sender<Rule>>) {
    while let Ok((client, _)) = listener.accept().await {
        let Ok(server) = TcpStream::connect(("127.0.0.1", to)).await else {
            continue;
        };
        tokio::spawn(carry(client, server, rule.clone()));
    }
}

async fn carry(client: TcpStream, server: TcpStream, rule: Arc<watch::Sender<Rule>>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let up = tokio::spawn(async move {
        let _ = tokio::io::copy(&mut from_client, &mut to_server).await;
    });
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = from_server.read(&mut buffer).await {
        let now = *rule.borrow();
        let (passes, cut) = match now {
            Rule::Pass => (count, false),
            Rule::Cut(most) => (count.min(most), most <= count),
            Rule::Silent => (0, false),
        };
        if let Rule::Cut(most) = now {
            rule.send_replace(Rule::Cut(most.saturating_sub(count)));
        }
        if to_client.write_all(&buffer[..passes]).await.is_err() || cut {
            break;
        }
    }
    up.abort();
}
