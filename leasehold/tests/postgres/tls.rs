//! TLS: a certificate is always verified, against the CA that was named, for the host that was named.

use leasehold::StoreError;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use crate::{ask::granted, server::Server, session::Session};

type Ca = CertifiedIssuer<'static, KeyPair>;

fn ca() -> Ca {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Gives the server a certificate of this CA for this host, and restarts it.
fn certify(server: &Server, ca: &Ca, host: &str) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![host.to_owned()]).unwrap();
    let certificate = params.signed_by(&key, ca).unwrap();
    server.file("server.pem", &certificate.pem());
    server.file("server.key", &key.serialize_pem());
    server.stop("fast");
    server.run();
}

async fn refused(url: &str, what: &str) -> StoreError {
    let error = leasehold::connect(url).await.expect_err(url);
    assert!(error.to_string().contains(what), "{url}: {error}");
    assert!(
        !format!("{error} {error:?}").contains("sesame"),
        "{error:?}"
    );
    error
}

async fn encrypted(session: &Session, url: &str) -> String {
    let store = leasehold::connect(url).await.expect(url);
    granted(&store, "job", 1, 60_000).await;
    session
        .must("SELECT DISTINCT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = 'leasehold'")
        .await
}

/// PRODUCT 4, L14.
#[tokio::test]
async fn a_certificate_is_always_verified() {
    let Some(server) = Server::ready().await else {
        return;
    };
    let plain = format!(
        "postgres://postgres:sesame@127.0.0.1:{}/postgres",
        server.port()
    );
    let error = refused(&format!("{plain}?sslmode=require"), "TLS").await;
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");

    let (ours, other) = (ca(), ca());
    let root = server.file("root.pem", &ours.pem()).display().to_string();
    let wrong = server.file("wrong.pem", &other.pem()).display().to_string();
    let folder = server.folder().display().to_string();
    server.configure(&format!(
        "ssl = on\nssl_cert_file = '{folder}/server.pem'\nssl_key_file = '{folder}/server.key'"
    ));
    certify(&server, &ours, "127.0.0.1");
    let session = Session::open(&server).await;
    for mode in ["require", "verify-ca", "verify-full"] {
        let url = format!("{plain}?sslmode={mode}");
        assert_eq!(
            encrypted(&session, &format!("{url}&sslrootcert={root}")).await,
            "t",
            "{mode}"
        );
        refused(&format!("{url}&sslrootcert={wrong}"), "certificate").await;
        // Without a CA of ours the machine's own decide, and they do not know this one.
        refused(&url, "certificate").await;
    }
    for mode in ["?sslmode=disable", ""] {
        assert_eq!(
            encrypted(&session, &format!("{plain}{mode}")).await,
            "f",
            "{mode:?}: on one machine"
        );
    }
    let missing = refused(
        &format!("{plain}?sslmode=require&sslrootcert=/nowhere.pem"),
        "/nowhere.pem",
    )
    .await;
    assert!(matches!(missing, StoreError::Invalid { .. }), "{missing:?}");
    let empty = server.file("empty.pem", "").display().to_string();
    let empty = refused(
        &format!("{plain}?sslmode=require&sslrootcert={empty}"),
        "empty.pem",
    )
    .await;
    assert!(matches!(empty, StoreError::Invalid { .. }), "{empty:?}");

    // A server that wants TLS says so to whoever does without.
    server.admit("hostssl all all 127.0.0.1/32 trust\n");
    let error = refused(&format!("{plain}?sslmode=disable"), "no encryption").await;
    assert!(matches!(error, StoreError::Invalid { .. }), "{error:?}");

    server.admit("host all all 127.0.0.1/32 trust\n");
    certify(&server, &ours, "db.example");
    for mode in ["require", "verify-ca", "verify-full"] {
        let url = format!("{plain}?sslmode={mode}&sslrootcert={root}");
        refused(&url, "certificate").await;
    }
}

/// The listener for changes and the migration speak TLS as well.
#[tokio::test]
async fn a_migration_goes_over_tls() {
    let Some(server) = Server::ready().await else {
        return;
    };
    let ours = ca();
    let root = server.file("root.pem", &ours.pem()).display().to_string();
    let folder = server.folder().display().to_string();
    server.configure(&format!(
        "ssl = on\nssl_cert_file = '{folder}/server.pem'\nssl_key_file = '{folder}/server.key'"
    ));
    certify(&server, &ours, "localhost");
    server.admit("hostssl all all 127.0.0.1/32 trust\n");
    let url = format!(
        "postgres://postgres@localhost:{}/postgres?sslmode=verify-full&sslrootcert={root}",
        server.port()
    );
    assert_eq!(
        leasehold::store::postgres::migrate(&url).await.unwrap(),
        Some(1)
    );
    let store = leasehold::connect(&url).await.unwrap();
    let mut changes = store.changes();
    granted(&store, "job", 1, 60_000).await;
    tokio::time::timeout(std::time::Duration::from_secs(60), changes.changed())
        .await
        .expect("it is heard");
}
