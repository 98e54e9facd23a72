//! The signals that ask a process to end. Whoever waits for something waits for this too, and cleans up.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::Failure;

/// Completes with its number when a signal asks us to end.
pub(crate) struct Stop {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Stop {
    /// From now on the signals end nothing by themselves.
    pub(crate) fn new() -> Result<Self, Failure> {
        let listen = |kind| {
            signal(kind).map_err(|error| Failure::failed(format!("cannot catch signals: {error}")))
        };
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    /// The number of the next one. Cancel-safe.
    pub(crate) async fn asked(&mut self) -> u8 {
        let kind = tokio::select! {
            _ = self.interrupt.recv() => SignalKind::interrupt(),
            _ = self.terminate.recv() => SignalKind::terminate(),
            _ = self.hangup.recv() => SignalKind::hangup(),
        };
        u8::try_from(kind.as_raw_value()).unwrap_or(0)
    }
}
