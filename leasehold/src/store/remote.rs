//! What the stores behind a network share: a thread of their own (H10), and how they say that nothing came back (L14).

use tokio::{
    runtime::{Builder, Handle, Runtime},
    task::JoinHandle,
};

use crate::StoreError;

/// One thread that sends and hears for a store, so that no work of the user keeps a renewal waiting.
#[derive(Debug)]
pub(super) struct Thread {
    handle: Handle,
    /// Always there until drop.
    runtime: Option<Runtime>,
}

impl Thread {
    pub(super) fn start(name: &str) -> Result<Self, StoreError> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name(name)
            .enable_all()
            .build()
            .map_err(|error| unavailable(error.to_string()))?;
        Ok(Self {
            handle: runtime.handle().clone(),
            runtime: Some(runtime),
        })
    }

    pub(super) fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.handle.spawn(work)
    }

    /// Awaits the end of `work`, which is not bound to this call: it goes on if nobody waits any more.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.spawn(work)
            .await
            .map_err(|_| unknown("the store's thread ended"))?
    }
}

impl Drop for Thread {
    /// What is on its way ends by itself: to wait for it in a task would panic.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

pub(super) fn unavailable(what: impl Into<String>) -> StoreError {
    StoreError::Unavailable { what: what.into() }
}

pub(super) fn unknown(what: impl Into<String>) -> StoreError {
    StoreError::Unknown { what: what.into() }
}

/// An error with its causes: the first alone says nothing.
#[cfg(any(feature = "etcd", feature = "http", feature = "postgres"))]
pub(super) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A store whose address is wrong is dropped in the task that connects.
    #[tokio::test]
    async fn it_may_end_inside_a_task() {
        let thread = Thread::start("test").unwrap();
        let answer = thread.run(async { Ok(std::thread::current().name().map(str::to_owned)) });
        assert_eq!(answer.await.unwrap().as_deref(), Some("test"));
        let panicked = thread.run::<()>(async { panic!("it is meant to") }).await;
        assert!(matches!(panicked, Err(StoreError::Unknown { .. })));
        drop(thread);
    }
}
