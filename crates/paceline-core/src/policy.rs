//! The nouns a user writes: [`Quota`] and [`Policy`], with the text form that the command line,
//! configuration, stores and docs share: `50/s burst 10, window 1000/m guard 50ms`.
//!
//! A policy is checked once, when it is made, and compiled into gates: the few integers the
//! decision works with. Whatever was accepted is counted exactly, in Rust and in Lua, in whole
//! microseconds; a rate too fine for its burst is rounded down by at most a millionth, and what is
//! finer still is refused here with words.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::time::Duration;

use crate::duration::{self, Exact};
use crate::script::PolicyArgs;
use crate::unit::{Cost, UNITS, Unit};
use crate::{EXACT_MAX, Micros, SPAN_MAX_US};

/// Most quotas one policy may hold.
pub const QUOTAS_MAX: usize = 8;
/// Largest limit and largest burst.
pub const LIMIT_MAX: u32 = 1_000_000_000;
/// Most entries a window keeps; with a larger limit one entry stands for up to
/// `ceil(limit / 64)` tokens and is held until the youngest of them has left.
pub const WINDOW_ENTRIES_MAX: i64 = 64;
/// How long an idle bucket is kept after it is full again, where the policy does not say.
pub const IDLE_DEFAULT_US: Micros = 3_000_000;
/// See [`Policy::late_max_us`].
pub(crate) const LATE_MAX_US: Micros = 100_000;
const LATE_LEAST_US: Micros = 10_000;
/// The guard of `strict` where none is written: calls that arrive up to 50 ms apart from their
/// grant, and 10 ms for timers and tasks that run late.
pub const STRICT_GUARD_DEFAULT_US: Micros = 60_000;
/// Longest time a token bucket may need from empty to full: a hundred years. Moments plus this
/// stay below 2^53 microseconds.
const FILL_MAX_US: i128 = 36_500 * 86_400 * 1_000_000;
/// From this limit on a policy is slowed in whole tokens.
const WHOLE_ENOUGH: u32 = 20;
/// Shortest interval: a millisecond.
const INTERVAL_MIN_US: Micros = 1_000;

/// One limit: so many tokens per interval, in one of two shapes. A plain description; it becomes
/// binding, and is checked, as part of a [`Policy`].
///
/// ```
/// use paceline_core::{Policy, Quota};
/// use std::time::Duration;
///
/// let policy = Policy::new([
///     Quota::per_second(50).burst(10),
///     Quota::window(1000, Duration::from_secs(60)).guard(Duration::from_millis(50)),
/// ])?;
/// assert_eq!(policy.to_string(), "50/s burst 10, window 1000/m guard 50ms");
/// # Ok::<(), paceline_core::PolicyError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Quota {
    shape: Shape,
    limit: u32,
    interval_us: Micros,
    guard_us: Micros,
    of: Unit,
    /// Somebody gave a window a burst; kept so that the policy can refuse it by name.
    window_burst: bool,
}

/// How a quota counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Shape {
    /// Refills evenly and holds at most `burst`. In any span T it lets through at most
    /// `burst + limit * T / (interval + guard)`.
    TokenBucket {
        /// Capacity in tokens.
        burst: u32,
    },
    /// In any span of `interval + guard` at most `limit`.
    Window,
}

impl Quota {
    /// A token bucket of `limit` tokens in each `interval`, holding up to `limit`.
    #[must_use]
    pub fn per(limit: u32, interval: Duration) -> Self {
        let shape = Shape::TokenBucket { burst: limit };
        let interval_us = micros(interval);
        Self { shape, limit, interval_us, guard_us: 0, of: Unit::Requests, window_burst: false }
    }

    /// `limit` in a second (not one every `limit` seconds).
    #[must_use]
    pub fn per_second(limit: u32) -> Self {
        Self::per(limit, Duration::from_secs(1))
    }

    /// `limit` in a minute.
    #[must_use]
    pub fn per_minute(limit: u32) -> Self {
        Self::per(limit, Duration::from_secs(60))
    }

