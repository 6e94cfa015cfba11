//! One decision: equal bucket, ask and time give equal answers and equal next states, here and in
//! `decide.lua`, its twin inside Redis; `vectors/` holds both to the same answers. Read the two
//! side by side: same names, same order. They change in the same commit.
//!
//! Every function takes the slot where a store keeps the bucket (`None`: nothing is remembered)
//! and says whether it changed what is in there. A refusal changes nothing but the clock, where that
//! has stepped back.

mod heard;

use std::sync::Arc;

pub use self::heard::{Lowered, Refused, Remaining, UNPROBED_US, lower, passed, refused};
use crate::policy::Gate;
use crate::state::{Bucket, Clock, Level, PINNED_US, Probing, State, Suspension, Window};
use crate::{Cost, Micros, Policy};

/// Longest that a step back of the store's clock may pause the refill of a bucket whose calls are
/// all refused.
const PAUSE_MAX_US: Micros = 10_000_000;

/// What one call asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// What it takes of each unit, something at least. Each quota of the policy that binds takes what
    /// is of its own unit.
    pub cost: Cost,
    /// The longest wait the caller would accept, in microseconds. It is all that tells
    /// `try_acquire` (0) from `acquire`.
    pub wait_max_us: Micros,
}

/// The answer to one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// The tokens are taken; the call may go out `wait_us` from now.
    Granted {
        /// Microseconds from now until the call may go out.
        wait_us: Micros,
        /// What to show when looking again or giving back.
        booking: Booking,
        /// Whether it is the one call that goes first in a suspension; see [`probed`].
        probe: bool,
    },
    /// Nothing was taken; alone, the same call would pass at `retry_after_us` from now.
    Denied {
        /// Microseconds from now.
        retry_after_us: Micros,
        /// What refused.
        cause: Cause,
    },
    /// The call can never pass under this policy.
    Never {
        /// The most of its unit that can.
        cost_max: i64,
        /// The quota, from 1, that sets it: of those that are too small the one that holds least.
        quota: usize,
    },
}

/// What refused a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The bucket is suspended.
    Suspended,
    /// The quota, counted from 1, that has room last.
    Quota(usize),
}

/// Equal calls asked for one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group {
    /// What each of them asks for.
    pub ask: Ask,
    /// How many they are, at least 1.
    pub calls: i64,
}

/// The answer to many calls at once: what asking for them one by one at the same moment would
/// have given, up to the first that was not granted. With no calls at all it only looks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// The bucket's clock as it was found.
    pub sight: Sight,
    /// The [`Booking::before`] of the first call granted; each later one's is the `due` of the one
    /// before it.
    pub before: Micros,
    /// What was granted, in the order of the calls.
    pub runs: Vec<Run>,
    /// Whether the first of them is the one call that goes first in a suspension, and so at once.
    pub probe: bool,
    /// Why the next call was not; those behind it were not decided. Never a grant.
    pub stopped: Option<Decision>,
}

/// Calls granted for one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// The moment, on the bucket's clock.
    pub due: Micros,
    /// How many calls.
    pub calls: i64,
}

/// What an operation found the bucket's clock to be: enough to say of every booking whether it
/// still stands and when it is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sight {
    /// The store's time.
    pub now: Micros,
    /// The bucket's.
    pub bucket_time: Micros,
    /// What is left of a suspension, 0 without one.
    pub left: Micros,
    /// Whether one call may go before it is over; where it was granted that, it is taken.
    pub probing: Probing,
    /// When the bucket or its policy began, on the store's clock; `None` where there is none, and
    /// so no booking stands.
    pub made: Option<Micros>,
}

/// A granted place. Its holder may look whether it still stands, or give it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Booking {
    /// What was taken.
    pub cost: Cost,
    /// When, on the store's clock, it was granted; see [`Sight::granted_at`].
    pub granted_at: Micros,
    /// The moment, on the bucket's clock, it was granted for.
    pub due: Micros,
    /// The earliest moment it could have been due at: what was booked before it, or the bucket's
    /// time when it was granted.
    pub before: Micros,
}

