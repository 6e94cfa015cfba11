//! The only file that asks the system for the time, and the only one that sleeps.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use paceline_core::Micros;
use tokio::sync::watch;
use tokio::time::Instant;

/// Where time comes from: the system (and, for decisions in Redis, the server), or a test's hand.
#[derive(Debug, Clone, Default)]
pub(crate) enum Clock {
    #[default]
    System,
    Manual(ManualClock),
}

/// Longest single sleep. After each the wall clock is looked at, so that a machine that was
/// suspended meanwhile goes on at once instead of sleeping the rest again.
const SLICE: Duration = Duration::from_secs(1);

impl Clock {
    /// Microseconds since the Unix epoch.
    pub(crate) fn now(&self) -> Micros {
        match self {
            Self::System => wall(),
            Self::Manual(clock) => clock.now(),
        }
    }

    /// A time that never steps back, for spans within this process.
    pub(crate) fn steady(&self) -> Micros {
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        match self {
            Self::System => {
                Micros::try_from(START.elapsed().as_micros()).unwrap_or(Micros::MAX / 2)
            }
            Self::Manual(clock) => clock.now(),
        }
    }

    /// The time a decision in Redis must take instead of the server's, when replaying.
    pub(crate) fn given(&self) -> Option<Micros> {
        match self {
            Self::System => None,
            Self::Manual(clock) => Some(clock.now()),
        }
    }

    /// Sleeps `us` microseconds, never less of the machine's time awake and asleep together.
    /// Cancel safe.
    pub(crate) async fn sleep(&self, us: Micros) {
        if us <= 0 {
            return;
        }
        match self {
            Self::System => sleep_awake_or_not(micros(us), wall).await,
            Self::Manual(clock) => clock.reaches(clock.now() + us).await,
        }
    }
}

/// Sleeps on two clocks: the monotonic one, which stands still while the machine is suspended, and
/// the wall clock, which does not. Whichever says first that the time is over is believed; who
/// sleeps for a granted place looks again before it goes, so an early wake-up lets nobody through.
async fn sleep_awake_or_not(span: Duration, wall: impl Fn() -> Micros) {
    let end = Instant::now() + span;
    let wall_end = wall() + Micros::try_from(span.as_micros()).unwrap_or(Micros::MAX / 2);
    loop {
        let now = Instant::now();
        // A wall clock set forward by less than a slice is not a suspended machine.
        let overslept = wall() - wall_end > 100_000;
        if now >= end || overslept {
            return;
        }
        tokio::time::sleep_until(end.min(now + SLICE)).await;
    }
}

/// The wall clock; a time before 1970 counts as 1970.
fn wall() -> Micros {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Micros::try_from(since.as_micros()).unwrap_or(Micros::MAX / 2)
}

/// A span in whole microseconds; one that no policy and no wait can have is far beyond all of them.
pub(crate) fn us(span: Duration) -> Micros {
    Micros::try_from(span.as_micros()).unwrap_or(Micros::MAX / 4)
}

/// A span of microseconds as the standard library's; negative is none.
pub(crate) fn micros(us: Micros) -> Duration {
    Duration::from_micros(u64::try_from(us).unwrap_or(0))
}

/// A clock that moves only by hand. Whoever sleeps on it wakes when it has come far enough.
/// Clones share the time.
#[derive(Debug, Clone)]
pub struct ManualClock {
    now: Arc<watch::Sender<Micros>>,
}

impl ManualClock {
    /// A clock that stands at `now_us` microseconds since the Unix epoch.
    #[must_use]
    pub fn at(now_us: i64) -> Self {
        Self { now: Arc::new(watch::Sender::new(now_us)) }
    }

    /// The time in microseconds since the Unix epoch.
    #[must_use]
    pub fn now(&self) -> i64 {
        *self.now.borrow()
    }

    /// Moves the clock forward and wakes who slept until then.
    pub fn advance(&self, by: Duration) {
        let by = us(by);
        self.now.send_modify(|now| *now += by);
    }

    /// Sets the clock, also backwards, as a server's may step.
    pub fn set(&self, now_us: i64) {
        self.now.send_replace(now_us);
    }

    async fn reaches(&self, moment: Micros) {
        let mut watched = self.now.subscribe();
        // The sender is held by `self`, so the wait ends only by the time.
        let _ = watched.wait_for(|now| *now >= moment).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn c07_a_machine_that_was_suspended_does_not_sleep_the_rest_again() {
        // Denied at 0 with 900 s to go; at 60 s the machine sleeps until 7260 s: the wall clock
        // jumps, the monotonic one does not.
        let start = Instant::now();
        let jump = Arc::new(AtomicI64::new(0));
        let seen = Arc::clone(&jump);
        let wall = move || {
            let awake = Micros::try_from(start.elapsed().as_micros()).unwrap();
            awake + seen.load(Ordering::Relaxed)
        };
        let sleeper = tokio::spawn(sleep_awake_or_not(Duration::from_secs(900), wall));
        tokio::time::sleep(Duration::from_secs(60)).await;
        jump.store(7_200_000_000, Ordering::Relaxed);
        sleeper.await.unwrap();
        assert!(start.elapsed() <= Duration::from_secs(61), "{:?}", start.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_sleep_is_never_short_while_the_clocks_agree() {
        let start = Instant::now();
        let wall = move || Micros::try_from(start.elapsed().as_micros()).unwrap();
        sleep_awake_or_not(Duration::from_millis(2_500), wall).await;
        assert!(start.elapsed() >= Duration::from_millis(2_500));
    }
}