    /// `limit` in an hour.
    #[must_use]
    pub fn per_hour(limit: u32) -> Self {
        Self::per(limit, Duration::from_secs(3_600))
    }

    /// `limit` in a day.
    #[must_use]
    pub fn per_day(limit: u32) -> Self {
        Self::per(limit, Duration::from_secs(86_400))
    }

    /// A strict window: in any span of `interval` (plus guard) at most `limit`.
    #[must_use]
    pub fn window(limit: u32, interval: Duration) -> Self {
        Self { shape: Shape::Window, ..Self::per(limit, interval) }
    }

    /// The capacity of a token bucket. A window has none: there it is refused by [`Policy::new`].
    #[must_use]
    pub fn burst(self, burst: u32) -> Self {
        match self.shape {
            Shape::TokenBucket { .. } => Self { shape: Shape::TokenBucket { burst }, ..self },
            Shape::Window => Self { window_burst: true, ..self },
        }
    }

    /// The same with another limit. The burst of a token bucket that held a whole interval's tokens
    /// goes with it; a smaller one stays, cut to the limit.
    #[must_use]
    pub fn with_limit(self, limit: u32) -> Self {
        let shape = match self.shape {
            Shape::TokenBucket { burst } if burst == self.limit => {
                Shape::TokenBucket { burst: limit }
            }
            Shape::TokenBucket { burst } => Shape::TokenBucket { burst: burst.min(limit.max(1)) },
            Shape::Window => Shape::Window,
        };
        Self { shape, limit, ..self }
    }

    /// Lengthens the interval, to absorb the spread of the network between grant and arrival.
    #[must_use]
    pub fn guard(self, guard: Duration) -> Self {
        Self { guard_us: micros(guard), ..self }
    }

    /// What it counts; requests unless said. A call that takes nothing of that unit is neither held up
    /// by this quota nor counted by it.
    ///
    /// ```
    /// use paceline_core::{Policy, Quota, Unit};
    ///
    /// let policy = Policy::new([Quota::per_minute(500), Quota::per_minute(30_000).of(Unit::Tokens)])?;
    /// assert_eq!(policy.to_string(), "500/m, 30000/m of tokens");
    /// # Ok::<(), paceline_core::PolicyError>(())
    /// ```
    #[must_use]
    pub fn of(self, unit: Unit) -> Self {
        Self { of: unit, ..self }
    }

    /// What it counts.
    #[must_use]
    pub fn unit(&self) -> Unit {
        self.of
    }

    /// The shape, with the burst of a token bucket.
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Tokens per interval.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// The interval without the guard.
    #[must_use]
    pub fn interval(&self) -> Duration {
        Duration::from_micros(self.interval_us.unsigned_abs())
    }

    /// The interval with the guard: what the decision counts with.
    #[must_use]
    pub fn guarded(&self) -> Duration {
        Duration::from_micros(self.span_us().unsigned_abs())
    }

    /// The same in microseconds.
    fn span_us(&self) -> Micros {
        self.interval_us + self.guard_us
    }

    /// The largest amount of its unit that can ever pass.
    #[must_use]
    pub fn cost_max(&self) -> u32 {
        match self.shape {
            Shape::TokenBucket { burst } if self.limit > 0 => burst,
            _ => self.limit,
        }
    }
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.shape == Shape::Window {
            f.write_str("window ")?;
        }
        let (count, unit) = duration::in_largest_unit(self.interval_us);
        match count {
            1 => write!(f, "{}/{unit}", self.limit)?,
            _ => write!(f, "{}/{count}{unit}", self.limit)?,
        }
        match self.shape {
            Shape::TokenBucket { burst } if burst != self.limit => write!(f, " burst {burst}")?,
            _ => {}
        }
        if self.guard_us > 0 {
            write!(f, " guard {}", Exact(self.guard_us))?;
        }
        if self.of != Unit::Requests {
            write!(f, " of {}", self.of)?;
        }
        Ok(())
    }
}

