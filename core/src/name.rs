//! Texts from outside: short, printable, and refused otherwise. Each kind is a type of its own.

use alloc::{string::String, sync::Arc};
use core::{fmt, ops::RangeInclusive, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::Invalid;

macro_rules! text {
    ($(#[$doc:meta])* $name:ident, $what:literal, $max:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The longest one, in bytes.
            pub const MAX_LEN: usize = $max;

            const ALLOWED: &'static str = concat!(
                "1 to ", $max, " bytes of UTF-8 without control or invisible characters, no space at either end"
            );

            /// Checks `text`; an error names it and what is allowed.
            pub fn new(text: &str) -> Result<Self, Invalid> {
                if fits(text, Self::MAX_LEN) {
                    Ok(Self(text.into()))
                } else {
                    Err(Invalid::new($what, text, Self::ALLOWED))
                }
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = Invalid;

            fn from_str(text: &str) -> Result<Self, Invalid> {
                Self::new(text)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                Self::new(&String::deserialize(from)?).map_err(de::Error::custom)
            }
        }
    };
}

text! {
    /// The name of a lease: what is held.
    LeaseName, "lease name", 200
}
text! {
    /// Who holds, for people: a host, a pod. Two processes may share it; only the session tells them apart.
    Holder, "holder", 200
}
text! {
    /// A line from the holder for whoever asks, such as "where do I reach you" (A21).
    Info, "info", 1024
}
text! {
    /// The key of a pair in the store.
    Key, "key", 200
}
text! {
    /// What a fence protects, when it is not a pair of the same store.
    Resource, "resource", 200
}
text! {
    /// A piece of work in the ledger, named after the business fact: `invoice:4711:charge:1` (I3).
    WorkKey, "ledger key", 200
}

fn fits(text: &str, max: usize) -> bool {
    (1..=max).contains(&text.len()) && text.trim() == text && !text.chars().any(is_invisible)
}

/// Characters that a terminal or a reader would not show as they are: such a name could pose as another.
pub(crate) fn is_invisible(c: char) -> bool {
    c.is_control() || INVISIBLE.iter().any(|range| range.contains(&c))
}

/// Fillers, joiners, marks of direction, variants and tags.
const INVISIBLE: [RangeInclusive<char>; 16] = [
    '\u{ad}'..='\u{ad}',
    '\u{34f}'..='\u{34f}',
    '\u{61c}'..='\u{61c}',
    '\u{115f}'..='\u{1160}',
    '\u{17b4}'..='\u{17b5}',
    '\u{180b}'..='\u{180f}',
    '\u{200b}'..='\u{200f}',
    '\u{2028}'..='\u{202e}',
    '\u{2060}'..='\u{206f}',
    '\u{2800}'..='\u{2800}',
    '\u{3164}'..='\u{3164}',
    '\u{fe00}'..='\u{fe0f}',
    '\u{feff}'..='\u{feff}',
    '\u{ffa0}'..='\u{ffa0}',
    '\u{fff9}'..='\u{fffb}',
    '\u{e0000}'..='\u{e0fff}',
];

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn names_that_a_reader_could_not_trust_are_refused() {
        let long = "x".repeat(201);
        for bad in [
            "",
            " ",
            " a",
            "a ",
            "a\n",
            "a\0b",
            "a\u{1b}[31m",
            "a\u{202e}b",
            "a\u{200b}",
            "a\u{fe0f}",
            "\u{3164}",
            &long,
        ] {
            let error = LeaseName::new(bad).expect_err(bad).to_string();
            assert!(
                error.starts_with("lease name \"") && error.contains("1 to 200 bytes"),
                "{error}"
            );
            assert!(
                !error.contains(is_invisible),
                "the error would corrupt a terminal: {error:?}"
            );
        }
        for good in [
            "nightly",
            "team/nightly",
            "Bücher",
            "a b",
            "日本",
            &"x".repeat(200),
        ] {
            assert_eq!(LeaseName::new(good).unwrap().as_str(), good);
        }
    }
}
