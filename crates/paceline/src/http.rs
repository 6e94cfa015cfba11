//! What a provider's answer says, and what the fleet does about it.
//!
//! [`read`] and the [`Profiles`] are pure and come from `paceline-http`; [`Bucket::observe`] acts on
//! what they tell:
//!
//! | the answer | what happens |
//! |---|---|
//! | refuses and states a time (429 with Retry-After, an empty limit with a reset) | the bucket is suspended for the whole fleet, at most for the profile's longest wait; the reason names the header and what stood in it |
//! | says with a success that nothing is left until then | the same |
//! | refuses, and the profile knows how long such refusals last | the same, marked as guessed, longer each time in a row |
//! | refuses without any time | its caller backs off; only when a second target is refused with no success in between is the fleet suspended, marked as guessed |
//! | is no refusal for rate, or comes from a cache | nothing |
//!
//! A success that was in flight never ends a suspension: only its end does, or `resume`. At the end
//! of one that a refusal caused one call of the fleet goes first, and the others follow when its
//! answer is none; see [`LimiterBuilder::probe`](crate::LimiterBuilder::probe).
//!
//! With the features `tower` and `reqwest`, a client asks and tells by itself: see the modules of
//! these names.

mod back_off;
#[cfg(any(feature = "tower", feature = "reqwest"))]
mod pacer;
#[cfg(any(feature = "tower", feature = "reqwest"))]
mod retry;

use std::time::Duration;

use ::http::HeaderMap;
pub use paceline_http::{
    Answer as Meaning, Basis, BucketRule, Dimension, Grade, HeaderMeans, HeaderRule, Limit, Placed,
    Profile, ProfileError, Profiles, Reading, Refusal as Refused, RefusalRule, Source, Suspension,
    read,
};

pub(crate) use self::back_off::BackOffs;
#[cfg(any(feature = "tower", feature = "reqwest"))]
pub(crate) use self::pacer::Stopped;
#[cfg(any(feature = "tower", feature = "reqwest"))]
pub use self::pacer::{Head, Pacer};
#[cfg(any(feature = "tower", feature = "reqwest"))]
pub use self::retry::Retry;
use crate::bucket::Bucket;
use crate::clock::micros;
use crate::error::Error;

/// An answer of a provider.
#[derive(Debug, Clone, Copy)]
pub struct Response<'a> {
    /// Its status, such as 429.
    pub status: u16,
    /// Its headers.
    pub headers: &'a HeaderMap,
    /// Its body, where the profile may find words in it.
    pub body: Option<&'a [u8]>,
    /// What was called, such as a path: refusals without a time are told apart by it.
    pub target: &'a str,
}

/// What became of an observation.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Observed {
    /// The answer asks for nothing.
    Nothing,
    /// The bucket is suspended for the whole fleet.
    Suspended {
        /// For how long from now; longer than was asked for where it was suspended already.
        left: Duration,
        /// Whether no time was stated, and this is a guess.
        guessed: bool,
        /// What was asked for, where that is more than the longest wait.
        clamped_from: Option<Duration>,
    },
    /// Refused without a time: this caller should rest for so long before it calls this target
    /// again. The fleet goes on.
    BackOff(Duration),
}

impl Bucket {
    /// Tells the fleet what an answer said, as [`http`](crate::http) describes.
    ///
    /// # Errors
    /// When the fleet had to be told and the store did not answer. The caller should then rest on its
    /// own; nothing was lost but the telling.
    pub async fn observe(
        &self,
        response: Response<'_>,
        profile: &Profile,
    ) -> Result<Observed, Error> {
        let Response { status, headers, body, target } = response;
        let reading = read(status, headers, body, self.line.shared.clock.now(), profile);
        self.heed(status, &reading, target, profile).await
    }

    /// Does what [`observe`](Self::observe) does, for an answer that was read already.
    pub(crate) async fn heed(
        &self,
        status: u16,
        reading: &Reading<'_>,
        target: &str,
        profile: &Profile,
    ) -> Result<Observed, Error> {
        let shared = &self.line.shared;
        let refused = reading.answer.is_rate();
        let steps = {
            let mut back_offs = self.line.back_offs();
            match (refused, &reading.suspension) {
                (true, _) => back_offs.refused(target),
                (false, _) if (200..400).contains(&status) => {
                    back_offs.passed(target);
                    Default::default()
                }
                (false, _) => Default::default(),
            }
        };
        let (wait, reason, guessed, clamped_from) = match &reading.suspension {
            Some(suspension) => {
                let guessed = suspension.basis == Basis::Guessed;
                let stated = micros(suspension.wait_us);
                let longest = micros(profile.wait_max_us());
                let wait = match suspension.wait_us {
                    // "At once" is no time; who obeys it calls again and again.
                    0 => steps.pause(),
                    _ if suspension.grows => steps.grown(stated).min(longest),
                    _ => stated,
                };
                let mut reason = format!("{status}, {}: {}", suspension.source, suspension.raw);
                let clamped = suspension.is_clamped().then(|| micros(suspension.asked_us));
                if clamped.is_some() {
                    reason.push_str(", cut to the longest wait");
                }
                (wait, reason, guessed, clamped)
            }
            None if refused && steps.targets > 1 => {
                let reason = format!("{status} without a time, from {} targets", steps.targets);
                (steps.pause(), reason, true, None)
            }
            None if refused => return Ok(Observed::BackOff(steps.pause())),
            None => return Ok(Observed::Nothing),
        };
        let reason = if guessed { format!("guessed: {reason}") } else { reason };
        let limiter = crate::limiter::Limiter::sharing(std::sync::Arc::clone(shared));
        let reason = shortened(&reason);
        let left = match refused {
            true => limiter.suspend_refused(self.name(), wait, &reason).await?,
            false => limiter.suspend(self.name(), wait, &reason).await?,
        };
        Ok(Observed::Suspended { left, guessed, clamped_from })
    }
}

/// A reason as a store takes it.
fn shortened(reason: &str) -> String {
    let mut short = String::new();
    for c in reason.chars().filter(|c| !c.is_control()) {
        if short.len() + c.len_utf8() > 256 {
            break;
        }
        short.push(c);
    }
    short
}
