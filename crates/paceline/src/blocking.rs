//! The same limiter for programs without async. One hidden thread runs it; the calls here block
//! the thread they are made on, so do not make them on an async runtime's.
//!
//! ```
//! use paceline::blocking::Limiter;
//!
//! let limiter = Limiter::open("memory:")?;
//! let mail = limiter.bucket("mail", "5/s")?;
//! mail.acquire()?.spend();
//! # Ok::<(), paceline::Error>(())
//! ```

use std::sync::{LazyLock, mpsc};
use std::time::Duration;

use tokio::runtime::{Builder, Handle};

use crate::limiter::LimiterBuilder;
use crate::{Answer, Cost, Error, Examination, IntoPolicy, Permit, Stats, Status, Unit};

/// The hidden thread's runtime. It lives as long as the process.
static RUNTIME: LazyLock<Result<Handle, String>> = LazyLock::new(|| {
    let runtime =
        Builder::new_current_thread().enable_all().build().map_err(|it| it.to_string())?;
    let handle = runtime.handle().clone();
    std::thread::Builder::new()
        .name("paceline".to_owned())
        .spawn(move || runtime.block_on(std::future::pending::<()>()))
        .map_err(|it| it.to_string())?;
    Ok(handle)
});

/// As [`crate::Limiter`], blocking.
#[derive(Debug, Clone)]
pub struct Limiter {
    inner: crate::Limiter,
}

/// As [`crate::Bucket`], blocking.
#[derive(Debug, Clone)]
pub struct Bucket {
    inner: crate::Bucket,
    cost: Cost,
    borrowing: bool,
}

impl Limiter {
    /// As [`crate::Limiter::open`].
    ///
    /// # Errors
    /// As there, and when no thread can be started.
    pub fn open(url: &str) -> Result<Self, Error> {
        Self::build(crate::Limiter::builder(url))
    }

    /// As [`crate::Limiter::from_env`].
    ///
    /// # Errors
    /// As there, and when no thread can be started.
    pub fn from_env() -> Result<Self, Error> {
        Self::build(LimiterBuilder::from_env()?)
    }

    /// Opens what a builder describes.
    ///
    /// # Errors
    /// As [`crate::Limiter::open`], and when no thread can be started.
    pub fn build(builder: LimiterBuilder) -> Result<Self, Error> {
        wait_for(builder.open()).map(|inner| Self { inner })
    }

    /// As [`crate::Limiter::bucket`].
    ///
    /// # Errors
    /// As there.
    pub fn bucket(&self, name: &str, policy: impl IntoPolicy) -> Result<Bucket, Error> {
        Ok(Bucket { inner: self.inner.bucket(name, policy)?, cost: 1.into(), borrowing: false })
    }

    /// As [`crate::Limiter::status`].
    ///
    /// # Errors
    /// As there.
    pub fn status(&self, name: &str) -> Result<Option<Status>, Error> {
        let (inner, name) = (self.inner.clone(), name.to_owned());
        wait_for(async move { inner.status(&name).await })
    }

    /// As [`crate::Limiter::list`].
    ///
    /// # Errors
    /// As there.
    pub fn list(&self) -> Result<Vec<String>, Error> {
        let inner = self.inner.clone();
        wait_for(async move { inner.list().await })
    }

    /// As [`crate::Limiter::examine`].
    ///
    /// # Errors
    /// As there.
    pub fn examine(&self) -> Result<Examination, Error> {
        let inner = self.inner.clone();
        wait_for(async move { inner.examine().await })
    }

    /// As [`crate::Limiter::suspend`].
    ///
    /// # Errors
    /// As there.
    pub fn suspend(&self, name: &str, span: Duration, reason: &str) -> Result<Duration, Error> {
        let (inner, name, reason) = (self.inner.clone(), name.to_owned(), reason.to_owned());
        wait_for(async move { inner.suspend(&name, span, &reason).await })
    }

    /// As [`crate::Limiter::suspend_refused`].
    ///
    /// # Errors
    /// As there.
    pub fn suspend_refused(
        &self,
        name: &str,
        span: Duration,
        reason: &str,
    ) -> Result<Duration, Error> {
        let (inner, name, reason) = (self.inner.clone(), name.to_owned(), reason.to_owned());
        wait_for(async move { inner.suspend_refused(&name, span, &reason).await })
    }

