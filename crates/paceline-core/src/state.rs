//! What is remembered of one bucket: plain integers, the suspension included. The policy lives
//! beside the state, so that one process's change binds every process on its next call.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::policy::{Gate, IDLE_DEFAULT_US, WINDOW_ENTRIES_MAX};
use crate::{Micros, Policy, SPAN_MAX_US};

/// A pinned policy outlives the idle bucket by this much: ten years, which is an expiry and yet
/// never comes.
pub const PINNED_US: Micros = SPAN_MAX_US;

/// Most entries of one window: those of whole chunks, and the newest.
const ENTRIES_MAX: usize = WINDOW_ENTRIES_MAX as usize + 1;

/// Refusals without a time that are further apart have nothing to do with each other.
const BARE_APART_US: Micros = 120_000_000;
/// Most who are remembered to have been refused so; two are enough to act.
const BARE_MAX: usize = 8;

/// One bucket as a store keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bucket {
    /// `None` only where a bucket was suspended before anybody gave it a policy; the first call
    /// brings its own.
    pub policy: Option<Arc<Policy>>,
    /// How long it is kept unused, at least: the policy's idle expiry, or [`PINNED_US`].
    pub keep_us: Micros,
    /// What the decision works on.
    pub state: State,
}

/// What the decision reads and writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// The bucket's clock.
    pub clock: Clock,
    /// The moment, on the bucket's clock, that `levels` are as of: the last booking's.
    pub at: Micros,
    /// When, on the store's clock, this bucket or its present policy began. Bookings granted up to
    /// then are void.
    pub made: Micros,
    /// Why and by whom, while suspended.
    pub suspension: Option<Suspension>,
    /// One for each quota of the policy, in its order.
    pub levels: Vec<Level>,
    /// Who was refused without a time since somebody passed.
    pub bare: Bare,
    /// Until when, on the bucket's clock, windows were told of time that passed in a suspension; 0 where
    /// they never were. Which entries hold a place that was due until then is not known any more.
    pub aged: Micros,
}

/// Refusals that stated no time, with no success in between.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bare {
    /// When the last one was, on the store's clock.
    pub at: Micros,
    /// Who was refused: a number for each target in each process.
    pub by: Vec<u32>,
}

/// The bucket's own clock: the store's, minus the time spent suspended. It stands still during a
/// suspension, and the store's steps back are absorbed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clock {
    /// The store's time at the last operation that wrote.
    pub seen: Micros,
    /// Time spent suspended until now; the store's steps back count negative.
    pub paused: Micros,
    /// Start and end of the present suspension on the store's clock; both 0 without one.
    pub since: Micros,
    /// See `since`.
    pub until: Micros,
    /// From when on, while suspended, one call may go first to find out whether the others may
    /// follow; they do at `until` at the latest. 0 where none may; equal to `until` once one has.
    pub probe: Micros,
}

/// Whether one call may go first at the end of a suspension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probing {
    /// Nobody goes before the suspension ends, or there is none.
    No,
    /// One may, in so many microseconds; below 0 since so many. One whose place is ahead of the
    /// bucket's time goes by as much later.
    Open(Micros),
    /// One has gone, and the others wait for its answer.
    Taken,
}

/// Who stopped a bucket and why.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Suspension {
    /// In the words of whoever suspended; may be empty.
    pub reason: String,
    /// Which process or person; may be empty.
    pub by: String,
}

/// How full one quota is, as of [`State::at`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Level {
    /// A token bucket's credit in units of 1/u token.
    Credit(i64),
    /// A window's entries.
    Window(Window),
}

/// What a window holds: who took how much when, oldest first, and the sum.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Window {
    /// Sum of all entries' tokens.
    pub used: i64,
    /// Moments on the bucket's clock and tokens, oldest first.
    pub entries: VecDeque<(Micros, i64)>,
}

