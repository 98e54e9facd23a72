//! Asks a command of the user, again and again, whether the job goes on. A lease whose job is stuck is given up, or it
//! would keep everybody else out for ever (H10, FB-35).

use std::{process::Stdio, time::Duration};

use leasehold::Guard;
use tokio::process::Command;

/// Success is progress; failure, silence and no answer in time are not. Never comes back.
pub(super) async fn watch(command: Option<&str>, guard: &Guard) {
    let Some(command) = command else {
        return std::future::pending().await;
    };
    let every: Duration = guard.timing().ttl().get() / 4;
    loop {
        let mut probe = Command::new("sh");
        probe
            .args(["-c", command])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .kill_on_drop(true);
        if let Ok(Ok(status)) = tokio::time::timeout(every, probe.status()).await
            && status.success()
        {
            guard.progress();
        }
        tokio::time::sleep(every).await;
    }
}
