//! A primary and a replica with a faulty wire between them, and nobody who watches over them.
//!
//! What a test wants of it is to say how far the replica is behind when it is promoted: a stalled
//! link is a replica that misses what its primary has already answered.

use crate::eventually::eventually;
use crate::proxy::FaultProxy;
use crate::redis_server::{RedisServer, RedisServerBuilder};

/// Two servers, of which one replicates the other through a [`FaultProxy`].
///
/// ```no_run
/// use paceline_testkit::{Mode, ReplicaPair, Reply};
///
/// let pair = ReplicaPair::start();
/// pair.link().set(Mode::Stall);
/// pair.primary().command(&["SET", "answered", "but lost"]);
/// pair.primary().kill();
/// pair.promote();
/// assert_eq!(pair.replica().command(&["GET", "answered"]), Reply::Nil);
/// ```
#[derive(Debug)]
pub struct ReplicaPair {
    // Dropped in this order: the replica first, so that it does not complain of the other two.
    replica: RedisServer,
    link: FaultProxy,
    primary: RedisServer,
}

impl ReplicaPair {
    /// Starts a pair without a password and returns when the replica has its copy.
    ///
    /// # Panics
    /// As [`ReplicaPairBuilder::start`].
    #[track_caller]
    pub fn start() -> ReplicaPair {
        ReplicaPair::builder().start()
    }

    /// A pair with a password or configuration of its own.
    pub fn builder() -> ReplicaPairBuilder {
        ReplicaPairBuilder::default()
    }

    /// The server that was started as the primary.
    pub fn primary(&self) -> &RedisServer {
        &self.primary
    }

    /// The server that was started as its replica.
    pub fn replica(&self) -> &RedisServer {
        &self.replica
    }

    /// What the replica replicates through.
    pub fn link(&self) -> &FaultProxy {
        &self.link
    }

    /// Makes the replica a primary, with what it has. The other is not told.
    ///
    /// # Panics
    /// When the replica does not answer, or refuses.
    #[track_caller]
    pub fn promote(&self) {
        let reply = self.replica.command(&["REPLICAOF", "NO", "ONE"]);
        assert_eq!(reply.text(), Some("OK"), "the replica is promoted: {reply:?}");
    }

    /// Waits until the replica has all that the primary had when this was called.
    ///
    /// # Panics
    /// When it has not within twenty seconds.
    #[track_caller]
    pub fn wait_synced(&self) {
        wait_synced(&self.primary, &self.replica);
    }
}

/// How a [`ReplicaPair`] is to be.
#[derive(Debug, Clone, Default)]
pub struct ReplicaPairBuilder {
    server: RedisServerBuilder,
}

impl ReplicaPairBuilder {
    /// Both servers ask every client, and each other, for this password.
    pub fn password(mut self, password: &str) -> Self {
        self.server = self.server.password(password);
        self
    }

    /// Sets one directive of both servers' `redis.conf`; the value is one argument.
    pub fn config(mut self, name: &str, value: &str) -> Self {
        self.server = self.server.config(name, value);
        self
    }

    /// Starts both and returns when the replica has its copy.
    ///
    /// # Panics
    /// As [`RedisServerBuilder::start`], or when the replica does not follow.
    #[track_caller]
    pub fn start(self) -> ReplicaPair {
        let server = self.server.replicating();
        let primary = server.clone().start();
        let link = FaultProxy::start(primary.addr());
        let replica = server.replica_of(link.addr()).start();
        let pair = ReplicaPair { replica, link, primary };
        pair.wait_synced();
        pair
    }
}

/// Waits until `replica` has what `primary` has now.
#[track_caller]
pub(crate) fn wait_synced(primary: &RedisServer, replica: &RedisServer) {
    let offset = |server: &RedisServer, field: &str| -> Option<u64> {
        server.info("replication", field)?.parse().ok()
    };
    let mut wanted = None;
    eventually("the replica has what its primary has", || {
        wanted = wanted.or_else(|| offset(primary, "master_repl_offset"));
        // While the link is down the replica's offset may be of another primary's history.
        replica.info("replication", "master_link_status").as_deref() == Some("up")
            && wanted.is_some()
            && offset(replica, "slave_repl_offset") >= wanted
    });
}
