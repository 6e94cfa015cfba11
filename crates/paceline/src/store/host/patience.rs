//! How a call waits for a file's lock. A holder keeps it for two microseconds, so trying again at
//! once is nearly always enough; a holder that was stopped keeps it for ever, so after some tries
//! the call sleeps between them, as a task, and after the store's timeout it gives up.
//!
//! The kernel could queue the waiters (`flock` without `LOCK_NB`), but then nothing could end the
//! wait: a signal would need `unsafe`, and a thread for each would cost more than the decision.

use std::time::{Duration, Instant};

/// Tries in a row without giving the processor away, and with; after a sleep, fewer.
const SPINS: u32 = 40;
const YIELDS: u32 = 20;
const TRIES_AFTER_SLEEP: u32 = 8;
/// Sleeps between the later tries, doubling; the timer's own grain is a millisecond.
const SLEEP_MIN: Duration = Duration::from_millis(1);
const SLEEP_MAX: Duration = Duration::from_millis(4);

/// One call's patience.
#[derive(Debug)]
pub(super) struct Patience {
    timeout: Duration,
    /// Since the first time the lock was found taken; the usual call reads no clock.
    since: Option<Instant>,
    sleep: Duration,
}

impl Patience {
    pub(super) fn new(timeout: Duration) -> Self {
        Self { timeout, since: None, sleep: SLEEP_MIN }
    }

    /// Tries `take` until it gives something: often at first, a few times after each sleep, so that
    /// many waiters of one process do not keep its threads busy.
    pub(super) fn try_take<T, E>(
        &self,
        mut take: impl FnMut() -> Result<Option<T>, E>,
    ) -> Result<Option<T>, E> {
        if let Some(taken) = take()? {
            return Ok(Some(taken));
        }
        let rounds = if self.since.is_none() { SPINS + YIELDS } else { TRIES_AFTER_SLEEP };
        for round in 0..rounds {
            if round < SPINS {
                for _ in 0..16 {
                    std::hint::spin_loop();
                }
            } else {
                std::thread::yield_now();
            }
            if let Some(taken) = take()? {
                return Ok(Some(taken));
            }
        }
        Ok(None)
    }

    /// Sleeps a little; `false` when the patience is at its end.
    pub(super) async fn sleep(&mut self) -> bool {
        let since = *self.since.get_or_insert_with(Instant::now);
        let Some(left) = self.timeout.checked_sub(since.elapsed()) else { return false };
        tokio::time::sleep(self.sleep.min(left)).await;
        self.sleep = (self.sleep * 2).min(SLEEP_MAX);
        true
    }
}
