//! A cluster of real servers: slots that move, primaries that fail, and the moments in between.
//!
//! It is put together by the kit's own commands, for these are also what a test wants to stop
//! amid: a slot of which one half has moved is a state that a client must live with.

mod slot;
mod view;

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use crate::eventually::{PROMOTION_MAX, awaited, eventually};
use crate::redis_server::{GLANCE_MAX, RedisServer, RedisServerBuilder};
use crate::replica_pair::wait_synced;
use crate::resp::Reply;
use crate::url;
use view::Seen;

/// Keys that go in one `MIGRATE`, during which both ends do nothing else.
const KEYS_AT_ONCE: &str = "100";
const MIGRATE_MAX_MS: &str = "5000";
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Primaries among which the slots are shared out, and their replicas, on free loopback ports.
///
/// A node is named by its place in [`RedisCluster::nodes`], which it keeps whatever becomes of it.
/// With `p` primaries, those were started as the first `p` nodes, and a node and the replicas it
/// was started with are `p` apart: with three, nodes 1 and 4.
///
/// ```no_run
/// use paceline_testkit::RedisCluster;
///
/// let cluster = RedisCluster::start();
/// let slot = cluster.slot_of("{bucket}");
/// let owner = cluster.owner(slot);
/// cluster.move_slot(slot, (owner + 1) % 3);
/// cluster.kill((owner + 1) % 3);
/// cluster.wait_for_promotion((owner + 1) % 3);
/// assert_eq!(cluster.owner(slot), (owner + 1) % 3 + 3);
/// ```
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<RedisServer>,
    ids: Vec<String>,
    primaries: usize,
    password: Option<String>,
}

impl RedisCluster {
    /// Starts a cluster of three primaries with one replica each, without a password.
    ///
    /// # Panics
    /// As [`RedisClusterBuilder::start`].
    #[track_caller]
    pub fn start() -> RedisCluster {
        RedisCluster::builder().start()
    }

    /// A cluster of another shape, with a password or configuration of its own.
    pub fn builder() -> RedisClusterBuilder {
        RedisClusterBuilder {
            server: RedisServer::builder(),
            primaries: 3,
            replicas: 1,
            password: None,
            node_timeout: Duration::from_secs(1),
        }
    }

    /// The cluster as a store's URL: the hosts of all nodes, the password if there is one.
    pub fn url(&self) -> String {
        let login = url::login(self.password.as_deref());
        let hosts = url::hosts(self.nodes.iter().map(RedisServer::port));
        format!("redis-cluster://{login}{hosts}")
    }

    /// All nodes, those that were started as primaries first.
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// The slot of a key.
    pub fn slot_of(&self, key: &str) -> u16 {
        slot::slot_of(key.as_bytes())
    }

    /// The node that says of itself that it owns this slot; of several, such as one that was away
    /// and has not heard of its successor, the one with the latest say.
    ///
    /// # Panics
    /// When none says so within twenty seconds.
    #[track_caller]
    pub fn owner(&self, slot: u16) -> usize {
        let mut owner = None;
        eventually(&format!("a node owns slot {slot}"), || {
            owner = owner_among(&self.themselves(), slot);
            owner.is_some()
        });
        owner.expect("the wait ended with one")
    }

    /// The first node that says of itself that it is a replica of this one.
    ///
    /// # Panics
    /// When none says so within twenty seconds.
    #[track_caller]
    pub fn replica_of(&self, node: usize) -> usize {
        let mut replica = None;
        eventually(&format!("node {node} has a replica"), || {
            replica = self.kin(node).find(|&kin| {
                let seen = self.seen_by(kin);
                let itself = seen.iter().find(|seen| seen.is("myself"));
                itself.and_then(|itself| itself.primary.as_ref()) == Some(&self.ids[node])
            });
            replica.is_some()
        });
        replica.expect("the wait ended with one")
    }

    /// Moves a slot with all its keys to another primary, under the eyes of clients.
    ///
    /// # Panics
    /// As the three steps it consists of.
    #[track_caller]
    pub fn move_slot(&self, slot: u16, to: usize) {
        self.move_slots(slot..=slot, to);
    }

