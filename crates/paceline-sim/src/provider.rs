//! How a provider counts. Strictly: what is within the quota passes, what is not does not.
//!
//! Nobody outside knows which of these ways a provider uses, so a policy that is to be safe must
//! be safe before all of them. Each way has a file and two verbs: in how many microseconds a call
//! would pass, and counting one that does. All arithmetic is in whole microseconds.

mod bucket;
mod concurrency;
mod counter;
mod first;
mod fixed;
mod kind;
mod leaky;
mod sliding;
mod spacing;
mod spec;

use paceline_core::Micros;

use self::bucket::Bucket;
use self::concurrency::Concurrency;
use self::counter::{Counter, Rounding};
use self::first::First;
use self::fixed::Fixed;
pub use self::kind::Kind;
use self::leaky::Leaky;
use self::sliding::Sliding;
use self::spacing::Spacing;
pub use self::spec::{ProviderError, ProviderSpec};

/// One quota, counted as its [`ProviderSpec`] says, with the ban that a call beyond it brings.
///
/// ```
/// use paceline_sim::{Provider, ProviderSpec};
///
/// let spec: ProviderSpec = "sliding 2/s ban 30s".parse()?;
/// let mut provider = Provider::new(&spec, 0);
/// assert_eq!(provider.arrive(0), Ok(()));
/// assert_eq!(provider.arrive(100), Ok(()));
/// assert_eq!(provider.arrive(200), Err(30_000_000));
/// assert_eq!((provider.accepted(), provider.refused()), (2, 1));
/// # Ok::<(), paceline_sim::ProviderError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Provider {
    counting: Counting,
    ban_us: Micros,
    banned_until: Micros,
    /// The latest moment seen.
    now: Micros,
    accepted: u64,
    refused: u64,
}

#[derive(Debug, Clone)]
enum Counting {
    Sliding(Sliding),
    Fixed(Fixed),
    First(First),
    Counter(Counter),
    Bucket(Bucket),
    Leaky(Leaky),
    Spacing(Spacing),
    Concurrency(Concurrency),
}

impl Provider {
    /// A provider that has not been called yet. `age_us` is its secret: how long before moment 0
    /// one of its windows began, for those kinds whose windows or ticks have a beginning.
    #[must_use]
    pub fn new(spec: &ProviderSpec, age_us: Micros) -> Self {
        let (limit, interval_us, capacity) = (spec.limit(), spec.interval_us(), spec.capacity());
        let age_us = age_us.rem_euclid(interval_us);
        let counting = match spec.kind() {
            Kind::Sliding => Counting::Sliding(Sliding::new(limit, interval_us)),
            Kind::Fixed => Counting::Fixed(Fixed::new(limit, interval_us, age_us)),
            Kind::First => Counting::First(First::new(limit, interval_us)),
            Kind::Counter => {
                Counting::Counter(Counter::new(limit, interval_us, age_us, Rounding::Down))
            }
            Kind::CounterUp => {
                Counting::Counter(Counter::new(limit, interval_us, age_us, Rounding::Up))
            }
            Kind::Bucket => Counting::Bucket(Bucket::new(limit, interval_us, capacity)),
            Kind::Leaky => Counting::Leaky(Leaky::new(limit, interval_us, capacity, age_us)),
            Kind::Spacing => Counting::Spacing(Spacing::new(limit, interval_us)),
            Kind::Concurrency => Counting::Concurrency(Concurrency::new(limit, interval_us)),
        };
        Self {
            counting,
            ban_us: spec.ban_us(),
            banned_until: Micros::MIN,
            now: 0,
            accepted: 0,
            refused: 0,
        }
    }

