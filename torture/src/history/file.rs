//! Histories on disk: JSON lines behind one header line.
//!
//! The one rule: what cannot be read is an error that names the line; only a last line cut short by a killed writer is
//! left out.

use std::io::{BufRead, Read, Write};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use super::{Event, History};

/// The version of the format that this library writes and reads.
const FORMAT: u32 = 1;

/// Longest line that is read, in bytes: a look at a list of ten thousand values fits.
pub const LINE_LIMIT: u64 = 4 << 20;

/// Most events that are read, so that a wrong file does not fill the memory.
pub const EVENT_LIMIT: usize = 10_000_000;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    history: u32,
    made_by: String,
}

/// Writes a history while it happens, each line with one `write` call, so that a killed process leaves at most its
/// last line torn.
#[derive(Debug)]
pub struct Writer<W: Write>(W);

impl<W: Write> Writer<W> {
    /// Starts a history with its header.
    pub fn new(out: W, made_by: &str) -> Result<Self> {
        let mut writer = Self(out);
        writer.line(&Header {
            history: FORMAT,
            made_by: made_by.into(),
        })?;
        Ok(writer)
    }

    /// Appends one event.
    pub fn write(&mut self, event: &Event) -> Result<()> {
        self.line(event)
    }

    fn line<T: Serialize>(&mut self, value: &T) -> Result<()> {
        let mut line = serde_json::to_vec(value)?;
        line.push(b'\n');
        self.0.write_all(&line)?;
        Ok(())
    }
}

impl History {
    /// Writes the whole history. The same history gives the same bytes.
    pub fn write(&self, out: impl Write) -> Result<()> {
        let mut out = std::io::BufWriter::new(out);
        let mut writer = Writer::new(&mut out, &self.made_by)?;
        for event in &self.events {
            writer.write(event)?;
        }
        out.flush()?;
        Ok(())
    }

    /// Reads a history back.
    ///
    /// # Errors
    /// A missing or foreign header, a line that is no event, is longer than [`LINE_LIMIT`] or comes after
    /// [`EVENT_LIMIT`] events. The message names the line.
    pub fn read(mut input: impl BufRead) -> Result<History> {
        let header = read_line(&mut input).context("line 1")?;
        let header: Header = serde_json::from_slice(&header).context(
            r#"line 1: not a history: it has to begin with {"history":1,"made_by":"..."}"#,
        )?;
        ensure!(
            header.history == FORMAT,
            "line 1: format {} is not known, only {FORMAT} is: use the version that wrote it",
            header.history
        );
        let mut history = History::new(header.made_by);
        for number in 2.. {
            let line = read_line(&mut input).with_context(|| format!("line {number}"))?;
            if line.is_empty() {
                break;
            }
            match serde_json::from_slice(&line) {
                Ok(event) => history.events.push(event),
                Err(_) if line.last() != Some(&b'\n') => break,
                Err(e) => return Err(e).with_context(|| format!("line {number}: not an event")),
            }
            ensure!(
                history.events.len() <= EVENT_LIMIT,
                "more than {EVENT_LIMIT} events"
            );
        }
        Ok(history)
    }
}