    /// Moves these slots one after the other; those the node owns stay where they are.
    ///
    /// # Panics
    /// As [`RedisCluster::move_slot`].
    #[track_caller]
    pub fn move_slots(&self, slots: RangeInclusive<u16>, to: usize) {
        // Asked once for all slots, of which there may be thousands.
        let (themselves, primaries) = (self.themselves(), self.primaries_now());
        for slot in slots {
            let from = owner_among(&themselves, slot).unwrap_or_else(|| self.owner(slot));
            if from != to {
                self.set_moving(slot, from, to);
                self.migrate(slot, from, to);
                self.set_owner(slot, from, to, &primaries);
            }
        }
    }

    /// The first step of a move: from now on the owner answers for the keys it has and sends
    /// clients on to the new one for the others (`ASK`).
    ///
    /// # Panics
    /// When the node owns the slot, or one of the two refuses.
    #[track_caller]
    pub fn begin_move(&self, slot: u16, to: usize) {
        let from = self.owner(slot);
        assert_ne!(from, to, "slot {slot} is where it is to go");
        self.set_moving(slot, from, to);
    }

    /// The second step: what keys are in the slot go to the new owner. Returns how many did. Clients
    /// may have made others there already, and these are lost to those that come.
    ///
    /// # Panics
    /// When the slot is not being moved, a key is not UTF-8, or one of the two refuses.
    #[track_caller]
    pub fn migrate_keys(&self, slot: u16) -> usize {
        let (from, to) = self.moving(slot);
        self.migrate(slot, from, to)
    }

    /// The last step: the new node owns the slot, and every primary that answers hears of it at
    /// once.
    ///
    /// # Panics
    /// When the slot is not being moved, or a primary refuses: the owner does while it has keys.
    #[track_caller]
    pub fn finish_move(&self, slot: u16) {
        let (from, to) = self.moving(slot);
        self.set_owner(slot, from, to, &self.primaries_now());
    }

    /// Puts a replica of this primary in its place, losing nothing, as an operator does before
    /// maintenance. Returns the new primary when it and the old one say that they are what they are.
    ///
    /// # Panics
    /// When there is no replica, or it is not promoted within thirty seconds.
    #[track_caller]
    pub fn fail_over(&self, node: usize) -> usize {
        let replica = self.replica_of(node);
        let ask = || {
            // A primary that has not heard of its replica's link yet is why this may be refused,
            // and a promotion that takes too long is called off: both are asked for again.
            let _ = self.nodes[replica].try_command(&["CLUSTER", "FAILOVER"]);
        };
        let mut asked_at = Instant::now();
        ask();
        awaited(&format!("node {node} is failed over"), PROMOTION_MAX, LOOK_EVERY, || {
            if self.nodes[replica].is_primary() == Some(true) {
                return (self.nodes[node].is_primary() == Some(false)).then_some(());
            }
            if asked_at.elapsed() > Duration::from_secs(6) {
                asked_at = Instant::now();
                ask();
            }
            None
        });
        replica
    }

    /// Kills a node as [`RedisServer::kill`] does.
    pub fn kill(&self, node: usize) {
        self.nodes[node].kill();
    }

    /// Waits until one of those that were started with this node is the primary in its place and
    /// another primary has heard of it. Returns the moment it was first seen to be one, five
    /// milliseconds late at worst.
    ///
    /// # Panics
    /// When there is none within thirty seconds.
    #[track_caller]
    pub fn wait_for_promotion(&self, node: usize) -> Instant {
        let mut seen: Option<(usize, Instant)> = None;
        let what = format!("a replica is promoted in place of node {node}");
        awaited(&what, PROMOTION_MAX, LOOK_EVERY, || {
            if seen.is_none() {
                let promoted =
                    self.kin(node).find(|&k| self.nodes[k].is_primary() == Some(true))?;
                seen = Some((promoted, Instant::now()));
            }
            let (promoted, at) = seen?;
            let heard = |&other: &usize| {
                let nodes = self.seen_by(other);
                let is_primary = |id: &str| nodes.iter().any(|n| n.id == id && n.is("master"));
                is_primary(&self.ids[other]) && is_primary(&self.ids[promoted])
            };
            let others = (0..self.nodes.len()).filter(|&o| o != node && o != promoted);
            others.into_iter().any(|other| heard(&other)).then_some(at)
        })
    }

