//! The Lua twin as Rust sees it: its text, the arguments it takes, the replies it gives and the
//! hash it keeps. Nothing here speaks to a server; a store sends what this builds and hands back
//! what it got.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::decide::{
    Ask, Batch, Booking, Cause, Decision, Group, Lowered, Probed, Refused, Remaining, Run, Sight,
};
use crate::policy::{Gate, IDLE_DEFAULT_US};
use crate::state::{Bare, Bucket, Clock, Level, Probing, State, Suspension, Window};
use crate::{Cost, Micros, Policy, PolicyError, Unit};

/// The script. Its header lists keys, arguments and replies.
pub const SOURCE: &str = include_str!("decide.lua");

/// The version of the state it keeps, the first word of every plan: 1 where all quotas count
/// requests, which scripts before units read, too.
const STATE_VERSION: &str = "1";
const STATE_VERSION_UNITS: &str = "2";
/// The field of the clock of a bucket that was suspended before it had a policy; else the plan is
/// its name.
const NO_POLICY_FIELD: &str = "no policy";

/// One operation of the script.
#[derive(Debug, Clone)]
pub enum Call<'a> {
    /// Answers one call; see [`crate::decide::take`]. Where units play a part it is answered as a
    /// batch; see [`has_units`].
    Take {
        /// Creates the bucket where there is none.
        policy: &'a Policy,
        /// What is asked for.
        ask: Ask,
    },
    /// Answers many calls; see [`crate::decide::batch`]. Without any it only looks at the clock.
    Batch {
        /// Creates the bucket where there is none.
        policy: &'a Policy,
        /// The calls, in order.
        groups: &'a [Group],
    },
    /// Gives a booking back; see [`crate::decide::give_back`].
    GiveBack(Booking),
    /// The answer to a booking's call has come; see [`crate::decide::answered`].
    Answered(Booking),
    /// A provider said what is left; see [`crate::decide::lower`].
    Lower {
        /// Of which quota, and of which call.
        said: Remaining,
        /// Why and by whom, where it suspends.
        why: &'a Suspension,
    },
    /// A refusal without a time; see [`crate::decide::refused`].
    Refused {
        /// Who was refused.
        by: u32,
        /// For how long the bucket stops where others were, too.
        for_us: Micros,
        /// How long the others wait for the one call that goes first then.
        patience_us: Micros,
        /// Why and by whom.
        why: &'a Suspension,
    },
    /// Somebody passed; see [`crate::decide::passed`].
    Passed,
    /// Suspends; see [`crate::decide::suspend`].
    Suspend {
        /// For how long from now.
        for_us: Micros,
        /// How long the others then wait for the one call that goes first; 0 where none does.
        patience_us: Micros,
        /// Why and by whom.
        why: &'a Suspension,
    },
    /// Asks to go first; see [`crate::decide::probe`].
    Probe(Booking),
    /// What came of who went first; see [`crate::decide::probed`].
    Probed {
        /// For another that goes first; 0 where it passed.
        patience_us: Micros,
    },
    /// Resumes; see [`crate::decide::resume`].
    Resume,
    /// Sets the policy; see [`crate::decide::set`].
    Set {
        /// The new policy.
        policy: &'a Policy,
        /// Whether it outlives the idle bucket.
        pinned: bool,
    },
    /// Sets the policy where the bucket's is still another; see [`crate::decide::set_if`].
    SetIf {
        /// That one.
        expected: &'a Policy,
        /// The new policy.
        policy: &'a Policy,
    },
    /// Reads the whole bucket.
    Look,
}

