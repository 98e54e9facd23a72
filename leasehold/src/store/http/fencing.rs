//! The header `Fencing-Token: name="nightly", token="2"`, read strictly: what is not exactly this is refused, since a
//! token that is read wrongly would be a fence in the wrong place.

use leasehold_core::{LeaseName, Proof, Token};

/// The header's name, in lower case.
pub const FENCING_TOKEN: &str = "fencing-token";

/// How the header looks, for errors.
const LOOKS: &str = "it is: name=\"LEASE\", token=\"NUMBER\", with a backslash before a quote or backslash in the name";

/// Reads the header's value.
pub fn parse(value: &[u8]) -> Result<Proof, String> {
    let text = std::str::from_utf8(value).map_err(|_| "the header Fencing-Token is not UTF-8")?;
    let bad = |what: &str| format!("the header Fencing-Token {what}; {LOOKS}");
    let (mut name, mut token) = (None, None);
    let mut rest = text.trim();
    loop {
        let (field, after) = rest.split_once('=').ok_or_else(|| bad("has no \"=\""))?;
        let (value, after) = quoted(after).ok_or_else(|| bad("has a value without quotes"))?;
        let place = match field.trim() {
            "name" => &mut name,
            "token" => &mut token,
            _ => return Err(bad("has a field that is neither name nor token")),
        };
        if place.replace(value).is_some() {
            return Err(bad("has a field twice"));
        }
        rest = match after.trim_start() {
            "" => break,
            after => after
                .strip_prefix(',')
                .ok_or_else(|| bad("has something behind a value"))?
                .trim_start(),
        };
    }
    let name = name.ok_or_else(|| bad("has no name"))?;
    let token = token.ok_or_else(|| bad("has no token"))?;
    Ok(Proof {
        lease: LeaseName::new(&name).map_err(|error| error.to_string())?,
        token: token.parse::<Token>().map_err(|error| error.to_string())?,
    })
}

/// What [`parse`] reads.
pub fn show(proof: &Proof) -> String {
    let name = proof.lease.as_str();
    let name = name.replace('\\', "\\\\").replace('"', "\\\"");
    format!("name=\"{name}\", token=\"{}\"", proof.token)
}

/// A quoted text at the start, and what is behind it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let inner = text.trim_start().strip_prefix('"')?;
    let mut value = String::new();
    let mut chars = inner.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, inner.get(at + 1..)?)),
            '\\' => match chars.next()?.1 {
                escaped @ ('"' | '\\') => value.push(escaped),
                _ => return None,
            },
            c => value.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_header_is_read_as_documented() {
        let proof = parse(b"name=\"nightly\", token=\"2\"").expect("it is right");
        assert_eq!((proof.lease.as_str(), proof.token.get()), ("nightly", 2));
        assert!(parse(b"token=\"2\",name=\"a\\\"b\"").is_ok());
    }

    /// INV-13.
    #[test]
    fn what_is_no_token_is_refused_in_the_header() {
        for bad in [
            "",
            "2",
            "name=nightly, token=2",
            "name=\"nightly\"",
            "token=\"2\"",
            "name=\"nightly\", token=\"02\"",
            "name=\"nightly\", token=\"+2\"",
            "name=\"nightly\", token=\"0\"",
            "name=\"nightly\", token=\"9223372036854775808\"",
            "name=\"nightly\", token=\"2\", token=\"3\"",
            "name=\"nightly\", token=\"2\" x",
            "name=\"nightly\", token=\"2\",",
            "name=\"\", token=\"2\"",
            "name=\"a\\n\", token=\"2\"",
            "name=\"nightly, token=\"2\"",
            "name=\"nightly\", token=\"2\", other=\"x\"",
        ] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn no_header_makes_it_panic(bytes in any::<Vec<u8>>(), text in "[a-z=\", \\\\0-9]*") {
            let _ = (parse(&bytes), parse(text.as_bytes()));
        }

        #[test]
        fn what_is_shown_is_read_back(name in "[ -~äöü]{1,40}", token in 1..=i64::MAX as u64) {
            if let (Ok(lease), Ok(token)) = (LeaseName::new(&name), Token::new(token)) {
                let proof = Proof { lease, token };
                prop_assert_eq!(parse(show(&proof).as_bytes()), Ok(proof));
            }
        }
    }
}