/// What became of a booking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It stands, and is due in so many microseconds; 0 means now.
    Due(Micros),
    /// A new policy (or a new bucket) made it void; its tokens are not held.
    Void,
}

/// The answer to who asks to go first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probed {
    /// Whether it goes.
    pub goes: bool,
    /// The bucket's clock as it is now.
    pub sight: Sight,
}

/// A bucket as an onlooker sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    /// The store's time.
    pub now: Micros,
    /// What is remembered, if anything.
    pub bucket: Option<Bucket>,
}

/// Answers one call, creating the bucket from `policy` where there is none.
pub fn take(slot: &mut Option<Bucket>, policy: &Arc<Policy>, ask: Ask, now: Micros) -> Decision {
    match slot {
        Some(Bucket { policy: Some(stored), state, .. }) => take_from(stored, state, ask, now),
        _ => {
            let mut started = slot.clone().unwrap_or_else(|| Bucket::without_policy(now));
            started.adopt(policy, now);
            let decision = take_from(policy, &mut started.state, ask, now);
            if matches!(decision, Decision::Granted { .. }) {
                *slot = Some(started);
            }
            decision
        }
    }
}

fn take_from(policy: &Policy, state: &mut State, ask: Ask, now: Micros) -> Decision {
    let clock = state.clock.seen_at(now);
    let before = clock.bucket_time(now).max(state.at);
    match earliest_of_all(policy, state, clock, ask, now) {
        Err(refused) => {
            // A step back is kept only by who writes, and then it pauses the refill for as long as
            // it was. A long one is made good at once, or a full bucket would stand still.
            if state.clock.seen - now > PAUSE_MAX_US {
                state.keep(clock);
            }
            refused
        }
        Ok((due, probe)) => {
            charge_all(policy, state, ask.cost, 1, due);
            let wait_us = if probe { 0 } else { due - clock.bucket_time(now) + clock.left(now) };
            state.keep(if probe { clock.taken() } else { clock });
            let booking = Booking { cost: ask.cost, granted_at: now, due, before };
            Decision::Granted { wait_us, booking, probe }
        }
    }
}

/// When one call is due and whether it goes first in a suspension, or why it is not granted.
fn earliest_of_all(
    policy: &Policy,
    state: &State,
    clock: Clock,
    ask: Ask,
    now: Micros,
) -> Result<(Micros, bool), Decision> {
    let bucket_time = clock.bucket_time(now);
    let left = clock.left(now);
    let at = state.at;

    if !policy.holds(ask.cost) {
        let gates = policy.gates().iter().enumerate();
        let too_small = gates.filter(|(_, gate)| ask.cost.tokens(gate.of()) > gate.most());
        if let Some((index, gate)) = too_small.min_by_key(|(_, gate)| gate.most()) {
            return Err(Decision::Never { cost_max: gate.most(), quota: index + 1 });
        }
    }
    let t0 = bucket_time.max(at);
    let (mut due, mut quota) = (t0, 1);
    for (index, (gate, level)) in policy.gates().iter().zip(&state.levels).enumerate() {
        let earliest = earliest(gate, level, ask.cost.tokens(gate.of()), at, t0);
        if earliest > due {
            (due, quota) = (earliest, index + 1);
        }
    }
    let ahead = due - bucket_time;
    let probe = clock.may_probe(ahead, now);
    // Windows count the time until one may go first as passed, and take that back where somebody ends
    // it early: nothing is booked on it.
    let windows = || policy.gates().iter().any(|gate| matches!(gate, Gate::Window { .. }));
    let is_early = matches!(clock.probing(now), Probing::Open(1..)) && windows();
    if !probe && (is_early || ahead + left > ask.wait_max_us) {
        let cause = if left > 0 { Cause::Suspended } else { Cause::Quota(quota) };
        return Err(Decision::Denied { retry_after_us: clock.passes_in(ahead, now), cause });
    }
    Ok((due, probe))
}