/// What a quota brings, roughly.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rate {
    /// Tokens that may come at one moment.
    pub(crate) most: f64,
    /// Tokens a microsecond.
    pub(crate) per_us: f64,
    /// Whether they come evenly, one by one, rather than when others leave.
    pub(crate) is_even: bool,
    /// What they are.
    pub(crate) of: Unit,
}

/// One to eight quotas that a call must all pass, and how long an idle bucket is kept.
///
/// Its text form parses and prints: quotas joined by commas, each
/// `[window] LIMIT/INTERVAL [burst N] [guard D] [of UNIT]`, and optionally `idle D` as the last part.
/// `strict LIMIT/INTERVAL [guard D]` is short for a paced token bucket and a window together, the
/// shape that is safe whichever way a provider counts. It paces one by one, so no call may take more
/// than one, and it counts nothing but requests.
///
/// A quota counts requests, or what it is said to be `of`: `500/m, 30000/m of tokens`. What a call
/// takes of each it says itself ([`Cost`]); it passes all the quotas that count
/// something of it, or takes nothing from any. A call that takes nothing of what the policy counts
/// (a plain request under `30000/m of tokens`) waits only for those before it and for suspensions; a
/// limiter refuses it where it is its caller's own policy that says so.
///
/// **What is counted how.** A token bucket's credit is kept in units of 1/u token such that a
/// microsecond earns a whole number of units; the tick is always one microsecond. Where
/// `burst * u` would pass 2^53 (large bursts at slow, odd rates, such as `999983/h burst
/// 1000000000`), the rate is rounded *down* to the nearest fraction that fits; the loss is at most
/// one part in a million, never above the promise, and a policy where it would be more is refused.
///
/// ```
/// use paceline_core::Policy;
/// let policy: Policy = "50/s burst 10, window 1000/m guard 50ms".parse()?;
/// assert_eq!(policy.quotas().len(), 2);
/// let strict: Policy = "strict 100/m".parse()?;
/// assert_eq!(strict.to_string(), "100/m burst 1 guard 60ms, window 100/m guard 60ms");
/// # Ok::<(), paceline_core::PolicyError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Policy {
    quotas: Vec<Quota>,
    gates: Vec<Gate>,
    idle_us: Micros,
    /// The most of each unit that can ever pass; all there is where no quota counts it.
    most: [u32; UNITS],
    /// Whether all quotas count requests.
    plain: bool,
    text: String,
    script_args: PolicyArgs,
}

impl Policy {
    /// A policy of these quotas, in this order.
    ///
    /// # Errors
    /// When there is no quota or more than eight, or a quota's numbers are outside what can be
    /// counted exactly; the message names the value and what is allowed.
    pub fn new(quotas: impl IntoIterator<Item = Quota>) -> Result<Self, PolicyError> {
        Self::build(quotas.into_iter().collect(), IDLE_DEFAULT_US)
    }

    /// The same policy with another idle expiry: how long a bucket is kept unused, at least.
    ///
    /// # Errors
    /// When `idle` is shorter than a millisecond or longer than ten years.
    pub fn with_idle(self, idle: Duration) -> Result<Self, PolicyError> {
        Self::build(self.quotas, micros(idle))
    }

    fn build(quotas: Vec<Quota>, idle_us: Micros) -> Result<Self, PolicyError> {
        if quotas.is_empty() || quotas.len() > QUOTAS_MAX {
            return Err(PolicyError::count(quotas.len()));
        }
        if !(1_000..=SPAN_MAX_US).contains(&idle_us) {
            return Err(PolicyError::new(
                format!("idle {}", Exact(idle_us)),
                "an idle expiry is 1ms to 3650d",
            ));
        }
        let gates = quotas.iter().map(Gate::compile).collect::<Result<Vec<_>, _>>()?;
        let mut most = [u32::MAX; UNITS];
        for quota in &quotas {
            let most = &mut most[quota.of.index()];
            *most = quota.cost_max().min(*most);
        }
        let plain = quotas.iter().all(|quota| quota.of == Unit::Requests);
        let mut text = quotas.iter().map(Quota::to_string).collect::<Vec<_>>().join(", ");
        if idle_us != IDLE_DEFAULT_US {
            text.push_str(&format!(", idle {}", Exact(idle_us)));
        }
        let script_args = PolicyArgs::new(idle_us, &gates);
        Ok(Self { quotas, gates, idle_us, most, plain, text, script_args })
    }

