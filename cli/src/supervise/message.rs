//! What supervisor and guard say to each other, over a pair of Unix sockets that keep message borders.
//!
//! The one rule: nobody ever waits for the other. A full or closed channel is an answer at once, since either end may
//! be stopped or dead at any moment.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use leasehold::BootTime;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketFlags, SocketType, recvmsg, sendmsg, shutdown,
    socketpair,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{Deadline, Exit, Reason};

/// Every message is far shorter; a list of survivors is cut by `tree::survivors`.
const LONGEST: usize = 4096;

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ToGuard {
    /// Start the child. The message carries the child's standard input.
    Start(Deadline),
    Extend(Deadline),
    Stop {
        reason: Reason,
        kill_at: BootTime,
    },
    /// Pass a signal on to the child's group.
    Signal(i32),
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum FromGuard {
    Started {
        pid: i32,
    },
    /// The child was not started; nothing of it is left.
    Failed {
        error: String,
    },
    Ended(Exit),
}

pub(super) enum Received<T> {
    Message(T, Option<OwnedFd>),
    Nothing,
    /// The other end is gone, or speaks nonsense.
    Closed,
}

pub(super) struct Channel(OwnedFd);

impl Channel {
    /// Our end, and the other's, to be passed on as its standard input.
    pub(super) fn pair() -> io::Result<(Channel, OwnedFd)> {
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        Ok((Channel(ours), theirs))
    }

    pub(super) fn new(socket: OwnedFd) -> Channel {
        Channel(socket)
    }

    pub(super) fn send(
        &self,
        message: &impl Serialize,
        fd: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let text = serde_json::to_vec(message)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds: Vec<BorrowedFd<'_>> = fd.into_iter().collect();
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&fds)) {
            return Err(io::Error::other("no room for a file descriptor"));
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        sendmsg(&self.0, &[IoSlice::new(&text)], &mut control, flags)?;
        Ok(())
    }

    pub(super) fn receive<T: DeserializeOwned>(&self) -> Received<T> {
        let mut text = [0_u8; LONGEST];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let mut receive = || {
            recvmsg(
                &self.0,
                &mut [IoSliceMut::new(&mut text)],
                &mut control,
                flags,
            )
        };
        // An end that closed with messages of ours unread shows as an error once, before its last words.
        let size = match receive().or_else(|error| match error {
            Errno::CONNRESET => receive(),
            other => Err(other),
        }) {
            Ok(got) => got.bytes,
            Err(Errno::AGAIN | Errno::INTR) => return Received::Nothing,
            Err(_) => return Received::Closed,
        };
        let fd = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        });
        match serde_json::from_slice(&text[..size.min(LONGEST)]) {
            Ok(message) => Received::Message(message, fd),
            Err(_) => Received::Closed,
        }
    }

    /// Says "no more from me"; the other end sees `Closed` after what was sent before.
    pub(super) fn close(&self) {
        // Fails only if the other end is gone already.
        let _ = shutdown(&self.0, Shutdown::Write);
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_words_of_an_end_that_left_unread_messages_are_heard() {
        let (ours, theirs) = Channel::pair().expect("a pair");
        let theirs = Channel::new(theirs);
        ours.send(&ToGuard::Signal(1), None).expect("room");
        theirs
            .send(&FromGuard::Started { pid: 7 }, None)
            .expect("room");
        drop(theirs);
        let heard = ours.receive::<FromGuard>();
        assert!(matches!(
            heard,
            Received::Message(FromGuard::Started { pid: 7 }, None)
        ));
        assert!(matches!(ours.receive::<FromGuard>(), Received::Closed));
    }

    #[test]
    fn a_full_channel_is_an_error_at_once_and_nonsense_is_an_end() {
        let (ours, theirs) = Channel::pair().expect("a pair");
        while ours.send(&"nonsense", None).is_ok() {}
        assert!(matches!(
            Channel::new(theirs).receive::<ToGuard>(),
            Received::Closed
        ));
    }

    #[test]
    fn an_empty_channel_is_no_end() {
        let (ours, _theirs) = Channel::pair().expect("a pair");
        assert!(matches!(ours.receive::<FromGuard>(), Received::Nothing));
    }
}