    /// Judges a call that arrives at `at` and counts it, or says in how many microseconds one
    /// would pass. Moments count from 0; one before an earlier one counts as that one.
    ///
    /// # Errors
    /// When the call is refused, which is what a 429 is. Where the provider bans, the ban begins
    /// with it; calls refused during a ban do not lengthen it.
    pub fn arrive(&mut self, at: Micros) -> Result<(), u64> {
        let at = at.max(self.now);
        self.now = at;
        let own = self.counting.wait(at);
        let banned = if at < self.banned_until {
            self.banned_until - at
        } else if own > 0 && self.ban_us > 0 {
            self.banned_until = at + self.ban_us;
            self.ban_us
        } else {
            0
        };
        // Whoever would pass at a moment would pass at any later one, too, so the later of the
        // two is exact.
        let wait = own.max(banned);
        if wait > 0 {
            self.refused += 1;
            return Err(wait.unsigned_abs());
        }
        self.counting.take(at);
        self.accepted += 1;
        Ok(())
    }

    /// An accepted call has been answered at `at`. Only a provider that counts calls under way
    /// takes notice.
    pub fn done(&mut self, at: Micros) {
        self.now = self.now.max(at);
        if let Counting::Concurrency(counting) = &mut self.counting {
            counting.done();
        }
    }

    /// Calls that passed.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.accepted
    }

    /// Calls that did not.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
    }
}

impl Counting {
    /// In how many microseconds from `at` a call would pass: 0 where it would now.
    fn wait(&mut self, at: Micros) -> Micros {
        match self {
            Self::Sliding(it) => it.wait(at),
            Self::Fixed(it) => it.wait(at),
            Self::First(it) => it.wait(at),
            Self::Counter(it) => it.wait(at),
            Self::Bucket(it) => it.wait(at),
            Self::Leaky(it) => it.wait(at),
            Self::Spacing(it) => it.wait(at),
            Self::Concurrency(it) => it.wait(at),
        }
    }

    /// Counts a call at `at`, where `wait` has just said 0.
    fn take(&mut self, at: Micros) {
        match self {
            Self::Sliding(it) => it.take(at),
            Self::Fixed(it) => it.take(),
            Self::First(it) => it.take(at),
            Self::Counter(it) => it.take(),
            Self::Bucket(it) => it.take(),
            Self::Leaky(it) => it.take(),
            Self::Spacing(it) => it.take(at),
            Self::Concurrency(it) => it.take(at),
        }
    }
}

/// `count` times `each` over `parts`, rounded up; wide enough for any limit and interval.
fn scaled_up(count: i64, each: i64, parts: i64) -> i64 {
    let wide = i128::from(count) * i128::from(each);
    let parts = i128::from(parts);
    i64::try_from((wide + parts - 1).div_euclid(parts)).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod testing {
    use super::*;

    /// One second.
    pub(super) const S: Micros = 1_000_000;

    /// Calls at these moments; `Ok`, or when the next would pass.
    #[track_caller]
    pub(super) fn table(spec: &str, age_us: Micros, rows: &[(Micros, Result<(), u64>)]) {
        let mut provider = Provider::new(&spec.parse().unwrap(), age_us);
        for (at, want) in rows {
            assert_eq!(provider.arrive(*at), *want, "{spec} at {at}");
        }
        let passed = rows.iter().filter(|(_, want)| want.is_ok()).count() as u64;
        assert_eq!(provider.accepted(), passed);
        assert_eq!(provider.refused(), rows.len() as u64 - passed);
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{S, table};

    #[test]
    fn a_ban_refuses_everything_from_the_refusal_on_and_is_not_lengthened() {
        let second = 1_000_000_u64;
        let rows = [
            (0, Ok(())),
            // What began the ban.
            (1, Err(5 * second)),
            (4 * S, Err(second + 1)),
            (5 * S, Err(1)),
            (5 * S + 1, Ok(())),
            // A new refusal begins a new one.
            (5 * S + 2, Err(5 * second)),
            (10 * S + 2, Ok(())),
        ];
        table("sliding 1/s ban 5s", 0, &rows);
    }

    #[test]
    fn a_ban_shorter_than_the_wait_adds_nothing() {
        let rows = [(0, Ok(())), (10, Err(999_990)), (600_000, Err(400_000)), (S, Ok(()))];
        table("sliding 1/s ban 1ms", 0, &rows);
    }

    #[test]
    fn a_moment_that_steps_back_counts_as_the_latest_seen() {
        table("spacing 1/s", 0, &[(S, Ok(())), (0, Err(1_000_000)), (2 * S, Ok(()))]);
    }
}
