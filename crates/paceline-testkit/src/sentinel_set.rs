//! A primary, its replicas and three sentinels that watch over them: failover as it is in the field,
//! in the time a test has.
//!
//! A sentinel looks at its servers every ten seconds, and tells the others of itself every two;
//! `SENTINEL DEBUG` makes it quicker. What it decides, and in which order, stays as it is.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::eventually::{PROMOTION_MAX, awaited, eventually};
use crate::proxy::FaultProxy;
use crate::redis_server::{GLANCE_MAX, RedisServer, RedisServerBuilder};
use crate::replica_pair::wait_synced;
use crate::resp::Reply;
use crate::url;

/// The name under which the sentinels watch the servers.
const SERVICE: &str = "main";
const SENTINELS: usize = 3;
/// Two of three agree that a primary is down, as in any set of three.
const QUORUM: &str = "2";
/// How soon a failover that came to nothing is tried again: twice this.
const FAILOVER_MAX_MS: &str = "2000";
/// Milliseconds. The tilt period is how long a sentinel that found its clock odd, as on a machine
/// too busy to run it, keeps out of everything: thirty seconds by default.
#[rustfmt::skip]
const PACE: &[&str] = &[
    "INFO-PERIOD", "200",
    "PING-PERIOD", "100",
    "ASK-PERIOD", "100",
    "MIN-LINK-RECONNECT-PERIOD", "100",
    "ELECTION-TIMEOUT", "1000",
    "TILT-PERIOD", "1000",
];
/// How often a sentinel tells the others of itself while they still have to meet. Four of these are
/// what it grants a replica that says it is a primary before it makes it a replica again, and the
/// one that has promoted it may need a second to see that, so that the usual pace is slower.
const MEETING_PACE: &[&str] = &["PUBLISH-PERIOD", "100"];
const USUAL_PACE: &[&str] = &["PUBLISH-PERIOD", "600"];
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A primary, replicas and three sentinels on free loopback ports; the service is named `main`.
///
/// ```no_run
/// use paceline_testkit::SentinelSet;
///
/// let set = SentinelSet::start();
/// let old_port = set.kill_primary();
/// set.wait_for_promotion(old_port);
/// assert_ne!(set.primary().port(), old_port);
/// ```
#[derive(Debug)]
pub struct SentinelSet {
    // Dropped in this order: the sentinels first, so that they do not act on the end of the rest.
    sentinels: Vec<RedisServer>,
    replication: Option<FaultProxy>,
    servers: Vec<RedisServer>,
    password: Option<String>,
    sentinel_password: Option<String>,
    /// The port of the primary that a sentinel was last asked to replace.
    to_replace: Mutex<Option<u16>>,
}

impl SentinelSet {
    /// Starts a set of one primary and one replica without passwords.
    ///
    /// # Panics
    /// As [`SentinelSetBuilder::start`].
    #[track_caller]
    pub fn start() -> SentinelSet {
        SentinelSet::builder().start()
    }

    /// A set with more replicas, passwords or configuration of its own.
    pub fn builder() -> SentinelSetBuilder {
        SentinelSetBuilder {
            server: RedisServer::builder(),
            replicas: 1,
            password: None,
            sentinel_password: None,
            down_after: Duration::from_millis(500),
            replication_proxy: false,
        }
    }

    /// The set as a store's URL: the sentinels' hosts, the service, the passwords there are.
    pub fn url(&self) -> String {
        let login = url::login(self.password.as_deref());
        let hosts = url::hosts(self.sentinel_ports());
        let query = self.sentinel_password.as_deref().map(url::percent_encoded);
        let query = query.map(|p| format!("?sentinel_password={p}")).unwrap_or_default();
        format!("redis+sentinel://{login}{hosts}/{SERVICE}{query}")
    }

    /// All servers, the one that was started as the primary first.
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// Where the sentinels listen.
    pub fn sentinel_ports(&self) -> Vec<u16> {
        self.sentinels.iter().map(RedisServer::port).collect()
    }

