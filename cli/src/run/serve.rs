//! Answers `leasehold check` inside the job, over a socket that only this user can reach. It tells and does nothing
//! else: no renewal, no release (H9).

use std::{io, os::unix::ffi::OsStrExt, path::PathBuf, time::Duration};

use leasehold::{Guard, NotHeld};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{UnixListener, UnixStream},
};

use crate::socket::{LONGEST_LINE, Question, Reply};

/// One who connects and says nothing does not keep the others waiting for long.
const PATIENCE: Duration = Duration::from_millis(500);
/// The longest path of a socket that every Unix takes, in bytes.
const LONGEST_PATH: usize = 100;

/// The socket of one tenure; gone with it.
pub(super) struct Server {
    listener: UnixListener,
    folder: TempDir,
}

impl Server {
    pub(super) fn start() -> io::Result<Self> {
        // The runtime folder is the user's alone and is emptied by the system; not every job has one.
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let made = runtime
            .filter(|folder| folder.is_absolute())
            .map(|folder| Self::folder_in(&folder));
        let folder = match made {
            Some(Ok(folder)) if folder.path().as_os_str().as_bytes().len() < LONGEST_PATH - 8 => {
                folder
            }
            _ => Self::folder_in(std::path::Path::new("/tmp"))?,
        };
        Ok(Self {
            listener: UnixListener::bind(folder.path().join("socket"))?,
            folder,
        })
    }

    fn folder_in(parent: &std::path::Path) -> io::Result<TempDir> {
        tempfile::Builder::new()
            .prefix("leasehold-")
            .tempdir_in(parent)
    }

    pub(super) fn path(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    /// Answers one question. Cancel-safe as far as it matters: whoever gets no answer takes the lease for lost.
    pub(super) async fn answer(&self, guard: &Guard) {
        match self.listener.accept().await {
            Ok((stream, _)) => {
                let _ = tokio::time::timeout(PATIENCE, converse(stream, guard)).await;
            }
            Err(_) => tokio::time::sleep(PATIENCE).await,
        }
    }
}

async fn converse(mut stream: UnixStream, guard: &Guard) -> io::Result<()> {
    let (reader, mut writer) = stream.split();
    let mut line = String::new();
    BufReader::new(reader.take(LONGEST_LINE))
        .read_line(&mut line)
        .await?;
    let reply = match line.trim_end_matches('\n').parse() {
        Ok(question) => reply(&question, guard),
        Err(()) => Reply::Lost("the question is not understood".to_owned()),
    };
    writer.write_all(format!("{reply}\n").as_bytes()).await
}

fn reply(question: &Question, guard: &Guard) -> Reply {
    if question.name != *guard.lease() || question.token != guard.token() {
        let held = format!(
            "this job holds {} with token {}",
            guard.lease(),
            guard.token()
        );
        return Reply::Lost(held);
    }
    match guard.check_for(question.needed) {
        Ok(()) => Reply::Good(guard.remaining()),
        Err(NotHeld::TooShort { left, .. }) => Reply::Short(left),
        Err(error) => Reply::Lost(error.to_string()),
    }
}
