//! The token: a number that grows every time a lease changes hands. It is never zero, never wraps, never falls.

use alloc::string::String;
use core::{fmt, num::NonZeroU64, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::Invalid;

/// A fencing token, 1 to 2^63 - 1 (1.2).
///
/// Larger means later: the receiver of a write remembers the largest token it has seen and refuses smaller ones.
/// Its text is decimal ASCII without sign or leading zero; in JSON it is a string, since doubles lose digits above 2^53.
///
/// Tokens of one lease sort as numbers into the order in which the lease changed hands. Their texts do not, since `"10"`
/// sorts before `"9"`: parse first.
///
/// ```
/// use leasehold_core::*;
/// # // FB-16: users ask for tokens that have an order.
/// # fn main() -> Result<(), Invalid> {
/// let (mut table, mut events, mut stamp) = (Table::new(), Vec::new(), Stamp::default());
/// let mut granted = Vec::new();
/// for number in 1..=1000 {
///     let acquire = Command::Acquire(Acquire {
///         session: Session::from_bits(number).expect("not zero"),
///         request_id: RequestId::from_bits(number).expect("not zero"),
///         holder: Holder::new("worker")?,
///         info: None,
///         ttl: Ttl::DEFAULT,
///         lock_delay: LockDelay::NONE,
///     });
///     let op = Op::Lease { name: LeaseName::new("nightly")?, command: acquire };
///     if let Outcome::Lease(Answer::Granted(grant)) = table.apply(op, stamp, &mut events) {
///         granted.push(grant.token);
///     }
///     stamp.now = stamp.now.plus(Ttl::DEFAULT.get()); // it runs out, and the next one takes it
/// }
/// let mut written: Vec<String> = granted.iter().map(Token::to_string).collect();
/// written.sort(); // as texts: the order is lost
/// let mut sorted: Vec<Token> = written.iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
/// sorted.sort();
/// assert_eq!(sorted, granted);
/// assert_eq!(sorted.len(), 1000);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(NonZeroU64);

impl Token {
    /// The first token of a lease.
    pub const FIRST: Token = Token(NonZeroU64::MIN);
    /// The last one; after it a store refuses to grant (`TokenExhausted`).
    pub const MAX: Token = Token(NonZeroU64::new(i64::MAX as u64).expect("2^63 - 1 is not zero"));

    const ALLOWED: &'static str = "a token is a whole number from 1 to 9223372036854775807, digits only, no sign, no leading zero";

    /// The token with this number. Zero ("never granted") and anything above 2^63 - 1 are refused.
    pub fn new(number: u64) -> Result<Self, Invalid> {
        NonZeroU64::new(number)
            .map(Token)
            .filter(|token| *token <= Self::MAX)
            .ok_or_else(|| Invalid::new("token", number, Self::ALLOWED))
    }

    /// Its number.
    pub const fn get(self) -> u64 {
        self.0.get()
    }

    /// The next larger token, none after [`Token::MAX`].
    pub fn next(self) -> Option<Self> {
        Self::new(self.get() + 1).ok()
    }

    /// The token that follows the largest one ever issued; `None` stands for "none yet".
    pub(crate) fn after(last: Option<Token>) -> Option<Self> {
        last.map_or(Some(Self::FIRST), Token::next)
    }
}

impl FromStr for Token {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let bad = || Invalid::new("token", text, Self::ALLOWED);
        if text.starts_with('0') || !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(bad());
        }
        text.parse()
            .ok()
            .and_then(|number| Self::new(number).ok())
            .ok_or_else(bad)
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({})", self.0)
    }
}

impl Serialize for Token {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if to.is_human_readable() {
            to.collect_str(self)
        } else {
            to.serialize_u64(self.get())
        }
    }
}

impl<'de> Deserialize<'de> for Token {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        if from.is_human_readable() {
            String::deserialize(from)?
                .parse()
                .map_err(de::Error::custom)
        } else {
            Token::new(u64::deserialize(from)?).map_err(de::Error::custom)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    /// INV-13.
    #[test]
    fn only_plain_decimal_numbers_from_1_to_2_63_minus_1_are_tokens() {
        let bad = [
            "", "0", "-1", "+5", "05", "00", " 5", "5 ", "5.0", "1e3", "0x5", "٣", "five",
        ];
        for text in bad
            .into_iter()
            .chain(["9223372036854775808", "18446744073709551616"])
        {
            let error = text.parse::<Token>().expect_err(text).to_string();
            assert!(
                error.contains(text) && error.contains("from 1 to"),
                "{error}"
            );
        }
        for good in [1, 2, 1_796_031_988_382, i64::MAX as u64] {
            assert_eq!(good.to_string().parse::<Token>().unwrap().get(), good);
        }
        assert!(Token::new(0).is_err() && Token::new(1 << 63).is_err());
    }

    #[test]
    fn the_last_token_has_no_next() {
        assert_eq!(Token::MAX.next(), None);
        assert_eq!(Token::after(None), Some(Token::FIRST));
        assert_eq!(Token::FIRST.next().map(Token::get), Some(2));
    }
}
