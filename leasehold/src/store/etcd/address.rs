//! `etcd://user:password@host:port,host:port/prefix?ca=FILE&cert=FILE&key=FILE&renew=raft`. The password is never shown.

use std::{fmt, fs, time::Duration};

use etcd_client::{Certificate, ConnectOptions, Identity, TlsOptions};
use percent_encoding::percent_decode_str;

use super::fault::invalid;
use crate::StoreError;

/// How a lease is renewed (ET3, ET4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Renewal {
    /// By a keep-alive that a quorum then confirms: no write.
    #[default]
    KeepAlive,
    /// By a new etcd lease through Raft.
    Raft,
}

/// Where an etcd is and how to speak to it.
#[derive(Clone)]
pub(super) struct Address {
    pub(super) endpoints: Vec<String>,
    /// Before every key.
    pub(super) prefix: String,
    pub(super) renewal: Renewal,
    pub(super) options: ConnectOptions,
    /// Whether somebody in between could read along.
    pub(super) plain: bool,
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Address")
            .field("endpoints", &self.endpoints)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

impl Address {
    pub(super) fn parse(url: &str) -> Result<Self, StoreError> {
        let rest = url
            .strip_prefix("etcd://")
            .ok_or_else(|| bad("it begins with etcd://"))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (place, prefix) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        let (user, hosts) = match place.rsplit_once('@') {
            Some((user, hosts)) => (Some(user), hosts),
            None => (None, place),
        };
        let hosts = hosts.split(',').map(host).collect::<Result<Vec<_>, _>>()?;
        let extra = Extra::parse(query)?;
        let mut options = ConnectOptions::new()
            .with_connect_timeout(Duration::from_secs(3))
            .with_keep_alive(Duration::from_secs(6), Duration::from_secs(3))
            .with_require_leader(true)
            .with_auto_token_refresh(true);
        if let Some(user) = user {
            let (name, password) = user
                .split_once(':')
                .ok_or_else(|| bad("a user comes with a password: USER:PASSWORD@HOST"))?;
            options = options.with_user(decoded(name)?, decoded(password)?);
        }
        let secure = extra.is_secure();
        let scheme = if secure { "https" } else { "http" };
        let plain = !secure && !hosts.iter().all(|host| is_near(host));
        if secure {
            options = options.with_tls(extra.tls()?);
        }
        Ok(Self {
            endpoints: hosts
                .iter()
                .map(|host| format!("{scheme}://{host}"))
                .collect(),
            prefix: decoded(prefix.trim_start_matches('/'))?,
            renewal: extra.renewal,
            options,
            plain,
        })
    }
}

/// What follows the question mark.
#[derive(Default)]
struct Extra {
    tls: bool,
    ca: Option<String>,
    cert: Option<String>,
    key: Option<String>,
    renewal: Renewal,
}

impl Extra {
    fn parse(query: &str) -> Result<Self, StoreError> {
        let mut extra = Self::default();
        for option in query.split('&').filter(|option| !option.is_empty()) {
            match option.split_once('=').unwrap_or((option, "")) {
                ("tls", "on") => extra.tls = true,
                ("tls", "off") => extra.tls = false,
                ("tls", _) => return Err(bad("tls is on or off")),
                ("ca", file) => extra.ca = Some(decoded(file)?),
                ("cert", file) => extra.cert = Some(decoded(file)?),
                ("key", file) => extra.key = Some(decoded(file)?),
                ("renew", "keepalive") => extra.renewal = Renewal::KeepAlive,
                ("renew", "raft") => extra.renewal = Renewal::Raft,
                ("renew", _) => return Err(bad("renew is keepalive or raft")),
                _ => return Err(bad("its options are tls, ca, cert, key and renew")),
            }
        }
        Ok(extra)
    }

    fn is_secure(&self) -> bool {
        self.tls || self.ca.is_some() || self.cert.is_some()
    }

    fn tls(&self) -> Result<TlsOptions, StoreError> {
        let mut tls = match &self.ca {
            Some(file) => {
                TlsOptions::new().ca_certificate(Certificate::from_pem(read("ca", file)?))
            }
            None => TlsOptions::new().with_enabled_roots(),
        };
        match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => {
                tls = tls.identity(Identity::from_pem(read("cert", cert)?, read("key", key)?));
            }
            (None, None) => {}
            _ => return Err(bad("cert and key come together")),
        }
        Ok(tls)
    }
}

fn read(what: &str, file: &str) -> Result<Vec<u8>, StoreError> {
    fs::read(file)
        .map_err(|error| invalid(format!("{what} {file} of the etcd:// address: {error}")))
}

fn host(text: &str) -> Result<String, StoreError> {
    let port = text.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
    match port {
        _ if text.is_empty() || text.starts_with(':') => Err(bad("a host is missing")),
        Some(Ok(1..)) => Ok(text.to_owned()),
        None => Ok(format!("{text}:2379")),
        _ if text.ends_with(']') => Ok(format!("{text}:2379")),
        _ => Err(bad("a port is a number from 1 to 65535")),
    }
}

/// On one machine there is nobody in between.
fn is_near(host: &str) -> bool {
    ["127.", "localhost:", "[::1]"]
        .iter()
        .any(|near| host.starts_with(near))
}

/// `%2F` is a slash.
fn decoded(text: &str) -> Result<String, StoreError> {
    let text = percent_decode_str(text)
        .decode_utf8()
        .map_err(|_| bad("it is UTF-8"))?;
    match text.contains(char::is_control) {
        true => Err(bad("it has no control characters")),
        false => Ok(text.into_owned()),
    }
}

/// What was given may hold a password, so it is not repeated.
fn bad(why: &str) -> StoreError {
    invalid(format!(
        "the etcd:// address cannot be read: {why}; it is etcd://HOST:PORT, and may have more: \
         etcd://USER:PASSWORD@HOST:PORT,HOST:PORT/PREFIX?ca=FILE&cert=FILE&key=FILE&renew=raft"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_or_refused_without_its_password() {
        let address = Address::parse("etcd://u:s3%40ret@a,b:2400/team%2F?renew=raft").unwrap();
        assert_eq!(address.endpoints, ["http://a:2379", "http://b:2400"]);
        assert_eq!(
            (&*address.prefix, address.renewal),
            ("team/", Renewal::Raft)
        );
        assert!(address.plain && !format!("{address:?}").contains("s3@ret"));
        for bad in [
            "etcd:h",
            "etcd://",
            "etcd://:1",
            "etcd://h:0",
            "etcd://h:port",
            "etcd://u@h",
            "etcd://u:s3cret@h?renew=never",
            "etcd://u:s3cret@h?cert=/no/such",
            "etcd://h?ca=/no/such",
            "etcd://h/%00",
            "etcd://h?what=1",
        ] {
            let error = Address::parse(bad).expect_err(bad);
            assert!(matches!(error, StoreError::Invalid { .. }), "{error:?}");
            assert!(!error.to_string().contains("s3cret"), "{error}");
        }
    }
}
