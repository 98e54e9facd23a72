//! One process of the demo, seen from the driver: started, told and heard over its standard input and output, frozen.
//!
//! It never outlives the driver, and no answer is waited for without a limit.

use std::{ffi::OsString, fs, process::Stdio};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::{Duration, sleep, timeout},
};

use super::{
    PATIENCE,
    wire::{self, Ask, Reply},
};

/// Who a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The demo's own store.
    Db,
    /// A node.
    Node,
}

/// A running process of the demo.
pub(crate) struct Actor {
    name: &'static str,
    pid: Pid,
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    frozen: bool,
}

impl Actor {
    /// Starts this same program again, under another name. The calling thread must be the one that ends last: the
    /// kernel kills the child when it ends (H7).
    pub(crate) fn start(role: Role, name: &'static str) -> anyhow::Result<Self> {
        let stage: OsString = match role {
            Role::Db => super::DB.into(),
            Role::Node => super::NODE.into(),
        };
        let driver = rustix::process::getpid().as_raw_nonzero().to_string();
        // Not by its path: the file may have been replaced by an update meanwhile.
        let mut child = Command::new("/proc/self/exe")
            .arg0(name)
            .args([stage, name.into(), driver.into()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // A group of its own: Ctrl-C is for the driver, who ends the others in order.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        let pid = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        Ok(Self {
            name,
            pid: pid.context("a process without an id")?,
            input: child.stdin.take(),
            output: BufReader::new(child.stdout.take().context("a process without output")?),
            child,
            frozen: false,
        })
    }

    /// Its name, as `ps` shows it.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Tells and hears.
    pub(crate) async fn ask(&mut self, ask: Ask) -> anyhow::Result<Reply> {
        self.tell(ask).await?;
        self.hear().await
    }

    /// Tells it to do something that has no answer but "done".
    pub(crate) async fn do_it(&mut self, ask: Ask) -> anyhow::Result<()> {
        match self.ask(ask).await? {
            Reply::Done => Ok(()),
            other => bail!("{} was to do something, and told {other:?}", self.name),
        }
    }

    /// Puts a line into its standard input, read or not.
    pub(crate) async fn tell(&mut self, ask: Ask) -> anyhow::Result<()> {
        let input = self
            .input
            .as_mut()
            .context("its standard input is closed")?;
        let written = timeout(PATIENCE, input.write_all(&wire::line(&ask)?)).await;
        match written {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(self.gone().await),
            Err(_) => Err(self.hangs()),
        }
    }

    /// Waits for one line of its standard output.
    pub(crate) async fn hear(&mut self) -> anyhow::Result<Reply> {
        let mut line = Vec::new();
        let mut limited = (&mut self.output).take(wire::MAX_LINE);
        match timeout(PATIENCE, limited.read_until(b'\n', &mut line)).await {
            Err(_) => Err(self.hangs()),
            Ok(Ok(0) | Err(_)) => Err(self.gone().await),
            Ok(Ok(_)) => {
                let reply = wire::complete(&line).and_then(|()| wire::parse(&line));
                match reply.with_context(|| format!("cannot understand {}", self.name))? {
                    Reply::Failed(why) => bail!("{} failed: {why}", self.name),
                    reply => Ok(reply),
                }
            }
        }
    }

    /// Stops it where it stands, and returns when the kernel says that it stands.
    pub(crate) async fn freeze(&mut self) -> anyhow::Result<()> {
        kill_process(self.pid, Signal::STOP)
            .with_context(|| format!("cannot freeze {}", self.name))?;
        self.frozen = true;
        let stands = async {
            while !self.is_stopped()? {
                sleep(Duration::from_millis(1)).await;
            }
            Ok(())
        };
        match timeout(PATIENCE, stands).await {
            Ok(result) => result,
            Err(_) => bail!("{} does not stop although it was told to", self.name),
        }
    }

    /// Lets it go on.
    pub(crate) fn thaw(&mut self) -> anyhow::Result<()> {
        if !self.is_stopped()? {
            bail!("{} was to be frozen, but somebody let it go on", self.name);
        }
        kill_process(self.pid, Signal::CONT)
            .with_context(|| format!("cannot let {} go on", self.name))?;
        self.frozen = false;
        Ok(())
    }

    /// The state letter of `/proc/PID/stat`: it follows the name, which may contain anything but is in parentheses.
    fn is_stopped(&self) -> anyhow::Result<bool> {
        let path = format!("/proc/{}/stat", self.pid());
        let stat = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        let state = stat.rsplit_once(')').map(|(_, rest)| rest.trim_start());
        match state.and_then(|rest| rest.chars().next()) {
            Some('T') => Ok(true),
            Some('Z' | 'X') => bail!("{} ended while it was to be frozen", self.name),
            _ => Ok(false),
        }
    }

    /// Ends it: by the end of its input if it can notice that, otherwise by force.
    pub(crate) async fn end(mut self) {
        drop(self.input.take());
        let by_itself = Duration::from_secs(2);
        if self.frozen || timeout(by_itself, self.child.wait()).await.is_err() {
            // It can only fail if the process is gone already.
            let _ = self.child.kill().await;
        }
    }

    async fn gone(&mut self) -> anyhow::Error {
        let name = self.name;
        match timeout(PATIENCE, self.child.wait()).await {
            Ok(Ok(status)) => anyhow::anyhow!("{name} ended in the middle of the demo ({status})"),
            _ => anyhow::anyhow!("{name} closed its output in the middle of the demo"),
        }
    }

    fn hangs(&self) -> anyhow::Error {
        let seconds = PATIENCE.as_secs();
        anyhow::anyhow!("{} did not answer within {seconds} s", self.name)
    }
}
