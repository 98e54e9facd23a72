//! Calls over TCP: a greeting that tells clusters, members and versions apart, then length and body, one call at a time on
//! a connection. Everything from outside has a limit: size, time, number of connections.

use std::{
    collections::HashMap,
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use futures_util::FutureExt;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::timeout,
};

use crate::{
    codec,
    transport::{Answers, Card, NoAnswer, Peer, Transport},
    types::RULES,
    wire::{Request, Response, VERSION},
};

/// The first bytes of a greeting.
const MAGIC: [u8; 4] = *b"LhRf";
/// The largest greeting.
const GREETING: u32 = 1024;
/// The largest message: a snapshot of some million leases. Memory grows with what comes, not with what is announced.
const MESSAGE: u32 = 1 << 30;
/// How long a greeting may take, and making a connection.
const GREETING_TIME: Duration = Duration::from_secs(5);
/// How long a message may take once it has begun.
const MESSAGE_TIME: Duration = Duration::from_secs(60);
/// How long a connection may be silent between two calls.
const SILENCE: Duration = Duration::from_secs(300);
/// The most connections that are served at once.
const CONNECTIONS: usize = 1024;
/// The most that are kept for the next call to one address.
const KEPT: usize = 8;

/// What the caller says first.
#[derive(Debug, Serialize, Deserialize)]
struct Hello {
    magic: [u8; 4],
    version: u16,
    rules: u8,
    cluster: Option<u128>,
    from: u64,
    to: Option<u64>,
}

/// What it hears.
#[derive(Debug, Serialize, Deserialize)]
enum Welcome {
    Yes { node: u64, rules: u8 },
    No(String),
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}
type Boxed = Box<dyn Stream>;

/// Connections to one address may be to different members in turn.
type To = (String, Option<u64>);

/// The calling side.
pub(crate) struct Tcp {
    card: Arc<Card>,
    kept: Mutex<HashMap<To, Vec<Boxed>>>,
}

impl std::fmt::Debug for Tcp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tcp")
            .field("card", &self.card)
            .finish_non_exhaustive()
    }
}

impl Tcp {
    pub(crate) fn new(card: Arc<Card>) -> Arc<Self> {
        let kept = Mutex::default();
        Arc::new(Self { card, kept })
    }

    /// One that is still open, or a new one.
    async fn connection(&self, to: &Peer) -> Result<Boxed, String> {
        while let Some(mut kept) = self.take(to) {
            // Between calls nothing comes but the end.
            if kept.read(&mut [0; 1]).now_or_never().is_none() {
                return Ok(kept);
            }
        }
        let connect = self.connect(to);
        match timeout(GREETING_TIME, connect).await {
            Ok(result) => result,
            Err(_) => Err(format!("{} does not answer", to.address)),
        }
    }

    fn take(&self, to: &Peer) -> Option<Boxed> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get_mut(&(to.address.clone(), to.node))?.pop()
    }

    fn keep(&self, to: &Peer, stream: Boxed) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = kept.entry((to.address.clone(), to.node)).or_default();
        if kept.len() < KEPT {
            kept.push(stream);
        }
    }

    async fn connect(&self, to: &Peer) -> Result<Boxed, String> {
        let failed = |error: io::Error| format!("{}: {error}", to.address);
        let stream = TcpStream::connect(&to.address).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let mut stream: Boxed = Box::new(stream);
        let hello = Hello {
            magic: MAGIC,
            version: VERSION,
            rules: RULES,
            cluster: self.card.cluster(),
            from: self.card.node,
            to: to.node,
        };
        send(&mut stream, &hello).await.map_err(failed)?;
        match receive(&mut stream, GREETING).await.map_err(failed)? {
            Welcome::Yes { .. } => Ok(stream),
            Welcome::No(why) => Err(format!("{}: {why}", to.address)),
        }
    }
}

