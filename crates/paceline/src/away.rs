//! What a caller gets while the store is away, chosen by name.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::sync::Arc;

use paceline_core::{Ask, Bucket, Decision, Micros, Policy, decide};

use crate::error::Error;

/// What a call gets while the store does not answer: `refuse`, `allow` or `local/N`.
///
/// | | an acquiring call gets | the provider's quota |
/// |---|---|---|
/// | `Refuse` | an error, [`is_unavailable`](Error::is_unavailable) | is kept |
/// | `Allow` | a permit at once, marked [`GrantedBy::Allowed`](crate::GrantedBy::Allowed) | is not |
/// | `Local` | its process's share of the last known policy, marked [`GrantedBy::Local`](crate::GrantedBy::Local) | is kept by up to N processes |
///
/// Each such answer is counted in [`Stats`](crate::Stats).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WhenAway {
    /// No call passes without the store.
    #[default]
    Refuse,
    /// Every call passes without the store. Choose it only where a ban is better than standing
    /// still.
    Allow,
    /// This process keeps one share of `processes` of the last known policy on its own. It starts
    /// the share empty, since others may have just used the whole quota.
    Local {
        /// How many processes share the quota.
        processes: NonZeroU32,
    },
}

impl FromStr for WhenAway {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let local = |n: &str| n.parse().ok().map(|processes| Self::Local { processes });
        match text {
            "refuse" => Some(Self::Refuse),
            "allow" => Some(Self::Allow),
            _ => text.strip_prefix("local/").and_then(local),
        }
        .ok_or_else(|| {
            Error::input(format!(
                "{text:?} is not what to do while the store is away: refuse, allow, or local/N where \
                 N processes share the quota, such as local/8"
            ))
        })
    }
}

impl fmt::Display for WhenAway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refuse => f.write_str("refuse"),
            Self::Allow => f.write_str("allow"),
            Self::Local { processes } => write!(f, "local/{processes}"),
        }
    }
}

/// One process's share of a bucket while the store is away, and the policy last known of it.
#[derive(Debug, Default)]
pub(crate) struct LocalShare {
    /// The bucket's policy where it was not the caller's own.
    known: Option<Arc<Policy>>,
    /// The share, with the policy it was cut from; `None` while the store answers.
    running: Option<(Arc<Policy>, Option<Bucket>)>,
}

impl LocalShare {
    /// The store answered: the share ends, and what the bucket's policy is (`None`: the caller's).
    pub(crate) fn store_answered(&mut self, policy: Option<Arc<Policy>>) {
        self.known = policy;
        self.running = None;
    }

    /// Decides a call from this process's share alone. The share starts empty.
    pub(crate) fn take(
        &mut self,
        own: &Policy,
        processes: NonZeroU32,
        ask: Ask,
        now: Micros,
    ) -> Result<(Decision, Arc<Policy>), Error> {
        let (policy, slot) = match self.running.take() {
            Some(running) => running,
            None => {
                let whole = self.known.as_deref().unwrap_or(own);
                let policy = Arc::new(whole.share_of(processes)?);
                let drained = Bucket::drained(Arc::clone(&policy), now);
                (policy, Some(drained))
            }
        };
        let (policy, slot) = self.running.insert((policy, slot));
        Ok((decide::take(slot, policy, ask, now), Arc::clone(policy)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_chosen_by_name_and_prints_the_same_name() {
        for name in ["refuse", "allow", "local/1", "local/8"] {
            assert_eq!(name.parse::<WhenAway>().unwrap().to_string(), name);
        }
        for name in ["", "local", "local/0", "local/x", "Refuse", "open"] {
            assert!(
                name.parse::<WhenAway>().unwrap_err().to_string().contains("local/N"),
                "{name}"
            );
        }
    }
}
