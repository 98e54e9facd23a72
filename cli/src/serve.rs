//! `serve`: the store for every language, over HTTP. A signal drains it.
//!
//! Without credentials it is for the programs of one machine: any other address is refused unless the user insists.

use std::{
    fs, net::SocketAddr, num::NonZeroUsize, os::unix::fs::MetadataExt, path::PathBuf,
    thread::available_parallelism,
};

use leasehold::store::SharedStore;
use leasehold_server::{Config, Credentials};
use tokio::{
    net::{TcpListener, TcpSocket},
    runtime::{Builder, Runtime},
    sync::oneshot,
};

use crate::{
    app::App,
    exit::{Exit, Failure},
    out,
    stop::Stop,
    view::Serving,
};

/// A file of credentials has no more bytes.
const LARGEST: u64 = 16 * 1024 * 1024;
/// Connections that are not yet accepted.
const BACKLOG: u32 = 1024;

/// See the module.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Serves the store of --store on this machine to whoever reaches the address, or with --credentials to
those whom the file names.
SIGTERM or Ctrl-C ends it: waiters are answered, and what is under way ends first.

Examples:
  leasehold serve
  leasehold serve --listen 127.0.0.1:0 --json   # a free port
  leasehold --store sqlite:/var/lib/leases.db serve
  leasehold --store http://127.0.0.1:4850 run nightly -- ./report.sh
  curl http://127.0.0.1:4850/v1/leases")]
pub(crate) struct Serve {
    /// Where to listen; port 0 is a free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:4850")]
    listen: SocketAddr,
    /// Listen on an address that others reach, though nothing is encrypted
    #[arg(long)]
    insecure: bool,
    /// A name under which browsers may reach it, beside addresses and localhost; may be given several times
    #[arg(long, value_name = "NAME")]
    host: Vec<String>,
    /// Ask who calls, and let each do what this file says; see `leasehold token create`
    #[arg(long, value_name = "FILE")]
    credentials: Option<PathBuf>,
}

impl Serve {
    pub(crate) async fn run(self, app: &App) -> Result<Exit, Failure> {
        self.check(app)?;
        let mut stop = Stop::new()?;
        let store = app.open().await?;
        raise_file_limit();
        // All cores, and a thread of its own for each: the other commands need one.
        let threads = available_parallelism().map_or(1, NonZeroUsize::get).max(2);
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads)
            .enable_all()
            .build()
            .map_err(|error| Failure::failed(format!("the runtime does not start: {error}")))?;
        let end = self.serve(app, store, &runtime, &mut stop).await;
        // Dropping it here would panic.
        runtime.shutdown_background();
        end
    }

    async fn serve(
        &self,
        app: &App,
        store: SharedStore,
        runtime: &Runtime,
        stop: &mut Stop,
    ) -> Result<Exit, Failure> {
        let credentials = self.callers()?;
        let listener = {
            let _inside = runtime.enter();
            self.listen()?
        };
        let at = listener.local_addr().map_err(|error| self.cannot(&error))?;
        announce(app, at, self.credentials.is_some())?;
        let config = Config {
            hosts: self.host.clone(),
            credentials,
            ..Config::default()
        };
        let (told, asked) = oneshot::channel::<()>();
        let mut serving = runtime.spawn(leasehold_server::run(listener, store, config, async {
            // Also if whoever tells it is gone.
            let _ = asked.await;
        }));
        let end = tokio::select! {
            end = &mut serving => end,
            _ = stop.asked() => {
                let _ = told.send(());
                serving.await
            }
        };
        match end {
            Ok(Ok(())) => Ok(Exit::DONE),
            Ok(Err(error)) => Err(Failure::failed(format!("the server ended: {error}"))),
            Err(error) => Err(Failure::failed(format!("the server broke: {error}"))),
        }
    }

    fn check(&self, app: &App) -> Result<(), Failure> {
        let at = self.listen;
        if !at.ip().is_loopback() && !self.insecure {
            return Err(Failure::usage(format!(
                "--listen {at} is not allowed: others reach it and nothing is encrypted; listen on 127.0.0.1 behind a \
                 proxy that does, or say --insecure"
            )));
        }
        match app.url()?.split(':').next() {
            Some("http" | "https") => Err(Failure::usage(
                "--store of another server is not allowed: serve a store itself, such as sqlite:PATH",
            )),
            _ => Ok(()),
        }
    }

    /// Whoever can write the file can do everything, so nobody else may.
    fn callers(&self) -> Result<Option<Credentials>, Failure> {
        let Some(file) = &self.credentials else {
            return Ok(None);
        };
        let wrong =
            |what: String| Failure::usage(format!("--credentials {}: {what}", file.display()));
        let meta = fs::metadata(file).map_err(|error| wrong(error.to_string()))?;
        if !meta.is_file() || meta.len() > LARGEST {
            return Err(wrong(format!(
                "it is not a file of at most {LARGEST} bytes"
            )));
        }
        if meta.mode() & 0o022 != 0 {
            return Err(wrong("others may write it: chmod go-w it".to_owned()));
        }
        let text = fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
        Credentials::parse(&text).map(Some).map_err(wrong)
    }

    /// On the runtime that it is called in.
    fn listen(&self) -> Result<TcpListener, Failure> {
        let listen = || {
            let socket = match self.listen {
                SocketAddr::V4(_) => TcpSocket::new_v4()?,
                SocketAddr::V6(_) => TcpSocket::new_v6()?,
            };
            // A server that was killed comes back at once.
            socket.set_reuseaddr(true)?;
            socket.bind(self.listen)?;
            socket.listen(BACKLOG)
        };
        listen().map_err(|error| self.cannot(&error))
    }

    fn cannot(&self, error: &std::io::Error) -> Failure {
        Failure::failed(format!("cannot listen on {}: {error}", self.listen))
    }
}

/// Says where it is, once it can be reached.
fn announce(app: &App, at: SocketAddr, asks: bool) -> Result<(), Failure> {
    let store = app.place()?;
    if app.json {
        return out::json(&Serving {
            url: format!("http://{at}"),
            store: &store,
        });
    }
    let open = match at.ip().is_loopback() || asks {
        true => "",
        false => "; whoever reaches it may do everything",
    };
    out::note(&format!("serving {store} on http://{at}{open}"));
    Ok(())
}

/// Each connection is a file: as many as this user may have.
fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // With fewer, fewer connect.
    let _ = setrlimit(Resource::Nofile, limit);
}