    /// The nodes that were started as one primary and its replicas, without this one.
    fn kin(&self, node: usize) -> impl Iterator<Item = usize> {
        let primaries = self.primaries;
        (0..self.nodes.len()).filter(move |&n| n != node && n % primaries == node % primaries)
    }

    /// The cluster as this node knows it; nothing where it does not answer.
    fn seen_by(&self, node: usize) -> Vec<Seen> {
        let reply = self.nodes[node].try_command_within(&["CLUSTER", "NODES"], GLANCE_MAX);
        reply.ok().and_then(|reply| reply.text().map(view::parse)).unwrap_or_default()
    }

    /// What each node that answers says of itself.
    fn themselves(&self) -> Vec<(usize, Seen)> {
        let all = (0..self.nodes.len()).map(|node| (node, self.seen_by(node)));
        all.filter_map(|(node, seen)| Some((node, seen.into_iter().find(|s| s.is("myself"))?)))
            .collect()
    }

    fn primaries_now(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|&n| self.nodes[n].is_primary() == Some(true)).collect()
    }

    /// Whence and whither a slot is being moved.
    #[track_caller]
    fn moving(&self, slot: u16) -> (usize, usize) {
        let from = self.owner(slot);
        let seen = self.seen_by(from);
        let to = seen.iter().find_map(|seen| seen.migrates_to(slot));
        let to = to.and_then(|id| self.ids.iter().position(|other| other == id));
        (from, to.unwrap_or_else(|| panic!("slot {slot} is not being moved")))
    }

    #[track_caller]
    fn set_moving(&self, slot: u16, from: usize, to: usize) {
        let slot = slot.to_string();
        self.tell(to, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &self.ids[from]]);
        self.tell(from, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &self.ids[to]]);
    }

    #[track_caller]
    fn migrate(&self, slot: u16, from: usize, to: usize) -> usize {
        let port = self.nodes[to].port().to_string();
        let auth = self.password.as_deref().map(|password| ["AUTH", password]);
        let mut migrated = 0;
        loop {
            let words = ["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), KEYS_AT_ONCE];
            let reply = self.nodes[from].command(&words);
            let keys = reply.list().unwrap_or_else(|| panic!("no keys of slot {slot}: {reply:?}"));
            if keys.is_empty() {
                return migrated;
            }
            let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", MIGRATE_MAX_MS, "REPLACE"];
            words.extend(auth.iter().flatten());
            words.push("KEYS");
            words.extend(keys.iter().filter_map(Reply::text));
            self.tell(from, &words);
            migrated += keys.len();
        }
    }

    #[track_caller]
    fn set_owner(&self, slot: u16, from: usize, to: usize, primaries: &[usize]) {
        let words = ["CLUSTER", "SETSLOT", &slot.to_string(), "NODE", &self.ids[to]];
        // The new owner first: the other way round nobody would own the slot if this were the end.
        self.tell(to, &words);
        self.tell(from, &words);
        for &node in primaries.iter().filter(|&&node| node != to && node != from) {
            self.tell(node, &words);
        }
    }

    #[track_caller]
    fn tell(&self, node: usize, words: &[&str]) {
        let reply = self.nodes[node].command(words);
        assert_eq!(reply.text(), Some("OK"), "node {node} refused {words:?}: {reply:?}");
    }
}

/// Of those that say they own the slot, the one with the latest say.
fn owner_among(themselves: &[(usize, Seen)], slot: u16) -> Option<usize> {
    let claims = themselves.iter().filter(|(_, itself)| itself.owns(slot));
    claims.max_by_key(|(_, itself)| itself.epoch).map(|&(node, _)| node)
}

/// How a [`RedisCluster`] is to be.
#[derive(Debug, Clone)]
pub struct RedisClusterBuilder {
    server: RedisServerBuilder,
    primaries: usize,
    replicas: usize,
    password: Option<String>,
    node_timeout: Duration,
}

impl RedisClusterBuilder {
    /// How many primaries share the slots, instead of three. With fewer, none is replaced by its
    /// replica when it dies: it takes more than half of the primaries to agree to it.
    pub fn primaries(mut self, primaries: usize) -> Self {
        self.primaries = primaries;
        self
    }

    /// How many replicas each primary has, instead of one.
    pub fn replicas(mut self, replicas: usize) -> Self {
        self.replicas = replicas;
        self
    }

