//! `kubernetes:NAMESPACE`, with options after a question mark. A word that is not known is refused, never ignored.

use std::path::PathBuf;

use super::fault::invalid;
use crate::StoreError;

/// Where tokens come from; never two ways for one lease (K5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The resourceVersion that the acquiring write replaced, and so much more (K5, K6).
    Version { offset: u64 },
    /// `leaseTransitions` and one (K3): starts anew when the Lease is deleted.
    Transitions,
}

/// What a URL says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) namespace: String,
    pub(super) source: Source,
    pub(super) kubeconfig: Option<PathBuf>,
    pub(super) context: Option<String>,
}

impl Address {
    const FORM: &'static str = "use kubernetes:NAMESPACE, or with options \
        kubernetes:NAMESPACE?kubeconfig=PATH&context=NAME&token_source=transitions&token_offset=N";

    pub(super) fn parse(url: &str) -> Result<Self, StoreError> {
        let refuse = |why: String| invalid(format!("{why}; {}", Self::FORM));
        let rest = url.strip_prefix("kubernetes:").unwrap_or_default();
        let (namespace, options) = rest.split_once('?').unwrap_or((rest, ""));
        if let Err(rule) = label(namespace, 63, false) {
            let shown: String = namespace.chars().take(80).collect();
            return Err(refuse(format!(
                "namespace {shown:?} is not allowed: {rule}"
            )));
        }
        let mut address = Self {
            namespace: namespace.to_owned(),
            source: Source::Version { offset: 0 },
            kubeconfig: None,
            context: None,
        };
        let mut offset = None;
        for option in options.split('&').filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some(("kubeconfig", path)) if !path.is_empty() => {
                    address.kubeconfig = Some(path.into());
                }
                Some(("context", name)) if !name.is_empty() => address.context = Some(name.into()),
                Some(("token_source", "transitions")) => address.source = Source::Transitions,
                Some(("token_source", "resourceVersion")) => {}
                Some(("token_offset", text)) => {
                    let number = text.parse().ok().filter(|number| *number < 1 << 62);
                    let why = || refuse(format!("token_offset {text:?} is no number below 2^62"));
                    offset = Some(number.ok_or_else(why)?);
                }
                _ => return Err(refuse(format!("option {option:?} is not known"))),
            }
        }
        match (&mut address.source, offset) {
            (_, None) => Ok(address),
            (Source::Version { offset: zero }, Some(offset)) => {
                *zero = offset;
                Ok(address)
            }
            (Source::Transitions, Some(_)) => Err(refuse(
                "token_offset goes with the resourceVersion only".to_owned(),
            )),
        }
    }
}

/// What Kubernetes allows as the name of a Lease, which is less than a lease name may be.
pub(super) fn lease_name(name: &str) -> Result<(), StoreError> {
    label(name, 253, true).map_err(|rule| {
        invalid(format!(
            "lease name {name:?} is not allowed in Kubernetes: {rule}"
        ))
    })
}

fn label(text: &str, most: usize, dots: bool) -> Result<(), String> {
    let plain = |part: &str| {
        let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
        let bytes = part.as_bytes();
        edge(bytes.first())
            && edge(bytes.last())
            && bytes
                .iter()
                .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'))
    };
    let fits = text.len() <= most
        && if dots {
            text.split('.').all(plain)
        } else {
            plain(text)
        };
    fits.then_some(()).ok_or_else(|| {
        let dot = if dots { ", '-' and '.'" } else { " and '-'" };
        format!("it has 1 to {most} of a-z, 0-9{dot}, and begins and ends with a letter or digit")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_what_it_means_or_is_refused() {
        let full = "kubernetes:jobs?kubeconfig=/a/b&context=c&token_offset=7";
        let address = Address::parse(full).unwrap();
        assert_eq!(address.namespace, "jobs");
        assert_eq!(address.source, Source::Version { offset: 7 });
        assert_eq!(address.context.as_deref(), Some("c"));
        let other = Address::parse("kubernetes:jobs?token_source=transitions").unwrap();
        assert_eq!(other.source, Source::Transitions);
        for bad in [
            "kubernetes:",
            "kubernetes:Jobs",
            "kubernetes:-a",
            "kubernetes:a/b",
            "kubernetes:a?token_offset=-1",
            "kubernetes:a?token_offset=9223372036854775807",
            "kubernetes:a?token_source=clock",
            "kubernetes:a?token_source=transitions&token_offset=1",
            "kubernetes:a?ttl=3",
        ] {
            let text = Address::parse(bad).expect_err(bad).to_string();
            assert!(text.contains("use kubernetes:NAMESPACE"), "{text}");
        }
    }

    #[test]
    fn a_name_that_kubernetes_does_not_take_is_refused_with_its_rule() {
        for good in ["nightly", "a", "a.b-c.0", &"a".repeat(200)] {
            lease_name(good).expect(good);
        }
        for bad in ["Nightly", "a_b", "a..b", "a-", ".a", "a/b", "ä", ""] {
            let text = lease_name(bad).expect_err(bad).to_string();
            assert!(text.contains("a-z, 0-9"), "{text}");
        }
    }
}
