//! Takes down what happens in a run. A call costs a few additions and eight bytes; percentiles are
//! exact, from all waits, and reckoned once, at the end.

use paceline_core::Micros;

use super::{Bin, Report, Waits};
use crate::Scenario;

/// A chart with more columns than this is read no better.
const BINS_MAX: Micros = 60;

/// Takes down what happens in a run. Moments are microseconds since it began.
#[derive(Debug)]
pub struct Recorder {
    policy: String,
    provider: crate::ProviderSpec,
    seed: u64,
    callers: usize,
    measured_from_us: Micros,
    bin_us: Micros,
    waits: Vec<Micros>,
    by_process: Vec<u64>,
    bins: Vec<Bin>,
    accepted_measured: u64,
    store_operations: u64,
}

impl Recorder {
    /// A recorder for a run of this scenario.
    #[must_use]
    pub fn new(scenario: &Scenario) -> Self {
        Self {
            policy: scenario.policy.to_string(),
            provider: scenario.provider,
            seed: scenario.seed,
            callers: scenario.callers,
            measured_from_us: 0,
            bin_us: bin_for(scenario.duration_us),
            waits: Vec::new(),
            by_process: vec![0; scenario.processes],
            bins: Vec::new(),
            accepted_measured: 0,
            store_operations: 0,
        }
    }

    /// Leaves what comes before this moment out of the share of the quota: a start is not what
    /// goes on.
    #[must_use]
    pub fn measured_from(self, measured_from_us: Micros) -> Self {
        Self { measured_from_us, ..self }
    }

    /// A process has asked the store for something.
    pub fn asked_store(&mut self) {
        self.store_operations += 1;
    }

    /// A call of this process, which had waited so long for its permit, has reached the provider.
    ///
    /// # Panics
    /// When the scenario has no such process.
    pub fn call(&mut self, process: usize, waited_us: Micros, arrived_at: Micros, accepted: bool) {
        self.waits.push(waited_us);
        self.by_process[process] += 1;
        let bin_us = self.bin_us;
        let index = usize::try_from(arrived_at / bin_us).unwrap_or(0);
        while self.bins.len() <= index {
            self.bins.push(Bin { from_us: 0, accepted: 0, refused: 0 });
        }
        let bin = &mut self.bins[index];
        if accepted {
            bin.accepted += 1;
            self.accepted_measured += u64::from(arrived_at >= self.measured_from_us);
        } else {
            bin.refused += 1;
        }
    }

    /// The report of a run that ended at this moment.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "far below 2^53 calls")]
    pub fn finish(mut self, ended_at: Micros) -> Report {
        let calls = self.waits.len() as u64;
        // The last bins may have seen nothing, and are shown all the same.
        let last = usize::try_from((ended_at - 1).max(0) / self.bin_us).unwrap_or(0);
        let bins = self.bins.len().max(last + 1);
        self.bins.resize(bins, Bin { from_us: 0, accepted: 0, refused: 0 });
        let mut from_us = 0;
        for bin in &mut self.bins {
            bin.from_us = from_us;
            from_us += self.bin_us;
        }
        let mut report = Report {
            policy: self.policy,
            provider: self.provider.to_string(),
            limit: self.provider.limit(),
            interval_us: self.provider.interval_us(),
            seed: self.seed,
            processes: self.by_process.len(),
            callers: self.callers,
            simulated_us: ended_at,
            measured_from_us: self.measured_from_us,
            calls,
            refused: self.bins.iter().map(|bin| bin.refused).sum(),
            share: 0.0,
            waits: waits(&mut self.waits),
            store_operations: self.store_operations,
            operations_per_call: match calls {
                0 => 0.0,
                calls => self.store_operations as f64 / calls as f64,
            },
            fairness: jain(&self.by_process),
            fewest: self.by_process.iter().copied().min().unwrap_or(0),
            most: self.by_process.iter().copied().max().unwrap_or(0),
            bin_us: self.bin_us,
            bins: self.bins,
        };
        let allowed = report.allowed_in(ended_at - self.measured_from_us);
        if allowed > 0.0 {
            report.share = self.accepted_measured as f64 / allowed;
        }
        report
    }
}

/// The shortest bin of a round length (1, 2 or 5 times a power of ten) with which a run has at most
/// [`BINS_MAX`] of them.
fn bin_for(duration_us: Micros) -> Micros {
    let fits = |bin: Micros| duration_us <= bin.saturating_mul(BINS_MAX);
    let powers = (3..=16).map(|power| 10_i64.pow(power));
    powers
        .flat_map(|power| [power, 2 * power, 5 * power])
        .find(|bin| fits(*bin))
        .unwrap_or(Micros::MAX)
}

