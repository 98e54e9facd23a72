//! The engine's runtime under simulated time: tokio's, with a channel and dice that do the same for the same seed.
//!
//! Tokio's own watch channel wakes its waiters in an order of chance; this one in the order in which they came.

use std::{
    cell::Cell,
    fmt,
    future::{Future, poll_fn},
    hash::{BuildHasher, RandomState},
    io,
    ops::Deref,
    sync::{
        Arc, Mutex, PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    task::{Poll, Waker},
    time::Duration,
};

use openraft::{
    OptionalSend, OptionalSync,
    async_runtime::{
        AsyncRuntime,
        watch::{RecvError, SendError, Watch, WatchReceiver, WatchSender},
    },
};
use openraft_rt_tokio::{TokioInstant, TokioMpsc, TokioMutex, TokioOneshot, TokioRuntime};
use rand10::{SeedableRng, rngs::SmallRng};

thread_local! {
    static DICE: Cell<u64> = Cell::new(RandomState::new().hash_one(0));
}

/// From here on this thread's dice are those of `seed`.
pub(crate) fn seed(seed: u64) {
    DICE.set(seed);
}

/// The next number of this thread's dice (splitmix64).
pub(crate) fn roll() -> u64 {
    let state = DICE.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
    DICE.set(state);
    let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A number below `end`.
pub(crate) fn below(end: u64) -> u64 {
    roll() % end
}

/// Tokio's runtime, but for chance.
pub(crate) struct Runtime(TokioRuntime);

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl AsyncRuntime for Runtime {
    type JoinError = <TokioRuntime as AsyncRuntime>::JoinError;
    type JoinHandle<T: OptionalSend + 'static> = tokio::task::JoinHandle<T>;
    type Sleep = tokio::time::Sleep;
    type Instant = TokioInstant;
    type TimeoutError = tokio::time::error::Elapsed;
    type Timeout<R, T: Future<Output = R> + OptionalSend> = tokio::time::Timeout<T>;
    type ThreadLocalRng = SmallRng;
    type Mpsc = TokioMpsc;
    type Watch = Fair;
    type Oneshot = TokioOneshot;
    type Mutex<T: OptionalSend + 'static> = TokioMutex<T>;

    fn spawn<T>(future: T) -> Self::JoinHandle<T::Output>
    where
        T: Future + OptionalSend + 'static,
        T::Output: OptionalSend + 'static,
    {
        TokioRuntime::spawn(future)
    }

    fn sleep(duration: Duration) -> Self::Sleep {
        TokioRuntime::sleep(duration)
    }

    fn sleep_until(deadline: TokioInstant) -> Self::Sleep {
        TokioRuntime::sleep_until(deadline)
    }

    fn timeout<R, F: Future<Output = R> + OptionalSend>(
        duration: Duration,
        future: F,
    ) -> Self::Timeout<R, F> {
        TokioRuntime::timeout(duration, future)
    }

    fn timeout_at<R, F: Future<Output = R> + OptionalSend>(
        deadline: TokioInstant,
        future: F,
    ) -> Self::Timeout<R, F> {
        TokioRuntime::timeout_at(deadline, future)
    }

    fn is_panic(error: &Self::JoinError) -> bool {
        TokioRuntime::is_panic(error)
    }

    fn thread_rng() -> SmallRng {
        SmallRng::seed_from_u64(roll())
    }

    fn new(threads: usize) -> Self {
        Self(TokioRuntime::new(threads))
    }

    fn block_on<F: Future<Output = T>, T>(&mut self, future: F) -> T {
        self.0.block_on(future)
    }
}

/// A watch channel that wakes in order.
pub(crate) struct Fair;

struct Shared<T> {
    value: RwLock<T>,
    version: AtomicU64,
    wakers: Mutex<Vec<Waker>>,
    senders: AtomicUsize,
    receivers: AtomicUsize,
}

pub(crate) struct Sender<T>(Arc<Shared<T>>);

pub(crate) struct Receiver<T> {
    shared: Arc<Shared<T>>,
    seen: u64,
}

pub(crate) struct Ref<'a, T>(RwLockReadGuard<'a, T>);

impl<T> Deref for Ref<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Shared<T> {
    fn read(&self) -> RwLockReadGuard<'_, T> {
        self.value.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        let wakers =
            std::mem::take(&mut *self.wakers.lock().unwrap_or_else(PoisonError::into_inner));
        wakers.into_iter().for_each(Waker::wake);
    }

    fn receiver(self: &Arc<Self>, seen: u64) -> Receiver<T> {
        self.receivers.fetch_add(1, Ordering::Relaxed);
        Receiver {
            shared: self.clone(),
            seen,
        }
    }
}

