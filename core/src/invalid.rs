//! One error for every bad value from outside: it names the value, what is allowed and so what to do.

use alloc::string::String;
use core::fmt;

use crate::name::is_invisible;

/// A value from outside that no type of this crate can hold (INV-13). Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    what: &'static str,
    given: String,
    allowed: &'static str,
}

impl Invalid {
    /// The longest part of a bad value that an error repeats, in characters.
    const SHOWN: usize = 60;

    /// `what` is the kind of value, `given` is what came, `allowed` says what would do.
    pub fn new(what: &'static str, given: impl fmt::Display, allowed: &'static str) -> Self {
        let text = alloc::format!("{given}");
        let mut shown = String::new();
        for c in text.chars().take(Self::SHOWN) {
            match c {
                '\'' => shown.push(c),
                c if is_invisible(c) => shown.extend(c.escape_unicode()),
                c => shown.extend(c.escape_debug()),
            }
        }
        if text.chars().nth(Self::SHOWN).is_some() {
            shown.push('…');
        }
        Self {
            what,
            given: shown,
            allowed,
        }
    }

    /// The kind of value that was refused: `"token"`, `"lease name"`, ...
    pub fn what(&self) -> &'static str {
        self.what
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} \"{}\" is not allowed: {}",
            self.what, self.given, self.allowed
        )
    }
}

impl core::error::Error for Invalid {}
