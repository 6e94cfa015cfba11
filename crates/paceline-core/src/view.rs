//! A bucket as a person wants to see it: what is left of each quota, how far it is booked, and
//! what stops it. Derived from the state at a given moment; nothing here decides.

use crate::decide::UNPROBED_US;
use crate::policy::Gate;
use crate::state::{Bucket, Level, Probing, Suspension};
use crate::{Micros, Policy};

/// What an onlooker sees of a bucket at one moment. Spans are in microseconds from then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// One for each quota of the policy, in its order.
    pub quotas: Vec<QuotaView>,
    /// How far ahead calls are booked; 0 when the next call could go at once as far as order goes.
    pub booked_us: Micros,
    /// What is left of the suspension, and who made it when on the store's clock.
    pub suspension: Option<SuspensionView>,
    /// When the bucket would be forgotten if nobody used it.
    pub expires_us: Micros,
}

/// One quota at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaView {
    /// Its text form.
    pub text: String,
    /// Whole tokens that could be taken now, as far as this quota goes; 0 where it is booked ahead.
    pub remaining: i64,
    /// What it holds at most.
    pub capacity: i64,
}

/// A suspension at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SuspensionView {
    /// Microseconds left: until one call may go first where none may yet, else at most until all go.
    pub left_us: Micros,
    /// Whether one call goes before the others.
    pub probing: Probing,
    /// Since when, on the store's clock.
    pub since: Micros,
    /// Why and by whom.
    pub why: Suspension,
}

impl Bucket {
    /// What there is to see at `now`.
    #[must_use]
    pub fn view(&self, now: Micros) -> View {
        let clock = self.state.clock.seen_at(now);
        let bucket_time = clock.bucket_time(now);
        let booked_us = (self.state.at - bucket_time).max(0);
        let quotas = self.policy.as_deref().map(Policy::quotas).unwrap_or_default();
        let gates = self.policy.as_deref().map(Policy::gates).unwrap_or_default();
        let quotas =
            quotas.iter().zip(gates).zip(&self.state.levels).map(|((quota, gate), level)| {
                let (remaining, capacity) = match (gate, level) {
                    (Gate::Bucket { rate, unit, capacity, .. }, Level::Credit(credit)) => {
                        let earned = (bucket_time - self.state.at).max(0).saturating_mul(*rate);
                        (
                            (credit.saturating_add(earned).min(*capacity) / unit).max(0),
                            capacity / unit,
                        )
                    }
                    (Gate::Window { limit, span_us, .. }, Level::Window(window)) => {
                        let live =
                            window.entries.iter().filter(|(time, _)| time + span_us > bucket_time);
                        let used: i64 = live.map(|(_, tokens)| tokens).sum();
                        ((limit - used).max(0), *limit)
                    }
                    _ => (0, 0),
                };
                let remaining = if booked_us > 0 { 0 } else { remaining };
                QuotaView { text: quota.to_string(), remaining, capacity }
            });
        View {
            quotas: quotas.collect(),
            booked_us,
            suspension: clock.is_suspended().then(|| SuspensionView {
                left_us: match clock.probing(now) {
                    Probing::Open(open_us) if open_us > 0 => open_us,
                    _ => clock.left(now),
                },
                probing: match clock.until - clock.probe {
                    UNPROBED_US => Probing::No,
                    _ => clock.probing(now),
                },
                since: clock.since,
                why: self.state.suspension.clone().unwrap_or_default(),
            }),
            expires_us: self.lifetime_us(now),
        }
    }
}