impl<'a> Call<'a> {
    /// The script's arguments. `given_now` replaces the server's time when replaying.
    #[must_use]
    pub fn args(&self, given_now: Option<Micros>) -> Vec<Cow<'a, [u8]>> {
        let op = |name: &'static str| match given_now {
            None => Cow::Borrowed(name.as_bytes()),
            Some(now) => bytes(format!("{name}@{now}")),
        };
        let number = |value: Micros| bytes(value.to_string());
        let mut args = Vec::with_capacity(6);
        match self {
            Self::Take { policy, ask } if has_units(policy, &ask.cost) => {
                return batch_args(&op, policy, &[Group { ask: *ask, calls: 1 }]);
            }
            Self::Take { policy, ask } => {
                let PolicyArgs { numbers, plan, keep_ms, windows } = policy.script_args();
                args.push(op("take"));
                args.push(packed([ask.cost.tokens(Unit::Requests), ask.wait_max_us], numbers));
                args.extend([plan, policy.as_str(), keep_ms].map(|arg| arg.as_bytes().into()));
                args.extend(windows.iter().map(|field| Cow::Borrowed(field.as_bytes())));
            }
            Self::Batch { policy, groups } => return batch_args(&op, policy, groups),
            Self::GiveBack(Booking { cost, granted_at, due, before }) => {
                args.push(op("give_back"));
                let requests = cost.tokens(Unit::Requests);
                args.extend([*granted_at, *due, requests, *before].map(number));
                args.extend(others(cost));
            }
            Self::Answered(Booking { cost, granted_at, due, .. }) => {
                args.push(op("answered"));
                args.extend([*granted_at, *due, cost.tokens(Unit::Requests)].map(number));
                args.extend(others(cost));
            }
            Self::Lower { said, why } => {
                let Remaining { quota, interval_us, tokens, resets_in_us, .. } = *said;
                let quota = i64::try_from(quota).unwrap_or(0);
                args.push(op("lower"));
                args.extend([quota, interval_us, tokens, resets_in_us].map(number));
                let is_shared = i64::from(said.is_shared);
                args.extend([said.blur_us, said.unstoppable_us, is_shared].map(number));
                args.extend(texts(why));
                if let Some(sent) = said.sent {
                    args.extend([sent.granted_at, sent.due].map(number));
                }
            }
            Self::Refused { by, for_us, patience_us, why } => {
                args.extend([op("refused"), number(*for_us)]);
                args.extend(texts(why));
                args.extend([*patience_us, i64::from(*by)].map(number));
            }
            Self::Passed => args.push(op("passed")),
            Self::Suspend { for_us, patience_us, why } => {
                args.extend([op("suspend"), number(*for_us)]);
                args.extend(texts(why));
                args.push(number(*patience_us));
            }
            Self::Probe(Booking { granted_at, due, .. }) => {
                args.extend([op("probe"), number(*granted_at), number(*due)]);
            }
            Self::Probed { patience_us } => args.extend([op("probed"), number(*patience_us)]),
            Self::Resume => args.push(op("resume")),
            Self::Set { policy, pinned } => {
                let PolicyArgs { numbers, plan, .. } = policy.script_args();
                args.extend([op("set"), packed([i64::from(*pinned), 0], numbers)]);
                args.extend([plan, policy.as_str()].map(|arg| arg.as_bytes().into()));
            }
            Self::SetIf { expected, policy } => {
                args = Self::Set { policy, pinned: false }.args(given_now);
                args.push(expected.script_args().plan.as_bytes().into());
            }
            Self::Look => args.push(op("look")),
        }
        args
    }
}

/// Why and by whom.
fn texts(why: &Suspension) -> [Cow<'_, [u8]>; 2] {
    [&why.reason, &why.by].map(|text| Cow::Borrowed(text.as_bytes()))
}

/// Whether a call is asked for in the form that tells of units: then it is a batch of one, since the
/// usual call is spared all of it.
#[must_use]
pub fn has_units(policy: &Policy, cost: &Cost) -> bool {
    !(policy.is_plain() && cost.is_plain())
}

fn batch_args<'a>(
    op: &impl Fn(&'static str) -> Cow<'a, [u8]>,
    policy: &'a Policy,
    groups: &[Group],
) -> Vec<Cow<'a, [u8]>> {
    let PolicyArgs { numbers, plan, keep_ms, windows } = policy.script_args();
    let units = groups.iter().any(|group| has_units(policy, &group.ask.cost));
    // Those that any of the calls takes something of; requests are always told.
    let others: Vec<Unit> = Unit::ALL[1..]
        .iter()
        .copied()
        .filter(|unit| groups.iter().any(|group| group.ask.cost.of(*unit) > 0))
        .collect();
    let name = if units { "batch_of" } else { "batch" };
    let mut args = vec![op(name), packed([0, 0], numbers)];
    args.extend([plan, policy.as_str(), keep_ms].map(|arg| arg.as_bytes().into()));
    let mut numbers = Vec::new();
    for Group { ask, calls } in groups {
        let cost = ask.cost.tokens(Unit::Requests);
        numbers.extend([cost, ask.wait_max_us, *calls].map(double).concat());
        numbers.extend(others.iter().flat_map(|unit| double(ask.cost.tokens(*unit))));
    }
    args.push(numbers.into());
    if units {
        args.push(bytes(others.iter().map(|unit| unit.letter()).collect()));
    }
    args.extend(windows.iter().map(|field| Cow::Borrowed(field.as_bytes())));
    args
}

