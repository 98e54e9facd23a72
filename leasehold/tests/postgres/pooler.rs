//! PgBouncer in transaction mode between store and server: every statement may run on another connection.

use std::{
    fs,
    net::{TcpListener, TcpStream},
    process::{Child, Command},
};

use leasehold::store::contract::{self, Time};

use crate::{server::Server, session::pass};

struct Pooler(Child);

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// CRATES 4.4, PG5, PG12.
#[tokio::test]
async fn the_contract_holds_behind_pgbouncer() {
    let Some(server) = Server::ready().await else {
        return;
    };
    let Some(program) = ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer"]
        .into_iter()
        .find(|path| fs::exists(path).unwrap_or(false))
    else {
        crate::server::skipped("no pgbouncer; run `make setup`");
        return;
    };
    let port = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    let port = port.unwrap().port();
    let settings = server.folder().join("pgbouncer.ini");
    let text = format!(
        "[databases]\npostgres = host=127.0.0.1 port={} user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
         listen_port = {port}\nunix_socket_dir =\nauth_type = any\npool_mode = transaction\ndefault_pool_size = 3\n",
        server.port()
    );
    fs::write(&settings, text).unwrap();
    let mut command = if rustix::process::geteuid().is_root() {
        let mut command = Command::new("setpriv");
        command.args([
            "--reuid=postgres",
            "--regid=postgres",
            "--init-groups",
            program,
        ]);
        command
    } else {
        Command::new(program)
    };
    let _pooler = Pooler(command.arg("-q").arg(&settings).spawn().unwrap());
    for _ in 0..200 {
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            break;
        }
        pass(50).await;
    }
    let url = format!("postgres://postgres@127.0.0.1:{port}/postgres");
    let store = leasehold::connect(&url).await.unwrap();
    let report = contract::all(&*store, Time::Real).await;
    println!("behind PgBouncer: {report:#?}");
}