    /// The quotas in the order they were written; refusals count them from 1.
    #[must_use]
    pub fn quotas(&self) -> &[Quota] {
        &self.quotas
    }

    /// How long an unused bucket is kept, at least.
    #[must_use]
    pub fn idle(&self) -> Duration {
        Duration::from_micros(self.idle_us.unsigned_abs())
    }

    /// The most requests that one call can ever take; 2^32 - 1 where no quota counts them.
    #[must_use]
    pub fn cost_max(&self) -> i64 {
        i64::from(self.most[Unit::Requests.index()])
    }

    /// The part of a cost that can ever pass at once: of each unit as much as fits.
    #[must_use]
    pub fn part_of(&self, cost: Cost) -> Cost {
        Unit::ALL.into_iter().fold(cost, |part, unit| {
            let most = self.most[unit.index()];
            if part.of(unit) > most { part.and(unit, most) } else { part }
        })
    }

    /// Whether any quota takes something of the cost.
    #[must_use]
    pub fn counts(&self, cost: Cost) -> bool {
        self.quotas.iter().any(|quota| cost.of(quota.of) > 0)
    }

    /// Whether no quota is ever too small for the cost.
    pub(crate) fn holds(&self, cost: Cost) -> bool {
        if self.plain {
            return cost.of(Unit::Requests) <= self.most[Unit::Requests.index()];
        }
        Unit::ALL.iter().all(|unit| cost.of(*unit) <= self.most[unit.index()])
    }

