//! Users, passwords and TLS: what is refused names the reason and never the password.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use leasehold::{StoreError, core::Answer};

use crate::{
    asker::Asker,
    server::{Server, Settings, Version},
};

/// FB-75: the credentials of a holder and of a waiter run out (a restart forgets them), and both go on.
#[tokio::test]
async fn credentials_that_ran_out_are_got_anew() {
    for version in Version::all() {
        let mut server = Server::start(&version).await;
        for command in [
            &["user", "add", "root:r00t"][..],
            &["user", "grant-role", "root", "root"],
            &["user", "add", "ann:s3cret"],
            &["role", "add", "jobs"],
            &[
                "role",
                "grant-permission",
                "jobs",
                "--prefix=true",
                "readwrite",
                "team/",
            ],
            &["user", "grant-role", "ann", "jobs"],
            &["auth", "enable"],
        ] {
            println!("{}", server.ctl_all(command));
        }
        let place = server.place();
        let url = format!("etcd://ann:s3cret@{place}/team/");
        let store = leasehold::connect(&url).await.unwrap();
        let (a, b) = (Asker::new(&store, "job", 60), Asker::new(&store, "job", 60));
        let token = a.take().await;
        for _ in 0..2 {
            assert!(matches!(b.ask().await.unwrap(), Answer::Held(_)));
        }
        server.kill();
        server.run();
        for number in 1..600 {
            match a.renew(token, number).await {
                Ok(Answer::Renewed { .. }) => break,
                Ok(other) => panic!("{other:?}"),
                Err(error) if number > 500 => panic!("{error}"),
                Err(_) => tokio::time::sleep(std::time::Duration::from_millis(100)).await,
            }
        }
        assert_eq!(a.release(token).await, Answer::Released);
        assert!(b.take().await > token);

        let outside = leasehold::connect(&format!("etcd://ann:s3cret@{place}"))
            .await
            .unwrap_err();
        assert!(
            matches!(&outside, StoreError::Invalid { what } if what.contains("permission denied")),
            "{outside}"
        );
        for wrong in ["ann:wr0ng@", "nobody:wr0ng@", ""] {
            let error = leasehold::connect(&format!("etcd://{wrong}{place}/team/"))
                .await
                .unwrap_err();
            assert!(matches!(error, StoreError::Invalid { .. }), "{error}");
            assert!(!error.to_string().contains("wr0ng"), "{error}");
        }
    }
}

/// A server's certificate and key, and the authority that signed it.
fn certificate(folder: &Path) -> [PathBuf; 3] {
    let path = |name: &str| folder.join(name).display().to_string();
    let (ca, ca_key, cert, key) = (
        path("ca.pem"),
        path("ca-key.pem"),
        path("cert.pem"),
        path("key.pem"),
    );
    openssl(&["-subj", "/CN=authority", "-keyout", &ca_key, "-out", &ca]);
    openssl(&[
        "-subj",
        "/CN=test",
        "-CA",
        &ca,
        "-CAkey",
        &ca_key,
        "-addext",
        "subjectAltName=IP:127.0.0.1",
        "-addext",
        "basicConstraints=critical,CA:FALSE",
        "-keyout",
        &key,
        "-out",
        &cert,
    ]);
    [cert, key, ca].map(PathBuf::from)
}

fn openssl(args: &[&str]) {
    let output = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "1",
        ])
        .args(args)
        .output()
        .expect("openssl runs");
    assert!(output.status.success(), "{output:?}");
}

/// The server's certificate is verified, always, and ours is shown to a server that wants one.
#[tokio::test]
async fn over_tls_the_server_must_show_who_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, others) = (folder.path().join("ours"), folder.path().join("others"));
    for one in [&ours, &others] {
        std::fs::create_dir(one).unwrap();
    }
    let (tls, other) = (certificate(&ours), certificate(&others));
    for version in Version::all() {
        let settings = Settings {
            tls: Some(tls.clone()),
            ..Settings::default()
        };
        let server = Server::with(&version, settings).await;
        let with = |ca: &Path| {
            let [cert, key, _] = &tls;
            let (ca, cert, key) = (ca.display(), cert.display(), key.display());
            format!("etcd://{}?ca={ca}&cert={cert}&key={key}", server.place())
        };
        let nobody = format!("etcd://{}?ca={}", server.place(), tls[2].display());
        let mut store = leasehold::connect(&with(&tls[2])).await;
        for _ in 0..600 {
            if store.is_ok() {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            store = leasehold::connect(&with(&tls[2])).await;
        }
        Asker::new(&store.unwrap(), "job", 5).take().await;
        for refused in [
            with(&other[2]),
            nobody,
            server.url(),
            format!("{}?tls=on", server.url()),
        ] {
            let error = leasehold::connect(&refused).await.unwrap_err();
            assert!(
                matches!(
                    error,
                    StoreError::Unavailable { .. } | StoreError::Invalid { .. }
                ),
                "{refused}: {error}"
            );
        }
    }
}
