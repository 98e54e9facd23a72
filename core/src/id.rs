//! Random 128-bit ids. They come from outside (the rules roll no dice); a session is a key and is never shown.

use alloc::string::String;
use core::{fmt, num::NonZeroU128, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::Invalid;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(Rust, packed(8))]
        pub struct $name(NonZeroU128);

        impl $name {
            /// The id with these bits, which must be random and not all zero.
            pub const fn from_bits(bits: u128) -> Option<Self> {
                match NonZeroU128::new(bits) {
                    Some(bits) => Some(Self(bits)),
                    None => None,
                }
            }

            /// Its bits.
            pub const fn bits(self) -> u128 {
                self.0.get()
            }

            /// All 32 hex digits, for the wire and for the one who owns it.
            pub fn expose(self) -> String {
                alloc::format!("{:032x}", self.bits())
            }

            /// Eight hex digits that tell two ids apart and give neither away.
            pub fn fingerprint(self) -> u32 {
                self.bits().to_be_bytes().iter().fold(0x811c_9dc5, |hash: u32, byte| {
                    (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
                })
            }
        }

        impl From<NonZeroU128> for $name {
            fn from(bits: NonZeroU128) -> Self {
                Self(bits)
            }
        }

        impl FromStr for $name {
            type Err = Invalid;

            /// The value is not repeated in the error: it may be half of a key.
            fn from_str(text: &str) -> Result<Self, Invalid> {
                Some(text)
                    .filter(|text| text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit()))
                    .and_then(|text| u128::from_str_radix(text, 16).ok())
                    .and_then(Self::from_bits)
                    .ok_or_else(|| Invalid::new($what, "…", "it is 32 hex digits, not all zero"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "(#{:08x})"), self.fingerprint())
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                if to.is_human_readable() {
                    to.serialize_str(&self.expose())
                } else {
                    to.serialize_u128(self.bits())
                }
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                if from.is_human_readable() {
                    String::deserialize(from)?.parse().map_err(de::Error::custom)
                } else {
                    Self::from_bits(u128::deserialize(from)?)
                        .ok_or_else(|| de::Error::custom(concat!($what, " is zero")))
                }
            }
        }
    };
}

id! {
    /// A holder's incarnation: new for every start of every holder, and the key to renew and release (A21).
    ///
    /// It is shown as eight hex digits of a hash. Two holders never share one, not even two of one process.
    Session, "session"
}
id! {
    /// One logical acquire: the same over all retries and polls of it, new only after `AlreadyUsed` (A4).
    RequestId, "request id"
}
id! {
    /// One renewal: the same over all its retries, so that a lost reply is told from a second holder (A3).
    RenewId, "renew id"
}
id! {
    /// One try at a piece of work in the ledger: the same over its retries (A21).
    AttemptId, "attempt id"
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn a_session_shows_only_a_fingerprint() {
        let session = Session::from_bits(0xfeed_f00d_dead_beef_0123_4567_89ab_cdef).unwrap();
        assert_eq!(session.expose(), "feedf00ddeadbeef0123456789abcdef");
        assert_eq!(session.expose().parse::<Session>().unwrap(), session);
        let shown = format!("{session:?}");
        assert!(
            shown.starts_with("Session(#") && !shown.contains("feed"),
            "{shown}"
        );
    }

    #[test]
    fn a_bad_session_is_refused_and_not_repeated() {
        for bad in [
            "",
            "feed",
            "00000000000000000000000000000000",
            "feedf00ddeadbeef0123456789abcdeg",
        ] {
            let error = format!("{}", bad.parse::<Session>().unwrap_err());
            assert!(error.contains("32 hex digits") && (bad.is_empty() || !error.contains(bad)));
        }
    }
}
