//! What must hold in every run, whatever goes wrong: the properties P1 to P8 of the design as far
//! as a fleet shows them. The decision alone is held to them by its own tests, too.

use std::collections::HashMap;
use std::sync::Arc;

use paceline_core::{
    Batch, Booking, Bucket, Cost, Group, Micros, Policy, Probing, Quota, Shape, Sight, Standing,
    Unit,
};

use super::store::Aged;
use crate::{Report, Scenario, StoreKind};

/// Within this a suspension, a resume or a new policy is known by everybody who waits.
const KNOWN_WITHIN_US: Micros = 100_000;

/// A property that did not hold, with the seed that shows it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{property} broken {at_us} us after the start, seed {seed}: {what}")]
pub struct Broken {
    /// Which of the design's, P1 to P8.
    pub property: &'static str,
    /// What happened.
    pub what: String,
    /// When, in microseconds after the start.
    pub at_us: Micros,
    /// Repeats it, in the same scenario.
    pub seed: u64,
}

/// A bucket before and after an operation.
pub(super) struct Looked<'a> {
    pub(super) before: &'a Option<Bucket>,
    pub(super) after: Option<&'a Bucket>,
}

/// What was booked under one policy: moments, tokens, and what windows had been told of by then.
type Booked = (Arc<Policy>, Vec<(Micros, i64, usize)>);

/// Looks on. Moments are microseconds after the start, except those of bookings.
#[derive(Debug)]
pub(super) struct Checks<'a> {
    scenario: &'a Scenario,
    /// Places nobody gave back, by when their bucket began: its policy, moments and tokens.
    booked: HashMap<Micros, Booked>,
    /// What windows were told of time in suspensions.
    aged: Vec<Aged>,
    /// The last time somebody changed the bucket.
    disturbed_at: Micros,
    /// Whether the store's clock has stepped, and nothing was written since.
    stepped: bool,
    changes: u64,
    /// Until when the others wait for the last call that went first, on the store's clock.
    first_until: Option<Micros>,
    /// Waiters that were refused, and so came again on their own.
    refusals: u64,
    /// The last flight of each process's life that reached the store.
    flights: HashMap<(usize, u64), u64>,
    granted: i64,
    gone: i64,
    back: i64,
    /// Tokens that were granted and led to no call, and why is known.
    spent: i64,
}

impl<'a> Checks<'a> {
    pub(super) fn new(scenario: &'a Scenario) -> Self {
        Self {
            scenario,
            booked: HashMap::new(),
            aged: Vec::new(),
            disturbed_at: Micros::MIN / 2,
            stepped: false,
            changes: 0,
            first_until: None,
            refusals: 0,
            flights: HashMap::new(),
            granted: 0,
            gone: 0,
            back: 0,
            spent: 0,
        }
    }

    pub(super) fn aged(&mut self, aged: Aged) {
        self.aged.push(aged);
    }

    pub(super) fn disturbed(&mut self, at_us: Micros) {
        self.disturbed_at = at_us;
        self.changes += 1;
    }

    pub(super) fn clock_stepped(&mut self, at_us: Micros) {
        self.stepped = true;
        // A bucket may have evaporated by it.
        self.disturbed_at = at_us;
    }

    /// P1 and P8: a call goes only on a place that stands and is due, or as the one that goes first in
    /// a suspension while the others wait for it. What was changed less than
    /// 100 ms ago may not be known yet, and a clock that stepped is made good by the next that
    /// writes.
    pub(super) fn goes(
        &mut self,
        sight: Sight,
        booking: Booking,
        probe: bool,
        at_us: Micros,
    ) -> Result<(), Broken> {
        self.gone += requests(booking.cost);
        if self.stepped || at_us - self.disturbed_at <= KNOWN_WITHIN_US {
            return Ok(());
        }
        if probe {
            let until = sight.now + sight.left;
            if self.first_until.replace(until) == Some(until) {
                return Err(self.broken("P1", "two calls go first".to_owned(), at_us));
            }
            return match sight.probing {
                Probing::Taken if sight.standing(&booking) != Standing::Void => Ok(()),
                probing => {
                    let what = format!("a call goes first on {booking:?}, which is {probing:?}");
                    Err(self.broken("P1", what, at_us))
                }
            };
        }
        // A sight is used for at most 100 ms, in which a slow clock falls behind by this.
        let drift_us = self.scenario.faults.clock_drift_ppm.abs() / 10 + 1;
        match sight.standing(&booking) {
            Standing::Due(early_us) if early_us == 0 || early_us <= drift_us && drift_us > 1 => {
                Ok(())
            }
            standing => {
                let what = format!("a call goes on {booking:?}, which is {standing:?}");
                Err(self.broken("P1", what, at_us))
            }
        }
    }

