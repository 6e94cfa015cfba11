//! When a call that was refused may go out again: how often, how long after it began, and how large
//! a share of all calls. The share is what keeps a fleet from doubling its load just when a provider
//! asks for less.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use crate::clock::us;
use ::http::{Method, StatusCode};
use paceline_core::Micros;

/// One retry, in the thousandths that the budget counts in.
const ONE: i64 = 1_000;
/// Most retries the budget holds. It begins with as many, so that a program that makes few calls
/// may retry, too.
const BUDGET_MAX: i64 = 10 * ONE;
/// How long after its beginning a call may still be tried again where nothing is said.
const WITHIN_DEFAULT: Duration = Duration::from_secs(60);

/// Whether and how refused requests are tried again.
///
/// Tried again is what the provider refused for its pace and did not execute: any method after a
/// 429, idempotent ones (GET, HEAD, OPTIONS, TRACE, PUT, DELETE) after other refusals such as a 503
/// with `Retry-After`. Each try waits until the told time is over, and takes a permit of its own.
/// Connections that fail are left to others.
///
/// Clones share their budget.
///
/// ```
/// use std::time::Duration;
/// use paceline::http::Retry;
///
/// // Up to twice each, up to two minutes after the first try, and 5 % of all requests.
/// let retry = Retry::times(2).within(Duration::from_secs(120)).share(0.05);
/// ```
#[derive(Debug, Clone)]
#[must_use = "hand it to a layer or a middleware"]
pub struct Retry {
    times: u32,
    within: Micros,
    budget: Arc<Budget>,
}

#[derive(Debug)]
struct Budget {
    /// What each request adds.
    share: i64,
    left: AtomicI64,
}

/// The retries of one request.
#[derive(Debug)]
pub(crate) struct Tries<'a> {
    retry: Option<&'a Retry>,
    left: u32,
    /// When the last try has to be under way, on the steady clock.
    end: Micros,
}

impl Retry {
    /// Up to so many retries of one request, within a minute, and for a tenth of all requests (ten
    /// may be saved up).
    pub fn times(times: u32) -> Self {
        Self { times, within: us(WITHIN_DEFAULT), budget: Arc::new(Budget::of(ONE / 10)) }
    }

    /// How long after a request was made it may go out for the last time. Where the told time is
    /// longer, the answer is handed on at once; where others take the places until then, the request
    /// ends with a refusal.
    pub fn within(mut self, within: Duration) -> Self {
        self.within = us(within);
        self
    }

    /// Retries for each request, on average: 0.1 is a tenth. Cut to 0 to 1; begins a new budget.
    pub fn share(mut self, share: f64) -> Self {
        let share = if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) };
        #[expect(clippy::cast_possible_truncation, reason = "0 to 1000")]
        let share = (share * 1_000.0).round() as i64;
        self.budget = Arc::new(Budget::of(share));
        self
    }
}

impl Budget {
    fn of(share: i64) -> Self {
        Self { share, left: AtomicI64::new(BUDGET_MAX) }
    }

    fn put(&self) {
        // Full is the usual case, and then nothing has to be written.
        if self.left.load(Ordering::Relaxed) < BUDGET_MAX {
            let added = |left: i64| Some((left + self.share).min(BUDGET_MAX));
            let _ = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, added);
        }
    }

    fn take(&self) -> bool {
        let taken = |left: i64| (left >= ONE).then(|| left - ONE);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken).is_ok()
    }
}

impl<'a> Tries<'a> {
    /// Of a request that is made now.
    pub(crate) fn begin(retry: Option<&'a Retry>, now: Micros) -> Self {
        if let Some(retry) = retry {
            retry.budget.put();
        }
        Self {
            retry,
            left: retry.map_or(0, |retry| retry.times),
            end: retry.map_or(now, |retry| now.saturating_add(retry.within)),
        }
    }

    /// Whether a copy of the request may be needed.
    pub(crate) fn has_more(&self) -> bool {
        self.left > 0
    }

    /// Until when the next try may wait, which is no later than `deadline_at`.
    pub(crate) fn end(&self, deadline_at: Option<Micros>) -> Micros {
        deadline_at.map_or(self.end, |at| at.min(self.end))
    }

    /// Takes one retry for a call that was refused and may go out at `again_at`.
    pub(crate) fn take(
        &mut self,
        method: &Method,
        status: StatusCode,
        again_at: Micros,
        deadline_at: Option<Micros>,
    ) -> bool {
        let was_not_executed = status == StatusCode::TOO_MANY_REQUESTS;
        let may = self.left > 0
            && (was_not_executed || method.is_idempotent())
            && again_at <= self.end(deadline_at)
            && self.retry.is_some_and(|retry| retry.budget.take());
        if may {
            self.left -= 1;
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_taken(retry: &Retry, method: &Method, status: u16) -> bool {
        let status = StatusCode::from_u16(status).unwrap();
        Tries::begin(Some(retry), 0).take(method, status, 0, None)
    }

    #[test]
    fn only_what_was_not_executed_or_may_be_executed_twice_goes_again() {
        let retry = Retry::times(1);
        for (method, status, may) in [
            (Method::GET, 429, true),
            (Method::POST, 429, true),
            (Method::GET, 503, true),
            (Method::PUT, 503, true),
            (Method::POST, 503, false),
            (Method::PATCH, 403, false),
        ] {
            assert_eq!(is_taken(&retry, &method, status), may, "{method} {status}");
        }
    }

    #[test]
    fn the_budget_is_ten_and_a_share_of_the_requests() {
        let retry = Retry::times(1).share(0.1);
        let retries = (0..1_000).filter(|_| is_taken(&retry, &Method::GET, 429)).count();
        assert!((108..=110).contains(&retries), "{retries}");
        let none = Retry::times(1).share(f64::NAN);
        assert_eq!((0..100).filter(|_| is_taken(&none, &Method::GET, 429)).count(), 10);
    }

    #[test]
    fn a_retry_that_would_come_too_late_is_not_taken_from_the_budget() {
        let retry = Retry::times(3).within(Duration::from_micros(10)).share(0.0);
        let mut tries = Tries::begin(Some(&retry), 100);
        let status = StatusCode::TOO_MANY_REQUESTS;
        for _ in 0..100 {
            assert!(!tries.take(&Method::GET, status, 111, None));
            assert!(!tries.take(&Method::GET, status, 105, Some(104)));
        }
        assert!(tries.take(&Method::GET, status, 110, None));
        assert_eq!((tries.end(None), tries.end(Some(104)), tries.left), (110, 104, 2));
    }
}
