//! For tests of programs that use Paceline, as for our own: a clock moved by hand, a memory store
//! on it, and decisions without waiting.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), paceline::Error> {
//! use std::time::Duration;
//! use paceline::testing::{ManualClock, memory};
//!
//! let clock = ManualClock::at(1_790_000_000_000_000);
//! let limiter = memory(&clock).await?;
//! let bucket = limiter.bucket("mail", "1/h")?;
//! bucket.acquire().await?.spend();
//! assert!(!bucket.try_acquire().await?.is_granted());
//! clock.advance(Duration::from_secs(3_600));
//! bucket.try_acquire().await?.permit().expect("an hour has passed").spend();
//! # Ok(()) }
//! ```

use std::sync::Arc;
use std::time::Duration;

pub use paceline_core::{Ask, Cause, Decision};

pub use crate::clock::ManualClock;
use crate::clock::micros;
use crate::error::Error;
use crate::limiter::Limiter;
use crate::{Policy, name};

/// A limiter of its own on a memory store that takes its time, and its sleeps, from `clock`.
///
/// # Errors
/// None today; opening a store may fail in general.
pub async fn memory(clock: &ManualClock) -> Result<Limiter, Error> {
    Limiter::builder("memory:").manual_clock(clock.clone()).open().await
}

/// Makes one decision without waiting for what it grants: what `acquire` asks of the store. What
/// is granted is spent.
///
/// # Errors
/// When the name is not allowed or the store does not answer.
pub async fn decide(
    limiter: &Limiter,
    name: &str,
    policy: &Arc<Policy>,
    ask: Ask,
) -> Result<Decision, Error> {
    name::check(name)?;
    let shared = limiter.shared();
    Ok(shared.told(name, shared.store.take(name, policy, ask).await)?.decision)
}

/// Suspends for a span that may be nothing, as a replayed trace does; what is left.
///
/// # Errors
/// As [`Limiter::suspend`].
pub async fn suspend(limiter: &Limiter, name: &str, for_us: i64) -> Result<Duration, Error> {
    limiter.suspend(name, micros(for_us), "replay").await
}