    /// The server that more than half of the sentinels there are name as the primary. It may be
    /// dead, as long as they have not put another in its place.
    ///
    /// # Panics
    /// When the sentinels do not agree within twenty seconds.
    #[track_caller]
    pub fn primary(&self) -> &RedisServer {
        let mut named = None;
        eventually("the sentinels agree on the primary", || {
            let said: Vec<u16> = self.sentinels.iter().filter_map(names).collect();
            named = self.servers.iter().find(|server| {
                said.iter().filter(|&&port| port == server.port()).count() * 2 > said.len()
            });
            named.is_some()
        });
        named.expect("the wait ended with one")
    }

    /// The servers that are not [`SentinelSet::primary`], dead ones included.
    ///
    /// # Panics
    /// As [`SentinelSet::primary`].
    #[track_caller]
    pub fn replicas(&self) -> Vec<&RedisServer> {
        let primary = self.primary().port();
        self.servers.iter().filter(|server| server.port() != primary).collect()
    }

    /// What the first replica replicates through, if the set was built with
    /// [`SentinelSetBuilder::replication_proxy`].
    pub fn replication(&self) -> Option<&FaultProxy> {
        self.replication.as_ref()
    }

    /// Kills the primary as [`RedisServer::kill`] does, and returns its port.
    ///
    /// # Panics
    /// As [`SentinelSet::primary`].
    #[track_caller]
    pub fn kill_primary(&self) -> u16 {
        let primary = self.primary();
        primary.kill();
        primary.port()
    }

    /// Asks a sentinel to put a replica in the primary's place, as an operator does before
    /// maintenance, and returns the old primary's port without waiting for the new one. The old
    /// primary becomes a replica, and its clients are disconnected.
    ///
    /// # Panics
    /// When no sentinel agrees to it within thirty seconds.
    #[track_caller]
    pub fn fail_over(&self) -> u16 {
        // A sentinel that does not know yet that a server is a replica would make it one again
        // amid its promotion.
        eventually("the sentinels know the replicas for such", || {
            self.sentinels_all(|one| self.knows_replicas(one))
        });
        let old_port = self.primary().port();
        awaited("a sentinel fails over", PROMOTION_MAX, LOOK_EVERY, || {
            self.ask_to_fail_over().then_some(())
        });
        *self.to_replace.lock().unwrap_or_else(PoisonError::into_inner) = Some(old_port);
        old_port
    }

    /// Waits until another server than the one on `old_port` is a primary and a sentinel names it.
    /// Returns the moment it was first seen to be one, five milliseconds late at worst. A failover
    /// that was asked for and came to nothing is asked for again.
    ///
    /// # Panics
    /// When there is none within thirty seconds.
    #[track_caller]
    pub fn wait_for_promotion(&self, old_port: u16) -> Instant {
        let mut seen: Option<(usize, Instant)> = None;
        awaited("a replica is promoted and named", PROMOTION_MAX, LOOK_EVERY, || {
            if seen.is_none() {
                let promoted = self.servers.iter().position(|server| {
                    server.port() != old_port && server.is_primary() == Some(true)
                });
                let Some(promoted) = promoted else {
                    self.ask_again(old_port);
                    return None;
                };
                self.let_follow(promoted);
                seen = Some((promoted, Instant::now()));
            }
            let (promoted, at) = seen?;
            let port = self.servers[promoted].port();
            self.sentinels.iter().any(|one| names(one) == Some(port)).then_some(at)
        })
    }

    /// Kills one of the three sentinels, for good.
    ///
    /// # Panics
    /// When `i` is not below three.
    #[track_caller]
    pub fn kill_sentinel(&self, i: usize) {
        self.sentinels[i].kill();
    }

    /// Whether a sentinel has begun to.
    #[track_caller]
    fn ask_to_fail_over(&self) -> bool {
        let words = ["SENTINEL", "FAILOVER", SERVICE];
        match self.sentinels.iter().find_map(|one| glance(one, &words).ok()) {
            Some(Reply::Text(_)) => true,
            // An earlier failover is not over, or a replica that just came is not known well
            // enough: both pass.
            Some(Reply::Error(e)) if e.starts_with("INPROG") || e.starts_with("NOGOODSLAVE") => {
                false
            }
            None => false,
            other => panic!("a sentinel refused to fail over: {other:?}"),
        }
    }

