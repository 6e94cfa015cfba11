//! What a call gets: a permit, or a refusal that says when to come back. A refusal is an answer,
//! not an error.

use std::fmt;
use std::time::Duration;

use crate::permit::Permit;

/// The answer of [`try_acquire`](crate::Bucket::try_acquire) and
/// [`acquire_within`](crate::Bucket::acquire_within).
#[derive(Debug)]
#[must_use = "a permit that is dropped unspent gives its place back"]
pub enum Answer {
    /// The call may go out now.
    Granted(Permit),
    /// Nothing was taken.
    Refused(Refusal),
}

impl Answer {
    /// The permit, or the refusal as an error, for `?`.
    ///
    /// # Errors
    /// The refusal, where it is one.
    pub fn permit(self) -> Result<Permit, Refusal> {
        match self {
            Self::Granted(permit) => Ok(permit),
            Self::Refused(refusal) => Err(refusal),
        }
    }

    /// Whether the call may go out.
    #[must_use]
    pub fn is_granted(&self) -> bool {
        matches!(self, Self::Granted(_))
    }
}

/// Why a call may not go out, and when the same call would pass if nobody else called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub(crate) bucket: String,
    pub(crate) retry_after: Duration,
    pub(crate) cause: RefusedBy,
    pub(crate) local: bool,
}

/// What refused.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RefusedBy {
    /// The bucket is suspended; nobody may call.
    Suspension,
    /// One quota of the policy has no room.
    Quota {
        /// Its place in the policy, from 1.
        number: usize,
        /// Its text form.
        text: String,
    },
    /// As many calls wait in this process as may; see
    /// [`max_waiters`](crate::LimiterBuilder::max_waiters).
    Crowd {
        /// How many that is.
        waiters_max: usize,
    },
    /// The provider refused this target without saying for how long, and its callers in this
    /// process rest. Only middleware refuses so.
    Target {
        /// What was called.
        target: String,
    },
}

impl Refusal {
    /// The bucket's name.
    #[must_use]
    pub fn bucket(&self) -> &str {
        &self.bucket
    }

    /// When the same call would pass, from now, if nobody else called. Exact to the microsecond;
    /// whoever sleeps it adds a little random jitter, so that not all come at once.
    #[must_use]
    pub fn retry_after(&self) -> Duration {
        self.retry_after
    }

    /// What refused.
    #[must_use]
    pub fn cause(&self) -> &RefusedBy {
        &self.cause
    }

    /// Whether this process's own share refused, because the store is away.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.local
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bucket {:?} refused: ", self.bucket)?;
        match &self.cause {
            RefusedBy::Suspension => f.write_str("suspended")?,
            RefusedBy::Quota { number, text } => write!(f, "quota {number} ({text}) has no room")?,
            RefusedBy::Crowd { waiters_max } => {
                write!(f, "{waiters_max} calls wait already, as many as may")?;
            }
            RefusedBy::Target { target } => {
                write!(f, "{target:?} was refused by the provider, and rests")?;
            }
        }
        write!(f, "; retry after {:?}", self.retry_after)?;
        if self.local {
            f.write_str(" (this process's share; the store is away)")?;
        }
        Ok(())
    }
}

impl std::error::Error for Refusal {}
