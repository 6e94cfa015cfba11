//! The one error type: opaque, with predicates that say what a caller can do about it, and a
//! message that names the bucket or store, what is allowed and what to do. A refusal is not an
//! error; see [`Refusal`](crate::Refusal).

use std::fmt;

/// Something failed. Ask the predicates what kind of failure it is; print it for the words.
#[derive(Debug, Clone)]
pub struct Error {
    kind: Kind,
    message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The store did not answer in time, or cannot be reached.
    Unavailable,
    /// It answered that it cannot decide now: it is full, loads, or is cut off from its Cluster.
    Unable,
    /// The store answered, but not as ours would: another type under our key, a newer format, a
    /// server too old, a script error.
    Incompatible,
    /// The store does not let us in, or not to the database that the URL names.
    Forbidden,
    /// What the caller gave is not allowed.
    Input,
    /// The call asks for more than its policy can ever give.
    Never,
    /// As many calls wait as may.
    Crowded,
}

impl Error {
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(Kind::Unavailable, message)
    }

    pub(crate) fn unable(message: impl Into<String>) -> Self {
        Self::new(Kind::Unable, message)
    }

    pub(crate) fn incompatible(message: impl Into<String>) -> Self {
        Self::new(Kind::Incompatible, message)
    }

    pub(crate) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(Kind::Forbidden, message)
    }

    pub(crate) fn input(message: impl Into<String>) -> Self {
        Self::new(Kind::Input, message)
    }

    pub(crate) fn never(message: impl Into<String>) -> Self {
        Self::new(Kind::Never, message)
    }

    pub(crate) fn crowded(message: impl Into<String>) -> Self {
        Self::new(Kind::Crowded, message)
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// The same failure, told with the bucket it happened to.
    pub(crate) fn of_bucket(self, name: &str) -> Self {
        Self { message: format!("bucket {name:?}: {}", self.message), ..self }
    }

    /// The same failure, told with the server it happened at.
    pub(crate) fn at(self, server: impl fmt::Display) -> Self {
        Self { message: format!("{} (at {server})", self.message), ..self }
    }

    /// Whether the store could not be reached or did not answer in time. Trying again later may
    /// succeed. The call may have been counted: a lost answer is reckoned as spent.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        matches!(self.kind, Kind::Unavailable | Kind::Unable)
    }

    /// Whether the store holds or is something this version cannot work with: a key of another
    /// type under our name, a newer format, a server older than 6.2.
    #[must_use]
    pub fn is_incompatible(&self) -> bool {
        self.kind == Kind::Incompatible
    }

    /// Whether the store refused us: a wrong password, rights that are missing, a database that is not
    /// there.
    #[must_use]
    pub fn is_forbidden(&self) -> bool {
        self.kind == Kind::Forbidden
    }

    /// Whether what the caller gave is not allowed: a URL, a name, a policy, a cost.
    #[must_use]
    pub fn is_input(&self) -> bool {
        self.kind == Kind::Input
    }

    /// Whether the call asks for more than its bucket's policy can ever give; waiting is no help.
    #[must_use]
    pub fn is_never(&self) -> bool {
        self.kind == Kind::Never
    }

    /// Whether as many calls wait in this process as may; see
    /// [`max_waiters`](crate::LimiterBuilder::max_waiters).
    #[must_use]
    pub fn is_crowded(&self) -> bool {
        self.kind == Kind::Crowded
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl From<paceline_core::CostError> for Error {
    fn from(error: paceline_core::CostError) -> Self {
        Self::input(error.to_string())
    }
}

impl From<paceline_core::PolicyError> for Error {
    fn from(error: paceline_core::PolicyError) -> Self {
        Self::input(error.to_string())
    }
}