    /// Whether all quotas count requests.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.plain
    }

    /// The part of this policy that one of `n` processes may use on its own: every rate divided by
    /// `n`, bursts divided and cut to at least one token. Used while the shared store is away.
    ///
    /// # Errors
    /// When the slowed policy would be outside what can be counted.
    pub fn share_of(&self, n: NonZeroU32) -> Result<Self, PolicyError> {
        let share = |quota: &Quota| {
            let n = n.get();
            if quota.limit == 0 || n == 1 {
                return *quota;
            }
            // A window of `limit / n` where that is whole tokens, else one token in a window
            // lengthened to match; token buckets keep the limit and stretch the interval.
            match quota.shape {
                Shape::TokenBucket { burst } => Quota {
                    shape: Shape::TokenBucket { burst: (burst / n).max(1) },
                    interval_us: quota.span_us().saturating_mul(i64::from(n)),
                    guard_us: 0,
                    ..*quota
                },
                Shape::Window if quota.limit >= n => Quota { limit: quota.limit / n, ..*quota },
                Shape::Window => Quota {
                    limit: 1,
                    interval_us: quota
                        .span_us()
                        .saturating_mul(i64::from(n))
                        .div_euclid(i64::from(quota.limit))
                        .saturating_add(1),
                    guard_us: 0,
                    ..*quota
                },
            }
        };
        Self::build(self.quotas.iter().map(share).collect(), self.idle_us)
    }

    /// The same policy at so many thousandths of its pace, or a little less: limits and bursts are
    /// brought down, and where whole tokens are too coarse for that the interval is lengthened.
    ///
    /// ```
    /// # use paceline_core::Policy;
    /// let policy: Policy = "100/s burst 20, window 5/m".parse()?;
    /// let slower = policy.slowed(std::num::NonZeroU32::new(700).ok_or("not 0")?)?;
    /// assert_eq!(slower.to_string(), "70/s burst 14, window 3/m");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the slowed policy would be outside what can be counted.
    pub fn slowed(&self, permille: NonZeroU32) -> Result<Self, PolicyError> {
        let permille = u64::from(permille.get().min(1_000));
        let part = |count: u32| {
            u32::try_from((u64::from(count) * permille / 1_000).max(1)).unwrap_or(count)
        };
        let slowed = |quota: &Quota| {
            let shape = match quota.shape {
                Shape::TokenBucket { burst } => Shape::TokenBucket { burst: part(burst) },
                Shape::Window => Shape::Window,
            };
            if quota.limit >= WHOLE_ENOUGH {
                return Quota { shape, limit: part(quota.limit), ..*quota };
            }
            // A window would still let all of its tokens out at once: it gets fewer of them, too.
            let limit = if shape == Shape::Window { part(quota.limit) } else { quota.limit };
            let whole = i128::from(limit) * i128::from(quota.interval_us);
            let parts = (i128::from(quota.limit) * i128::from(permille)).max(1);
            // In whole milliseconds, for a person who reads it.
            let longer_ms = (whole + parts - 1) / parts;
            let longer = Micros::try_from(longer_ms * 1_000).unwrap_or(SPAN_MAX_US);
            let interval_us = longer.max(quota.interval_us);
            Quota { shape, limit, interval_us, ..*quota }
        };
        Self::build(self.quotas.iter().map(slowed).collect(), self.idle_us)
    }

    /// Whether it makes a difference when the answer to a call came: whether there is a window with
    /// a guard.
    #[must_use]
    pub fn counts_answers(&self) -> bool {
        let is_guarded = |quota: &Quota| quota.shape == Shape::Window && quota.guard_us > 0;
        self.quotas.iter().any(is_guarded)
    }

    /// How late after its moment a call may still go out, in microseconds. Later its place is spent:
    /// the process was stopped, its runtime blocked or its store slow, and with others like it the
    /// call would go out in a bunch. A guard covers the way to the provider and a little lateness;
    /// a sixth of the smallest is left for that, at least 10 ms and at most 100. Without a guard
    /// nothing is promised to who counts to the millisecond, and it is 100 ms.
    #[must_use]
    pub fn late_max_us(&self) -> Micros {
        let guards = self.quotas.iter().map(|quota| quota.guard_us).filter(|guard| *guard > 0);
        guards.min().map_or(LATE_MAX_US, |guard| (guard / 6).clamp(LATE_LEAST_US, LATE_MAX_US))
    }

    /// What each quota brings, for estimates.
    #[allow(clippy::cast_precision_loss, reason = "an estimate")]
    pub(crate) fn rates(&self) -> impl Iterator<Item = Rate> {
        self.gates.iter().map(|gate| match *gate {
            Gate::Bucket { rate, unit, capacity, of, .. } => Rate {
                most: (capacity / unit) as f64,
                per_us: rate as f64 / unit as f64,
                is_even: true,
                of,
            },
            Gate::Window { limit, span_us, of, .. } => Rate {
                most: limit as f64,
                per_us: limit as f64 / span_us as f64,
                is_even: false,
                of,
            },
        })
    }

    pub(crate) fn gates(&self) -> &[Gate] {
        &self.gates
    }

    pub(crate) fn idle_us(&self) -> Micros {
        self.idle_us
    }

    /// The policy as the script takes it; see [`crate::script`].
    pub(crate) fn script_args(&self) -> &PolicyArgs {
        &self.script_args
    }

    /// The text form, as [`Display`](fmt::Display) prints it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl PartialEq for Policy {
    fn eq(&self, other: &Self) -> bool {
        self.quotas == other.quotas && self.idle_us == other.idle_us
    }
}

