//! What an error of the server or of the wire means for the call that met it.

use redis::{ErrorKind, RedisError};

use crate::error::Error;

/// A failed command.
#[derive(Debug)]
pub(super) enum Failure {
    /// The server does not have the script; nothing was executed.
    NoScript,
    /// Another type is kept under our key.
    WrongType,
    /// The connection, or the server's ability to decide, is gone.
    Away(Error),
    /// Anything else, in words.
    Told(Error),
}

impl Failure {
    /// Sorts an error by what the server calls it.
    pub(super) fn of(error: &RedisError, server: &str) -> Self {
        let code = error.code().unwrap_or_default();
        let detail = error.detail().unwrap_or_default();
        let words = || {
            let words = format!("{code} {detail}");
            if words.trim().is_empty() { error.to_string() } else { words.trim().to_owned() }
        };
        // 6.2 wraps what a script ran into as `ERR Error running script … WRONGTYPE …`.
        let says = |name: &str| code == name || (code == "ERR" && detail.contains(name));
        if says("NOSCRIPT") {
            return Self::NoScript;
        }
        if says("WRONGTYPE") {
            return Self::WrongType;
        }
        if error.kind() == ErrorKind::AuthenticationFailed
            || ["NOAUTH", "WRONGPASS", "NOPERM"].into_iter().any(says)
            || detail.contains("invalid password")
            || detail.contains("without any password configured")
        {
            let message = format!("{server} does not let us in: {}", words());
            return Self::Told(Error::forbidden(format!(
                "{message}; check user, password and ACL rights"
            )));
        }
        // The server cannot decide now: it loads, is a replica, is full, is busy, is cut off.
        let cannot = [
            "READONLY",
            "LOADING",
            "MASTERDOWN",
            "CLUSTERDOWN",
            "TRYAGAIN",
            "BUSY",
            "OOM",
            "MISCONF",
        ];
        if cannot.into_iter().any(says) || detail.contains("-OOM ") {
            let told = Error::unavailable(format!("{server} cannot decide now: {}", words()));
            // A replica stays one; a new connection may find the primary.
            return if says("READONLY") { Self::Away(told) } else { Self::Told(told) };
        }
        if error.is_io_error() || error.is_connection_dropped() || error.is_unrecoverable_error() {
            let message = format!("{server} is away: {error}; the call may have been counted");
            return Self::Away(Error::unavailable(message));
        }
        Self::Told(Error::incompatible(format!("{server} answered with an error: {}", words())))
    }

    /// Whether the connection it happened on is of no more use.
    pub(super) fn ends_connection(&self) -> bool {
        matches!(self, Self::Away(_))
    }
}
