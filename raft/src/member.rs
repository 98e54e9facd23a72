//! The thread of a member: its files, its engine, its listener, from the start to the stop.
//!
//! It is a thread of its own with a runtime of its own, so that no work of the program can keep it from its heartbeats.

use std::{
    sync::{Arc, Mutex, mpsc::Sender},
    thread::JoinHandle,
};

use leasehold::StoreError;
use openraft::Raft;
use tokio::{
    net::TcpListener,
    runtime::{Builder, Handle},
    sync::{mpsc, oneshot},
};

use crate::{
    answers::Desk,
    config::Config,
    disk::{Disk, Found, Identity, damaged, unusable},
    log::Log,
    machine::Machine,
    network::Network,
    node::Node,
    snapshot::Shelf,
    tcp::{self, Tcp},
    transport::{Answers, Card, Transport},
    writer::{Ask, Done, Writer},
};

/// The most jobs that wait; each is one or more acts.
const JOBS: usize = 10_000;

type Started = Result<(Arc<Node>, Handle), StoreError>;

/// What stops the thread.
#[derive(Debug)]
pub(crate) struct Running {
    /// Dropped, it stops.
    pub(crate) stop: oneshot::Sender<()>,
    pub(crate) thread: JoinHandle<()>,
}

/// The whole life of a member.
pub(crate) fn run(config: Config, started: oneshot::Sender<Started>, stop: oneshot::Receiver<()>) {
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let what = format!("no runtime could be started: {error}");
            let _ = started.send(Err(StoreError::Unavailable { what }));
            return;
        }
    };
    let life = async {
        let files = match Files::open(&config) {
            Ok(files) => files,
            Err(error) => return Err((started, error)),
        };
        let (log_thread, log) = (files.thread, files.asks.clone());
        match begin(&config, files.log, files.machine, files.card).await {
            Ok(node) => {
                let _ = started.send(Ok((node.clone(), Handle::current())));
                // Whether it is told or forgotten.
                let _ = stop.await;
                if let Err(error) = node.engine.shutdown().await {
                    tracing::warn!(%error, "the engine ended badly");
                }
                Ok((log_thread, log))
            }
            Err(error) => {
                let _ = log.send(Ask::Stop);
                let _ = log_thread.join();
                Err((started, error))
            }
        }
    };
    match runtime.block_on(life) {
        Ok((log_thread, log)) => {
            runtime.shutdown_background();
            let _ = log.send(Ask::Stop);
            let _ = log_thread.join();
        }
        Err((started, error)) => {
            let _ = started.send(Err(error));
        }
    }
}

struct Files {
    log: Log,
    machine: Machine,
    card: Arc<Card>,
    asks: Sender<Ask>,
    thread: JoinHandle<()>,
}

impl Files {
    fn open(config: &Config) -> Result<Self, StoreError> {
        let newcomer = Identity {
            node: match config.node {
                Some(node) => node,
                None => random_id()?,
            },
            cluster: None,
        };
        let (disk, found) = Disk::open(&config.folder, newcomer)?;
        let Identity { node, cluster } = found.identity;
        if config.node.is_some_and(|wanted| wanted != node) {
            let what = format!(
                "it is the folder of member {node}, not of {}",
                newcomer.node
            );
            return Err(unusable(&config.folder, &what));
        }
        let machine = Machine::on(Shelf::Folder(config.folder.clone()))?;
        reaches(config, &machine, &found)?;
        let done = Arc::new(Done::default());
        let (asks, thread) = Writer::start(disk, done.clone()).map_err(|error| {
            let what = format!("no thread could be started: {error}");
            StoreError::Unavailable { what }
        })?;
        Ok(Self {
            log: Log::new(found, asks.clone(), done),
            machine,
            card: Arc::new(Card::new(node, cluster)),
            asks,
            thread,
        })
    }
}

/// Whether the log goes on where the snapshot ends.
fn reaches(config: &Config, machine: &Machine, found: &Found) -> Result<(), StoreError> {
    let applied = machine.state().applied.map(|id| id.index);
    let purged = found.purged.map(|id| id.index);
    if applied < purged {
        let path = config.folder.join("snapshot");
        return Err(damaged(&path, &"it ends before the log begins"));
    }
    Ok(())
}

/// Short enough to be typed, and never zero.
pub(crate) fn random_id() -> Result<u64, StoreError> {
    Ok(random_bits()? as u64 >> 32 | 1)
}

/// From the kernel, and never zero.
pub(crate) fn random_bits() -> Result<u128, StoreError> {
    let mut bits = [0; 16];
    getrandom::fill(&mut bits).map_err(|error| StoreError::Unavailable {
        what: error.to_string(),
    })?;
    Ok(u128::from_le_bytes(bits) | 1)
}

async fn begin(
    config: &Config,
    log: Log,
    machine: Machine,
    card: Arc<Card>,
) -> Result<Arc<Node>, StoreError> {
    let invalid = |what: String| StoreError::Invalid { what };
    let listener =
        match config.listen {
            Some(listen) => Some(TcpListener::bind(listen).await.map_err(|error| {
                invalid(format!("listening on {listen} is not possible: {error}"))
            })?),
            None => None,
        };
    let address = match (&config.advertise, &listener) {
        (Some(address), _) => address.clone(),
        (None, Some(listener)) => {
            let bound = listener.local_addr();
            bound
                .map_err(|error| invalid(error.to_string()))?
                .to_string()
        }
        (None, None) => String::new(),
    };
    let transport = Tcp::new(card.clone());
    let node = assemble(config, log, machine, card.clone(), transport, address).await?;
    if let Some(listener) = listener {
        let desk: Arc<dyn Answers> = Arc::new(Desk(node.clone()));
        tokio::spawn(tcp::serve(listener, card, desk));
    }
    Ok(node)
}

/// The parts of a member, put together and begun.
pub(crate) async fn assemble(
    config: &Config,
    log: Log,
    machine: Machine,
    card: Arc<Card>,
    transport: Arc<dyn Transport>,
    address: String,
) -> Result<Arc<Node>, StoreError> {
    let engine_config = config.engine().validate();
    let engine_config = engine_config.map_err(|error| unusable(&config.folder, &error))?;
    let engine = Raft::new(
        card.node,
        Arc::new(engine_config),
        Network(transport.clone()),
        log.clone(),
        machine.clone(),
    );
    let engine = engine
        .await
        .map_err(|error| unusable(&config.folder, &error))?;
    let (jobs, queue) = mpsc::channel(JOBS);
    let node = Arc::new(Node {
        engine,
        machine,
        log,
        card,
        clock: config.clock.clone(),
        transport,
        address,
        jobs,
        patience: config.patience,
        try_for: config.election_max(),
        reign: Mutex::default(),
    });
    tokio::spawn(node.clone().drive(queue));
    Ok(node)
}