    /// Sentinels themselves do not try again what an operator has asked them for.
    fn ask_again(&self, old_port: u16) {
        if *self.to_replace.lock().unwrap_or_else(PoisonError::into_inner) != Some(old_port) {
            return;
        }
        let words = ["SENTINEL", "MASTER", SERVICE];
        let said = self.sentinels.iter().find_map(|one| glance(one, &words).ok());
        // Both from one answer: were the failover over, the name would be another.
        let came_to_nothing = said.is_some_and(|said| {
            said.field("port") == Some(&old_port.to_string())
                && said.field("flags") == Some("master")
        });
        if came_to_nothing {
            self.ask_to_fail_over();
        }
    }

    /// A replica behind a proxy has a primary of another address than the sentinels know, which
    /// they would set right. So it obeys nobody who makes it follow another; being promoted is
    /// all that is left to them.
    fn let_only_be_promoted(&self, server: usize) {
        let one = ["-replicaof", "+replicaof|no", "-slaveof", "+slaveof|no"];
        self.set_rights(server, &one);
    }

    /// Once it has been promoted there is no proxy to go round, and it may follow again.
    fn let_follow(&self, server: usize) {
        if self.replication.is_some() && server == 1 {
            self.set_rights(server, &["+replicaof", "+slaveof"]);
        }
    }

    fn set_rights(&self, server: usize, rights: &[&str]) {
        let words = [&["ACL", "SETUSER", "default"], rights].concat();
        // A server that died the moment it was promoted has no rights to be set.
        if let Ok(reply) = self.servers[server].try_command(&words) {
            assert_eq!(reply.text(), Some("OK"), "the rights are set: {reply:?}");
        }
    }

    /// Whether this holds of every sentinel that answers.
    fn sentinels_all(&self, holds: impl Fn(&RedisServer) -> bool) -> bool {
        self.sentinels.iter().filter(|one| glance(one, &["PING"]).is_ok()).all(holds)
    }

    /// Whether this sentinel knows all replicas that answer as no more and no less than that.
    fn knows_replicas(&self, sentinel: &RedisServer) -> bool {
        let Some(primary) = names(sentinel) else { return false };
        let known = list(sentinel, "REPLICAS");
        let replicas = self.servers.iter().filter(|server| server.port() != primary);
        replicas.filter(|server| server.is_primary().is_some()).all(|server| {
            let port = server.port().to_string();
            known.iter().any(|one| {
                is(one, "port", &port)
                    && is(one, "flags", "slave")
                    && is(one, "role-reported", "slave")
            })
        })
    }

    /// Whether this sentinel knows the other two, and all replicas well enough to fail over.
    fn is_ready(&self, sentinel: &RedisServer) -> bool {
        let others = list(sentinel, "SENTINELS");
        others.len() == SENTINELS - 1
            && others.iter().all(|one| is(one, "flags", "sentinel"))
            && self.knows_replicas(sentinel)
            && list(sentinel, "REPLICAS").iter().all(|one| is(one, "master-link-status", "ok"))
    }
}

/// How a [`SentinelSet`] is to be.
#[derive(Debug, Clone)]
pub struct SentinelSetBuilder {
    server: RedisServerBuilder,
    replicas: usize,
    password: Option<String>,
    sentinel_password: Option<String>,
    down_after: Duration,
    replication_proxy: bool,
}

impl SentinelSetBuilder {
    /// How many replicas the primary has, instead of one.
    pub fn replicas(mut self, replicas: usize) -> Self {
        self.replicas = replicas;
        self
    }

    /// The servers ask every client, the sentinels and each other for this password.
    pub fn password(mut self, password: &str) -> Self {
        self.server = self.server.password(password);
        self.password = Some(password.to_owned());
        self
    }

    /// The sentinels ask every client and each other for this password.
    pub fn sentinel_password(mut self, password: &str) -> Self {
        self.sentinel_password = Some(password.to_owned());
        self
    }

    /// How long a server may be silent before a sentinel takes it for down, instead of 500 ms.
    pub fn down_after(mut self, down_after: Duration) -> Self {
        self.down_after = down_after;
        self
    }

    /// Sets one directive of every server's `redis.conf`; the value is one argument. The sentinels
    /// do not hear of it.
    pub fn config(mut self, name: &str, value: &str) -> Self {
        self.server = self.server.config(name, value);
        self
    }

    /// Puts a [`FaultProxy`] between the first replica and the primary: see
    /// [`SentinelSet::replication`]. That replica follows nobody else, whatever the sentinels say,
    /// until it has been promoted itself and [`SentinelSet::wait_for_promotion`] has seen it.
    pub fn replication_proxy(mut self) -> Self {
        self.replication_proxy = true;
        self
    }