/// What a booking holds besides requests, if anything, such as `t4000p3`.
fn others(cost: &Cost) -> Option<Cow<'static, [u8]>> {
    let units = Unit::ALL[1..].iter().filter(|unit| cost.of(**unit) > 0);
    let text: String = units.map(|unit| format!("{}{}", unit.letter(), cost.of(*unit))).collect();
    (!text.is_empty()).then(|| bytes(text))
}

fn bytes(text: String) -> Cow<'static, [u8]> {
    Cow::Owned(text.into_bytes())
}

/// Two numbers of the call before those of its policy.
fn packed(call: [i64; 2], policy: &[u8]) -> Cow<'static, [u8]> {
    let mut packed = Vec::with_capacity(16 + policy.len());
    for number in call {
        packed.extend(double(number));
    }
    packed.extend_from_slice(policy);
    Cow::Owned(packed)
}

/// A whole number as the script's `struct.unpack` reads it. Beyond 2^53, which no valid policy
/// reaches, a longest wait loses its last digits and still means "as long as it takes".
fn double(number: i64) -> [u8; 8] {
    #[allow(clippy::cast_precision_loss, reason = "see above")]
    (number as f64).to_be_bytes()
}

/// A policy as the script takes it, made once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PolicyArgs {
    /// Idle expiry, then three numbers a quota, packed.
    numbers: Vec<u8>,
    plan: String,
    /// What PEXPIRE gets at least.
    keep_ms: String,
    /// The fields of its windows.
    windows: Vec<String>,
}

impl PolicyArgs {
    pub(crate) fn new(idle_us: Micros, gates: &[Gate]) -> Self {
        let plain = gates.iter().all(|gate| gate.of() == Unit::Requests);
        let version = if plain { STATE_VERSION } else { STATE_VERSION_UNITS };
        let mut plan = format!("{version} {idle_us}");
        let mut numbers = double(idle_us).to_vec();
        for gate in gates {
            let (kind, [a, b, c], interval_us) = match *gate {
                Gate::Bucket { rate, unit, capacity, interval_us, .. } => {
                    numbers.extend([rate, unit, capacity].map(double).concat());
                    // The burst rather than the capacity: a short plan keeps the hash compact.
                    ("b", [rate, unit, capacity / unit], interval_us)
                }
                Gate::Window { limit, span_us, chunk, interval_us, .. } => {
                    numbers.extend([limit, span_us, -chunk].map(double).concat());
                    ("w", [limit, span_us, chunk], interval_us)
                }
            };
            let of = gate.of().letter();
            plan.push_str(&format!(" {kind}{of} {a} {b} {c} {interval_us}"));
        }
        let is_window = |(_, gate): &(usize, &Gate)| matches!(gate, Gate::Window { .. });
        let windows = gates.iter().enumerate().filter(is_window);
        let windows = windows.map(|(index, _)| format!("window {}", index + 1)).collect();
        // As the script's own arithmetic: a millisecond more, and one for what is cut off.
        Self { numbers, plan, keep_ms: (idle_us / 1_000 + 2).to_string(), windows }
    }
}

/// How many of a policy's quotas have a level in the clock's field.
fn token_buckets(policy: &Policy) -> usize {
    policy.gates().iter().filter(|gate| matches!(gate, Gate::Bucket { .. })).count()
}

/// What came back does not have the form the script gives.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unreadable {what}: {found}")]
pub struct Unreadable {
    what: &'static str,
    found: String,
}

fn unreadable(what: &'static str, found: impl std::fmt::Debug) -> Unreadable {
    Unreadable { what, found: format!("{found:?}") }
}

/// Reads the usual grant under the caller's policy: the clock as written, with nothing booked
/// before it.
///
/// # Errors
/// When it is not what the script writes. It is never taken for a grant.
pub fn usual_grant(clock: &str, policy: &Policy, cost: Cost) -> Result<Decision, Unreadable> {
    let mut words = clock.split(' ');
    let now = words.next().and_then(|word| word.parse::<Micros>().ok());
    let behind: Vec<Option<Micros>> =
        words.skip(token_buckets(policy)).map(|word| word.parse().ok()).collect();
    let (now, wait_us, paused) = match (now, &behind[..]) {
        (Some(now), []) => (now, 0, 0),
        (Some(now), [Some(ahead), Some(paused)]) => (now, *ahead, *paused),
        _ => return Err(unreadable("answer of the script", clock)),
    };
    let before = now - paused;
    let booking = Booking { cost, granted_at: now, due: before + wait_us, before };
    Ok(Decision::Granted { wait_us, booking, probe: false })
}

