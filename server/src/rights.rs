//! Who may do what. A caller shows a secret; only its hash is kept. A rule gives one right on all names with one prefix,
//! and what no rule gives is refused: an unknown route needs every right.

use std::{collections::HashMap, fmt::Write, sync::Arc};

use axum::http::{HeaderMap, Method, header};
use leasehold::core::{Command, Op};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// How every secret begins, so that it is found where it should not be.
const START: &str = "leasehold_";
/// How many credentials one file may have.
const MOST: usize = 10_000;

/// What may be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Right {
    /// Look. Every other right includes it.
    Read,
    /// Take, keep and give back leases.
    Hold,
    /// Write pairs, fences and the ledger.
    Write,
    /// Everything.
    Admin,
}

/// One right on all names that begin with `prefix`; an empty one is all names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "said above")]
pub struct Rule {
    pub right: Right,
    pub prefix: String,
}

/// One caller: a line of the file of credentials.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Credential {
    /// Who, for the audit log.
    pub name: String,
    /// The hash of the secret, 64 hex digits.
    pub sha256: String,
    /// What the caller may do.
    pub rules: Vec<Rule>,
}

impl Credential {
    /// A new caller, and the secret that nobody keeps but the caller. `random` is 32 bytes from the kernel.
    pub fn new(name: &str, rules: Vec<Rule>, random: &[u8; 32]) -> (Self, String) {
        let secret = format!("{START}{}", hex(random));
        let credential = Self {
            name: name.to_owned(),
            sha256: hex(&hash(&secret)),
            rules,
        };
        (credential, secret)
    }

    fn may(&self, right: Right, name: &str) -> bool {
        self.rules.iter().any(|rule| {
            let enough = rule.right == right || rule.right == Right::Admin || right == Right::Read;
            enough && name.starts_with(&rule.prefix)
        })
    }
}

/// All callers.
#[derive(Clone, Debug, Default)]
pub struct Credentials(HashMap<String, Arc<Credential>>);

impl Credentials {
    /// Reads a file of them: one JSON object a line. The error names the line, and what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut known = HashMap::new();
        for (number, line) in text.lines().enumerate() {
            let at = |what: String| format!("line {}: {what}", number + 1);
            if line.trim().is_empty() {
                continue;
            }
            let credential: Credential =
                serde_json::from_str(line).map_err(|error| at(error.to_string()))?;
            let digits = &credential.sha256;
            if digits.len() != 64
                || !digits
                    .bytes()
                    .all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
            {
                return Err(at("\"sha256\" is 64 hex digits in lower case".to_owned()));
            }
            if known
                .insert(credential.sha256.clone(), Arc::new(credential))
                .is_some()
            {
                return Err(at("this secret has a line before".to_owned()));
            }
        }
        match known.len() {
            0 => Err("there is no credential in it".to_owned()),
            1..=MOST => Ok(Self(known)),
            _ => Err(format!("it has more than {MOST} credentials")),
        }
    }

    /// Who asks; nobody, if the secret is missing, twice, or unknown.
    pub(crate) fn caller(&self, headers: &HeaderMap) -> Option<Arc<Credential>> {
        let mut given = headers.get_all(header::AUTHORIZATION).iter();
        let (Some(value), None) = (given.next(), given.next()) else {
            return None;
        };
        let (scheme, secret) = value.to_str().ok()?.split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        // What is looked up is a hash, so how long it takes says nothing about the secret.
        self.0.get(&hex(&hash(secret.trim()))).cloned()
    }
}

/// Who asks, for the handlers; everybody may do everything at a server without credentials.
#[derive(Clone, Debug)]
pub(crate) struct Caller(pub(crate) Option<Arc<Credential>>);

impl Caller {
    pub(crate) fn may(&self, right: Right, name: &str) -> bool {
        self.0.as_ref().is_none_or(|caller| caller.may(right, name))
    }

    /// Whether one operation of a batch is allowed.
    pub(crate) fn may_do(&self, op: &Op) -> bool {
        let (right, name) = match op {
            Op::Lease { name, command } => match command {
                Command::Acquire(_) | Command::Renew(_) | Command::Release(_) => {
                    (Right::Hold, name.as_str())
                }
                Command::ForceRelease { .. } | Command::Quarantine { .. } => {
                    (Right::Admin, name.as_str())
                }
            },
            Op::Put { key, .. } | Op::Delete { key, .. } => (Right::Write, key.as_str()),
            Op::Raise { resource, .. } => (Right::Write, resource.as_str()),
            Op::Begin(asked) => (Right::Write, asked.work.lease.as_str()),
            Op::Complete(asked) => (Right::Write, asked.work.lease.as_str()),
            Op::Abandon(asked) => (Right::Write, asked.work.lease.as_str()),
            Op::Bump { .. } => (Right::Admin, ""),
        };
        self.may(right, name)
    }
}

/// What a request needs, before anything of it is read: `Some` right on the name that its path or query has, `None` if
/// being known is enough.
pub(crate) fn needed<'a>(
    method: &Method,
    route: &str,
    name: &'a str,
    prefix: &'a str,
) -> Option<(Right, &'a str)> {
    let reads = *method == Method::GET || *method == Method::HEAD;
    match route {
        // Each operation is looked at by itself.
        "/v1/batch" => None,
        "/v1/store" | "/readyz" | "/openapi.json" => None,
        "/v1/leases" | "/v1/watch" => Some((Right::Read, prefix)),
        "/v1/history" | "/v1/doctor" | "/metrics" => Some((Right::Read, "")),
        "/v1/leases/{lease}/acquire"
        | "/v1/leases/{lease}/renew"
        | "/v1/leases/{lease}/release" => Some((Right::Hold, name)),
        "/v1/leases/{lease}" | "/v1/leases/{lease}/history" => Some((Right::Read, name)),
        "/v1/leases/{lease}/force-release" => Some((Right::Admin, name)),
        _ if ["/v1/kv/", "/v1/fences/", "/v1/ledger/"]
            .iter()
            .any(|start| route.starts_with(start)) =>
        {
            Some((if reads { Right::Read } else { Right::Write }, name))
        }
        _ => Some((Right::Admin, "")),
    }
}

fn hash(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // A text takes all that is written to it.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The digest of nothing, as FIPS 180-4 has it.
    #[test]
    fn the_hash_is_sha_256() {
        assert_eq!(
            hex(&hash("")),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
    }

    #[test]
    fn a_file_that_is_wrong_is_refused_by_its_line() {
        let (credential, secret) = Credential::new("ci", Vec::new(), &[7; 32]);
        let line = serde_json::to_string(&credential).expect("it is JSON");
        assert!(
            !line.contains(secret.trim_start_matches(START)),
            "only the hash is kept"
        );
        assert!(Credentials::parse(&format!("\n{line}\n")).is_ok());
        let upper = line.replace(&credential.sha256, &credential.sha256.to_uppercase());
        for (bad, said) in [
            (String::new(), "no credential"),
            (format!("{line}\n{line}"), "line 2"),
            (format!("{line}\nx"), "line 2"),
            (upper, "64 hex digits"),
            (line.replace("rules", "rule"), "line 1"),
            (
                line.replace("[]", "[{\"right\":\"own\",\"prefix\":\"\"}]"),
                "own",
            ),
        ] {
            let error = Credentials::parse(&bad).expect_err(&bad);
            assert!(error.contains(said), "{error}");
        }
    }
}
