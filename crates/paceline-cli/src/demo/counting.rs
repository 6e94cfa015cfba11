//! How a provider counts. Strictly: what is within the quota passes, what is not does not.

use std::collections::VecDeque;

/// The ways to choose from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    /// At most the limit in any span of the interval
    Sliding,
    /// At most the limit in each interval; when they begin is the provider's secret
    Fixed,
    /// A bucket of a fifth of the limit, which refills the limit in each interval
    Bucket,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sliding => "sliding window",
            Self::Fixed => "fixed window",
            Self::Bucket => "token bucket",
        }
    }
}

/// One quota, counted. Times are microseconds since some moment, and never step back.
#[derive(Debug)]
pub(crate) struct Counting {
    limit: u64,
    interval_us: u64,
    state: State,
}

#[derive(Debug)]
enum State {
    /// When each call of the last interval came.
    Sliding { log: VecDeque<u64> },
    /// How old the first window is at the start, the present one's number, and the calls in it.
    Fixed { age_us: u64, window: u64, count: u64 },
    /// A token is `interval_us` units; each microsecond earns `limit`.
    Bucket { units: u64, at: u64, tokens_max: u64 },
}

impl Counting {
    /// `age_us` is how long ago the first fixed window began.
    pub(crate) fn new(kind: Kind, limit: u64, interval_us: u64, age_us: u64) -> Self {
        let state = match kind {
            Kind::Sliding => State::Sliding { log: VecDeque::new() },
            Kind::Fixed => State::Fixed { age_us, window: 0, count: 0 },
            Kind::Bucket => {
                let tokens_max = (limit / 5).max(1);
                State::Bucket { units: tokens_max * interval_us, at: 0, tokens_max }
            }
        };
        Self { limit, interval_us, state }
    }

    /// Counts a call at `now`, or says in how many microseconds one would pass.
    pub(crate) fn arrive(&mut self, now: u64) -> Result<(), u64> {
        let Self { limit, interval_us, state } = self;
        match state {
            State::Sliding { log } => {
                while log.front().is_some_and(|oldest| oldest + *interval_us <= now) {
                    log.pop_front();
                }
                match log.front() {
                    Some(oldest) if log.len() as u64 >= *limit => Err(oldest + *interval_us - now),
                    _ => {
                        log.push_back(now);
                        Ok(())
                    }
                }
            }
            State::Fixed { age_us, window, count } => {
                let age = now + *age_us;
                if age / *interval_us > *window {
                    (*window, *count) = (age / *interval_us, 0);
                }
                if *count >= *limit {
                    return Err(*interval_us - age % *interval_us);
                }
                *count += 1;
                Ok(())
            }
            State::Bucket { units, at, tokens_max } => {
                *units = (*units + (now - *at) * *limit).min(*tokens_max * *interval_us);
                *at = now;
                match units.checked_sub(*interval_us) {
                    Some(left) => {
                        *units = left;
                        Ok(())
                    }
                    None => Err((*interval_us - *units).div_ceil(*limit)),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000;

    /// Calls at these moments; `Ok`, or when the next would pass.
    #[track_caller]
    fn table(kind: Kind, limit: u64, age_us: u64, rows: &[(u64, Result<(), u64>)]) {
        let mut counting = Counting::new(kind, limit, S, age_us);
        for (now, want) in rows {
            assert_eq!(counting.arrive(*now), *want, "{kind:?} at {now}");
        }
    }

    #[test]
    fn a_sliding_window_lets_the_limit_pass_in_any_span() {
        let rows = [
            (0, Ok(())),
            (900_000, Ok(())),
            (900_001, Err(99_999)),
            (999_999, Err(1)),
            (S, Ok(())),
            (S + 1, Err(899_999)),
            (1_900_000, Ok(())),
        ];
        table(Kind::Sliding, 2, 0, &rows);
    }

    #[test]
    fn a_fixed_window_lets_the_limit_pass_in_each_of_its_own() {
        let rows = [
            (100, Ok(())),
            (999_000, Ok(())),
            (999_999, Err(1)),
            (S, Ok(())),
            (S, Ok(())),
            (S + 1, Err(999_999)),
            (7 * S + 5, Ok(())),
        ];
        table(Kind::Fixed, 2, 0, &rows);
        // Nobody outside knows where its windows begin.
        let rows = [(0, Ok(())), (599_999, Err(1)), (600_000, Ok(())), (S, Err(600_000))];
        table(Kind::Fixed, 1, 400_000, &rows);
    }

    #[test]
    fn a_bucket_lets_its_size_pass_at_once_and_then_what_it_refills() {
        let rows = [
            (0, Ok(())),
            (0, Ok(())),
            (0, Err(100_000)),
            (99_999, Err(1)),
            (100_000, Ok(())),
            (100_000, Err(100_000)),
            (9 * S, Ok(())),
            (9 * S, Ok(())),
            (9 * S, Err(100_000)),
        ];
        table(Kind::Bucket, 10, 0, &rows);
    }
}