/// Takes `cost` of so many calls from all quotas at `due`.
fn charge_all(policy: &Policy, state: &mut State, cost: Cost, calls: i64, due: Micros) {
    for (gate, level) in policy.gates().iter().zip(&mut state.levels) {
        charge(gate, level, calls * cost.tokens(gate.of()), state.at, due);
    }
    state.at = due;
}

/// Answers many calls at once, in order, up to the first that is not granted.
pub fn batch(
    slot: &mut Option<Bucket>,
    policy: &Arc<Policy>,
    groups: &[Group],
    now: Micros,
) -> Batch {
    match slot {
        Some(Bucket { policy: Some(stored), state, .. }) => batch_from(stored, state, groups, now),
        _ if groups.is_empty() => {
            let found = slot.as_ref().map_or(Clock::at(now), |it| it.state.clock).seen_at(now);
            let sight = Sight::of(found, None, now);
            let before = sight.bucket_time;
            Batch { sight, before, runs: Vec::new(), probe: false, stopped: None }
        }
        _ => {
            let mut started = slot.clone().unwrap_or_else(|| Bucket::without_policy(now));
            started.adopt(policy, now);
            let batch = batch_from(policy, &mut started.state, groups, now);
            if !batch.runs.is_empty() {
                *slot = Some(started);
            }
            batch
        }
    }
}

fn batch_from(policy: &Policy, state: &mut State, groups: &[Group], now: Micros) -> Batch {
    let mut clock = state.clock.seen_at(now);
    let sight = Sight::of(clock, Some(state.made_at(now)), now);
    let before = sight.bucket_time.max(state.at);
    let mut batch = Batch { sight, before, runs: Vec::new(), probe: false, stopped: None };
    'groups: for group in groups {
        let mut calls = group.calls;
        while calls > 0 {
            let (due, probe) = match earliest_of_all(policy, state, clock, group.ask, now) {
                Ok(place) => place,
                Err(refused) => {
                    batch.stopped = Some(refused);
                    break 'groups;
                }
            };
            let cost = group.ask.cost;
            charge_all(policy, state, cost, 1, due);
            // How many more fit at the same moment; they are taken in one step.
            let gates = policy.gates().iter().zip(&state.levels);
            let fits = gates.map(|(gate, level)| fits(gate, level, cost.tokens(gate.of())));
            let mut more = fits.min().unwrap_or(0).min(calls - 1);
            if probe {
                // Only the first call can be: whoever is behind it is due no sooner. It goes alone.
                clock = clock.taken();
                (batch.probe, batch.sight.probing, more) = (true, Probing::Taken, 0);
            }
            if more > 0 {
                charge_all(policy, state, cost, more, due);
            }
            match batch.runs.last_mut() {
                Some(run) if run.due == due => run.calls += 1 + more,
                _ => batch.runs.push(Run { due, calls: 1 + more }),
            }
            calls -= 1 + more;
        }
    }
    // Sleepers look by this, and would never be due where nobody made a step back good.
    if !batch.runs.is_empty() || now < state.clock.seen {
        state.keep(clock);
    }
    batch
}

/// How many calls of `cost` one quota has room for at the moment its level is as of.
fn fits(gate: &Gate, level: &Level, cost: i64) -> i64 {
    match (gate, level) {
        _ if cost == 0 => i64::MAX,
        (Gate::Bucket { unit, .. }, Level::Credit(credit)) => credit / (cost * unit),
        (Gate::Window { limit, .. }, Level::Window(window)) => (limit - window.used) / cost,
        _ => 0,
    }
}

