//! The servers of a run, and what is done to them. Each fault is over, and what can heal has
//! healed, when [`Stage::strike`] returns.

use std::time::Duration;

use paceline_testkit::{FaultProxy, Mode, RedisCluster, RedisServer, SentinelSet, TimeShiftProxy};

use crate::plan::{BUCKETS, Fault, Servers, Step};

/// Longest stop that sentinels and Clusters take for a hiccup.
const HICCUP: Duration = Duration::from_millis(250);
/// Slots that no bucket of a run is in, one for each primary there was at first.
const SLOTS: [u16; 3] = [1_000, 8_000, 15_000];

#[derive(Debug)]
pub(crate) enum Stage {
    One(Box<One>),
    Sentinel(SentinelSet),
    Cluster(RedisCluster),
}

/// Workers reach the server through a wire that breaks, and that through one that shifts its time.
#[derive(Debug)]
pub(crate) struct One {
    server: RedisServer,
    time: TimeShiftProxy,
    wire: FaultProxy,
}

impl Stage {
    pub(crate) fn start(servers: Servers) -> Self {
        match servers {
            Servers::One => {
                let server = RedisServer::start();
                let time = TimeShiftProxy::start(server.addr());
                let wire = FaultProxy::start(time.addr());
                Self::One(Box::new(One { server, time, wire }))
            }
            Servers::Sentinel => Self::Sentinel(SentinelSet::builder().replicas(2).start()),
            Servers::Cluster => Self::Cluster(RedisCluster::start()),
        }
    }

    /// Where the workers' store is.
    pub(crate) fn url(&self) -> String {
        match self {
            Self::One(one) => one.wire.url(),
            Self::Sentinel(set) => set.url(),
            Self::Cluster(cluster) => cluster.url(),
        }
    }

    /// Does a fault to servers or wires; `false` where it is one to somebody else.
    pub(crate) fn strike(&self, step: &Step) -> bool {
        let lasts = step.lasts;
        match (step.fault, self) {
            (Fault::Stall, Self::One(one)) => during(&one.wire, Mode::Stall, lasts),
            (Fault::SwallowReplies, Self::One(one)) => {
                during(&one.wire, Mode::SwallowReplies, lasts);
                // A stream never goes on behind what it lost.
                one.wire.cut_connections();
            }
            (Fault::Cut, Self::One(one)) => during(&one.wire, Mode::Cut, lasts),
            (Fault::Delay(ms), Self::One(one)) => {
                during(&one.wire, Mode::Delay(Duration::from_millis(ms)), lasts);
            }
            (Fault::HalfOpen, Self::One(one)) => during(&one.wire, Mode::HalfOpen, lasts),
            (Fault::ClockStep { to, .. }, Self::One(one)) => one.time.set(to * 1_000_000),
            (Fault::Restart, Self::One(one)) => one.server.restart(),
            (Fault::Flush, Self::One(one)) => {
                one.server.command(&["FLUSHALL"]);
            }
            (Fault::Pause(bucket), _) => {
                let server = self.primary(bucket);
                let lasts = if let Self::One(_) = self { lasts } else { lasts.min(HICCUP) };
                server.pause();
                std::thread::sleep(lasts);
                server.resume();
            }
            (Fault::FlushScripts, _) => {
                for server in self.servers() {
                    // Those that were killed have none.
                    let _ = server.try_command(&["SCRIPT", "FLUSH"]);
                }
            }
            (Fault::Kill(_), Self::Sentinel(set)) => {
                let old = set.kill_primary();
                set.wait_for_promotion(old);
            }
            (Fault::FailOver(_), Self::Sentinel(set)) => {
                let old = set.fail_over();
                set.wait_for_promotion(old);
            }
            (Fault::Freeze, Self::Sentinel(set)) => {
                let old = set.primary();
                old.pause();
                set.wait_for_promotion(old.port());
                old.resume();
            }
            (Fault::KillSentinel(which), Self::Sentinel(set)) => set.kill_sentinel(which),
            (Fault::Kill(bucket), Self::Cluster(cluster)) => {
                let node = owner(cluster, bucket);
                cluster.kill(node);
                cluster.wait_for_promotion(node);
            }
            (Fault::FailOver(bucket), Self::Cluster(cluster)) => {
                cluster.fail_over(owner(cluster, bucket));
            }
            (Fault::MoveSlot(bucket), Self::Cluster(cluster)) => {
                let from = owner(cluster, bucket);
                let mut primaries = SLOTS.into_iter().map(|slot| cluster.owner(slot));
                let to = primaries.find(|node| *node != from).expect("three primaries");
                cluster.move_slot(cluster.slot_of(&key(bucket)), to);
            }
            _ => return false,
        }
        true
    }

    fn servers(&self) -> Vec<&RedisServer> {
        match self {
            Self::One(one) => vec![&one.server],
            Self::Sentinel(set) => set.servers().iter().collect(),
            Self::Cluster(cluster) => cluster.nodes().iter().collect(),
        }
    }

    /// The server that has a bucket.
    fn primary(&self, bucket: usize) -> &RedisServer {
        match self {
            Self::One(one) => &one.server,
            Self::Sentinel(set) => set.primary(),
            Self::Cluster(cluster) => &cluster.nodes()[owner(cluster, bucket)],
        }
    }
}

fn during(wire: &FaultProxy, mode: Mode, lasts: Duration) {
    wire.set(mode);
    std::thread::sleep(lasts);
    wire.set(Mode::Pass);
}

fn key(bucket: usize) -> String {
    format!("paceline:{{{}}}", BUCKETS[bucket])
}

fn owner(cluster: &RedisCluster, bucket: usize) -> usize {
    cluster.owner(cluster.slot_of(&key(bucket)))
}