/// Reads the numbers of a `take` reply.
///
/// # Errors
/// When they are not what the script gives. It is never taken for a grant.
pub fn decision(numbers: &[i64], cost: Cost) -> Result<Decision, Unreadable> {
    match *numbers {
        [kind @ (1 | 4), wait_us, granted_at, due, before] => {
            let booking = Booking { cost, granted_at, due, before };
            Ok(Decision::Granted { wait_us, booking, probe: kind == 4 })
        }
        [2, retry_after_us, 0] => Ok(Decision::Denied { retry_after_us, cause: Cause::Suspended }),
        [2, retry_after_us, quota @ 1..=8] => {
            let cause = Cause::Quota(usize::try_from(quota).unwrap_or(1));
            Ok(Decision::Denied { retry_after_us, cause })
        }
        [3, cost_max, quota @ 1..=8] => {
            Ok(Decision::Never { cost_max, quota: usize::try_from(quota).unwrap_or(1) })
        }
        _ => Err(unreadable("answer of the script", numbers)),
    }
}

/// Reads the numbers of a `batch` reply.
///
/// # Errors
/// When they are not what the script gives. It is never taken for a grant.
pub fn batch(numbers: &[i64]) -> Result<Batch, Unreadable> {
    let refused = || unreadable("answer of the script", numbers);
    let [now, bucket_time, left, made, before, kind, open, count, behind @ ..] = numbers else {
        return Err(refused());
    };
    let count = usize::try_from(*count).ok().and_then(|count| count.checked_mul(2));
    let (runs, stopped) = count.and_then(|it| behind.split_at_checked(it)).ok_or_else(refused)?;
    let runs: Vec<Run> = runs.chunks(2).map(|run| Run { due: run[0], calls: run[1] }).collect();
    if runs.iter().any(|run| run.calls < 1) {
        return Err(refused());
    }
    let stopped = match stopped {
        [] => None,
        [2 | 3, ..] => Some(decision(stopped, Cost::default())?),
        _ => return Err(refused()),
    };
    let probe = *kind == 3;
    if probe && runs.is_empty() {
        return Err(refused());
    }
    let sight = sight([*now, *bucket_time, *left, *made, *kind, *open]).ok_or_else(refused)?;
    Ok(Batch { sight, before: *before, runs, probe, stopped })
}

fn sight([now, bucket_time, left, made, kind, open]: [i64; 6]) -> Option<Sight> {
    let made = (made != 0).then_some(made);
    let probing = match kind {
        0 => Probing::No,
        1 => Probing::Open(open),
        2 | 3 => Probing::Taken,
        _ => return None,
    };
    Some(Sight { now, bucket_time, left, probing, made })
}

/// Reads the numbers of a `probe` reply.
///
/// # Errors
/// When they are not what the script gives. It is never taken for a yes.
pub fn probed(numbers: &[i64]) -> Result<Probed, Unreadable> {
    let refused = || unreadable("answer of the script", numbers);
    let [goes @ (0 | 1), now, bucket_time, left, made, _, kind, open] = *numbers else {
        return Err(refused());
    };
    let sight = sight([now, bucket_time, left, made, kind, open]).ok_or_else(refused)?;
    Ok(Probed { goes: goes == 1, sight })
}

/// Reads the numbers of a `lower` reply.
///
/// # Errors
/// When they are not what the script gives.
pub fn lowered(numbers: &[i64]) -> Result<Lowered, Unreadable> {
    match *numbers {
        [tokens, left_us] => Ok(Lowered { tokens, left_us }),
        _ => Err(unreadable("answer of the script", numbers)),
    }
}

/// Reads the numbers of a `refused` reply.
///
/// # Errors
/// When they are not what the script gives.
pub fn refused(numbers: &[i64]) -> Result<Refused, Unreadable> {
    match *numbers {
        [by, left_us, stops @ 0..=1] if by > 0 => {
            Ok(Refused { by: usize::try_from(by).unwrap_or(1), left_us, stops: stops == 1 })
        }
        _ => Err(unreadable("answer of the script", numbers)),
    }
}

/// Whether a hash is a bucket, of whatever version of the state: it has a clock. The script refuses
/// any other.
#[must_use]
pub fn is_bucket(fields: &HashMap<String, String>) -> bool {
    let is_plan = |name: &str| {
        name.split_once(' ').is_some_and(|(version, _)| {
            !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit())
        })
    };
    fields.keys().any(|name| name == NO_POLICY_FIELD || is_plan(name))
}

