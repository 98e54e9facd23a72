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
    config::{Host, SslMode},
};
use url::Url;

use crate::StoreError;

/// Where a database is and how to speak to it.
#[derive(Clone)]
pub(super) struct Address {
    pub(super) config: Config,
    pub(super) tls: Option<ClientConfig>,
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Address")
            .field("hosts", &self.config.get_hosts())
            .finish_non_exhaustive()
    }
}

impl Address {
    /// Parses a URL. `sslmode=verify-ca` and `verify-full` are read as `require`: verification is never left out.
    pub(super) fn parse(text: &str) -> Result<Self, StoreError> {
        let mut url = Url::parse(text).map_err(|error| bad(&error))?;
        let mut root = None;
        let mut kept = Vec::new();
        for (key, value) in url.query_pairs().into_owned() {
            match (key.as_str(), value.as_str()) {
                ("sslrootcert", path) => root = Some(path.to_owned()),
                ("sslmode", "verify-ca" | "verify-full") => kept.push((key, "require".to_owned())),
                _ => kept.push((key, value)),
            }
        }
        url.set_query(None);
        if !kept.is_empty() {
            url.query_pairs_mut().extend_pairs(kept);
        }
        let mut config: Config = url.as_str().parse().map_err(|error| bad(&error))?;
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
        Ok(Self { config, tls })
    }
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
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}
