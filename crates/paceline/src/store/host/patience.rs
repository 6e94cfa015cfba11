//! How a call waits for a file's lock. A holder keeps it for two microseconds, so trying again at
//! once is nearly always enough. Where several processes do nothing but ask, short naps between
//! tries give each its turn (measured with four on two cores: the longest wait 20 ms with naps,
//! over 100 ms with yielding alone). A holder that was stopped keeps the lock for ever, so after
//! a millisecond or two the call sleeps between its tries, as a task, and after the store's timeout
//! it gives up; and as long as nobody of this process has got the lock again, others who come go
//! to sleep at once.
//!
//! The kernel could queue the waiters (`flock` without `LOCK_NB`), but then nothing could end the
//! wait: a signal would need `unsafe`, and a thread for each would cost more than the decision.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Tries in a row without giving the processor away.
const SPINS: u32 = 20;
/// Naps between the next tries. The kernel makes about 70 us of each.
const NAPS: u32 = 20;
const NAP: Duration = Duration::from_micros(20);
/// Tries after a sleep, and where the lock is known to be stuck.
const TRIES_IF_STUCK: u32 = 8;
/// Sleeps between the later tries, doubling; the timer's own grain is a millisecond.
const SLEEP_MIN: Duration = Duration::from_millis(1);
const SLEEP_MAX: Duration = Duration::from_millis(2);

/// One call's patience.
#[derive(Debug)]
pub(super) struct Patience {
    timeout: Duration,
    /// Since the first time the lock was found taken; the usual call reads no clock.
    since: Option<Instant>,
    sleep: Duration,
}

/// Whether a lock was last found taken for longer than somebody would wait awake.
#[derive(Debug, Default)]
pub(super) struct Stuck(AtomicBool);

impl Patience {
    pub(super) fn new(timeout: Duration) -> Self {
        Self { timeout, since: None, sleep: SLEEP_MIN }
    }

    /// Tries `take` until it gives something, for a millisecond or two at most.
    pub(super) fn try_take<T, E>(
        &self,
        stuck: &Stuck,
        mut take: impl FnMut() -> Result<Option<T>, E>,
    ) -> Result<Option<T>, E> {
        if let Some(taken) = take()? {
            stuck.set(false);
            return Ok(Some(taken));
        }
        let awake = self.since.is_none() && !stuck.0.load(Ordering::Relaxed);
        let rounds = if awake { SPINS + NAPS } else { TRIES_IF_STUCK };
        for round in 0..rounds {
            if round < SPINS {
                // About as long as the try itself.
                for _ in 0..16 {
                    std::hint::spin_loop();
                }
            } else {
                std::thread::sleep(NAP);
            }
            if let Some(taken) = take()? {
                stuck.set(false);
                return Ok(Some(taken));
            }
        }
        stuck.set(true);
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

impl Stuck {
    fn set(&self, stuck: bool) {
        // Reading is shared, writing is not.
        if self.0.load(Ordering::Relaxed) != stuck {
            self.0.store(stuck, Ordering::Relaxed);
        }
    }
}