#[async_trait]
impl Transport for Tcp {
    async fn call(
        &self,
        to: &Peer,
        request: &Request,
        patience: Duration,
    ) -> Result<Response, NoAnswer> {
        let mut sent = false;
        let call = async {
            let mut stream = self.connection(to).await.map_err(NoAnswer::NotSent)?;
            sent = true;
            let lost = |error: io::Error| NoAnswer::Lost(format!("{}: {error}", to.address));
            send(&mut stream, request).await.map_err(lost)?;
            let response = receive(&mut stream, MESSAGE).await.map_err(lost)?;
            self.keep(to, stream);
            Ok(response)
        };
        match timeout(patience, call).await {
            Ok(result) => result,
            Err(_) if sent => Err(NoAnswer::Lost(format!(
                "{} did not answer in time",
                to.address
            ))),
            Err(_) => Err(NoAnswer::NotSent(format!(
                "{} cannot be reached",
                to.address
            ))),
        }
    }
}

/// Answers all who call, until it is dropped.
pub(crate) async fn serve(listener: TcpListener, card: Arc<Card>, answers: Arc<dyn Answers>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else {
            return;
        };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of files, most likely: some will be closed.
                tracing::warn!(%error, "a connection was not accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let (card, answers) = (card.clone(), answers.clone());
        tokio::spawn(async move {
            if let Err(error) = converse(stream, &card, &*answers).await {
                tracing::debug!(%error, "a connection ended");
            }
            drop(place);
        });
    }
}

async fn converse(stream: TcpStream, card: &Card, answers: &dyn Answers) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut stream: Boxed = Box::new(stream);
    let hello = timeout(GREETING_TIME, receive::<Hello>(&mut stream, GREETING)).await??;
    let refusal = match objection(&hello, card) {
        Some(objection) => Some(objection),
        None => match (hello.cluster, card.cluster()) {
            (Some(cluster), None) if hello.to.is_some() => answers.adopt(cluster).await.err(),
            _ => None,
        },
    };
    let welcome = match refusal {
        Some(why) => Welcome::No(why),
        None => Welcome::Yes {
            node: card.node,
            rules: RULES,
        },
    };
    timeout(GREETING_TIME, send(&mut stream, &welcome)).await??;
    if let Welcome::No(why) = welcome {
        return Err(io::Error::other(why));
    }
    loop {
        let request: Request = timeout(SILENCE, receive(&mut stream, MESSAGE)).await??;
        let response = answers.answer(request).await;
        timeout(MESSAGE_TIME, send(&mut stream, &response)).await??;
    }
}

/// Why this caller is none of ours.
fn objection(hello: &Hello, card: &Card) -> Option<String> {
    if hello.magic != MAGIC {
        return Some("this is a member of a Leasehold cluster, and talks to others only".into());
    }
    if hello.version != VERSION {
        let (theirs, ours) = (hello.version, VERSION);
        return Some(format!(
            "you speak version {theirs}, this member version {ours}: upgrade the older one"
        ));
    }
    if let (Some(theirs), Some(ours)) = (hello.cluster, card.cluster())
        && theirs != ours
    {
        return Some(format!(
            "you belong to cluster {theirs:032x}, this member to {ours:032x}: check the address"
        ));
    }
    match hello.to {
        Some(node) if node != card.node => Some(format!(
            "you look for member {node}, this is member {}: remove the one that is gone",
            card.node
        )),
        _ => None,
    }
}

async fn send<T: Serialize>(stream: &mut Boxed, message: &T) -> io::Result<()> {
    let mut frame = vec![0; 4];
    frame = postcard::to_extend(message, frame).map_err(io::Error::other)?;
    let length = u32::try_from(frame.len() - 4)
        .ok()
        .filter(|length| *length <= MESSAGE);
    let length = length.ok_or_else(|| io::Error::other("the message is too large"))?;
    frame[..4].copy_from_slice(&length.to_le_bytes());
    stream.write_all(&frame).await?;
    stream.flush().await
}

async fn receive<T: DeserializeOwned>(stream: &mut Boxed, most: u32) -> io::Result<T> {
    let length = stream.read_u32_le().await?;
    if length > most {
        return Err(io::Error::other(format!(
            "a message of {length} bytes is not allowed: at most {most}"
        )));
    }
    let mut body = Vec::new();
    let mut rest = stream.take(u64::from(length));
    let read = timeout(MESSAGE_TIME, rest.read_to_end(&mut body)).await??;
    if read < length as usize {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    codec::unpack(&body).map_err(io::Error::other)
}