/// Reads a bucket from the fields and values of its hash; `None` from an empty one.
///
/// # Errors
/// When fields are missing or hold what the script does not write, or the policy does not parse.
pub fn bucket(fields: &HashMap<String, String>) -> Result<Option<Bucket>, Unreadable> {
    if fields.is_empty() {
        return Ok(None);
    }
    let field =
        |name: &'static str| fields.get(name).ok_or_else(|| unreadable("hash, no field", name));
    let policy: Option<Policy> = match fields.get("policy") {
        Some(text) => {
            let refused = |error: PolicyError| unreadable("policy in the hash", error.to_string());
            Some(text.parse().map_err(refused)?)
        }
        None => None,
    };
    let version = |name: &&String| name.starts_with(|c: char| c.is_ascii_digit());
    let plan = fields.keys().find(version).map(String::as_str);
    let clock_text = match plan {
        Some(plan) => &fields[plan],
        None => field(NO_POLICY_FIELD)?,
    };
    let words: Vec<&str> = clock_text.split(' ').collect();
    let numbers = |words: &[&str]| -> Result<Vec<i64>, Unreadable> {
        words.iter().map(|word| word.parse().map_err(|_| unreadable("number", word))).collect()
    };
    let buckets = policy.as_ref().map_or(0, token_buckets);
    let [seen] = numbers(&words[..1])?[..] else { return Err(unreadable("clock", clock_text)) };
    let (ahead, paused, since, until, probe) =
        match numbers(words.get(1 + buckets..).unwrap_or_default())?[..] {
            [] => (0, 0, 0, 0, 0),
            [ahead, paused] => (ahead, paused, 0, 0, 0),
            [ahead, paused, since, until] => (ahead, paused, since, until, 0),
            [ahead, paused, since, until, probe] => (ahead, paused, since, until, probe),
            _ => return Err(unreadable("clock", clock_text)),
        };
    let mut credits = words.get(1..=buckets).unwrap_or_default().iter();
    let level = |(index, gate): (usize, &Gate)| -> Result<Level, Unreadable> {
        if let Gate::Bucket { .. } = gate {
            let credit = credits.next().and_then(|word| word.parse().ok());
            return credit.map(Level::Credit).ok_or_else(|| unreadable("levels", clock_text));
        }
        let Some(text) = fields.get(&format!("window {}", index + 1)) else {
            return Ok(Level::Window(Window::default()));
        };
        let words: Vec<&str> = text.split(' ').collect();
        match &numbers(&words)?[..] {
            [used, newest, held, others @ ..] if others.len() % 2 == 0 => {
                let mut entries: VecDeque<_> =
                    others.chunks(2).map(|pair| (pair[0], pair[1])).collect();
                entries.push_back((*newest, *held));
                Ok(Level::Window(Window { used: *used, entries }))
            }
            _ => Err(unreadable("window", text)),
        }
    };
    let gates = policy.as_ref().map(Policy::gates).unwrap_or_default();
    let levels = gates.iter().enumerate().map(level).collect::<Result<Vec<_>, _>>()?;
    let text = |name: &str| fields.get(name).cloned().unwrap_or_default();
    let suspension = (until != 0).then(|| Suspension { reason: text("reason"), by: text("by") });
    let made = field("made")?;
    let made = made.parse().map_err(|_| unreadable("number", made))?;
    let aged = fields.get("aged").map_or(Ok(0), |text| text.parse());
    let aged = aged.map_err(|_| unreadable("number", fields.get("aged")))?;
    let bare = match fields.get("refused") {
        None => Bare::default(),
        Some(text) => {
            let words: Vec<&str> = text.split(' ').collect();
            let by = words.iter().skip(1).map(|word| word.parse());
            match (words.first().and_then(|at| at.parse().ok()), by.collect()) {
                (Some(at), Ok(by)) => Bare { at, by },
                _ => return Err(unreadable("list of refused", text)),
            }
        }
    };
    // The plan's second word says how long it is kept; without a policy, as any idle bucket.
    let keep_us = match plan {
        None => IDLE_DEFAULT_US,
        Some(plan) => {
            let mut words = plan.split(' ');
            let known = [STATE_VERSION, STATE_VERSION_UNITS];
            let version = words.next().filter(|version| known.contains(version));
            let kept = version.and(words.next()).and_then(|word| word.parse().ok());
            kept.ok_or_else(|| unreadable("plan", plan))?
        }
    };
    let state = State {
        clock: Clock { seen, paused, since, until, probe },
        at: seen - paused + ahead,
        made,
        suspension,
        levels,
        bare,
        aged,
    };
    Ok(Some(Bucket { policy: policy.map(Arc::new), keep_us, state }))
}