impl Eq for Policy {}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Policy {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        let mut quotas = Vec::new();
        let mut idle_us = None;
        for part in text.split(',') {
            let words: Vec<&str> = part.split_whitespace().collect();
            if idle_us.is_some() {
                return Err(PolicyError::new(
                    part.trim(),
                    "nothing may follow `idle`, the last part",
                ));
            }
            match words.as_slice() {
                [] => return Err(PolicyError::new(text, FORM)),
                ["idle", span] => idle_us = Some(span_us(part, span)?),
                ["window", rate, rest @ ..] => quotas.push(quota(part, Kind::Window, rate, rest)?),
                ["strict", rate, rest @ ..] => quotas.extend(strict(part, rate, rest)?),
                [rate, rest @ ..] => quotas.push(quota(part, Kind::TokenBucket, rate, rest)?),
            }
        }
        Self::build(quotas, idle_us.unwrap_or(IDLE_DEFAULT_US))
    }
}

/// What a compiled quota is to the decision: integers only, the same in Rust and in Lua.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gate {
    /// `rate` units come back each microsecond, `unit` units make a token, `capacity` units fit.
    /// A limit of 0 is rate 0, capacity 0. Tokens are `of` what the quota counts.
    Bucket { rate: i64, unit: i64, capacity: i64, interval_us: Micros, of: Unit },
    /// At most `limit` tokens in any `span_us`; entries are joined up to `chunk` tokens.
    Window { limit: i64, span_us: Micros, chunk: i64, interval_us: Micros, of: Unit },
}

impl Gate {
    /// The interval without the guard, by which a new policy finds its predecessor.
    pub(crate) fn interval_us(&self) -> Micros {
        match self {
            Self::Bucket { interval_us, .. } | Self::Window { interval_us, .. } => *interval_us,
        }
    }

    /// What its tokens are.
    pub(crate) fn of(&self) -> Unit {
        match self {
            Self::Bucket { of, .. } | Self::Window { of, .. } => *of,
        }
    }

    /// The most tokens that can ever pass.
    pub(crate) fn most(&self) -> i64 {
        match self {
            Self::Bucket { unit, capacity, .. } => capacity / unit,
            Self::Window { limit, .. } => *limit,
        }
    }

    fn compile(quota: &Quota) -> Result<Self, PolicyError> {
        let refused = |allowed: &str| PolicyError::new(quota.to_string(), allowed);
        if quota.window_burst {
            return Err(refused("a window has no burst; leave it out"));
        }
        if quota.limit > LIMIT_MAX {
            return Err(refused("a limit is 0 to 1000000000"));
        }
        if quota.interval_us < INTERVAL_MIN_US || quota.interval_us > SPAN_MAX_US {
            return Err(refused("an interval is 1ms to 3650d"));
        }
        if quota.guard_us > SPAN_MAX_US - quota.interval_us {
            return Err(refused("interval and guard together are at most 3650d"));
        }
        let (interval_us, of) = (quota.interval_us, quota.of);
        let span_us = quota.span_us();
        let limit = i64::from(quota.limit);
        match quota.shape {
            Shape::Window => {
                let chunk = (limit + WINDOW_ENTRIES_MAX - 1) / WINDOW_ENTRIES_MAX;
                Ok(Self::Window { limit, span_us, chunk: chunk.max(1), interval_us, of })
            }
            Shape::TokenBucket { .. } if limit == 0 => {
                Ok(Self::Bucket { rate: 0, unit: 1, capacity: 0, interval_us, of })
            }
            Shape::TokenBucket { burst } => {
                if burst == 0 || burst > LIMIT_MAX {
                    return Err(refused("a burst is 1 to 1000000000"));
                }
                let burst = i64::from(burst);
                if i128::from(burst) * i128::from(span_us) > FILL_MAX_US * i128::from(limit) {
                    return Err(refused(
                        "a bucket must fill from empty within 36500d; lower the burst or raise the limit",
                    ));
                }
                let (rate, unit) = fraction_below(limit, span_us, EXACT_MAX / burst);
                let wanted = i128::from(limit) * i128::from(unit);
                let lost = wanted - i128::from(rate) * i128::from(span_us);
                if rate == 0 || lost * 1_000_000 > wanted {
                    return Err(refused(
                        "burst and rate together are too fine to count exactly; lower the burst",
                    ));
                }
                Ok(Self::Bucket { rate, unit, capacity: burst * unit, interval_us, of })
            }
        }
    }
}