    /// P2, P4 and P7: what grants nothing changes nothing, every bucket has an end, and no flight
    /// reaches the store twice.
    pub(super) fn answered(
        &mut self,
        (process, life, flight): (usize, u64, u64),
        looked: Looked<'_>,
        batch: &Batch,
        groups: &[Group],
        policy: &Arc<Policy>,
        at_us: Micros,
    ) -> Result<(), Broken> {
        let last = self.flights.insert((process, life), flight).unwrap_or(0);
        if flight <= last {
            let what = format!("flight {flight} of process {process} came after flight {last}");
            return Err(self.broken("P7", what, at_us));
        }
        let Looked { before, after } = looked;
        // A bucket that has evaporated meanwhile was not taken away by who looked, and a step back
        // of the clock is made good by whoever comes first.
        let back = before.as_ref().is_some_and(|it| it.state.clock.seen > batch.sight.now);
        if batch.runs.is_empty() && after.is_some() && !back && before.as_ref() != after {
            let what = format!("{before:?} became {after:?} by an answer without a grant");
            return Err(self.broken("P2", what, at_us));
        }
        if let Some(bucket) = after
            && bucket.lifetime_us(bucket.state.clock.seen) <= 0
        {
            return Err(self.broken("P4", format!("{bucket:?} has no end"), at_us));
        }
        let made = batch.sight.made.unwrap_or(0);
        if batch.runs.is_empty() {
            return Ok(());
        }
        let (_, booked) =
            self.booked.entry(made).or_insert_with(|| (Arc::clone(policy), Vec::new()));
        for (due, cost) in places(batch, groups) {
            self.granted += cost;
            if std::mem::take(&mut self.stepped) {
                self.disturbed_at = at_us;
            }
            booked.push((due, cost, self.aged.len()));
        }
        Ok(())
    }

    /// An answer that never arrives: what it granted is spent.
    pub(super) fn lost(&mut self, batch: &Batch, groups: &[Group]) {
        self.spent += places(batch, groups).map(|(_, cost)| cost).sum::<i64>();
    }

    pub(super) fn refused(&mut self) {
        self.refusals += 1;
    }

    pub(super) fn spent(&mut self, tokens: i64) {
        self.spent += tokens;
    }

    /// P5: who is killed wastes no more than it had booked ahead.
    pub(super) fn killed(&mut self, booked: i64, at_us: Micros) -> Result<(), Broken> {
        self.spent += booked;
        let lookahead = self.scenario.lookahead_us;
        let most = |quota: &Quota| {
            let span_us = i64::try_from(quota.guarded().as_micros()).unwrap_or(i64::MAX);
            let brought = i64::from(quota.limit()).saturating_mul(lookahead) / span_us;
            brought + i64::from(quota.cost_max()) + self.scenario.cost_max
        };
        let most = self.scenario.policy.quotas().iter().map(most).min().unwrap_or(0);
        // Around a step of the clock it may hold places of before and after it.
        let most = if self.scenario.faults.clock_steps > 0 { 2 * most } else { most };
        if booked > most && self.scenario.faults.sets.is_empty() {
            let what = format!("a killed process had booked {booked} tokens, above {most}");
            return Err(self.broken("P5", what, at_us));
        }
        Ok(())
    }

    pub(super) fn given_back(&mut self, booking: Booking) {
        let cost = requests(booking.cost);
        self.back += cost;
        for (made, (_, booked)) in &mut self.booked {
            if *made < booking.granted_at
                && let Some(index) =
                    booked.iter().position(|it| (it.0, it.1) == (booking.due, cost))
            {
                booked.swap_remove(index);
                return;
            }
        }
    }

