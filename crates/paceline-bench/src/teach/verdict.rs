//! What the provider's record says of a fleet. A phase lasts from the beginning, or from a change of
//! the limit, to the next: in its first half the fleet may learn, in its second it has to hold.

use super::provider::{Arrival, Verdict};
use super::quota::Quota;

const SECOND_US: i64 = 1_000_000;

/// One phase of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Phase {
    /// Refusals in the first half, and when the last of them came, in seconds from its beginning.
    pub(crate) learning: usize,
    pub(crate) last_s: f64,
    /// Refusals in the second half.
    pub(crate) after: usize,
    /// The fleet's part of what the second client left, in the whole windows of the second half.
    pub(crate) share: f64,
}

/// The phases of a run of so many seconds, before a provider whose first window began so many
/// microseconds before the run.
pub(crate) fn phases(
    arrivals: &[Arrival],
    quota: Quota,
    changes: &[(u64, i64)],
    seconds: u64,
    age_us: i64,
) -> Vec<Phase> {
    let mut begins = vec![(0, quota.limit)];
    begins.extend(changes.iter().map(|(at, limit)| (us(*at), *limit)));
    let ends = begins.iter().skip(1).map(|(at, _)| *at).chain([us(seconds)]);
    let phase = |((from, limit), to)| phase(arrivals, Quota { limit, ..quota }, from, to, age_us);
    begins.iter().copied().zip(ends).map(phase).collect()
}

#[allow(clippy::cast_precision_loss, reason = "figures")]
fn phase(arrivals: &[Arrival], quota: Quota, from: i64, to: i64, age_us: i64) -> Phase {
    let middle = i64::midpoint(from, to);
    // Whole windows, for most of one may be used up at its beginning.
    let window = |at: i64| (at + age_us).div_euclid(quota.interval_us);
    let begin_of = |window: i64| window * quota.interval_us - age_us;
    let (first, last) = (begin_of(window(middle - 1) + 1), begin_of(window(to)));
    let between = |from, to| arrivals.iter().filter(move |it| (from..to).contains(&it.at_us));
    let refused = |it: &&Arrival| it.worker.is_some() && it.verdict == Verdict::Refused;
    let accepted = |it: &&Arrival| it.verdict == Verdict::Accepted;
    let (own, rival): (Vec<&Arrival>, Vec<&Arrival>) =
        between(first, last).filter(accepted).partition(|it| it.worker.is_some());
    let allowed = quota.limit as f64 * (last - first) as f64 / quota.interval_us as f64;
    let last_at = between(from, middle).rfind(refused).map_or(from, |it| it.at_us);
    Phase {
        learning: between(from, middle).filter(refused).count(),
        last_s: (last_at - from) as f64 / SECOND_US as f64,
        after: between(middle, to).filter(refused).count(),
        share: own.len() as f64 / (allowed - rival.len() as f64),
    }
}

/// Calls that went out while a suspension ran that had been told at `told_us` for so many seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Halt {
    /// Within the first 100 ms, and after them.
    pub(crate) at_first: usize,
    pub(crate) later: usize,
    /// When the last of them went out, in microseconds after the telling; 0 where none did.
    pub(crate) last_us: i64,
    /// When the first went out behind its end, in microseconds after the end.
    pub(crate) resumed_us: Option<i64>,
}

/// What came of the refusal out of nowhere, where there was one.
pub(crate) fn halt(arrivals: &[Arrival], span_s: u64) -> Option<Halt> {
    let told_us = arrivals.iter().find(|it| it.verdict == Verdict::Once)?.at_us;
    let end_us = told_us + us(span_s);
    let starts = || arrivals.iter().filter(|it| it.worker.is_some()).map(|it| it.started_us);
    let within = |from, to| starts().filter(move |at| (from..to).contains(at));
    Some(Halt {
        // The call that was refused began before.
        at_first: within(told_us, told_us + 100_000).count(),
        later: within(told_us + 100_000, end_us).count(),
        last_us: within(told_us, end_us).max().map_or(0, |at| at - told_us),
        resumed_us: starts().filter(|at| *at >= end_us).min().map(|at| at - end_us),
    })
}

/// Accepted calls a second, and the longest span in microseconds between two of them.
#[allow(clippy::cast_precision_loss, reason = "figures")]
pub(crate) fn pace(arrivals: &[Arrival], seconds: u64) -> (f64, i64) {
    let accepted: Vec<i64> = arrivals
        .iter()
        .filter(|it| it.verdict == Verdict::Accepted && it.worker.is_some())
        .map(|it| it.at_us)
        .collect();
    let gap = accepted.windows(2).map(|two| two[1] - two[0]).max().unwrap_or_default();
    (accepted.len() as f64 / seconds as f64, gap)
}

fn us(seconds: u64) -> i64 {
    i64::try_from(seconds).unwrap_or(i64::MAX / SECOND_US).saturating_mul(SECOND_US)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::teach::quota::Way;

    fn arrival(at_us: i64, worker: Option<usize>, verdict: Verdict) -> Arrival {
        Arrival { at_us, started_us: at_us - 10, worker, verdict }
    }

    #[test]
    fn a_phase_counts_refusals_by_halves_and_the_share_of_what_the_second_client_leaves() {
        let quota = Quota { way: Way::Fixed, limit: 10, interval_us: 10 * SECOND_US };
        let mut arrivals = vec![
            arrival(1, Some(0), Verdict::Refused),
            arrival(3 * SECOND_US, Some(1), Verdict::Refused),
            arrival(4 * SECOND_US, None, Verdict::Refused),
        ];
        for at in 10..14 {
            arrivals.push(arrival(at * SECOND_US, None, Verdict::Accepted));
        }
        for at in 14..17 {
            arrivals.push(arrival(at * SECOND_US, Some(0), Verdict::Accepted));
        }
        arrivals.push(arrival(19 * SECOND_US, Some(0), Verdict::Refused));
        arrivals.push(arrival(21 * SECOND_US, Some(0), Verdict::Refused));
        let phases = phases(&arrivals, quota, &[(20, 5)], 40, 0);
        assert_eq!(phases[0], Phase { learning: 2, last_s: 3.0, after: 1, share: 0.5 });
        assert_eq!(phases[1], Phase { learning: 1, last_s: 1.0, after: 0, share: 0.0 });
    }

    #[test]
    fn c38_starts_are_counted_from_when_the_refusal_was_told() {
        let mut arrivals = vec![arrival(0, Some(1), Verdict::Accepted)];
        arrivals.push(arrival(1_000, Some(0), Verdict::Once));
        arrivals.push(arrival(50_000, Some(0), Verdict::Accepted));
        arrivals.push(arrival(2_001_020, Some(0), Verdict::Accepted));
        let seen = halt(&arrivals, 2).unwrap();
        assert_eq!((seen.at_first, seen.later, seen.last_us), (1, 0, 48_990));
        assert_eq!(seen.resumed_us, Some(10));
        arrivals.insert(3, arrival(1_500_000, Some(2), Verdict::Accepted));
        let seen = halt(&arrivals, 2).unwrap();
        assert_eq!((seen.later, seen.last_us), (1, 1_498_990));
        assert_eq!(halt(&arrivals[..1], 2), None);
    }
}