fn waits(waits: &mut [Micros]) -> Waits {
    waits.sort_unstable();
    // The wait that `part` of a hundred did not exceed.
    let percentile = |part: usize| {
        let rank = (waits.len() * part).div_ceil(100);
        waits.get(rank.saturating_sub(1)).copied().unwrap_or(0)
    };
    Waits {
        p50_us: percentile(50),
        p90_us: percentile(90),
        p99_us: percentile(99),
        max_us: percentile(100),
    }
}

/// Jain's index: the square of the sum over the count times the sum of squares.
#[allow(clippy::cast_precision_loss, reason = "far below 2^53 calls")]
fn jain(counts: &[u64]) -> f64 {
    let sum: f64 = counts.iter().map(|count| *count as f64).sum();
    let squares: f64 = counts.iter().map(|count| (*count as f64).powi(2)).sum();
    // Where nobody made a call, all made as many.
    if squares == 0.0 { 1.0 } else { sum * sum / (counts.len() as f64 * squares) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorder(duration_us: Micros, processes: usize) -> Recorder {
        let scenario = Scenario {
            duration_us,
            processes,
            ..Scenario::new("50/s".parse().unwrap(), "sliding 10/s".parse().unwrap())
        };
        Recorder::new(&scenario)
    }

    #[test]
    fn calls_are_counted_by_bin_and_by_process() {
        let mut recorder = recorder(60_000_000, 3);
        for (process, arrived_at, accepted) in
            [(0, 0, true), (0, 999_999, false), (2, 1_000_000, true), (2, 3_500_000, true)]
        {
            recorder.asked_store();
            recorder.call(process, 0, arrived_at, accepted);
        }
        recorder.asked_store();
        let report = recorder.finish(5_000_000);
        assert_eq!((report.calls, report.refused, report.fewest, report.most), (4, 1, 0, 2));
        assert_eq!(report.operations_per_call, 1.25);
        let bins: Vec<_> =
            report.bins.iter().map(|bin| (bin.from_us, bin.accepted, bin.refused)).collect();
        let second = 1_000_000;
        assert_eq!(
            bins,
            [(0, 1, 1), (second, 1, 0), (2 * second, 0, 0), (3 * second, 1, 0), (4 * second, 0, 0)]
        );
    }

    #[test]
    fn the_share_is_what_passed_of_what_the_limit_allows_over_the_time_measured() {
        // Ten a second are allowed, and half of that comes, once a warm-up of a second is over.
        let mut warm = recorder(11_000_000, 1).measured_from(1_000_000);
        let mut whole = recorder(11_000_000, 1);
        for recorder in [&mut warm, &mut whole] {
            for n in 0..50 {
                recorder.call(0, 0, 1_000_000 + n * 200_000, true);
                recorder.call(0, 0, 1_000_000 + n * 200_000, false);
            }
        }
        assert_eq!(warm.finish(11_000_000).share, 0.5);
        assert_eq!(whole.finish(11_000_000).share, 50.0 / 110.0);
    }

    #[test]
    fn a_percentile_is_a_wait_that_happened() {
        let mut recorder = recorder(1_000_000, 1);
        // From long to short, so that it is not their order.
        for waited in (1..=1_000).rev() {
            recorder.call(0, waited, 0, true);
        }
        let waits = recorder.finish(1_000_000).waits;
        assert_eq!(waits, Waits { p50_us: 500, p90_us: 900, p99_us: 990, max_us: 1_000 });
    }

    #[test]
    fn a_run_without_calls_has_a_report() {
        let report = recorder(10_000_000, 2).finish(10_000_000);
        assert_eq!((report.calls, report.share, report.operations_per_call), (0, 0.0, 0.0));
        assert_eq!((report.waits, report.fairness), (Waits::default(), 1.0));
        assert_eq!(report.bins.len(), 50);
    }

    #[test]
    fn fairness_is_one_for_equals_and_one_nth_where_one_has_all() {
        assert_eq!(jain(&[7, 7, 7, 7]), 1.0);
        assert_eq!(jain(&[12, 0, 0, 0]), 0.25);
        assert_eq!(jain(&[3, 1]), 0.8);
    }

    #[test]
    fn bins_are_round_and_at_most_sixty() {
        let second = 1_000_000;
        for (duration, bin) in [
            (1, 1_000),
            (60_000, 1_000),
            (60_001, 2_000),
            (60 * second, second),
            (61 * second, 2 * second),
            (600 * second, 10 * second),
            (86_400 * second, 2_000 * second),
        ] {
            assert_eq!(bin_for(duration), bin, "{duration}");
        }
    }
}
