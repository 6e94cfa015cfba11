//! What an error of the server or of the wire means for the call that met it. All but the last two
//! prove that nothing was executed.

use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::error::Error;

/// A failed command.
#[derive(Debug)]
pub(super) enum Failure {
    /// The server does not have the script.
    NoScript,
    /// Another node of the Cluster has the key's slot (MOVED), and where.
    Moved { to: String, slot: u16 },
    /// Another node is taking the slot over and has the key if anybody has (ASK), and where.
    Ask { to: String },
    /// The slot is between two nodes; soon it is not.
    TryAgain(Error),
    /// The server is a replica, as after a failover.
    Replica(Error),
    /// The server cannot decide now: it loads, is full, is busy, is cut off from its Cluster.
    Unable(Error),
    /// Another type is kept under our key, or a hash that is no bucket.
    NotOurs,
    /// The server does not let us in, or not to the database we name.
    Forbidden(Error),
    /// The connection is gone; what was sent may have been executed.
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
        if let Some((to, slot)) = error.redirect_node() {
            let to = to.to_owned();
            return match error.kind() {
                ErrorKind::Server(ServerErrorKind::Ask) => Self::Ask { to },
                _ => Self::Moved { to, slot },
            };
        }
        // 6.2 wraps what a script ran into as `ERR Error running script … WRONGTYPE …`.
        let says = |name: &str| code == name || (code == "ERR" && detail.contains(name));
        if says("NOSCRIPT") {
            return Self::NoScript;
        }
        if says("WRONGTYPE") || detail.contains("the hash under this key is not a bucket") {
            return Self::NotOurs;
        }
        if error.kind() == ErrorKind::AuthenticationFailed
            || ["NOAUTH", "WRONGPASS", "NOPERM"].into_iter().any(says)
            || denied_in_script(detail)
            // Of SELECT the client keeps the words and drops the code.
            || detail.contains("no permissions to run the 'select'")
            || detail.contains("invalid password")
            || detail.contains("without any password configured")
        {
            let message = format!("{server} does not let us in: {}", words());
            return Self::Forbidden(Error::forbidden(format!(
                "{message}; check user, password and ACL rights"
            )));
        }
        // What a server and what the client says of a number that is none of the server's databases.
        if ["DB index is out of range", "invalid DB index"]
            .into_iter()
            .any(|it| detail.contains(it))
        {
            return Self::Forbidden(Error::forbidden(format!(
                "{server} ends with the number of a database that the server does not have: {}; which \
                 it has cannot be told from here (0 to 15 unless it is set up otherwise), so check the \
                 number",
                words()
            )));
        }
        let cannot = || Error::unable(format!("{server} cannot decide now: {}", words()));
        if says("TRYAGAIN") {
            return Self::TryAgain(cannot());
        }
        if says("READONLY") || says("MASTERDOWN") {
            return Self::Replica(cannot());
        }
        let unable = ["LOADING", "CLUSTERDOWN", "BUSY", "OOM", "MISCONF", "NOREPLICAS"];
        if unable.into_iter().any(says) || detail.contains("-OOM ") {
            return Self::Unable(cannot());
        }
        if error.is_io_error() || error.is_connection_dropped() || error.is_unrecoverable_error() {
            let message = format!("{server} is away: {error}; the call may have been counted");
            return Self::Away(Error::unavailable(message));
        }
        Self::Told(Error::incompatible(format!("{server} answered with an error: {}", words())))
    }

    /// What to tell a caller who asked for `key`.
    pub(super) fn told(self, server: &str, key: &str) -> Error {
        match self {
            Self::TryAgain(error)
            | Self::Replica(error)
            | Self::Unable(error)
            | Self::Forbidden(error)
            | Self::Away(error)
            | Self::Told(error) => error,
            Self::NoScript => {
                Error::unavailable(format!("{server} forgets the script as soon as it is loaded"))
            }
            Self::Moved { to, slot } => Error::unavailable(format!(
                "{server} sends us on to {to} for slot {slot}, again and again; if it is a node of \
                 a Cluster, name the store redis-cluster://"
            )),
            Self::Ask { to } => {
                Error::unavailable(format!("{server} sends us on to {to}, again and again"))
            }
            Self::NotOurs => Error::incompatible(format!(
                "key {key:?} in {server} holds something that is not a bucket; delete or rename it, \
                 or choose another ?prefix="
            )),
        }
    }
}

/// Whether a user may run the script and not what it does: 6.2 and 7.0 have other words for that
/// inside a script than outside.
fn denied_in_script(detail: &str) -> bool {
    detail.contains("ACL failure in script")
        || detail.contains("The user executing the script can't")
}