/// The largest fraction at or below `n / d` whose denominator is at most `d_max`, reduced:
/// `n / d` itself where it fits. A walk down the Stern-Brocot tree that takes each run of steps
/// at once, so it ends after a few dozen rounds.
fn fraction_below(n: i64, d: i64, d_max: i64) -> (i64, i64) {
    let (n, d, d_max) = (i128::from(n), i128::from(d), i128::from(d_max));
    // low <= n/d < high, neighbours in the tree; high starts at 1/0.
    let (mut low, mut high) = ((0_i128, 1_i128), (1_i128, 0_i128));
    loop {
        let above = high.0 * d - n * high.1;
        let fitting =
            |from: i128, step: i128| if step == 0 { i128::MAX } else { (d_max - from) / step };
        let steps = ((n * low.1 - low.0 * d) / above).min(fitting(low.1, high.1));
        low = (low.0 + steps * high.0, low.1 + steps * high.1);
        let below = n * low.1 - low.0 * d;
        if below == 0 {
            break;
        }
        // As far as high stays above n/d, and its denominator small enough to matter.
        let steps = ((above - 1) / below).min(fitting(high.1, low.1));
        if steps <= 0 {
            break;
        }
        high = (high.0 + steps * low.0, high.1 + steps * low.1);
    }
    // Both are at most n and d_max, which came in as i64.
    (i64::try_from(low.0).unwrap_or(0), i64::try_from(low.1).unwrap_or(1))
}

/// Why a policy was refused: the value, and what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("policy {value:?}: {allowed}")]
pub struct PolicyError {
    value: String,
    allowed: String,
}

impl PolicyError {
    fn new(value: impl Into<String>, allowed: impl Into<String>) -> Self {
        Self { value: value.into().trim().to_owned(), allowed: allowed.into() }
    }

    fn count(quotas: usize) -> Self {
        Self::new(format!("{quotas} quotas"), format!("a policy has 1 to {QUOTAS_MAX} quotas"))
    }
}

const FORM: &str = "a quota is [window] LIMIT/INTERVAL [burst N] [guard D] [of UNIT], or strict \
                    LIMIT/INTERVAL [guard D]; quotas are joined by commas, such as \
                    `50/s burst 10, window 1000/m guard 50ms`";

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    TokenBucket,
    Window,
}

fn quota(part: &str, kind: Kind, rate: &str, rest: &[&str]) -> Result<Quota, PolicyError> {
    let (limit, interval) = rate.split_once('/').ok_or_else(|| PolicyError::new(part, FORM))?;
    let limit = count(part, limit, "a limit is a whole number from 0 to 1000000000")?;
    // `100/s` is `100/1s`.
    let interval_us = match duration::unit_us(interval) {
        Some(us) => us,
        None => span_us(part, interval)?,
    };
    let (mut burst, mut guard, mut of) = (None, None, None);
    let mut words = rest;
    while let [word, value, tail @ ..] = words {
        match *word {
            "burst" if burst.is_none() && kind == Kind::TokenBucket => {
                burst = Some(count(part, value, "a burst is a whole number from 1 to 1000000000")?);
            }
            "burst" if kind == Kind::Window => {
                return Err(PolicyError::new(part, "a window has no burst; leave it out"));
            }
            "guard" if guard.is_none() => guard = Some(span_us(part, value)?),
            "of" if tail.is_empty() => {
                let unit = value.parse::<Unit>();
                of = Some(unit.map_err(|error| PolicyError::new(part, error.to_string()))?);
            }
            _ => return Err(PolicyError::new(part, FORM)),
        }
        words = tail;
    }
    if !words.is_empty() {
        return Err(PolicyError::new(part, FORM));
    }
    let shape = match kind {
        Kind::TokenBucket => Shape::TokenBucket { burst: burst.unwrap_or(limit) },
        Kind::Window => Shape::Window,
    };
    let (guard_us, of) = (guard.unwrap_or(0), of.unwrap_or_default());
    Ok(Quota { shape, limit, interval_us, guard_us, of, window_burst: false })
}