impl Bucket {
    /// A bucket nobody has called yet: token buckets full, windows empty.
    #[must_use]
    pub fn new(policy: Arc<Policy>, now: Micros) -> Self {
        let mut bucket = Self::without_policy(now);
        bucket.adopt(&policy, now);
        bucket
    }

    /// A bucket with nothing left: token buckets empty, windows full as of now. For whoever must
    /// go on without knowing what was used, and so reckons with the worst.
    #[must_use]
    pub fn drained(policy: Arc<Policy>, now: Micros) -> Self {
        let mut bucket = Self::new(policy, now);
        let gates = bucket.policy.as_deref().map(Policy::gates).unwrap_or_default();
        for (level, gate) in bucket.state.levels.iter_mut().zip(gates) {
            match (level, gate) {
                (Level::Credit(credit), _) => *credit = 0,
                (Level::Window(window), Gate::Window { limit, chunk, .. }) if *limit > 0 => {
                    window.push(now, *limit, *chunk);
                }
                (Level::Window(_), _) => {}
            }
        }
        bucket
    }

    /// A bucket without a policy, so that even a name nobody has called can be suspended.
    pub(crate) fn without_policy(now: Micros) -> Self {
        let clock = Clock::at(now);
        let state = State {
            clock,
            at: now,
            made: now - 1,
            suspension: None,
            levels: Vec::new(),
            bare: Bare::default(),
            aged: 0,
        };
        Self { policy: None, keep_us: IDLE_DEFAULT_US, state }
    }

    /// Gives a bucket that has no policy its first one, as of `now`.
    pub(crate) fn adopt(&mut self, policy: &Arc<Policy>, now: Micros) {
        self.state.at = self.state.clock.seen_at(now).bucket_time(now);
        self.state.levels = policy.gates().iter().map(Level::fresh).collect();
        self.keep_us = policy.idle_us();
        self.policy = Some(Arc::clone(policy));
    }

    /// How long, in microseconds from `now`, the bucket must be kept: until it is full again, with
    /// all bookings and any suspension over, and at least `keep_us`. Forgetting it after that hands
    /// out nothing early.
    #[must_use]
    pub fn lifetime_us(&self, now: Micros) -> Micros {
        let clock = self.state.clock.seen_at(now);
        let gates = self.policy.as_deref().map(Policy::gates).unwrap_or_default();
        let refill = self
            .state
            .levels
            .iter()
            .zip(gates)
            .map(|(level, gate)| level.refill_us(gate, self.state.at));
        let full_in =
            self.state.at + refill.max().unwrap_or(0) - clock.bucket_time(now) + clock.left(now);
        full_in.max(clock.left(now)).max(self.keep_us)
    }

    /// Whether the policy outlives the idle bucket.
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        self.keep_us >= PINNED_US
    }
}

impl State {
    /// Up to when bookings are void, as an operation at `now` finds it. Where the store's clock has
    /// stepped back those made before are, too: by this clock they could not be told from later
    /// ones. It never steps back itself.
    pub(crate) fn made_at(&self, now: Micros) -> Micros {
        if now < self.clock.seen { self.made.max(self.clock.seen) } else { self.made }
    }

    /// Has windows count the next `by_us` as time that has passed, although the bucket's clock stands
    /// still at `bucket_time`: what was taken until then leaves so much sooner, or later again where it
    /// is negative.
    pub(crate) fn age(&mut self, bucket_time: Micros, by_us: Micros) {
        for level in &mut self.levels {
            if let Level::Window(window) = level
                && !window.entries.is_empty()
            {
                self.aged = bucket_time;
                for (time, _) in &mut window.entries {
                    if *time <= bucket_time {
                        *time = (*time - by_us).min(bucket_time);
                    }
                }
            }
        }
    }

    /// Keeps what an operation that writes found the clock to be.
    pub(crate) fn keep(&mut self, clock: Clock) {
        self.made = self.made_at(clock.seen);
        self.clock = clock;
        if !clock.is_suspended() {
            self.suspension = None;
        }
    }
}

