//! What is known of when those without a place would be due, for two ends: to come back at the right
//! time, and to refuse at once who could not be served by its deadline. It errs early: nobody is
//! refused whom a quieter fleet could serve.

use crate::decide::Cause;
use crate::policy::Rate;
use crate::unit::Amounts;
use crate::{Cost, Micros, Policy, SPAN_MAX_US, Unit};

/// What the last answer told.
#[derive(Debug, Default)]
pub(super) struct Outlook {
    head: Option<Head>,
    /// What the policy's quotas bring.
    rates: Vec<Rate>,
    /// Where they count several units: what the fastest brings, in which turns reckon all of them.
    scale: Option<f64>,
    /// The quota, from 1, that refused last.
    binding: Option<usize>,
}

/// When the first without a place would be due.
#[derive(Debug, Clone, Copy)]
struct Head {
    due_at: Micros,
    cause: Cause,
    /// Tokens from the head of the queue on that `due_at` reckons with.
    tokens: Cost,
    /// Whether the quota that refused has nothing left by then.
    is_drained: bool,
}

impl Outlook {
    /// Keeps what the policy brings.
    pub(super) fn keep(&mut self, policy: &Policy) {
        self.rates.clear();
        self.rates.extend(policy.rates());
        let fastest = self.rates.iter().map(|rate| rate.per_us).fold(0.0, f64::max);
        self.scale = (!policy.is_plain() && fastest > 0.0).then_some(fastest);
    }

    /// What a call weighs in a turn: so many tokens of the one unit that all quotas count, else so
    /// many of the fastest quota as come in the time in which the slowest brings what the call takes
    /// of it.
    pub(super) fn weight(&self, cost: Cost) -> i64 {
        let Some(scale) = self.scale else { return cost.tokens(Unit::Requests) };
        #[allow(clippy::cast_precision_loss, reason = "an estimate")]
        let time = |rate: &Rate| cost.tokens(rate.of) as f64 / rate.per_us;
        let brings = self.rates.iter().filter(|rate| rate.per_us > 0.0);
        let time_us = brings.map(time).fold(0.0, f64::max);
        #[allow(clippy::cast_possible_truncation, reason = "saturates")]
        let weight = (time_us * scale).round() as i64;
        weight
    }

    /// What lies between one place and the next where nobody else books, as
    /// [`weight`](Self::weight) reckons.
    #[allow(clippy::cast_precision_loss, reason = "an estimate")]
    pub(super) fn step(&self, cost: Cost) -> f64 {
        if self.scale.is_some() { self.weight(cost).max(1) as f64 } else { 1.0 }
    }

    /// All who were asked for have places; the last waits so long.
    pub(super) fn granted(&mut self, now: Micros, wait_us: Micros) {
        // Where it had to wait for the one quota there is, nothing is left behind it.
        let is_drained = wait_us > 0 && self.rates.len() == 1 && self.scale.is_none();
        let due_at = now + wait_us;
        self.head =
            Some(Head { due_at, cause: Cause::Quota(1), tokens: Cost::default(), is_drained });
    }

    /// The first in the queue, of so many tokens, would be due then.
    pub(super) fn denied(&mut self, due_at: Micros, cause: Cause, tokens: Cost) {
        if let Cause::Quota(quota) = cause {
            self.binding = Some(quota);
        }
        // Who takes nothing of the quota waited for those before it, whatever is left there.
        let is_drained = match cause {
            Cause::Suspended => false,
            Cause::Quota(quota) => {
                self.rates.get(quota - 1).is_none_or(|rate| tokens.tokens(rate.of) > 0)
            }
        };
        self.head = Some(Head { due_at, cause, tokens, is_drained });
    }

    /// What was known is old.
    pub(super) fn forget(&mut self) {
        self.head = None;
    }

    pub(super) fn head_due(&self) -> Option<Micros> {
        self.head.map(|head| head.due_at)
    }

    /// When a call of `cost` behind so many tokens of the queue is due at the earliest, if no other
    /// process calls. The quota that the head waits for has nothing left by then, if its tokens
    /// come evenly; others may be full.
    pub(super) fn due_behind(&self, ahead: Amounts, cost: Cost) -> Option<(Micros, Cause)> {
        let Head { due_at, cause, tokens, is_drained } = self.head?;
        let wait = |(index, rate): (usize, &Rate)| {
            let more = ahead.of(rate.of) + cost.tokens(rate.of) - tokens.tokens(rate.of);
            #[allow(clippy::cast_precision_loss, reason = "an estimate")]
            let more = more.max(0) as f64;
            let drained = is_drained && rate.is_even && cause == Cause::Quota(index + 1);
            ((more - if drained { 0.0 } else { rate.most }) / rate.per_us).max(0.0)
        };
        let wait_us = self.rates.iter().enumerate().map(wait).fold(0.0, f64::max);
        #[allow(clippy::cast_possible_truncation, reason = "saturates")]
        Some((due_at.saturating_add((wait_us as i64).min(SPAN_MAX_US)), cause))
    }

    /// What the quota that refused last brings, or the slowest one; nothing where none is known. A
    /// token bucket that is hardly faster than a window goes before it: it lets nobody rush.
    pub(super) fn pace(&self) -> Option<Rate> {
        let slower = |a: &Rate, b: &Rate| a.per_us.total_cmp(&b.per_us);
        let slowest = |even: bool| {
            let brings = |rate: &Rate| rate.per_us > 0.0 && (rate.is_even || !even);
            self.rates.iter().copied().filter(brings).min_by(slower)
        };
        let binding = self.binding.and_then(|quota| self.rates.get(quota - 1)).copied();
        let pace = binding.filter(|rate| rate.per_us > 0.0).or_else(|| slowest(false))?;
        if let Some(scale) = self.scale {
            // What is as slow as what depends on what calls take of it.
            return Some(Rate { most: pace.most / pace.per_us * scale, per_us: scale, ..pace });
        }
        let as_slow = slowest(true).filter(|even| even.per_us <= 1.1 * pace.per_us);
        if pace.is_even { Some(pace) } else { as_slow.or(Some(pace)) }
    }
}