impl Batch {
    /// What became of the first call, of `cost`, as [`take`] would tell it; `None` where none was
    /// asked for.
    #[must_use]
    pub fn first(&self, cost: Cost) -> Option<Decision> {
        let Some(Run { due, .. }) = self.runs.first() else { return self.stopped };
        let Self { sight, before, .. } = self;
        let booking = Booking { cost, granted_at: sight.granted_at(), due: *due, before: *before };
        let wait_us = if self.probe { 0 } else { due - sight.bucket_time + sight.left };
        Some(Decision::Granted { wait_us, booking, probe: self.probe })
    }
}

impl Sight {
    /// `clock` is as found at `now`.
    fn of(clock: Clock, made: Option<Micros>, now: Micros) -> Self {
        let (left, probing) = (clock.left(now), clock.probing(now));
        Self { now, bucket_time: clock.bucket_time(now), left, probing, made }
    }

    /// The [`Booking::granted_at`] of what was granted in this operation: after the bucket began
    /// also where the store's clock has stepped back behind that.
    #[must_use]
    pub fn granted_at(&self) -> Micros {
        self.made.map_or(self.now, |made| self.now.max(made + 1))
    }

    /// Whether a booking still stands, and when it is due.
    #[must_use]
    pub fn standing(&self, booking: &Booking) -> Standing {
        match self.made {
            Some(made) if booking.granted_at > made => {
                Standing::Due((booking.due - self.bucket_time + self.left).max(0))
            }
            _ => Standing::Void,
        }
    }
}

/// The earliest moment from `t0` on at which one quota has room; levels are as of `at`.
fn earliest(gate: &Gate, level: &Level, cost: i64, at: Micros, t0: Micros) -> Micros {
    match (gate, level) {
        // It takes nothing, so it waits for nothing, however full a new policy found the quota.
        _ if cost == 0 => t0,
        (Gate::Bucket { rate, unit, .. }, Level::Credit(credit)) => {
            let short = cost * unit - credit_at(*credit, gate, t0 - at);
            if short <= 0 { t0 } else { t0 + (short + rate - 1) / rate }
        }
        (Gate::Window { limit, span_us, .. }, Level::Window(window)) => {
            // Leave out the oldest until the call fits; those that have left by t0 go for free.
            let (mut used, mut earliest) = (window.used, t0);
            for (time, tokens) in &window.entries {
                let leaves = time + span_us;
                if leaves > t0 {
                    if used + cost <= *limit {
                        break;
                    }
                    earliest = leaves;
                }
                used -= tokens;
            }
            earliest
        }
        // State and policy are written together, so their shapes agree.
        _ => t0,
    }
}

/// Takes `cost` from one quota at `due`. Where that is nothing a level is only carried there.
fn charge(gate: &Gate, level: &mut Level, cost: i64, at: Micros, due: Micros) {
    match (gate, level) {
        (Gate::Bucket { unit, .. }, Level::Credit(credit)) => {
            *credit = credit_at(*credit, gate, due - at) - cost * unit;
        }
        (Gate::Window { .. }, Level::Window(_)) if cost == 0 => {}
        (Gate::Window { span_us, chunk, .. }, Level::Window(window)) => {
            while window.entries.front().is_some_and(|(time, _)| time + span_us <= due) {
                window.pop();
            }
            window.push(due, cost, *chunk);
        }
        _ => {}
    }
}

/// A token bucket's credit `elapsed` microseconds on.
fn credit_at(credit: i64, gate: &Gate, elapsed: Micros) -> i64 {
    match gate {
        Gate::Bucket { rate, capacity, .. } => {
            // Past 2^63 the bucket is full many times over.
            credit.saturating_add(elapsed.saturating_mul(*rate)).min(*capacity)
        }
        Gate::Window { .. } => credit,
    }
}