    /// Starts all and returns when the replicas have their copies and every sentinel knows every
    /// replica and every other sentinel.
    ///
    /// # Panics
    /// As [`RedisServerBuilder::start`], when a proxy is asked for and there is no replica, or when
    /// the servers and sentinels do not find each other.
    #[track_caller]
    pub fn start(self) -> SentinelSet {
        assert!(self.replicas > 0 || !self.replication_proxy, "a proxy needs a replica");
        let server = self.server.replicating();
        let primary = server.clone().start();
        let replication = self.replication_proxy.then(|| FaultProxy::start(primary.addr()));
        let replicas = (0..self.replicas).map(|i| {
            let proxy = replication.as_ref().filter(|_| i == 0).map(FaultProxy::addr);
            server.clone().replica_of(proxy.unwrap_or(primary.addr()))
        });
        let sentinels = (0..SENTINELS).map(|_| {
            let sentinel = RedisServer::builder().sentinel();
            match &self.sentinel_password {
                Some(password) => sentinel.password(password),
                None => sentinel,
            }
        });
        let mut started = RedisServerBuilder::start_all(replicas.chain(sentinels).collect());
        let sentinels = started.split_off(self.replicas);
        let mut servers = vec![primary];
        servers.append(&mut started);
        let set = SentinelSet {
            sentinels,
            replication,
            servers,
            password: self.password,
            sentinel_password: self.sentinel_password,
            to_replace: Mutex::new(None),
        };
        for replica in &set.servers[1..] {
            wait_synced(&set.servers[0], replica);
        }
        if set.replication.is_some() {
            set.let_only_be_promoted(1);
        }
        for sentinel in &set.sentinels {
            set.begin_watch(sentinel, self.down_after);
        }
        for sentinel in &set.sentinels {
            eventually("a sentinel knows its set", || set.is_ready(sentinel));
        }
        for sentinel in &set.sentinels {
            tell(sentinel, &[&["DEBUG"], USUAL_PACE].concat());
        }
        set
    }
}

impl SentinelSet {
    #[track_caller]
    fn begin_watch(&self, sentinel: &RedisServer, down_after: Duration) {
        let tell = |words: &[&str]| tell(sentinel, words);
        tell(&[&["DEBUG"], PACE, MEETING_PACE].concat());
        tell(&["CONFIG", "SET", "resolve-hostnames", "no"]);
        if let Some(password) = &self.sentinel_password {
            tell(&["CONFIG", "SET", "sentinel-pass", password]);
        }
        let port = self.servers[0].port().to_string();
        tell(&["MONITOR", SERVICE, "127.0.0.1", &port, QUORUM]);
        let down_after_ms = down_after.as_millis().to_string();
        tell(&["SET", SERVICE, "down-after-milliseconds", &down_after_ms]);
        tell(&["SET", SERVICE, "failover-timeout", FAILOVER_MAX_MS]);
        if let Some(password) = &self.password {
            tell(&["SET", SERVICE, "auth-pass", password]);
        }
    }
}

#[track_caller]
fn tell(sentinel: &RedisServer, words: &[&str]) {
    let reply = sentinel.command(&[&["SENTINEL"], words].concat());
    assert!(!matches!(reply, Reply::Error(_)), "a sentinel refused {words:?}: {reply:?}");
}

/// The port of the primary this sentinel names; None where it does not answer.
fn names(sentinel: &RedisServer) -> Option<u16> {
    let reply = glance(sentinel, &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE]).ok()?;
    reply.list()?.get(1)?.text()?.parse().ok()
}

/// What a sentinel tells of all its replicas or sentinels; nothing where it does not answer.
fn list(sentinel: &RedisServer, of: &str) -> Vec<Reply> {
    let reply = glance(sentinel, &["SENTINEL", of, SERVICE]).ok();
    reply.as_ref().and_then(Reply::list).map(<[Reply]>::to_vec).unwrap_or_default()
}

fn is(one: &Reply, field: &str, value: &str) -> bool {
    one.field(field) == Some(value)
}

fn glance(sentinel: &RedisServer, words: &[&str]) -> io::Result<Reply> {
    sentinel.try_command_within(words, GLANCE_MAX)
}
