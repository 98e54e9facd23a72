//! `postgres://user:password@host:port/database?sslmode=…&sslrootcert=…`. A certificate, where TLS is used, is always
//! verified; the password is never shown.

use std::{fmt, sync::Arc, time::Duration};

use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};
use rustls_platform_verifier::BuilderVerifierExt;
use tokio_postgres::{
    Config,
    config::{Host, SslMode, TargetSessionAttrs},
};

use crate::StoreError;

/// Where a database is and how to speak to it.
#[derive(Clone)]
pub(super) struct Address {
    pub(super) config: Config,
    pub(super) tls: Option<ClientConfig>,
    /// `expiry=both`, see [`super::sighting`].
    pub(super) strict: bool,
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Address")
            .field("hosts", &self.config.get_hosts())
            .finish_non_exhaustive()
    }
}

impl Address {
    /// Parses a URL. `sslmode=verify-ca` and `verify-full` are read as `require`: verification is never left out. Of
    /// several hosts the one that takes writes is used, so that a failover needs no new URL.
    pub(super) fn parse(text: &str) -> Result<Self, StoreError> {
        let (base, query) = text.split_once('?').unwrap_or((text, ""));
        let (mut root, mut strict, mut kept) = (None, false, Vec::new());
        for option in query.split('&').filter(|option| !option.is_empty()) {
            match option.split_once('=').unwrap_or((option, "")) {
                ("sslrootcert", path) => root = Some(decoded(path)),
                ("sslmode", "verify-ca" | "verify-full") => kept.push("sslmode=require"),
                ("expiry", "store") => strict = false,
                ("expiry", "both") => strict = true,
                ("expiry", _) => return Err(bad(&"expiry is store or both")),
                _ => kept.push(option),
            }
        }
        let url = match kept.is_empty() {
            true => base.to_owned(),
            false => format!("{base}?{}", kept.join("&")),
        };
        let mut config: Config = url.parse().map_err(|error| bad(&error))?;
        if config.get_hosts().len() > 1 {
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        config
            .connect_timeout(Duration::from_secs(5))
            .tcp_user_timeout(Duration::from_secs(10));
        config.keepalives_idle(Duration::from_secs(10));
        if config.get_application_name().is_none() {
            config.application_name("leasehold");
        }
        let tls = match config.get_ssl_mode() {
            SslMode::Disable => None,
            SslMode::Prefer if config.get_hosts().iter().all(is_near) => None,
            _ => Some(client(root.as_deref())?),
        };
        Ok(Self {
            config,
            tls,
            strict,
        })
    }
}

/// `%20` is a space.
fn decoded(text: &str) -> String {
    percent_encoding::percent_decode_str(text)
        .decode_utf8_lossy()
        .into_owned()
}

fn bad(error: &dyn fmt::Display) -> StoreError {
    StoreError::Invalid {
        what: format!(
            "the postgres:// address cannot be read: {error}; it is postgres://USER@HOST:PORT/DATABASE"
        ),
    }
}

/// On one machine there is nobody in between.
fn is_near(host: &Host) -> bool {
    match host {
        Host::Tcp(name) => name == "localhost" || name.starts_with("127.") || name == "::1",
        Host::Unix(_) => true,
    }
}

fn client(root: Option<&str>) -> Result<ClientConfig, StoreError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let fail = |error: String| StoreError::Invalid {
        what: format!("TLS cannot be set up: {error}"),
    };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| fail(error.to_string()))?;
    let Some(path) = root else {
        return builder
            .with_platform_verifier()
            .map(|builder| builder.with_no_client_auth())
            .map_err(|error| fail(error.to_string()));
    };
    let mut roots = RootCertStore::empty();
    let read = |error: &dyn fmt::Display| fail(format!("sslrootcert {path}: {error}"));
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| read(&error))? {
        roots
            .add(certificate.map_err(|error| read(&error))?)
            .map_err(|error| read(&error))?;
    }
    if roots.is_empty() {
        return Err(read(&"no certificate is in it"));
    }
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}