impl Clock {
    /// A clock that starts at `now`.
    pub(crate) fn at(now: Micros) -> Self {
        Self { seen: now, paused: 0, since: 0, until: 0, probe: 0 }
    }

    /// The clock as an operation at `now` finds it: a step back absorbed, a suspension that is
    /// over added to the time paused.
    #[must_use]
    pub fn seen_at(mut self, now: Micros) -> Self {
        if now < self.seen {
            let step = self.seen - now;
            self.paused -= step;
            if self.is_suspended() {
                self.since -= step;
                self.until -= step;
                if self.probe != 0 {
                    self.probe -= step;
                }
            }
        }
        if self.is_suspended() && now >= self.until {
            self.end_suspension(self.until);
        }
        self.seen = now;
        self
    }

    /// Whether a suspension runs.
    #[must_use]
    pub fn is_suspended(&self) -> bool {
        self.until != 0
    }

    /// The bucket's own time when the store's is `now`.
    #[must_use]
    pub fn bucket_time(&self, now: Micros) -> Micros {
        if self.is_suspended() { self.since - self.paused } else { now - self.paused }
    }

    /// What is left of the suspension.
    #[must_use]
    pub fn left(&self, now: Micros) -> Micros {
        if self.is_suspended() { self.until - now } else { 0 }
    }

    /// Whether one call may go first. The clock is as found at `now`.
    #[must_use]
    pub fn probing(&self, now: Micros) -> Probing {
        match self.probe {
            0 => Probing::No,
            taken if taken == self.until => Probing::Taken,
            probe => Probing::Open(probe - now),
        }
    }

    /// Whether a call that is due `ahead` after the bucket's time may be the one that goes first:
    /// as if the clock had gone on at `probe`. So the earliest place goes first, a bucket that has
    /// nothing left at the moment has a first call all the same, and none comes sooner after the
    /// calls before the suspension than without one.
    pub(crate) fn may_probe(&self, ahead: Micros, now: Micros) -> bool {
        matches!(self.probing(now), Probing::Open(open) if open + ahead <= 0)
    }

    /// The clock once the one call has gone.
    pub(crate) fn taken(mut self) -> Self {
        self.probe = self.until;
        self
    }

    /// In how long a call that is due `ahead` after the bucket's time passes, if nobody else calls.
    pub(crate) fn passes_in(&self, ahead: Micros, now: Micros) -> Micros {
        match self.probing(now) {
            Probing::Open(open) if open + ahead < self.left(now) => open + ahead,
            _ => ahead + self.left(now),
        }
    }

    /// What is left of a suspension until the end that was told: of one that is probing, until one
    /// call may go.
    #[must_use]
    pub fn told_left(&self, now: Micros) -> Micros {
        match self.probing(now) {
            Probing::Open(open) => open.max(0),
            Probing::No | Probing::Taken => self.left(now),
        }
    }

    /// Ends the suspension as of `end`; the time it lasted is not the bucket's.
    pub(crate) fn end_suspension(&mut self, end: Micros) {
        self.paused += end - self.since;
        (self.since, self.until, self.probe) = (0, 0, 0);
    }
}

impl Level {
    pub(crate) fn fresh(gate: &Gate) -> Self {
        match gate {
            Gate::Bucket { capacity, .. } => Self::Credit(*capacity),
            Gate::Window { .. } => Self::Window(Window::default()),
        }
    }

    /// Time from `at` until the quota is as if never used.
    fn refill_us(&self, gate: &Gate, at: Micros) -> Micros {
        match (self, gate) {
            (Self::Credit(credit), Gate::Bucket { rate, capacity, .. }) if *rate > 0 => {
                (capacity - credit + rate - 1) / rate
            }
            (Self::Window(window), Gate::Window { span_us, .. }) => {
                window.entries.back().map_or(0, |(newest, _)| newest + span_us - at)
            }
            _ => 0,
        }
    }
}