    /// The nodes ask every client and each other for this password.
    pub fn password(mut self, password: &str) -> Self {
        self.server = self.server.password(password);
        self.password = Some(password.to_owned());
        self
    }

    /// How long a node may be silent before another takes it for down, instead of a second.
    pub fn node_timeout(mut self, node_timeout: Duration) -> Self {
        self.node_timeout = node_timeout;
        self
    }

    /// Sets one directive of every node's `redis.conf`; the value is one argument.
    pub fn config(mut self, name: &str, value: &str) -> Self {
        self.server = self.server.config(name, value);
        self
    }

    /// Starts all nodes and returns when every node knows every other, says that all is well, and
    /// the replicas have their copies. That takes two seconds, since a primary that has just started
    /// waits as long before it answers for its slots.
    ///
    /// # Panics
    /// As [`RedisServerBuilder::start`], when there is to be no primary, or when the nodes do not
    /// find each other.
    #[track_caller]
    pub fn start(self) -> RedisCluster {
        assert!(self.primaries > 0, "a cluster needs a primary");
        let server = self
            .server
            .replicating()
            .node()
            .config("cluster-node-timeout", &self.node_timeout.as_millis().to_string())
            // A replica stays with its primary even where another has none.
            .config("cluster-allow-replica-migration", "no");
        let nodes = vec![server; self.primaries * (1 + self.replicas)];
        let nodes = RedisServerBuilder::start_all(nodes);
        let id = |node: &RedisServer| {
            let reply = node.command(&["CLUSTER", "MYID"]);
            reply.text().unwrap_or_else(|| panic!("a node has no id: {reply:?}")).to_owned()
        };
        let ids = nodes.iter().map(id).collect();
        let cluster =
            RedisCluster { nodes, ids, primaries: self.primaries, password: self.password };
        cluster.share_slots();
        cluster.meet();
        cluster.begin_replication();
        eventually("all is well in the cluster", || cluster.is_well());
        cluster
    }
}

impl RedisCluster {
    #[track_caller]
    fn share_slots(&self) {
        for node in 0..self.primaries {
            let share = slot::share(node, self.primaries);
            let (first, last) = (share.start().to_string(), share.end().to_string());
            self.tell(node, &["CLUSTER", "ADDSLOTSRANGE", &first, &last]);
            // Else all would have the same say, and would have to settle whose is later first.
            self.tell(node, &["CLUSTER", "SET-CONFIG-EPOCH", &(node + 1).to_string()]);
        }
    }

    /// Each is told of each: who is only told of one hears of the others at the pace of gossip.
    #[track_caller]
    fn meet(&self) {
        for (i, node) in self.nodes.iter().enumerate() {
            let port = node.port().to_string();
            let bus = node.bus_port().expect("a node has a bus port").to_string();
            for other in 0..i {
                self.tell(other, &["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
            }
        }
    }

    #[track_caller]
    fn begin_replication(&self) {
        for replica in self.primaries..self.nodes.len() {
            let primary = replica % self.primaries;
            let words = ["CLUSTER", "REPLICATE", &self.ids[primary]];
            // Refused until the handshake has told it who its primary is.
            eventually(&format!("node {replica} replicates node {primary}"), || {
                self.nodes[replica].command(&words).text() == Some("OK")
            });
        }
        for replica in self.primaries..self.nodes.len() {
            wait_synced(&self.nodes[replica % self.primaries], &self.nodes[replica]);
        }
    }

    fn is_well(&self) -> bool {
        let replicas = self.nodes.len() - self.primaries;
        (0..self.nodes.len()).all(|node| {
            let seen = self.seen_by(node);
            seen.len() == self.nodes.len()
                && seen.iter().all(Seen::is_well)
                && seen.iter().filter(|seen| seen.primary.is_some()).count() == replicas
                && self.says_ok(node)
        })
    }

    fn says_ok(&self, node: usize) -> bool {
        let info = self.nodes[node].try_command_within(&["CLUSTER", "INFO"], GLANCE_MAX);
        info.is_ok_and(|info| {
            let has = |line: &str| info.text().is_some_and(|text| text.lines().any(|l| l == line));
            has("cluster_state:ok") && has("cluster_slots_ok:16384")
        })
    }
}
