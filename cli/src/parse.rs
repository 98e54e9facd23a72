//! Texts from the command line become values here. Each error names the value, what is allowed, and fits one line.

use std::{ffi::OsStr, time::Duration};

use clap::{Arg, Command, builder::TypedValueParser, error::ErrorKind};
use jiff::fmt::friendly::SpanParser;
use leasehold::{Holder, Info, Invalid, Key, LeaseName, LockDelay, Session, Token, Ttl, WorkKey};

use crate::exit::Failure;

/// Nothing here waits or looks ahead longer.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// A key, so no error repeats it.
const SESSION: &str = "session";

/// A kind of value: what it is called, and how its text is read.
#[derive(Clone)]
pub(crate) struct Kind<T> {
    what: &'static str,
    read: fn(&str) -> Result<T, Invalid>,
}

impl<T: Clone + Send + Sync + 'static> TypedValueParser for Kind<T> {
    type Value = T;

    fn parse_ref(
        &self,
        command: &Command,
        _: Option<&Arg>,
        value: &OsStr,
    ) -> Result<T, clap::Error> {
        self.value(value)
            .map_err(|bad| clap::Error::raw(ErrorKind::ValueValidation, bad).with_cmd(command))
    }
}

impl<T> Kind<T> {
    fn value(&self, text: &OsStr) -> Result<T, Invalid> {
        let not_utf8 = || match self.what {
            SESSION => Invalid::new(SESSION, "…", "it must be text in UTF-8"),
            what => Invalid::new(what, text.display(), "it must be text in UTF-8"),
        };
        text.to_str().ok_or_else(not_utf8).and_then(self.read)
    }
}

/// Reads the value of an environment variable; the error names it.
pub(crate) fn env<T>(name: &str, text: &OsStr, kind: &Kind<T>) -> Result<T, Failure> {
    kind.value(text)
        .map_err(|bad| Failure::usage(format!("{name}: {bad}")))
}

pub(crate) fn lease_name() -> Kind<LeaseName> {
    kind("lease name", LeaseName::new)
}

/// What a lease name begins with; also nothing.
pub(crate) fn prefix() -> Kind<String> {
    kind("prefix", |text| match text {
        "" => Ok(String::new()),
        text if LeaseName::new(text.trim_end()).is_ok() => Ok(text.to_owned()),
        text => Err(Invalid::new(
            "prefix",
            text,
            "the first letters of a lease name, at most 200 bytes",
        )),
    })
}

pub(crate) fn holder() -> Kind<Holder> {
    kind("holder", Holder::new)
}

pub(crate) fn info() -> Kind<Info> {
    kind("info", Info::new)
}

pub(crate) fn key() -> Kind<Key> {
    kind("key", Key::new)
}

pub(crate) fn work_key() -> Kind<WorkKey> {
    kind("ledger key", WorkKey::new)
}

pub(crate) fn token() -> Kind<Token> {
    kind("token", str::parse)
}

pub(crate) fn session() -> Kind<Session> {
    kind(SESSION, str::parse)
}

pub(crate) fn ttl() -> Kind<Ttl> {
    kind("ttl", |text| {
        let fits = time(text).and_then(|time| Ttl::new(time).ok());
        fits.ok_or_else(|| {
            Invalid::new("ttl", text, "from 500ms to 24h, written like 15s or 1h30m")
        })
    })
}

pub(crate) fn lock_delay() -> Kind<LockDelay> {
    kind("lock delay", |text| {
        let fits = time(text).and_then(|time| LockDelay::new(time).ok());
        fits.ok_or_else(|| {
            Invalid::new(
                "lock delay",
                text,
                "from 0s to 10m, written like 500ms or 15s",
            )
        })
    })
}

/// How long to wait or to look ahead.
pub(crate) fn duration() -> Kind<Duration> {
    kind("duration", |text| {
        let fits = time(text).filter(|time| (Duration::from_nanos(1)..=LONGEST).contains(time));
        fits.ok_or_else(|| {
            Invalid::new(
                "duration",
                text,
                "more than nothing and at most a year, written like 500ms, 15s or 1h30m",
            )
        })
    })
}

pub(crate) fn store_url() -> Kind<String> {
    kind("store", |text| match text {
        "" => Err(Invalid::new(
            "store",
            text,
            "a store is a URL such as sqlite:PATH",
        )),
        text => Ok(text.to_owned()),
    })
}

const fn kind<T>(what: &'static str, read: fn(&str) -> Result<T, Invalid>) -> Kind<T> {
    Kind { what, read }
}

/// A number with its unit, unsigned; `None` for anything else.
fn time(text: &str) -> Option<Duration> {
    text.starts_with(|first: char| first.is_ascii_digit())
        .then(|| SpanParser::new().parse_unsigned_duration(text).ok())?
}

/// `text` without characters that a terminal would obey, and not longer than `limit`.
pub(crate) fn printable(text: &str, limit: usize) -> String {
    let mut shown = String::new();
    for c in text.chars() {
        let as_it_is = c.is_ascii_graphic() || c == ' ';
        match as_it_is {
            true => shown.push(c),
            false => shown.extend(c.escape_debug()),
        }
        if shown.len() > limit {
            shown.push('…');
            break;
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_a_number_and_a_unit() {
        let good = [
            ("15s", 15_000),
            ("500ms", 500),
            ("1m", 60_000),
            ("1h30m", 5_400_000),
            ("1h 30m", 5_400_000),
            ("1.5s", 1_500),
        ];
        for (text, millis) in good {
            assert_eq!(time(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for bad in [
            "",
            "15",
            "-15s",
            "+15s",
            "s",
            "15x",
            "15s ago",
            "1e3s",
            "١s",
            " 15s",
            "99999999999999999999s",
            "18446744073709551616s",
            "NaN",
            "inf",
        ] {
            assert_eq!(time(bad), None, "{bad}");
        }
    }

    #[test]
    fn errors_name_the_value_and_what_is_allowed() {
        for bad in ["0s", "499ms", "25h", "-1s", "15", "99999999999999999999s"] {
            let error = (ttl().read)(bad).expect_err(bad).to_string();
            assert!(
                error.contains(bad) && error.contains("500ms to 24h"),
                "{error}"
            );
        }
        for bad in ["0s", "15", "-1s", "8785h", "999999999999999h"] {
            let error = (duration().read)(bad).expect_err(bad).to_string();
            assert!(error.contains(bad) && error.contains("15s"), "{error}");
        }
        assert_eq!((lock_delay().read)("0s").map(LockDelay::as_millis), Ok(0));
        assert!((lock_delay().read)("601s").is_err());
    }

    #[test]
    fn nothing_printed_moves_a_cursor() {
        assert_eq!(printable("é\u{202e}'\\", 80), "é\\u{202e}'\\");
        assert_eq!(printable("a\u{1b}[31mb", 80), "a\\u{1b}[31mb");
        assert_eq!(printable("abcdef", 3), "abcd…");
    }
}