/// Gives a booking back that was not used. What has since been refilled, or may have run over
/// the brim, is not handed out twice: a token bucket gets back the cost less what the rate has
/// brought since the booking's moment. Says whether anything was given back.
pub fn give_back(slot: &mut Option<Bucket>, booking: Booking, now: Micros) -> bool {
    let Some(bucket) = slot.as_mut() else { return false };
    let Some(policy) = bucket.policy.as_deref() else { return false };
    let state = &mut bucket.state;
    if booking.granted_at <= state.made_at(now) || booking.due > state.at {
        return false;
    }
    let clock = state.clock.seen_at(now);
    let (at, aged) = (state.at, state.aged);
    // A booking at the bucket's moment takes that back with it, though never before the one that
    // came before it, nor before now. Not where there is a window: it has forgotten what had left
    // by then.
    let windows = policy.gates().iter().any(|gate| matches!(gate, Gate::Window { .. }));
    let last = booking.due == at && !windows;
    let back_to = if last { at.min(clock.bucket_time(now).max(booking.before)) } else { at };
    for (gate, level) in policy.gates().iter().zip(&mut state.levels) {
        let cost = booking.cost.tokens(gate.of());
        match (gate, level) {
            (Gate::Bucket { rate, unit, capacity, .. }, Level::Credit(credit)) => {
                let refilled = (at - booking.due).saturating_mul(*rate);
                let back = cost.saturating_mul(*unit).saturating_sub(refilled).max(0);
                // As of an earlier moment the credit may be negative, where another booking of
                // the same moment stands.
                let earned = (at - back_to).saturating_mul(*rate);
                *credit = credit.saturating_add(back).min(*capacity).saturating_sub(earned);
            }
            // Once its span is over, its tokens have left the window by themselves.
            (Gate::Window { span_us, .. }, Level::Window(window))
                if booking.due + span_us > at && booking.due > aged =>
            {
                window.take_out(booking.due, cost);
            }
            _ => {}
        }
    }
    state.at = back_to;
    state.keep(clock);
    true
}

/// The answer to a booking's call has come, so the call had arrived: from now on its tokens leave
/// each window the plain interval after now. Until then they stay for interval and guard after
/// their grant, in case the answer is long on its way; so a guard as long as a call can last costs
/// no more than what calls really last. Says whether anything changed.
pub fn answered(slot: &mut Option<Bucket>, booking: Booking, now: Micros) -> bool {
    let Some(bucket) = slot.as_mut() else { return false };
    let Some(policy) = bucket.policy.as_deref() else { return false };
    let state = &mut bucket.state;
    if booking.granted_at <= state.made_at(now) {
        return false;
    }
    let clock = state.clock.seen_at(now);
    let mut moved = 0;
    for (gate, level) in policy.gates().iter().zip(&mut state.levels) {
        if let (Gate::Window { span_us, interval_us, chunk, .. }, Level::Window(window)) =
            (gate, level)
            && span_us > interval_us
            // Else it may have left, and what is there is somebody else's.
            && booking.due + span_us > state.at
            && booking.due > state.aged
        {
            let time = clock.bucket_time(now) - (span_us - interval_us);
            let cost = booking.cost.tokens(gate.of());
            moved += window.move_to(time, booking.due, cost, *chunk);
        }
    }
    if moved > 0 {
        state.keep(clock);
    }
    moved > 0
}