impl Watch for Fair {
    type Sender<T: OptionalSend + OptionalSync> = Sender<T>;
    type Receiver<T: OptionalSend + OptionalSync> = Receiver<T>;
    type Ref<'a, T: OptionalSend + 'a> = Ref<'a, T>;

    fn channel<T: OptionalSend + OptionalSync>(init: T) -> (Sender<T>, Receiver<T>) {
        let shared = Arc::new(Shared {
            value: RwLock::new(init),
            version: AtomicU64::new(0),
            wakers: Mutex::default(),
            senders: AtomicUsize::new(1),
            receivers: AtomicUsize::new(0),
        });
        let receiver = shared.receiver(0);
        (Sender(shared), receiver)
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.senders.fetch_add(1, Ordering::Relaxed);
        Self(self.0.clone())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        if self.0.senders.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.wake();
        }
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        self.shared.receiver(self.seen)
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.shared.receivers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<T: OptionalSend + OptionalSync> WatchSender<Fair, T> for Sender<T> {
    fn send(&self, value: T) -> Result<(), SendError<T>> {
        if self.0.receivers.load(Ordering::Relaxed) == 0 {
            return Err(SendError(value));
        }
        self.send_if_modified(|current| {
            *current = value;
            true
        });
        Ok(())
    }

    fn send_if_modified<F: FnOnce(&mut T) -> bool>(&self, modify: F) -> bool {
        let mut value = self.0.value.write().unwrap_or_else(PoisonError::into_inner);
        let modified = modify(&mut value);
        if modified {
            self.0.version.fetch_add(1, Ordering::Release);
        }
        drop(value);
        if modified {
            self.0.wake();
        }
        modified
    }

    fn borrow_watched(&self) -> Ref<'_, T> {
        Ref(self.0.read())
    }

    fn subscribe(&self) -> Receiver<T> {
        self.0.receiver(self.0.version.load(Ordering::Acquire))
    }
}

impl<T: OptionalSend + OptionalSync> WatchReceiver<Fair, T> for Receiver<T> {
    async fn changed(&mut self) -> Result<(), RecvError> {
        poll_fn(|context| {
            let mut wakers = self
                .shared
                .wakers
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let version = self.shared.version.load(Ordering::Acquire);
            if version != self.seen {
                self.seen = version;
                return Poll::Ready(Ok(()));
            }
            if self.shared.senders.load(Ordering::Relaxed) == 0 {
                return Poll::Ready(Err(RecvError(())));
            }
            wakers.push(context.waker().clone());
            Poll::Pending
        })
        .await
    }

    fn borrow_watched(&self) -> Ref<'_, T> {
        Ref(self.shared.read())
    }

    fn borrow_and_update(&mut self) -> Ref<'_, T> {
        self.seen = self.shared.version.load(Ordering::Acquire);
        Ref(self.shared.read())
    }
}

/// Runs `work` in simulated time, which passes when there is nothing to do.
pub(crate) fn simulate<T>(seed: u64, work: impl Future<Output = T>) -> io::Result<T> {
    self::seed(seed);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()?;
    Ok(runtime.block_on(work))
}
