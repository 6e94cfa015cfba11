//! What a provider's answer says about its rate limits, and what is known of providers beforehand.
//! No I/O, no clock: status, headers, body and `now` go in, a [`Reading`] comes out.
//!
//! - [`read`](read()): one answer to one [`Reading`]: was it refused for its pace, for how long is there
//!   nothing to be had, which limits does it tell of. `read/` has a file for each family of headers.
//! - [`Profiles`]: providers as data (`profiles.toml`): their documented quotas with source and
//!   date, what their headers mean, how they refuse, and which bucket a call belongs to. A user's
//!   own file adds to them.
//!
//! What a fleet does with a reading is left to others.

mod number;
mod profile;
mod profiles;
mod read;
mod reading;
mod time;

pub use profile::{
    BucketRule, Grade, HeaderMeans, HeaderRule, Placed, Profile, ProfileError, RefusalRule,
    WAIT_MAX_DEFAULT_US,
};
pub use profiles::{PROFILES, Profiles};
pub use read::read;
pub use reading::{
    Answer, Basis, Dimension, Limit, Reading, Refusal, Source, Suspension, UnixMicros,
};
pub use time::Unit;