/// Stops the bucket for everybody until the later of the present end and `now + for_us`; what is
/// left of it, in microseconds. A name without a bucket can be suspended too.
///
/// With some `patience_us`, as after an answer, one call goes first at that end, and the others
/// wait for what comes of it, for `patience_us` at most. The provider goes on counting meanwhile, so
/// windows count the time until then as passed; token buckets stand still, and nothing rushes out. It never goes before an end that was told
/// without patience. A suspension while that call is under way takes back what it would have told.
pub fn suspend(
    slot: &mut Option<Bucket>,
    for_us: Micros,
    patience_us: Micros,
    why: Suspension,
    now: Micros,
) -> Micros {
    let state = &mut slot.get_or_insert_with(|| Bucket::without_policy(now)).state;
    let mut clock = state.clock.seen_at(now);
    let end = now + for_us;
    let taken = clock.probing(now) == Probing::Taken;
    let suspended = clock.is_suspended();
    let told = if clock.probe != 0 { clock.probe } else { clock.until };
    let known = if !suspended || taken { now } else { told };
    // Once the one call is under way, only what is told from now on holds.
    let later = !suspended || taken || end > told;
    if !suspended {
        clock.since = now;
    }
    if patience_us == 0 && (end > clock.until || end == clock.until && clock.probe != 0) {
        // From now on nobody knows what the provider counts.
        if let Probing::Open(open @ 1..) = clock.probing(now) {
            state.age(clock.bucket_time(now), -open);
        }
        (clock.probe, clock.until) = (0, end);
    } else if patience_us == 0 && clock.probe != 0 && later {
        clock.probe = end;
    } else if patience_us > 0 && (clock.probe != 0 || later) {
        clock.probe = if later { end } else { clock.probe };
        clock.until = clock.until.max(clock.probe + patience_us);
    }
    if later {
        state.suspension = Some(why);
    }
    if patience_us > 0 && clock.probe > known {
        state.age(clock.bucket_time(now), clock.probe - known);
    }
    state.keep(clock);
    clock.told_left(now)
}

/// Who has a place asks to be the one call that goes first in a suspension, with that place.
pub fn probe(slot: &mut Option<Bucket>, booking: Booking, now: Micros) -> Probed {
    let Some(bucket) = slot.as_mut() else {
        return Probed { goes: false, sight: Sight::of(Clock::at(now), None, now) };
    };
    let state = &mut bucket.state;
    let made = bucket.policy.is_some().then(|| state.made_at(now));
    let mut clock = state.clock.seen_at(now);
    let goes = made.is_some_and(|made| booking.granted_at > made)
        && clock.may_probe((booking.due - clock.bucket_time(now)).max(0), now);
    if goes {
        clock = clock.taken();
        state.keep(clock);
    }
    Probed { goes, sight: Sight::of(clock, made, now) }
}

/// What came of the one call that went first: it passed, and the others follow at once, in their
/// order and paced; or with some `patience_us` it was not made after all, and another may go, for
/// whose answer the others wait so long at most. Nothing where a refusal or an operator has
/// suspended since. Says whether anything changed.
pub fn probed(slot: &mut Option<Bucket>, patience_us: Micros, now: Micros) -> bool {
    let Some(bucket) = slot.as_mut() else { return false };
    let state = &mut bucket.state;
    let mut clock = state.clock.seen_at(now);
    if clock.probing(now) != Probing::Taken {
        return false;
    }
    if patience_us == 0 {
        clock.end_suspension(now);
    } else {
        clock.probe = now;
        clock.until = clock.until.max(now + patience_us);
    }
    state.keep(clock);
    true
}

/// Ends a suspension at once. Says whether there was one.
pub fn resume(slot: &mut Option<Bucket>, now: Micros) -> bool {
    let Some(bucket) = slot.as_mut() else { return false };
    let state = &mut bucket.state;
    let mut clock = state.clock.seen_at(now);
    let was = clock.is_suspended();
    if was {
        // Windows have been told of time that does not pass now.
        if let Probing::Open(open @ 1..) = clock.probing(now) {
            state.age(clock.bucket_time(now), -open);
        }
        clock.end_suspension(now);
    }
    state.keep(clock);
    was
}

