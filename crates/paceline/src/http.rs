//! What a provider's answer says, and what the fleet does about it.
//!
//! [`read`] and the [`Profiles`] are pure and come from `paceline-http`; [`Bucket::observe`](crate::Bucket::observe) acts on
//! what they tell:
//!
//! | the answer | what happens |
//! |---|---|
//! | refuses and states a time (429 with Retry-After, an empty limit with a reset) | the bucket is suspended for the whole fleet, at most for the profile's longest wait; the reason names the header and what stood in it |
//! | says with a success that nothing is left until then | the same |
//! | refuses, and the profile knows how long such refusals last | the same, marked as guessed, longer each time in a row |
//! | refuses without any time | its caller backs off; only when a second target, here or in another process, is refused with no success in between is the fleet suspended, marked as guessed |
//! | says that less is left than the bucket reckons with | the difference counts as spent by others, for the whole fleet, until the provider counts anew; more than that raises nothing |
//! | says that what is left will be taken by calls that nothing can stop any more | the bucket is suspended until the provider counts anew |
//! | states a limit, to a handle that is [`adaptive`](crate::Bucket::adaptive) | it becomes the bucket's policy: a lower one when two answers in a row have stated it, or one that refuses; a higher one after three for a window that the policy has, too (or up to the handle's own policy without one); never in place of a pinned policy, and never by an error that is none of pace |
//! | refuses an adaptive handle, and states no limit | the pace is eased: it falls by a fifth to a half, down to a sixty-fourth of the handle's own policy at most, and climbs back to just below what was refused; more than that is tried again after ten minutes, and ever later where it is refused again |
//! | is no refusal for rate, or comes from a cache | nothing |
//!
//! A success never ends a suspension: only its end does, or `resume`. The provider goes on counting in
//! one that an answer caused, so windows count that time as passed; an operator's stops them, too. What was learned stays for an
//! hour beyond the idle bucket, and is in [`Status::policy`](crate::Status::policy).
//!
//! Late, repeated and reordered answers do no harm where the call is told with them
//! ([`observe_call`](crate::Bucket::observe_call)): its own place in the bucket says which calls the
//! provider had not heard of yet, and one that took longer than the provider's window had left may
//! be of the window before, and is passed over. What is left is told to the store in the
//! background, one operation for each answer that says it (at most 64 an interval while more than an
//! eighth is left).
//!
//! With the features `tower` and `reqwest`, a client asks and tells by itself: see the modules of
//! these names.

mod back_off;
#[cfg(any(feature = "tower", feature = "reqwest"))]
mod body;
mod ease;
mod heed;
mod learn;
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

#[cfg(any(feature = "tower", feature = "reqwest"))]
pub use self::body::{ReadAhead, ReadBodies};
pub(crate) use self::heed::Heard;
#[cfg(any(feature = "tower", feature = "reqwest"))]
pub(crate) use self::heed::Told;
#[cfg(any(feature = "tower", feature = "reqwest"))]
pub use self::pacer::{Head, Pacer};
#[cfg(any(feature = "tower", feature = "reqwest"))]
pub(crate) use self::pacer::{Said, Stopped};
#[cfg(any(feature = "tower", feature = "reqwest"))]
pub use self::retry::Retry;
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
