//! Signals that reach the supervisor, and the death of its parent.
//!
//! The one rule: what was ignored when we were started (`nohup`, a background job of a script) stays ignored, for us and
//! for the child.

use std::fs;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::Poll;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{PidfdFlags, Signal, getppid, pidfd_open};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// What a supervisor passes on to its job. TTIN and TTOU are the guard's business, CHLD nobody's.
const FORWARDED: [Signal; 9] = [
    Signal::INT,
    Signal::TERM,
    Signal::HUP,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
    Signal::WINCH,
    Signal::CONT,
    Signal::TSTP,
];

/// Listens for the signals of `FORWARDED`; the caller decides what each does, mostly `Supervised::signal`.
pub(crate) struct Signals(Vec<(Signal, tokio::signal::unix::Signal)>);

impl Signals {
    /// From here on these signals do not act on this process any more. Needs a tokio runtime.
    pub(crate) fn listen() -> io::Result<Signals> {
        let ignored = ignored();
        let heard = FORWARDED
            .into_iter()
            .filter(|signal| !is_in(ignored, signal.as_raw()));
        let listen = |sig: Signal| Ok((sig, signal(SignalKind::from_raw(sig.as_raw()))?));
        heard.map(listen).collect::<io::Result<_>>().map(Signals)
    }

    /// The next signal. Dropping the future loses none.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            let came = |(name, stream): &mut (Signal, tokio::signal::unix::Signal)| {
                stream.poll_recv(context).is_ready().then_some(*name)
            };
            self.0
                .iter_mut()
                .find_map(came)
                .map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

/// The parent of this process, watched by pidfd (FB-85); it is not fooled by the end of a thread as PDEATHSIG is (H7).
pub(crate) struct Parent(watch::Receiver<bool>);

impl Parent {
    /// Call it first thing: a parent that died before is not noticed. A parent outside our pid namespace (`docker exec`)
    /// cannot be watched; then `died` never comes.
    pub(crate) fn watch() -> io::Result<Parent> {
        let (dead, parent) = watch::channel(false);
        let Some(pid) = getppid() else {
            return Ok(Parent(parent));
        };
        let pidfd = pidfd_open(pid, PidfdFlags::empty());
        if getppid() != Some(pid) {
            // Somebody else is our parent by now.
            return Ok(Parent(watch::channel(true).1));
        }
        let pidfd = pidfd?;
        std::thread::Builder::new()
            .name("parent".to_owned())
            .spawn(move || {
                let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
                while !matches!(poll(&mut fds, None), Ok(1..)) {}
                dead.send_replace(true);
            })?;
        Ok(Parent(parent))
    }

    /// Resolves when the parent has died, and again at every later call.
    pub(crate) async fn died(&self) {
        let mut parent = self.0.clone();
        if parent.wait_for(|dead| *dead).await.is_err() {
            // Nobody watches it.
            std::future::pending().await
        }
    }
}

/// Whether whoever started us wants us to outlive it: `nohup`.
pub(crate) fn hangups_are_ignored() -> bool {
    is_in(ignored(), Signal::HUP.as_raw())
}

/// Makes this process deaf to the signals that end a process politely: it is the supervisor who is meant. Unlike an
/// ignored signal, this is undone in the programs we start.
pub(super) fn shrug_off() -> io::Result<()> {
    let ignored = ignored();
    let heard = Arc::new(AtomicBool::new(false));
    for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT] {
        if !is_in(ignored, signal.as_raw()) {
            signal_hook::flag::register(signal.as_raw(), Arc::clone(&heard))?;
        }
    }
    Ok(())
}

/// The mask of ignored signals of this process; nothing if /proc does not say.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}

fn is_in(mask: u64, signal: i32) -> bool {
    (1..=64).contains(&signal) && mask & (1 << (signal - 1)) != 0
}