/// `strict`: paced one at a time, and never more than the limit in a window.
fn strict(part: &str, rate: &str, rest: &[&str]) -> Result<[Quota; 2], PolicyError> {
    let mut window = quota(part, Kind::Window, rate, rest)?;
    if window.of != Unit::Requests {
        let (of, rest) = (window.of, rest.join(" "));
        return Err(PolicyError::new(
            part,
            format!(
                "`strict` paces one at a time, and no call could take more than one of the {of}; \
                 write `window {rate} {rest}`"
            ),
        ));
    }
    if !rest.contains(&"guard") {
        window.guard_us = STRICT_GUARD_DEFAULT_US;
    }
    Ok([Quota { shape: Shape::TokenBucket { burst: 1 }, ..window }, window])
}

fn count(part: &str, text: &str, allowed: &str) -> Result<u32, PolicyError> {
    // `u32::from_str` takes a leading plus; people do not write one.
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    match text.parse() {
        Ok(number) if digits && number <= LIMIT_MAX => Ok(number),
        _ => Err(PolicyError::new(part, format!("{allowed}, not {text:?}"))),
    }
}

fn span_us(part: &str, text: &str) -> Result<Micros, PolicyError> {
    duration::parse(text).map_err(|error| PolicyError::new(part, error.to_string()))
}

/// Whole microseconds; what does not fit is far beyond what a policy accepts, and refused there.
fn micros(span: Duration) -> Micros {
    Micros::try_from(span.as_micros()).unwrap_or(Micros::MAX / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn gate(text: &str) -> Gate {
        text.parse::<Policy>().unwrap().gates[0]
    }

    #[test]
    fn a_rate_is_reduced_so_that_a_microsecond_earns_whole_units() {
        let bucket = |rate, unit, capacity, interval_us| {
            let of = Unit::Requests;
            Gate::Bucket { rate, unit, capacity, interval_us, of }
        };
        assert_eq!(gate("7/s"), bucket(7, 1_000_000, 7_000_000, 1_000_000));
        let month = 30 * 86_400_000_000;
        assert_eq!(gate("1/30d"), bucket(1, month, month, month));
        assert_eq!(gate("1000000/s burst 1000000000"), bucket(1, 1, 1_000_000_000, 1_000_000));
    }

    #[test]
    fn a_rate_too_fine_for_its_burst_is_rounded_down_by_less_than_a_millionth() {
        let Gate::Bucket { rate, unit, capacity, .. } = gate("999983/h burst 1000000000") else {
            unreachable!("a token bucket");
        };
        assert!(capacity <= EXACT_MAX);
        let (wanted, got) = (999_983_f64 / 3.6e9, rate as f64 / unit as f64);
        assert!(got <= wanted && got > wanted * (1.0 - 1e-6), "{got} for {wanted}");
    }

    #[test]
    fn the_fraction_below_is_the_best_one() {
        // Against trying every denominator.
        for (n, d, d_max) in
            [(999_983, 3_600_000, 1_000), (7, 60, 9), (355, 113, 50), (5, 7, 100), (1, 90, 50)]
        {
            let best = (1..=d_max)
                .map(|q| (n * q / d, q))
                .fold((0, 1), |a: (i64, i64), b| if b.0 * a.1 > a.0 * b.1 { b } else { a });
            let (p, q) = fraction_below(n, d, d_max);
            assert_eq!(p * best.1, best.0 * q, "{n}/{d} up to {d_max}: {p}/{q}, best {best:?}");
        }
    }
}
