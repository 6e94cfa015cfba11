//! The Lua twin as Rust sees it: its text, the arguments it takes, the replies it gives and the
//! hash it keeps. Nothing here speaks to a server; a store sends what this builds and hands back
//! what it got.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::decide::{Ask, Booking, Cause, Decision, Standing};
use crate::policy::{Gate, IDLE_DEFAULT_US};
use crate::state::{Bucket, Clock, Level, State, Suspension, Window};
use crate::{Micros, Policy, PolicyError};

/// The script. Its header lists keys, arguments and replies.
pub const SOURCE: &str = include_str!("decide.lua");

/// The version of the state it keeps, the first word of every plan.
const STATE_VERSION: &str = "1";
/// The hash field of the clock and the levels; its name says what is in it.
const CLOCK_FIELD: &str = "seen paused ahead levels since until";

/// One operation of the script.
#[derive(Debug, Clone)]
pub enum Call<'a> {
    /// Answers one call; see [`crate::decide::take`].
    Take {
        /// Creates the bucket where there is none.
        policy: &'a Policy,
        /// What is asked for.
        ask: Ask,
    },
    /// Whether a booking stands; see [`crate::decide::check`].
    Check(Booking),
    /// Gives a booking back; see [`crate::decide::give_back`].
    GiveBack(Booking),
    /// Suspends; see [`crate::decide::suspend`].
    Suspend {
        /// For how long from now.
        for_us: Micros,
        /// Why and by whom.
        why: &'a Suspension,
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
    /// Reads the whole bucket.
    Look,
}

impl<'a> Call<'a> {
    /// The script's arguments. `given_now` replaces the server's time when replaying.
    #[must_use]
    pub fn args(&self, given_now: Option<Micros>) -> Vec<Cow<'a, str>> {
        let op = |name: &'static str| match given_now {
            None => Cow::Borrowed(name),
            Some(now) => Cow::Owned(format!("{name}@{now}")),
        };
        let mut args = Vec::with_capacity(16);
        match self {
            Self::Take { policy, ask } => {
                args.extend([op("take"), number(ask.cost), number(ask.wait_max_us)]);
                args.extend(policy.script_args().iter().map(|arg| Cow::Borrowed(arg.as_str())));
            }
            Self::Check(booking) => {
                args.extend([op("check"), number(booking.granted_at), number(booking.due)]);
            }
            Self::GiveBack(Booking { cost, granted_at, due, before }) => {
                args.push(op("give_back"));
                args.extend([granted_at, due, cost, before].map(|it| number(*it)));
            }
            Self::Suspend { for_us, why } => {
                args.extend([op("suspend"), number(*for_us)]);
                args.extend([why.reason.as_str().into(), why.by.as_str().into()]);
            }
            Self::Resume => args.push(op("resume")),
            Self::Set { policy, pinned } => {
                args.extend([op("set"), if *pinned { "1" } else { "0" }.into(), "".into()]);
                args.extend(policy.script_args().iter().map(|arg| Cow::Borrowed(arg.as_str())));
            }
            Self::Look => args.push(op("look")),
        }
        args
    }
}

fn number(value: i64) -> Cow<'static, str> {
    Cow::Owned(value.to_string())
}

/// The policy as the script takes it: plan, text, idle expiry, whether it has windows, and the
/// numbers of each quota one by one (so that the usual call parses nothing).
pub(crate) fn policy_args(text: &str, idle_us: Micros, gates: &[Gate]) -> Vec<String> {
    let mut plan = format!("{STATE_VERSION} {idle_us}");
    let mut numbers = Vec::with_capacity(3 * gates.len());
    let mut windows = "";
    for gate in gates {
        let (kind, [a, b, c], interval_us) = match *gate {
            Gate::Bucket { rate, unit, capacity, interval_us } => {
                numbers.extend([rate, unit, capacity]);
                // The burst rather than the capacity: a short plan keeps the hash compact.
                ("b", [rate, unit, capacity / unit], interval_us)
            }
            Gate::Window { limit, span_us, chunk, interval_us } => {
                windows = "w";
                numbers.extend([limit, span_us, -chunk]);
                ("w", [limit, span_us, chunk], interval_us)
            }
        };
        plan.push_str(&format!(" {kind} {a} {b} {c} {interval_us}"));
    }
    let head = [plan, text.to_owned(), idle_us.to_string(), windows.to_owned()];
    head.into_iter().chain(numbers.iter().map(ToString::to_string)).collect()
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

/// Reads the numbers of a `take` reply.
///
/// # Errors
/// When they are not what the script gives. It is never taken for a grant.
pub fn decision(numbers: &[i64], cost: i64) -> Result<Decision, Unreadable> {
    match *numbers {
        [1, wait_us, granted_at, due, before] => {
            Ok(Decision::Granted { wait_us, booking: Booking { cost, granted_at, due, before } })
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

/// Reads the numbers of a `check` reply.
///
/// # Errors
/// When they are not what the script gives.
pub fn standing(numbers: &[i64]) -> Result<Standing, Unreadable> {
    match *numbers {
        [0] => Ok(Standing::Void),
        [1, wait_us] => Ok(Standing::Due(wait_us)),
        _ => Err(unreadable("answer of the script", numbers)),
    }
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
    let clock_text = field(CLOCK_FIELD)?;
    let words: Vec<&str> = clock_text.split(' ').collect();
    let numbers = |words: &[&str]| -> Result<Vec<i64>, Unreadable> {
        words.iter().map(|word| word.parse().map_err(|_| unreadable("number", word))).collect()
    };
    let quotas = policy.as_ref().map_or(0, |policy| policy.quotas().len());
    let [seen, paused, ahead] = numbers(words.get(..3).unwrap_or_default())?[..] else {
        return Err(unreadable("clock", clock_text));
    };
    let (since, until) = match numbers(words.get(3 + quotas..).unwrap_or_default())?[..] {
        [] => (0, 0),
        [since, until] => (since, until),
        _ => return Err(unreadable("clock", clock_text)),
    };
    let level = |(index, word): (usize, &&str)| -> Result<Level, Unreadable> {
        if *word != "-" {
            return word.parse().map(Level::Credit).map_err(|_| unreadable("level", word));
        }
        match fields.get(&format!("window {}", index + 1)) {
            None => Ok(Level::Window(Window::default())),
            Some(text) => {
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
            }
        }
    };
    let levels = words.get(3..3 + quotas).ok_or_else(|| unreadable("levels", clock_text))?;
    let levels = levels.iter().enumerate().map(level).collect::<Result<Vec<_>, _>>()?;
    let text = |name: &str| fields.get(name).cloned().unwrap_or_default();
    let suspension = (until != 0).then(|| Suspension { reason: text("reason"), by: text("by") });
    let made = field("made")?;
    let made = made.parse().map_err(|_| unreadable("number", made))?;
    // The plan's second word says how long it is kept; without a policy, as any idle bucket.
    let keep_us = match fields.get("plan") {
        None => IDLE_DEFAULT_US,
        Some(plan) => {
            let kept = plan.split(' ').nth(1).and_then(|word| word.parse().ok());
            kept.ok_or_else(|| unreadable("plan", plan))?
        }
    };
    let state = State {
        clock: Clock { seen, paused, since, until },
        at: seen - paused + ahead,
        made,
        suspension,
        levels,
    };
    Ok(Some(Bucket { policy: policy.map(Arc::new), keep_us, state }))
}