    /// P3: no span of the bucket's time, and of that which windows count, holds more than its policy
    /// promises. P5: what was granted
    /// became calls, went back or is accounted for; `left` is what processes have booked at the
    /// end. P6: work on the store does not grow with those who wait.
    pub(super) fn at_the_end(
        &mut self,
        left: i64,
        report: &Report,
        at_us: Micros,
    ) -> Result<(), Broken> {
        for (policy, booked) in self.booked.values() {
            for quota in policy.quotas() {
                // A window that counts from answers promises something of arrivals, not of places.
                let of_arrivals = self.scenario.answers && quota.shape() == Shape::Window;
                let counts_at = |&(due, cost, known): &(Micros, i64, usize)| {
                    // Of time that windows were told of after it, what was taken by then is older.
                    let told = self.aged.iter().enumerate();
                    let before = told.filter(|(index, it)| *index < known || it.bucket_time < due);
                    (due + before.map(|(_, it)| it.by_us).sum::<i64>(), cost)
                };
                let mut counted: Vec<_> = match quota.shape() {
                    Shape::Window => booked.iter().map(counts_at).collect(),
                    Shape::TokenBucket { .. } => booked.iter().map(|it| (it.0, it.1)).collect(),
                };
                counted.sort_unstable();
                if !of_arrivals && let Some(what) = excess(quota, &counted) {
                    let broken = format!("{policy}: {what}");
                    return Err(self.broken("P3", broken, at_us));
                }
            }
        }
        let faults = &self.scenario.faults;
        let lost = self.granted - self.gone - self.back - self.spent - left;
        // Stops and steps make sleepers late, and a new policy makes places void; the tokens of
        // answers under way at the end are nobody's yet.
        let exact = faults.stops == 0 && faults.clock_steps == 0 && faults.sets.is_empty();
        let under_way = self.scenario.processes as i64 * self.scenario.cost_max * 256;
        if lost < 0 || exact && lost > under_way {
            let what = format!("{lost} tokens were granted and led to nothing");
            return Err(self.broken("P5", what, at_us));
        }
        let processes = self.scenario.processes as u64;
        let seconds = u64::try_from(at_us / 1_000_000).unwrap_or(0) + 1;
        let looks = match self.scenario.store {
            StoreKind::Redis => 12,
            StoreKind::Host => 24,
        };
        let answers = if self.scenario.answers { report.calls } else { 0 };
        let most = answers
            + 4 * report.calls
            + processes * (seconds * looks + self.changes + 20)
            + 2 * (faults.cancels as u64 + self.refusals);
        // Who may not book ahead has to come for each place when it is free.
        if report.store_operations > most && self.scenario.lookahead_us >= 500_000 {
            let what = format!("{} operations, above {most}", report.store_operations);
            return Err(self.broken("P6", what, at_us));
        }
        Ok(())
    }

    fn broken(&self, property: &'static str, what: String, at_us: Micros) -> Broken {
        Broken { property, what, at_us, seed: self.scenario.seed }
    }
}

/// What a call takes: simulated calls are of requests alone.
pub(super) fn requests(cost: Cost) -> i64 {
    i64::from(cost.of(Unit::Requests))
}

/// The places a batch granted: moments and tokens.
fn places<'a>(batch: &'a Batch, groups: &'a [Group]) -> impl Iterator<Item = (Micros, i64)> + 'a {
    let costs = groups.iter().flat_map(|it| (0..it.calls).map(|_| requests(it.ask.cost)));
    let dues = batch.runs.iter().flat_map(|run| (0..run.calls).map(|_| run.due));
    dues.zip(costs)
}

/// Where sorted places hold more than a quota promises, if they do.
fn excess(quota: &Quota, booked: &[(Micros, i64)]) -> Option<String> {
    let span_us = i64::try_from(quota.guarded().as_micros()).unwrap_or(i64::MAX);
    match quota.shape() {
        Shape::Window => {
            let (mut first, mut sum) = (0, 0);
            for &(due, cost) in booked {
                sum += cost;
                while booked[first].0 + span_us <= due {
                    sum -= booked[first].1;
                    first += 1;
                }
                if sum > i64::from(quota.limit()) {
                    return Some(format!("{sum} tokens within the window that ends at {due}"));
                }
            }
            None
        }
        Shape::TokenBucket { burst } => {
            // A token is `span_us` units, and a microsecond brings `limit`.
            let full = i128::from(burst) * i128::from(span_us);
            let (mut level, mut at) = (full, booked.first()?.0);
            for &(due, cost) in booked {
                level = (level + i128::from(due - at) * i128::from(quota.limit())).min(full);
                level -= i128::from(cost) * i128::from(span_us);
                at = due;
                if level < 0 {
                    return Some(format!("the token bucket is overdrawn at {due}"));
                }
            }
            None
        }
    }
}