    /// As [`crate::Limiter::resume`].
    ///
    /// # Errors
    /// As there.
    pub fn resume(&self, name: &str) -> Result<bool, Error> {
        let (inner, name) = (self.inner.clone(), name.to_owned());
        wait_for(async move { inner.resume(&name).await })
    }

    /// As [`crate::Limiter::set_policy`].
    ///
    /// # Errors
    /// As there.
    pub fn set_policy(&self, name: &str, policy: impl IntoPolicy) -> Result<bool, Error> {
        let policy = policy.into_policy()?;
        let (inner, name) = (self.inner.clone(), name.to_owned());
        wait_for(async move { inner.set_policy(&name, policy).await })
    }

    /// As [`crate::Limiter::pin_policy`].
    ///
    /// # Errors
    /// As there.
    pub fn pin_policy(&self, name: &str, policy: impl IntoPolicy) -> Result<bool, Error> {
        let policy = policy.into_policy()?;
        let (inner, name) = (self.inner.clone(), name.to_owned());
        wait_for(async move { inner.pin_policy(&name, policy).await })
    }

    /// As [`crate::Limiter::delete`].
    ///
    /// # Errors
    /// As there.
    pub fn delete(&self, name: &str) -> Result<bool, Error> {
        let (inner, name) = (self.inner.clone(), name.to_owned());
        wait_for(async move { inner.delete(&name).await })
    }

    /// As [`crate::Limiter::stats`].
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.inner.stats()
    }
}

impl Bucket {
    /// The same bucket for calls of another cost, as [`crate::Bucket::cost`].
    #[must_use]
    pub fn cost(&self, cost: impl Into<Cost>) -> Self {
        Self { cost: cost.into(), ..self.clone() }
    }

    /// The same bucket for calls that take so much of `unit`, as [`crate::Call::of`].
    #[must_use]
    pub fn of(&self, unit: Unit, amount: u32) -> Self {
        Self { cost: self.cost.and(unit, amount), ..self.clone() }
    }

    /// The same bucket for calls that borrow, as [`crate::Call::borrowing`].
    #[must_use]
    pub fn borrowing(&self) -> Self {
        Self { borrowing: true, ..self.clone() }
    }

    fn call(&self) -> crate::Call<'_> {
        let call = self.inner.cost(self.cost);
        if self.borrowing { call.borrowing() } else { call }
    }

    /// As [`crate::Bucket::acquire`].
    ///
    /// # Errors
    /// As there.
    pub fn acquire(&self) -> Result<Permit, Error> {
        let bucket = self.clone();
        wait_for(async move { bucket.call().acquire().await })
    }

    /// As [`crate::Bucket::acquire_within`].
    ///
    /// # Errors
    /// As there.
    pub fn acquire_within(&self, deadline: Duration) -> Result<Answer, Error> {
        let bucket = self.clone();
        wait_for(async move { bucket.call().acquire_within(deadline).await })
    }

    /// As [`crate::Bucket::try_acquire`].
    ///
    /// # Errors
    /// As there.
    pub fn try_acquire(&self) -> Result<Answer, Error> {
        let bucket = self.clone();
        wait_for(async move { bucket.call().try_acquire().await })
    }

    /// As [`crate::Bucket::run`].
    ///
    /// # Errors
    /// As there; then the call was not made.
    pub fn run<T>(&self, call: impl FnOnce() -> T) -> Result<T, Error> {
        self.acquire()?.spend();
        Ok(call())
    }
}

/// Runs a future on the hidden thread and waits for it.
fn wait_for<T: Send + 'static>(
    future: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<T, Error> {
    let runtime = RUNTIME
        .as_ref()
        .map_err(|error| Error::unavailable(format!("no thread for the blocking face: {error}")))?;
    let (sender, receiver) = mpsc::sync_channel(1);
    runtime.spawn(async move {
        // Nobody waits any more only if the caller's thread is gone.
        let _ = sender.send(future.await);
    });
    receiver.recv().unwrap_or_else(|_| {
        Err(Error::unavailable("the blocking face's thread ended; the call may have been counted"))
    })
}
