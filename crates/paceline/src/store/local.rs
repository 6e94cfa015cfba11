//! What memory and host have in common: both hand the bucket itself to the decision, and keep it
//! where the decision changed it.

use std::sync::Arc;

use paceline_core::decide;
use paceline_core::{
    Ask, Booking, Bucket, Decision, Group, Look, Lowered, Micros, Policy, Probed, Refused,
    Remaining, Suspension,
};

use super::{Batched, Taken};
use crate::error::Error;

/// Whether an operation changed the bucket, so that it must be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    Unchanged,
    Changed,
}

impl Change {
    fn when(changed: bool) -> Self {
        if changed { Self::Changed } else { Self::Unchanged }
    }
}

/// A store that lends the bucket out under its lock.
pub(crate) trait Local {
    /// Runs `operation` on the bucket of that name, alone, with the store's time. What has
    /// evaporated is `None`. The slot is kept where the operation says it changed it; `None` then
    /// forgets the bucket. `operation` runs at most once.
    async fn update<R: Send>(
        &self,
        name: &str,
        operation: impl FnOnce(&mut Option<Bucket>, Micros) -> (R, Change) + Send,
    ) -> Result<R, Error>;
}

pub(super) async fn take(
    store: &impl Local,
    name: &str,
    policy: &Arc<Policy>,
    ask: Ask,
) -> Result<Taken, Error> {
    let operation = |slot: &mut Option<Bucket>, now| {
        let seen = seen(slot);
        let decision = decide::take(slot, policy, ask, now);
        let policy = other_policy(slot, policy);
        let granted = matches!(decision, Decision::Granted { .. });
        let change = Change::when(granted || seen != self::seen(slot));
        (Taken { decision, policy, doubted: doubted(slot) }, change)
    };
    store.update(name, operation).await
}

pub(super) async fn batch(
    store: &impl Local,
    name: &str,
    policy: &Arc<Policy>,
    groups: &[Group],
) -> Result<Batched, Error> {
    let operation = |slot: &mut Option<Bucket>, now| {
        let seen = seen(slot);
        let batch = decide::batch(slot, policy, groups, now);
        let policy = other_policy(slot, policy);
        let change = Change::when(!batch.runs.is_empty() || seen != self::seen(slot));
        (Batched { batch, policy, doubted: doubted(slot) }, change)
    };
    store.update(name, operation).await
}

/// What the bucket's clock has seen. Who is refused changes it where the clock has stepped back.
fn seen(slot: &Option<Bucket>) -> Option<Micros> {
    slot.as_ref().map(|bucket| bucket.state.clock.seen)
}

/// Whether somebody was refused without a time since somebody passed.
fn doubted(slot: &Option<Bucket>) -> bool {
    slot.as_ref().is_some_and(|bucket| !bucket.state.bare.by.is_empty())
}

/// The bucket's policy where it is another than the caller's own.
fn other_policy(slot: &Option<Bucket>, own: &Arc<Policy>) -> Option<Arc<Policy>> {
    let stored = slot.as_ref().and_then(|bucket| bucket.policy.as_ref());
    stored.filter(|stored| !Arc::ptr_eq(stored, own) && *stored != own).cloned()
}

pub(super) async fn give_back(
    store: &impl Local,
    name: &str,
    booking: Booking,
) -> Result<bool, Error> {
    let operation = |slot: &mut Option<Bucket>, now| {
        let given = decide::give_back(slot, booking, now);
        (given, Change::when(given))
    };
    store.update(name, operation).await
}

pub(super) async fn answered(
    store: &impl Local,
    name: &str,
    booking: Booking,
) -> Result<bool, Error> {
    let operation = |slot: &mut Option<Bucket>, now| {
        let moved = decide::answered(slot, booking, now);
        (moved, Change::when(moved))
    };
    store.update(name, operation).await
}

pub(super) async fn lower(
    store: &impl Local,
    name: &str,
    said: Remaining,
    why: Suspension,
) -> Result<Lowered, Error> {
    let operation = |slot: &mut Option<Bucket>, now| {
        let lowered = decide::lower(slot, said, why, now);
        (lowered, Change::when(lowered != Lowered::default()))
    };
    store.update(name, operation).await
}

pub(super) async fn refused(
    store: &impl Local,
    name: &str,
    by: u32,
    for_us: Micros,
    patience_us: Micros,
    why: Suspension,
) -> Result<Refused, Error> {
    let operation = |slot: &mut Option<Bucket>, now| {
        (decide::refused(slot, by, for_us, patience_us, why, now), Change::Changed)
    };
    store.update(name, operation).await
}

pub(super) async fn passed(store: &impl Local, name: &str) -> Result<bool, Error> {
    let operation = |slot: &mut Option<Bucket>, _| {
        let were = decide::passed(slot);
        (were, Change::when(were))
    };
    store.update(name, operation).await
}

pub(super) async fn suspend(
    store: &impl Local,
    name: &str,
    for_us: Micros,
    patience_us: Micros,
    why: Suspension,
) -> Result<Micros, Error> {
    let operation = |slot: &mut Option<Bucket>, now| {
        (decide::suspend(slot, for_us, patience_us, why, now), Change::Changed)
    };
    store.update(name, operation).await
}

pub(super) async fn probe(
    store: &impl Local,
    name: &str,
    booking: Booking,
) -> Result<Probed, Error> {
    let operation = |slot: &mut Option<Bucket>, now| {
        let probed = decide::probe(slot, booking, now);
        (probed, Change::when(probed.goes))
    };
    store.update(name, operation).await
}

pub(super) async fn probed(
    store: &impl Local,
    name: &str,
    patience_us: Micros,
) -> Result<bool, Error> {
    let operation = |slot: &mut Option<Bucket>, now| {
        let changed = decide::probed(slot, patience_us, now);
        (changed, Change::when(changed))
    };
    store.update(name, operation).await
}

pub(super) async fn resume(store: &impl Local, name: &str) -> Result<bool, Error> {
    let operation = |slot: &mut Option<Bucket>, now| {
        let was = decide::resume(slot, now);
        (was, Change::when(slot.is_some()))
    };
    store.update(name, operation).await
}

pub(super) async fn set(
    store: &impl Local,
    name: &str,
    policy: &Arc<Policy>,
    pinned: bool,
) -> Result<bool, Error> {
    let operation = |slot: &mut Option<Bucket>, now| {
        let changed = decide::set(slot, policy, pinned, now);
        (changed, Change::when(changed))
    };
    store.update(name, operation).await
}

pub(super) async fn set_if(
    store: &impl Local,
    name: &str,
    expected: &Policy,
    policy: &Arc<Policy>,
) -> Result<bool, Error> {
    let operation = |slot: &mut Option<Bucket>, now| {
        let changed = decide::set_if(slot, expected, policy, now);
        (changed, Change::when(changed))
    };
    store.update(name, operation).await
}

pub(super) async fn look(store: &impl Local, name: &str) -> Result<Look, Error> {
    let operation =
        |slot: &mut Option<Bucket>, now| (Look { now, bucket: slot.clone() }, Change::Unchanged);
    store.update(name, operation).await
}

pub(super) async fn delete(store: &impl Local, name: &str) -> Result<bool, Error> {
    let operation = |slot: &mut Option<Bucket>, _| (slot.take().is_some(), Change::Changed);
    store.update(name, operation).await
}
