//! How two nodes of the demo see each other, without any store: each tells its name to whoever connects.
//!
//! Over a cut link no name comes through. Nobody can tell a cut link from a dead node; that is the point.

use std::{
    io::{self, BufReader},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use super::{PATIENCE, wire};

/// One node's view of the other.
pub(crate) struct Peer {
    name: String,
    cut: Arc<AtomicBool>,
    other: Option<u16>,
}

impl Peer {
    /// Alone, until [`Peer::meet`].
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            cut: Arc::default(),
            other: None,
        }
    }

    /// Opens a port on which the other node sees this one.
    pub(crate) fn show(&self) -> io::Result<u16> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let (name, cut) = (self.name.clone(), self.cut.clone());
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if !cut.load(Ordering::SeqCst) {
                    // Whoever does not take the name does not see us.
                    let _ = tell(stream, &name);
                }
            }
        });
        Ok(port)
    }

    /// The other node can be seen on this port.
    pub(crate) fn meet(&mut self, port: u16) {
        self.other = Some(port);
    }

    /// The link is cut, for both directions.
    pub(crate) fn cut(&self) {
        self.cut.store(true, Ordering::SeqCst);
    }

    /// The names of the nodes that can be seen from here, this one's included, in order.
    pub(crate) fn look(&self) -> Vec<String> {
        let mut names = vec![self.name.clone()];
        let reachable = self.other.filter(|_| !self.cut.load(Ordering::SeqCst));
        if let Some(name) = reachable.and_then(|port| name_at(port).ok().flatten()) {
            names.push(name);
        }
        names.sort();
        names
    }
}

fn tell(mut stream: TcpStream, name: &str) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE / 2))?;
    wire::send(&mut stream, &name)
}

fn name_at(port: u16) -> io::Result<Option<String>> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let stream = TcpStream::connect_timeout(&address, PATIENCE / 2)?;
    stream.set_read_timeout(Some(PATIENCE / 2))?;
    wire::receive(&mut BufReader::new(stream))
}
