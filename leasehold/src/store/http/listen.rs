//! The server's stream of events as ticks: hints that wake those who wait or watch. A tick also comes when the stream
//! begins, since what happened before it is unseen.

use std::{sync::Arc, time::Duration};

use http_body_util::BodyExt;
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use super::link::{Call, Link};

/// A server says at least so often that it is there.
const ALIVE: Duration = Duration::from_secs(40);
/// Between two tries to reach it.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// And at most.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Ticks until nobody listens any more.
pub(super) async fn listen(link: Arc<Link>, ticks: watch::Sender<u64>) {
    let mut pause = FIRST_PAUSE;
    loop {
        let endpoint = link.first();
        let call = Call::get("/v1/watch".to_owned());
        match timeout(ALIVE, link.open(&call, endpoint)).await {
            Ok(Ok(response)) if response.status().is_success() => {
                pause = FIRST_PAUSE;
                tick(&ticks);
                let mut body = response.into_body();
                while let Ok(Some(Ok(frame))) = timeout(ALIVE, body.frame()).await {
                    // A line that begins with a colon only says that the server is there.
                    let event = frame.data_ref().is_some_and(|data| !data.starts_with(b":"));
                    if event {
                        tick(&ticks);
                    }
                }
            }
            _ => link.avoid(endpoint),
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

fn tick(ticks: &watch::Sender<u64>) {
    ticks.send_modify(|count| *count += 1);
}
