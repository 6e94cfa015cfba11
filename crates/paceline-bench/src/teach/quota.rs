//! How the provider counts, with a limit that may change while it does. The simulator's kinds judge
//! more ways, but cannot tell what is left, and their limit stays.

use std::collections::VecDeque;

/// A way of counting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Windows that begin at a hidden moment.
    Fixed,
    /// Any span of the interval.
    Sliding,
    /// A bucket of the limit's size that refills evenly.
    Bucket,
}

/// What the provider lets pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Quota {
    pub(crate) way: Way,
    pub(crate) limit: i64,
    pub(crate) interval_us: i64,
}

/// Where the count stands, as an answer may tell it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) quota: Quota,
    pub(crate) remaining: i64,
    /// Until the window is over; else until a call may pass where none may, or all is back.
    pub(crate) reset_us: i64,
    /// Until a call would pass; 0 where one would now.
    pub(crate) wait_us: i64,
}

/// The count of one account. Moments are microseconds from 0 and never step back.
#[derive(Debug)]
pub(crate) struct Counter {
    quota: Quota,
    /// How long before moment 0 a window began: the provider's secret.
    age_us: i64,
    window: i64,
    used: i64,
    log: VecDeque<i64>,
    /// What the bucket lacks, in parts of a call of which `interval_us` make one.
    missing: i64,
    at: i64,
}

impl Counter {
    pub(crate) fn new(quota: Quota, age_us: i64) -> Self {
        Self { quota, age_us, window: 0, used: 0, log: VecDeque::new(), missing: 0, at: 0 }
    }

    /// Counts a call, where it may pass.
    pub(crate) fn arrive(&mut self, at: i64) -> bool {
        let may = self.standing(at).remaining > 0;
        if may {
            match self.quota.way {
                Way::Fixed => self.used += 1,
                Way::Sliding => self.log.push_back(at),
                Way::Bucket => self.missing += self.quota.interval_us,
            }
        }
        may
    }

    /// What was used stays used.
    pub(crate) fn set_limit(&mut self, limit: i64, at: i64) {
        self.standing(at);
        self.quota.limit = limit;
        self.missing = self.missing.min(limit * self.quota.interval_us);
    }

    pub(crate) fn standing(&mut self, at: i64) -> Standing {
        let Quota { way, limit, interval_us } = self.quota;
        let (remaining, whole_us, wait_us) = match way {
            Way::Fixed => {
                let age = at + self.age_us;
                if age.div_euclid(interval_us) != self.window {
                    (self.window, self.used) = (age.div_euclid(interval_us), 0);
                }
                let rest = interval_us - age.rem_euclid(interval_us);
                (limit - self.used, rest, rest)
            }
            Way::Sliding => {
                while self.log.front().is_some_and(|oldest| at - oldest >= interval_us) {
                    self.log.pop_front();
                }
                let used = i64::try_from(self.log.len()).expect("few calls");
                let leaves = |call: Option<&i64>| call.map_or(0, |call| call + interval_us - at);
                // A lower limit needs more than one to leave.
                let first = usize::try_from((used - limit).max(0)).expect("not below 0");
                (limit - used, leaves(self.log.back()), leaves(self.log.get(first)))
            }
            Way::Bucket => {
                self.missing = (self.missing - (at - self.at) * limit).max(0);
                let room = limit * interval_us - self.missing;
                let lacks = (interval_us - room).max(0);
                let span = |parts: i64| (parts + limit - 1) / limit;
                (room / interval_us, span(self.missing), span(lacks))
            }
        };
        self.at = at;
        let remaining = remaining.max(0);
        let wait_us = if remaining > 0 { 0 } else { wait_us };
        let reset_us = if remaining > 0 { whole_us } else { wait_us };
        Standing { quota: self.quota, remaining, reset_us, wait_us }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000;

    fn counter(way: Way, limit: i64) -> Counter {
        Counter::new(Quota { way, limit, interval_us: 10 * S }, 4 * S)
    }

    #[track_caller]
    fn stands(counter: &mut Counter, at: i64, remaining: i64, reset_us: i64, wait_us: i64) {
        let standing = counter.standing(at);
        let told = (standing.remaining, standing.reset_us, standing.wait_us);
        assert_eq!(told, (remaining, reset_us, wait_us), "at {at}");
    }

    #[test]
    fn a_fixed_window_ends_at_its_hidden_moment() {
        let mut counter = counter(Way::Fixed, 2);
        assert!(counter.arrive(0) && counter.arrive(5 * S) && !counter.arrive(6 * S - 1));
        stands(&mut counter, 6 * S - 1, 0, 1, 1);
        stands(&mut counter, 6 * S, 2, 10 * S, 0);
    }

    #[test]
    fn any_span_of_the_interval_counts_where_it_slides() {
        let mut counter = counter(Way::Sliding, 2);
        assert!(counter.arrive(0) && counter.arrive(5 * S) && !counter.arrive(10 * S - 1));
        stands(&mut counter, 9 * S, 0, S, S);
        stands(&mut counter, 10 * S, 1, 5 * S, 0);
    }

    #[test]
    fn a_bucket_refills_evenly() {
        let mut counter = counter(Way::Bucket, 2);
        assert!(counter.arrive(0) && counter.arrive(0) && !counter.arrive(5 * S - 1));
        stands(&mut counter, 5 * S - 1, 0, 1, 1);
        stands(&mut counter, 5 * S, 1, 5 * S, 0);
    }

    #[test]
    fn a_lower_limit_binds_at_once_and_what_was_used_stays_used() {
        for way in [Way::Fixed, Way::Sliding, Way::Bucket] {
            let mut counter = counter(way, 10);
            for _ in 0..8 {
                assert!(counter.arrive(1));
            }
            counter.set_limit(4, 2);
            assert!(!counter.arrive(3), "{way:?}");
            counter.set_limit(20, 4);
            assert!(counter.arrive(5), "{way:?}");
        }
    }
}
