//! A bucket as an operator wants to see it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use paceline_core::{Bucket, Micros, Probing};

use crate::clock::micros;

/// A bucket at one moment of the store's time.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// Its name.
    pub name: String,
    /// The policy that binds, in its text form; `None` where the bucket was suspended before
    /// anybody called.
    pub policy: Option<String>,
    /// Whether the policy outlives the idle bucket.
    pub pinned: bool,
    /// Each quota of the policy, in its order.
    pub quotas: Vec<QuotaStatus>,
    /// How far ahead calls are booked.
    pub booked_ahead: Duration,
    /// The suspension, while there is one.
    pub suspension: Option<SuspensionStatus>,
    /// When the bucket will be forgotten if nobody uses it.
    pub expires_in: Duration,
}

/// One quota at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct QuotaStatus {
    /// Its text form.
    pub quota: String,
    /// Whole tokens that could be taken now, as far as this quota goes.
    pub remaining: u64,
    /// What it holds at most.
    pub capacity: u64,
}

/// A suspension at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SuspensionStatus {
    /// What is left of it: until one call may go first, where none may yet; else until all may.
    pub left: Duration,
    /// Whether one call goes first, as after a refusal; `None` where all go at the end.
    pub probe: Option<ProbeStatus>,
    /// Since when, on the store's clock.
    pub since: SystemTime,
    /// Why, in the words of who suspended.
    pub reason: String,
    /// Who suspended.
    pub by: String,
}

/// The one call that goes first at the end of a suspension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProbeStatus {
    /// It goes when what is left is over.
    Ahead,
    /// It may go now.
    Awaited,
    /// It has gone, and the others wait for its answer.
    UnderWay,
}

impl Status {
    pub(crate) fn new(name: &str, bucket: &Bucket, now: Micros) -> Self {
        let view = bucket.view(now);
        let tokens = |count: i64| u64::try_from(count).unwrap_or(0);
        Self {
            name: name.to_owned(),
            policy: bucket.policy.as_ref().map(|policy| policy.to_string()),
            pinned: bucket.is_pinned(),
            quotas: view
                .quotas
                .into_iter()
                .map(|quota| QuotaStatus {
                    quota: quota.text,
                    remaining: tokens(quota.remaining),
                    capacity: tokens(quota.capacity),
                })
                .collect(),
            booked_ahead: micros(view.booked_us),
            suspension: view.suspension.map(|suspension| SuspensionStatus {
                left: micros(suspension.left_us),
                probe: match suspension.probing {
                    Probing::No => None,
                    Probing::Open(open_us) if open_us > 0 => Some(ProbeStatus::Ahead),
                    Probing::Open(_) => Some(ProbeStatus::Awaited),
                    Probing::Taken => Some(ProbeStatus::UnderWay),
                },
                since: UNIX_EPOCH + micros(suspension.since),
                reason: suspension.why.reason,
                by: suspension.why.by,
            }),
            expires_in: micros(view.expires_us),
        }
    }
}
