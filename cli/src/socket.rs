//! What `check` and the supervisor of `run` say to each other over the socket LEASEHOLD_SOCKET. One line each way:
//!
//! ```text
//! check TOKEN MILLIS NAME      is TOKEN of NAME good for MILLIS more?
//! ok REMAINING_MS              yes, and for how long
//! short REMAINING_MS           it is held, but for less than that
//! lost REASON                  no
//! ```
//! It answers this and nothing else: whoever can connect can neither renew nor release.

use std::{
    fmt,
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    str::FromStr,
    time::Duration,
};

use leasehold::{LeaseName, Token};

/// The longest line that either side reads, in bytes.
pub(crate) const LONGEST_LINE: u64 = 1024;
/// A supervisor that does not answer in this time is frozen, and a frozen one keeps nothing alive.
const PATIENCE: Duration = Duration::from_secs(2);

/// The question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) name: LeaseName,
    pub(crate) token: Token,
    pub(crate) needed: Duration,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Good(Duration),
    Short(Duration),
    Lost(String),
}

/// Asks the supervisor. Every error means that the lease must be taken for lost.
pub(crate) fn ask(socket: &Path, question: &Question) -> io::Result<Reply> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(format!("{question}\n").as_bytes())?;
    let mut line = String::new();
    BufReader::new(stream.take(LONGEST_LINE)).read_line(&mut line)?;
    let complete = line
        .strip_suffix('\n')
        .ok_or(io::ErrorKind::UnexpectedEof)?;
    complete
        .parse()
        .map_err(|()| io::ErrorKind::InvalidData.into())
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Rounded up: what is asked for is not cut short.
        let millis = self.needed.as_nanos().div_ceil(1_000_000);
        write!(f, "check {} {millis} {}", self.token, self.name)
    }
}

impl FromStr for Question {
    type Err = ();

    fn from_str(line: &str) -> Result<Self, ()> {
        let rest = line.strip_prefix("check ").ok_or(())?;
        let mut words = rest.splitn(3, ' ');
        let mut word = || words.next().ok_or(());
        Ok(Self {
            token: word()?.parse().map_err(drop)?,
            needed: Duration::from_millis(word()?.parse().map_err(drop)?),
            name: LeaseName::new(word()?).map_err(drop)?,
        })
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reply::Good(left) => write!(f, "ok {}", left.as_millis()),
            Reply::Short(left) => write!(f, "short {}", left.as_millis()),
            Reply::Lost(why) => write!(f, "lost {}", crate::parse::printable(why, 500)),
        }
    }
}

impl FromStr for Reply {
    type Err = ();

    fn from_str(line: &str) -> Result<Self, ()> {
        let left = |text: &str| text.parse().map(Duration::from_millis).map_err(drop);
        match line.split_once(' ') {
            Some(("ok", millis)) => left(millis).map(Reply::Good),
            Some(("short", millis)) => left(millis).map(Reply::Short),
            Some(("lost", why)) => Ok(Reply::Lost(crate::parse::printable(why, 500))),
            _ => Err(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_side_writes_the_other_reads() {
        let question = Question {
            name: LeaseName::new("a b").unwrap(),
            token: Token::FIRST,
            needed: Duration::from_micros(1_500),
        };
        assert_eq!(question.to_string(), "check 1 2 a b");
        let read: Question = question.to_string().parse().unwrap();
        assert_eq!(
            (read.name, read.needed),
            (question.name, Duration::from_millis(2))
        );
        for reply in [
            Reply::Good(Duration::from_millis(7)),
            Reply::Short(Duration::ZERO),
            Reply::Lost("token 1 expired".to_owned()),
        ] {
            assert_eq!(reply.to_string().parse(), Ok(reply));
        }
    }

    #[test]
    fn nothing_else_is_understood() {
        for bad in [
            "",
            "check",
            "check 0 1 a",
            "check 1 -1 a",
            "check 1 1 ",
            "renew 1 1 a",
            "check 1 1 a\tb",
        ] {
            assert_eq!(bad.parse::<Question>(), Err(()), "{bad}");
        }
        for bad in ["", "ok", "ok x", "ok -1", "yes 1"] {
            assert_eq!(bad.parse::<Reply>(), Err(()), "{bad}");
        }
    }
}
