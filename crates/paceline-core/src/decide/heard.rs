//! What a provider's answers do to a bucket beyond stopping it: they may tell that less is left than
//! was reckoned, since others spend the same quota, and they may refuse without saying for how long.

use super::suspend;
use crate::decide::Booking;
use crate::policy::Gate;
use crate::state::{Bare, Bucket, Level, Suspension};
use crate::{EXACT_MAX, Micros, Policy};

/// Entries this close behind what others have spent, as a part of the interval, count with it, so
/// that a window that is corrected by each answer does not grow.
const NEAR: Micros = 64;

/// The patience of a suspension that an answer caused and at whose end nobody has to go first: windows
/// count its time as passed, as in all that answers cause.
pub const UNPROBED_US: Micros = 1;
/// The longest that a suspension is made longer by, where nobody has said how long it is to be.
const AGAIN_MOST_US: Micros = 60_000_000;

/// What an answer says is left of one quota, and which call it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remaining {
    /// The quota, from 1.
    pub quota: usize,
    /// Its interval without the guard. Where the bucket's quota has another, nothing happens.
    pub interval_us: Micros,
    /// Tokens left, at least 0.
    pub tokens: i64,
    /// From now until the provider has counted them anew, at most; at least 0.
    pub resets_in_us: Micros,
    /// By how much sooner that may be as well: what its numbers were rounded by.
    pub blur_us: Micros,
    /// The place of the call that was answered. Places due later have not been counted by the
    /// provider. Without one it has counted all that was due until now.
    pub sent: Option<Booking>,
    /// Calls due within so long go whatever is decided now: those who wait for them hear too late.
    pub unstoppable_us: Micros,
    /// Whether others are known to spend of the same. Without them the bucket itself sees to it that no
    /// more goes than there is.
    pub is_shared: bool,
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lowered {
    /// Tokens that others have taken and the bucket did not know of.
    pub tokens: i64,
    /// How long the bucket is suspended for, because what is left will be taken by calls that nothing
    /// can stop, and those behind them have their places already; 0 where it is not, or was before.
    pub left_us: Micros,
}

/// A provider has said what is left of a quota. Where that is less than the bucket reckons with,
/// the difference was spent by others and counts until the provider's window is over. More never
/// raises it: own calls may be under way, and answers come late and out of order.
///
/// In a window only what was taken since the provider's own began is compared; in a token bucket what
/// has come back since the call is added. An answer to a call under an earlier policy changes nothing.
pub fn lower(slot: &mut Option<Bucket>, said: Remaining, why: Suspension, now: Micros) -> Lowered {
    let mut lowered = Lowered::default();
    let Some(bucket) = slot.as_mut() else { return lowered };
    let Some(policy) = bucket.policy.as_deref() else { return lowered };
    let state = &mut bucket.state;
    if said.sent.is_some_and(|sent| sent.granted_at <= state.made_at(now)) {
        return lowered;
    }
    let clock = state.clock.seen_at(now);
    let bucket_time = clock.bucket_time(now);
    let sent = said.sent.map_or(bucket_time, |sent| sent.due);
    let at = state.at;
    let index = said.quota.wrapping_sub(1);
    let (Some(gate), Some(level)) = (policy.gates().get(index), state.levels.get_mut(index)) else {
        return lowered;
    };
    if gate.interval_us() != said.interval_us {
        return lowered;
    }
    let mut stops = false;
    match (gate, level) {
        (Gate::Bucket { rate, unit, .. }, Level::Credit(credit)) => {
            let since = (at - sent).max(0).saturating_mul(*rate);
            let most = said.tokens.saturating_mul(*unit).saturating_add(since);
            if most < *credit {
                lowered.tokens = (*credit - most + unit - 1) / unit;
                *credit = most;
            }
        }
        (Gate::Window { limit, span_us, chunk, interval_us, .. }, Level::Window(window)) => {
            // In a suspension that time passes before the bucket's clock goes on.
            let resets_in = (said.resets_in_us - clock.told_left(now)).clamp(0, *span_us);
            // No provider counts what is older than its interval.
            let start = bucket_time + (resets_in - said.blur_us).max(0) - span_us;
            let (mut later, mut soon, mut own) = (0, 0, 0);
            for &(time, tokens) in &window.entries {
                if time > sent {
                    later += tokens;
                    if time <= bucket_time + said.unstoppable_us {
                        soon += tokens;
                    }
                }
                if time >= start {
                    own += tokens;
                }
            }
            // An entry that is joined counts as of its newest call, the others may be earlier: some of
            // those behind the answered call are none, and some that are about to go stand later.
            soon = match paced(policy, bucket_time + said.unstoppable_us - sent) {
                i64::MAX => later.min(soon + chunk - 1),
                paced => later.min(paced),
            };
            let later = (later - (chunk - 1)).max(0);
            // What leaves before the last place that is booked is forgotten already, and counts there.
            let forgotten = match at - span_us - start {
                ..=0 => 0,
                forgotten_us => paced(policy, forgotten_us).min((limit - own + later).max(0)),
            };
            let missing = (limit - said.tokens + later - own - forgotten).min(*limit);
            let time = bucket_time + resets_in - span_us;
            if missing > 0 && time + span_us > at {
                window.add(time, missing, *chunk, interval_us / NEAR);
                lowered.tokens = missing;
            }
            // Some more go to others at the same time.
            let theirs = 1 + limit / 100;
            stops = said.is_shared && soon > 0 && said.tokens <= soon + theirs;
        }
        // State and policy are written together, so their shapes agree.
        _ => {}
    }
    if lowered.tokens > 0 {
        state.keep(clock);
    }
    if stops && said.resets_in_us > 0 && !clock.is_suspended() {
        lowered.left_us = suspend(slot, said.resets_in_us, UNPROBED_US, why, now);
    }
    lowered
}