impl Bare {
    pub(crate) fn add(&mut self, by: u32, now: Micros) {
        if !(0..=BARE_APART_US).contains(&(now - self.at)) {
            self.by.clear();
        }
        self.at = now;
        if !self.by.contains(&by) && self.by.len() < BARE_MAX {
            self.by.push(by);
        }
    }
}

impl Window {
    /// Adds tokens taken at `time`, which is never before the newest entry. An entry of fewer than
    /// `chunk` tokens is joined with them and then counts as of `time`: later than true, so on the
    /// safe side, and by less than `chunk` tokens. All entries but the newest hold at least
    /// `chunk`, so there are never more than limit / chunk + 1.
    pub(crate) fn push(&mut self, time: Micros, tokens: i64, chunk: i64) {
        self.used += tokens;
        match self.entries.back_mut() {
            Some((newest, held)) if *newest == time || *held < chunk => {
                (*newest, *held) = (time, *held + tokens);
            }
            _ => self.entries.push_back((time, tokens)),
        }
    }

    /// Takes tokens of a booking for `due` out of the first entries that can hold them; how many
    /// there were.
    pub(crate) fn take_out(&mut self, due: Micros, tokens: i64) -> i64 {
        self.take_out_where(tokens, |time| time >= due)
    }

    fn take_out_where(&mut self, wanted: i64, holds: impl Fn(Micros) -> bool) -> i64 {
        let mut left = wanted;
        for (time, tokens) in &mut self.entries {
            if holds(*time) {
                let out = left.min(*tokens);
                *tokens -= out;
                left -= out;
            }
        }
        self.entries.retain(|(_, tokens)| *tokens > 0);
        self.used -= wanted - left;
        wanted - left
    }

    /// Counts tokens of a booking for `due` as taken at `time` instead; how many there were. Where
    /// entries stand for several calls, one before it of fewer than `chunk` tokens is joined with them
    /// and then counts as of `time`; and where there would be too many all the same, the two neighbours
    /// with the fewest tokens become one, as of the later. Both err on the safe side.
    pub(crate) fn move_to(&mut self, time: Micros, due: Micros, wanted: i64, chunk: i64) -> i64 {
        let tokens = match chunk {
            // Each entry is of its own moment.
            1 => self.take_out_where(wanted, |at| at == due),
            _ => self.take_out(due, wanted),
        };
        if tokens == 0 {
            return 0;
        }
        self.add(time, tokens, chunk, 0);
        tokens
    }

    /// Adds tokens taken at `time`, wherever that is among the entries. One that is at most `near`
    /// later is joined with them.
    pub(crate) fn add(&mut self, time: Micros, tokens: i64, chunk: i64, near: Micros) {
        self.used += tokens;
        let index = self.entries.partition_point(|(other, _)| *other < time);
        let joined = match self.entries.get_mut(index) {
            Some((other, held)) if *other - time <= near => Some(held),
            _ => match index.checked_sub(1).and_then(|it| self.entries.get_mut(it)) {
                Some((other, held)) if *held < chunk => {
                    *other = time;
                    Some(held)
                }
                _ => None,
            },
        };
        match joined {
            Some(held) => *held += tokens,
            None => self.entries.insert(index, (time, tokens)),
        }
        if self.entries.len() > ENTRIES_MAX {
            let sum = |it: &usize| self.entries[*it].1 + self.entries[it + 1].1;
            let least = (0..self.entries.len() - 1).min_by_key(sum).unwrap_or(0);
            if let Some((_, held)) = self.entries.remove(least) {
                self.entries[least].1 += held;
            }
        }
    }

    /// Forgets the oldest entry.
    pub(crate) fn pop(&mut self) {
        if let Some((_, tokens)) = self.entries.pop_front() {
            self.used -= tokens;
        }
    }
}