fn read_line(input: &mut impl BufRead) -> Result<Vec<u8>> {
    let mut line = Vec::new();
    input
        .by_ref()
        .take(LINE_LIMIT)
        .read_until(b'\n', &mut line)?;
    if line.len() as u64 == LINE_LIMIT && line.last() != Some(&b'\n') {
        bail!("longer than {LINE_LIMIT} bytes");
    }
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::super::*;

    fn sample() -> History {
        let mut h = History::new("torture sim --seed 7");
        let ttl = 10_000_000_000;
        let acquire = Call::Acquire {
            request: "r1".into(),
            ttl,
        };
        let id = h.invoke(1, "a", "orders", "s1", acquire);
        h.answer(
            5,
            "a",
            id,
            Outcome::Granted {
                token: u64::MAX,
                ttl,
            },
        );
        h.invoke(
            6,
            "a",
            "orders",
            "s1",
            Call::Release {
                token: None,
                request: Some("r1".into()),
            },
        );
        h.invoke(6, "b", "orders", "s2", Call::Read);
        let tenure = |step| What::Tenure {
            lease: "orders".into(),
            token: 1,
            step,
        };
        h.push(7, "a", tenure(Step::Deadline { deadline: 9 }));
        h.push(7, "a", tenure(Step::ChildDead { child: "77".into() }));
        h.push(7, "a", What::Died);
        h.push(
            8,
            "db",
            What::Effect(Effect {
                resource: "t".into(),
                ..Effect::default()
            }),
        );
        h.push(
            8,
            "db",
            What::Look(Look {
                saw: Some(vec!["x".into()]),
                ..Look::default()
            }),
        );
        h.push(
            8,
            "db",
            What::Raise(Raise {
                position: Some(3),
                ..Raise::default()
            }),
        );
        let step = Change::ClockStep { by: -5 };
        h.push(
            9,
            "db",
            What::Store {
                lease: None,
                change: step,
            },
        );
        let kind = "freeze".to_string();
        h.push(
            9,
            "db",
            What::Fault {
                kind,
                victim: None,
                until: Some(11),
                exceeds: true,
            },
        );
        h
    }

    fn bytes(history: &History) -> Vec<u8> {
        let mut out = Vec::new();
        history.write(&mut out).unwrap();
        out
    }

    #[test]
    fn a_history_comes_back_as_it_was_written() {
        let written = bytes(&sample());
        assert_eq!(History::read(&written[..]).unwrap(), sample());
    }

    #[test]
    fn a_line_torn_by_a_kill_is_left_out_and_a_broken_one_is_named() {
        let written = bytes(&sample());
        let torn = History::read(&written[..written.len() - 9]).unwrap();
        assert_eq!(
            torn.events[..],
            sample().events[..sample().events.len() - 1]
        );

        let broken = String::from_utf8(written)
            .unwrap()
            .replacen("granted", "grunted", 1);
        let error = format!("{:#}", History::read(broken.as_bytes()).unwrap_err());
        assert!(error.starts_with("line 3: not an event"), "{error}");
    }

    #[test]
    fn what_is_no_history_is_refused() {
        for (text, expected) in [
            ("", "line 1: not a history"),
            (
                "{\"history\":2,\"made_by\":\"\"}\n",
                "line 1: format 2 is not known",
            ),
            ("[]\n", "line 1: not a history"),
        ] {
            let error = format!("{:#}", History::read(text.as_bytes()).unwrap_err());
            assert!(error.starts_with(expected), "{error}");
        }
        let long = vec![b'x'; LINE_LIMIT as usize + 1];
        let error = format!("{:#}", History::read(&long[..]).unwrap_err());
        assert!(error.contains("longer than"), "{error}");
    }

    #[test]
    fn calls_are_paired_with_their_answers() {
        let history = sample();
        let (ops, problems) = history.ops();
        assert_eq!(problems, Vec::<String>::new());
        assert_eq!(ops.len(), 3);
        assert_eq!(ops[0].returned, Some(Stamp { time: 5, seq: 1 }));
        assert_eq!(ops[1].outcome, &Outcome::Unknown);
        assert_eq!(ops[1].returned, None);
    }

    #[test]
    fn a_broken_history_says_what_is_wrong_with_it() {
        let mut h = History::default();
        let id = h.invoke(5, "a", "orders", "s1", Call::Read);
        h.answer(6, "a", id, Outcome::Lost);
        h.answer(6, "a", 9, Outcome::Failed);
        h.answer(6, "a", id, Outcome::Failed);
        h.answer(4, "a", id, Outcome::Failed);
        let (_, problems) = h.ops();
        let expected = [
            "event 1: answer to id 0: Lost does not answer Read",
            "event 2: answer to id 9: there is no such call of this process",
            "event 4: time 4 comes after 6",
            "event 4: answer to id 0: it was answered before",
        ];
        assert_eq!(problems, expected);
    }

    #[test]
    fn at_equal_times_a_merge_leaves_open_who_was_first() {
        let mut a = History::new("run");
        let id = a.invoke(1, "a", "orders", "s1", Call::Read);
        a.answer(3, "a", id, Outcome::Failed);
        let mut b = History::new("run");
        let id = b.invoke(3, "b", "orders", "s2", Call::Read);
        b.answer(4, "b", id, Outcome::Failed);
        let whole = History::merge([a, b]);
        let order: Vec<_> = whole
            .events
            .iter()
            .map(|e| (e.time, e.process.as_str()))
            .collect();
        assert_eq!(order, [(1, "a"), (3, "b"), (3, "a"), (4, "b")]);
        assert_eq!(whole.made_by, "run");
    }
}