/// Gives the bucket a new policy, from the next call on for everybody: what was left is kept and
/// cut to the new burst, bookings not due yet are void, equal quotas change nothing of the state.
/// Says whether anything changed.
pub fn set(slot: &mut Option<Bucket>, policy: &Arc<Policy>, pinned: bool, now: Micros) -> bool {
    let mut keep_us = if pinned { PINNED_US } else { policy.idle_us() };
    let bucket = slot.get_or_insert_with(|| Bucket::without_policy(now));
    let old = bucket.policy.replace(Arc::clone(policy));
    let old_gates = old.as_deref().map(Policy::gates).unwrap_or_default();
    let new_gates = policy.gates();
    let equal = old_gates == new_gates;
    if equal && bucket.is_pinned() {
        // Workers that set at start-up what an operator pinned do not unpin it.
        keep_us = PINNED_US;
    }
    let kept = std::mem::replace(&mut bucket.keep_us, keep_us);
    if equal {
        return kept != keep_us || old.as_deref() != Some(&**policy);
    }

    let state = &mut bucket.state;
    let clock = state.clock.seen_at(now);
    let bucket_time = clock.bucket_time(now);
    state.levels = successors(old_gates, new_gates)
        .into_iter()
        .zip(new_gates)
        .map(|(from, gate)| match from {
            Some(from) => carry(&old_gates[from], &state.levels[from], gate, state.at, bucket_time),
            None => Level::fresh(gate),
        })
        .collect();
    state.at = bucket_time;
    state.keep(clock);
    state.made = now.max(state.made + 1);
    true
}

/// As [`set`], where the bucket's policy still is `expected` and is not pinned: whoever changed it
/// meanwhile knows better.
pub fn set_if(
    slot: &mut Option<Bucket>,
    expected: &Policy,
    policy: &Arc<Policy>,
    now: Micros,
) -> bool {
    let stands = slot.as_ref().is_some_and(|bucket| {
        bucket.keep_us == expected.idle_us() && bucket.policy.as_deref() == Some(expected)
    });
    stands && set(slot, policy, false, now)
}

/// For each new quota the old one it goes on from: first one of the same shape, unit and interval, in
/// order, then one of the same shape and unit.
fn successors(old: &[Gate], new: &[Gate]) -> Vec<Option<usize>> {
    let mut from = vec![None; new.len()];
    let mut used = vec![false; old.len()];
    for same_interval in [true, false] {
        for (index, gate) in new.iter().enumerate() {
            if from[index].is_some() {
                continue;
            }
            let fits = |other: &Gate| {
                std::mem::discriminant(gate) == std::mem::discriminant(other)
                    && gate.of() == other.of()
                    && (!same_interval || gate.interval_us() == other.interval_us())
            };
            if let Some(found) = (0..old.len()).find(|&i| !used[i] && fits(&old[i])) {
                from[index] = Some(found);
                used[found] = true;
            }
        }
    }
    from
}

/// What is left of one quota under the one that follows it.
fn carry(old: &Gate, level: &Level, new: &Gate, at: Micros, bucket_time: Micros) -> Level {
    match (old, level, new) {
        (
            Gate::Bucket { unit: unit_old, .. },
            Level::Credit(credit),
            Gate::Bucket { unit: unit_new, capacity, .. },
        ) => {
            if at > bucket_time {
                return Level::Credit(0);
            }
            // Negative where a booking ahead stands, which is void.
            let credit = credit_at(*credit, old, bucket_time - at).max(0);
            let scaled =
                (i128::from(credit) * i128::from(*unit_new)).div_euclid(i128::from(*unit_old));
            // What does not fit is cut to the capacity.
            Level::Credit(i64::try_from(scaled).unwrap_or(i64::MAX).min(*capacity))
        }
        (
            Gate::Window { chunk: chunk_old, .. },
            Level::Window(window),
            Gate::Window { chunk, .. },
        ) => {
            let mut kept = Window::default();
            let mut before = Micros::MIN;
            for &(time, tokens) in &window.entries {
                if time <= bucket_time {
                    kept.push(time, tokens, *chunk);
                } else if before <= bucket_time && tokens.min(*chunk_old) > 1 {
                    // Fewer than a chunk of its tokens may be of calls made until now.
                    kept.push(bucket_time, tokens.min(*chunk_old) - 1, *chunk);
                }
                before = time;
            }
            Level::Window(kept)
        }
        _ => Level::fresh(new),
    }
}
