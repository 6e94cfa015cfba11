//! What is taken wherever a policy is asked for: a policy, or a text that reads as one.

use paceline_core::Policy;

use crate::error::Error;

mod sealed {
    pub trait Sealed {}
}

/// A [`Policy`] or its text form, such as `"50/s burst 10"`. Sealed: nothing else is a policy.
pub trait IntoPolicy: sealed::Sealed {
    /// The policy.
    ///
    /// # Errors
    /// When the text reads as none; the message says what is allowed.
    fn into_policy(self) -> Result<Policy, Error>;
}

impl sealed::Sealed for Policy {}

impl IntoPolicy for Policy {
    fn into_policy(self) -> Result<Policy, Error> {
        Ok(self)
    }
}

impl sealed::Sealed for &Policy {}

impl IntoPolicy for &Policy {
    fn into_policy(self) -> Result<Policy, Error> {
        Ok(self.clone())
    }
}

impl sealed::Sealed for &str {}

impl IntoPolicy for &str {
    fn into_policy(self) -> Result<Policy, Error> {
        Ok(self.parse()?)
    }
}

impl sealed::Sealed for &String {}

impl IntoPolicy for &String {
    fn into_policy(self) -> Result<Policy, Error> {
        self.as_str().into_policy()
    }
}