/// The most tokens that the policy's token buckets let through in a span.
fn paced(policy: &Policy, span_us: Micros) -> i64 {
    let most = policy.gates().iter().filter_map(|gate| match *gate {
        Gate::Bucket { rate, unit, capacity, .. } => {
            // Beyond what is counted exactly it is no bound.
            let units = span_us.max(0).saturating_mul(rate);
            (units < EXACT_MAX).then_some(units / unit + capacity / unit)
        }
        Gate::Window { .. } => None,
    });
    most.min().unwrap_or(i64::MAX)
}

/// How many have been refused without a time since somebody passed, and what is left of the
/// suspension that is the answer to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused {
    /// Of them, this one included.
    pub by: usize,
    /// 0 where it goes on.
    pub left_us: Micros,
    /// Whether this is what has stopped the bucket: it was not suspended before.
    pub stops: bool,
}

/// A provider has refused `by` (one target in one process) without saying for how long. One alone
/// may have itself to blame; where several are refused with no success in between, or the one call that
/// goes first at the end of a suspension is, the bucket is suspended for `for_us`, and with patience
/// one call goes first then.
pub fn refused(
    slot: &mut Option<Bucket>,
    by: u32,
    for_us: Micros,
    patience_us: Micros,
    why: Suspension,
    now: Micros,
) -> Refused {
    let state = &mut slot.get_or_insert_with(|| Bucket::without_policy(now)).state;
    state.bare.add(by, now);
    let clock = state.clock.seen_at(now);
    state.keep(clock);
    let by = state.bare.by.len();
    if clock.is_suspended() && clock.probe != 0 {
        // Most likely the one call that went first: as long again as it has lasted.
        let lasted = (now - clock.since).min(AGAIN_MOST_US);
        let left_us = suspend(slot, for_us.max(lasted), patience_us, why, now);
        return Refused { by, left_us, stops: false };
    }
    let stops = by > 1 && !clock.is_suspended();
    let left_us = if by > 1 { suspend(slot, for_us, patience_us, why, now) } else { 0 };
    Refused { by, left_us, stops }
}

/// A call has passed: who was refused without a time before it had only itself to blame. Says whether
/// somebody was.
pub fn passed(slot: &mut Option<Bucket>) -> bool {
    let bare = slot.as_mut().map(|bucket| std::mem::take(&mut bucket.state.bare));
    bare.is_some_and(|bare| bare != Bare::default())
}
