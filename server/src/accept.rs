//! Connections: HTTP/1.1 and HTTP/2 without TLS on one port, as many as are allowed, each with a limit on every wait.

use std::{future::Future, io, sync::Arc, time::Duration};

use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto::Builder, graceful::GracefulShutdown},
    service::TowerToHyperService,
};
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::{sleep, timeout},
};

use crate::{app::App, routes};

/// Header lines of one request; more is a mistake or an attack.
const MAX_HEADERS: usize = 64;
/// Requests at a time on one HTTP/2 connection.
const MAX_STREAMS: u32 = 256;
/// When an HTTP/2 client is asked whether it is there, and how long it may take to say so.
const PING: Duration = Duration::from_secs(20);
/// After an error of `accept` such as too many open files; it goes away or stays.
const PAUSE: Duration = Duration::from_millis(100);

/// What one connection too many hears.
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\n\
    content-type: application/problem+json\r\ncontent-length: 146\r\n\r\n\
    {\"type\":\"urn:leasehold:unavailable\",\"status\":503,\"answer\":\"error\",\"kind\":\"unavailable\",\
    \"detail\":\"the server has as many connections as it allows\"}";

pub(crate) async fn serve(
    listener: TcpListener,
    app: Arc<App>,
    shutdown: impl Future<Output = ()> + Send,
) -> io::Result<()> {
    let router = routes::router(app.clone());
    let places = Arc::new(Semaphore::new(app.config.connections));
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(app.config.header_timeout)
        .max_headers(MAX_HEADERS);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING);
    let graceful = GracefulShutdown::new();
    tokio::pin!(shutdown);
    loop {
        let stream = tokio::select! {
            () = &mut shutdown => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "no connection was accepted");
                    sleep(PAUSE).await;
                    continue;
                }
            },
        };
        let Ok(place) = places.clone().try_acquire_owned() else {
            app.metrics.refused_connection();
            tokio::spawn(refuse(stream));
            continue;
        };
        // A hand-over must not wait for more to send.
        let _ = stream.set_nodelay(true);
        let service = TowerToHyperService::new(router.clone());
        let connection = builder
            .serve_connection_with_upgrades(TokioIo::new(stream), service)
            .into_owned();
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection ended");
            }
            drop(place);
        });
    }
    drop(listener);
    if timeout(app.config.drain, graceful.shutdown())
        .await
        .is_err()
    {
        tracing::warn!("some requests did not end in time and were cut off");
    }
    Ok(())
}

/// Says so, if the client listens, and closes.
async fn refuse(mut stream: TcpStream) {
    let _ = timeout(PAUSE * 10, async {
        let _ = stream.write_all(FULL).await;
        let _ = stream.shutdown().await;
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_to_one_connection_too_many_has_the_length_it_says() {
        let text = std::str::from_utf8(FULL).expect("it is text");
        let (head, body) = text.split_once("\r\n\r\n").expect("head and body");
        assert!(head.contains(&format!("content-length: {}", body.len())));
    }
}
