//! The store: one bucket, the production decision, and a clock of its own that may step.

use std::sync::Arc;

use super::START;
use paceline_core::{
    Batch, Booking, Bucket, Group, Micros, Policy, Probed, Probing, Sight, Suspension, decide,
};

/// What windows were told of passed time: what was taken until `bucket_time` is so much older.
#[derive(Debug, Clone, Copy)]
pub(super) struct Aged {
    pub(super) bucket_time: Micros,
    pub(super) by_us: Micros,
}

/// The store of one bucket.
#[derive(Debug)]
pub(super) struct Store {
    slot: Option<Bucket>,
    /// What its clock is ahead of true time by steps, and how much faster it runs.
    ahead_us: Micros,
    drift_ppm: Micros,
    /// When, on its clock, the bucket evaporates.
    gone_at: Micros,
}

impl Store {
    pub(super) fn new(drift_ppm: Micros) -> Self {
        Self { slot: None, ahead_us: 0, drift_ppm, gone_at: Micros::MIN }
    }

    pub(super) fn policy(&self) -> Option<Arc<Policy>> {
        self.slot.as_ref().and_then(|bucket| bucket.policy.clone())
    }

    pub(super) fn bucket(&self) -> Option<&Bucket> {
        self.slot.as_ref()
    }

    pub(super) fn batch(&mut self, own: &Arc<Policy>, groups: &[Group], now: Micros) -> Batch {
        self.operate(now, |slot, now| decide::batch(slot, own, groups, now))
    }

    /// What somebody sees who looks at the clock now, and leaves no trace.
    pub(super) fn sight(&self, own: &Arc<Policy>, now: Micros) -> Sight {
        decide::batch(&mut self.slot.clone(), own, &[], self.clock(now)).sight
    }

    pub(super) fn give_back(&mut self, booking: Booking, now: Micros) -> bool {
        self.operate(now, |slot, now| decide::give_back(slot, booking, now))
    }

    pub(super) fn answered(&mut self, booking: Booking, now: Micros) {
        self.operate(now, |slot, now| decide::answered(slot, booking, now));
    }

    /// Whether a place may go first in a suspension.
    pub(super) fn probe(&mut self, booking: Booking, now: Micros) -> Probed {
        self.operate(now, |slot, now| decide::probe(slot, booking, now))
    }

    /// What came of who went first: it passed, or with some patience another may go.
    pub(super) fn probed(&mut self, patience_us: Micros, now: Micros) -> bool {
        self.operate(now, |slot, now| decide::probed(slot, patience_us, now))
    }

    pub(super) fn suspend(&mut self, for_us: Micros, patience_us: Micros, now: Micros) -> Aged {
        let why = Suspension { reason: "a fault".to_owned(), by: String::new() };
        self.aging(now, |slot, now| decide::suspend(slot, for_us, patience_us, why, now))
    }

    pub(super) fn resume(&mut self, now: Micros) -> Aged {
        self.aging(now, decide::resume)
    }

    /// Does what may tell windows of time in which the bucket's clock stands still: until the moment at
    /// which one call may go first.
    fn aging<R>(
        &mut self,
        now: Micros,
        operation: impl FnOnce(&mut Option<Bucket>, Micros) -> R,
    ) -> Aged {
        self.operate(now, |slot, now| {
            // Until when from now windows know of it: a moment that is past where nobody has gone first
            // yet. What a plain suspension lasts for is no time of windows.
            let told = |slot: &Option<Bucket>| {
                let clock = slot.as_ref().map(|it| it.state.clock.seen_at(now));
                clock.map_or((0, false), |clock| match clock.probing(now) {
                    Probing::Open(open) => (open, true),
                    Probing::No => (clock.left(now), false),
                    Probing::Taken => (0, false),
                })
            };
            let (before, was_open) = told(slot);
            operation(slot, now);
            let by_us = match told(slot) {
                (after, true) => (after - before).max(0),
                (_, false) if was_open => -before.max(0),
                (_, false) => 0,
            };
            let bucket_time = slot.as_ref().map_or(0, |it| it.state.clock.bucket_time(now));
            Aged { bucket_time, by_us }
        })
    }

    pub(super) fn set(&mut self, policy: &Arc<Policy>, now: Micros) {
        self.operate(now, |slot, now| decide::set(slot, policy, false, now));
    }

    pub(super) fn step_clock(&mut self, by_us: Micros) {
        self.ahead_us += by_us;
    }

    /// What its clock says at true time `now`.
    fn clock(&self, now: Micros) -> Micros {
        now + self.ahead_us + (now - START) * self.drift_ppm / 1_000_000
    }

    fn operate<R>(
        &mut self,
        now: Micros,
        operation: impl FnOnce(&mut Option<Bucket>, Micros) -> R,
    ) -> R {
        let now = self.clock(now);
        if now >= self.gone_at {
            self.slot = None;
        }
        let result = operation(&mut self.slot, now);
        // As a server does: the expiry counts from the last use, on its own clock.
        self.gone_at = self.slot.as_ref().map_or(Micros::MIN, |it| now + it.lifetime_us(now));
        result
    }
}
